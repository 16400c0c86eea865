"""Numbers and commit-ts of an export's rows: they have none of their own, so their place in the file gives both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storage_consumer.decode.decoder import FileRead, Tally, apart
from storage_consumer.kernels.arrays import Flags, Offsets
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

    def many(self, count: int) -> tuple[Offsets, Offsets, Flags]:
        """Count rows; return their numbers, their commit-ts, and which are inside the commit range."""
        numbers = np.arange(self.tally.rows + 1, self.tally.rows + count + 1)
        ts = numbers + self.clock
        inside, later = apart(ts, self.commit_range)
        self.tally.rows += count
        self.tally.add(ts, inside, later)
        return numbers, ts, inside
