"""What was done with each table in each of the last minutes, as far as this process knows; in memory only."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from storage_consumer.summary import TableSummary

KEPT = 60
"""Minutes that are kept of a table."""
MOST_TABLES = 500
"""Tables of which minutes are kept. A further one gets a place once another has had nothing to do for `KEPT` minutes."""
RATED = 5
"""Minutes over which the rate of a table is taken, the running one included."""
_MINUTE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Row changes of one table."""

    rows: int
    """Read since the process started."""
    per_second: float | None
    """Over the last `RATED` minutes; None for a table of which no minutes are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMinute:
    """What was done with one table in one minute; of minutes in which nothing was done there is none."""

    minute: int
    """Minutes since 1970-01-01 UTC."""
    rows: int
    """Row changes read."""
    statements: int
    checkpoint: int
    """Commit ts up to which the table was applied at the end, inclusive."""


class TableMinutes:
    """The last minutes of up to `MOST_TABLES` tables. Not for several threads at a time."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._kept: dict[str, deque[TableMinute]] = {}
        self._cleared = 0

    def add(self, now: float, tables: Iterable[TableSummary]) -> None:
        """Count what a round did that ended `now`, in seconds since 1970."""
        minute = int(now) // _MINUTE
        for table in tables:
            if not table.rows and not table.ddls:
                continue
            kept = self._place(table.table, minute)
            if kept is None:
                continue
            rows, statements = table.rows, table.ddls
            if kept and kept[-1].minute == minute:
                last = kept.pop()
                rows, statements = rows + last.rows, statements + last.statements
            kept.append(TableMinute(minute=minute, rows=rows, statements=statements, checkpoint=table.checkpoint))

    def of(self, table: str, now: float) -> tuple[TableMinute, ...]:
        """Return the minutes of a table in the last hour, the oldest first; none for a table that has no place."""
        first = int(now) // _MINUTE - KEPT
        return tuple(each for each in self._kept.get(table, ()) if each.minute > first)

    def rates(self, now: float, since: float) -> dict[str, float]:
        """Return table → row changes a second over the last `RATED` minutes, or since the process started, if that is later."""
        first = int(now) // _MINUTE - RATED + 1
        seconds = max(1.0, now - max(since, first * _MINUTE))
        return {
            name: sum(each.rows for each in kept if each.minute >= first) / seconds for name, kept in self._kept.items()
        }

    def _place(self, table: str, minute: int) -> deque[TableMinute] | None:
        """Return where the minutes of a table are kept; None if there is no place for one more table."""
        if table in self._kept:
            return self._kept[table]
        if len(self._kept) >= MOST_TABLES and self._cleared != minute:
            self._cleared = minute
            self._kept = {name: kept for name, kept in self._kept.items() if kept[-1].minute > minute - KEPT}
        if len(self._kept) >= MOST_TABLES:
            return None
        return self._kept.setdefault(table, deque(maxlen=KEPT))
