"""A server that takes connections and then says nothing, or a byte now and then, holds nobody for longer than --connect-timeout."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from storage_consumer.checkpoint.store import StateStore, operated
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError, TargetUnavailable
from storage_consumer.target.connection import connect, hurry, no_hurry
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.transaction import FencedConnection
from tests.contract.state_rigs import fenced_spec
from tests.contract.test_rogue_server import OK, WITH_TLS, greeting_of
from tests.harness.program import program
from tests.harness.small_bucket import SmallBucket, ts

pytestmark = [pytest.mark.slow, pytest.mark.alone]

_TLS_HEAD = b"\x16\x03\x03\x40\x00"
"""The beginning of a record of TLS that is never complete."""
STAGES = {
    "before the greeting": ("disabled", 0),
    "after the greeting": ("disabled", 1),
    "inside TLS": ("preferred", 1),
    "inside verified TLS": ("verify-ca", 1),
    "after the login": ("disabled", 2),
    "at the session": ("disabled", 3),
    "at the variables": ("disabled", 4),
}
"""Where it stops: ``ssl-mode``, and how many packets it has sent before."""


class Silent:
    """Answers with so many packets, then no more; or byte by byte from then on."""

    def __init__(self, answers: int, *, drips: bool, tls: bool) -> None:
        """`drips`: instead of nothing it sends a byte each 0.2 s."""
        self._answers, self._drips, self._tls = answers, drips, tls
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.taken = threading.Event()
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def close(self) -> None:
        """End it and all its connections."""
        self._end.set()
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in (self._accepting, *self._threads):
            thread.join()

    def _accept(self) -> None:
        while not self._end.is_set():
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self._threads.append(thread := threading.Thread(target=self._serve, args=[client]))
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        packets = [greeting_of(capabilities=WITH_TLS) if self._tls else greeting_of(), *[OK] * 9]
        with client, suppress(OSError):
            for number, packet in enumerate(packets[: self._answers]):
                client.sendall(_head(len(packet), number) + packet)
                if number < self._answers - 1:
                    client.recv(65536)
            self.taken.set()
            rest = _TLS_HEAD + bytes(99) if self._tls else _head(999, self._answers) + b"\x0a" * 999
            for byte in rest * 9:
                if self._end.wait(0.2):
                    return
                if self._drips:
                    client.sendall(bytes([byte]))


def _head(size: int, sent: int) -> bytes:
    """Return what stands before a packet, where so many were sent before: greeting, end of the login, answers to statements."""
    return struct.pack("<I", size)[:3] + bytes([(0, 2, 1)[min(sent, 2)]])


@contextmanager
def silent(stage: str, *, drips: bool = False) -> Iterator[Silent]:
    """A server that goes silent at that stage."""
    mode, answers = STAGES[stage]
    server = Silent(answers, drips=drips, tls=mode != "disabled")
    try:
        yield server
    finally:
        server.close()


def timed(attempt: Callable[[], object], *, reason: str = "--connect-timeout") -> float:
    """Return the seconds until an attempt gave up; the error says why."""
    began = time.monotonic()
    with pytest.raises(TargetUnavailable, match=reason):
        attempt()
    return time.monotonic() - began


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "drips"])
@pytest.mark.parametrize("stage", STAGES)
def test_deadline(stage: str, drips: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """The whole of connecting takes no longer than that, wherever the server stops, and however it keeps the socket busy."""
    with silent(stage, drips=drips) as server:
        target = Downstream(port=server.port, ssl_mode=STAGES[stage][0], connect_timeout=1)
        assert 0.9 < timed(lambda: connect(target, "secret")) < 4


def test_backlog_is_full() -> None:
    """A server that does not even take the connection is given up after the same time."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)  # noqa: FBT003 - the standard library's signature
            waiting.connect_ex(listener.getsockname())
        target = Downstream(port=listener.getsockname()[1], connect_timeout=1)
        assert 0.9 < timed(lambda: connect(target, "")) < 4


def test_everyone_who_connects() -> None:
    """State, statements, rows and an operator's view of the state are bounded alike."""
    with silent("at the session") as server:
        target = Downstream(port=server.port, ssl_mode="disabled", connect_timeout=1)
        state, database = StateStore(target, ""), TargetDatabase(target, "")
        for attempt in (
            lambda: state.open("file:///bucket"),
            database.check,
            database.server_info,
            lambda: operated(target, ""),
            FencedConnection(fenced_spec(target), "", 0).live,
        ):
            assert timed(attempt) < 4
        state.close()


def test_statements_wait() -> None:
    """Once the session is set, a statement may take as long as it takes."""
    with silent("at the session") as server:
        server._answers = 9
        target = Downstream(port=server.port, ssl_mode="disabled", connect_timeout=1)
        connection = connect(target, "")
        time.sleep(1.5)
        assert connection._sock.gettimeout() is None  # type: ignore[attr-defined] # not in the stubs
        connection.query("SELECT 1")
        connection._force_close()  # type: ignore[attr-defined] # likewise


def test_asked_to_end() -> None:
    """Once the program is to end, no attempt to connect takes long, whatever --connect-timeout says; a server that answers is still reached."""
    end = threading.Event()
    hurry(end)
    try:
        with silent("after the login") as server:
            target = Downstream(port=server.port, ssl_mode="disabled", connect_timeout=60)
            threading.Timer(0.5, end.set).start()
            assert timed(lambda: connect(target, "")) < 5
            assert timed(lambda: connect(target, "")) < 4
        with silent("at the session") as server:
            server._answers = 9
            connect(Downstream(port=server.port, ssl_mode="disabled", connect_timeout=60), "")._force_close()  # type: ignore[attr-defined] # likewise
    finally:
        no_hurry(end)


@pytest.mark.parametrize("stage", ["before the greeting", "inside TLS", "at the session"])
def test_sigterm(stage: str, tmp_path: Path) -> None:
    """SIGTERM ends a program that waits for such a server within seconds."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.t")
    bucket.metadata(ts(9))
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    with silent(stage) as server:
        uri = f"mysql://root@127.0.0.1:{server.port}/?timeout=60s&ssl-mode={STAGES[stage][0]}"
        given = ["--upstream-uri", bucket.uri, "--downstream-uri", uri, "--config", str(tmp_path / "changefeed.toml")]
        with program(given, tmp_path / "log") as running:
            assert server.taken.wait(60), running.text()
            began = time.monotonic()
            running.signal(signal.SIGTERM)
            assert running.end() == 0
            assert time.monotonic() - began < 8, running.text()


def test_name_that_is_not_resolved() -> None:
    """A host that DNS does not know is named, with what to look at, and tried again; what can be no name is a wrong setting."""
    for attempt in (
        TargetDatabase(Downstream(host="db.invalid"), "").check,
        lambda: connect(Downstream(host="db.invalid"), ""),
    ):
        with pytest.raises(TargetUnavailable, match=r"db\.invalid.*--downstream-uri.*getent hosts db\.invalid"):
            attempt()
    with pytest.raises(ConfigError, match="is not a valid host name"):
        connect(Downstream(host="a..b"), "")


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x01\x00\x00\x00\x0a",
        os.urandom(64),
        b"\x02\x00\x00\x00\x0a8",
    ],
)
def test_no_server_of_ours(said: bytes) -> None:
    """What speaks another protocol is an error that can be tried again, not an unexpected one."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(said)
                client.shutdown(socket.SHUT_WR)
                with suppress(OSError):
                    client.recv(99)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(TargetUnavailable):
            connect(Downstream(port=listener.getsockname()[1], connect_timeout=2), "")
        thread.join()
