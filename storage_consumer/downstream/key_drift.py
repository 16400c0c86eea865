"""What a table's keys were when our last statement left it, so that a change by somebody else is found.

Rows are written by REPLACE, which is right only under the source's unique keys: with one more key, or another collation in a key,
rows push others out. A schema file names the primary key alone. So after each statement the target's keys are noted, and rows are
written only to a table that has no more keys than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from storage_consumer.errors import TableError
from storage_consumer.job.match import refuse_changes
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import TableName
from storage_consumer.plan.barriers import DROP_SCHEMA, DROP_TABLE, DROP_VIEW, mentioned_names
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.ports import Ddl, DdlContext, TableProgress
from storage_consumer.sql.tokens import quote

Query = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a statement with arguments and returns all its rows."""
_DROPS = (DROP_SCHEMA, DROP_TABLE, DROP_VIEW)
TABLE = "table_keys"
"""The state schema's table of noted keys."""


class Standing(Protocol):
    """Where the notes are; see `TargetDatabase`."""

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the tables that exist, each with what somebody else added to its keys."""
        ...

    def noted(self, names: Iterable[TableName]) -> Mapping[TableName, Sequence[str]]:
        """Return the noted keys of those tables that have a note, by folded name."""
        ...

    def forget(self, names: Iterable[TableName]) -> None:
        """Delete the notes of these tables: a statement is about to change them."""

    def remember(self, names: Iterable[TableName]) -> None:
        """Note the keys that these tables have now."""


class KeyDriftGuard:
    """Runs statements, and notes the keys that they leave. A table that somebody else changed gets no note.

    If the process ends between the statement and the note, there is nothing to compare with until the next statement.
    """

    def __init__(self, ddl: Ddl, standing: Standing) -> None:
        """Run statements by `ddl`, and keep the notes in `standing`."""
        self._ddl = ddl
        self._standing = standing

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Run a step; see `ports.Ddl`."""
        names = sorted(mentioned_names(step.definition))
        if step.definition.ddl_type not in _DROPS and context.decision is None and not step.skip:
            self._refuse_changes(step, names)
        self._standing.forget(names)
        note = self._ddl.run(step, context, moved)
        self._standing.remember(names)
        return note

    def _refuse_changes(self, step: DdlStep, names: Sequence[TableName]) -> None:
        try:
            noted = self._standing.noted(names)  # a new table has none, and searching for it takes a while
            for table in self._standing.describe(name for name in names if name.folded() in noted).values():
                refuse_changes(table.name, table)
        except TableError as fault:
            self._ddl.refused(step, str(fault))
            raise

    def refused(self, step: DdlStep, error: str) -> None:
        """Note a refusal; see `ports.Ddl`."""
        self._ddl.refused(step, error)

    def fence(self) -> None:
        """Fence off former owners; see `ports.Ddl`."""
        self._ddl.fence()

    def close(self) -> None:
        """Close the connection; see `ports.Ddl`."""
        self._ddl.close()


def keys_of(table: TargetTable) -> list[str]:
    """Return the unique keys and their collations, one text each, sorted."""
    lines = []
    named = {column.casefold() for key in table.unique_keys for column in key.columns}
    for key in table.unique_keys:
        parts = [
            quote(column.casefold()) + ("" if prefix is None else f"({prefix})")
            for column, prefix in zip(key.columns, key.prefixes, strict=True)
        ]
        lines.append(f"unique key over {', '.join(sorted(parts))}")
    lines += [
        f"collation {c.collation} of {c.name}" for c in table.columns if c.collation and c.name.casefold() in named
    ]
    return sorted(set(lines))


def key_drift(noted: Iterable[str], table: TargetTable) -> str:
    """Return what the table has beyond the noted keys, or "". A collation counts only in a key that was noted."""
    known = set(noted)
    new_keys = [line for line in keys_of(table) if line.startswith("unique") and line not in known]
    before = {line.partition(" of ")[2].casefold(): line for line in known if line.startswith("collation")}
    other = [
        f"{line} instead of {was.split(' ')[1]}"
        for line in keys_of(table)
        if line.startswith("collation") and (was := before.get(line.partition(" of ")[2].casefold(), line)) != line
    ]
    return "; ".join(new_keys + other)


def noted(query: Query, schema: str, names: Iterable[TableName]) -> dict[TableName, list[str]]:
    """Return what `remember` noted of tables, by folded name; empty if the state's `schema` does not exist."""
    keys = {key_of(name): name.folded() for name in names}
    there = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
    if not keys or not query(there, (schema, TABLE)):
        return {}
    places = ", ".join(["%s"] * len(keys))
    rows = query(
        f"SELECT table_key, unique_keys FROM {quote(schema)}.{quote(TABLE)} WHERE table_key IN ({places})", list(keys)
    )
    return {keys[str(key)]: str(lines).split("\n") for key, lines in rows if str(key) in keys}


def compared(query: Query, schema: str, tables: Mapping[TableName, TargetTable]) -> dict[TableName, TargetTable]:
    """Return the tables, by folded name, each with what it has beyond its note."""
    known = noted(query, schema, tables)
    return {
        name: replace(table, key_drift=key_drift(known[name], table)) if name in known else table
        for name, table in tables.items()
    }


def forget(query: Query, schema: str, names: Iterable[TableName]) -> None:
    """Delete the notes of these tables."""
    for name in names:
        query(f"DELETE FROM {quote(schema)}.{quote(TABLE)} WHERE table_key = %s", [key_of(name)])


def remember(query: Query, schema: str, tables: Iterable[TargetTable]) -> None:
    """Note the keys of these tables."""
    for table in tables:
        query(
            f"REPLACE INTO {quote(schema)}.{quote(TABLE)} (table_key, unique_keys) VALUES (%s, %s)",
            [key_of(table.name), "\n".join(keys_of(table))],
        )
