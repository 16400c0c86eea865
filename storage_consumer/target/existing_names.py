"""Queries, their values, and the target's spelling of databases, tables and parts of a table.

Some servers compare names by case, the source never does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from storage_consumer.decode.values import INTEGER_TYPES
from storage_consumer.model import TableName, folded_name
from storage_consumer.sql.statement import Statement
from storage_consumer.sql.tokens import Token, has_words


class Query(Protocol):
    """Runs a statement with arguments and returns all its rows."""

    def __call__(self, sql: str, arguments: Collection[Any] = (), /) -> list[tuple[Any, ...]]:
        """Return all rows; raise an error of `errors` if the server refuses or does not answer."""
        ...


def text_of(value: Any) -> str:
    """Return a value as text: each server returns other columns of its own tables as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


_DATABASES = "SELECT schema_name FROM information_schema.schemata"
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
_NOT_ASCII = "LENGTH(table_name) <> CHAR_LENGTH(table_name)"
_CHUNK = 500
_FAR = re.compile("[\U00010000-\U0010ffff]")


def is_far(text: str) -> bool:
    """Return whether a name has a character above U+FFFF: others than TiDB cannot compare it."""
    return _FAR.search(text) is not None


def existing(query: Query, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
    """Map folded to the target's own names of existing tables and databases (empty table name).

    A name that exists exactly as wanted is preferred to one that differs in case.
    """
    by_schema: dict[str, list[str]] = {}
    for name in sorted(set(wanted)):
        by_schema.setdefault(name.schema, []).append(name.table)
    found: dict[TableName, TableName] = {}
    # All of them: there are few, and case is compared here as the source compares it.
    databases = _texts(query(_DATABASES, ())) if by_schema else []
    for schema, tables in by_schema.items():
        real = closest(schema, databases)
        if real is None:
            continue
        there = _real_tables(query, real, [table for table in tables if table])
        for table in tables:
            own = there.get(table) if table else ""
            if own is not None:
                # The first one stays: two wanted names may fold to one.
                found.setdefault(
                    TableName(schema=schema, table=table).folded(),
                    TableName(schema=real, table=own),
                )
    return found


def _real_tables(query: Query, schema: str, tables: list[str]) -> dict[str, str]:
    """Map tables to their own spelling, exact names first: a caseless search scans all.

    The server does that scan, which is several times as fast as fetching every name of a large
    database. Beyond ASCII its rules for case may differ from the source's, so all names with other
    characters are fetched too.
    """
    exact: set[str] = set()
    near = [table for table in tables if not is_far(table)]
    for first in range(0, len(near), _CHUNK):
        some = near[first : first + _CHUNK]
        exact.update(
            _texts(
                query(
                    f"{_TABLES} AND table_name IN ({', '.join(['%s'] * len(some))})",
                    (schema, *some),
                )
            )
        )
    there = {table: table for table in tables if table in exact}
    if len(there) < len(tables):
        alike: dict[str, str] = {}
        missing = [folded_name(table) for table in near if table not in there]
        # At least once: names with non-ASCII characters are needed even if no other is missing.
        for first in range(0, max(len(missing), 1), _CHUNK):
            some = missing[first : first + _CHUNK] or [""]
            alike_there = f"{_TABLES} AND (LOWER(table_name) IN ({', '.join(['%s'] * len(some))}) OR {_NOT_ASCII})"
            for own in sorted(_texts(query(alike_there, (schema, *some)))):
                alike.setdefault(folded_name(own), own)
        there |= {
            t: alike[folded_name(t)] for t in tables if t not in there and folded_name(t) in alike
        }
    return there


def closest(name: str, there: Iterable[str]) -> str | None:
    """Return the name itself if it is there, else the first that differs only in case, or None."""
    candidates = sorted(one for one in there if folded_name(one) == folded_name(name))
    # Sorted, so that of several the choice is the same each time.
    return name if name in candidates else next(iter(candidates), None)


def _texts(rows: list[tuple[Any, ...]]) -> list[str]:
    return [text_of(row[0]) for row in rows]


_INTEGERS = INTEGER_TYPES | {"INTEGER", "BOOL", "BOOLEAN"}


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
    """Text columns that become integers and hold numbers with a fraction or an exponent."""
    collation: str = ""
    """Default collation of the table; empty if it does not matter."""
    scattered: bool = False
    """Whether the statement is about partitions that hold other rows than at the source."""


def matters_for(found: Sequence[Token]) -> bool:
    """Return whether a statement depends on a table's names; a new one has only foreign keys."""
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
    """Return whether an ALTER TABLE may add columns and change the table's charset or collation."""
    statement = Statement("", found)
    return bool(
        statement.find("COLLATE|CHARACTER|CHARSET", depth=0) and statement.find("ADD", depth=0)
    )


def takes_rows_of_partitions(found: Sequence[Token]) -> bool:
    """Return whether a statement empties or exchanges named partitions, so their rows matter."""
    empties = has_words(found, "TRUNCATE", "PARTITION") and not has_words(
        found, "TRUNCATE", "PARTITION", "ALL"
    )
    return empties or has_words(found, "EXCHANGE", "PARTITION")


def to_integers(found: Sequence[Token]) -> list[str]:
    """Return the columns, by former names, that an ALTER TABLE turns into integers."""
    columns = Statement("", found).columns
    return [
        each.former
        for each in columns
        if each.verb in ("MODIFY", "CHANGE") and each.type in _INTEGERS
    ]
