"""Tables of which a bucket has few rows: written together, and each alone where the target refuses a row of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from storage_consumer.errors import RowRefused
from storage_consumer.model import TableName
from storage_consumer.rows.halves import FEW_ROWS, PlaceOf, write_bucket
from storage_consumer.rows.row_keys import Run
from storage_consumer.rows.row_order import Place
from storage_consumer.rows.spec import TablePlan, WriteReport, Written
from tests.harness.twins.storage import MemoryWriter
from tests.unit.halves import Files, row, table


class Refusing(MemoryWriter):
    """A target that refuses rows with one value, and tells how it was asked."""

    def __init__(self, refused: bytes) -> None:
        """Refuses this line."""
        super().__init__()
        self._refused = refused
        self.together: list[int] = []
        self.alone: list[int] = []

    def write_together(self, states: Sequence[tuple[TablePlan, Sequence[Run]]]) -> list[int]:
        """All or nothing."""
        self.together.append(len(states))
        for work, runs in states:
            self._look(work, runs)
        return [super(Refusing, self).write_runs(work, runs).rows for work, runs in states]

    def write_runs(self, work: TablePlan, ordered: Sequence[Run], place_of: PlaceOf | None = None) -> Written:
        """One table."""
        self.alone.append(work.index)
        self._look(work, ordered)
        return super().write_runs(work, ordered, place_of)

    def _look(self, work: TablePlan, runs: Sequence[Run]) -> None:
        if any(self._refused in run.lines for run in runs):
            raise RowRefused(f"{work.name}: the target refused it", line=self._refused)


def several(writer: MemoryWriter, counts: Sequence[int], *, serial: int = -1) -> list[WriteReport]:
    """Write so many rows of so many tables from one bucket; the table `serial` is one whose writers queue."""
    items: list[tuple[Place, Any]] = []
    works = {
        n: replace(table(index=n), has_other_unique_keys=n == serial, name=TableName(schema="shop", table=f"t{n}"))
        for n in range(len(counts))
    }
    for index, count in enumerate(counts):
        files = Files(works[index], partitions=1)
        files.add(*(row("I", 5, f"k{number:05d}", f"v{index}") for number in range(count)))
        items += files.read()
    found = write_bucket(iter(sorted(items, key=lambda item: item[0])), works, writer)
    return [report for report in found if isinstance(report, WriteReport)]


def test_tables_with_few_rows_are_written_together() -> None:
    """Tables with few rows share a transaction, one with many has its own, and so has one whose writers queue."""
    writer = Refusing(b"")
    reports = several(writer, [1, 2, FEW_ROWS, 3, 4], serial=3)
    assert writer.together == [3]
    assert writer.alone == [2, 3]
    assert {report.table: report.written for report in reports} == {0: 1, 1: 2, 2: FEW_ROWS, 3: 3, 4: 4}


def test_together_has_an_end() -> None:
    """What is written together stays small."""
    writer = Refusing(b"")
    several(writer, [FEW_ROWS // 2] * 5)
    assert writer.together == [2, 2]
    assert writer.alone == [4]


def test_refused_row_stops_its_own_table() -> None:
    """Where the target refuses a row of one of many tables, the others are written, and the error says which row it is (O12)."""
    writer = Refusing(b"k00001\tv1")
    reports = several(writer, [2, 3, 2])
    assert writer.together == [3]
    assert [(report.table, report.written) for report in reports] == [(0, 2), (1, 0), (2, 2)]
    assert [report.place and report.place.row for report in reports] == [None, 2, None]
    assert "shop.t1" in reports[1].error
