"""One connection to the target, with the session that every statement of ours relies on.

The driver is PyMySQL; it has no bulk statements of MariaDB's, which are added here. LOAD DATA LOCAL is fed from memory: the
server's request is answered with the buffer that this very statement is sending, whatever file name the server asks for; without
such a buffer it gets nothing. So a hostile server can read no file.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

import pymysql
from pymysql.connections import Connection as _PlainConnection
from pymysql.connections import MySQLResult
from pymysql.constants import CLIENT, COMMAND
from pymysql.converters import escape_string
from pymysql.cursors import Cursor
from pymysql.protocol import MysqlPacket

from storage_consumer.config.settings import Downstream
from storage_consumer.decoding.zones import session_zone
from storage_consumer.errors import ConfigError
from storage_consumer.target import tls
from storage_consumer.target.faults import translated

if TYPE_CHECKING:
    _Connection = _PlainConnection[Cursor]
else:
    _Connection = _PlainConnection  # generic in its type stubs only

ROW_MODE = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""sql_mode for rows: a value that does not fit is an error; zero and invalid dates are values that the source may hold."""
LOOSE_ROW_MODE = ROW_MODE.removeprefix("STRICT_ALL_TABLES,")
"""The same, where a value that does not fit is changed; only for rows that were seen to fit otherwise."""
DDL_MODE = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""sql_mode for DDL: not strict, since the source took the statement; TiCDC's own MySQL sink does so too."""
MARIADB_DDL_MODE = DDL_MODE + ",TIME_ROUND_FRACTIONAL"
"""The same for MariaDB, which otherwise cuts fractions of a second that the source rounds when a column gets fewer digits."""
_OPTIONAL = (
    "SET SESSION sql_generate_invisible_primary_key = OFF",
    "SET SESSION sql_require_primary_key = OFF",
    "SET SESSION explicit_defaults_for_timestamp = ON",
    "SET SESSION innodb_strict_mode = OFF",
    "SET SESSION default_storage_engine = InnoDB",
    "SET SESSION restrict_fk_on_non_standard_key = OFF",
    "SET SESSION allow_auto_random_explicit_insert = ON",
    "SET SESSION tidb_txn_mode = 'pessimistic'",
    "SET SESSION tidb_placement_mode = 'IGNORE'",
    "SET SESSION tidb_enable_external_ts_read = OFF",
)
"""Known to some servers only, or in need of a privilege that may be missing; each is tried and may fail."""
_CHUNK = 1 << 20
_SILENCE = {"TCP_USER_TIMEOUT": 60_000, "TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Milliseconds that sent data may stay unanswered; seconds without a word, and between questions whether anyone is there, and how many."""
_BULK_EXECUTE = 0xFA
_TYPES_FOLLOW = 128
_BULK = 1 << 2
_KNOWS_BULK = struct.pack("<I", _BULK)
_RESERVED = slice(9, 32)
"""Where a client's first packet is empty, and has at the end what a client of MariaDB can do beyond MySQL's."""
_OFFERED = struct.Struct("<27xI")
"""What stands behind the version in a server's first packet; the last of it is what a MariaDB has beyond MySQL's capabilities."""
_CLEAR_TEXT = frozenset((b"mysql_clear_password", b"dialog"))
"""Ways to log in that send the password as it is."""


class Connection(_Connection):
    """A PyMySQL connection that can feed LOAD DATA LOCAL from memory and nothing else, and run MariaDB's bulk statements."""

    feed: bytes = b""
    """What the running LOAD DATA LOCAL statement sends."""
    feed_piece: int = _CHUNK
    """How many bytes of it are sent at a time."""
    warnings: int = 0
    """How many warnings the last statement raised."""
    has_bulk: bool = False
    """The server, or what stands before it, says that it takes bulk statements: a MariaDB of version 10.2 or newer does."""
    _greeting: MysqlPacket | None = None
    """The server's first packet, from when it was looked at until it is read."""
    _offers_bulk: bool = False
    _logging_in: bool = False
    _unverified: ClassVar[ssl.SSLContext | None] = None

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> ssl.SSLContext:
        """As PyMySQL does, but once for all connections for which nobody asked for TLS.

        It takes TLS where the server offers it, verifies nothing then, and yet reads all certificates of the machine each time,
        20 ms long.
        """
        if sslp:
            made: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc] # not in the stubs
            return made
        if Connection._unverified is None:
            Connection._unverified = super()._create_ssl_ctx(sslp)  # type: ignore[misc] # likewise
        return Connection._unverified

    def _process_auth(self, plugin_name: bytes, auth_packet: MysqlPacket, handler: Any = None) -> Any:
        """As PyMySQL does, but no server that was not verified gets the password in clear text, however it asks for it."""
        verified = bool(self.unix_socket) or (self._secure and self.ctx.verify_mode is ssl.CERT_REQUIRED)  # type: ignore[attr-defined] # not in the stubs
        if plugin_name in _CLEAR_TEXT and not verified:
            raise ConfigError(
                f"the target asks for the password in clear text ({plugin_name.decode()}), which it gets only over TLS that "
                "verifies it: mysql+ssl:// in --downstream-uri, --ssl-ca"
            )
        return super()._process_auth(plugin_name, auth_packet, handler)  # type: ignore[misc] # likewise

    def _get_server_information(self) -> None:
        """As PyMySQL does, but also looks at what has no place among MySQL's capabilities."""
        self._greeting = greeting = super()._read_packet()  # type: ignore[no-untyped-call] # of the driver
        _, _, rest = greeting.get_all_data()[1:].partition(b"\0")
        self._offers_bulk = len(rest) >= _OFFERED.size and bool(_OFFERED.unpack_from(rest)[0] & _BULK)
        super()._get_server_information()  # type: ignore[misc] # not in the stubs

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> MysqlPacket:
        """As PyMySQL does, beginning with a packet that was looked at."""
        looked_at, self._greeting = self._greeting, None
        if looked_at is not None:
            return looked_at
        packet: MysqlPacket = super()._read_packet(packet_type)  # type: ignore[no-untyped-call] # of the driver
        return packet

    def _request_authentication(self) -> None:
        """As PyMySQL does. A MariaDB that leaves out the first capability tells, and is told, what MySQL does not have."""
        newer = not self.server_capabilities & CLIENT.LONG_PASSWORD  # type: ignore[attr-defined] # not in the stubs
        self.has_bulk = newer and self._offers_bulk
        if self.has_bulk:
            self.client_flag &= ~CLIENT.LONG_PASSWORD
        self._logging_in = True
        try:
            super()._request_authentication()  # type: ignore[misc] # likewise
        finally:
            self._logging_in = False

    def write_packet(self, payload: bytes) -> None:
        """As PyMySQL does, but for what the first packets say of bulk statements."""
        if self._logging_in and self.has_bulk and not any(payload[_RESERVED]) and len(payload) >= _RESERVED.stop:
            payload = payload[: _RESERVED.stop - len(_KNOWS_BULK)] + _KNOWS_BULK + payload[_RESERVED.stop :]
        super().write_packet(payload)

    def bulk(self, sql: str, types: bytes, values: memoryview) -> tuple[int, int]:
        """Run one statement for all rows of `values`, see `bulk`; (affected rows, warnings). Only where `has_bulk`."""
        statement = self._prepare(sql)
        try:
            head = statement + struct.pack("<H", _TYPES_FOLLOW) + types
            self._execute_command(_BULK_EXECUTE, b"".join((head, values)))  # type: ignore[attr-defined] # not in the stubs
            affected = self._read_query_result()
        finally:
            if self.open:
                self._execute_command(COMMAND.COM_STMT_CLOSE, statement)  # type: ignore[attr-defined] # likewise; it has no answer
        return affected, self.warnings

    def _prepare(self, sql: str) -> bytes:
        """Prepare a statement; the number that the server gave it, as it is sent."""
        self._execute_command(COMMAND.COM_STMT_PREPARE, sql)  # type: ignore[attr-defined] # likewise
        answer: bytes = self._read_packet().get_all_data()  # type: ignore[no-untyped-call] # of the driver
        for count in struct.unpack_from("<HH", answer, 5):
            # one packet for each parameter or column, and one behind the last
            for _ in range(count + 1 if count else 0):
                self._read_packet()
        return answer[1:5]

    def load(self, sql: str, rows: bytes, *, most: int = _CHUNK) -> tuple[int, int]:
        """Run one LOAD DATA LOCAL statement with `rows` as the file, in packets of up to `most` bytes; (affected rows, warnings)."""
        self.feed, self.feed_piece = rows, min(most, _CHUNK)
        try:
            affected = self.query(sql)
        finally:
            self.feed = b""
        return affected, self.warnings

    @contextmanager
    def undecoded(self) -> Iterator[Connection]:
        """This connection, giving text as bytes inside the block."""
        self.use_unicode = False
        try:
            yield self
        finally:
            self.use_unicode = True

    def _read_query_result(self, unbuffered: bool = False) -> int:  # noqa: ARG002, FBT001, FBT002 - PyMySQL's signature
        """As PyMySQL does, with a result that knows how to feed; ours never reads unbuffered."""
        self._result = None
        result = _FedResult(self)
        result.read()
        self._result = result
        self.warnings = result.warning_count or 0
        if result.server_status is not None:
            self.server_status = result.server_status
        return int(result.affected_rows or 0)


class _FedResult(MySQLResult):
    """Answers the server's request for a local file from the connection's buffer."""

    def __init__(self, connection: Connection) -> None:
        """`connection`: the one whose answer this is."""
        super().__init__(connection)
        self._feeder = connection

    def _read_load_local_packet(self, first_packet: MysqlPacket) -> None:  # noqa: ARG002 - the file name asked for does not matter
        connection = self._feeder
        feed = memoryview(connection.feed)
        for start in range(0, len(feed), connection.feed_piece):
            connection.write_packet(feed[start : start + connection.feed_piece].tobytes())
        connection.write_packet(b"")
        answer: MysqlPacket = connection._read_packet()  # noqa: SLF001 - the base class of this connection
        if not answer.is_ok_packet():
            message = "no OK packet after LOAD DATA LOCAL"
            raise pymysql.err.OperationalError(2014, message)
        self._read_ok_packet(answer)  # type: ignore[attr-defined] # not in the stubs


def connect(downstream: Downstream, password: str, *, ddl: bool = False, read_timeout: int | None = None) -> Connection:
    """Open a connection and set its session.

    `read_timeout` in seconds; None waits as long as a statement takes. Raises `ConfigError` for a refused login,
    `TargetUnavailable` when the server does not answer.
    """
    where: dict[str, Any] = (
        {"unix_socket": downstream.unix_socket}
        if downstream.unix_socket
        else {"host": downstream.host, "port": downstream.port}
    )
    try:
        connection = Connection(
            **where,
            **tls.driver_options(downstream),
            user=downstream.user,
            password=password.encode(),  # as the server stores it; of a text PyMySQL would make latin1
            charset="utf8mb4",
            autocommit=True,
            local_infile=True,
            client_flag=CLIENT.FOUND_ROWS,
            connect_timeout=downstream.connect_timeout,
            read_timeout=read_timeout,
        )
    except (pymysql.err.MySQLError, OSError, RuntimeError) as fault:
        doing = f"cannot connect to the target {downstream.address} as {downstream.user}"
        raise (tls.refusal(fault, downstream) or translated(fault, doing)) from fault
    _notice_silence(connection)
    _set_session(connection, downstream, ddl=ddl)
    return connection


def _notice_silence(connection: Connection) -> None:
    """Have a connection break where the other machine says nothing at all any more, instead of waiting for a quarter of an hour.

    A server that is busy with a long statement still answers for its connections, so these limits are none for statements.
    """
    for name, value in _SILENCE.items():
        if option := getattr(socket, name, None):  # not every system has each
            with suppress(OSError):  # a socket of a file system has none
                connection._sock.setsockopt(socket.IPPROTO_TCP, option, value)  # type: ignore[attr-defined] # noqa: SLF001 - not told otherwise


def _set_session(connection: Connection, downstream: Downstream, *, ddl: bool) -> None:
    """Everything that the meaning of our statements depends on."""
    with connection.cursor() as cursor:
        version = str(connection.get_server_info())  # type: ignore[no-untyped-call] # of the driver
        ddl_mode = MARIADB_DDL_MODE if "mariadb" in version.lower() else DDL_MODE
        cursor.execute("SET SESSION sql_mode = %s", (ddl_mode if ddl else ROW_MODE,))
        if ddl:  # strings in views and generated columns compare as they do at the source
            cursor.execute("SET NAMES utf8mb4 COLLATE utf8mb4_bin")
        cursor.execute("SET SESSION foreign_key_checks = 0")
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute("SET SESSION time_zone = %s", (session_zone(downstream.time_zone),))
        waits = (f"SET SESSION lock_wait_timeout = {max(1, downstream.ddl_lock_wait)}",) if ddl else ()
        for statement in (*_OPTIONAL, *waits):
            with suppress(pymysql.err.MySQLError):
                cursor.execute(statement)


def escape(text: str) -> str:
    """The content of a string literal, by the driver's own rules; our sessions never set NO_BACKSLASH_ESCAPES."""
    return str(escape_string(text))


@contextmanager
def translating(doing: str) -> Iterator[None]:
    """Raise our errors for the driver's; `doing` says what was tried."""
    try:
        yield
    except (pymysql.err.MySQLError, OSError, EOFError) as fault:
        raise translated(fault, doing) from fault
