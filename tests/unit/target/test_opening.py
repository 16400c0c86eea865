"""Opening a Unix socket whose server is slow to accept: nothing is under way until there is room in its queue."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import TargetUnavailable
from storage_consumer.target.connection import Deadline, opened_socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """A server that has not yet accepted as many connections as it lets wait."""

    listener: socket.socket
    downstream: Downstream


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Busy]:
    """A server on a Unix socket with a full queue."""
    place = str(tmp_path / "s")
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(place)
        listener.listen(0)
        listener.settimeout(20)
        number = 0
        while not number:
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)  # noqa: FBT003 - the standard library's signature
            number = waiting.connect_ex(place)
        yield Busy(listener=listener, downstream=Downstream(given_uri="mysql://root@localhost/", unix_socket=place))


def test_queue_that_stays_full(busy: Busy) -> None:
    """Nobody accepts in time: the target is out of reach, by the limit that the message names."""
    with pytest.raises(TargetUnavailable, match=r"nobody accepted the connection within 0\.3 s \(--connect-timeout\)"):
        opened_socket(busy.downstream, Deadline(0.3))


def test_queue_that_gets_room(busy: Busy) -> None:
    """The server accepts one that waits: there is room for this connection, and it holds."""
    accepted: list[socket.socket] = []

    def accept() -> None:
        time.sleep(0.2)
        accepted.extend(busy.listener.accept()[0] for _ in range(2))

    accepting = threading.Thread(target=accept)
    accepting.start()
    with opened_socket(busy.downstream, Deadline(30)) as opened:
        accepting.join()
        accepted[-1].sendall(b"greeting")
        assert opened.recv(8) == b"greeting"
    for each in accepted:
        each.close()
