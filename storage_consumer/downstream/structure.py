"""What the target's tables look like: databases, tables, columns, keys and views, read from information_schema and SHOW CREATE."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pymysql.err

from storage_consumer.downstream.ddl_lock import blockers
from storage_consumer.downstream.driver_session import DriverSession
from storage_consumer.downstream.existing_names import (
    ForeignKey,
    PartNames,
    changes_defaults,
    takes_rows_of_partitions,
    to_integers,
)
from storage_consumer.downstream.identifier_case import closest, existing, is_far
from storage_consumer.downstream.key_notes import KeyNotes
from storage_consumer.downstream.mysql_errors import described, is_denied, number_of, translated
from storage_consumer.downstream.query import Query, text_of
from storage_consumer.downstream.rights import all_rights, remedy
from storage_consumer.errors import DdlFailed
from storage_consumer.job.target_table import TargetColumn, TargetTable, UniqueKey
from storage_consumer.model import TableName, folded_name
from storage_consumer.sql.tokens import Token, has_words, qualified, quote

_COUNTER = re.compile(
    rb"(?m)^(\) ENGINE=\w+[^'\n]*?) (?:AUTO_INCREMENT=\d+|/\*T!\[auto_rand_base\] AUTO_RANDOM_BASE=\d+ \*/)"
)
"""Counters of a table. Rows and restarts of the server change them too, so they say nothing about a statement."""
_FOREIGN_KEY = re.compile(rb",?\n  CONSTRAINT `(?:[^`]|``)*` FOREIGN KEY [^\n]*")
"""A foreign key, which any statement may drop that it holds up, of another table as well. One that runs twice is left out."""
_UNKNOWN_TABLE = frozenset((1146, 1049, 1051, 1300, 1059, 1103))
"""The last three: no table can have the name."""
_CHUNK = 500
_KEY_COLUMNS = (
    "SELECT constraint_name, table_schema, table_name, column_name, referenced_table_schema, referenced_table_name, "
    "referenced_column_name FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL "
    "ORDER BY constraint_schema, table_name, constraint_name, ordinal_position"
)
_OTHER_METHODS = frozenset(("KEY", "LINEAR KEY", "LINEAR HASH"))
"""Methods by which MySQL and MariaDB put rows into other partitions than TiDB does."""


_TEXTS = 7
"""Facts of a column that are texts; they come first."""


class ColumnFacts(NamedTuple):
    """A column as information_schema shows it."""

    name: str
    data_type: str
    column_type: str
    nullable: str
    extra: str
    charset: str
    collation: str
    default: Any
    """A text, bytes, or None."""
    scale: int | None
    fraction: int | None
    length: int | None
    has_expression: Any
    """Whether it is computed; not each server says so here."""

    @property
    def generated(self) -> str:
        """``VIRTUAL``, ``STORED``, or empty. MySQL's DEFAULT_GENERATED marks a default expression, not a generated column."""
        flags = self.extra.upper()
        if "VIRTUAL" in flags:
            return "VIRTUAL"
        is_stored = "STORED" in flags or "PERSISTENT" in flags
        return "STORED" if is_stored or (self.has_expression and "DEFAULT_GENERATED" not in flags) else ""


class IndexPart(NamedTuple):
    """A part of an index as information_schema shows it."""

    name: str
    """Of the index."""
    column: str
    """What it is over: a column's name, or an expression."""
    prefix: int | None
    """Number of leading characters (bytes for binary types) that are indexed; None means all."""
    is_unique: bool
    method: str
    is_expression: bool


def columns_of(query: Query, names: Collection[TableName]) -> Mapping[TableName, list[ColumnFacts]]:
    """Return the columns of these tables, in order. `names` are in the server's spelling; so are those that are found."""
    found = defaultdict[TableName, list[ColumnFacts]](list)
    where, arguments = _where(names)
    for schema, table, *facts in query(
        "SELECT table_schema, table_name, column_name, data_type, column_type, is_nullable, extra, "
        "character_set_name, collation_name, column_default, numeric_scale, datetime_precision, character_maximum_length, "
        f"generation_expression <> '' FROM information_schema.columns WHERE {where} "
        "ORDER BY table_schema, table_name, ordinal_position",
        arguments,
    ):
        texts = (text_of(each or "") for each in facts[:_TEXTS])
        found[_table(schema, table)].append(ColumnFacts._make((*texts, *facts[_TEXTS:])))
    return found


def index_parts_of(
    query: Query, names: Collection[TableName], *, shows_expressions: bool
) -> Mapping[TableName, dict[str, list[IndexPart]]]:
    """Return the parts of each index of these tables, in order, the primary key first."""
    found = defaultdict[TableName, dict[str, list[IndexPart]]](dict)
    # TiDB names the column of a part over an expression NULL, as a text.
    expression = "expression" if shows_expressions else "NULL"
    where, arguments = _where(names)
    for schema, table, index, column, prefix, computed, non_unique, method in query(
        f"SELECT table_schema, table_name, index_name, column_name, sub_part, {expression}, non_unique, index_type "
        f"FROM information_schema.statistics WHERE {where} "
        "ORDER BY table_schema, table_name, index_name <> 'PRIMARY', index_name, seq_in_index",
        arguments,
    ):
        part = IndexPart(
            text_of(index),
            text_of((column if computed is None else computed) or ""),
            None if prefix is None else int(prefix),
            not int(non_unique),
            text_of(method or ""),
            computed is not None,
        )
        found[_table(schema, table)].setdefault(part.name, []).append(part)
    return found


def shows_expressions(query: Query) -> bool:
    """Return whether a server knows indexes over expressions: MariaDB and MySQL 5.7 do not."""
    return bool(
        query(
            "SELECT 1 FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND column_name = %s",
            ("information_schema", "STATISTICS", "EXPRESSION"),
        )
    )


def _where(names: Collection[TableName]) -> tuple[str, list[str]]:
    """Return the condition that a row of information_schema is about one of these tables, and its arguments."""
    pairs = ", ".join(["(%s, %s)"] * len(names))
    return f"(table_schema, table_name) IN ({pairs})", [part for name in names for part in (name.schema, name.table)]


def _table(schema: Any, table: Any) -> TableName:
    return TableName(schema=text_of(schema), table=text_of(table))


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
            some = names[first : first + _CHUNK]
            where, arguments = _where(some)
            query = self._session.rows
            columns = columns_of(query, some)
            indexes = index_parts_of(query, some, shows_expressions=self._has_expressions())
            seen = query(f"SELECT table_schema, table_name FROM information_schema.views WHERE {where}", arguments)
            views = {_table(*row) for row in seen}
            for name, facts in columns.items():
                keys = [_unique_key(parts) for parts in indexes.get(name, {}).values() if parts[0].is_unique]
                found[name.folded()] = TargetTable(
                    name=name,
                    columns=tuple(map(_column, facts)),
                    unique_keys=tuple(key for key in keys if isinstance(key, UniqueKey)),
                    expression_keys=tuple(key for key in keys if isinstance(key, str)),
                    indexes=len(indexes.get(name, {})),
                    is_view=name in views,
                )
        return found

    def _has_expressions(self) -> bool:
        if self._shows_expressions is None:
            self._shows_expressions = shows_expressions(self._session.rows)
        return self._shows_expressions

    def has_rows(self, name: TableName) -> bool:
        """Return whether a table, by the name that the target gives it, has a row."""
        return bool(self._session.rows(f"SELECT 1 FROM {_in_query(name)} LIMIT %s", (1,)))

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
        name = self.existing([name]).get(name.folded(), name)
        query, place = self._session.rows, (name.schema, name.table)
        columns = columns_of(query, [name]).get(name, [])
        foreign: list[tuple[str, str]] = []
        if has_words(found, "FOREIGN"):
            keys = (
                "SELECT table_name, constraint_name FROM information_schema.table_constraints "
                "WHERE constraint_schema = %s AND constraint_type = 'FOREIGN KEY'"
            )
            foreign = [(_folded(table), _folded(key)) for table, key in query(keys, (name.schema,))]
        collation = ""
        if changes_defaults(found):
            options = (
                "SELECT table_collation FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
            )
            collation = "".join(text_of(one) for (one,) in query(options, place))
        # Only texts can hold fractions: the servers convert all other values alike.
        texts = {column.name for column in columns if column.collation}
        own = folded_name(name.table)
        return PartNames(
            columns=frozenset(folded_name(column.name) for column in columns),
            generated=frozenset(
                folded_name(c.name) for c in columns if c.has_expression and has_words(found, "PRIMARY")
            ),
            indexes=frozenset(self._index_columns(name)),
            foreign_keys=frozenset(key for table, key in foreign if table == own),
            other_foreign_keys=frozenset(key for table, key in foreign if table != own),
            # This reads the table's rows, so it is asked only for columns that become integers.
            fractions=frozenset(
                column
                for column in to_integers(found)
                if (real := closest(column, texts)) is not None and self._has_fractions(name, real)
            ),
            collation=collation,
            scattered=takes_rows_of_partitions(found) and self._is_scattered(name),
        )

    def _index_columns(self, name: TableName) -> dict[str, list[str]]:
        """Return each index of a table with its columns, all folded. `name` is in the target's spelling."""
        indexes = index_parts_of(self._session.rows, [name], shows_expressions=False).get(name, {})
        return {folded_name(index): [folded_name(part.column) for part in parts] for index, parts in indexes.items()}

    def _is_scattered(self, name: TableName) -> bool:
        """Return whether a table has rows in another partition than at the source: all by KEY, those of NULL by HASH."""
        methods = (
            "SELECT DISTINCT partition_method, partition_expression FROM information_schema.partitions "
            "WHERE table_schema = %s AND table_name = %s"
        )
        for method, expression in self._session.rows(methods, (name.schema, name.table)):
            by = _folded(method or "").upper()
            of_null = (
                f"SELECT 1 FROM {_in_query(name)} WHERE ({text_of(expression).replace('%', '%%')}) IS NULL LIMIT %s"
            )
            # By HASH all servers put numbers alike, but not those rows whose expression is NULL.
            if by in _OTHER_METHODS or (by == "HASH" and self._session.rows(of_null, (1,))):
                return True
        return False

    def _has_fractions(self, name: TableName, column: str) -> bool:
        """Return whether a text column holds a number with a fraction or an exponent."""
        found = f"SELECT 1 FROM {_in_query(name)} WHERE {quote(column).replace('%', '%%')} REGEXP %s LIMIT 1"
        # Zeros after the point are no fraction.
        number = r"^[[:space:]]*[-+]?([0-9]*[.][0-9]*[1-9]|([0-9]+[.]?[0-9]*|[.][0-9]+)[eE][-+]?[0-9])"
        return bool(self._session.rows(found, (number,)))

    def foreign_keys(self, names: Sequence[TableName]) -> tuple[list[ForeignKey], dict[str, list[str]]]:
        """Return the foreign keys of these tables and those that refer to them; and the first table's indexes with their columns, folded."""
        wanted = {name.folded() for name in names}
        columns: dict[tuple[TableName, str], list[tuple[str, TableName, str]]] = {}
        # All are read, and chosen here: a name of the statement may be in another case than the target's.
        for row in self._session.rows(_KEY_COLUMNS, ()):
            key, schema, table, column, other_schema, other_table, other_column = map(text_of, row)
            other = _table(other_schema, other_table).folded()
            columns.setdefault((_table(schema, table), key), []).append((column, other, folded_name(other_column)))
        keys = []
        for (table_name, key), its in columns.items():
            pairs = {(table_name.folded(), folded_name(column)) for column, _, _ in its} | {
                its_end[1:] for its_end in its
            }
            if any(at in wanted for at, _ in pairs):
                own = tuple(column for column, _, _ in its)
                index = self._index_columns(table_name).get(folded_name(key))
                keys.append(
                    ForeignKey(
                        name=key,
                        table=table_name,
                        own=own,
                        columns=frozenset(pairs),
                        has_index=index == list(map(folded_name, own)),
                    )
                )
        return keys, self._index_columns(self.existing(names[:1]).get(names[0].folded(), names[0]))

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


def _column(facts: ColumnFacts) -> TargetColumn:
    collation = facts.collation
    return TargetColumn(
        name=facts.name,
        data_type=facts.data_type.lower(),
        nullable=facts.nullable == "YES",
        generated=facts.generated,
        binary_collation=not collation or collation == "binary" or collation.endswith("_bin"),
        # MariaDB has it in the names; MySQL's collations of Unicode 9 do not pad either.
        pads=bool(collation) and collation != "binary" and "nopad" not in collation and "_0900_" not in collation,
        collation=collation,
        digits=facts.fraction if facts.scale is None else facts.scale,
        length=facts.length,
        column_type=facts.column_type,
    )


def _unique_key(parts: Sequence[IndexPart]) -> UniqueKey | str:
    """Return a unique index with these parts, each a column or an expression; where one is an expression, what all are over."""
    if any(part.is_expression for part in parts):
        return ", ".join(
            f"({part.column})" if part.is_expression else quote(folded_name(part.column)) for part in parts
        )
    return UniqueKey(
        name=parts[0].name, columns=tuple(part.column for part in parts), prefixes=tuple(part.prefix for part in parts)
    )


def _in_query(name: TableName) -> str:
    """Return a table's name for a query with arguments."""
    return qualified(name).replace("%", "%%")


def _folded(value: Any) -> str:
    return folded_name(text_of(value))
