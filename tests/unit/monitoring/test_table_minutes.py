"""Rows per minute of single tables, in bounded memory."""

from __future__ import annotations

from storage_consumer.monitoring.table_minutes import KEPT, MOST_TABLES, TableMinute, TableMinutes
from storage_consumer.summary import TableSummary

NOW = 1_790_000_000.0


def rounds(kept: TableMinutes, now: float, *tables: str, rows: int = 1) -> None:
    """End a round that read rows of each table."""
    kept.add(now, [TableSummary(table=table, rows=rows, ddls=1, checkpoint=int(now)) for table in tables])


def test_rounds_of_a_minute_add_up() -> None:
    """A minute holds all rounds that ended in it, and the last checkpoint; a table without work has no minute."""
    kept = TableMinutes()
    begin = NOW // 60 * 60
    for seconds, rows in ((1, 5), (59, 7), (60, 11)):
        rounds(kept, begin + seconds, "d.a", rows=rows)
    kept.add(begin + 61, [TableSummary(table="d.b", checkpoint=9)])
    first = int(begin) // 60
    assert kept.of("d.a", begin + 61) == (
        TableMinute(minute=first, rows=12, statements=2, checkpoint=int(begin) + 59),
        TableMinute(minute=first + 1, rows=11, statements=1, checkpoint=int(begin) + 60),
    )
    assert (kept.of("d.b", begin), kept.of("d.c", begin)) == ((), ())


def test_only_the_last_hour() -> None:
    """Older minutes are neither kept nor shown."""
    kept = TableMinutes()
    for minute in range(2 * KEPT):
        rounds(kept, NOW + 60 * minute, "d.a")
    assert len(kept.of("d.a", NOW + 60 * (2 * KEPT - 1))) == KEPT
    assert kept.of("d.a", NOW + 60 * 3 * KEPT) == ()


def test_bounded_number_of_tables() -> None:
    """Tables beyond the bound have no minutes, until others have had nothing to do for an hour."""
    kept = TableMinutes()
    rounds(kept, NOW, *(f"d.t{n}" for n in range(MOST_TABLES)))
    rounds(kept, NOW + 60, "d.new", "d.t1")
    assert (kept.of("d.new", NOW + 60), len(kept.of("d.t1", NOW + 60))) == ((), 2)
    rounds(kept, NOW + 60 * KEPT, "d.new")
    assert len(kept.of("d.new", NOW + 60 * KEPT)) == 1
    assert kept.of("d.t0", NOW + 60 * KEPT) == ()
    assert len(kept.of("d.t1", NOW + 60 * KEPT)) == 1
