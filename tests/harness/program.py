"""The program as a process of its own, with Spark's JVM and workers in one group that can be killed as a whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket
from tests.harness.waiting import PATIENCE, TookTooLong

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A running ``storage-consumer run``; what it says is JSON lines in `log`."""

    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        """All that it said."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """The events that it logged, or those of one name; lines that are no JSON are left out."""
        found = []
        for line in self.text().splitlines():
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and name in ("", event.get("event")):
                    found.append(event)
        return found

    def wait_for(self, name: str, **fields: object) -> dict[str, Any]:
        """Return the first event of that name with these values, which must come while the program runs."""
        deadline = time.monotonic() + PATIENCE
        while True:
            ended = self.process.poll() is not None
            for event in self.events(name):
                if fields.items() <= event.items():
                    return event
            if ended or time.monotonic() > deadline:
                raise TookTooLong(f"no {name} {fields}\n{self.text()[-4000:]}")
            time.sleep(0.02)

    def signal(self, number: Signals) -> None:
        """Send a signal to the program alone."""
        self.process.send_signal(number)

    def signal_all(self, number: Signals, name: str = "") -> None:
        """Send a signal to the program, Spark's JVM and the Python workers, or to those of one name such as ``java``."""
        for folder in Path("/proc").iterdir():
            with suppress(OSError, ValueError):  # no process, or one that has just ended
                if os.getsid(int(folder.name)) == self.process.pid and name in (folder / "comm").read_text():
                    os.kill(int(folder.name), number)

    def end(self, seconds: float = PATIENCE) -> int:
        """Wait for its end; the exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TookTooLong(f"still running after {seconds} s\n{self.text()[-4000:]}") from None

    def kill(self) -> None:
        """Kill -9 the whole group: the program, Spark's JVM, the Python workers."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, SIGKILL)
        self.process.wait()


@contextmanager
def program(
    arguments: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = (),
    within: Sequence[str] = (),
    verb: str = "run",
) -> Iterator[Program]:
    """Start ``run``, or another verb that goes on, with these arguments; nothing of it is left after the block.

    `command`: what to start instead of ``python -m storage_consumer``; `within`: a command that starts that.
    """
    given = [
        *within,
        *(command or (sys.executable, "-m", "storage_consumer")),
        *(verb, *arguments, "--log-format", "json"),
    ]
    ours = ("SPARK_SUBMIT_OPTS",)  # see `class_archive`
    inherited = {
        key: value for key, value in os.environ.items() if key in ours or not key.startswith(("SPARK_", "PYSPARK_"))
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            given,
            cwd=ROOT,
            env={**inherited, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = Program(process=process, log=log)
    try:
        yield running
    finally:
        running.kill()


def run_arguments(bucket: SmallBucket, server: DatabaseServer) -> list[str]:
    """Return what ``run`` takes for a small bucket and a target."""
    return ["--upstream-uri", bucket.uri, "--include-commit-ts", "--downstream-uri", server.uri, "--tz", "UTC"]


def command(*words: str, server: DatabaseServer | None = None, seconds: float = 90) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, on a target if one is given, and with no settings from the environment."""
    reach = ["--downstream-uri", server.uri] if server else []
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("STORAGE_CONSUMER_")}
    return subprocess.run(
        [sys.executable, "-m", "storage_consumer", *words, *reach],
        cwd=ROOT,
        env=inherited,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
