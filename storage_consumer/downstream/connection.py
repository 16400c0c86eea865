"""One connection to the target, with the session that every statement of ours relies on.

The driver is PyMySQL, with MariaDB's bulk statements added by `mariadb_bulk`. LOAD DATA LOCAL is fed from memory: the answer to the
server's request is the buffer that this very statement is sending, whatever file name the server asks for. Without such a buffer
it gets nothing. So a hostile server can read no file.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pymysql
from pymysql.connections import MySQLResult
from pymysql.constants import CLIENT
from pymysql.converters import escape_string
from pymysql.protocol import MysqlPacket

from storage_consumer.config.settings import Downstream
from storage_consumer.downstream import tls
from storage_consumer.downstream.logging_in import WAYS, Trust
from storage_consumer.downstream.mariadb_bulk import BulkConnection
from storage_consumer.downstream.mysql_errors import number_of, translated
from storage_consumer.downstream.opening import Deadline, opened_socket
from storage_consumer.downstream.session import fetched, set_session
from storage_consumer.errors import ConfigError, StorageConsumerError, TableError, TargetUnavailable

_CHUNK = 1 << 20
_UNKNOWN_VARIABLE = 1193
_NO_SERVER = (ValueError, IndexError, AssertionError, struct.error)
"""What the driver raises over packets that are not MySQL's."""


class Connection(BulkConnection):
    """A connection that reveals the password only to those who may have it, and feeds LOAD DATA LOCAL from memory only."""

    feed: bytes = b""
    """What the running LOAD DATA LOCAL statement sends."""
    feed_piece: int = _CHUNK
    """Most bytes of it per packet."""
    warnings: int = 0
    """Number of warnings that the last statement raised."""
    _can_switch_checks: bool = True
    """Whether the server may know TiDB's switch for CHECK constraints."""
    trust: Trust
    """Who answers; it decides about the password."""
    password: bytes
    salt: bytes
    _auth_plugin_name: str
    _unverified: ClassVar[ssl.SSLContext | None] = None

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> ssl.SSLContext:
        """Build a context as PyMySQL does, but only one for all connections without explicit TLS options.

        PyMySQL uses TLS if the server offers it, verifies nothing then, and yet reads all certificates of the machine each time, which takes
        20 ms.
        """
        if sslp:
            made: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc] # not in the stubs
            return made
        if Connection._unverified is None:
            Connection._unverified = super()._create_ssl_ctx(sslp)  # type: ignore[misc] # likewise
        return Connection._unverified

    def connect_over(self, opened: socket.socket, trust: Trust) -> None:
        """Log in over a connected socket."""
        self.trust = trust
        # PyMySQL notes this where it opens the socket itself: over a Unix socket it then sends a password without TLS.
        if self.unix_socket:
            self._secure = True
        self.connect(opened)

    @property
    def encrypts(self) -> bool:
        """Whether TLS is in use, or will be before anything is sent; known once the server's first packet is read."""
        return bool(self.ssl and self.server_capabilities & CLIENT.SSL)  # type: ignore[attr-defined] # not in the stubs

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate was verified, or will be before anything is sent."""
        return self.encrypts and self.ctx.verify_mode is ssl.CERT_REQUIRED  # type: ignore[attr-defined] # likewise

    def _process_auth(self, plugin_name: bytes, auth_packet: MysqlPacket, *handler: Any) -> Any:
        """Log in as PyMySQL does, but reveal the password only to those who may have it."""
        self.trust.check(plugin_name, self)
        # PyMySQL has a third parameter since 1.2 only.
        return super()._process_auth(plugin_name, auth_packet, *handler)  # type: ignore[misc] # likewise

    def _get_server_information(self) -> None:
        """Read the greeting, and let `trust` decide with which login method to begin."""
        super()._get_server_information()
        self._auth_plugin_name = self.trust.begins(self._auth_plugin_name, self)

    def load(self, sql: str, rows: bytes, *, most: int = _CHUNK) -> tuple[int, int]:
        """Run one LOAD DATA LOCAL statement with `rows` as the file, in packets of up to `most` bytes; return (affected rows, warnings)."""
        self.feed, self.feed_piece = rows, min(most, _CHUNK)
        try:
            affected = self.query(sql)
        finally:
            # From here on a server that asks for a file gets nothing.
            self.feed = b""
        return affected, self.warnings

    def load_drops_rows(self) -> bool:
        """Return whether LOAD DATA may leave out a row that a CHECK refuses, without a warning.

        TiDB 8.4.0 does where it enforces them; with REPLACE, the number of affected rows need not show it either.
        """
        if not self._can_switch_checks:
            return False
        try:
            # Each time, since the switch is global: an administrator may turn it while this connection lives.
            ((switch,),) = fetched(self, "SELECT @@GLOBAL.tidb_enable_check_constraint")
        except pymysql.err.MySQLError as fault:
            if number_of(fault) != _UNKNOWN_VARIABLE:
                raise
            # No TiDB, or one before 7.2, which never looks at a CHECK.
            self._can_switch_checks = False
            return False
        return str(switch) in ("1", "ON")

    @contextmanager
    def undecoded(self) -> Iterator[Connection]:
        """Yield this connection, returning every value as the bytes that the server sends inside the block."""
        # For this block only: SHOW CREATE may hold the default of a binary column, which is no text.
        decoders, self.decoders = self.decoders, {}
        self.use_unicode = False
        try:
            yield self
        finally:
            self.use_unicode, self.decoders = True, decoders

    def _read_query_result(self, unbuffered: bool = False) -> int:  # noqa: ARG002, FBT001, FBT002 - PyMySQL's signature
        """Read a result as PyMySQL does, with one that can feed; ours never reads unbuffered."""
        self._result = None
        # The steps are PyMySQL's own; it offers no other way to give it another class of results.
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
        """Read the answer of `connection`."""
        super().__init__(connection)
        self._feeder = connection

    def _read_load_local_packet(self, first_packet: MysqlPacket) -> None:  # noqa: ARG002 - the file name asked for does not matter
        connection = self._feeder
        feed = memoryview(connection.feed)
        # In pieces below the server's largest packet, however much there is to send.
        for start in range(0, len(feed), connection.feed_piece):
            connection.write_packet(feed[start : start + connection.feed_piece].tobytes())
        # An empty packet ends the file.
        connection.write_packet(b"")
        answer: MysqlPacket = connection._read_packet()  # noqa: SLF001 - the base class of this connection
        if not answer.is_ok_packet():
            message = "no OK packet after LOAD DATA LOCAL"
            raise pymysql.err.OperationalError(2014, message)
        self._read_ok_packet(answer)  # type: ignore[attr-defined] # not in the stubs


Prepare = Callable[[Connection], None]


def connect(
    downstream: Downstream,
    password: str,
    *,
    ddl: bool = False,
    read_timeout: int | None = None,
    prepare: Prepare | None = None,
) -> Connection:
    """Open a connection, set its session, and `prepare` it, all within the time of `--connect-timeout`.

    `read_timeout` is in seconds, for later statements; None waits as long as one takes. Raise `ConfigError` for a refused login, and
    `TargetUnavailable` if the server does not answer.
    """
    deadline = Deadline(downstream.connect_timeout)
    made = Connection(
        host=downstream.host,
        port=downstream.port,
        unix_socket=downstream.unix_socket or None,
        **tls.driver_options(downstream),
        user=downstream.user,
        password=password.encode(),  # as the server stores it; PyMySQL would encode a text as latin1
        charset="utf8mb4",
        collation="utf8mb4_bin",  # strings in views and generated columns compare as they do at the source
        autocommit=True,
        # `_FedResult` answers the server, and never with a file
        local_infile=True,
        # an UPDATE that changes nothing still shows that its row is there
        client_flag=CLIENT.FOUND_ROWS,
        auth_plugin_map=WAYS,
        read_timeout=read_timeout,
        # `connect_over` brings an open socket
        defer_connect=True,
    )
    opened = opened_socket(downstream, deadline)
    is_ours = False
    try:
        with deadline.over(opened):
            # Logging in and the session's settings are under the same deadline: a server may fall silent in any of them.
            made.connect_over(opened, Trust(downstream, opened))
            _set_session(made, downstream, ddl=ddl)
            is_ours = True
            if prepare is not None:
                prepare(made)
    except (pymysql.err.MySQLError, OSError, EOFError, RuntimeError, *_NO_SERVER) as fault:
        _force_close(made)
        # The login succeeded: what the server refuses to `prepare` is for its caller to judge.
        if is_ours and not deadline.passed:
            raise
        raise _refusal(fault, downstream, deadline) from fault
    except BaseException:
        _force_close(made)
        raise
    return made


def _force_close(connection: Connection) -> None:
    """Close without a word to the server."""
    connection._force_close()  # type: ignore[attr-defined] # noqa: SLF001 - close() would write to the broken socket


def _refusal(fault: BaseException, downstream: Downstream, deadline: Deadline) -> StorageConsumerError:
    """Return our error for a failed login; what the server refuses then is no row's fault."""
    doing = f"cannot connect to the target {downstream.address} as {downstream.user}"
    # First: whatever the driver met then comes from the watch, which shut the socket down.
    if deadline.passed:
        return TargetUnavailable(
            f"{doing}: it accepted the connection, but did not answer within {deadline.seconds:g} s (--connect-timeout)"
        )
    if (refused := tls.refusal(fault, downstream)) is not None:
        return refused
    if isinstance(fault, RuntimeError):
        package = "pynacl" if "pynacl" in str(fault) else "cryptography"
        # PyMySQL raises a plain RuntimeError where a package for a login method is missing.
        return ConfigError(f"{doing}: the account's login method needs a Python package: pip install {package}")
    if isinstance(fault, _NO_SERVER):
        return TargetUnavailable(f"{doing}: what answers there is not a MySQL server ({type(fault).__name__}: {fault})")
    error = translated(fault, doing)
    return (
        ConfigError(f"{error} (check the account and the settings of the server)")
        if isinstance(error, TableError)
        else error
    )


def _set_session(connection: Connection, downstream: Downstream, *, ddl: bool) -> None:
    """Set what our statements rely on, after ending a transaction that the server's `init_connect` left open."""
    # In full, since by `completion_type` a plain ROLLBACK may begin another transaction, or end the connection.
    connection.query("ROLLBACK AND NO CHAIN NO RELEASE")
    version = str(connection.get_server_info())  # type: ignore[no-untyped-call] # of the driver
    set_session(connection, version, downstream, ddl=ddl)


def escape(text: str) -> str:
    """Escape the content of a string literal, by the driver's own rules; our sessions never set NO_BACKSLASH_ESCAPES."""
    return str(escape_string(text))


@contextmanager
def translating(doing: str) -> Iterator[None]:
    """Raise our errors for the driver's; `doing` says what was tried."""
    try:
        yield
    except (pymysql.err.MySQLError, OSError, EOFError) as fault:
        raise translated(fault, doing) from fault
