"""One connection to the target, with the session that every statement of ours relies on.

The driver is PyMySQL. LOAD DATA LOCAL is fed from memory: the answer to the server's request is the
buffer that this very statement is sending, whatever file name the server asks for. Without such a
buffer it gets nothing. So a hostile server can read no file.

*TLS.* Whoever asks for it gets a verified server or an error. Nothing falls back to a plain
connection, and a server goes unverified only where that was asked for by name.

*The password.* A login method that answers a challenge (mysql_native_password, client_ed25519, the
fast path of caching_sha2_password) does not reveal it, whoever asks; an eavesdropper can test
guesses on the answer, no more. The other methods do reveal it. Some send it as it is, some under a
key that the server itself sends, as caching_sha2_password does if the server does not remember the
account, or claims so.

*Bulk statements* of MariaDB, which PyMySQL lacks; see `apply_rows` for what is sent. A MariaDB
takes them from a client that says so when it logs in, and tells in its first packet that it does.
Neither is among MySQL's capabilities: MariaDB keeps its own in bytes that MySQL leaves empty. So
the methods by which PyMySQL logs in are overridden, though they are private.
`tests/unit/target/test_pymysql.py` fails if a version of PyMySQL no longer has them.

*Time.* All of connecting has one limit. The driver waits for each single answer, so a server that
sends a byte now and then, or nothing, would hold the program forever. A watch shuts the socket down
when the time is over, wherever the driver is; the driver then sees a broken connection.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
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
from storage_consumer.errors import ConfigError, StorageConsumerError, TableError, TargetUnavailable
from storage_consumer.target.mysql_errors import DRIVER_FAULTS, number_of, translated
from storage_consumer.target.server_trust import REVEALING, WAYS, Trust, tls_options, tls_refusal
from storage_consumer.target.session_settings import fetched, set_session

_LOOK = 0.2
"""Seconds between two looks whether the program is to end."""
_UNDER_WAY = (errno.EINPROGRESS, errno.EALREADY, errno.EAGAIN)
"""Answers until a socket is connected; EAGAIN: the Unix socket's queue is full, try again."""
_SHORTEST_PAUSE, _PAUSE = 0.000_5, 0.05
"""Seconds between two such questions, the first and the last ones."""
_LAST = 2.0
"""Seconds that connecting may still take then: enough for a target that answers."""
_SILENCE = {"TCP_USER_TIMEOUT": 60_000, "TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""In this order: milliseconds that sent data may stay unanswered, seconds of silence before the
first probe, seconds between probes, number of probes.
"""
_ends: list[threading.Event] = []


def hurry(end: threading.Event) -> None:
    """Let no attempt to connect take long once `end` is set; in force until `no_hurry`."""
    if end not in _ends:
        _ends.append(end)


def no_hurry(end: threading.Event) -> None:
    """Forget an event of `hurry`."""
    with suppress(ValueError):
        _ends.remove(end)


class Deadline:
    """The time that is left for one connection."""

    def __init__(self, seconds: float) -> None:
        """Start the clock."""
        self.seconds = seconds
        self.passed = False
        """Whether something was cut off because the time was over."""
        self._until = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left; few are left once the program is to end."""
        now = time.monotonic()
        # Over a copy, since another thread may change the list meanwhile.
        if any(end.is_set() for end in tuple(_ends)):
            # Only ever lowered: the last seconds count from the first check after the wish to end.
            self._until = min(self._until, now + _LAST)
        return self._until - now

    def wait(self, event: threading.Event) -> bool:
        """Wait for an event; return False if the time was over first."""
        # In short steps, so that the wish to end is noticed while nothing else happens.
        while not event.wait(max(0.0, min(_LOOK, self.left()))):
            if self.left() <= 0:
                self.passed = True
                return False
        return True

    @contextmanager
    def over(self, opened: socket.socket) -> Iterator[None]:
        """End this socket's connection unless the block is left in time."""
        left = threading.Event()
        same = opened.dup()  # TLS detaches the driver's own one

        def watch() -> None:
            # `passed` is set before the shutdown, so whoever meets the broken socket knows why.
            if not self.wait(left):
                with suppress(OSError):
                    # A shutdown ends the connection for every descriptor; a close only drops this
                    # one.
                    same.shutdown(socket.SHUT_RDWR)

        watching = threading.Thread(target=watch, name="connecting", daemon=True)
        watching.start()
        try:
            yield
        finally:
            left.set()
            watching.join()
            same.close()


def opened_socket(downstream: Downstream, deadline: Deadline) -> socket.socket:
    """Connect to the target; raise `TargetUnavailable`, `ConfigError` for an invalid host name."""
    if downstream.unix_socket:
        return _connected(socket.AF_UNIX, downstream.unix_socket, downstream, deadline)
    fault: TargetUnavailable | None = None
    addresses = _addresses(downstream, deadline)
    # Each address gets an equal share of the time that is left when its turn comes.
    for tried, (family, address) in enumerate(addresses):
        try:  # a later address gets its turn though an earlier one stays silent
            found = _connected(
                family, address, downstream, Deadline(deadline.left() / (len(addresses) - tried))
            )
        except TargetUnavailable as error:
            # The first one: it is about the address that the system prefers.
            fault = fault or error
        else:
            _notice_silence(found)
            return found
    raise fault or _unknown(downstream, "it has no address")


def _notice_silence(found: socket.socket) -> None:
    """Break the connection soon after the other machine falls silent, not after a quarter hour.

    A server that is busy with a long statement still answers probes, so these are no limits for
    statements.
    """
    # Each statement waits for its answer, so a small packet must not wait for more data.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SILENCE.items():
        if option := getattr(socket, name, None):  # not every system has each
            found.setsockopt(socket.IPPROTO_TCP, option, value)


def _addresses(downstream: Downstream, deadline: Deadline) -> list[tuple[int, object]]:
    """Return the host's addresses; at the deadline the query, which nothing cancels, is left."""
    with suppress(OSError, ValueError):  # an address needs no question, and so no thread
        return _asked(downstream, socket.AI_NUMERICHOST)
    found: list[tuple[int, object]] = []
    faults: list[Exception] = []
    answered = threading.Event()

    def ask() -> None:
        try:
            found.extend(_asked(downstream))
        except (OSError, ValueError) as error:
            faults.append(error)
        finally:
            answered.set()

    threading.Thread(target=ask, name="resolving", daemon=True).start()
    if not deadline.wait(answered):
        raise _unknown(downstream, f"no answer within {deadline.seconds:g} s (--connect-timeout)")
    for fault in faults:
        if isinstance(fault, ValueError):
            message = (
                f"{downstream.host!r} is not a valid host name ({fault}); see --downstream-uri"
            )
            raise ConfigError(message) from fault
        raise _unknown(downstream, str(fault.args[-1])) from fault
    return found


def _asked(downstream: Downstream, flags: int = 0) -> list[tuple[int, object]]:
    """Return the system's answer for the target's host."""
    asked = socket.getaddrinfo(
        downstream.host, downstream.port, type=socket.SOCK_STREAM, flags=flags
    )
    return [(int(family), address) for family, _, _, _, address in asked]


def _unknown(downstream: Downstream, why: str) -> TargetUnavailable:
    return TargetUnavailable(
        f"cannot connect to the target: the name {downstream.host} cannot be resolved: {why}. Check the host in "
        f"--downstream-uri and the name servers of this machine: getent hosts {downstream.host}"
    )


def _connected(
    family: int, address: object, downstream: Downstream, deadline: Deadline
) -> socket.socket:
    """Return a socket that is connected to one address."""
    made = socket.socket(family, socket.SOCK_STREAM)
    # A blocking call could neither be limited nor interrupted.
    made.setblocking(False)  # noqa: FBT003 - the standard library's signature
    pause = _SHORTEST_PAUSE
    try:
        while (number := made.connect_ex(address)) in _UNDER_WAY and deadline.left() > 0:  # type: ignore[arg-type] # of any family
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE)
        why = f"[Errno {number}] {os.strerror(number)}"
    except OSError as fault:  # a path that no Unix socket can have
        number, why = errno.EINVAL, str(fault)
    if number in (0, errno.EISCONN):
        made.setblocking(True)  # noqa: FBT003 - likewise
        return made
    made.close()
    if number in _UNDER_WAY:
        why = f"nobody accepted the connection within {deadline.seconds:.3g} s (--connect-timeout)"
    raise TargetUnavailable(
        f"cannot connect to the target {downstream.address} as {downstream.user}: {why}"
    )


if TYPE_CHECKING:
    _Connection = _PlainConnection[Cursor]
else:
    _Connection = _PlainConnection  # generic in its type stubs only

_BULK_EXECUTE = 0xFA
_TYPES_FOLLOW = 128
_BULK = 1 << 2
_KNOWS_BULK = struct.pack("<I", _BULK)
_RESERVED = slice(9, 32)
"""Bytes of a client's first packet that MySQL leaves empty; MariaDB's capabilities end them."""
_OFFERED = struct.Struct("<27xI")
"""What follows the version in a server's first packet; its last field is MariaDB's capabilities."""


_CHUNK = 1 << 20
_UNKNOWN_VARIABLE = 1193
_NO_SERVER = (ValueError, IndexError, AssertionError, struct.error)
"""What the driver raises over packets that are not MySQL's."""


class Connection(_Connection):
    """A connection with guarded password, LOAD DATA LOCAL from memory only, and bulk statements."""

    feed: bytes = b""
    """What the running LOAD DATA LOCAL statement sends."""
    feed_piece: int = _CHUNK
    """Most bytes of it per packet."""
    warnings: int = 0
    """Number of warnings that the last statement raised."""
    _can_switch_checks: bool = True
    """Whether the server may know TiDB's switch for CHECK constraints."""
    has_bulk: bool = False
    """Whether the server or its proxy reports bulk statements, as MariaDB 10.2 or newer does."""
    _greeting: MysqlPacket | None = None
    """The server's first packet, after it was looked at and until it is read."""
    _offers_bulk: bool = False
    _logging_in: bool = False
    trust: Trust
    """Who answers; it decides about the password."""
    password: bytes
    salt: bytes
    _auth_plugin_name: str
    _unverified: ClassVar[ssl.SSLContext | None] = None

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> ssl.SSLContext:
        """Build PyMySQL's context, once for all connections without explicit TLS options.

        PyMySQL uses TLS if the server offers it, verifies nothing then, and yet reads all
        certificates of the machine each time, which takes 20 ms.
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
        # PyMySQL notes this where it opens the socket itself: over a Unix socket it then sends a
        # password without TLS.
        if self.unix_socket:
            self._secure = True
        self.connect(opened)

    @property
    def encrypts(self) -> bool:
        """Whether TLS is or will be in use; known once the server's first packet is read."""
        return bool(self.ssl and self.server_capabilities & CLIENT.SSL)  # type: ignore[attr-defined] # not in the stubs

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate was verified, or will be before anything is sent."""
        return self.encrypts and self.ctx.verify_mode is ssl.CERT_REQUIRED  # type: ignore[attr-defined] # likewise

    def _process_auth(self, plugin_name: bytes, auth_packet: MysqlPacket, *handler: Any) -> Any:
        """Log in as PyMySQL does, but reveal the password only to those who may have it."""
        if plugin_name in REVEALING:
            self.trust.refuse(plugin_name, self)
        # PyMySQL has a third parameter since 1.2 only.
        return super()._process_auth(plugin_name, auth_packet, *handler)  # type: ignore[misc] # likewise

    def _get_server_information(self) -> None:
        """Read the greeting and MariaDB's capabilities; have `trust` choose the login method."""
        self._greeting = greeting = super()._read_packet()  # type: ignore[no-untyped-call] # of the driver
        # After a byte for the protocol's version, the server's version ends at a NUL.
        _, _, rest = greeting.get_all_data()[1:].partition(b"\0")
        self._offers_bulk = len(rest) >= _OFFERED.size and bool(
            _OFFERED.unpack_from(rest)[0] & _BULK
        )
        super()._get_server_information()  # type: ignore[misc] # not in the stubs
        self._auth_plugin_name = self.trust.begins(self._auth_plugin_name, self)

    def load(self, sql: str, rows: bytes, *, most: int = _CHUNK) -> tuple[int, int]:
        """Run LOAD DATA LOCAL with `rows` as the file, in packets of up to `most` bytes.

        Return (affected rows, warnings).
        """
        self.feed, self.feed_piece = rows, min(most, _CHUNK)
        try:
            affected = self.query(sql)
        finally:
            # From here on a server that asks for a file gets nothing.
            self.feed = b""
        return affected, self.warnings

    def load_drops_rows(self) -> bool:
        """Return whether LOAD DATA may leave out a row that a CHECK refuses, without a warning.

        TiDB 8.4.0 does where it enforces them; with REPLACE, the number of affected rows need not
        show it either.
        """
        if not self._can_switch_checks:
            return False
        try:
            # Each time: the switch is global, and an administrator may set it meanwhile.
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
        """Yield this connection, returning every value inside the block as the server's bytes."""
        # For this block only: SHOW CREATE may hold the default of a binary column, not text.
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

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> MysqlPacket:
        """Read a packet as PyMySQL does, beginning with the one that was looked at."""
        # Only once: every later packet comes from the network.
        looked_at, self._greeting = self._greeting, None
        if looked_at is not None:
            return looked_at
        packet: MysqlPacket = super()._read_packet(packet_type)  # type: ignore[no-untyped-call] # of the driver
        return packet

    def _request_authentication(self) -> None:
        """Log in as PyMySQL does, and exchange capabilities with a MariaDB that has its own."""
        newer = not self.server_capabilities & CLIENT.LONG_PASSWORD  # type: ignore[attr-defined] # not in the stubs
        self.has_bulk = newer and self._offers_bulk
        if self.has_bulk:
            # To MariaDB a client without this old capability is one that lists MariaDB's own ones
            # in the reserved bytes.
            self.client_flag &= ~CLIENT.LONG_PASSWORD
        self._logging_in = True
        try:
            super()._request_authentication()  # type: ignore[misc] # likewise
        finally:
            self._logging_in = False

    def write_packet(self, payload: bytes) -> None:
        """Write a packet as PyMySQL does, and report bulk statements in the first ones."""
        # With TLS there are two: the TLS request, and over TLS the same 32 bytes with the login.
        if (
            self._logging_in
            and self.has_bulk
            and not any(payload[_RESERVED])
            and len(payload) >= _RESERVED.stop
        ):
            payload = (
                payload[: _RESERVED.stop - len(_KNOWS_BULK)]
                + _KNOWS_BULK
                + payload[_RESERVED.stop :]
            )
        super().write_packet(payload)

    def bulk(self, sql: str, types: bytes, values: memoryview) -> tuple[int, int]:
        """Run one statement for all rows of `values` (see `apply_rows`), only if `has_bulk`.

        Return (affected rows, warnings).
        """
        self._execute_command(COMMAND.COM_STMT_PREPARE, sql)  # type: ignore[attr-defined] # not in the stubs
        answer: bytes = self._read_packet().get_all_data()  # type: ignore[no-untyped-call] # of the driver
        # After the statement's id, as it is sent, come the numbers of its columns and parameters,
        # then a description of each.
        statement = answer[1:5]
        for count in struct.unpack_from("<HH", answer, 5):
            # one packet per parameter or column, and one after the last
            for _ in range(count + 1 if count else 0):
                self._read_packet()
        try:
            head = statement + struct.pack("<H", _TYPES_FOLLOW) + types
            self._execute_command(_BULK_EXECUTE, b"".join((head, values)))  # type: ignore[attr-defined] # not in the stubs
            affected = self._read_query_result()
        finally:
            # Also after an error: prepared statements count towards a limit of the whole server.
            if self.open:
                self._execute_command(COMMAND.COM_STMT_CLOSE, statement)  # type: ignore[attr-defined] # likewise; it has no answer
        return affected, self.warnings


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
    """Open a connection, set its session, and `prepare` it, all within `--connect-timeout`.

    `read_timeout` is in seconds, for later statements; None waits as long as one takes. Raise
    `ConfigError` for a refused login, and `TargetUnavailable` if the server does not answer.
    """
    deadline = Deadline(downstream.connect_timeout)
    made = Connection(
        host=downstream.host,
        port=downstream.port,
        unix_socket=downstream.unix_socket or None,
        **tls_options(downstream),
        user=downstream.user,
        # as the server stores it; PyMySQL would encode a text as latin1
        password=password.encode(),
        charset="utf8mb4",
        # strings in views and generated columns compare as they do at the source
        collation="utf8mb4_bin",
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
            # Logging in and the session's settings are under the same deadline: a server may fall
            # silent in any of them.
            made.connect_over(opened, Trust(downstream, opened))
            # A transaction may be open that the server's `init_connect` left. In full, since by
            # `completion_type` a plain ROLLBACK may begin another one, or end the connection.
            made.query("ROLLBACK AND NO CHAIN NO RELEASE")
            set_session(made, str(made.get_server_info()), downstream, ddl=ddl)  # type: ignore[no-untyped-call] # of the driver
            is_ours = True
            if prepare is not None:
                prepare(made)
    except (*DRIVER_FAULTS, RuntimeError, *_NO_SERVER) as fault:
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


def _refusal(
    fault: BaseException, downstream: Downstream, deadline: Deadline
) -> StorageConsumerError:
    """Return our error for a failed login; what the server refuses then is no row's fault."""
    doing = f"cannot connect to the target {downstream.address} as {downstream.user}"
    # First: whatever the driver met then comes from the watch, which shut the socket down.
    if deadline.passed:
        return TargetUnavailable(
            f"{doing}: it accepted the connection, but did not answer within {deadline.seconds:g} s (--connect-timeout)"
        )
    if (refused := tls_refusal(fault, downstream)) is not None:
        return refused
    if isinstance(fault, RuntimeError):
        package = "pynacl" if "pynacl" in str(fault) else "cryptography"
        # PyMySQL raises a plain RuntimeError where a package for a login method is missing.
        return ConfigError(
            f"{doing}: the account's login method needs a Python package: pip install {package}"
        )
    if isinstance(fault, _NO_SERVER):
        return TargetUnavailable(
            f"{doing}: what answers there is not a MySQL server ({type(fault).__name__}: {fault})"
        )
    error = translated(fault, doing)
    return (
        ConfigError(f"{error} (check the account and the settings of the server)")
        if isinstance(error, TableError)
        else error
    )


def read_only(connection: Connection) -> None:
    """Have each transaction of this connection see one moment, and write nothing."""
    connection.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    with suppress(pymysql.err.MySQLError):  # TiDB has no such transactions
        connection.query("SET SESSION TRANSACTION READ ONLY")


def escape(text: str) -> str:
    """Escape a literal's content as the driver does; sessions never set NO_BACKSLASH_ESCAPES."""
    return str(escape_string(text))


@contextmanager
def translating(doing: str) -> Iterator[None]:
    """Raise our errors for the driver's; `doing` says what was tried."""
    try:
        yield
    except DRIVER_FAULTS as fault:
        raise translated(fault, doing) from fault
