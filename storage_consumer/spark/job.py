"""One wave's rows as one Spark job. No rule of its own: both halves are in pipeline.py, between them lies a shuffle.

Order is carried in the items, never by partitions or arrival, so the result is the same on one core and on many machines.
File systems and connections are built in the worker; the broadcast holds no secret.
"""

from __future__ import annotations

import gc
import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from storage_consumer.buffer import Place
from storage_consumer.config.secrets_file import secrets_from
from storage_consumer.config.settings import Tuning
from storage_consumer.decoding import decoder_for
from storage_consumer.errors import (
    Abandoned,
    ConfigError,
    LeaseLost,
    SparkUnavailable,
    StorageConsumerError,
    StorageUnavailable,
    TargetUnavailable,
)
from storage_consumer.pipeline import READ_BLOCK, FileReport, WriteReport, read_files, write_bucket
from storage_consumer.spark.session import open_session
from storage_consumer.storage.fsspec_storage import open_storage
from storage_consumer.summary import Progress
from storage_consumer.target.writer import TargetWriter
from storage_consumer.telemetry import Log
from storage_consumer.work import FileWork, JobSpec

_log = Log("spark")
SMALLEST_GROUP, LARGEST_GROUP = 1 << 20, 48 << 20
"""Bytes of files that one task reads."""
_TICK = 0.5
_FAILURES: dict[str, type[StorageConsumerError]] = {
    c.__name__: c for c in (ConfigError, LeaseLost, StorageUnavailable, TargetUnavailable)
}
_LOST_PROCESS = re.compile(
    r"Python worker (?:exited unexpectedly|failed to connect back)|ExecutorLostFailure|FetchFailed"
)
"""How Spark says that a worker or executor is gone."""


class SparkPipeline:
    """Runs jobs in one SparkContext."""

    def __init__(self, session: SparkSession, *, owned: bool) -> None:
        """`owned`: the session is ours to stop."""
        self._session = session
        self._owned = owned
        self._context: SparkContext = session.sparkContext
        self.cores: int = self._context.defaultParallelism
        self._abandoned = False
        self._tag = f"storage-consumer-{uuid.uuid4().hex}"

    @classmethod
    def open(cls, tuning: Tuning) -> SparkPipeline:
        """In the active session, or in a local one of our own."""
        began = time.monotonic()
        session, owned = open_session(tuning)
        context = session.sparkContext
        _log.info(
            "spark_started",
            version=context.version,
            master=context.master,
            seconds=round(time.monotonic() - began, 1),
            reused=not owned,
        )
        return cls(session, owned=owned)

    def cancel(self) -> None:
        """Give up the running job, and start no other."""
        self._abandoned = True
        self._context.cancelJobsWithTag(self._tag)

    def close(self) -> None:
        """Stop the session if it is ours."""
        if self._owned:
            self._session.stop()

    def run(self, spec: JobSpec, files: Sequence[FileWork], progress: Progress) -> list[FileReport | WriteReport]:
        """Read, decode, order and write; the reports of all files and of all tables in all buckets.

        Raises `ConfigError`, `LeaseLost`, `StorageUnavailable` or `TargetUnavailable` where a task did, `SparkUnavailable` where
        one was lost, and `Abandoned` after `cancel`.
        """
        if self._abandoned:
            raise Abandoned
        context = self._context
        shared = context.broadcast(spec)
        files_read, rows_read = context.accumulator(0), context.accumulator(0)

        def read(group: Iterable[list[FileWork]]) -> Iterator[tuple[Place, Any]]:
            for place, item in _read(shared.value, [work for works in group for work in works]):
                if isinstance(item, FileReport):
                    files_read.add(1)
                    rows_read.add(item.applied)
                yield place, item

        def write(partition: int, items: Iterable[tuple[Place, Any]]) -> Iterator[FileReport | WriteReport]:
            return _write(shared.value, partition, items)

        groups = grouped(files, self.cores)
        told = _Told(progress, files_read, rows_read)
        context.addJobTag(self._tag)
        try:
            reports: list[FileReport | WriteReport] = (
                context.parallelize(groups, len(groups))
                .mapPartitions(read)
                .repartitionAndSortWithinPartitions(spec.partitions, lambda place: place[0])
                .mapPartitionsWithIndex(write)
                .collect()
            )
        except (Py4JError, PySparkException) as fault:
            raise self._meant(fault) from fault
        finally:
            context.removeJobTag(self._tag)
            told.stop()
            shared.destroy()
        return reports

    def _meant(self, fault: Exception) -> StorageConsumerError:
        """What the failure of a job means."""
        return Abandoned() if self._abandoned else _ours(fault)


class _Told:
    """Tells the progress of a running job from its accumulators."""

    def __init__(self, progress: Progress, files: Any, rows: Any) -> None:
        self._progress, self._files, self._rows = progress, files, rows
        self._seen = (0, 0)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="job-progress", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(_TICK):
            self._tell()

    def _tell(self) -> None:
        now = (self._files.value, self._rows.value)
        if now != self._seen:
            self._progress.advanced(files=now[0] - self._seen[0], rows=now[1] - self._seen[1])
            self._seen = now

    def stop(self) -> None:
        """Tell the rest."""
        self._end.set()
        self._thread.join()
        self._tell()


def grouped(files: Sequence[FileWork], cores: int) -> list[list[FileWork]]:
    """Files in groups of about equal bytes, neighbours together; small files share a group, so that a task pays off."""
    total = sum(work.file.stored.size for work in files)
    goal = min(LARGEST_GROUP, max(SMALLEST_GROUP, total // (3 * cores)))
    groups: list[list[FileWork]] = [[]]
    size = 0
    for work in sorted(files, key=lambda w: (w.table, w.rank)):
        if groups[-1] and size + work.file.stored.size > goal:
            groups.append([])
            size = 0
        groups[-1].append(work)
        size += work.file.stored.size
    return groups


def _read(spec: JobSpec, files: Sequence[FileWork]) -> Iterator[tuple[Place, Any]]:
    """The first half, in a worker."""
    _shorten_collection()
    storage = open_storage(spec.upstream, secrets_from(spec.secrets_file))
    tables = {table.index: table for table in spec.tables}
    decoder = decoder_for(spec.upstream)
    yield from read_files(files, tables, spec.partitions, lambda path: storage.blocks(path, READ_BLOCK), decoder)


def _write(spec: JobSpec, partition: int, items: Iterable[tuple[Place, Any]]) -> Iterator[FileReport | WriteReport]:
    """The second half, in a worker."""
    _shorten_collection()
    writer = TargetWriter(spec, secrets_from(spec.secrets_file).password, partition)
    try:
        yield from write_bucket(items, {table.index: table for table in spec.tables}, writer)
        writer.finish()
    finally:
        writer.close()


def _shorten_collection() -> None:
    """Take what this worker has loaded so far out of the search for reference cycles.

    PySpark searches everything after each task that a reused worker has done, which takes a tenth of the workers' CPU time;
    modules are not going away. Done once in each worker, so later cycles are found as ever.
    """
    if not gc.get_freeze_count():
        gc.freeze()


def _ours(fault: BaseException) -> StorageConsumerError:
    """The error that a task raised, from the text that Spark carries it in."""
    text = str(fault)
    for line in reversed(text.splitlines()):
        name, _, message = line.strip().partition(": ")
        if known := _FAILURES.get(name.rpartition(".")[2]):
            return known(message)
    message = f"the Spark job failed: {_gist(text) or type(fault).__name__}"
    if _LOST_PROCESS.search(text):
        return SparkUnavailable(
            f"{message} (a worker or executor was killed, most often for want of memory: give it more, more --partitions, or "
            "fewer cores in --spark-master)"
        )
    return StorageConsumerError(message)


def _gist(text: str) -> str:
    """The line of Spark's text that says most: the end of a Python traceback, else Spark's own account of the last failure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and not lines[-1].startswith(("at ", "...", "Caused by:")):
        return lines[-1]
    accounts = [line.partition("most recent failure: ")[2] for line in lines]
    return next(filter(None, [*accounts, *lines]), "")
