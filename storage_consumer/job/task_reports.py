"""What tasks report to the driver: the outcome of each file, and of each table in each bucket. Frozen, picklable."""

from __future__ import annotations

from dataclasses import dataclass

from storage_consumer.job.spec import WHOLE, ByteRange


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """The outcome of one file."""

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
    """Whether the error may vanish by itself: the last row of the newest file may still be being written, or see `gone`."""
    gone: bool = False
    """Whether the listed object no longer exists; for a split also: whether the file has to be read whole."""
    span: ByteRange = WHOLE
    """The part of the file that this is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """The outcome of one table in one bucket."""

    table: int
    written: int = 0
    """Rows written and deleted."""
    error: str = ""
    """Why the target refused a row; empty if it took all of them."""
    commit_ts: int = 0
    """Commit-ts of the refused row; 0 if it is not known, and so are then `rank` (of its file) and `row` (number)."""
    rank: int = 0
    row: int = 0
