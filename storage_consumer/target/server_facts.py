"""What a target server is, may and holds, as far as it matters to a consumer. It only reads."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pymysql.err

from storage_consumer.config.settings import Downstream
from storage_consumer.sql.tokens import quote
from storage_consumer.target.connection import Connection, connect, translating
from storage_consumer.target.database import KNOWS_ZONE
from storage_consumer.target.existing_names import Query, text_of
from storage_consumer.target.rights import ROW_RIGHTS, Granted, grant
from storage_consumer.target.session_settings import SETTINGS, fetched, kind_of

STATE_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "INDEX")
"""What the state needs of ALL on its schema."""
READ_ONLY = ("read_only", "super_read_only", "innodb_read_only", "tidb_restricted_read_only", "tidb_super_read_only")
"""Variables by which a server refuses writes."""
_PASS_READ_ONLY = ("SUPER", "READ_ONLY ADMIN", "CONNECTION_ADMIN", "RESTRICTED_REPLICA_WRITER_ADMIN")
_VARIABLES = (
    *("max_allowed_packet", "local_infile", "event_scheduler", *READ_ONLY),
    *("max_connections", "max_user_connections", "log_bin", "binlog_format", "partial_revokes"),
    *("innodb_default_row_format", "innodb_page_size", "innodb_force_recovery", "require_secure_transport"),
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
    """The same of a session of ours, for the variables that it could not set for lack of a right."""

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
    """Return what there is to know of a target that gets the databases `schemas`; raise `ConfigError` or `TargetUnavailable`."""
    with closing(connect(downstream, password, ddl=True, read_timeout=_TIMEOUT)) as connection:
        return _FactsReading(connection, downstream, sorted({name for name in schemas if name})).all()


class _FactsReading:
    """All questions, over one connection."""

    def __init__(self, connection: Connection, downstream: Downstream, schemas: Sequence[str]) -> None:
        self._connection = connection
        self._downstream = downstream
        self._schemas = schemas

    def all(self) -> ServerFacts:
        """Return everything."""
        state = self._downstream.state_schema
        listed = ", ".join(f"'{setting.name}'" for setting in SETTINGS if setting.needs_right)
        session = _pairs(self._rows(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({listed})"))
        variables = replace(variables_of(self._rows), session=session)
        granted = self._granted(variables)
        wanted = {name: tuple(ROW_RIGHTS.split(", ")) for name in self._schemas} | {state: STATE_RIGHTS}
        missing = {name: lacking for name, rights in wanted.items() if (lacking := granted.missing(rights, name))}
        return ServerFacts(
            variables=variables,
            line=self._line(),
            connections=int((self._rows("SHOW GLOBAL STATUS LIKE 'Threads_connected'") or [("", 0)])[0][1]),
            knows_zone=bool(self._rows(KNOWS_ZONE, [self._downstream.time_zone])[0][0]),
            grants={name: grant(self._rows, "ALL" if name == state else ROW_RIGHTS, name) for name in missing},
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

    def _line(self) -> ServerLine:
        took, ahead = math.inf, 0.0
        for _ in range(_PINGS):
            sent, began = time.time(), time.monotonic()
            now = float(self._rows("SELECT UNIX_TIMESTAMP(NOW(6))")[0][0])
            if (seconds := time.monotonic() - began) < took:
                took, ahead = seconds, now - (sent + seconds / 2)
        return ServerLine(
            encrypts=self._connection.encrypts,
            verifies=self._connection.verifies,
            is_local=self._connection.trust.is_local,
            ahead=ahead,
        )

    def _granted(self, variables: Variables) -> Granted:
        lines = self._rows("SHOW GRANTS")
        with suppress(pymysql.err.MySQLError):
            # MySQL shows what a role gives only where the role is named.
            ((roles,),) = fetched(self._connection, "SELECT CURRENT_ROLE()")
            if variables.server_type != "mariadb" and roles and roles != "NONE":
                lines += fetched(self._connection, f"SHOW GRANTS FOR CURRENT_USER() USING {roles}")
        return Granted([text_of(row[0]) for row in lines], literal_names=variables.is_on("partial_revokes"))

    def _in_schemas(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query of the replicated databases, none if there are none."""
        if not self._schemas:
            return []
        holders = ", ".join(["%s"] * len(self._schemas))
        return self._rows(sql.replace("{schemas}", holders), [*self._schemas] * sql.count("{schemas}"))

    def _found(self, sql: str) -> tuple[FoundObject, ...]:
        rows = self._in_schemas(sql)
        return tuple(FoundObject(name=_quoted(*row[:2]), table=_quoted(*row[2:]) if row[3] else "") for row in rows)


def _pairs(rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    return {text_of(name).lower(): text_of(value).upper() for name, value in rows}


def _quoted(*parts: Any) -> str:
    return ".".join(quote(text_of(part)) for part in parts)
