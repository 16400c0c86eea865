"""The list of tables: all that the state knows, filtered, sorted and cut into pages; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage_consumer.model import TableName
from storage_consumer.monitoring.health import lag_of
from storage_consumer.monitoring.recorder import TableRows
from storage_consumer.monitoring.snapshot import Table
from storage_consumer.monitoring.status import Status, TableStatus
from storage_consumer.page.query import STATES, Query
from storage_consumer.plan.table_state import TableState

PAGE = 200
"""Tables on one page of the list."""
_ORDER = {state: place for place, state in enumerate((TableState.LOST, *STATES))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One table in the list."""

    name: TableName
    shown: str
    """Its name as text."""
    state: TableState
    checkpoint: int
    """Commit ts up to which it is applied, inclusive."""
    lag: float | None
    stored: Table
    read: TableRows | None = None
    """Its row changes, as far as the serving process knows."""
    status: TableStatus | None = None
    """What an operator should know of it; None if that is nothing."""

    @property
    def group(self) -> TableState:
        """The state under which it is counted and filtered."""
        return TableState.HALTED if self.state == TableState.LOST else self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One page of the list."""

    rows: Sequence[Row]
    found: int
    """Tables that fit the filter."""
    page: int
    """From 1; the last one if a later one was asked for."""
    pages: int
    counts: dict[str, int]
    """State → tables in it, whatever the filter; only states with tables."""

    @property
    def first(self) -> int:
        """The number of its first table, from 1; 0 if there is none."""
        return min(self.found, (self.page - 1) * PAGE + 1)


def rows_of(status: Status, read: Mapping[str, TableRows]) -> tuple[Row, ...]:
    """Return all tables, by name; `read`: name → row changes that were read of it."""
    told = {table.name: table for table in status.tables}
    found = (_row(table, told.get(table.name), status, read.get(str(table.name))) for table in status.snapshot.tables)
    return tuple(sorted(found, key=lambda row: row.shown))


def listed(rows: Sequence[Row], query: Query) -> Listing:
    """Return the page of the list that was chosen."""
    wanted = query.q.casefold()
    fitting = [
        row
        for row in rows
        if (row.group == query.state if query.state else row.state != TableState.DROPPED)
        and wanted in row.shown.casefold()
    ]
    # Sorting is stable, also backwards: tables that are equal stay in the order of their names.
    if query.sort != "table" or query.desc:
        fitting.sort(key=_KEYS[query.sort], reverse=query.desc)
    pages = max(1, -(-len(fitting) // PAGE))
    page = min(query.page, pages)
    counts = Counter(row.group for row in rows)
    return Listing(
        rows=fitting[(page - 1) * PAGE : page * PAGE],
        found=len(fitting),
        page=page,
        pages=pages,
        counts={state: counts[state] for state in STATES if counts[state]},
    )


def table_called(rows: Sequence[Row], name: str) -> Row | None:
    """Return the table that is shown by a name."""
    return next((row for row in rows if row.shown == name), None)


_KEYS = {
    "state": lambda row: _ORDER[row.state],
    "table": lambda row: row.shown,
    "checkpoint": lambda row: row.checkpoint,
    # One without a checkpoint is behind all others.
    "lag": lambda row: float("inf") if row.lag is None else row.lag,
    "rows": lambda row: row.read.rows if row.read else 0,
    "rate": lambda row: (row.read.per_second or 0.0) if row.read else 0.0,
}


def _row(table: Table, told: TableStatus | None, status: Status, read: TableRows | None) -> Row:
    checkpoint = told.checkpoint if told is not None else status.snapshot.reached(table)
    return Row(
        name=table.name,
        shown=str(table.name),
        state=told.state if told is not None else status.snapshot.shown(table),
        checkpoint=checkpoint,
        lag=lag_of(checkpoint, status.snapshot.now),
        stored=table,
        read=read,
        status=told,
    )
