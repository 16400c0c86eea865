"""What systemd is told, over a real datagram socket."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from storage_consumer.cli.sd_notify import Notifier
from storage_consumer.clock import SystemClock
from storage_consumer.monitoring.recorder import Recorder
from storage_consumer.signals import Stop
from storage_consumer.summary import RoundSummary, RunningStatement, TableSummary
from tests.harness.waiting import wait_until

CHECKPOINT = 470607624255045632
NOW = (CHECKPOINT >> 18) / 1000 + 200
ALIVE = {"WATCHDOG_USEC": "60000000"}


@dataclass
class Running:
    """A consumer of which only this is asked."""

    is_writer: bool = True
    silent_seconds: float | None = 0.0
    statements: tuple[RunningStatement, ...] = ()

    def running_statements(self) -> tuple[RunningStatement, ...]:
        """What runs on the target."""
        return self.statements


def _recorder() -> Recorder:
    return Recorder(SystemClock(), "")


@dataclass
class Manager:
    """The service manager's end."""

    listening: socket.socket
    address: str
    heard: list[str] = field(default_factory=list)

    def told(self, wanted: str) -> bool:
        """Read what has come; return whether an assignment is or begins like this."""
        while True:
            try:
                self.heard += self.listening.recv(4096).decode().split("\n")
            except BlockingIOError:
                return any(each.startswith(wanted) for each in self.heard)


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """A manager with a socket in the file system, and one in the abstract namespace."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@{uuid.uuid4().hex}"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind(address.replace("@", "\0", 1))
        listening.settimeout(0)
        yield Manager(listening=listening, address=address)


def test_ready_alive_and_stopping(manager: Manager) -> None:
    """The first wait makes it ready; each look says that it is alive; the end is told."""
    running = Running(silent_seconds=None)
    notifier = Notifier(_recorder(), {"NOTIFY_SOCKET": manager.address, **ALIVE})
    with notifier.telling(running, Stop()):
        wait_until("a status", lambda: manager.told("STATUS=first round"))
        assert not manager.told("READY=1")
        assert not manager.told("WATCHDOG=1")
        running.silent_seconds = 3.0
        wait_until("ready and alive", lambda: manager.told("READY=1") and manager.told("WATCHDOG=1"))
    assert manager.told("STOPPING=1")
    assert manager.heard.count("READY=1") == 1


def test_silence_is_not_called_alive(manager: Manager) -> None:
    """Once it is silent for as long as the watchdog waits, nothing more says that it is alive."""
    running = Running(silent_seconds=60.5)
    with Notifier(_recorder(), {"NOTIFY_SOCKET": manager.address, **ALIVE}).telling(running, Stop()):
        wait_until("ready", lambda: manager.told("READY=1"))
    assert not manager.told("WATCHDOG=1")


@pytest.mark.parametrize("environ", [{}, {**ALIVE, "WATCHDOG_PID": "1"}], ids=["no watchdog", "of another process"])
def test_no_watchdog(manager: Manager, environ: dict[str, str]) -> None:
    """Without a watchdog for this very process nothing is said about being alive."""
    with Notifier(_recorder(), {"NOTIFY_SOCKET": manager.address, **environ}).telling(Running(), Stop()):
        wait_until("ready", lambda: manager.told("READY=1"))
    assert not manager.told("WATCHDOG=1")


def test_status(manager: Manager) -> None:
    """The status has the checkpoint, its lag and halted tables, then the running round; a standby says that it is one."""
    recorder = _recorder()
    notifier = Notifier(recorder, {"NOTIFY_SOCKET": manager.address}, now=lambda: NOW)
    recorder.round_finished(RoundSummary(checkpoint=CHECKPOINT, tables=(TableSummary(table="d.t", state="halted"),)))
    recorder.round_started(files=8, size=1, storage_checkpoint=CHECKPOINT)
    recorder.advanced(files=3, rows=7)
    with notifier.telling(Running(), Stop()):
        line = f"STATUS=checkpoint {CHECKPOINT}, 3m20s behind, halted tables: 1; round: 3 of 8 files"
        wait_until("the status", lambda: manager.told(line))
    with notifier.telling(Running(is_writer=False), Stop()):
        wait_until("the standby's status", lambda: manager.told("STATUS=standby"))


def test_a_name_cannot_add_an_assignment(manager: Manager) -> None:
    """A table whose name has an end of line stays within the status."""
    notifier = Notifier(_recorder(), {"NOTIFY_SOCKET": manager.address})
    running = Running(statements=(RunningStatement(table="d.a\nWATCHDOG=trigger", version=1, query="", seconds=1),))
    with notifier.telling(running, Stop()):
        wait_until("the status", lambda: manager.told("STATUS=DDL on d.a"))
    assert not manager.told("WATCHDOG")


def test_without_a_manager() -> None:
    """Without the variable no thread is started."""
    before = threading.active_count()
    with Notifier(_recorder(), {}).telling(Running(), Stop()):
        assert threading.active_count() == before


def test_a_manager_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A socket that nobody has is logged once, and disturbs nothing."""
    notifier = Notifier(_recorder(), {"NOTIFY_SOCKET": str(tmp_path / "gone")})
    with notifier.telling(Running(), Stop()):
        wait_until("the line", lambda: "notify_failed" in caplog.text)
    notifier.send("READY=1")
    assert caplog.text.count("notify_failed") == 1


def test_silence_of_the_clock() -> None:
    """A wait that goes on, however long, is no silence; before the first wait nothing is known."""
    clock, event = SystemClock(), threading.Event()
    assert clock.silent_seconds() is None
    clock.wait(event, 0.0)
    wait_until("silence", lambda: (clock.silent_seconds() or 0.0) > 0.01)
    waiting = threading.Thread(target=clock.wait, args=(event, 60.0))
    waiting.start()
    wait_until("the wait", lambda: clock.silent_seconds() == 0.0)
    event.set()
    waiting.join()
