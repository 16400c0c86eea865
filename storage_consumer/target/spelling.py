"""How the target spells the names of databases and tables: some servers compare them by case, the source never does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from storage_consumer.model import TableName, folded_name

Query = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
"""Runs a query with arguments; all its rows."""

_DATABASE = "SELECT schema_name FROM information_schema.schemata"
_TABLE = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"


def existing(query: Query, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
    """Folded name → the target's own spelling, of the tables and databases (empty table name) that exist.

    A name that exists as it is wanted goes before one that differs in case.
    """
    by_schema: dict[str, list[TableName]] = {}
    for name in sorted(set(wanted)):
        by_schema.setdefault(name.schema, []).append(name)
    found: dict[TableName, TableName] = {}
    databases: list[str] | None = None
    for schema, names in by_schema.items():
        databases = _texts(query(_DATABASE, ())) if databases is None else databases
        real = _match(schema, databases)
        if real is None:
            continue
        for name in names:
            table = _real_table(query, real, name.table) if name.table else ""
            if table is not None:
                found.setdefault(name.folded(), TableName(schema=real, table=table))
    return found


def _real_table(query: Query, schema: str, table: str) -> str | None:
    """A table's own spelling. The server finds one name at once, while a search without case goes through all of them."""
    exact = _texts(query(f"{_TABLE} AND table_name = %s", (schema, table)))
    return _match(table, exact) or _match(table, _texts(query(_TABLE, (schema,))))


def _match(name: str, there: Iterable[str]) -> str | None:
    """The name itself if it is there, else the first that differs only in case."""
    candidates = sorted(one for one in there if folded_name(one) == folded_name(name))
    return name if name in candidates else next(iter(candidates), None)


def _texts(rows: list[tuple[Any, ...]]) -> list[str]:
    return [row[0].decode() if isinstance(row[0], bytes) else str(row[0]) for row in rows]
