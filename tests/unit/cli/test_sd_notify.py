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

from storage_consumer.cli.main import Notifier
from storage_consumer.clock import SystemClock
from tests.harness.waiting import wait_until

ALIVE = {"WATCHDOG_USEC": "60000000"}


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
    silent: list[float | None] = [None]
    notifier = Notifier({"NOTIFY_SOCKET": manager.address, **ALIVE})
    with notifier.telling(lambda: silent[0]):
        assert not manager.told("READY=1")
        silent[0] = 3.0
        wait_until("ready and alive", lambda: manager.told("READY=1") and manager.told("WATCHDOG=1"))
    assert manager.told("STOPPING=1")
    assert manager.heard.count("READY=1") == 1


def test_silence_is_not_called_alive(manager: Manager) -> None:
    """Once it is silent for as long as the watchdog waits, nothing more says that it is alive."""
    with Notifier({"NOTIFY_SOCKET": manager.address, **ALIVE}).telling(lambda: 60.5):
        wait_until("ready", lambda: manager.told("READY=1"))
    assert not manager.told("WATCHDOG=1")


@pytest.mark.parametrize("environ", [{}, {**ALIVE, "WATCHDOG_PID": "1"}], ids=["no watchdog", "of another process"])
def test_no_watchdog(manager: Manager, environ: dict[str, str]) -> None:
    """Without a watchdog for this very process nothing is said about being alive."""
    with Notifier({"NOTIFY_SOCKET": manager.address, **environ}).telling(lambda: 0.0):
        wait_until("ready", lambda: manager.told("READY=1"))
    assert not manager.told("WATCHDOG=1")


def test_without_a_manager() -> None:
    """Without the variable no thread is started."""
    before = threading.active_count()
    with Notifier({}).telling(lambda: 0.0):
        assert threading.active_count() == before


def test_a_manager_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A socket that nobody has is logged once, and disturbs nothing."""
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    with notifier.telling(lambda: 0.0):
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
