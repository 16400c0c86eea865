"""What one task reads: files of about equal size together, or the statements of a window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from storage_consumer.feed.records import Statement
from storage_consumer.feed.window import FeedFile, Window


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


def partitions_of(window: Window, schema: pa.Schema, most: int) -> list[InputPartition]:
    """Return a window in partitions of about `most` bytes of files."""
    found: list[InputPartition] = [
        FilesPartition(low=window.low, high=window.high, files=tuple(files), statements=(), schema=schema)
        for files in packed(window.files, most)
    ]
    if window.statements:
        found.append(
            FilesPartition(low=window.low, high=window.high, files=(), statements=window.statements, schema=schema)
        )
    return found


def packed(files: Sequence[FeedFile], most: int) -> Iterator[list[FeedFile]]:
    """Yield files that lie together, about as many bytes each time."""
    held: list[FeedFile] = []
    size = 0
    for work in files:
        if held and size + work.file.stored.size > most:
            yield held
            held, size = [], 0
        held.append(work)
        size += work.file.stored.size
    if held:
        yield held
