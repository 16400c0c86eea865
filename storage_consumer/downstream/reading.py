"""A connection on which a comparison reads, snapshot after snapshot, of the target or of the source. It writes nothing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pymysql.err

from storage_consumer.config.settings import Downstream
from storage_consumer.downstream.connection import Connection, connect
from storage_consumer.downstream.mysql_errors import (
    described,
    is_conflict,
    is_connection_loss,
    is_denied,
    number_of,
    translated,
)
from storage_consumer.downstream.session import fetched, kind_of
from storage_consumer.errors import ConfigError, SnapshotLost, TableError, TargetUnavailable

_GONE = frozenset((1412, 8055, 9006, 8028))
"""The table's definition has changed since the snapshot; TiDB's garbage collection has passed it; TiDB's schema has changed."""
_NO_SAFE_POINT = "tikv_gc_safe_point"


class Pace:
    """A limit of rows per second, which several threads share."""

    def __init__(self, rows_per_second: float = 0.0) -> None:
        """Let through so many rows; 0 for any number."""
        self._limit = rows_per_second
        self._lock = threading.Lock()
        self._next = 0.0

    def spend(self, rows: int) -> None:
        """Wait until as much time has passed as these rows may take."""
        if not self._limit:
            return
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next, now) + rows / self._limit
            wait = self._next - now
        time.sleep(wait)


class Reading:
    """One connection; `whose` names the server in messages: ``target`` or ``source``."""

    def __init__(
        self, downstream: Downstream, password: str, whose: str, pace: Pace | None = None, doing: str = "comparing"
    ) -> None:
        """Take the settings; nothing connects before the first snapshot. `doing`: what for, in messages."""
        # TIMESTAMP values are compared in UTC.
        self._settings = replace(downstream, time_zone="UTC")
        self._password = password
        self._doing = doing
        self.whose = whose
        self.pace = pace or Pace()
        self._connection: Connection | None = None

    def close(self) -> None:
        """Close the connection; the next snapshot opens another one."""
        if self._connection is not None and self._connection.open:
            with suppress(pymysql.err.MySQLError, OSError, EOFError):
                self._connection.close()
        self._connection = None

    def live(self) -> Connection:
        """Return the connection."""
        if self._connection is None or not self._connection.open:
            try:
                self._connection = connect(self._settings, self._password, prepare=_prepare)
            except (ConfigError, TargetUnavailable) as fault:
                if self.whose == "target":
                    raise
                text = (
                    str(fault)
                    .replace("to the target", f"to the {self.whose}")
                    .replace("the downstream URI", "--source")
                )
                raise type(fault)(text) from fault
        return self._connection

    @property
    def kind(self) -> str:
        """What kind of server it is: ``mariadb``, ``mysql`` or ``tidb``."""
        return kind_of(str(self.live().get_server_info()))  # type: ignore[no-untyped-call] # of the driver

    # snapshots

    def begin(self) -> None:
        """Take a snapshot of now; the former one ends."""
        self.rows("ROLLBACK")
        self.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")

    def begin_at(self, ts: int) -> None:
        """Read as of a TSO from now on. Only TiDB can."""
        if self.kind != "tidb":
            raise ConfigError(
                f"the {self.whose} is no TiDB, so it cannot be read as of a commit-ts (--frozen compares one that nobody writes to)"
            )
        self.rows("ROLLBACK")
        try:
            # TiDB compares a TSO with what its garbage collection has left only where the setting changes.
            self.rows("SET SESSION tidb_snapshot = ''")
            self.rows("SET SESSION tidb_snapshot = %s", (str(ts),))
        except TableError as fault:
            if _NO_SAFE_POINT in str(fault):
                raise ConfigError(
                    f"the {self.whose} cannot be read as of a commit-ts: {fault}. A TiDB without TiKV has no garbage collection; for a "
                    "test, insert the row tikv_gc_safe_point into mysql.tidb"
                ) from fault
            raise

    def end(self) -> None:
        """End the snapshot, and with it every lock that it holds."""
        if self._connection is not None and self._connection.open:
            try:
                self.rows("ROLLBACK")
            except (TargetUnavailable, SnapshotLost):
                self.close()

    def refuse_ignored(self, ts: int, table: str) -> None:
        """Raise `ConfigError` if the server has not read a table as of this TSO, though it took the setting."""
        self.rows(f"SELECT 1 FROM {table.replace('%', '%%')} LIMIT %s", (1,))
        ((text,),) = self.rows("SELECT @@tidb_last_query_info")
        read_at = int(json.loads(text)["start_ts"])
        if read_at != ts:
            raise ConfigError(
                f"the {self.whose} ignores tidb_snapshot: asked for {ts}, it read as of {read_at}. What is read would be worth nothing"
            )

    # queries

    def rows(self, sql: str, arguments: Collection[Any] = (), /) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._translating():
            return fetched(self.live(), sql, arguments or None)

    def raw(self, sql: str, arguments: Collection[Any] = ()) -> Iterator[tuple[bytes | None, ...]]:
        """Yield all rows of a query whose columns are texts or bytes, each value as bytes."""
        with self._translating(), self.live().undecoded() as connection:
            found = fetched(connection, sql, arguments or None)
        for row in found:
            yield tuple(None if value is None else _bytes(value) for value in row)

    @contextmanager
    def _translating(self) -> Iterator[None]:
        doing = f"{self._doing}, at the {self.whose} {self._settings.address}"
        try:
            yield
        except (pymysql.err.MySQLError, OSError, EOFError) as fault:
            if number_of(fault) in _GONE or is_conflict(fault):
                raise SnapshotLost(f"{doing}: {described(fault)}") from fault
            if is_connection_loss(fault):
                self.close()
            if is_denied(fault):
                raise ConfigError(
                    f"{doing}: {described(fault)} (this needs SELECT on the tables that are read)"
                ) from fault
            raise translated(fault, doing) from fault


def _prepare(connection: Connection) -> None:
    connection.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    with suppress(pymysql.err.MySQLError):  # TiDB has no such transactions
        connection.query("SET SESSION TRANSACTION READ ONLY")


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
