"""How a row that does not parse is reported, by both protocols."""

from __future__ import annotations

from dataclasses import dataclass

from storage_consumer.errors import UndecodableRow

MAX_ROW_BYTES = 256 << 20
"""A longer row is refused. TiDB's own limit for one row is 120 MiB at most, of which base64 makes 160 MiB."""
_EXCERPT_CHARACTERS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlace:
    """One row of a data file."""

    source: str
    """The file's path."""
    number: int
    """From 1."""
    offset: int
    """Byte at which the row begins, from 0."""
    start: str
    """The row's text, or as much of its beginning as is at hand."""
    commit_ts: int | None = None

    def error(self, reason: str, *, at_end: bool) -> UndecodableRow:
        """The error to raise; `at_end` says that nothing follows the row in its file."""
        known = "" if self.commit_ts is None else f", commit ts {self.commit_ts}"
        return UndecodableRow(
            f"{self.source}: row {self.number} at byte {self.offset}{known}: {reason}; "
            f"the row begins {self.start[:_EXCERPT_CHARACTERS]!r}",
            at_end=at_end,
        )
