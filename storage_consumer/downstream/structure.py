"""What the target's tables look like: databases, tables, columns, keys and views, read from information_schema and SHOW CREATE."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pymysql.err

from storage_consumer.downstream.driver_session import DriverSession
from storage_consumer.downstream.existing_names import ForeignKey, PartNames, foreign_keys, index_columns, part_names
from storage_consumer.downstream.identifier_case import closest, existing, is_far
from storage_consumer.downstream.key_notes import KeyNotes
from storage_consumer.downstream.lock_holders import blockers
from storage_consumer.downstream.mysql_errors import described, is_denied, number_of, translated
from storage_consumer.downstream.query import Query, text_of
from storage_consumer.downstream.rights import all_rights, remedy
from storage_consumer.errors import DdlFailed
from storage_consumer.job.target_table import TargetColumn, TargetTable, UniqueKey
from storage_consumer.model import TableName, folded_name
from storage_consumer.sql.tokens import Token, qualified, quote

_COUNTER = re.compile(
    rb"(?m)^(\) ENGINE=\w+[^'\n]*?) (?:AUTO_INCREMENT=\d+|/\*T!\[auto_rand_base\] AUTO_RANDOM_BASE=\d+ \*/)"
)
"""Counters of a table. Rows and restarts of the server change them too, so they say nothing about a statement."""
_FOREIGN_KEY = re.compile(rb",?\n  CONSTRAINT `(?:[^`]|``)*` FOREIGN KEY [^\n]*")
"""A foreign key, which any statement may drop that it holds up, of another table as well. One that runs twice is left out."""
_UNKNOWN_TABLE = frozenset((1146, 1049, 1051, 1300, 1059, 1103))
"""The last three: no table can have the name."""
_CHUNK = 500


class TargetStructure:
    """Reads the structure of tables and databases; names are found even if the target spells them in another case."""

    def __init__(self, session: DriverSession, key_notes: KeyNotes) -> None:
        """Read over `session`, and compare the keys of tables with `key_notes`."""
        self._session = session
        self._key_notes = key_notes
        self._shows_expressions: bool | None = None

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """Return folded name → the target's own spelling, for tables and databases (empty table name) that exist."""
        return existing(self._session.rows, wanted)

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the tables that exist, by folded name, each with what somebody else added to its keys."""
        return self._key_notes.compared(self.read(wanted))

    def read(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the same as `describe`, without comparing noted keys. Names of databases (empty table name) are passed over."""
        names = sorted({name for name in wanted if name.table})
        # Exact names first: the server finds them immediately, while a search without case scans the database.
        found = self._read_all([name for name in names if not (is_far(name.schema) or is_far(name.table))])
        if missing := [name for name in names if name.folded() not in found]:
            # In another case, as servers that compare names by case may have it.
            spelled = self.existing(missing)
            found |= self._read_all(sorted(spelled.values()))
            # It exists, but its columns do not show, which is another error than a missing table.
            unseen = {folded: name for folded, name in spelled.items() if folded not in found}
            found |= {folded: self._unseen(name) for folded, name in unseen.items()}
        return found

    def _unseen(self, name: TableName) -> TargetTable:
        """Return a table whose columns the server does not show: a privilege is missing, or it is a view and what it reads is gone."""
        views = "SELECT 1 FROM information_schema.views WHERE table_schema = %s AND table_name = %s"
        is_view = bool(self._session.rows(views, [name.schema, name.table]))
        unseen = "" if is_view else all_rights(self._session.rows, name.schema)
        return TargetTable(name=name, columns=(), unique_keys=(), is_view=is_view, unseen=unseen)

    def _read_all(self, names: list[TableName]) -> dict[TableName, TargetTable]:
        """Return the tables of these names, which are in the target's spelling."""
        found: dict[TableName, TargetTable] = {}
        for first in range(0, len(names), _CHUNK):
            found |= self._read_some(names[first : first + _CHUNK])
        return found

    def _read_some(self, wanted: list[TableName]) -> dict[TableName, TargetTable]:
        """Return the same as `_read_all`, for as many tables as fit one query."""
        query = self._session.rows
        pairs = ", ".join(["(%s, %s)"] * len(wanted))
        names = [part for name in wanted for part in (name.schema, name.table)]
        where = f"(table_schema, table_name) IN ({pairs})"
        columns: dict[tuple[str, str], list[TargetColumn]] = defaultdict(list)
        for schema, table, scale, fraction, length, column_type, *facts in query(
            "SELECT table_schema, table_name, numeric_scale, datetime_precision, character_maximum_length, "
            "column_type, column_name, data_type, is_nullable, extra, collation_name, "
            f"generation_expression <> '' FROM information_schema.columns WHERE {where} "
            "ORDER BY table_schema, table_name, ordinal_position",
            names,
        ):
            sizes = {"digits": fraction if scale is None else scale, "length": length}
            columns[schema, table].append(replace(_column(facts), column_type=text_of(column_type), **sizes))
        keys, counts = _indexes(query, where, names, shows_expressions=self._has_expressions())
        views = query(f"SELECT table_schema, table_name FROM information_schema.views WHERE {where}", names)
        return {
            TableName(schema=schema, table=table).folded(): TargetTable(
                name=TableName(schema=schema, table=table),
                columns=tuple(found),
                unique_keys=tuple(key for key in keys.get((schema, table), ()) if isinstance(key, UniqueKey)),
                expression_keys=tuple(key for key in keys.get((schema, table), ()) if isinstance(key, str)),
                indexes=counts[schema, table],
                is_view=(schema, table) in views,
            )
            for (schema, table), found in columns.items()
        }

    def _has_expressions(self) -> bool:
        """Return whether the server knows indexes over expressions: MariaDB and MySQL 5.7 do not."""
        if self._shows_expressions is None:
            found = self._session.rows(
                "SELECT 1 FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND column_name = %s",
                ("information_schema", "STATISTICS", "EXPRESSION"),
            )
            self._shows_expressions = bool(found)
        return self._shows_expressions

    def has_rows(self, name: TableName) -> bool:
        """Return whether a table, by the name that the target gives it, has a row."""
        return bool(self._session.rows(f"SELECT 1 FROM {qualified(name).replace('%', '%%')} LIMIT %s", (1,)))

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Return a hash of the structure of tables (empty table name: of a database), or of their absence."""
        digest = hashlib.sha256()
        for name in sorted(set(names)):
            # Exact names first: other spellings are searched for only where there is nothing under this one.
            structure = self._definition(name)
            if not structure and (real := self.existing([name]).get(name.folded(), name)) != name:
                structure = self._definition(real)
            digest.update(f"{name}=".encode() + (structure or b"absent") + b"\n")
        return digest.hexdigest()

    def _definition(self, name: TableName) -> bytes:
        """Return what SHOW CREATE says, or nothing. It holds defaults of binary columns as they are, so it is no text."""
        # For a database `qualified` ends in the empty name of a table, .``, which is cut off.
        sql = f"SHOW CREATE TABLE {qualified(name)}" if name.table else f"SHOW CREATE DATABASE {qualified(name)[:-3]}"
        try:
            with self._session.live().undecoded() as connection, connection.cursor() as cursor:
                cursor.execute(sql)
                row = cursor.fetchone()
        except (pymysql.err.MySQLError, OSError, EOFError) as fault:
            # Its absence is part of the fingerprint: that is how a DROP shows.
            if number_of(fault) in _UNKNOWN_TABLE:
                return b""
            self._session.close()
            if is_denied(fault):
                message = f"reading the structure of {name}: {described(fault)}"
                raise DdlFailed(f"{message}. {remedy(fault, self._session.rows, [name.schema])}") from fault
            raise translated(fault, f"reading the structure of {name}") from fault
        return _FOREIGN_KEY.sub(b"", _COUNTER.sub(rb"\1", row[1])) if row else b""

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames:
        """Return the names of a table's parts, as far as they matter for a statement; empty if there is no such table."""
        return part_names(self._session.rows, self.existing([name]).get(name.folded(), name), found)

    def foreign_keys(self, names: Sequence[TableName]) -> tuple[list[ForeignKey], dict[str, list[str]]]:
        """Return the foreign keys of these tables and those that refer to them; and the first table's indexes with their columns, folded."""
        first = self.existing(names[:1]).get(names[0].folded(), names[0])
        query = self._session.rows
        return foreign_keys(query, {name.folded() for name in names}), index_columns(query, first)

    def database_collation(self, schema: str) -> str | None:
        """Return the default collation of a database, or None if it does not exist."""
        found = default_collations(self._session.rows)
        return found.get(closest(schema, found) or schema)

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:
        """Return who holds locks that a statement on these tables waits for, as far as the server tells."""
        return blockers(self._session.rows, names)


def default_collations(query: Query) -> dict[str, str]:
    """Return name → default collation of every database."""
    sql = "SELECT schema_name, default_collation_name FROM information_schema.schemata"
    return {text_of(name): text_of(collation) for name, collation in query(sql)}


def _column(facts: Sequence[Any]) -> TargetColumn:
    """Return the column with these facts of information_schema.columns: name, type, nullability, extra, collation, expression.

    MySQL's DEFAULT_GENERATED marks a default expression, not a generated column.
    """
    name, data_type, nullable, extra, collation, expression = facts
    flags = (extra or "").upper()
    generated = ""
    if "VIRTUAL" in flags:
        generated = "VIRTUAL"
    elif "STORED" in flags or "PERSISTENT" in flags or (expression and "DEFAULT_GENERATED" not in flags):
        generated = "STORED"
    collation = collation or ""
    return TargetColumn(
        name=name,
        data_type=text_of(data_type).lower(),
        nullable=nullable == "YES",
        generated=generated,
        binary_collation=not collation or collation == "binary" or collation.endswith("_bin"),
        # MariaDB has it in the names; MySQL's collations of Unicode 9 do not pad either.
        pads=bool(collation) and collation != "binary" and "nopad" not in collation and "_0900_" not in collation,
        collation=collation,
    )


def _indexes(
    query: Query, where: str, names: list[str], *, shows_expressions: bool
) -> tuple[dict[tuple[str, str], list[UniqueKey | str]], Counter[tuple[str, str]]]:
    """Return the unique indexes of each table, the primary key first (of one with a part over an expression, what it is over), and how many it has in all."""
    parts: dict[tuple[str, str], dict[str, list[tuple[str, int | None, bool]]]] = defaultdict(lambda: defaultdict(list))
    counts = Counter[tuple[str, str]]()
    # TiDB names the column of such a part NULL, as a text.
    expression = "expression" if shows_expressions else "NULL"
    for schema, table, index, column, sub_part, computed, non_unique, place in query(
        f"SELECT table_schema, table_name, index_name, column_name, sub_part, {expression}, non_unique, seq_in_index "
        f"FROM information_schema.statistics WHERE {where} "
        "ORDER BY table_schema, table_name, index_name <> 'PRIMARY', index_name, seq_in_index",
        names,
    ):
        counts[schema, table] += int(place) == 1
        if not int(non_unique):
            part = text_of(column if computed is None else computed)
            parts[schema, table][index].append(
                (part, None if sub_part is None else int(sub_part), computed is not None)
            )
    return {name: [_unique_key(*each) for each in indexes.items()] for name, indexes in parts.items()}, counts


def _unique_key(index: str, parts: Sequence[tuple[str, int | None, bool]]) -> UniqueKey | str:
    """Return a unique index with these parts, each a column or an expression; where one is an expression, what all are over."""
    if any(computed for *_, computed in parts):
        return ", ".join(f"({part})" if computed else quote(folded_name(part)) for part, _, computed in parts)
    return UniqueKey(name=index, columns=tuple(part for part, *_ in parts), prefixes=tuple(part[1] for part in parts))
