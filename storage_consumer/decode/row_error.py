"""The report of a row that does not parse, for both protocols."""

from __future__ import annotations

from dataclasses import dataclass

from storage_consumer.errors import UndecodableRow

MAX_ROW_BYTES = 256 << 20
"""Longer rows are refused. TiDB's own limit for one row is at most 120 MiB, which base64 turns into 160 MiB."""
_EXCERPT_CHARACTERS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlace:
    """One row of a data file."""

    source: str
    """The file's path."""
    number: int
    """The row's number, from 1."""
    offset: int
    """Byte at which the row begins, from 0."""
    start: str
    """The row's text, or as much of its beginning as is available."""
    commit_ts: int | None = None

    def error(self, reason: str, *, at_end: bool) -> UndecodableRow:
        """Return the error to raise; `at_end`: nothing follows the row in its file."""
        known = "" if self.commit_ts is None else f", commit ts {self.commit_ts}"
        return UndecodableRow(
            f"{self.source}: row {self.number} at byte {self.offset}{known}: {reason}; "
            f"the row begins {self.start[:_EXCERPT_CHARACTERS]!r}",
            at_end=at_end,
            commit_ts=self.commit_ts,
        )
