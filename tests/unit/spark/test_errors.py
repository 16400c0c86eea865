"""Errors out of Spark's texts."""

from __future__ import annotations

import pytest

from storage_consumer.errors import (
    LeaseLost,
    SparkUnavailable,
    StorageConsumerError,
    StorageUnavailable,
    TargetUnavailable,
)
from storage_consumer.spark.executors import meaning_of

JAVA = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times, most recent failure: {}
\tat org.apache.spark.api.python.BasePythonRunner.apply(PythonRunner.scala:763)
Caused by: java.io.EOFException
\t... 22 more
"""
PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/storage_consumer/target/bucket_writer.py", line 1, in _recover
    raise translated(fault, doing)
{}
"""


@pytest.mark.parametrize("kind", [LeaseLost, StorageUnavailable, TargetUnavailable])
def test_our_errors_come_back(kind: type[StorageConsumerError]) -> None:
    """An error of ours that a task raised is the same error here, colons included."""
    found = meaning_of(Exception(PYTHON.format(f"{kind.__module__}.{kind.__name__}: writing a.b: error 2013: Lost")))
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
    found = meaning_of(Exception(text))
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
    found = meaning_of(Exception(JAVA.format(account)))
    assert type(found) is SparkUnavailable
    assert account in str(found)
    assert "memory" in str(found)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            PYTHON.format("OSError: [Errno 28] No space left on device: '/spark/pyspark-2/blocks-3/4'"),
            "make room",
        ),
        (JAVA.format("Lost task 0.0: java.io.IOException: No space left on device"), "make room"),
        (PYTHON.format("OSError: [Errno 122] Disk quota exceeded: '/spark/pyspark-2/blocks-3/4'"), "make room"),
        (
            PYTHON.format("FileNotFoundError: [Errno 2] No such file or directory: '/spark/pyspark-2/blocks-3/4'"),
            "nothing else cleans up",
        ),
    ],
)
def test_trouble_with_sparks_files(text: str, remedy: str) -> None:
    """Where the disk with Spark's files is full, or they are gone, the error says which one it is and what to do."""
    found = meaning_of(Exception(text))
    assert type(found) is StorageConsumerError
    assert remedy in str(found)
    assert "spark.local.dir" in str(found)


def test_full_disk_of_another() -> None:
    """A target whose disk is full is not taken for Spark's disk."""
    said = f"{TargetUnavailable.__module__}.TargetUnavailable: writing a.b: error 3: No space left on device"
    assert type(meaning_of(Exception(PYTHON.format(said)))) is TargetUnavailable
