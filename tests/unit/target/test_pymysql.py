"""What our connection relies on in PyMySQL beyond its public interface; a version that changes it must not be found out in production."""

from __future__ import annotations

import inspect
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version

import pytest
from pymysql.connections import Connection, MySQLResult
from pymysql.constants import CLIENT

from storage_consumer.config.settings import Downstream
from storage_consumer.target.connection import Connection as Ours
from storage_consumer.target.server_trust import Trust

METHODS = (
    (Connection, "_create_ssl_ctx", (1,)),
    (Connection, "_execute_command", (2,)),
    (Connection, "_force_close", (0,)),
    (Connection, "_get_server_information", (0,)),
    (Connection, "_process_auth", (2, 3)),
    (Connection, "_read_packet", (1,)),
    (Connection, "_read_query_result", (1,)),
    (Connection, "_request_authentication", (0,)),
    (Connection, "write_packet", (1,)),
    (MySQLResult, "_read_load_local_packet", (1,)),
    (MySQLResult, "_read_ok_packet", (1,)),
    (MySQLResult, "read", (0,)),
)
"""Methods that our connection overrides or calls, with the numbers of parameters that they may have."""
ATTRIBUTES = (
    "_auth_plugin_name", "_result", "_secure", "client_flag", "password", "salt", "server_capabilities", "server_status",
    "ssl", "unix_socket", "use_unicode",
)  # fmt: skip
"""Attributes that it reads or sets, once the server has sent its first packet."""
RESULT_ATTRIBUTES = ("affected_rows", "server_status", "warning_count")
MARIADB, MYSQL = b"11.8.2-MariaDB", b"8.4.0"
_BULK = 1 << 2
"""MariaDB's bit for bulk statements, among its own capabilities."""
_CAPABILITIES = CLIENT.PROTOCOL_41 | CLIENT.SECURE_CONNECTION | CLIENT.PLUGIN_AUTH
_VERSION = f"PyMySQL {version('pymysql')}"
_ADAPT = "adapt target/connection.py, or require another version"
_OK = b"\0\0\0\2\0\0\0"


@pytest.mark.parametrize(("owner", "name", "parameters"), METHODS)
def test_methods(owner: type, name: str, parameters: tuple[int, ...]) -> None:
    """Each is there, and takes as much as we give it."""
    found = getattr(owner, name, None)
    assert found is not None, f"{_VERSION} has no {owner.__name__}.{name}: {_ADAPT}"
    _, *taken = inspect.signature(found).parameters
    assert len(taken) in parameters, f"{_VERSION} has {owner.__name__}.{name}{tuple(taken)}: {_ADAPT}"


def test_attributes() -> None:
    """Each is there after the first packet, on the connection or on a result."""
    with _logged_in(MARIADB, _CAPABILITIES, _BULK) as (connection, _):
        holders = [
            *((connection, name) for name in ATTRIBUTES),
            *((MySQLResult(connection), n) for n in RESULT_ATTRIBUTES),
        ]
        lacking = [f"{type(holder).__name__}.{name}" for holder, name in holders if not hasattr(holder, name)]
    assert lacking == [], f"{_VERSION} has no {lacking}: {_ADAPT}"


@pytest.mark.parametrize(
    ("server_version", "capabilities", "more", "has_bulk"),
    [
        (MARIADB, _CAPABILITIES, _BULK, True),
        (MARIADB, _CAPABILITIES, 0, False),
        (MYSQL, _CAPABILITIES | CLIENT.LONG_PASSWORD, 0, False),
        # What MySQL leaves empty may hold anything.
        (MYSQL, _CAPABILITIES | CLIENT.LONG_PASSWORD, _BULK, False),
    ],
)
def test_login(server_version: bytes, capabilities: int, more: int, *, has_bulk: bool) -> None:
    """The first packet says that we know bulk statements to a server that has them, and is PyMySQL's own for all others."""
    with _logged_in(server_version, capabilities, more) as (connection, sent):
        assert connection.has_bulk == has_bulk
    flags, ours = struct.unpack("<I24xI", sent[:32])
    assert (bool(flags & CLIENT.LONG_PASSWORD), ours) == (not has_bulk, _BULK if has_bulk else 0)
    assert sent[9:28] == bytes(19)
    assert sent[32:].startswith(b"us\0")


@contextmanager
def _logged_in(server_version: bytes, capabilities: int, more: int) -> Iterator[tuple[Ours, bytes]]:
    """A connection to a server of that version and those capabilities, and the packet by which it logged in."""
    ours, theirs = socket.socketpair()
    sent: list[bytes] = []
    server = threading.Thread(target=_serve, args=[theirs, _greeting(server_version, capabilities, more), sent])
    with closing(ours), closing(theirs):
        server.start()
        connection = Ours(user="us", password="", defer_connect=True)
        connection.connect_over(ours, Trust(Downstream(unix_socket="/somewhere"), ours))
        yield connection, sent[0]
        connection.close()
        server.join()


def _greeting(server_version: bytes, capabilities: int, more: int) -> bytes:
    """A server's first packet; `more` are the capabilities that only a MariaDB has."""
    low, high = capabilities & 0xFFFF, capabilities >> 16
    rest = struct.pack("<I8sxHBHHB6xI12sx", 1, b"s" * 8, low, 45, 2, high, 21, more, b"s" * 12)
    return b"\x0a" + server_version + b"\0" + rest + b"mysql_native_password\0"


def _serve(server: socket.socket, greeting: bytes, sent: list[bytes]) -> None:
    """Greet, and accept the login and all that follows."""
    server.sendall(_framed(greeting, 0))
    with server.makefile("rb") as taken, suppress(ConnectionError):
        while head := taken.read(4):
            sent.append(taken.read(int.from_bytes(head[:3], "little")))
            server.sendall(_framed(_OK, head[3] + 1))


def _framed(payload: bytes, number: int) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload
