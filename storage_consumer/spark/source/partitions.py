"""What one task reads: files of about equal size together, or the statements of a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from storage_consumer.feed.records import Statement
from storage_consumer.feed.window import FeedFile, Window

_OF_A_FILE = 256 << 10
"""As many bytes as are read in the time in which a file is opened."""
_LEAST = 4 << 20
"""Bytes for which a task of its own is worth its start."""


@dataclass(frozen=True)
class FilesPartition(InputPartition):
    """Files of a window, and the columns that are wanted of them."""

    low: int
    """Exclusive."""
    high: int
    """Inclusive."""
    files: tuple[FeedFile, ...]
    statements: tuple[Statement, ...]
    schema: pa.Schema


def partitions_of(window: Window, schema: pa.Schema, most: int, cores: int) -> list[InputPartition]:
    """Return a window in partitions; see `packed`."""
    found: list[InputPartition] = [
        FilesPartition(low=window.low, high=window.high, files=tuple(files), statements=(), schema=schema)
        for files in packed(window.files, most, cores)
    ]
    if window.statements:
        found.append(
            FilesPartition(low=window.low, high=window.high, files=(), statements=window.statements, schema=schema)
        )
    return found


def packed(files: Sequence[FeedFile], most: int, cores: int) -> Iterator[list[FeedFile]]:
    """Yield files that lie together: for each task at most about `most` bytes, and few enough that `cores` tasks share the work.

    Small files take longer than their bytes: each is a request of its own.
    """
    share = max(_LEAST, sum(map(_cost, files)) / cores)
    held: list[FeedFile] = []
    size, cost = 0, 0.0
    for work in files:
        if held and (size + work.file.stored.size > most or cost >= share):
            yield held
            held, size, cost = [], 0, 0.0
        held.append(work)
        size += work.file.stored.size
        cost += _cost(work)
    if held:
        yield held


def _cost(work: FeedFile) -> int:
    return work.file.stored.size + _OF_A_FILE
