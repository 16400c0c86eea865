"""A server that wants more than it is given."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.target.connection import connect
from tests.harness.packets import receive, send

_CAPABILITIES, _LONG_PASSWORD, _BULK = 0xF7FF & ~0x0800, 1, 1 << 2
WITH_TLS = 0xF7FF | 0x0800


def greeting_of(
    version: bytes = b"8.0.36",
    capabilities: int = _CAPABILITIES,
    more: int = 0,
    plugin: bytes = b"mysql_native_password",
) -> bytes:
    """That of a server without TLS that knows plugins for logging in. `more`: what MariaDB has beyond MySQL's capabilities."""
    head = struct.pack("<I8sxH", 1, b"a" * 8, capabilities) + b"\x2d\x02\x00\x08\x00\x15"
    return b"\x0a" + version + b"\0" + head + struct.pack("<6xI", more) + b"b" * 12 + b"\0" + plugin + b"\0"


OK = b"\x00\x00\x00\x02\x00\x00\x00"
_FILE = b"\xfb/etc/passwd"


class Rogue:
    """Answers to each query, from the one that begins with `asks` on, by asking for a file."""

    def __init__(self, plugin: bytes, asks: bytes, greeting: bytes) -> None:
        """`plugin`: how the password is wanted; empty: as the client begins."""
        self.plugin, self.asks, self.greeting = plugin, asks, greeting
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.received: list[bytes] = []
        """What came instead of files, and of passwords that were asked for otherwise."""

    def serve(self) -> None:
        """One connection."""
        connection, _ = self.listener.accept()
        with connection, suppress(OSError):
            self.connection = connection
            self._send(0, self.greeting)
            number, _ = self._packet()
            if self.plugin:
                self._send(number + 1, b"\xfe" + self.plugin + b"\0" + b"c" * 20 + b"\0")
                number, answer = self._packet()
                self.received.append(answer)
            self._send(number + 1, OK)
            while True:
                number, query = self._packet()
                if self.asks and query[1:].startswith(self.asks):
                    self._send(1, _FILE)
                    number = self._file()
                self._send(number + 1, OK)

    def _file(self) -> int:
        """Take what comes until an empty packet ends it; the number of that one."""
        number, answer = self._packet()
        while answer:
            self.received.append(answer)
            number, answer = self._packet()
        self.received.append(b"")
        return number

    def _send(self, number: int, content: bytes) -> None:
        send(self.connection, number, content)

    def _packet(self) -> tuple[int, bytes]:
        return receive(self.connection)


@contextmanager
def rogue(*, plugin: bytes = b"", asks: bytes = b"", greeting: bytes = b"") -> Iterator[Rogue]:
    """A rogue server that answers one client."""
    server = Rogue(plugin, asks, greeting or greeting_of())
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", server.port), 1).close()
        thread.join()
        server.listener.close()


@pytest.mark.parametrize("asks", [b"SET SESSION", b"SELECT", b"LOAD DATA"])
def test_file_asked_for(asks: bytes) -> None:
    """A server that asks for a file, in answer to any statement, gets the rows of a running LOAD DATA LOCAL, else nothing (S5)."""
    with rogue(asks=asks) as server:
        connection = connect(Downstream(port=server.port, ssl_mode="disabled"), "secret")
        connection.query("SELECT 1")
        connection.load("LOAD DATA LOCAL INFILE 'rows' INTO TABLE t", b"1\n2\n")
        connection.close()
    assert set(server.received) == ({b"1\n2\n", b""} if asks == b"LOAD DATA" else {b""})


@pytest.mark.parametrize(
    ("capabilities", "more", "has_bulk"),
    [
        (_CAPABILITIES & ~_LONG_PASSWORD, _BULK, True),
        (_CAPABILITIES & ~_LONG_PASSWORD, _BULK - 1, False),
        (_CAPABILITIES, _BULK, False),
    ],
)
def test_bulk_statements_not_offered(capabilities: int, more: int, has_bulk: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """What says that it is a MariaDB gets bulk statements only if it says that it takes them: a proxy before one need not."""
    greeting = greeting_of(b"5.5.5-10.11.4-MariaDB", capabilities, more)
    with rogue(greeting=greeting) as server:
        connection = connect(Downstream(port=server.port, ssl_mode="disabled"), "secret")
        connection.close()
    assert connection.has_bulk == has_bulk
