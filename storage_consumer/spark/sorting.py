"""Sort what a task receives: large pieces wait in a file, so that memory is left for what becomes of them.

Spark's own sort compresses what does not fit in memory, keeps the rest until the task ends, and goes by the memory of
the whole process: storing and fetching a third of 330 MB took it 3 s of CPU.
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
"""Bytes of the pieces that stay in memory."""


class _Stored(NamedTuple):
    """Where a piece is in the file."""

    start: int
    size: int


class _Pieces:
    """The first pieces in memory, all others in a file."""

    def __init__(self, file: IO[bytes]) -> None:
        """Initialize; `file`: empty, and used by nobody else."""
        self._file = file
        self._size = self._stored = 0

    def kept(self, item: Any) -> Any:
        """Return what represents an item until it is `fetched`: the item itself, or its place in the file."""
        if not isinstance(item, bytes):
            return item
        self._size += len(item)
        if self._size <= HELD_BYTES:
            return item
        self._file.write(item)
        self._stored += len(item)
        return _Stored(self._stored - len(item), len(item))

    def fetched(self, kept: Any) -> Any:
        """Return the item; only after the last one was written."""
        return read_piece(self._file.fileno(), kept.start, kept.size) if isinstance(kept, _Stored) else kept


def read_piece(file: int, start: int, size: int) -> bytes:
    """Return `size` bytes of an open file, from `start` on. Raise `OSError` if they are not there."""
    piece = os.pread(file, size, start)
    if len(piece) != size:
        raise OSError(errno.EIO, f"only {len(piece)} of the {size} bytes written at offset {start} of a file are left")
    return piece


def in_order(items: Iterable[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
    """Yield the items by place. Large ones are bytes, and are released once they were yielded."""
    with tempfile.TemporaryFile(dir=_folder()) as file:
        pieces = _Pieces(file)
        held = [(place, pieces.kept(item)) for place, item in items]
        file.flush()
        # Reversed, so that taking from the end yields in order and drops each piece for good.
        held.sort(key=itemgetter(0), reverse=True)
        while held:
            place, kept = held.pop()
            yield place, pieces.fetched(kept)


def _folder() -> str | None:
    """Return where Spark has its own files of this kind; None for the system's place."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return folder if Path(folder).is_dir() and folder else None
