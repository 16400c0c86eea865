"""What tasks tell the driver: what became of each file, and of each table in each bucket. Frozen, picklable."""

from __future__ import annotations

from dataclasses import dataclass

from storage_consumer.job.spec import WHOLE, ByteRange


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What became of one file."""

    table: int
    path: str
    rows: int = 0
    duplicates: int = 0
    later: int = 0
    applied: int = 0
    max_ts: int = 0
    next_ts: int = 0
    error: str = ""
    """Why the file's table cannot go on; empty if it can."""
    torn: bool = False
    """The error may go away by itself: the last row of the newest file, which may still be in writing; or `gone`."""
    gone: bool = False
    """What was listed is no longer there; of a part also: the file has to be read whole."""
    span: ByteRange = WHOLE
    """Which part of the file this is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """What became of one table in one bucket."""

    table: int
    written: int = 0
    """Rows written and deleted."""
    error: str = ""
    """Why the target did not take a row; empty if it took all."""
    commit_ts: int = 0
    """Of the row that the target did not take; 0 where that is not known, as `rank` (of its file) and `row` (number) then."""
    rank: int = 0
    row: int = 0
