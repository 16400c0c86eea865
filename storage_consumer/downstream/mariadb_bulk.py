"""PyMySQL with MariaDB's bulk statements, which it lacks; see `apply.rows` for what is sent.

A MariaDB takes them from a client that says so when it logs in, and tells in its first packet that it does. Neither is among MySQL's
capabilities: MariaDB keeps its own in bytes that MySQL leaves empty. So the methods by which PyMySQL logs in are overridden, though
they are private. `tests/unit/downstream/test_pymysql.py` fails if a version of PyMySQL no longer has them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pymysql.connections import Connection as _PlainConnection
from pymysql.constants import CLIENT, COMMAND
from pymysql.cursors import Cursor
from pymysql.protocol import MysqlPacket

if TYPE_CHECKING:
    _Connection = _PlainConnection[Cursor]
else:
    _Connection = _PlainConnection  # generic in its type stubs only

_BULK_EXECUTE = 0xFA
_TYPES_FOLLOW = 128
_BULK = 1 << 2
_KNOWS_BULK = struct.pack("<I", _BULK)
_RESERVED = slice(9, 32)
"""Place in a client's first packet that MySQL leaves empty; its end holds what a MariaDB client can do beyond MySQL's capabilities."""
_OFFERED = struct.Struct("<27xI")
"""What follows the version in a server's first packet; its last field is what a MariaDB has beyond MySQL's capabilities."""


class BulkConnection(_Connection):
    """A PyMySQL connection that can run bulk statements."""

    has_bulk: bool = False
    """Whether the server, or what is before it, reports that it takes bulk statements: a MariaDB of version 10.2 or newer does."""
    _greeting: MysqlPacket | None = None
    """The server's first packet, after it was looked at and until it is read."""
    _offers_bulk: bool = False
    _logging_in: bool = False

    def _get_server_information(self) -> None:
        """Read the greeting as PyMySQL does, and also what is not among MySQL's capabilities."""
        self._greeting = greeting = super()._read_packet()  # type: ignore[no-untyped-call] # of the driver
        # After a byte for the protocol's version, the server's version ends at a NUL.
        _, _, rest = greeting.get_all_data()[1:].partition(b"\0")
        self._offers_bulk = len(rest) >= _OFFERED.size and bool(_OFFERED.unpack_from(rest)[0] & _BULK)
        super()._get_server_information()  # type: ignore[misc] # not in the stubs

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> MysqlPacket:
        """Read a packet as PyMySQL does, beginning with the one that was looked at."""
        # Only once: every later packet comes from the network.
        looked_at, self._greeting = self._greeting, None
        if looked_at is not None:
            return looked_at
        packet: MysqlPacket = super()._read_packet(packet_type)  # type: ignore[no-untyped-call] # of the driver
        return packet

    def _request_authentication(self) -> None:
        """Log in as PyMySQL does. A MariaDB that leaves out the first capability exchanges further ones that MySQL does not have."""
        newer = not self.server_capabilities & CLIENT.LONG_PASSWORD  # type: ignore[attr-defined] # not in the stubs
        self.has_bulk = newer and self._offers_bulk
        if self.has_bulk:
            # To MariaDB a client without this old capability is one that lists MariaDB's own ones in the reserved bytes.
            self.client_flag &= ~CLIENT.LONG_PASSWORD
        self._logging_in = True
        try:
            super()._request_authentication()  # type: ignore[misc] # likewise
        finally:
            self._logging_in = False

    def write_packet(self, payload: bytes) -> None:
        """Write a packet as PyMySQL does, and report bulk statements in the first ones."""
        # With TLS there are two: the request for it, and over TLS the same 32 bytes with the login after them.
        if self._logging_in and self.has_bulk and not any(payload[_RESERVED]) and len(payload) >= _RESERVED.stop:
            payload = payload[: _RESERVED.stop - len(_KNOWS_BULK)] + _KNOWS_BULK + payload[_RESERVED.stop :]
        super().write_packet(payload)

    def bulk(self, sql: str, types: bytes, values: memoryview) -> tuple[int, int]:
        """Run one statement for all rows of `values`, see `apply.rows`; return (affected rows, warnings). Only for `has_bulk`."""
        statement = self._prepare(sql)
        try:
            head = statement + struct.pack("<H", _TYPES_FOLLOW) + types
            self._execute_command(_BULK_EXECUTE, b"".join((head, values)))  # type: ignore[attr-defined] # not in the stubs
            affected = self._read_query_result()  # type: ignore[attr-defined] # likewise
            warnings = self._result.warning_count  # type: ignore[attr-defined] # likewise
        finally:
            # Also after an error: statements that stay prepared count towards a limit of the whole server.
            if self.open:
                self._execute_command(COMMAND.COM_STMT_CLOSE, statement)  # type: ignore[attr-defined] # likewise; it has no answer
        return affected, warnings or 0

    def _prepare(self, sql: str) -> bytes:
        """Prepare a statement; return the id that the server gave it, as it is sent."""
        self._execute_command(COMMAND.COM_STMT_PREPARE, sql)  # type: ignore[attr-defined] # likewise
        answer: bytes = self._read_packet().get_all_data()  # type: ignore[no-untyped-call] # of the driver
        # After the statement's id come the numbers of its columns and parameters, then a description of each.
        for count in struct.unpack_from("<HH", answer, 5):
            # one packet per parameter or column, and one after the last
            for _ in range(count + 1 if count else 0):
                self._read_packet()
        return answer[1:5]
