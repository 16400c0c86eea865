"""What the Spark job does without Spark: groups of files, and errors out of Spark's texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.errors import (
    LeaseLost,
    SparkUnavailable,
    StorageConsumerError,
    StorageUnavailable,
    TargetUnavailable,
)
from storage_consumer.model import DataFile, StoredObject, TableVersion
from storage_consumer.spark.job import LARGEST_GROUP, SMALLEST_GROUP, _ours, grouped
from storage_consumer.work import FileWork


def file(table: int, rank: int, size: int) -> FileWork:
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
    return FileWork(table=table, file=found, rank=rank, newest=False)


FILES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 64 << 20)), min_size=1, max_size=60).map(
    lambda sizes: [file(table, rank, size) for rank, (table, size) in enumerate(sizes)]
)


@given(FILES, st.integers(1, 16))
def test_groups(files: list[FileWork], cores: int) -> None:
    """Each file is in one group; groups are in order, none is empty, and none of several files is too large."""
    groups = grouped(files, cores)
    assert [work for group in groups for work in group] == sorted(files, key=lambda work: (work.table, work.rank))
    for group in groups:
        size = sum(work.file.stored.size for work in group)
        assert group
        assert len(group) == 1 or size <= LARGEST_GROUP


def test_small_files_share_a_task() -> None:
    """Many tiny files are few tasks; with more bytes all cores have work."""
    assert len(grouped([file(0, n, 100) for n in range(1000)], 4)) == 1
    assert len(grouped([file(0, n, SMALLEST_GROUP) for n in range(64)], 4)) >= 8


JAVA = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times, most recent failure: {}
\tat org.apache.spark.api.python.BasePythonRunner.apply(PythonRunner.scala:763)
Caused by: java.io.EOFException
\t... 22 more
"""
PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/storage_consumer/target/writer.py", line 1, in _recover
    raise translated(fault, doing)
{}
"""


@pytest.mark.parametrize("kind", [LeaseLost, StorageUnavailable, TargetUnavailable])
def test_our_errors_come_back(kind: type[StorageConsumerError]) -> None:
    """An error of ours that a task raised is the same error here, colons included."""
    found = _ours(Exception(PYTHON.format(f"{kind.__module__}.{kind.__name__}: writing a.b: error 2013: Lost")))
    assert type(found) is kind
    assert str(found) == "writing a.b: error 2013: Lost"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PYTHON.format("ValueError: no such thing"), "the Spark job failed: ValueError: no such thing"),
        (JAVA.format("Lost task 0.0: worker crashed"), "the Spark job failed: Lost task 0.0: worker crashed"),
        ("", "the Spark job failed: Exception"),
        ("\tat a.b(c)\n", "the Spark job failed: at a.b(c)"),
    ],
)
def test_other_errors_say_what_happened(text: str, said: str) -> None:
    """Of any other failure the line that says most is given."""
    found = _ours(Exception(text))
    assert type(found) is StorageConsumerError
    assert str(found) == said


@pytest.mark.parametrize(
    "account",
    [
        "Lost task 1.0 in stage 3.0 (TID 5) (driver): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).",
        "Lost task 0.3 in stage 1.0 (TID 9): ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
    ],
)
def test_lost_process(account: str) -> None:
    """A worker or executor that is gone may be there again at the next try; the error says what mostly ends them."""
    found = _ours(Exception(JAVA.format(account)))
    assert type(found) is SparkUnavailable
    assert account in str(found)
    assert "memory" in str(found)
