"""TargetDatabase: the driver's view of the target: what server it is, what its tables look like, and DDL."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import pymysql.err

from storage_consumer.config.settings import Downstream
from storage_consumer.decoding.zones import offset_at
from storage_consumer.errors import DdlFailed, TableError, TargetBusy, TargetUnavailable, TransientError
from storage_consumer.model import TableName, physical_ms
from storage_consumer.ports import ServerFacts
from storage_consumer.target.connection import Connection, connect, translating
from storage_consumer.target.faults import described, is_conflict, is_connection_loss, number_of, translated
from storage_consumer.target.spelling import existing
from storage_consumer.target.statements import qualified
from storage_consumer.work import TargetColumn, TargetTable, UniqueKey

_COUNTER = re.compile(r"(?m)^(\) ENGINE=\w+) AUTO_INCREMENT=\d+")
"""Rows and restarts of the server change it too, so it says nothing of a statement."""
_UNKNOWN_TABLE = frozenset((1146, 1049, 1051))
_CHUNK = 500
_LOCK_TRIES = 10


class TargetDatabase:
    """One connection of the driver to the target, opened at first use and again after a loss."""

    def __init__(self, downstream: Downstream, password: str) -> None:
        """Nothing is connected yet."""
        self._downstream = downstream
        self._password = password
        self._connection: Connection | None = None
        self._no_pad: frozenset[str] | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None and self._connection.open:
            self._connection.close()
        self._connection = None

    def _live(self) -> Connection:
        if self._connection is None or not self._connection.open:
            self._connection = connect(self._downstream, self._password, ddl=True)
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

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """The tables that exist, by folded name."""
        found: dict[TableName, TargetTable] = {}
        pending = sorted(set(wanted))
        for first in range(0, len(pending), _CHUNK):
            found |= self._describe(pending[first : first + _CHUNK])
        return found

    def _describe(self, wanted: list[TableName]) -> dict[TableName, TargetTable]:
        """As `describe`, for as many tables as fit one query."""
        pairs = ", ".join(["(%s, %s)"] * len(wanted))
        names = [part for name in wanted for part in (name.schema, name.table)]
        where = f"(table_schema, table_name) IN ({pairs})"
        columns: dict[tuple[str, str], list[TargetColumn]] = defaultdict(list)
        for schema, table, *facts in self._rows(
            "SELECT table_schema, table_name, column_name, data_type, is_nullable, extra, collation_name, "
            f"generation_expression FROM information_schema.columns WHERE {where} "
            "ORDER BY table_schema, table_name, ordinal_position",
            names,
        ):
            columns[schema, table].append(self._column(*facts))
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
        elif (
            "STORED" in flags
            or "PERSISTENT" in flags
            or (expression and "DEFAULT_GENERATED" not in flags and _text(expression))
        ):
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
            digest.update(f"{name}={self._structure(name)}\n".encode())
        return digest.hexdigest()

    def _structure(self, name: TableName) -> str:
        """What SHOW CREATE says, ``absent`` where there is none."""
        sql = f"SHOW CREATE TABLE {qualified(name)}" if name.table else f"SHOW CREATE DATABASE {qualified(name)[:-3]}"
        try:
            with self._live().cursor() as cursor:
                cursor.execute(sql)
                row = cursor.fetchone()
        except (pymysql.err.MySQLError, OSError, EOFError) as fault:
            if number_of(fault) in _UNKNOWN_TABLE:
                return "absent"
            self.close()
            raise translated(fault, f"reading the structure of {name}") from fault
        return _COUNTER.sub(r"\1", _text(row[1])) if row else "absent"

    # DDL

    def database_collation(self, schema: str) -> str | None:
        """Default collation of a database, None if it does not exist."""
        rows = self._rows(
            "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = %s", (schema,)
        )
        return _text(rows[0][0]) if rows else None

    def is_running(self, statement: str) -> bool:
        """Whether some connection of this server is executing the statement right now."""
        rows = self._rows(
            "SELECT info FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND info IS NOT NULL"
        )
        return any(_text(info).strip() == statement.strip() for (info,) in rows)

    def fence_ddl(self) -> None:
        """Make this connection the only one of this state schema that may run a DDL.

        The lock lives as long as the connection. A paused former owner still has one, and could wake with its statement: so
        the connection that holds the lock is ended first. Raises `TargetUnavailable` where that does not succeed.
        """
        name = "storage_consumer:" + hashlib.sha256(self._downstream.state_schema.encode()).hexdigest()[:32]
        for _ in range(_LOCK_TRIES):
            if self._rows("SELECT GET_LOCK(%s, 1)", (name,))[0][0] == 1:
                return
            holder = self._rows("SELECT IS_USED_LOCK(%s)", (name,))[0][0]
            if holder is not None:
                with suppress(TableError, TransientError):  # it may be gone by now
                    self._rows(f"KILL {int(holder)}")
        message = "another connection holds the lock for DDL on the target and could not be ended"
        raise TargetUnavailable(message)

    def execute_ddl(self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()) -> str:
        """Run one statement with `schema` as default database (empty: none) and the clock at the time of `version`.

        Returns an empty text, or the server's error if its number is in `ignorable`. Raises `DdlFailed` with the server's
        answer, and `TargetUnavailable` when nobody knows whether it took effect.
        """
        connection = self._live()
        moment = physical_ms(version)
        zone = offset_at(self._downstream.time_zone, moment)
        try:
            if schema:
                connection.select_db(schema)
            connection.query(f"SET SESSION time_zone = '{zone}', timestamp = {moment / 1000:.3f}")
            connection.query(statement)
            connection.query("SET SESSION timestamp = DEFAULT")
            connection.select_db(self._downstream.state_schema)  # a later statement may drop the database
        except (pymysql.err.MySQLError, OSError, EOFError) as fault:
            self.close()
            if is_conflict(fault):
                message = f"running a DDL: {described(fault)}"
                raise TargetBusy(message) from fault
            if is_connection_loss(fault):
                raise translated(fault, "running a DDL") from fault
            if number_of(fault) in ignorable:
                return described(fault)
            raise DdlFailed(described(fault)) from fault
        return ""


def _text(value: Any) -> str:
    """A value of information_schema as text."""
    return value.decode() if isinstance(value, bytes) else str(value)
