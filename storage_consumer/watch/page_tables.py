"""The list of tables: all that the state knows, filtered, sorted and cut into pages as the address of the page chooses; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args
from urllib.parse import quote, urlencode

from storage_consumer.model import TableName
from storage_consumer.plan.table_state import TableState
from storage_consumer.watch.health import lag_of
from storage_consumer.watch.recorder import TableRows
from storage_consumer.watch.snapshot import Table
from storage_consumer.watch.status import Status, TableStatus

Sort = Literal["state", "table", "checkpoint", "lag", "rows", "rate"]
SORTS: tuple[Sort, ...] = get_args(Sort)
RANGES = (1, 6, 24)
"""Hours that the plots can show."""
STATES = (
    *(TableState.HALTED, TableState.PAUSED, TableState.WAITING, TableState.LOADING, TableState.RUNNING),
    *(TableState.SKIPPED, TableState.EXCLUDED, TableState.DROPPED),
)
"""States by which tables are filtered, in their order on the page."""
_HOURS = 6
_LONGEST = 200
"""Characters of a search that are used."""
_MANY = 1_000_000
RELOAD = 10
"""Seconds between two loads of a page that reloads itself without JavaScript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewerQuery:
    """The choice of a viewer."""

    state: str = ""
    """A member of `STATES`; empty for all but dropped tables."""
    q: str = ""
    """Part of a table's name."""
    sort: Sort = "state"
    desc: bool = False
    page: int = 1
    hours: int = _HOURS
    reload: bool = False
    """Whether a browser without JavaScript is to load the page again and again."""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> ViewerQuery:
        """Return the choice in an address. Anything that is none counts as not given."""
        sort, state, hours = (parameters.get(name, "") for name in ("sort", "state", "hours"))
        return cls(
            state=state if state in STATES else "",
            q=parameters.get("q", "").strip()[:_LONGEST],
            sort=next((each for each in SORTS if each == sort), "state"),
            desc=parameters.get("desc") == "1",
            page=_number(parameters.get("page", "")),
            hours=int(hours) if hours in map(str, RANGES) else _HOURS,
            reload=parameters.get("reload") == "1",
        )

    def changed(self, **chosen: Any) -> ViewerQuery:
        """Return another choice; it begins on its first page, unless that is what is chosen."""
        return replace(self, **{"page": 1, **chosen})

    def parameters(self) -> dict[str, str]:
        """Return name → value of what is not as it is by itself."""
        plain = ViewerQuery()
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: str(int(value) if isinstance(value, bool) else value)
            for name, value in found.items()
            if value != getattr(plain, name)
        }

    def link(self, **chosen: Any) -> str:
        """Return the address of the same page with another choice."""
        return f"?{urlencode(self.changed(**chosen).parameters())}"


def table_path(name: TableName) -> str:
    """Return the path of a table's page, as a route below ``/`` takes it."""
    return f"tables/{quote(str(name), safe='')}"


def _number(text: str) -> int:
    return min(_MANY, max(1, int(text))) if text.isascii() and text.isdigit() and len(text) < len(str(_MANY)) else 1


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
    told, snapshot, found = {table.name: table for table in status.tables}, status.snapshot, []
    for table in snapshot.tables:
        said = told.get(table.name)
        state, checkpoint = (said.state, said.checkpoint) if said else (snapshot.shown(table), snapshot.reached(table))
        found.append(
            Row(
                name=table.name,
                shown=str(table.name),
                state=state,
                checkpoint=checkpoint,
                lag=lag_of(checkpoint, snapshot.now),
                stored=table,
                read=read.get(str(table.name)),
                status=said,
            )
        )
    return tuple(sorted(found, key=lambda row: row.shown))


def listed(rows: Sequence[Row], query: ViewerQuery) -> Listing:
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


_KEYS = {
    "state": lambda row: _ORDER[row.state],
    "table": lambda row: row.shown,
    "checkpoint": lambda row: row.checkpoint,
    # One without a checkpoint is behind all others.
    "lag": lambda row: float("inf") if row.lag is None else row.lag,
    "rows": lambda row: row.read.rows if row.read else 0,
    "rate": lambda row: (row.read.per_second or 0.0) if row.read else 0.0,
}
