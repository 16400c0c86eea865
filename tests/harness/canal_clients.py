"""Canal's own clients, which know nothing of us: the Java client, and canal-python."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.harness.servers import CACHE, ServerDidNotStart

PROBE = Path(__file__).with_name("java") / "CanalProbe.java"


def _home() -> Path:
    found = Path(os.environ.get("STORAGE_CONSUMER_CANAL") or CACHE / "canal")
    if not (found / "ready").exists():
        raise ServerDidNotStart(f"canal's clients are not in {found}; bash tests/run.sh all installs them")
    return found


def java(source: Path, *words: str) -> list[str]:
    """Return the command that compiles and runs one Java file with canal's client."""
    jars = [str(each) for each in sorted((_home() / "jars").glob("*.jar")) if not each.name.startswith("logback")]
    return ["java", "-Xmx512m", "-cp", ":".join(jars), str(source), *words]


def python(source: Path, *words: str) -> list[str]:
    """Return the command that runs a Python file with canal-python."""
    return [str(_home() / "python" / "bin" / "python"), str(source), *words]


class JavaClient:
    """A running `CanalProbe`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Talk to it by its standard input and output."""
        self.process = process

    def __call__(self, line: str) -> list[str]:
        """Let the client do something; return what it answers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        found = list[str]()
        for text in self.process.stdout:
            if text == ".\n":
                return found
            found.append(text.rstrip("\n"))
        raise AssertionError(f"the client ended at {line!r} after {found}")

    def get(self, size: int) -> tuple[int, list[str]]:
        """Return number and lines of the next batch."""
        first, *lines = self(f"get {size}")
        word, _, number = first.partition(" ")
        assert word == "batch", first
        return int(number), lines


@contextmanager
def java_client() -> Iterator[JavaClient]:
    """Run a Java client; it is killed at the end."""
    process = subprocess.Popen(
        java(PROBE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield JavaClient(process)
    finally:
        process.kill()
        process.communicate()


def output(command: Sequence[str], seconds: float = 120) -> str:
    """Run a command to its end, which has to be a good one; return what it printed."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
