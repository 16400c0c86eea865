"""Statements on the target: the lock that one needs, the session in which it runs, and what the server answers."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import pymysql.err

from storage_consumer.config.settings import Downstream
from storage_consumer.decode.time_zone import converted_zone, offset_at
from storage_consumer.downstream.connection import Connection, escape
from storage_consumer.downstream.ddl_lock import fenced
from storage_consumer.downstream.driver_session import DriverSession
from storage_consumer.downstream.identifier_case import closest
from storage_consumer.downstream.mysql_errors import (
    described,
    is_conflict,
    is_denied,
    is_of_foreign_key,
    number_of,
    translated,
)
from storage_consumer.downstream.query import text_of
from storage_consumer.downstream.rights import remedy
from storage_consumer.downstream.structure import default_collations
from storage_consumer.errors import DdlFailed, TargetBusy, TargetUnavailable
from storage_consumer.model import physical_ms
from storage_consumer.plan.journal import DdlAnswer
from storage_consumer.sql.tokens import quote

_UNKNOWN_DATABASE = 1049
_ENDED_JOBS = ("synced", "cancelled", "rollback done", "done")
"""States of a TiDB DDL job that no longer changes anything."""
_WARNINGS = 5
"""Most warnings kept of those that one statement raises."""
KNOWS_ZONE = "SELECT CONVERT_TZ('2000-01-01 00:00:00', '+00:00', %s) IS NOT NULL"
"""Whether the server knows a zone by its name, as a query."""


class DdlExecution:
    """Runs statements, each in a session of its own on the connection that took the lock for it."""

    def __init__(self, session: DriverSession, downstream: Downstream, worker: int = 0) -> None:
        """Run statements over `session`. `worker` is the number of the DDL worker whose lock it takes."""
        self._session = session
        self.zone = downstream.time_zone
        """The time zone of the feed."""
        self._state_schema = downstream.state_schema
        self._lock_suffix = f":{worker}" if worker else ""
        self._fenced: Connection | None = None
        """The connection that took the lock for DDL, for the next statement."""
        self._knows_zone: bool | None = None

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def fence_ddl(self) -> bool:
        """Make this connection the only one of this state schema and worker that may begin a DDL; see `ddl_lock.fenced`."""
        # A lock's name has at most 64 characters, as many as the schema's alone may have.
        schema = hashlib.sha256(self._state_schema.encode()).hexdigest()[:32]
        name = f"storage_consumer:{schema}{self._lock_suffix}"
        taken = fenced(self._session.rows, name, tidb=self._session.is_tidb())
        # Not `live()`: that may open another connection, which would not hold the lock.
        self._fenced = self._session.current if taken else None
        return taken

    def _connection(self) -> Connection:
        """Return the connection for one statement; never another one than that which took the lock for it."""
        fenced, self._fenced = self._fenced, None
        connection = self._session.live()
        if fenced is not None and connection is not fenced:
            message = "the connection that held the lock for DDL broke before its statement"
            raise TargetUnavailable(message)
        return connection

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
        # First, since this may ask the server: if that opens another connection, `_connection` notices that the lock is gone.
        zone = self.statement_zone(version)
        connection = self._connection()
        try:
            if schema:
                self._enter(connection, schema)
            connection.query(f"SET SESSION time_zone = '{escape(zone)}'")
            # What the statement takes from the clock, such as the default of a new column, is then as at the source.
            connection.query(f"SET SESSION timestamp = {physical_ms(version) / 1000:.3f}")
            affected = connection.query(statement)
            warnings = _warnings(connection)
        except (pymysql.err.MySQLError, OSError, EOFError) as fault:
            # It lost against another connection, so it did nothing; after a lost connection nobody knows.
            if is_conflict(fault):
                message = f"running a DDL: {described(fault)}"
                raise TargetBusy(message) from fault
            if isinstance(error := translated(fault, "running a DDL"), TargetUnavailable):
                raise error from fault
            if is_denied(fault):
                missing = remedy(fault, self._session.rows, [schema], statement)
                raise DdlFailed(described(fault), remedy=missing) from fault
            if number_of(fault) in ignorable:
                return DdlAnswer(ignored=described(fault))
            raise DdlFailed(described(fault), of_foreign_key=is_of_foreign_key(fault)) from fault
        finally:
            self._session.close()
        return DdlAnswer(affected=affected, warnings=warnings)

    def _enter(self, connection: Connection, schema: str) -> None:
        """Make `schema` the default database, in whatever case the target spells it."""
        try:
            connection.query(f"USE {quote(schema)}")
        except pymysql.err.MySQLError as fault:
            if number_of(fault) != _UNKNOWN_DATABASE:
                raise
            # Looked up only after a refusal: nearly always the database has the name as it was given.
            connection.query(f"USE {quote(closest(schema, default_collations(self._session.rows)) or schema)}")

    def is_running(self, statement: str) -> bool:
        """Return whether the server is executing the statement right now, for a connection or, on TiDB, after that is gone."""
        rows = self._session.rows(
            "SELECT info FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND info IS NOT NULL"
        )
        if self._session.is_tidb():
            # A TiDB goes on with a job whose connection is gone, so its processlist alone proves nothing.
            states = ", ".join(["%s"] * len(_ENDED_JOBS))
            rows += self._session.rows(
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
            self._knows_zone = bool(converted_zone(self.zone)) and bool(self._session.rows(sql, [self.zone])[0][0])
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
