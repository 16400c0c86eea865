"""What the status page shows: the chosen list of tables, and plots of lags and rates; pure.

A plot is `WIDTH` by `HEIGHT` units, which the page stretches. Its texts stand beside it, so that
they stay readable at any width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil, floor, log10
from typing import Any, Literal, get_args
from urllib.parse import quote, urlencode

from storage_consumer.clock import span
from storage_consumer.model import TableName
from storage_consumer.plan.table_state import TableState
from storage_consumer.telemetry import utc_time
from storage_consumer.watch.recorder import KEPT, TableRows
from storage_consumer.watch.report import Minute, ShownEntry, Table, lag_of
from storage_consumer.watch.status import Status, TableStatus

Sort = Literal["state", "table", "checkpoint", "lag", "rows", "rate"]
SORTS: tuple[Sort, ...] = get_args(Sort)
RANGES = (1, 6, 24)
"""Hours that the plots can show."""
STATES = (
    *(
        TableState.HALTED,
        TableState.PAUSED,
        TableState.WAITING,
        TableState.LOADING,
        TableState.RUNNING,
    ),
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
        sort, state, hours, page = (
            parameters.get(name, "") for name in ("sort", "state", "hours", "page")
        )
        is_number = page.isascii() and page.isdigit() and len(page) < len(str(_MANY))
        return cls(
            state=state if state in STATES else "",
            q=parameters.get("q", "").strip()[:_LONGEST],
            sort=next((each for each in SORTS if each == sort), "state"),
            desc=parameters.get("desc") == "1",
            page=max(1, int(page)) if is_number else 1,
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
        state, checkpoint = (
            (said.state, said.checkpoint)
            if said
            else (snapshot.shown(table), snapshot.reached(table))
        )
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


WIDTH, HEIGHT = 1000, 100
POINTS = 360
"""Most points of a line; minutes are put together where there are more."""
_MINUTE = 60
_SECONDS = (1, 2, 4, 10, 20, 60, 120, 240, 600, 1200, 3600, 7200, 14400, 43200, 86400)
"""Ends of an axis of time whose half is a plain duration too."""
_X_LABELS = 4
_SHORT = 600.0
"""Seconds of a plot below which its times have seconds."""
_TO_MINUTES, _TO_SECONDS = 16, 19
"""Where they end in a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line, or a set of bars."""

    name: str
    """Of its style, and in the legend."""
    label: str
    path: str
    """The attribute ``d``; empty if there is nothing to draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One plot."""

    name: str
    """Unique on its page."""
    title: str
    description: str
    """What it shows, in a sentence, for those who do not see it."""
    lines: tuple[Line, ...]
    y_labels: tuple[str, ...]
    """From the top, at equal distances."""
    x_labels: tuple[str, ...]
    """From the left, at equal distances."""
    marks: tuple[float, ...] = ()
    """Where statements ended, in units from the left."""


_Point = tuple[int, float]
"""A minute, with which a stretch begins, and the value of that."""


@dataclass(frozen=True, slots=True)
class _Window:
    """What a plot shows: from a moment, in seconds since 1970, until `now`."""

    now: float
    seconds: float

    @property
    def step(self) -> int:
        """How many minutes make one point."""
        return max(1, ceil(self.seconds / _MINUTE / POINTS))

    def across(self, minute: int) -> float:
        """Return where a minute begins, in units from the left, clamped to the borders."""
        return min(WIDTH, max(0.0, WIDTH * (1 - (self.now - minute * _MINUTE) / self.seconds)))

    def labels(self) -> tuple[str, ...]:
        """Return evenly spaced times of day (UTC) up to `now`, with seconds if else equal."""
        end = _TO_SECONDS if self.seconds < _SHORT else _TO_MINUTES
        moments = (
            self.now - self.seconds * (1 - place / _X_LABELS) for place in range(_X_LABELS + 1)
        )
        return tuple(utc_time(each)[11:end] for each in moments)


def _window(now: float, seconds: float, first: float | None) -> _Window:
    """Return the last `seconds`, or what there is since `first`; a minute at least."""
    return _Window(
        now, seconds if first is None else min(seconds, max(float(_MINUTE), now - first))
    )


def _hours(minutes: Sequence[Minute], now: float, hours: int) -> _Window:
    return _window(now, hours * 3600.0, minutes[0].minute * _MINUTE if minutes else None)


def lag_plot(minutes: Sequence[Minute], now: float, hours: int) -> Plot:
    """Return the lag over the last `hours`, as far as known; in shared points the worst."""
    window = _hours(minutes, now, hours)

    def points(of: Callable[[Minute], int]) -> list[_Point]:
        lags = (
            (each.minute, lag_of(of(each), min(now, (each.minute + 1) * _MINUTE)))
            for each in minutes
        )
        return _joined(((minute, lag) for minute, lag in lags if lag is not None), window.step, max)

    found = {
        ("all", "all tables"): points(lambda each: each.checkpoint),
        ("running", "without stopped tables"): points(lambda each: each.checkpoint_running),
        ("source", "at source"): points(lambda each: each.storage_checkpoint),
    }
    most, days = max((value for line in found.values() for _, value in line), default=0), 2 * 86_400
    top = next((float(each) for each in _SECONDS if each >= most), float(ceil(most / days) * days))
    return Plot(
        name="lag",
        title="Lag",
        description=_said("The lag of all tables", found["all", "all tables"], span, window),
        lines=tuple(
            Line(name=name, label=label, path=_line(line, window, top))
            for (name, label), line in found.items()
        ),
        y_labels=(span(top), span(top / 2) if top > 1 else "", "0s"),
        x_labels=window.labels(),
    )


def rate_plot(minutes: Sequence[Minute], now: float, hours: int) -> Plot:
    """Return the row changes a second over the last `hours`, or as long as is known."""
    window = _hours(minutes, now, hours)
    rates = [
        (each.minute, each.row_changes / min(_MINUTE, max(1, now - each.minute * _MINUTE)))
        for each in minutes
    ]
    bars = _joined(rates, window.step, lambda values: sum(values) / len(values))
    return _bar_plot("rate", "Row changes per second", bars, window)


def table_plot(
    minutes: Mapping[int, int], statements: Sequence[ShownEntry], now: float, since: float
) -> Plot:
    """Return a table's row changes per minute of the last hour, and ends of its statements.

    `since`: when the process started, which knows of no minute before that.
    """
    window = _window(now, KEPT * 60.0, since)
    ended = (
        WIDTH * (1 - each.ended_ago / window.seconds)
        for each in statements
        if each.ended_ago is not None
    )
    marks = tuple(round(place, 1) for place in ended if 0 <= place <= WIDTH)
    return replace(
        _bar_plot("table", "Row changes per minute", sorted(minutes.items()), window), marks=marks
    )


def _bar_plot(name: str, title: str, bars: Sequence[_Point], window: _Window) -> Plot:
    most = max((value for _, value in bars), default=0)
    # The axis ends at the next of 1, 2, 4, 6, 8 and 10 times a power of ten.
    power = 10.0 ** floor(log10(max(1, most)))
    top = next(power * step for step in (1, 2, 4, 6, 8, 10) if power * step >= most)
    path = []
    for minute, value in bars:
        left, right = window.across(minute), window.across(minute + window.step)
        if right > 0 and value > 0:
            high = _up(value, top)
            path.append(f"M{left:.1f} {HEIGHT}V{high:.1f}H{right:.1f}V{HEIGHT}Z")
    return Plot(
        name=name,
        title=title,
        description=_said(title, bars, short, window),
        lines=(Line(name="rows", label="read", path="".join(path)),),
        y_labels=(short(top), short(top / 2), "0"),
        x_labels=window.labels(),
    )


def short(number: float) -> str:
    """Return a number in at most five characters: ``0.5``, ``120``, ``1.5k``, ``20M``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def _joined(
    values: Iterator[tuple[int, float]] | Sequence[tuple[int, float]],
    step: int,
    of: Callable[[Sequence[float]], float],
) -> list[_Point]:
    """Return one point for each `step` minutes that have values."""
    together: dict[int, list[float]] = {}
    for minute, value in values:
        together.setdefault(minute // step * step, []).append(value)
    return [(minute, of(found)) for minute, found in sorted(together.items())]


def _line(points: Sequence[_Point], window: _Window, top: float) -> str:
    """Return a line that is interrupted where minutes are missing."""
    path, before, step = [], None, window.step
    for minute, value in points:
        left, right = window.across(minute), window.across(minute + step)
        if right <= 0:
            continue
        begins = before is None or minute - before > step
        high = _up(value, top)
        # A point of its own would not be seen, so that each has a piece as wide as its minutes.
        path.append(f"M{left:.1f} {high:.1f}H{right:.1f}" if begins else f"L{right:.1f} {high:.1f}")
        before = minute
    return "".join(path)


def _up(value: float, top: float) -> float:
    return HEIGHT * (1 - min(1.0, value / top))


def _said(
    what: str, points: Sequence[_Point], shown: Callable[[float], str], window: _Window
) -> str:
    """Return a plot in a sentence."""
    over = f"the last {span(window.seconds)}"
    if not points:
        return f"{what} over {over}: nothing is known."
    values = [value for _, value in points]
    return f"{what} over {over}: {shown(values[-1])} at last, {shown(min(values))} to {shown(max(values))}."
