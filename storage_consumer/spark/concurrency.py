"""Limit how many tasks write at a time: each has one connection, and the target gets at most --worker-count of them."""

from __future__ import annotations

import time
from itertools import pairwise

from pyspark import SparkContext

_PATIENCE = 10.0
"""Seconds to wait for cancelled tasks; Spark itself ends their processes after two."""
_LOOK_UP = 0.1


def turns(context: SparkContext, partitions: int, worker_count: int) -> list[range]:
    """Return the partitions that may be written side by side, one range per turn.

    A single process with at most `worker_count` cores cannot run more tasks than that. A cluster may have any number of
    cores, and get more in the middle of a job. If Spark copies slow tasks (speculation), every task of a turn may have
    one copy; it copies no task that is alone.
    """
    if is_one_process(context) and context.defaultParallelism <= worker_count:
        return [range(partitions)]
    # A copy writes as its original does, and needs a connection of its own.
    copies = context.getConf().get("spark.speculation", "false") == "true"
    most = max(1, worker_count // 2) if copies else worker_count
    return spread(partitions, most)


def spread(partitions: int, most: int) -> list[range]:
    """Return the partitions in as few turns as possible of at most `most` each, all of about the same size."""
    count = -(-partitions // most)
    edges = [partitions * turn // count for turn in range(count + 1)]
    return [range(low, high) for low, high in pairwise(edges)]


def is_one_process(context: SparkContext) -> bool:
    """Return whether tasks run in the driver's own JVM."""
    return one_process(context.master or "")


def one_process(master: str) -> bool:
    """Return whether tasks run in the driver's own JVM with this Spark master."""
    return master == "local" or master.startswith("local[")


def let_end(context: SparkContext) -> None:
    """Wait until no task runs, so that tasks of a failed job do not write alongside those of the next one; give up after `_PATIENCE`."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and _running(context):
        time.sleep(_LOOK_UP)


def _running(context: SparkContext) -> int:
    """Return the number of tasks that are running on all executors."""
    executors = context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 - PySpark has no such query
    return sum(executor.numRunningTasks() for executor in executors)
