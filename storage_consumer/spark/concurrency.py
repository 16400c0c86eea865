"""How many tasks write at once. Each has one connection, and the target is to bear no more of them than was told."""

from __future__ import annotations

import time
from itertools import pairwise

from pyspark import SparkContext

_PATIENCE = 10.0
"""Seconds for which tasks that were called off are waited for; Spark itself ends their processes after two."""
_LOOK_UP = 0.1


def turns(context: SparkContext, partitions: int, worker_count: int) -> list[range]:
    """Write partitions that may be written side by side, one turn after the other.

    A single process with no more cores than `worker_count` cannot run more tasks than that; a cluster may have any number of
    cores, and get more in the middle of a job. Of each turn every task may have one copy where Spark makes copies of slow
    tasks, but it makes none of a task that is alone.
    """
    if is_one_process(context) and context.defaultParallelism <= worker_count:
        return [range(partitions)]
    copies = context.getConf().get("spark.speculation", "false") == "true"
    most = max(1, worker_count // 2) if copies else worker_count
    return spread(partitions, most)


def spread(partitions: int, most: int) -> list[range]:
    """The partitions in as few turns as there can be of at most so many each, all of about the same size."""
    count = -(-partitions // most)
    edges = [partitions * turn // count for turn in range(count + 1)]
    return [range(low, high) for low, high in pairwise(edges)]


def is_one_process(context: SparkContext) -> bool:
    """Whether tasks run in the driver's own JVM."""
    return one_process(context.master or "")


def one_process(master: str) -> bool:
    """Whether tasks run in the driver's own JVM, where this is Spark's master."""
    return master == "local" or master.startswith("local[")


def let_end(context: SparkContext) -> None:
    """Wait until no task runs any more, so that those of a job that failed do not write beside those of the next one."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and _running(context):
        time.sleep(_LOOK_UP)


def _running(context: SparkContext) -> int:
    """Tasks that run now, on all executors."""
    executors = context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 - PySpark passes on no such question
    return sum(executor.numRunningTasks() for executor in executors)
