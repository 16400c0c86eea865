"""Sorting what a task is sent: large pieces wait in a file, so that the memory is left to what becomes of them.

Spark's own sort compresses what does not fit in memory, keeps the rest until the task ends, and goes by the memory of the whole process:
a third of 330 MB took it 3 s of CPU to put away and fetch again.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, NamedTuple

from storage_consumer.order.buffer import Place

HELD_BYTES = 32 << 20
"""So much of the pieces stays in memory."""


class _Stored(NamedTuple):
    """Where a piece is in the file."""

    start: int
    size: int


class _Pieces:
    """The first pieces in memory, all others in a file."""

    def __init__(self, file: IO[bytes]) -> None:
        """`file`: empty, and nobody else's."""
        self._file = file
        self._size = self._stored = 0

    def kept(self, item: Any) -> Any:
        """What stands for an item until it is `fetched`: itself, or its place in the file."""
        if not isinstance(item, bytes):
            return item
        self._size += len(item)
        if self._size <= HELD_BYTES:
            return item
        self._file.write(item)
        self._stored += len(item)
        return _Stored(self._stored - len(item), len(item))

    def fetched(self, kept: Any) -> Any:
        """The item, after the last one was written."""
        return read_piece(self._file.fileno(), kept.start, kept.size) if isinstance(kept, _Stored) else kept


def read_piece(file: int, start: int, size: int) -> bytes:
    """So many bytes of an open file, from `start` on. Raises `OSError` where they are not there."""
    piece = os.pread(file, size, start)
    if len(piece) != size:
        raise OSError(errno.EIO, f"of {size} bytes that were written at {start} of a file there are {len(piece)} left")
    return piece


def in_order(items: Iterable[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
    """The same items by place. What is large among them is bytes, and is let go once it was given out."""
    with tempfile.TemporaryFile(dir=_folder()) as file:
        pieces = _Pieces(file)
        held = [(place, pieces.kept(item)) for place, item in items]
        file.flush()
        held.sort(key=itemgetter(0), reverse=True)
        while held:
            place, kept = held.pop()
            yield place, pieces.fetched(kept)


def _folder() -> str | None:
    """Where Spark has its own files of this kind; None: where the system has them."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return folder if Path(folder).is_dir() and folder else None
