"""What is restarted: two consumers on one target, the target's server, and the bucket's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from tests.harness.program import ROOT, Program, program
from tests.harness.s3_server import S3Server
from tests.harness.servers import DatabaseServer, free_port

BUCKET, PREFIX = "soak", "feed"
LEASE = 10
"""Seconds."""


@dataclass(slots=True)
class Consumer:
    """One place for a consumer: what ends there is started again with the same arguments."""

    name: str
    arguments: Sequence[str]
    home: Path
    port: int = field(default_factory=free_port)
    """Of its metrics."""
    running: Program | None = None
    starts: int = 0
    _stack: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        """Start it; what ran before is gone."""
        self._stack.close()
        self.starts += 1
        metrics = ["--metrics-listen", f"127.0.0.1:{self.port}"]
        log = self.home / f"{self.name}-{self.starts}.log"
        self.running = self._stack.enter_context(program([*self.arguments, *metrics], log))

    def ensure(self) -> None:
        """Start it again if it has ended."""
        if self.running is None or self.running.process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """Kill -9 all of it."""
        if self.running is not None:
            self.running.kill()

    def terminate(self) -> None:
        """Ask it to end."""
        if self.running is not None:
            self.running.signal(SIGTERM)

    def freeze(self) -> None:
        """Stop all of its processes where they are."""
        if self.running is not None:
            self.running.signal_all(SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        if self.running is not None:
            self.running.signal_all(SIGCONT)

    def kill_java(self) -> None:
        """Kill -9 its JVM."""
        for pid in self.processes():
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "java":
                    os.kill(pid, SIGKILL)

    def processes(self) -> Iterator[int]:
        """All of its processes."""
        if self.running is None:
            return
        for folder in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                if os.getsid(int(folder.name)) == self.running.process.pid:
                    yield int(folder.name)

    def close(self) -> None:
        """End it."""
        self.thaw()
        self._stack.close()


@dataclass(slots=True)
class Parts:
    """All of them."""

    server: DatabaseServer
    s3: S3Server
    consumers: tuple[Consumer, ...]

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another command of the program on the target."""
        given = [sys.executable, "-m", "storage_consumer", *words, "--downstream-uri", self.server.uri]
        return subprocess.run(given, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def arguments_for(server: DatabaseServer, s3: S3Server, home: Path, hook: str) -> list[str]:
    """What ``run`` takes."""
    config = home / "changefeed.toml"
    config.write_text(
        "[sink]\nprotocol = 'csv'\ndate-separator = 'day'\n[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8"
    )
    return [
        *("--upstream-uri", s3.uri(BUCKET, PREFIX, s3.reader), "--config", str(config), "--tz", "UTC"),
        *("--downstream-uri", server.uri, "--flush-interval", "1s", "--lease-ttl", f"{LEASE}s", "--standby"),
        *("--retry-limit", "10m", "--on-halt", hook),
    ]
