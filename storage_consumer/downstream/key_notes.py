"""What a table's keys were when our last statement left it, as noted in the state schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlalchemy import delete, select

from storage_consumer.downstream.query import Query
from storage_consumer.downstream.state_tables import as_text, put, state_tables
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import TableName, folded_name
from storage_consumer.plan.steps import key_of
from storage_consumer.sql.tokens import quote


class KeyNotes:
    """The notes of one state schema; see `key_drift` for what they are good for."""

    def __init__(self, query: Query, state_schema: str) -> None:
        """Keep notes in `state_schema`, over `query`."""
        self._query = query
        self._schema = state_schema
        self._notes = state_tables(state_schema).keys

    def noted(self, names: Iterable[TableName]) -> dict[TableName, list[str]]:
        """Return the noted keys of those tables that have a note, by folded name; empty if the state schema does not exist."""
        keys = {key_of(name): name.folded() for name in names}
        there = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        notes = self._notes
        # Asked first: before the first start there is no state schema, and a refused query would close the connection.
        if not keys or not self._query(there, (self._schema, notes.name)):
            return {}
        rows = self._query(*as_text(select(notes.c.table_key, notes.c.unique_keys).where(notes.c.table_key.in_(keys))))
        return {keys[str(key)]: str(lines).split("\n") for key, lines in rows if str(key) in keys}

    def compared(self, tables: Mapping[TableName, TargetTable]) -> dict[TableName, TargetTable]:
        """Return the tables, by folded name, each with what it has beyond its note."""
        known = self.noted(tables)
        return {
            name: replace(table, key_drift=key_drift(known[name], table)) if name in known else table
            for name, table in tables.items()
        }

    def forget(self, names: Iterable[TableName]) -> None:
        """Delete the notes of these tables: a statement is about to change them."""
        for name in names:
            self._query(*as_text(delete(self._notes).where(self._notes.c.table_key == key_of(name))))

    def remember(self, tables: Iterable[TargetTable]) -> None:
        """Note the keys that these tables have, except where the server does not show them."""
        for table in tables:
            # A note of a table whose columns do not show would say that it has no keys at all.
            if not table.unseen:
                note = {"table_key": key_of(table.name), "unique_keys": "\n".join(keys_of(table))}
                self._query(*as_text(put(self._notes, note)))


_KNOWS_EXPRESSIONS = "with keys over expressions"
"""A line of each note that says all of such keys: notes of earlier builds lack them."""


def keys_of(table: TargetTable) -> list[str]:
    """Return the unique keys and their collations, one text each, sorted."""
    lines = [_KNOWS_EXPRESSIONS, *_over_expressions(table)]
    named = {folded_name(column) for key in table.unique_keys for column in key.columns}
    for key in table.unique_keys:
        parts = [
            quote(folded_name(column)) + ("" if prefix is None else f"({prefix})")
            for column, prefix in zip(key.columns, key.prefixes, strict=True)
        ]
        # Sorted: in which order a key names its columns changes nothing about what is unique.
        lines.append(f"unique key over {', '.join(sorted(parts))}")
    lines += [
        f"collation {c.collation} of {c.name}" for c in table.columns if c.collation and folded_name(c.name) in named
    ]
    return sorted({_line(line) for line in lines})


def _over_expressions(table: TargetTable) -> list[str]:
    return [_line(f"unique key over {parts}") for parts in table.expression_keys]


def _line(text: str) -> str:
    """Return a text as a note holds it, one per line: a column's name may hold a line break."""
    return text.replace("\n", r"\n")


def key_drift(noted: Iterable[str], table: TargetTable) -> str:
    """Return what the table has beyond the noted keys, or "". A collation counts only in a key that was noted."""
    known, now = set(noted), keys_of(table)
    passed_over = set() if _KNOWS_EXPRESSIONS in known else set(_over_expressions(table))
    new_keys = [line for line in now if line.startswith("unique") and line not in known | passed_over]
    # Only columns that were noted: a new key is reported as a whole, whatever its collations.
    before = dict(_collation(line) for line in known if line.startswith("collation"))
    collations = [(line, *_collation(line)) for line in now if line.startswith("collation")]
    other = [
        f"{line} instead of {was}" for line, name, now_is in collations if (was := before.get(name, now_is)) != now_is
    ]
    return "; ".join(new_keys + other)


def _collation(line: str) -> tuple[str, str]:
    """Return the folded name of a column and its collation, from a line of `keys_of`."""
    collation, _, name = line.removeprefix("collation ").partition(" of ")
    # A server shows the newer name once it is upgraded to MySQL 8.0.30 or MariaDB 10.6.
    return folded_name(name), collation.replace("utf8mb3_", "utf8_")
