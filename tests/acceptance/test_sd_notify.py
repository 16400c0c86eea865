"""The real program as a service of ``Type=notify``: what it says on systemd's socket."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.locks import lock, wait_for_a_blocked_write
from tests.harness.program import Program, program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]


@dataclass
class Manager:
    """The service manager's end of the socket of one process."""

    listening: socket.socket
    path: str
    heard: list[str] = field(default_factory=list)

    def said(self, wanted: str) -> bool:
        """Whether something that begins like this has been said since the last `forget`."""
        with suppress(BlockingIOError):
            while True:
                self.heard += self.listening.recv(4096).decode().split("\n")
        return any(each.startswith(wanted) for each in self.heard)

    def forget(self) -> None:
        """Forget all that was said so far."""
        self.said("")
        self.heard.clear()


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Callable[[str], Manager]]:
    """Return what opens a socket of this name."""
    sockets: list[socket.socket] = []

    def opened(name: str) -> Manager:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sockets.append(listening)
        listening.bind(str(tmp_path / name))
        listening.settimeout(0)
        return Manager(listening=listening, path=str(tmp_path / name))

    yield opened
    for each in sockets:
        each.close()


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """A bucket with one table and one row."""
    made = SmallBucket(root=tmp_path / "bucket")
    made.create("d.t")
    made.rows("d.t", 1, row("d.t", 5, "1", '"one"'))
    made.metadata(ts(9))
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    return made


def service(bucket: SmallBucket, server: DatabaseServer, manager: Manager) -> AbstractContextManager[Program]:
    """The continuous program, as systemd would start it, with a watchdog of six seconds."""
    config = str(bucket.root.with_name("changefeed.toml"))
    arguments = ["--upstream-uri", bucket.uri, "--config", config, "--downstream-uri", server.uri, "--lease-ttl", "3s"]
    environment = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "6000000"}
    return program([*arguments, "--flush-interval", "200ms"], Path(f"{manager.path}.log"), environment=environment)


def test_a_service(bucket: SmallBucket, mariadb: DatabaseServer, listen: Callable[[str], Manager]) -> None:
    """It is ready once it works, alive while a write hangs in the target for longer than the watchdog waits, and says when it ends."""
    writer = listen("writer")
    with service(bucket, mariadb, writer) as running:
        wait_until("ready", lambda: writer.said("READY=1"))
        running.wait_for("round_finished", checkpoint=ts(9))
        with lock(mariadb, "d.t", 2):
            bucket.rows("d.t", 2, row("d.t", 12, "2", '"two"'))
            bucket.metadata(ts(20))
            wait_for_a_blocked_write(mariadb)
            for _ in range(10):  # each a second
                writer.forget()
                wait_until("a sign of life", lambda: writer.said("WATCHDOG=1"))
            assert running.events("round_finished")[-1]["checkpoint"] == ts(9)
        running.wait_for("round_finished", checkpoint=ts(20))
        running.signal(signal.SIGTERM)
        assert running.end() == 0
    assert writer.said("STOPPING=1")


def test_a_standby(bucket: SmallBucket, mariadb: DatabaseServer, listen: Callable[[str], Manager]) -> None:
    """A standby is ready and alive, and stays so when it takes over."""
    one, two = listen("one"), listen("two")
    with service(bucket, mariadb, one) as first:
        first.wait_for("round_finished", checkpoint=ts(9))
        with service(bucket, mariadb, two) as second:
            second.wait_for("lease_waiting")
            wait_until("ready", lambda: two.said("READY=1"))
            two.forget()
            wait_until("a sign of life", lambda: two.said("WATCHDOG=1"))
            first.kill()
            second.wait_for("round_finished", checkpoint=ts(9))
            two.forget()
            wait_until("a further sign of life", lambda: two.said("WATCHDOG=1"))


def test_a_wrong_setting(bucket: SmallBucket, mariadb: DatabaseServer, listen: Callable[[str], Manager]) -> None:
    """What ends with code 2 was never ready, so that systemd calls the start failed."""
    manager = listen("wrong")
    mariadb.query("CREATE USER nobody@'%' IDENTIFIED BY 'x'")
    wrong = mariadb.uri.replace("root@", "nobody@")
    config = str(bucket.root.with_name("changefeed.toml"))
    arguments = ["--upstream-uri", bucket.uri, "--config", config, "--downstream-uri", wrong]
    with program(arguments, Path(f"{manager.path}.log"), environment={"NOTIFY_SOCKET": manager.path}) as running:
        assert running.end() == 2
    assert not manager.said("READY=1")
