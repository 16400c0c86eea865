"""TargetDatabase: the driver's view of the target: what server it is, what its tables look like, and DDL."""

from __future__ import annotations

import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pymysql.err

from storage_consumer.config.settings import Downstream
from storage_consumer.decode.time_zone import converted_zone, offset_at
from storage_consumer.downstream import key_drift
from storage_consumer.downstream.column_facts import target_column, text_of
from storage_consumer.downstream.connection import Connection, connect, escape, translating
from storage_consumer.downstream.ddl_lock import fenced
from storage_consumer.downstream.existing_names import PartNames, part_names
from storage_consumer.downstream.identifier_case import closest, existing, is_far
from storage_consumer.downstream.lock_holders import blockers
from storage_consumer.downstream.mysql_errors import described, is_conflict, is_denied, number_of, translated
from storage_consumer.downstream.rights import all_rights, remedy, state_remedy
from storage_consumer.downstream.session import kind_of
from storage_consumer.downstream.unique_keys import unique_keys
from storage_consumer.errors import ConfigError, DdlFailed, TargetBusy, TargetUnavailable
from storage_consumer.job.target_table import TargetColumn, TargetTable
from storage_consumer.model import TableName, physical_ms
from storage_consumer.plan.journal import DdlAnswer
from storage_consumer.ports import ServerInfo
from storage_consumer.sql.tokens import Token, qualified, quote

_COUNTER = re.compile(
    rb"(?m)^(\) ENGINE=\w+[^'\n]*?) (?:AUTO_INCREMENT=\d+|/\*T!\[auto_rand_base\] AUTO_RANDOM_BASE=\d+ \*/)"
)
"""Counters of a table. Rows and restarts of the server change them too, so they say nothing about a statement."""
_UNKNOWN_TABLE = frozenset((1146, 1049, 1051, 1300))
_UNKNOWN_DATABASE = 1049
_ENDED_JOBS = ("synced", "cancelled", "rollback done", "done")
"""States of a TiDB DDL job that no longer changes anything."""
_CHUNK = 500
_IDLE = 60.0
"""Seconds."""
_WARNINGS = 5
"""Most warnings kept of those that one statement raises."""


class TargetDatabase:
    """One connection of the driver to the target, opened at first use and again after a loss."""

    def __init__(self, downstream: Downstream, password: str, lane: int = 0) -> None:
        """Take the settings; nothing connects yet. `lane` is the number of the DDL worker whose lock it takes."""
        self._downstream = downstream
        self._password = password
        self._lane = f":{lane}" if lane else ""
        self._connection: Connection | None = None
        self._fenced: Connection | None = None
        """The connection that took the lock for DDL, for the next statement."""
        self._used = 0.0
        self._no_pad: frozenset[str] | None = None
        self._knows_zone: bool | None = None
        self._flavor = ""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None and self._connection.open:
            self._connection.close()
        self._connection = None

    def _for_ddl(self) -> Connection:
        """Return the connection for one statement; never another one than that which took the lock for it."""
        fenced, self._fenced = self._fenced, None
        connection = self._live()
        if fenced is not None and connection is not fenced:
            message = "the connection that held the lock for DDL broke before its statement"
            raise TargetUnavailable(message)
        return connection

    def _live(self) -> Connection:
        """Return the connection. Replace one that was idle for long if the server has ended it."""
        if time.monotonic() - self._used > _IDLE and self._connection is not None:
            try:
                self._connection.ping(reconnect=False)
            except (pymysql.err.MySQLError, OSError, EOFError):
                self.close()
        if self._connection is None or not self._connection.open:
            self._connection = connect(self._downstream, self._password, ddl=True)
        self._used = time.monotonic()
        return self._connection

    def _rows(self, sql: str, arguments: Collection[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        try:
            with translating("reading the target's structure"), self._live().cursor() as cursor:
                cursor.execute(sql, tuple(arguments))
                return list(cursor.fetchall())
        except Exception as fault:
            self.close()
            if fault.__cause__ is not None and is_denied(fault.__cause__):  # of tables it reads only the state's own
                message = state_remedy(fault.__cause__, self._rows, self._downstream.state_schema)
                raise ConfigError(message) from fault
            raise

    def check(self) -> None:
        """Connect once. Raise `ConfigError` for a refused login, `TargetUnavailable` if nobody answers."""
        self._live()
        self.close()

    def server_info(self) -> ServerInfo:
        """Return what the server is. Raise `ConfigError` or `TargetUnavailable`."""
        version, packet, local = self._rows("SELECT VERSION(), @@max_allowed_packet, @@local_infile")[0]
        text = str(version)
        return ServerInfo(
            server_type=kind_of(text), version=text, max_packet=int(packet), load_data=str(local).upper() in ("1", "ON")
        )

    # structure

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """Return folded name → the target's own spelling, for tables and databases (empty table name) that exist."""
        return existing(self._rows, wanted)

    def noted(self, names: Iterable[TableName]) -> dict[TableName, list[str]]:
        """Return the keys that were noted of these tables."""
        return key_drift.noted(self._rows, self._downstream.state_schema, names)

    def forget(self, names: Iterable[TableName]) -> None:
        """Delete the notes of these tables' keys; see `key_drift`."""
        key_drift.forget(self._rows, self._downstream.state_schema, names)

    def remember(self, names: Iterable[TableName]) -> None:
        """Note the keys that these tables have."""
        tables = self._described([name for name in names if name.table])
        seen = [table for table in tables.values() if not table.unseen]
        key_drift.remember(self._rows, self._downstream.state_schema, seen)

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the tables that exist, by folded name, even if the target spells a name in another case."""
        return key_drift.compared(self._rows, self._downstream.state_schema, self._described(wanted))

    def _described(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the same as `describe`, without comparing noted keys."""
        names = sorted(set(wanted))
        found = self._describe_all([name for name in names if not (is_far(name.schema) or is_far(name.table))])
        if missing := [name for name in names if name.folded() not in found]:
            spelled = self.existing(missing)
            found |= self._describe_all(sorted(spelled.values()))
            unseen = {folded: name for folded, name in spelled.items() if name.table and folded not in found}
            found |= {folded: self._unseen(name) for folded, name in unseen.items()}
        return found

    def _unseen(self, name: TableName) -> TargetTable:
        """Return a table whose columns the server does not show because a privilege is missing."""
        return TargetTable(name=name, columns=(), unique_keys=(), unseen=all_rights(self._rows, name.schema))

    def _describe_all(self, names: list[TableName]) -> dict[TableName, TargetTable]:
        """Return the same as `describe`, for names in the target's spelling."""
        found: dict[TableName, TargetTable] = {}
        for first in range(0, len(names), _CHUNK):
            found |= self._describe(names[first : first + _CHUNK])
        return found

    def _describe(self, wanted: list[TableName]) -> dict[TableName, TargetTable]:
        """Return the same as `describe`, for as many tables as fit one query."""
        pairs = ", ".join(["(%s, %s)"] * len(wanted))
        names = [part for name in wanted for part in (name.schema, name.table)]
        where = f"(table_schema, table_name) IN ({pairs})"
        columns: dict[tuple[str, str], list[TargetColumn]] = defaultdict(list)
        for schema, table, scale, fraction, length, column_type, *facts in self._rows(
            "SELECT table_schema, table_name, numeric_scale, datetime_precision, character_maximum_length, "
            "column_type, column_name, data_type, is_nullable, extra, collation_name, "
            f"generation_expression <> '' FROM information_schema.columns WHERE {where} "
            "ORDER BY table_schema, table_name, ordinal_position",
            names,
        ):
            sizes = {"digits": fraction if scale is None else scale, "length": length}
            columns[schema, table].append(
                replace(target_column(facts, self._no_pad_collations()), column_type=text_of(column_type), **sizes)
            )
        keys = unique_keys(self._rows, where, names)
        views = self._rows(f"SELECT table_schema, table_name FROM information_schema.views WHERE {where}", names)
        return {
            TableName(schema=schema, table=table).folded(): TargetTable(
                name=TableName(schema=schema, table=table),
                columns=tuple(found),
                unique_keys=tuple(keys.get((schema, table), ())),
                is_view=(schema, table) in views,
            )
            for (schema, table), found in columns.items()
        }

    def _no_pad_collations(self) -> frozenset[str]:
        """Return the collations for which trailing spaces count."""
        if self._no_pad is None:
            names = self._rows("SELECT collation_name FROM information_schema.collations")
            no_pad = {str(name) for (name,) in names if "nopad" in str(name) or "_0900_" in str(name)}
            self._no_pad = frozenset(no_pad)
        return self._no_pad

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Return a hash of the structure of tables (empty table name: of a database), or of their absence."""
        digest = hashlib.sha256()
        for name in sorted(set(names)):
            structure = self._structure(name)
            if not structure and (real := self.existing([name]).get(name.folded(), name)) != name:
                structure = self._structure(real)
            digest.update(f"{name}=".encode() + (structure or b"absent") + b"\n")
        return digest.hexdigest()

    def _structure(self, name: TableName) -> bytes:
        """Return what SHOW CREATE says, or nothing. It holds defaults of binary columns as they are, so it is no text."""
        sql = f"SHOW CREATE TABLE {qualified(name)}" if name.table else f"SHOW CREATE DATABASE {qualified(name)[:-3]}"
        try:
            with self._live().undecoded() as connection, connection.cursor() as cursor:
                cursor.execute(sql)
                row = cursor.fetchone()
        except (pymysql.err.MySQLError, OSError, EOFError) as fault:
            if number_of(fault) in _UNKNOWN_TABLE:
                return b""
            self.close()
            if is_denied(fault):
                message = f"reading the structure of {name}: {described(fault)}"
                raise DdlFailed(f"{message}. {remedy(fault, self._rows, [name.schema])}") from fault
            raise translated(fault, f"reading the structure of {name}") from fault
        return _COUNTER.sub(rb"\1", row[1]) if row else b""

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames:
        """Return the names of a table's parts, as far as they matter for a statement; empty if there is no such table."""
        return part_names(self._rows, self.existing([name]).get(name.folded(), name), found)

    # DDL

    def database_collation(self, schema: str) -> str | None:
        """Return the default collation of a database, or None if it does not exist."""
        found = self._databases()
        return found.get(closest(schema, found) or schema)

    def _databases(self) -> dict[str, str]:
        """Return name → default collation of every database."""
        sql = "SELECT schema_name, default_collation_name FROM information_schema.schemata"
        return {text_of(name): text_of(collation) for name, collation in self._rows(sql)}

    def is_running(self, statement: str) -> bool:
        """Return whether the server is executing the statement right now, for a connection or, on TiDB, after that is gone."""
        rows = self._rows(
            "SELECT info FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND info IS NOT NULL"
        )
        if self._is_tidb():
            states = ", ".join(["%s"] * len(_ENDED_JOBS))
            rows += self._rows(
                f"SELECT query FROM information_schema.ddl_jobs WHERE state NOT IN ({states})", _ENDED_JOBS
            )
        return any(text_of(text).strip() == statement.strip() for (text,) in rows)

    def _is_tidb(self) -> bool:
        self._flavor = self._flavor or self.server_info().server_type
        return self._flavor == "tidb"

    def fence_ddl(self) -> bool:
        """Make this connection the only one of this state schema and lane that may begin a DDL; see `ddl_lock.fenced`."""
        schema = hashlib.sha256(self._downstream.state_schema.encode()).hexdigest()[:32]
        taken = fenced(self._rows, f"storage_consumer:{schema}{self._lane}", tidb=self._is_tidb())
        self._fenced = self._connection if taken else None
        return taken

    def _enter(self, connection: Connection, schema: str) -> None:
        """Make `schema` the default database, in whatever case the target spells it."""
        try:
            connection.query(f"USE {quote(schema)}")
        except pymysql.err.MySQLError as fault:
            if number_of(fault) != _UNKNOWN_DATABASE:
                raise
            connection.query(f"USE {quote(closest(schema, self._databases()) or schema)}")

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:
        """Return who holds locks that a statement on these tables waits for, as far as the server tells."""
        return blockers(self._rows, names)

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
        zone = self.statement_zone(version)
        connection = self._for_ddl()
        try:
            if schema:
                self._enter(connection, schema)
            connection.query(f"SET SESSION time_zone = '{escape(zone)}'")
            connection.query(f"SET SESSION timestamp = {physical_ms(version) / 1000:.3f}")
            affected = connection.query(statement)
            warnings = self._warnings(connection)
        except (pymysql.err.MySQLError, OSError, EOFError) as fault:
            if is_conflict(fault):
                message = f"running a DDL: {described(fault)}"
                raise TargetBusy(message) from fault
            if isinstance(error := translated(fault, "running a DDL"), TargetUnavailable):
                raise error from fault
            if is_denied(fault):
                raise DdlFailed(described(fault), remedy=remedy(fault, self._rows, [schema], statement)) from fault
            if number_of(fault) in ignorable:
                return DdlAnswer(ignored=described(fault))
            raise DdlFailed(described(fault)) from fault
        finally:
            self.close()
        return DdlAnswer(affected=affected, warnings=warnings)

    def _warnings(self, connection: Connection) -> tuple[str, ...]:
        """Return the first warnings about the last statement."""
        if not connection.warnings:
            return ()
        with suppress(pymysql.err.MySQLError), connection.cursor() as cursor:  # it ran, whatever comes of this
            cursor.execute("SHOW WARNINGS")
            found = cursor.fetchmany(_WARNINGS)
            return tuple(f"{text_of(level).lower()} {number}: {text_of(text)}" for level, number, text in found)
        return ()

    def statement_zone(self, version: int) -> str:
        """Return the session's time zone for a statement of this version: the feed's, by its name if the server knows that.

        Otherwise it is the offset in force at that version, which differs from the one half a year later in a zone with daylight saving
        time. The server is asked only once, so that texts are written for the zone that they run in.
        """
        zone = self._downstream.time_zone
        if self._knows_zone is None:
            sql = "SELECT CONVERT_TZ('2000-01-01 00:00:00', '+00:00', %s) IS NOT NULL"
            self._knows_zone = bool(converted_zone(zone)) and bool(self._rows(sql, [zone])[0][0])
        return zone if self._knows_zone else offset_at(zone, physical_ms(version))
