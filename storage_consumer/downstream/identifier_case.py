"""How the target spells the names of databases and tables: some servers compare them by case, the source never does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from storage_consumer.downstream.query import Query, text_of
from storage_consumer.model import TableName, folded_name

_DATABASES = "SELECT schema_name FROM information_schema.schemata"
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
_NOT_ASCII = "LENGTH(table_name) <> CHAR_LENGTH(table_name)"
_CHUNK = 500
_FAR = re.compile("[\U00010000-\U0010ffff]")


def is_far(text: str) -> bool:
    """Return whether a name has a character beyond U+FFFF: only TiDB can have such names, and others fail even to compare them."""
    return _FAR.search(text) is not None


def existing(query: Query, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
    """Return folded name → the target's own spelling, for tables and databases (empty table name) that exist.

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
                found.setdefault(TableName(schema=schema, table=table).folded(), TableName(schema=real, table=own))
    return found


def _real_tables(query: Query, schema: str, tables: list[str]) -> dict[str, str]:
    """Return table → its own spelling. The server finds exact names immediately, while a search without case scans all.

    The server does that scan, which is several times as fast as fetching every name of a large database. Beyond ASCII its rules for
    case may differ from the source's, so all names with other characters are fetched too.
    """
    exact: set[str] = set()
    near = [table for table in tables if not is_far(table)]
    for first in range(0, len(near), _CHUNK):
        some = near[first : first + _CHUNK]
        exact.update(_texts(query(f"{_TABLES} AND table_name IN ({', '.join(['%s'] * len(some))})", (schema, *some))))
    there = {table: table for table in tables if table in exact}
    if len(there) < len(tables):
        alike: dict[str, str] = {}
        missing = [folded_name(table) for table in near if table not in there]
        # At least once: the names with characters beyond ASCII are needed even where no other name is missing.
        for first in range(0, max(len(missing), 1), _CHUNK):
            some = missing[first : first + _CHUNK] or [""]
            alike_there = f"{_TABLES} AND (LOWER(table_name) IN ({', '.join(['%s'] * len(some))}) OR {_NOT_ASCII})"
            for own in sorted(_texts(query(alike_there, (schema, *some)))):
                alike.setdefault(folded_name(own), own)
        there |= {t: alike[folded_name(t)] for t in tables if t not in there and folded_name(t) in alike}
    return there


def closest(name: str, there: Iterable[str]) -> str | None:
    """Return the name itself if it is there, else the first that differs only in case, or None."""
    candidates = sorted(one for one in there if folded_name(one) == folded_name(name))
    # Sorted, so that of several the choice is the same each time.
    return name if name in candidates else next(iter(candidates), None)


def _texts(rows: list[tuple[Any, ...]]) -> list[str]:
    return [text_of(row[0]) for row in rows]
