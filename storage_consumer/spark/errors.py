"""Interpret the failure of a Spark job by the text in which Spark reports it."""

from __future__ import annotations

import re

from storage_consumer.errors import (
    ConfigError,
    LeaseLost,
    SparkUnavailable,
    StateGone,
    StorageConsumerError,
    StorageUnavailable,
    TargetUnavailable,
)
from storage_consumer.spark.blocks import FOLDER, REMOVED
from storage_consumer.spark.executors import misfit

_FAILURES: dict[str, type[StorageConsumerError]] = {
    c.__name__: c for c in (ConfigError, LeaseLost, StateGone, StorageUnavailable, TargetUnavailable)
}
_CAUSES: tuple[tuple[re.Pattern[str], type[StorageConsumerError], str], ...] = (
    (
        re.compile(r"No space left on device|Disk quota exceeded"),
        StorageConsumerError,
        (
            "the disk with Spark's files is full: make room there, or set SPARK_LOCAL_DIRS or spark.local.dir to a "
            "folder on a larger one"
        ),
    ),
    (
        re.compile(rf"No such file or directory: '[^']*/{FOLDER}"),
        StorageConsumerError,
        REMOVED,
    ),
    (
        re.compile(r"Python worker (?:exited unexpectedly|failed to connect back)|ExecutorLostFailure|FetchFailed"),
        SparkUnavailable,
        (
            "a worker or executor was killed, most often for lack of memory: give it more, more --partitions, or fewer "
            "cores in --spark-master"
        ),
    ),
)
"""What Spark reports if something around it is wrong, the error that this is to us, and the remedy."""


def meaning_of(fault: BaseException) -> StorageConsumerError:
    """Return the error that a task raised, from the text in which Spark carries it."""
    text = str(fault)
    # The last line that names an error of ours is the one that was raised: causes come first in a traceback.
    for line in reversed(text.splitlines()):
        name, _, message = line.strip().partition(": ")
        if known := _FAILURES.get(name.rpartition(".")[2]):
            return known(message)
    # None of ours: what the executors lack, then what happened around Spark, and last Spark's own words.
    if lack := misfit(text):
        return ConfigError(lack)
    message = f"the Spark job failed: {_gist(text) or type(fault).__name__}"
    for said, kind, remedy in _CAUSES:
        if said.search(text):
            return kind(f"{message} ({remedy})")
    return StorageConsumerError(message)


def _gist(text: str) -> str:
    """Return the most telling line of Spark's text: the end of a Python traceback, else Spark's own account of the last failure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and not lines[-1].startswith(("at ", "...", "Caused by:")):
        return lines[-1]
    accounts = [line.partition("most recent failure: ")[2] for line in lines]
    return next(filter(None, [*accounts, *lines]), "")
