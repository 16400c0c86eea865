"""Run a wave's rows as one Spark job: both halves of `rows.halves`, with or without a shuffle.

Order is carried in the items, never by partitions or arrival, so the result is the same on one core
and on many machines. File systems and connections are opened in the worker; what is sent there
holds no secret.

Blocks of changes go from one half to the other through Spark, or past it in files. Through Spark a
block is pickled, sent to the JVM through a socket, written to a file, read from it, and sent to the
other worker through a socket again. If all workers are on one machine, one writes a file and the
other reads it, and Spark gets the places only.

The receiver sorts blocks by place. Those that came through Spark it holds itself, the large ones in
a file, so that memory is left for what becomes of them. Spark's own sort compresses what does not
fit in memory, keeps the rest until the task ends, and goes by the memory of the whole process:
storing and fetching a third of 330 MB took it 3 s of CPU.
"""

from __future__ import annotations

import errno
import gc
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from storage_consumer.bucket.storage import ReadAhead
from storage_consumer.config.private_files import secrets_from
from storage_consumer.config.settings import Secrets, Tuning, Upstream
from storage_consumer.decode import decoder_for
from storage_consumer.errors import Abandoned, SparkUnavailable, StorageConsumerError
from storage_consumer.rows.halves import (
    file_blocks,
    in_order,
    object_of,
    read_files,
    write_bucket,
)
from storage_consumer.rows.row_order import Place
from storage_consumer.rows.spec import (
    FileReport,
    JobFile,
    JobSpec,
    WriteReport,
    by_tables,
    in_groups,
)
from storage_consumer.spark.executors import (
    FOLDER,
    REMOVED,
    at_executor,
    meaning_of,
    opened,
    see_packages,
    ship,
    travelling,
)
from storage_consumer.spark.spark_session import (
    answers,
    close_session,
    is_one_process,
    let_end,
    open_session,
    turns,
)
from storage_consumer.summary import Progress
from storage_consumer.target.bucket_writer import TargetWriter
from storage_consumer.telemetry import Log


class _Stored(NamedTuple):
    """Where a block is."""

    file: str | int
    """Its path, or the number under which this process has it open."""
    start: int
    size: int


@contextmanager
def between_halves(context: SparkContext) -> Iterator[str]:
    """Yield the folder for a job's blocks, removed afterwards; empty if they go through Spark.

    There is a folder only if Spark is one process, and so on one machine: on a cluster no task
    could rely on the files of another. It is inside Spark's own temporary folder, which the JVM
    removes when it ends, also after the driver was killed. Raises `StorageConsumerError` if it
    cannot be created.
    """
    if not is_one_process(context):
        yield ""
        return
    try:
        # `mkdtemp` lets only this user in: the folder will hold rows. It lies where PySpark itself
        # puts files for the JVM.
        folder = tempfile.mkdtemp(prefix=FOLDER, dir=context._temp_dir)  # noqa: SLF001 - see above
    except OSError as fault:
        message = f"no folder for the blocks of a job could be created in Spark's temporary folder: {fault}"
        if isinstance(fault, FileNotFoundError):
            message += f" ({REMOVED})"
        raise StorageConsumerError(message) from fault
    try:
        yield folder
    finally:
        # Renaming is atomic, removing is not: a late task must not add a file to a folder that is
        # being emptied. What cannot be removed the JVM removes when it ends; what is reported is
        # the outcome of the job.
        gone = Path(folder).with_name(f"{uuid.uuid4().hex}.gone")
        with suppress(OSError):
            Path(folder).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)


def sent(items: Iterable[tuple[Place, Any]], folder: str) -> Iterator[tuple[Place, Any]]:
    """Yield the items that a task of the first half gives to Spark. `folder`: see `between_halves`.

    With a folder, blocks are replaced by their places in a file of this task alone, which is
    complete once the task has ended. Raises `OSError` if a block cannot be written.
    """
    if not folder:
        yield from items
        return
    # No locks: each attempt of a task writes a new file, and Spark passes on the places of
    # completed attempts only.
    path = f"{folder}/{uuid.uuid4().hex}"
    with Path(path).open("xb", buffering=0) as file:
        yield from _written(items, file.fileno(), path)


def received(items: Iterable[tuple[Place, Any]], folder: str) -> Iterator[tuple[Place, Any]]:
    """Return an iterator over a second-half task's items, by place, with all blocks.

    `folder`: as in `sent`. Each block is fetched when it is needed. Raises `OSError` if one no
    longer exists as written.
    """
    if folder:
        yield from _fetched(items)
        return
    # It has no name: nothing is left on the disk, for as long as the cluster runs, of a worker that
    # is killed.
    spill = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    place = spill if spill and Path(spill).is_dir() else None
    with tempfile.TemporaryFile(dir=place, buffering=0) as own:
        yield from _fetched(_written(items, own.fileno()))


def _written(
    items: Iterable[tuple[Place, Any]], file: int, path: str = ""
) -> Iterator[tuple[Place, Any]]:
    """Yield items with blocks replaced by places in an open file; by its path, if it has one."""
    start = 0
    for place, item in items:
        # Notices and reports are small; only blocks are worth a file.
        if not isinstance(item, bytes):
            yield place, item
            continue
        rest = memoryview(item)
        try:
            while rest:
                # A full disk or a signal may leave a write half done.
                rest = rest[os.write(file, rest) :]
        except OSError as fault:
            raise OSError(fault.errno, fault.strerror, path) from fault
        yield place, _Stored(path or file, start, len(item))
        start += len(item)


def _fetched(items: Iterable[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
    """Yield the items by place, with the blocks themselves."""
    # Places alone are sorted: a block is read when it is its turn.
    for place, item in sorted(items, key=itemgetter(0)):
        yield place, _block(item) if isinstance(item, _Stored) else item


def _block(stored: _Stored) -> bytes:
    file = os.open(stored.file, os.O_RDONLY) if isinstance(stored.file, str) else stored.file
    try:
        piece = os.pread(file, stored.size, stored.start)
        if len(piece) != stored.size:
            raise OSError(
                errno.EIO,
                f"only {len(piece)} of the {stored.size} bytes written at offset {stored.start} of a file are left",
            )
        return piece
    finally:
        if isinstance(stored.file, str):
            os.close(file)


_log = Log("spark")
_TICK = 0.5
_DESCRIPTION = "spark.job.description"
"""A property of the calling thread; Spark's UI and history server show it at each job and stage
that the thread starts.
"""
_OPEN = (
    "whoever reaches the ports of this Spark session can read its rows, and run code as its user: set "
    "spark.authenticate, as docs/cluster.md describes"
)
_ENDED = (
    "Spark's JVM is gone, or it stopped the session: usually it was killed for lack of memory, of the machine or of "
    "its own (spark.driver.memory); the program starts another one"
)
_OTHERS_ENDED = (
    "the Spark session that this program was given was stopped, or its JVM is gone (killed, most often for lack of "
    "memory): start "
    "the program again, with a new session"
)
_Seen = Callable[[Any], None]
"""Called with what a task yields; it counts files that were read."""
_Report = FileReport | WriteReport
_Share = tuple[int, JobSpec, list[JobFile]]
"""A task's number, what it needs of the job, and its files."""


class SparkPipeline:
    """Runs jobs in one SparkContext."""

    def __init__(self, session: SparkSession, tuning: Tuning, *, owned: bool) -> None:
        """Use `session`; `owned`: it is ours to stop."""
        self._session = session
        self._owned = owned
        self._context: SparkContext = session.sparkContext
        self._worker_count = tuning.worker_count
        self._prepared = False
        self._secret_names: tuple[str, ...] = ()
        self._abandoned = False
        self._tag = f"storage-consumer-{uuid.uuid4().hex}"

    @classmethod
    def open(cls, tuning: Tuning) -> SparkPipeline:
        """Return a pipeline in the active session, or in one of our own."""
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
        if context.getConf().get("spark.authenticate", "false") != "true":
            _log.warning("notice", text=_OPEN)
        return cls(session, tuning, owned=owned)

    @property
    def cores(self) -> int:
        """Cores of all current executors; more may come after the start. Raises as `run` does."""
        with self._meant():
            return self._context.defaultParallelism

    def prepare(self, upstream: Upstream, secrets_file: str) -> None:
        """Give the executors what they need, and check that they have the rest; done once.

        Raises `ConfigError` if they lack something, `StorageUnavailable` if they cannot reach the
        bucket, `SparkUnavailable` and `Abandoned` as `run` does. Waits for a first executor without
        limit; Spark warns of that.
        """
        context = self._context
        if self._prepared or is_one_process(context):
            return
        secret_names = self._secret_names = secrets_from(secrets_file).names

        def look(_: Iterable[int]) -> Iterator[str]:
            see_packages()
            with at_executor(secrets_file, secret_names) as secrets:
                opened(upstream, secrets).check()
            return iter([socket.gethostname()])

        began = time.monotonic()
        with self._job("storage-consumer: check the executors"):
            ship(context)
            hosts = set(
                context.parallelize(range(self.cores), self.cores).mapPartitions(look).collect()
            )
        _log.info(
            "executors_ready",
            hosts=len(hosts),
            cores=self.cores,
            seconds=round(time.monotonic() - began, 1),
        )
        self._prepared = True

    def cancel(self) -> None:
        """Cancel the running job, and start no other."""
        # First, since the job then fails with an arbitrary error, which `_meant` recognizes by
        # this.
        self._abandoned = True
        with suppress(Py4JError, OSError, AttributeError):  # no JVM, no job
            self._context.cancelJobsWithTag(self._tag)

    def close(self) -> None:
        """Stop the session if it is ours."""
        if self._owned:
            close_session(self._session)

    @property
    def lost(self) -> bool:
        """Whether its session has ended; it does nothing more then."""
        return not answers(self._context)

    def run(self, spec: JobSpec, files: Sequence[JobFile], progress: Progress) -> list[_Report]:
        """Read, decode, order and write; return reports of all files, tables and buckets.

        Raises `ConfigError`, `LeaseLost`, `StorageUnavailable` or `TargetUnavailable` if a task
        did, `SparkUnavailable` if one was lost, and `Abandoned` after `cancel`.
        """
        context = self._context
        if not is_one_process(context):
            # Executors do not have the driver's CA file.
            spec = travelling(spec)
        # For display only: a task that Spark repeats counts twice here, but its reports come once.
        files_read, rows_read = context.accumulator(0), context.accumulator(0)

        def seen(item: Any) -> None:
            if isinstance(item, FileReport):
                files_read.add(1)
                rows_read.add(item.applied)

        most = self._worker_count
        if spec.rows_per_second:
            # More never write at a time, whatever executors come meanwhile.
            most = min(most, spec.partitions, self.cores)
            spec = replace(spec, rows_per_second=spec.rows_per_second / most)
        reporter = _Reporter(progress, files_read, rows_read)
        try:
            with self._job(spec.title):
                return (self._whole if spec.whole else self._shuffled)(spec, files, seen, most)
        finally:
            reporter.stop()

    @contextmanager
    def _job(self, title: str) -> Iterator[None]:
        """Make jobs inside cancellable, describe them as `title`, and translate their failures.

        In a session of others their description is put back. Their job group stays: by it they may
        cancel what they started, this program included.
        """
        if self._abandoned:
            raise Abandoned
        with self._meant(), ExitStack() as after:
            # `cancel` finds the job by this tag, from another thread.
            self._context.addJobTag(self._tag)
            after.callback(self._context.removeJobTag, self._tag)
            # In a session of ours each job sets its own, so that two of three calls are saved.
            if not self._owned:
                before = self._context.getLocalProperty(_DESCRIPTION)
                after.callback(self._context.setLocalProperty, _DESCRIPTION, before)  # type: ignore[arg-type]  # None removes it
            self._context.setLocalProperty(_DESCRIPTION, title)
            yield

    @contextmanager
    def _meant(self) -> Iterator[None]:
        """Turn Spark's failures into errors of ours."""
        try:
            yield
        except StorageConsumerError:
            raise
        except Exception as fault:
            # After a cancellation or the loss of the session Spark fails with arbitrary errors:
            # test for both first.
            if self._abandoned:
                raise Abandoned from fault
            if self.lost:
                raise self._end() from fault
            if not isinstance(fault, (Py4JError, PySparkException)):
                raise
            if self._owned and not is_one_process(self._context):
                with suppress(Py4JError):
                    let_end(self._context)
            raise meaning_of(fault) from fault

    def _end(self) -> StorageConsumerError:
        """Return the error for an ended session: one of ours is created again at the next try."""
        if self._owned and "PYSPARK_GATEWAY_PORT" not in os.environ:
            return SparkUnavailable(_ENDED)
        return StorageConsumerError(_OTHERS_ENDED)

    def _in_turns(self, reports: RDD[_Report], partitions: int, most: int) -> list[_Report]:
        """Return the reports of the tasks that write, of which at most `most` run at a time."""
        shifts = turns(self._context, partitions, most)
        if len(shifts) == 1:
            return reports.collect()
        # One turn after the other: `runJob` returns when all of its tasks have ended.
        return [one for shift in shifts for one in self._context.runJob(reports, list, [*shift])]

    def _whole(
        self, spec: JobSpec, files: Sequence[JobFile], seen: _Seen, most: int
    ) -> list[_Report]:
        """Run the job in one stage: each task gets, reads and writes tables of its own."""
        secret_names = self._secret_names

        def work(shares: Iterable[_Share]) -> Iterator[_Report]:
            for partition, share, works in shares:
                with at_executor(share.secrets_file, secret_names) as secrets:
                    # One bucket, since this task writes all that it reads.
                    items = sorted(_read(share, secrets, works, 1, seen), key=itemgetter(0))
                    yield from _write(share, secrets, partition, items)

        # Not broadcast: each task gets only the tables that it works on.
        shares = list[_Share]()
        for partition, group in enumerate(by_tables(files, spec.partitions)):
            wanted = {work.table for work in group}
            share = replace(
                spec, tables=tuple(table for table in spec.tables if table.index in wanted)
            )
            shares.append((partition, share, group))
        return self._in_turns(
            self._context.parallelize(shares, len(shares)).mapPartitions(work), len(shares), most
        )

    def _shuffled(
        self, spec: JobSpec, files: Sequence[JobFile], seen: _Seen, most: int
    ) -> list[_Report]:
        """Run the job in two stages: tasks that read groups of files, and tasks per bucket of keys.

        The latter write.
        """
        with between_halves(self._context) as folder:
            # Every task needs the whole specification, so it goes to each machine once. The
            # secrets' names alone travel.
            shared, secret_names = self._context.broadcast(spec), self._secret_names

            def read(groups: Iterable[list[JobFile]]) -> Iterator[tuple[Place, Any]]:
                spec = shared.value
                with at_executor(spec.secrets_file, secret_names) as secrets:
                    works = list(chain.from_iterable(groups))
                    yield from sent(_read(spec, secrets, works, spec.partitions, seen), folder)

            def write(partition: int, items: Iterable[tuple[Place, Any]]) -> Iterator[_Report]:
                spec = shared.value
                with at_executor(spec.secrets_file, secret_names) as secrets:
                    yield from _write(spec, secrets, partition, received(items, folder))

            groups = in_groups(files, self.cores)
            try:
                written = (
                    # The key of an item is its place, which begins with its bucket.
                    self._context.parallelize(groups, len(groups))
                    .mapPartitions(read)
                    .partitionBy(spec.partitions, lambda place: place[0])
                    .mapPartitionsWithIndex(write)
                )
                # the first turn reads for all
                return self._in_turns(written, spec.partitions, most)
            finally:
                # Or the copies on the executors would stay as long as the session.
                shared.destroy()


class _Reporter:
    """Reports the progress of a running job from its accumulators."""

    def __init__(self, progress: Progress, files: Any, rows: Any) -> None:
        self._progress, self._files, self._rows = progress, files, rows
        self._seen = (0, 0)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="job-progress", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(_TICK):
            self._report()

    def _report(self) -> None:
        now = (self._files.value, self._rows.value)
        if now != self._seen:
            self._progress.advanced(files=now[0] - self._seen[0], rows=now[1] - self._seen[1])
            self._seen = now

    def stop(self) -> None:
        """Stop, and report the rest."""
        self._end.set()
        self._thread.join()
        self._report()


def _read(
    spec: JobSpec, secrets: Secrets, files: Sequence[JobFile], buckets: int, seen: _Seen
) -> Iterator[tuple[Place, Any]]:
    """Yield the items of the first half, in a worker."""
    shorten_collection(len(sys.modules))
    tables = {table.index: table for table in spec.tables}
    by_origin: dict[int, list[JobFile]] = {}
    for work in files:
        by_origin.setdefault(tables[work.table].origin, []).append(work)
    for index, some in by_origin.items():
        origin = spec.origins[index]
        # In the worker: neither connections nor secrets go through Spark.
        storage = opened(origin, secrets)
        with closing(ReadAhead(storage, map(object_of, in_order(some)))) as ahead:
            early = partial(file_blocks, storage if origin.scheme == "file" else ahead)
            for place, item in read_files(some, tables, buckets, early, decoder_for(origin)):
                seen(item)
                yield place, item


def _write(
    spec: JobSpec, secrets: Secrets, partition: int, items: Iterable[tuple[Place, Any]]
) -> Iterator[_Report]:
    """Yield the reports of the second half, in a worker."""
    shorten_collection(len(sys.modules))
    writer = TargetWriter(spec, secrets.password, partition)
    try:
        yield from write_bucket(items, {table.index: table for table in spec.tables}, writer)
        # Only at the very end: an attempt that dies before leaves its slot open to the next one.
        writer.finish()
    finally:
        writer.close()


@lru_cache(maxsize=1)
def shorten_collection(modules: int) -> None:  # noqa: ARG001 - once for each number of them
    """Spare what this worker has loaded the search for cycles; `modules`: their number.

    PySpark searches everything after each task of a reused worker, which takes a tenth of the
    workers' CPU time, and with the compiler of loops a fifth; modules stay anyway. This runs only
    after new ones were loaded, so later cycles are found as usual.
    """
    gc.freeze()
