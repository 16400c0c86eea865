"""The target as the driver uses it: one connection, statements on it, and what keeps former owners from beginning any.

The fence around DDL is a lock that lives as long as the connection that holds it. A paused former owner still has that connection, and
could wake up with its statement. So its connection is ended before the lock is ours. A connection that is executing a statement is
another matter: the journal has that statement as started, the next owner waits for it and resolves it, and killing it would only make
it start again. Whatever its owner sends afterwards needs a lease.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import pymysql.err

from storage_consumer.config.settings import Downstream
from storage_consumer.decode.values import converted_zone, offset_at
from storage_consumer.errors import (
    DdlFailed,
    TableError,
    TargetBusy,
    TargetUnavailable,
    TransientError,
)
from storage_consumer.model import physical_ms
from storage_consumer.plan.journal_entry import DdlAnswer
from storage_consumer.sql.tokens import quote
from storage_consumer.target.connection import Connection, escape
from storage_consumer.target.existing_names import Query, closest, text_of
from storage_consumer.target.mysql_errors import (
    DRIVER_FAULTS,
    described,
    is_conflict,
    is_denied,
    is_of_foreign_key,
    number_of,
    translated,
)
from storage_consumer.target.rights import remedy
from storage_consumer.target.structure import TargetStructure, default_collations

_TRIES = 10
_HARMLESS = ("SELECT", "SHOW", "SET", "USE", "KILL", "COMMIT", "ROLLBACK", "BEGIN")
"""What an owner's connection runs besides DDL; a DDL may follow."""


def fenced(query: Query, name: str, *, tidb: bool) -> bool:
    """Take the lock `name`; return False while its holder is executing a DDL, which is left alone.

    Raise `TargetUnavailable` if the holder could not be ended.
    """
    if tidb:
        with suppress(TableError, TransientError):  # before TiDB 7.4 there is no such name
            # By this name the next owner finds the connection, since TiDB does not show who holds a lock.
            query("SET SESSION tidb_session_alias = %s", (name,))
    for _ in range(_TRIES):
        if query("SELECT GET_LOCK(%s, 1)", (name,))[0][0] == 1:
            return True
        holders = _namesakes(query, name) if tidb else _holder(query, name)
        # A look right before the KILL: a statement that is already running has to end by itself.
        if any(text.strip() and text.split(maxsplit=1)[0].upper() not in _HARMLESS for _, text in holders):
            return False
        # A DDL that begins between the look and the KILL is in the journal as started, so it is resolved by the structure that it leaves.
        for holder, _ in holders:
            with suppress(TableError, TransientError):  # it may be gone by now
                query(f"KILL {'TIDB ' if tidb else ''}{holder}")
    message = "another connection holds the lock for DDL on the target and could not be ended"
    raise TargetUnavailable(message)


def _holder(query: Query, lock: str) -> list[tuple[int, str]]:
    """Return the connection that holds a lock and what it executes; empty if nobody holds it."""
    holder = query("SELECT IS_USED_LOCK(%s)", (lock,))[0][0]
    # A holder that the processlist does not show is ended as an idle one would be.
    return [] if holder is None else _with_statements(query, "id = %s", (int(holder),)) or [(int(holder), "")]


def _namesakes(query: Query, alias: str) -> list[tuple[int, str]]:
    """Return every other connection with this alias to any server of the cluster; TiDB does not tell who holds a lock."""
    found: dict[int, str] = {}
    for listing in ("processlist", "cluster_processlist"):
        with suppress(TableError, TransientError):
            found |= dict(_with_statements(query, "session_alias = %s AND id <> CONNECTION_ID()", (alias,), listing))
    return sorted(found.items())


def _with_statements(
    query: Query, where: str, arguments: Collection[Any], listing: str = "processlist"
) -> list[tuple[int, str]]:
    found = query(f"SELECT id, info FROM information_schema.{listing} WHERE {where}", arguments)
    return [(int(connection), text_of(statement or "")) for connection, statement in found]


_UNKNOWN_DATABASE = 1049
_ENDED_JOBS = ("synced", "cancelled", "rollback done", "done")
"""States of a TiDB DDL job that no longer changes anything."""
_WARNINGS = 5
"""Most warnings kept of those that one statement raises."""
KNOWS_ZONE = "SELECT CONVERT_TZ('2000-01-01 00:00:00', '+00:00', %s) IS NOT NULL"
"""Whether the server knows a zone by its name, as a query."""


class TargetDatabase(TargetStructure):
    """The target on one connection of the driver: its structure, and statements, each in a session of its own."""

    def __init__(self, downstream: Downstream, password: str, worker: int = 0) -> None:
        """Take the settings; nothing connects yet. `worker` is the number of the DDL worker whose lock it takes."""
        super().__init__(downstream, password)
        self.zone = downstream.time_zone
        """The time zone of the feed."""
        self._lock_suffix = f":{worker}" if worker else ""
        self._fenced: Connection | None = None
        """The connection that took the lock for DDL, for the next statement."""
        self._knows_zone: bool | None = None

    def fence_ddl(self) -> bool:
        """Make this connection the only one of this state schema and worker that may begin a DDL; see `fenced`."""
        # A lock's name has at most 64 characters, as many as the schema's alone may have.
        schema = hashlib.sha256(self._downstream.state_schema.encode()).hexdigest()[:32]
        name = f"storage_consumer:{schema}{self._lock_suffix}"
        taken = fenced(self.rows, name, tidb=self.is_tidb)
        # Not `live()`: that may open another connection, which would not hold the lock.
        self._fenced = self.current if taken else None
        return taken

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Run one statement with `schema` as default database (empty: none) and the clock at the time of `version`.

        Return the server's answer, which may be an error whose number is in `ignorable`. Raise `DdlFailed` with the server's answer,
        `TargetBusy` if others hold a lock, and `TargetUnavailable` if nobody knows whether it took effect, or the server takes no writes
        for now.

        The connection ends with the statement, so that nothing that it did to its session (variables, default database, temporary
        tables, locks) outlives it. The lock for DDL goes with it: `fence_ddl` comes before the next one.
        """
        # First, since this may ask the server: if that opens another connection, the lock is gone.
        zone = self.statement_zone(version)
        fenced, self._fenced = self._fenced, None
        connection = self.live()
        if fenced is not None and connection is not fenced:
            raise TargetUnavailable("the connection that held the lock for DDL broke before its statement")
        try:
            if schema:
                self._enter(connection, schema)
            connection.query(f"SET SESSION time_zone = '{escape(zone)}'")
            # What the statement takes from the clock, such as the default of a new column, is then as at the source.
            connection.query(f"SET SESSION timestamp = {physical_ms(version) / 1000:.3f}")
            affected = connection.query(statement)
            warnings = _warnings(connection)
        except DRIVER_FAULTS as fault:
            # It lost against another connection, so it did nothing; after a lost connection nobody knows.
            if is_conflict(fault):
                message = f"running a DDL: {described(fault)}"
                raise TargetBusy(message) from fault
            if isinstance(error := translated(fault, "running a DDL"), TargetUnavailable):
                raise error from fault
            if is_denied(fault):
                missing = remedy(fault, self.rows, [schema], statement)
                raise DdlFailed(described(fault), remedy=missing) from fault
            if number_of(fault) in ignorable:
                return DdlAnswer(ignored=described(fault))
            raise DdlFailed(described(fault), of_foreign_key=is_of_foreign_key(fault)) from fault
        finally:
            self.close()
        return DdlAnswer(affected=affected, warnings=warnings)

    def _enter(self, connection: Connection, schema: str) -> None:
        """Make `schema` the default database, in whatever case the target spells it."""
        try:
            connection.query(f"USE {quote(schema)}")
        except pymysql.err.MySQLError as fault:
            if number_of(fault) != _UNKNOWN_DATABASE:
                raise
            # Looked up only after a refusal: nearly always the database has the name as it was given.
            connection.query(f"USE {quote(closest(schema, default_collations(self.rows)) or schema)}")

    def is_running(self, statement: str) -> bool:
        """Return whether the server is executing the statement right now, for a connection or, on TiDB, after that is gone."""
        rows = self.rows(
            "SELECT info FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND info IS NOT NULL"
        )
        if self.is_tidb:
            # A TiDB goes on with a job whose connection is gone, so its processlist alone proves nothing.
            states = ", ".join(["%s"] * len(_ENDED_JOBS))
            rows += self.rows(
                f"SELECT query FROM information_schema.ddl_jobs WHERE state NOT IN ({states})", _ENDED_JOBS
            )
        return any(text_of(text).strip() == statement.strip() for (text,) in rows)

    def statement_zone(self, version: int) -> str:
        """Return the session's time zone for a statement of this version: the feed's, by its name if the server knows that.

        Otherwise it is the offset in force at that version, which differs from the one half a year later in a zone with daylight saving
        time. The server is asked only once, so that texts are written for the zone that they run in.
        """
        if self._knows_zone is None:
            sql = KNOWS_ZONE
            self._knows_zone = bool(converted_zone(self.zone)) and bool(self.rows(sql, [self.zone])[0][0])
        return self.zone if self._knows_zone else offset_at(self.zone, physical_ms(version))


def _warnings(connection: Connection) -> tuple[str, ...]:
    """Return the first warnings about the last statement."""
    if not connection.warnings:
        return ()
    with suppress(pymysql.err.MySQLError), connection.cursor() as cursor:  # it ran, whatever comes of this
        cursor.execute("SHOW WARNINGS")
        found = cursor.fetchmany(_WARNINGS)
        return tuple(f"{text_of(level).lower()} {number}: {text_of(text)}" for level, number, text in found)
    return ()
