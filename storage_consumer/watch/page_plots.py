"""Plots: the course of lags and rates as paths of an SVG, with the texts of their axes; pure.

A plot is `WIDTH` by `HEIGHT` units, which the page stretches. Its texts stand beside it, so that they stay readable at any width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10

from storage_consumer.clock import span
from storage_consumer.telemetry import utc_time
from storage_consumer.watch.health import lag_of
from storage_consumer.watch.recorder import KEPT
from storage_consumer.watch.report import Minute
from storage_consumer.watch.snapshot import ShownEntry

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
        """Return where a minute begins, in units from the left; what lies outside is at the border."""
        return min(WIDTH, max(0.0, WIDTH * (1 - (self.now - minute * _MINUTE) / self.seconds)))

    def labels(self) -> tuple[str, ...]:
        """Return times of day (UTC) at equal distances, the last one `now`; with seconds where they would not differ else."""
        end = _TO_SECONDS if self.seconds < _SHORT else _TO_MINUTES
        moments = (self.now - self.seconds * (1 - place / _X_LABELS) for place in range(_X_LABELS + 1))
        return tuple(utc_time(each)[11:end] for each in moments)


def _window(now: float, seconds: float, first: float | None) -> _Window:
    """Return the last `seconds`, or what there is since `first`; a minute at least."""
    return _Window(now, seconds if first is None else min(seconds, max(float(_MINUTE), now - first)))


def _hours(minutes: Sequence[Minute], now: float, hours: int) -> _Window:
    return _window(now, hours * 3600.0, minutes[0].minute * _MINUTE if minutes else None)


def lag_plot(minutes: Sequence[Minute], now: float, hours: int) -> Plot:
    """Return how far checkpoints lay back over the last `hours`, or as long as is known; of several minutes in one point the worst counts."""
    window = _hours(minutes, now, hours)

    def points(of: Callable[[Minute], int]) -> list[_Point]:
        lags = ((each.minute, lag_of(of(each), min(now, (each.minute + 1) * _MINUTE))) for each in minutes)
        return _joined(((minute, lag) for minute, lag in lags if lag is not None), window.step, max)

    found = {
        ("all", "all tables"): points(lambda each: each.checkpoint),
        ("running", "without stopped tables"): points(lambda each: each.checkpoint_running),
        ("source", "at source"): points(lambda each: each.storage_checkpoint),
    }
    top = _top_of_time(max((value for line in found.values() for _, value in line), default=0))
    return Plot(
        name="lag",
        title="Lag",
        description=_said("The lag of all tables", found["all", "all tables"], span, window),
        lines=tuple(
            Line(name=name, label=label, path=_line(line, window, top)) for (name, label), line in found.items()
        ),
        y_labels=(span(top), span(top / 2) if top > 1 else "", "0s"),
        x_labels=window.labels(),
    )


def rate_plot(minutes: Sequence[Minute], now: float, hours: int) -> Plot:
    """Return the row changes a second over the last `hours`, or as long as is known."""
    window = _hours(minutes, now, hours)
    rates = [(each.minute, each.row_changes / min(_MINUTE, max(1, now - each.minute * _MINUTE))) for each in minutes]
    bars = _joined(rates, window.step, lambda values: sum(values) / len(values))
    return _bar_plot("rate", "Row changes per second", bars, window)


def table_plot(minutes: Mapping[int, int], statements: Sequence[ShownEntry], now: float, since: float) -> Plot:
    """Return the row changes of one table in each minute of the last hour, and where its statements ended.

    `since`: when the process started, which knows of no minute before that.
    """
    window = _window(now, KEPT * 60.0, since)
    ended = (WIDTH * (1 - each.ended_ago / window.seconds) for each in statements if each.ended_ago is not None)
    marks = tuple(round(place, 1) for place in ended if 0 <= place <= WIDTH)
    return replace(_bar_plot("table", "Row changes per minute", sorted(minutes.items()), window), marks=marks)


def _bar_plot(name: str, title: str, bars: Sequence[_Point], window: _Window) -> Plot:
    top = _top(max((value for _, value in bars), default=0))
    return Plot(
        name=name,
        title=title,
        description=_said(title, bars, short, window),
        lines=(Line(name="rows", label="read", path=_bars(bars, window, top)),),
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


def _bars(points: Sequence[_Point], window: _Window, top: float) -> str:
    """Return a bar for each point above zero."""
    step, path = window.step, []
    for minute, value in points:
        left, right = window.across(minute), window.across(minute + step)
        if right > 0 and value > 0:
            path.append(f"M{left:.1f} {HEIGHT}V{_up(value, top):.1f}H{right:.1f}V{HEIGHT}Z")
    return "".join(path)


def _up(value: float, top: float) -> float:
    return HEIGHT * (1 - min(1.0, value / top))


def _top(most: float) -> float:
    """Return the end of an axis: the next of 1, 2, 4, 6, 8 and 10 times a power of ten."""
    if most <= 1:
        return 1.0
    power = 10.0 ** floor(log10(most))
    return next(power * step for step in (1, 2, 4, 6, 8, 10) if power * step >= most)


def _top_of_time(most: float) -> float:
    """Return the end of an axis of seconds."""
    days = 2 * 86_400
    return next((float(each) for each in _SECONDS if each >= most), float(ceil(most / days) * days))


def _said(what: str, points: Sequence[_Point], shown: Callable[[float], str], window: _Window) -> str:
    """Return a plot in a sentence."""
    over = f"the last {span(window.seconds)}"
    if not points:
        return f"{what} over {over}: nothing is known."
    values = [value for _, value in points]
    return f"{what} over {over}: {shown(values[-1])} at last, {shown(min(values))} to {shown(max(values))}."
