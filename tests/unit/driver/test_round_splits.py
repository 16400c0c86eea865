"""Rounds whose files are read in parts: counted, reported and replaced as if they had not been cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from storage_consumer.errors import RowRefused
from storage_consumer.job.reports import FileReport, WriteReport, Written
from storage_consumer.job.spec import ByteRange, FileSplit, JobSpec, TablePlan
from storage_consumer.order.buffer import Place
from storage_consumer.order.keys import Run
from storage_consumer.pipeline import file_blocks, read_files, write_bucket
from storage_consumer.summary import Progress
from tests.harness.small_bucket import row
from tests.harness.twins.storage import MemoryPipeline
from tests.harness.twins.writer import FencedWriter
from tests.unit.driving import World, of, two_tables

ROWS = tuple(row("shop.a", 3, str(number), f'"{number}"') for number in range(2, 12))


class ChoosyWriter(FencedWriter):
    """A target that refuses one value."""

    def write_runs(self, work: TablePlan, ordered: Sequence[Run]) -> Written:
        """All rows, if that is not among them."""
        for line in (line for run in ordered for line in run.lines if b"refused" in line):
            raise RowRefused(f"{work.name}: no", line=line)
        return super().write_runs(work, ordered)


class CuttingPipeline(MemoryPipeline):
    """A job whose files are cut into parts of some bytes, each read by a task of its own."""

    def __init__(self, world: World, size: int, meanwhile: Callable[[], object] = int) -> None:
        """`meanwhile` is done once, when the first half of the parts was read."""
        super().__init__(world.bucket.storage, world.config.upstream, lambda spec: ChoosyWriter(world.records, spec))
        self._size, self._meanwhile = size, meanwhile
        self.jobs: list[int] = []
        """How many parts each job had."""

    def run(self, spec: JobSpec, files: Sequence[FileSplit], progress: Progress) -> list[FileReport | WriteReport]:  # noqa: ARG002 - nobody looks
        """Both halves."""
        parts = [part for work in files for part in self._cut(work)]
        self.jobs.append(len(parts))
        tables = {table.index: table for table in spec.tables}
        items: list[tuple[Place, Any]] = []
        for number, part in enumerate(parts):
            if number == len(parts) // 2 and len(self.jobs) == 1:
                self._meanwhile()
            items += read_files([part], tables, spec.partitions, partial(file_blocks, self._storage), self._decoder)
        items.sort(key=lambda item: item[0])
        buckets = [[item for item in items if item[0][0] == bucket] for bucket in range(spec.partitions)]
        return [report for items in buckets for report in write_bucket(items, tables, self._writer(spec))]

    def _cut(self, work: FileSplit) -> list[FileSplit]:
        if not work.splittable:
            return [work]
        borders = [*range(0, work.size, self._size), None]
        return [replace(work, span=ByteRange(start or 0, end)) for start, end in pairwise(borders)]


def in_parts(world: World, size: int, meanwhile: Callable[[], object] = int) -> CuttingPipeline:
    """Have a world's next process read files in parts."""
    world.pipeline = pipeline = CuttingPipeline(world, size, meanwhile)
    return pipeline


@pytest.fixture
def world() -> World:
    """Two tables with a row each, up to tick 3."""
    return two_tables()


def test_files_in_parts_are_counted_once(world: World) -> None:
    """A file that was read in parts counts as one, and its rows as if it had not been cut."""
    world.bucket.rows("shop.a", 2, *ROWS, row("shop.a", 9, "1", '"later"'))
    pipeline = in_parts(world, 60)
    summary = world.once()
    assert len(pipeline.jobs) == 1
    assert pipeline.jobs[0] > 8
    assert (summary.files, summary.written, summary.finished_files, summary.pending_files) == (3, 12, 0, 1)
    assert summary.skipped == {"row: beyond the storage checkpoint": 1}
    assert [r["id"] for r in world.rows("shop.a")] == sorted(str(number) for number in range(1, 12))


def test_file_that_is_replaced_while_it_is_read_in_parts(world: World) -> None:
    """Splits of two contents are no file: nothing of them is written, and the file is read whole as it is then."""
    world.bucket.rows("shop.a", 2, *ROWS)
    pipeline = in_parts(world, 100, lambda: world.bucket.rows("shop.a", 2, *ROWS, row("shop.a", 3, "99", '"new"')))
    summary = world.once()
    assert summary.halted == ()
    assert len(pipeline.jobs) == 2
    assert [r["id"] for r in world.rows("shop.a")] == sorted([*(str(number) for number in range(1, 12)), "99"])
    assert (summary.files, summary.rows) == (3, 13)


def test_file_that_is_replaced_by_a_shorter_one(world: World) -> None:
    """It has fewer bytes than were listed, as if it were cut short on its way: the round begins anew, and lists anew."""
    world.bucket.rows("shop.a", 2, *ROWS)
    pipeline = in_parts(world, 100, lambda: world.bucket.rows("shop.a", 2, *ROWS[:4], row("shop.a", 3, "99", '"new"')))
    summary = world.once()
    assert summary.halted == ()
    assert len(pipeline.jobs) == 3
    assert [r["id"] for r in world.rows("shop.a")] == ["1", "2", "3", "4", "5", "99"]


def test_file_that_vanishes_while_it_is_read_in_parts(world: World) -> None:
    """Its table waits, as for any file that vanished."""
    file = world.bucket.rows("shop.a", 2, *ROWS)
    path = file.relative_to(world.bucket.root).as_posix()
    pipeline = in_parts(world, 100, lambda: world.bucket.storage.delete(path))
    summary = world.once()
    assert len(pipeline.jobs) == 2
    assert "vanished" in of(summary, "shop.a").error
    assert (of(summary, "shop.a").state, world.rows("shop.a")) == ("waiting", [])


def test_torn_file_that_is_cut_elsewhere_each_time(world: World) -> None:
    """A table whose newest file ends inside a row waits, and halts after a while, however many parts the file has in each round."""
    world.bucket.rows("shop.a", 2, *ROWS)
    path = world.bucket.file("shop.a", 2).relative_to(world.bucket.root).as_posix()
    world.bucket.write(path, world.bucket.storage.read(path)[:-9])
    pipeline = in_parts(world, 60)
    service = world.service()
    first = service.run_once(world.stop)
    assert of(first, "shop.a").state == "waiting"
    assert "row 10 at byte" in of(first, "shop.a").error
    pipeline._size = 150
    world.clock.advance(61)
    second = service.run_once(world.stop)
    service.close()
    assert [t.table for t in second.halted] == ["shop.a"]
    assert pipeline.jobs[0] > pipeline.jobs[1] > 3


def test_row_of_a_part_that_the_target_refuses(world: World) -> None:
    """The error names the row by its number in the file, whichever part it was in."""
    world.bucket.rows("shop.a", 2, *ROWS[:7], row("shop.a", 3, "9", '"refused"'), *ROWS[8:])
    in_parts(world, 100)
    summary = world.once()
    assert "row 8 of shop/a/" in of(summary, "shop.a").error
    assert "CDC00000000000000000002.csv" in of(summary, "shop.a").error


def test_part_without_a_report(world: World) -> None:
    """A job that says nothing of one part is an error: the file is not taken for read."""
    world.bucket.rows("shop.a", 2, *ROWS)
    pipeline = in_parts(world, 100)
    run = pipeline.run
    pipeline.run = lambda *asked: [  # type: ignore[method-assign] # one that loses a report
        report for report in run(*asked) if not (isinstance(report, FileReport) and report.span.start == 200)
    ]
    with pytest.raises(RuntimeError, match=r"no report for shop/a/.*2\.csv"):
        world.once()
