"""Blocks of changes on their way from one half of a job to the other: through Spark, or past it in files.

On the way through Spark a block is pickled, goes to the JVM through a socket, into a file, out of it, and to the other worker through
a socket again. Where all workers are on one machine, the one writes a file and the other reads it, and Spark is given places.
"""

from __future__ import annotations

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
from storage_consumer.order.buffer import Place
from storage_consumer.spark.concurrency import is_one_process
from storage_consumer.spark.sorting import in_order, read_piece

FOLDER = "blocks-"
"""How the names of folders begin that hold a job's blocks."""
REMOVED = "something removes Spark's files while they are in use: name a folder that is left alone by SPARK_LOCAL_DIRS or spark.local.dir"
"""Why a file of Spark's may be gone, and the remedy."""


class _Stored(NamedTuple):
    """Where a block is."""

    path: str
    start: int
    size: int


@contextmanager
def between_halves(context: SparkContext) -> Iterator[str]:
    """The folder for the blocks of one job, of which nothing is left afterwards; empty where they go through Spark.

    A folder only where Spark is one process, hence on one machine: on a cluster no task could count on another one's files. It lies
    below Spark's own temporary folder, which the JVM removes when it ends, also because the driver was killed. Raises
    `StorageConsumerError` where it can't be made.
    """
    if not is_one_process(context):
        yield ""
        return
    folder = _made(context._temp_dir)  # noqa: SLF001 - where PySpark itself puts what goes to the JVM in files
    try:
        yield folder
    finally:
        _remove(Path(folder))


def _made(parent: str) -> str:
    try:
        return tempfile.mkdtemp(prefix=FOLDER, dir=parent)
    except OSError as fault:
        message = f"no folder for the blocks of a job could be made in Spark's temporary folder: {fault}"
        if isinstance(fault, FileNotFoundError):
            message += f" ({REMOVED})"
        raise StorageConsumerError(message) from fault


def _remove(folder: Path) -> None:
    """Remove it with all that is in it. After a failure tasks may still run: none of them finds it any more, or can put something into it.

    Where it can't be removed the JVM does so at its end; what the job itself came to is what is told.
    """
    gone = folder.with_name(f"{uuid.uuid4().hex}.gone")
    try:
        folder.rename(gone)
    except OSError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def sent(items: Iterable[tuple[Place, Any]], folder: str) -> Iterable[tuple[Place, Any]]:
    """What a task of the first half gives to Spark. `folder`: see `between_halves`.

    Raises `OSError` where a block can't be written.
    """
    return _put_away(items, folder) if folder else items


def received(items: Iterable[tuple[Place, Any]], folder: str) -> Iterator[tuple[Place, Any]]:
    """What a task of the second half has got from Spark, by place, with all blocks. `folder`: as in `sent`.

    Each block is fetched when it is asked for. Raises `OSError` where one is no longer there as it was written.
    """
    return _fetched(items) if folder else in_order(items)


def _put_away(items: Iterable[tuple[Place, Any]], folder: str) -> Iterator[tuple[Place, Any]]:
    """The same items, but of blocks their places in a file that nobody else writes; it is whole once the task has ended."""
    path = f"{folder}/{uuid.uuid4().hex}"
    start = 0
    with Path(path).open("xb", buffering=0) as file:
        for place, item in items:
            if not isinstance(item, bytes):
                yield place, item
                continue
            _write(file.fileno(), item, path)
            yield place, _Stored(path, start, len(item))
            start += len(item)


def _write(file: int, block: bytes, path: str) -> None:
    """Write all of it."""
    rest = memoryview(block)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, path) from fault


def _fetched(items: Iterable[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
    """The items by place, with the blocks themselves."""
    for place, item in sorted(items, key=itemgetter(0)):
        yield place, _read(item) if isinstance(item, _Stored) else item


def _read(stored: _Stored) -> bytes:
    file = os.open(stored.path, os.O_RDONLY)
    try:
        return read_piece(file, stored.start, stored.size)
    finally:
        os.close(file)
