"""The names of a table's parts on the target, where a part that a statement of the source means may have another name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from storage_consumer.decode.values import INTEGER_TYPES
from storage_consumer.downstream.query import Query, text_of
from storage_consumer.model import TableName, folded_name
from storage_consumer.sql.statement import column_at
from storage_consumer.sql.tokens import Token, has_words, quote

_COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
_COLLATION = "SELECT table_collation FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
_GENERATED = f"{_COLUMNS} AND generation_expression <> ''"
_INDEXES = "SELECT index_name FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s"
_FOREIGN_KEYS = (
    "SELECT table_name, constraint_name FROM information_schema.table_constraints "
    "WHERE constraint_schema = %s AND constraint_type = 'FOREIGN KEY'"
)

_METHOD = (
    "SELECT DISTINCT partition_method, partition_expression FROM information_schema.partitions "
    "WHERE table_schema = %s AND table_name = %s"
)
_OTHER_METHODS = frozenset(("KEY", "LINEAR KEY", "LINEAR HASH"))
"""Methods by which MySQL and MariaDB put rows into other partitions than TiDB does."""

_INTEGERS = INTEGER_TYPES | {"INTEGER", "BOOL", "BOOLEAN"}


_KEY_COLUMNS = (
    "SELECT constraint_name, table_schema, table_name, column_name, referenced_table_schema, referenced_table_name, "
    "referenced_column_name FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL "
    "ORDER BY constraint_schema, table_name, constraint_name, ordinal_position"
)
_INDEX_COLUMNS = (
    "SELECT index_name, column_name FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s "
    "ORDER BY index_name, seq_in_index"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """A foreign key of the target, in its spelling."""

    name: str
    table: TableName
    own: tuple[str, ...]
    """Its columns, in order."""
    columns: frozenset[tuple[TableName, str]]
    """Folded table and column of each column that it has or refers to."""
    has_index: bool = False
    """Whether there is an index of its name over its columns, as the server makes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartNames:
    """Names inside one table, all folded; empty if there is no such table."""

    columns: frozenset[str] = frozenset()
    generated: frozenset[str] = frozenset()
    """Those of its columns that are generated."""
    indexes: frozenset[str] = frozenset()
    foreign_keys: frozenset[str] = frozenset()
    other_foreign_keys: frozenset[str] = frozenset()
    """Those of the other tables in its database: MySQL and MariaDB want each name once."""
    fractions: frozenset[str] = frozenset()
    """Text columns that the statement turns into integers, and that hold numbers with a fraction or an exponent."""
    collation: str = ""
    """Default collation of the table; empty if it does not matter."""
    scattered: bool = False
    """Whether its partitions hold other rows than those of the same names at the source, and the statement is about one of them."""


def matters_for(found: Sequence[Token]) -> bool:
    """Return whether what a statement becomes depends on names inside the table. A new table has none, except foreign keys."""
    if has_words(found, "FOREIGN"):
        return True
    if has_words(found[:2], "CREATE", "TABLE"):
        return False
    return any(has_words(found, word) for word in ("INDEX", "KEY", "UNIQUE", "INDEXES")) or (
        has_words(found[:2], "ALTER", "TABLE")
        and (
            has_words(found, "EXISTS")
            or changes_defaults(found)
            or bool(to_integers(found))
            or takes_rows_of_partitions(found)
        )
    )


def changes_defaults(found: Sequence[Token]) -> bool:
    """Return whether an ALTER TABLE may both add columns and change the table's charset or collation."""
    options = [
        at for at, token in enumerate(found) if not token.depth and token.upper in ("COLLATE", "CHARACTER", "CHARSET")
    ]
    return bool(options) and has_words(found, "ADD", depth=0)


def takes_rows_of_partitions(found: Sequence[Token]) -> bool:
    """Return whether a statement empties or exchanges partitions that it names, so that it matters which rows are in them."""
    empties = has_words(found, "TRUNCATE", "PARTITION") and not has_words(found, "TRUNCATE", "PARTITION", "ALL")
    return empties or has_words(found, "EXCHANGE", "PARTITION")


def to_integers(found: Sequence[Token]) -> list[str]:
    """Return the columns that an ALTER TABLE turns into integers by MODIFY or CHANGE, by their former names."""
    columns = []
    for at, token in enumerate(found):
        if token.upper in ("MODIFY", "CHANGE") and token.depth == 0:
            part = found[at:]
            named = column_at(part)
            typed = named + (2 if token.upper == "CHANGE" else 1)
            columns += (
                [part[named].name]
                if named > 0 and any(one.upper in _INTEGERS for one in part[typed : typed + 1])
                else []
            )
    return columns


def part_names(query: Query, name: TableName, found: Sequence[Token]) -> PartNames:
    """Ask the target for the names inside a table. `name` is in its spelling; only what matters for the statement `found` is asked."""
    place = (name.schema, name.table)
    asked = query(_FOREIGN_KEYS, (name.schema,)) if has_words(found, "FOREIGN") else []
    foreign = [(_folded(table), _folded(key)) for table, key in asked]
    return PartNames(
        columns=frozenset(_folded(one) for (one,) in query(_COLUMNS, place)),
        generated=frozenset(_folded(one) for (one,) in query(_GENERATED, place))
        if has_words(found, "PRIMARY")
        else frozenset(),
        indexes=frozenset(_folded(one) for (one,) in query(_INDEXES, place)),
        foreign_keys=frozenset(key for table, key in foreign if table == folded_name(name.table)),
        other_foreign_keys=frozenset(key for table, key in foreign if table != folded_name(name.table)),
        # This reads the table's rows, so it is asked only for columns that become integers.
        fractions=frozenset(column for column in to_integers(found) if _has_fractions(query, name, column)),
        collation="".join(text_of(one) for (one,) in query(_COLLATION, place)) if changes_defaults(found) else "",
        scattered=takes_rows_of_partitions(found) and _is_scattered(query, name),
    )


def foreign_keys(query: Query, names: Collection[TableName]) -> list[ForeignKey]:
    """Return the foreign keys of these tables, and those of any table that refer to them; `names` are folded."""
    columns: dict[tuple[TableName, str], list[tuple[str, TableName, str]]] = {}
    # All are read, and chosen here: a name of the statement may be in another case than the target's.
    for row in query(_KEY_COLUMNS, ()):
        key, *own, column, other_schema, other_table, other_column = map(text_of, row)
        table, other = TableName(schema=own[0], table=own[1]), TableName(schema=other_schema, table=other_table)
        columns.setdefault((table, key), []).append((column, other.folded(), folded_name(other_column)))
    keys = []
    for (table, key), its in columns.items():
        pairs = {(table.folded(), folded_name(column)) for column, _, _ in its} | {
            (other, its_column) for _, other, its_column in its
        }
        if any(at in names for at, _ in pairs):
            own_columns = tuple(column for column, _, _ in its)
            index = index_columns(query, table).get(folded_name(key))
            keys.append(
                ForeignKey(
                    name=key,
                    table=table,
                    own=own_columns,
                    columns=frozenset(pairs),
                    has_index=index == list(map(folded_name, own_columns)),
                )
            )
    return keys


def index_columns(query: Query, name: TableName) -> dict[str, list[str]]:
    """Return each index of a table with its columns, all folded. `name` is in the target's spelling."""
    indexes: dict[str, list[str]] = {}
    for index, column in query(_INDEX_COLUMNS, (name.schema, name.table)):
        indexes.setdefault(_folded(index), []).append(_folded(column or ""))
    return indexes


def _is_scattered(query: Query, name: TableName) -> bool:
    """Return whether a table has rows in another partition than at the source: all by KEY, those of NULL by HASH."""
    for method, expression in query(_METHOD, (name.schema, name.table)):
        by = _folded(method or "").upper()
        of_null = f"SELECT 1 FROM {_in_query(name)} WHERE ({text_of(expression).replace('%', '%%')}) IS NULL LIMIT %s"
        # By HASH all servers put numbers alike, but not those rows whose expression is NULL.
        if by in _OTHER_METHODS or (by == "HASH" and query(of_null, (1,))):
            return True
    return False


def _in_query(name: TableName) -> str:
    """Return a table's name for a query with arguments."""
    return f"{quote(name.schema)}.{quote(name.table)}".replace("%", "%%")


def _has_fractions(query: Query, name: TableName, column: str) -> bool:
    """Return whether a text column holds a number with a fraction or an exponent."""
    # Only texts: the servers convert all other values alike.
    if not query(f"{_COLUMNS} AND column_name = %s AND collation_name IS NOT NULL", (name.schema, name.table, column)):
        return False
    found = f"SELECT 1 FROM {_in_query(name)} WHERE {quote(column).replace('%', '%%')} REGEXP %s LIMIT 1"
    # Zeros after the point are no fraction.
    number = r"^[[:space:]]*[-+]?([0-9]*[.][0-9]*[1-9]|([0-9]+[.]?[0-9]*|[.][0-9]+)[eE][-+]?[0-9])"
    return bool(query(found, (number,)))


def _folded(value: Any) -> str:
    return folded_name(text_of(value))
