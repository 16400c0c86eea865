"""The unique keys of tables, from information_schema."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from storage_consumer.job.target_table import UniqueKey

Query = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a statement with arguments and returns all its rows."""


def unique_keys(query: Query, where: str, names: list[str]) -> dict[tuple[str, str], list[UniqueKey]]:
    """Return the unique indexes of each table, the primary key first, without those over expressions."""
    parts: dict[tuple[str, str], dict[str, list[tuple[str | None, int | None]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for schema, table, index, column, sub_part in query(
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
