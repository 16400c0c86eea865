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
from storage_consumer.decoding.zones import converted_zone, offset_at
from storage_consumer.errors import DdlFailed, TargetBusy, TargetUnavailable
from storage_consumer.model import TableName, physical_ms
from storage_consumer.ports import ServerFacts
from storage_consumer.sql_text import Token
from storage_consumer.target import standing
from storage_consumer.target.connection import Connection, connect, escape, translating
from storage_consumer.target.faults import described, is_conflict, number_of, translated
from storage_consumer.target.fence import fenced
from storage_consumer.target.journal import DdlAnswer
from storage_consumer.target.locks import blockers
from storage_consumer.target.part_names import PartNames, part_names
from storage_consumer.target.spelling import closest, existing, is_far
from storage_consumer.target.statements import qualified
from storage_consumer.work import TargetColumn, TargetTable, UniqueKey

_COUNTER = re.compile(
    rb"(?m)^(\) ENGINE=\w+[^'\n]*?) (?:AUTO_INCREMENT=\d+|/\*T!\[auto_rand_base\] AUTO_RANDOM_BASE=\d+ \*/)"
)
"""Rows and restarts of the server change it too, so it says nothing of a statement."""
_UNKNOWN_TABLE = frozenset((1146, 1049, 1051, 1300))
_UNKNOWN_DATABASE = 1049
_ENDED_JOBS = ("synced", "cancelled", "rollback done", "done")
"""States of a TiDB DDL job that no longer changes anything."""
_NO_DATABASE = "information_schema"
"""The default database between two statements: the next one may drop the last one's, and the state's would mark it for `eviction`."""
_CHUNK = 500
_IDLE = 60.0
"""Seconds."""
_WARNINGS = 5
"""So many are kept of those that one statement raises."""


class TargetDatabase:
    """One connection of the driver to the target, opened at first use and again after a loss."""

    def __init__(self, downstream: Downstream, password: str, lane: int = 0) -> None:
        """Nothing is connected yet. `lane`: whose lock it takes to run DDL; see `storage_consumer.lanes`."""
        self._downstream = downstream
        self._password = password
        self._lane = f":{lane}" if lane else ""
        self._connection: Connection | None = None
        self._used = 0.0
        self._no_pad: frozenset[str] | None = None
        self._knows_zone: bool | None = None
        self._flavor = ""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None and self._connection.open:
            self._connection.close()
        self._connection = None

    def _live(self) -> Connection:
        """The connection; one that was idle for long may have been ended by the server, and is made anew then."""
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
        """All rows of a query."""
        try:
            with translating("reading the target's structure"), self._live().cursor() as cursor:
                cursor.execute(sql, tuple(arguments))
                return list(cursor.fetchall())
        except Exception:
            self.close()
            raise

    def check(self) -> None:
        """Connect once. Raises `ConfigError` for a refused login, `TargetUnavailable` when nobody answers."""
        self._live()
        self.close()

    def facts(self) -> ServerFacts:
        """What the server is. Raises `ConfigError` or `TargetUnavailable`."""
        version, packet, local = self._rows("SELECT VERSION(), @@max_allowed_packet, @@local_infile")[0]
        text = str(version)
        flavor = "tidb" if "tidb" in text.lower() else "mariadb" if "mariadb" in text.lower() else "mysql"
        return ServerFacts(
            flavor=flavor, version=text, max_packet=int(packet), load_data=str(local).upper() in ("1", "ON")
        )

    # structure

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """Folded name → the target's own spelling, of the tables and databases (empty table name) that exist."""
        return existing(self._rows, wanted)

    def noted(self, names: Iterable[TableName]) -> dict[TableName, list[str]]:
        """Which keys were noted of these tables."""
        return standing.noted(self._rows, self._downstream.state_schema, names)

    def forget(self, names: Iterable[TableName]) -> None:
        """Take the notes of these tables' keys away; see `standing`."""
        standing.forget(self._rows, self._downstream.state_schema, names)

    def remember(self, names: Iterable[TableName]) -> None:
        """Note which keys these tables have."""
        tables = self._described([name for name in names if name.table])
        standing.remember(self._rows, self._downstream.state_schema, tables.values())

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """The tables that exist, by folded name, also where the target spells a name in another case."""
        return standing.compared(self._rows, self._downstream.state_schema, self._described(wanted))

    def _described(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """As `describe`, without a look at what was noted."""
        names = sorted(set(wanted))
        found = self._describe_all([name for name in names if not (is_far(name.schema) or is_far(name.table))])
        if missing := [name for name in names if name.folded() not in found]:
            found |= self._describe_all(sorted(self.existing(missing).values()))
        return found

    def _describe_all(self, names: list[TableName]) -> dict[TableName, TargetTable]:
        """As `describe`, with names as the target spells them."""
        found: dict[TableName, TargetTable] = {}
        for first in range(0, len(names), _CHUNK):
            found |= self._describe(names[first : first + _CHUNK])
        return found

    def _describe(self, wanted: list[TableName]) -> dict[TableName, TargetTable]:
        """As `describe`, for as many tables as fit one query."""
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
            columns[schema, table].append(replace(self._column(*facts), column_type=_text(column_type), **sizes))
        keys = self._unique_keys(where, names)
        return {
            TableName(schema=schema, table=table).folded(): TargetTable(
                name=TableName(schema=schema, table=table),
                columns=tuple(found),
                unique_keys=tuple(keys.get((schema, table), ())),
            )
            for (schema, table), found in columns.items()
        }

    def _column(
        self, name: str, data_type: Any, nullable: str, extra: str, collation: str | None, expression: Any
    ) -> TargetColumn:
        """One row of information_schema.columns. MySQL's DEFAULT_GENERATED marks a default expression, no generated column."""
        flags = (extra or "").upper()
        generated = ""
        if "VIRTUAL" in flags:
            generated = "VIRTUAL"
        elif "STORED" in flags or "PERSISTENT" in flags or (expression and "DEFAULT_GENERATED" not in flags):
            generated = "STORED"
        collation = collation or ""
        return TargetColumn(
            name=name,
            data_type=_text(data_type).lower(),
            nullable=nullable == "YES",
            generated=generated,
            binary_collation=not collation or collation == "binary" or collation.endswith("_bin"),
            pads=bool(collation) and collation != "binary" and collation not in self._no_pad_collations(),
            collation=collation,
        )

    def _no_pad_collations(self) -> frozenset[str]:
        """Collations for which trailing spaces count."""
        if self._no_pad is None:
            names = self._rows("SELECT collation_name FROM information_schema.collations")
            no_pad = {str(name) for (name,) in names if "nopad" in str(name) or "_0900_" in str(name)}
            self._no_pad = frozenset(no_pad)
        return self._no_pad

    def _unique_keys(self, where: str, names: list[str]) -> dict[tuple[str, str], list[UniqueKey]]:
        """Unique indexes per table, the primary key first, those over expressions left out."""
        parts: dict[tuple[str, str], dict[str, list[tuple[str | None, int | None]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for schema, table, index, column, sub_part in self._rows(
            "SELECT table_schema, table_name, index_name, column_name, sub_part FROM information_schema.statistics "
            f"WHERE non_unique = 0 AND {where} "
            "ORDER BY table_schema, table_name, index_name <> 'PRIMARY', index_name, seq_in_index",
            names,
        ):
            parts[schema, table][index].append((column, None if sub_part is None else int(sub_part)))
        keys: dict[tuple[str, str], list[UniqueKey]] = {}
        for name, indexes in parts.items():
            keys[name] = [
                UniqueKey(name=index, columns=tuple(str(c) for c, _ in columns), prefixes=tuple(p for _, p in columns))
                for index, columns in indexes.items()
                if all(column is not None for column, _ in columns)
            ]
        return keys

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """A hash of the structure of tables (empty table name: of a database), or of their absence."""
        digest = hashlib.sha256()
        for name in sorted(set(names)):
            structure = self._structure(name)
            if not structure and (real := self.existing([name]).get(name.folded(), name)) != name:
                structure = self._structure(real)
            digest.update(f"{name}=".encode() + (structure or b"absent") + b"\n")
        return digest.hexdigest()

    def _structure(self, name: TableName) -> bytes:
        """What SHOW CREATE says, nothing where there is none. Defaults of binary columns are in it as they are: no text."""
        sql = f"SHOW CREATE TABLE {qualified(name)}" if name.table else f"SHOW CREATE DATABASE {qualified(name)[:-3]}"
        try:
            with self._live().undecoded() as connection, connection.cursor() as cursor:
                cursor.execute(sql)
                row = cursor.fetchone()
        except (pymysql.err.MySQLError, OSError, EOFError) as fault:
            if number_of(fault) in _UNKNOWN_TABLE:
                return b""
            self.close()
            raise translated(fault, f"reading the structure of {name}") from fault
        return _COUNTER.sub(rb"\1", row[1]) if row else b""

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames:
        """What a table's parts are called, as far as it matters for a statement; nothing if there is no such table."""
        return part_names(self._rows, self.existing([name]).get(name.folded(), name), found)

    # DDL

    def database_collation(self, schema: str) -> str | None:
        """Default collation of a database, None if it does not exist."""
        found = self._databases()
        return found.get(closest(schema, found) or schema)

    def _databases(self) -> dict[str, str]:
        """Name → default collation of every database."""
        sql = "SELECT schema_name, default_collation_name FROM information_schema.schemata"
        return {_text(name): _text(collation) for name, collation in self._rows(sql)}

    def is_running(self, statement: str) -> bool:
        """Whether the server is executing the statement right now, for a connection or, on TiDB, after it is gone."""
        rows = self._rows(
            "SELECT info FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND info IS NOT NULL"
        )
        if self._is_tidb():
            states = ", ".join(["%s"] * len(_ENDED_JOBS))
            rows += self._rows(
                f"SELECT query FROM information_schema.ddl_jobs WHERE state NOT IN ({states})", _ENDED_JOBS
            )
        return any(_text(text).strip() == statement.strip() for (text,) in rows)

    def _is_tidb(self) -> bool:
        self._flavor = self._flavor or self.facts().flavor
        return self._flavor == "tidb"

    def fence_ddl(self) -> bool:
        """Make this connection the only one of this state schema and lane that may begin a DDL; see `fence.fenced`."""
        schema = hashlib.sha256(self._downstream.state_schema.encode()).hexdigest()[:32]
        return fenced(self._rows, f"storage_consumer:{schema}{self._lane}", tidb=self._is_tidb())

    def _enter(self, connection: Connection, schema: str) -> None:
        """Make `schema` the default database, in whatever case the target spells it."""
        try:
            connection.select_db(schema)
        except pymysql.err.MySQLError as fault:
            if number_of(fault) != _UNKNOWN_DATABASE:
                raise
            connection.select_db(closest(schema, self._databases()) or schema)

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:
        """Who holds locks that a statement on these tables waits for, as far as the server tells."""
        return blockers(self._rows, names)

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Run one statement with `schema` as default database (empty: none) and the clock at the time of `version`.

        Returns the server's answer, which may be an error whose number is in `ignorable`. Raises `DdlFailed` with the server's
        answer, and `TargetUnavailable` when nobody knows whether it took effect, or the server takes no writes for now.
        """
        zone = self.statement_zone(version)
        connection = self._live()
        try:
            if schema:
                self._enter(connection, schema)
            connection.query(f"SET SESSION time_zone = '{escape(zone)}'")
            connection.query(f"SET SESSION timestamp = {physical_ms(version) / 1000:.3f}")
            affected = connection.query(statement)
            warnings = self._warnings(connection)
            connection.query("SET SESSION timestamp = DEFAULT")
            connection.select_db(_NO_DATABASE)
        except (pymysql.err.MySQLError, OSError, EOFError) as fault:
            self.close()
            if is_conflict(fault):
                message = f"running a DDL: {described(fault)}"
                raise TargetBusy(message) from fault
            if isinstance(error := translated(fault, "running a DDL"), TargetUnavailable):
                raise error from fault
            if number_of(fault) in ignorable:
                return DdlAnswer(ignored=described(fault))
            raise DdlFailed(described(fault)) from fault
        return DdlAnswer(affected=affected, warnings=warnings)

    def _warnings(self, connection: Connection) -> tuple[str, ...]:
        """The first warnings about the last statement."""
        if not connection.warnings:
            return ()
        with suppress(pymysql.err.MySQLError), connection.cursor() as cursor:  # it ran, whatever comes of this
            cursor.execute("SHOW WARNINGS")
            found = cursor.fetchmany(_WARNINGS)
            return tuple(f"{_text(level).lower()} {number}: {_text(text)}" for level, number, text in found)
        return ()

    def statement_zone(self, version: int) -> str:
        """The session's time zone for a statement of this version: the feed's, by its name if the server knows that.

        Else it is the offset that was in force at that moment, which is another one than that of a moment from the other half
        of a year with daylight saving time. Asked of the server once, so that texts are written for the zone that they run in.
        """
        zone = self._downstream.time_zone
        if self._knows_zone is None:
            sql = "SELECT CONVERT_TZ('2000-01-01 00:00:00', '+00:00', %s) IS NOT NULL"
            self._knows_zone = bool(converted_zone(zone)) and bool(self._rows(sql, [zone])[0][0])
        return zone if self._knows_zone else offset_at(zone, physical_ms(version))


def _text(value: Any) -> str:
    """A value of information_schema as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
