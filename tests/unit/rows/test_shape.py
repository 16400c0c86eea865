"""The shape of a wave's job and its files in groups: bounded by bytes, no more tasks than there is work for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.model import DataFile, StoredObject, TableVersion
from storage_consumer.rows.spec import (
    FILE_COST,
    LARGEST_GROUP,
    LARGEST_WHOLE,
    MOST_TASKS,
    SMALLEST_GROUP,
    JobFile,
    JobShape,
    by_tables,
    in_groups,
    shape,
)

MIB = 1 << 20


def file(table: int, rank: int, size: int) -> JobFile:
    """A file of some size."""
    found = DataFile(
        stored=StoredObject(path=f"s/t{table}/1/CDC{rank:020d}.csv", size=size, tag="1"),
        table_dir=f"s/t{table}",
        version=TableVersion(1),
        partition=None,
        date="",
        dispatcher="",
        number=rank,
        width=20,
    )
    return JobFile(table=table, file=found, rank=rank, newest=False)


FILES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 64 << 20)), min_size=1, max_size=60).map(
    lambda sizes: [file(table, rank, size) for rank, (table, size) in enumerate(sizes)]
)


@given(FILES, st.integers(1, 16))
def test_groups_of_files(files: list[JobFile], cores: int) -> None:
    """Each file is in one group of neighbours; none is empty, none of several files is too large, and the largest comes first."""
    groups = in_groups(files, cores)
    in_sequence = sorted(groups, key=lambda group: (group[0].table, group[0].rank))
    assert [work for group in in_sequence for work in group] == sorted(files, key=lambda work: (work.table, work.rank))
    sizes = [sum(max(FILE_COST, work.file.stored.size) for work in group) for group in groups]
    assert sizes == sorted(sizes, reverse=True)
    for group in groups:
        size = sum(work.file.stored.size for work in group)
        assert group
        assert len(group) == 1 or size <= LARGEST_GROUP


def test_small_files_share_a_task() -> None:
    """Many tiny files are few tasks, so many that all cores open files; with more bytes all cores have work."""
    assert len(in_groups([file(0, n, 100) for n in range(60)], 4)) == 1
    assert 4 <= len(in_groups([file(0, n, 100) for n in range(1000)], 4)) <= 16
    assert len(in_groups([file(0, n, SMALLEST_GROUP) for n in range(64)], 4)) >= 8


@given(FILES, st.integers(1, 8))
def test_groups_of_tables(files: list[JobFile], tasks: int) -> None:
    """There are as many groups as tasks, each file is in one, and all of a table in the same."""
    groups = by_tables(files, tasks)
    assert len(groups) == tasks
    assert sorted((w.table, w.rank) for group in groups for w in group) == sorted((w.table, w.rank) for w in files)
    homes = [{work.table for work in group} for group in groups]
    assert sum(map(len, homes)) == len({work.table for work in files})


def test_tables_are_spread_evenly() -> None:
    """Tasks get about the same to do."""
    groups = by_tables([file(table, 0, 10_000 * (table % 7)) for table in range(100)], 4)
    costs = [sum(max(FILE_COST, work.file.stored.size) for work in group) for group in groups]
    assert max(costs) - min(costs) <= 60_000


@pytest.mark.parametrize(
    ("tables", "files", "size", "expected"),
    [
        (1, 1, 1_000, JobShape(partitions=1, whole=True)),
        (10, 1, 1_000, JobShape(partitions=1, whole=True)),
        (200, 1, 1_000, JobShape(partitions=2, whole=True)),
        (1_000, 1, MIB, JobShape(partitions=63, whole=True)),
        (1, 1, MIB + 1, JobShape(partitions=2, whole=False)),
        (2, 65, 100, JobShape(partitions=2, whole=False)),
        (1, 64, 16 * MIB, JobShape(partitions=44, whole=False)),
        (1, 4_000, 64 * MIB, JobShape(partitions=MOST_TASKS, whole=False)),
    ],
)
def test_shapes(tables: int, files: int, size: int, expected: JobShape) -> None:
    """One stage where each table is small, in few tasks where all are; else buckets by bytes, as many for each core."""
    works = [file(table, rank, size) for table in range(tables) for rank in range(files)]
    assert shape(works, "csv", 2) == expected


def test_shape_that_was_asked_for() -> None:
    """A number of buckets that somebody asks for is one of buckets, however small the tables are."""
    assert shape([file(0, 0, 10)], "csv", 2, 5) == JobShape(partitions=5, whole=False)


@given(FILES, st.integers(1, 16), st.sampled_from(["csv", "canal-json"]))
def test_tasks_of_one_stage_hold_little(files: list[JobFile], cores: int, protocol: str) -> None:
    """A task that reads and writes holds no more than its share of bytes and one table more."""
    cut = shape(files, protocol, cores)  # type: ignore[arg-type] # one of both
    if cut.whole:
        for group in by_tables(files, cut.partitions):
            assert sum(work.file.stored.size for work in group) <= LARGEST_WHOLE + SMALLEST_GROUP
