"""The target as the driver uses it: one connection, its statements, and the fence for DDL.

The fence around DDL is a lock that lives as long as the connection that holds it. A paused former
owner still has that connection, and could wake up with its statement. So its connection is ended
before the lock is ours. A connection that is executing a statement is another matter: the journal
has that statement as started, the next owner waits for it and resolves it, and killing it would
only make it start again. Whatever its owner sends afterwards needs a lease.

`read_server` reads what a target server is, may and holds, as far as it matters to a consumer.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
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
from storage_consumer.target.connection import Connection, connect, escape, translating
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
from storage_consumer.target.rights import ROW_RIGHTS, Granted, grant, remedy
from storage_consumer.target.session_settings import SETTINGS, fetched, kind_of
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
            # The next owner finds the connection by this name: TiDB does not show who holds a lock.
            query("SET SESSION tidb_session_alias = %s", (name,))
    for _ in range(_TRIES):
        if query("SELECT GET_LOCK(%s, 1)", (name,))[0][0] == 1:
            return True
        if tidb:
            holders = _namesakes(query, name)
        else:
            number = query("SELECT IS_USED_LOCK(%s)", (name,))[0][0]
            # A holder that the processlist does not show is ended as an idle one would be.
            holders = (
                []
                if number is None
                else _with_statements(query, "id = %s", (number,)) or [(number, "")]
            )
        # A look right before the KILL: a statement that is already running has to end by itself.
        if any(
            text.strip() and text.split(maxsplit=1)[0].upper() not in _HARMLESS
            for _, text in holders
        ):
            return False
        # A DDL that begins between the look and the KILL is in the journal as started, so it is
        # resolved by the structure that it leaves.
        for holder, _ in holders:
            with suppress(TableError, TransientError):  # it may be gone by now
                query(f"KILL {'TIDB ' if tidb else ''}{holder}")
    message = "another connection holds the lock for DDL on the target and could not be ended"
    raise TargetUnavailable(message)


def _namesakes(query: Query, alias: str) -> list[tuple[int, str]]:
    """Return the other connections with this alias in the cluster; TiDB hides who holds a lock."""
    found: dict[int, str] = {}
    for listing in ("processlist", "cluster_processlist"):
        with suppress(TableError, TransientError):
            found |= dict(
                _with_statements(
                    query, "session_alias = %s AND id <> CONNECTION_ID()", (alias,), listing
                )
            )
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
    """The target on one connection of the driver: its structure, and statements in sessions."""

    def __init__(self, downstream: Downstream, password: str, worker: int = 0) -> None:
        """Take the settings without connecting; `worker`: the DDL worker whose lock it takes."""
        super().__init__(downstream, password)
        self.zone = downstream.time_zone
        """The time zone of the feed."""
        self._lock_suffix = f":{worker}" if worker else ""
        self._fenced: Connection | None = None
        """The connection that took the lock for DDL, for the next statement."""
        self._knows_zone: bool | None = None

    def fence_ddl(self) -> bool:
        """Let only this connection of the state schema and worker begin DDL; see `fenced`."""
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
        """Run one statement with default database `schema` (or none) at the time of `version`.

        Return the server's answer, which may be an error whose number is in `ignorable`. Raise
        `DdlFailed` with the server's answer, `TargetBusy` if others hold a lock, and
        `TargetUnavailable` if nobody knows whether it took effect, or the server takes no writes
        for now.

        The connection ends with the statement, so that nothing that it did to its session
        (variables, default database, temporary tables, locks) outlives it. The lock for DDL goes
        with it: `fence_ddl` comes before the next one.
        """
        # First, since this may ask the server: if that opens another connection, the lock is gone.
        zone = self.statement_zone(version)
        fenced, self._fenced = self._fenced, None
        connection = self.live()
        if fenced is not None and connection is not fenced:
            raise TargetUnavailable(
                "the connection that held the lock for DDL broke before its statement"
            )
        try:
            if schema:
                self._enter(connection, schema)
            connection.query(f"SET SESSION time_zone = '{escape(zone)}'")
            # What the statement takes from the clock, such as the default of a new column, is then
            # as at the source.
            connection.query(f"SET SESSION timestamp = {physical_ms(version) / 1000:.3f}")
            affected = connection.query(statement)
            warnings: tuple[str, ...] = ()
            if connection.warnings:
                # it ran, whatever comes of this
                with suppress(pymysql.err.MySQLError), connection.cursor() as cursor:
                    cursor.execute("SHOW WARNINGS")
                    first = cursor.fetchmany(_WARNINGS)
                    warnings = tuple(
                        f"{text_of(level).lower()} {code}: {text_of(text)}"
                        for level, code, text in first
                    )
        except DRIVER_FAULTS as fault:
            # It lost to another connection and did nothing; after a lost connection nobody knows.
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
            # Queried only after a refusal: nearly always the database has the name as it was given.
            connection.query(
                f"USE {quote(closest(schema, default_collations(self.rows)) or schema)}"
            )

    def is_running(self, statement: str) -> bool:
        """Return whether the server runs the statement now, on TiDB even after its connection."""
        rows = self.rows(
            "SELECT info FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND info IS NOT NULL"
        )
        if self.is_tidb:
            # TiDB continues a job whose connection is gone, so its processlist alone proves
            # nothing.
            states = ", ".join(["%s"] * len(_ENDED_JOBS))
            rows += self.rows(
                f"SELECT query FROM information_schema.ddl_jobs WHERE state NOT IN ({states})",
                _ENDED_JOBS,
            )
        return any(text_of(text).strip() == statement.strip() for (text,) in rows)

    def statement_zone(self, version: int) -> str:
        """Return the time zone for a statement of this version: the feed's, by name if known.

        Otherwise it is the offset in force at that version, which differs from the one half a year
        later in a zone with daylight saving time. The server is asked only once, so that texts are
        written for the zone that they run in.
        """
        if self._knows_zone is None:
            sql = KNOWS_ZONE
            self._knows_zone = bool(converted_zone(self.zone)) and bool(
                self.rows(sql, [self.zone])[0][0]
            )
        return self.zone if self._knows_zone else offset_at(self.zone, physical_ms(version))


STATE_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "INDEX")
"""What the state needs of ALL on its schema."""
READ_ONLY = (
    "read_only",
    "super_read_only",
    "innodb_read_only",
    "tidb_restricted_read_only",
    "tidb_super_read_only",
)
"""Variables by which a server refuses writes."""
_PASS_READ_ONLY = (
    "SUPER",
    "READ_ONLY ADMIN",
    "CONNECTION_ADMIN",
    "RESTRICTED_REPLICA_WRITER_ADMIN",
)
_VARIABLES = (
    *("max_allowed_packet", "local_infile", "event_scheduler", *READ_ONLY),
    *("max_connections", "max_user_connections", "log_bin", "binlog_format", "partial_revokes"),
    *(
        "innodb_default_row_format",
        "innodb_page_size",
        "innodb_force_recovery",
        "require_secure_transport",
    ),
    "innodb_force_primary_key",
)
_TIMEOUT = 20
"""Seconds that one query may take."""
_PINGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """Settings of the server."""

    server_type: str
    """``mariadb``, ``mysql`` or ``tidb``."""
    version: str
    every: Mapping[str, str]
    """Name → value in capitals, of the variables that this server has."""
    session: Mapping[str, str] = field(default_factory=dict)
    """The same of our own session, for variables that it lacked the right to set."""

    def number(self, name: str) -> int:
        """Return a variable as a number; 0 if the server lacks it."""
        text = self.every.get(name, "")
        return int(text) if text.isdecimal() else 0

    def is_on(self, name: str) -> bool:
        """Return whether a switch is on; False if the server lacks it."""
        return self.every.get(name, "") in ("1", "ON")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLine:
    """How the server is reached."""

    encrypts: bool
    verifies: bool
    is_local: bool
    """Whether it is this very machine."""
    ahead: float
    """Seconds by which the server's clock is ahead of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObject:
    """An object of the target that acts on replicated tables, or looks at them."""

    name: str
    """Quoted, with its database."""
    table: str
    """The table that it belongs to, quoted, with its database; empty for an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """All of it."""

    variables: Variables
    line: ServerLine
    connections: int
    """Connections that are open now."""
    knows_zone: bool
    """Whether it knows the feed's time zone by its name."""
    grants: Mapping[str, str]
    """Database → the GRANT that it lacks, for the replicated ones and the state's."""
    missing: Mapping[str, tuple[str, ...]]
    """Database → the privileges that are missing on it."""
    passes_read_only: bool
    """Whether our account may write to a server with read_only."""
    triggers: tuple[FoundObject, ...]
    events: tuple[FoundObject, ...]
    references: tuple[FoundObject, ...]
    """Foreign keys of other databases' tables that refer to replicated ones."""


def variables_of(query: Query) -> Variables:
    """Return the server's settings, by two queries."""
    listed = ", ".join(f"'{name}'" for name in _VARIABLES)
    return Variables(
        server_type=kind_of(version := text_of(query("SELECT VERSION()")[0][0])),
        version=version,
        every=_pairs(query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")),
    )


def read_server(downstream: Downstream, password: str, schemas: Collection[str]) -> ServerFacts:
    """Probe a target that gets databases `schemas`; raise `ConfigError`, `TargetUnavailable`."""
    with closing(connect(downstream, password, ddl=True, read_timeout=_TIMEOUT)) as connection:
        return _FactsReading(
            connection, downstream, sorted({name for name in schemas if name})
        ).all()


class _FactsReading:
    """All questions, over one connection."""

    def __init__(
        self, connection: Connection, downstream: Downstream, schemas: Sequence[str]
    ) -> None:
        self._connection = connection
        self._downstream = downstream
        self._schemas = schemas

    def all(self) -> ServerFacts:
        """Return everything."""
        state = self._downstream.state_schema
        listed = ", ".join(f"'{setting.name}'" for setting in SETTINGS if setting.needs_right)
        session = _pairs(self._rows(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({listed})"))
        variables = replace(variables_of(self._rows), session=session)
        lines = self._rows("SHOW GRANTS")
        with suppress(pymysql.err.MySQLError):
            # MySQL shows what a role gives only where the role is named.
            ((roles,),) = fetched(self._connection, "SELECT CURRENT_ROLE()")
            if variables.server_type != "mariadb" and roles and roles != "NONE":
                lines += fetched(self._connection, f"SHOW GRANTS FOR CURRENT_USER() USING {roles}")
        granted = Granted(
            [text_of(row[0]) for row in lines], literal_names=variables.is_on("partial_revokes")
        )
        wanted = {name: tuple(ROW_RIGHTS.split(", ")) for name in self._schemas} | {
            state: STATE_RIGHTS
        }
        missing = {
            name: lacking
            for name, rights in wanted.items()
            if (lacking := granted.missing(rights, name))
        }
        # The answer that takes the least time says best how far the server's clock is ahead.
        took, ahead = math.inf, 0.0
        for _ in range(_PINGS):
            sent, began = time.time(), time.monotonic()
            now = float(self._rows("SELECT UNIX_TIMESTAMP(NOW(6))")[0][0])
            if (seconds := time.monotonic() - began) < took:
                took, ahead = seconds, now - (sent + seconds / 2)
        return ServerFacts(
            variables=variables,
            line=ServerLine(
                encrypts=self._connection.encrypts,
                verifies=self._connection.verifies,
                is_local=self._connection.trust.is_local,
                ahead=ahead,
            ),
            connections=int(
                (self._rows("SHOW GLOBAL STATUS LIKE 'Threads_connected'") or [("", 0)])[0][1]
            ),
            knows_zone=bool(self._rows(KNOWS_ZONE, [self._downstream.time_zone])[0][0]),
            grants={
                name: grant(self._rows, "ALL" if name == state else ROW_RIGHTS, name)
                for name in missing
            },
            missing=missing,
            passes_read_only=any(not granted.missing((right,)) for right in _PASS_READ_ONLY),
            triggers=self._found(
                "SELECT trigger_schema, trigger_name, event_object_schema, event_object_table FROM "
                "information_schema.triggers WHERE event_object_schema IN ({schemas})"
            ),
            events=self._found(
                "SELECT event_schema, event_name, '', '' FROM information_schema.events WHERE status = 'ENABLED' AND "
                "event_schema IN ({schemas})"
            ),
            references=self._found(
                "SELECT constraint_schema, constraint_name, constraint_schema, table_name FROM "
                "information_schema.referential_constraints WHERE unique_constraint_schema IN ({schemas}) AND "
                "constraint_schema NOT IN ({schemas})"
            ),
        )

    def _rows(self, sql: str, arguments: Collection[Any] = (), /) -> list[tuple[Any, ...]]:
        with translating("asking the target"):
            return fetched(self._connection, sql, arguments or None)

    def _found(self, sql: str) -> tuple[FoundObject, ...]:
        if not self._schemas:
            return ()
        holders = ", ".join(["%s"] * len(self._schemas))
        rows = self._rows(
            sql.replace("{schemas}", holders), [*self._schemas] * sql.count("{schemas}")
        )
        return tuple(
            FoundObject(name=_quoted(*row[:2]), table=_quoted(*row[2:]) if row[3] else "")
            for row in rows
        )


def _pairs(rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    return {text_of(name).lower(): text_of(value).upper() for name, value in rows}


def _quoted(*parts: Any) -> str:
    return ".".join(quote(text_of(part)) for part in parts)
