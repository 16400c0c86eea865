"""Which tables get series of their own, and what these show. The others are summed up, so that a scrape stays small.

Halted tables come first, then those that wait, then those with most rows. Which ones these are changes; no counter goes back by that:
the rows of a table count where the table stands when they are first seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import nlargest

from storage_consumer.model import physical_ms
from storage_consumer.monitoring.metric_table import OTHERS
from storage_consumer.monitoring.tally import Facts
from storage_consumer.summary import RoundSummary, TableSummary

_FIRST = {"halted": 2, "waiting": 1}


class TableSeries:
    """The values by table. Not for several threads at once."""

    def __init__(self, most: int) -> None:
        """At most `most` tables get series of their own."""
        self._most = most
        self._seen: dict[str, int] = {}
        """Table → rows that are counted."""
        self._rows = Counter[str]()
        """Label → rows."""
        self._last: RoundSummary | None = None
        self._labels: frozenset[str] = frozenset()
        """Tables with series of their own as of that round."""

    def values(self, facts: Facts) -> dict[str, Mapping[str, float]]:
        """Return name of a metric → label → value."""
        last, rows = facts.last, facts.tally.table_rows
        # Nothing of this changes between rounds, and to choose among thousands of tables is most of the work.
        if last is not self._last:
            self._last, self._labels = last, self._named(last, rows)
            self._count(self._labels, rows)
        named = self._labels
        checkpoints = _checkpoints(last, named)
        halted = (table.table for table in last.halted if table.table in named)
        # Tables that lost their series keep what they had: it is shown again, and goes on from there, once they are back.
        shown = {name: float(self._rows[name]) for name in named if name in rows}
        return {
            "table_halted": dict.fromkeys(halted, 1.0),
            "table_quarantined_rows": _by_label(last.quarantined, named),
            "table_checkpoint_timestamp_seconds": checkpoints,
            "table_lag_seconds": {name: max(0.0, facts.now - at) for name, at in checkpoints.items()},
            "table_rows_total": shown | {OTHERS: float(self._rows[OTHERS])},
        }

    def _named(self, last: RoundSummary, rows: Mapping[str, int]) -> frozenset[str]:
        first = {table.table: _FIRST.get(table.state, 0) for table in last.tables}
        every = rows.keys() | first.keys()
        return frozenset(nlargest(self._most, every, key=lambda name: (first.get(name, 0), rows.get(name, 0), name)))

    def _count(self, named: frozenset[str], rows: Mapping[str, int]) -> None:
        """Count the rows that are new since the last call."""
        for name, count in rows.items():
            if new := count - self._seen.get(name, 0):
                self._rows[name if name in named else OTHERS] += new
        self._seen = dict(rows)


def _by_label(rows: Mapping[str, int], named: frozenset[str]) -> dict[str, float]:
    found = Counter[str]()
    for name, count in rows.items():
        found[name if name in named else OTHERS] += count
    return {label: float(count) for label, count in found.items()}


def _checkpoints(last: RoundSummary, named: frozenset[str]) -> dict[str, float]:
    """Return label → time of the checkpoint; a table that did nothing in the last round is as far as the running ones."""
    by_name: dict[str, TableSummary] = {table.table: table for table in last.tables}
    found = {}
    for name in named:
        tso = by_name[name].checkpoint if name in by_name else last.checkpoint_running
        if tso:
            found[name] = physical_ms(tso) / 1000
    rest = [table.checkpoint for table in last.tables if table.table not in named and table.checkpoint]
    if not rest and sum(last.states.values()) <= len(named):
        return found
    if lowest := min(rest, default=last.checkpoint_running):
        found[OTHERS] = physical_ms(lowest) / 1000
    return found
