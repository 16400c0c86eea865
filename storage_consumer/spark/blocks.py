"""Move blocks of changes from one half of a job to the other: through Spark, or past it in files.

Through Spark a block is pickled, sent to the JVM through a socket, written to a file, read from it, and sent to the
other worker through a socket again. If all workers are on one machine, one writes a file and the other reads it, and
Spark gets the places only.

The receiver sorts blocks by place. Those that came through Spark it holds itself, the large ones in a file, so that
memory is left for what becomes of them. Spark's own sort compresses what does not fit in memory, keeps the rest until
the task ends, and goes by the memory of the whole process: storing and fetching a third of 330 MB took it 3 s of CPU.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import SparkContext

from storage_consumer.errors import StorageConsumerError
from storage_consumer.rows.row_order import Place
from storage_consumer.spark.spark_session import is_one_process

FOLDER = "blocks-"
"""Prefix of the names of folders that hold a job's blocks."""
REMOVED = (
    "something removes Spark's files while they are in use: set SPARK_LOCAL_DIRS or spark.local.dir to a "
    "folder that nothing else cleans up"
)
"""Why a file of Spark's may be gone, and the remedy."""


class _Stored(NamedTuple):
    """Where a block is."""

    file: str | int
    """Its path, or the number under which this process has it open."""
    start: int
    size: int


@contextmanager
def between_halves(context: SparkContext) -> Iterator[str]:
    """Yield the folder for the blocks of one job, which is removed afterwards; empty if they go through Spark.

    There is a folder only if Spark is one process, and so on one machine: on a cluster no task could rely on the files
    of another. It is inside Spark's own temporary folder, which the JVM removes when it ends, also after the driver was
    killed. Raises `StorageConsumerError` if it cannot be created.
    """
    if not is_one_process(context):
        yield ""
        return
    folder = _made(context._temp_dir)  # noqa: SLF001 - where PySpark itself puts files for the JVM
    try:
        yield folder
    finally:
        _remove(Path(folder))


def _made(parent: str) -> str:
    try:
        # `mkdtemp` lets only this user in: the folder will hold rows.
        return tempfile.mkdtemp(prefix=FOLDER, dir=parent)
    except OSError as fault:
        message = f"no folder for the blocks of a job could be created in Spark's temporary folder: {fault}"
        if isinstance(fault, FileNotFoundError):
            message += f" ({REMOVED})"
        raise StorageConsumerError(message) from fault


def _remove(folder: Path) -> None:
    """Remove the folder with all its content. Tasks that still run after a failure can no longer find it or write into it.

    If it cannot be removed, the JVM does so when it ends; what is reported is the outcome of the job.
    """
    # Renaming is atomic, removing is not: a late task must not add a file to a folder that is being emptied.
    gone = folder.with_name(f"{uuid.uuid4().hex}.gone")
    try:
        folder.rename(gone)
    except OSError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def sent(items: Iterable[tuple[Place, Any]], folder: str) -> Iterable[tuple[Place, Any]]:
    """Return the items that a task of the first half gives to Spark. `folder`: see `between_halves`.

    Raises `OSError`, when iterated, if a block cannot be written.
    """
    return _put_away(items, folder) if folder else items


def received(items: Iterable[tuple[Place, Any]], folder: str) -> Iterator[tuple[Place, Any]]:
    """Return an iterator over the items that a task of the second half got from Spark, by place, with all blocks.

    `folder`: as in `sent`. Each block is fetched when it is needed. Raises `OSError` if one no longer exists as
    written.
    """
    if folder:
        yield from _fetched(items)
        return
    # It has no name: nothing is left on the disk, for as long as the cluster runs, of a worker that is killed.
    with tempfile.TemporaryFile(dir=_spill_folder(), buffering=0) as own:
        yield from _fetched(_written(items, own.fileno()))


def _put_away(items: Iterable[tuple[Place, Any]], folder: str) -> Iterator[tuple[Place, Any]]:
    """Yield the items, with blocks replaced by their places in a file of this task alone; it is complete once the task has ended."""
    # No locks: each attempt of a task writes a new file, and Spark passes on the places of completed attempts only.
    path = f"{folder}/{uuid.uuid4().hex}"
    with Path(path).open("xb", buffering=0) as file:
        yield from _written(items, file.fileno(), path)


def _written(items: Iterable[tuple[Place, Any]], file: int, path: str = "") -> Iterator[tuple[Place, Any]]:
    """Yield the items, with blocks replaced by their places in an open file; by its path, if it has one."""
    start = 0
    for place, item in items:
        # Notices and reports are small; only blocks are worth a file.
        if not isinstance(item, bytes):
            yield place, item
            continue
        _write(file, item, path)
        yield place, _Stored(path or file, start, len(item))
        start += len(item)


def _write(file: int, block: bytes, path: str) -> None:
    """Write the whole block. Raise `OSError` with the file's path."""
    rest = memoryview(block)
    try:
        while rest:
            # A full disk or a signal may leave a write half done.
            rest = rest[os.write(file, rest) :]
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, path) from fault


def _fetched(items: Iterable[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
    """Yield the items by place, with the blocks themselves."""
    # Places alone are sorted: a block is read when it is its turn.
    for place, item in sorted(items, key=itemgetter(0)):
        yield place, _read(item) if isinstance(item, _Stored) else item


def _read(stored: _Stored) -> bytes:
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


def _spill_folder() -> str | None:
    """Return where Spark has its own files of this kind; None for the system's place."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return folder if Path(folder).is_dir() and folder else None
