"""Numbers and commit-ts of an export's rows: they have none of their own, so their place in the file gives both."""

from __future__ import annotations

from dataclasses import dataclass

from storage_consumer.decode.decoder import FileRead, Tally
from storage_consumer.model import CommitRange


@dataclass(slots=True)
class RowCounter:
    """Counts the rows of one file."""

    tally: Tally
    commit_range: CommitRange
    clock: int

    @classmethod
    def of(cls, file: FileRead) -> RowCounter:
        """Return the counter of a file."""
        return cls(file.tally, file.commit_range, file.clock)

    def next(self) -> tuple[int, int, bool]:
        """Count a row; return its number, its commit-ts, and whether that is inside the commit range."""
        tally = self.tally
        number = tally.rows = tally.rows + 1
        ts = tally.max_ts = self.clock + number
        if ts > self.commit_range.high:
            tally.later += 1
            tally.next_ts = tally.next_ts or ts
        elif ts <= self.commit_range.low:
            tally.duplicates += 1
        else:
            return number, ts, True
        return number, ts, False
