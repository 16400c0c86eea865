"""A proxy before a database server that knows where each command of a client begins, and may break the connection there."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Self

_NAMES = {1: "COM_QUIT", 2: "COM_INIT_DB", 3: "", 14: "COM_PING"}
"""First byte of a command; a COM_QUERY is called by its text."""
_QUIT = 1
_LOCAL_INFILE = 0xFB
_SHOWN = 160
_BLOCK = 1 << 16


class Verdict(Enum):
    """What becomes of a command."""

    PASS = auto()
    BEFORE = auto()
    """The connection breaks before the server gets it."""
    AFTER = auto()
    """The connection breaks when the server has answered, before the client hears of it."""


Watch = Callable[[str], Verdict]
"""Told of each command right before it goes to the server; may take its time, which holds up this one connection."""


def passing(_: str) -> Verdict:
    """A watch that sees nothing wrong."""
    return Verdict.PASS


@dataclass(slots=True)
class Cut:
    """A watch that breaks the connection at the `at`-th command (from 1) and lists all that came by."""

    at: int = 0
    verdict: Verdict = Verdict.PASS
    came: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, command: str) -> Verdict:
        """Whether it is this command's turn."""
        with self._lock:
            self.came.append(command)
            return self.verdict if len(self.came) == self.at else Verdict.PASS


class Wire:
    """Passes connections on to a server on the loopback; counts commands by `watch`. No TLS: it must see them."""

    def __init__(self, port: int) -> None:
        """`port`: of the server."""
        self.behind = port
        self.watch: Watch = passing
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        """Take connections."""
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        """One connection, from its beginning to its end."""
        try:
            server = socket.create_connection(("127.0.0.1", self.behind), 10)
        except OSError:
            _break(client)
            return
        server.settimeout(None)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = _Line(client, server)
        threading.Thread(target=line.answers, daemon=True).start()
        line.commands(self._watched)

    def _watched(self, command: str) -> Verdict:
        """What the watch of this moment says."""
        return self.watch(command)


@dataclass(slots=True)
class _Line:
    """Both directions of one connection."""

    client: socket.socket
    server: socket.socket
    _ends: threading.Event = field(default_factory=threading.Event)
    """The next answer is not to be heard."""

    def commands(self, watch: Watch) -> None:
        """Client to server, packet by packet; a command is what begins with sequence number 0."""
        with suppress(OSError):
            while packet := _packet(self.client):
                verdict = watch(_text(packet)) if packet[3] == 0 and packet[4] != _QUIT else Verdict.PASS
                if verdict is Verdict.BEFORE:
                    break
                if verdict is Verdict.AFTER:
                    self._ends.set()
                self.server.sendall(packet)
        self._end()

    def answers(self) -> None:
        """Server to client, as it comes."""
        with suppress(OSError):
            while block := self.server.recv(_BLOCK):
                asks_for_rows = len(block) > 4 and block[4] == _LOCAL_INFILE
                if self._ends.is_set() and not asks_for_rows:
                    break
                self.client.sendall(block)
        self._end()

    def _end(self) -> None:
        for one in (self.client, self.server):
            _break(one)


def _break(end: socket.socket) -> None:
    """Reset a connection."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _packet(end: socket.socket) -> bytes:
    """One packet with its header; empty at the connection's end."""
    header = _exactly(end, 4)
    if not header:
        return b""
    body = _exactly(end, int.from_bytes(header[:3], "little"))
    return header + body


def _exactly(end: socket.socket, size: int) -> bytes:
    """So many bytes, fewer at the connection's end."""
    found = bytearray()
    while len(found) < size and (block := end.recv(min(_BLOCK, size - len(found)))):
        found += block
    return bytes(found)


def _text(packet: bytes) -> str:
    """What a command is called."""
    name = _NAMES.get(packet[4], f"COM_{packet[4]}")
    return name or packet[5 : 5 + _SHOWN].decode(errors="replace")
