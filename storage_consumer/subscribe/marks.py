"""The rules of canal's batches: which one may be acknowledged, and what a rollback forgets."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from storage_consumer.errors import BatchRefused


class Position(NamedTuple):
    """How far a client is: a border between commits."""

    rows: int
    """Commit-ts up to which (inclusive) all rows are done."""
    statements: int
    """The same of statements, which a bucket has for sure only below its checkpoint."""


class Mark(NamedTuple):
    """A batch that was given and is not acknowledged."""

    batch_id: int
    entries: int
    position: Position | None
    """Where a client continues that has done it; None if no commit ends in it."""


class Marks:
    """The open batches of a client, in the order in which they were given."""

    def __init__(self, next_id: int) -> None:
        """Count batches from `next_id` on; numbers rise and never come twice."""
        self.next_id = next_id
        self._open = deque[Mark]()

    @property
    def ids(self) -> tuple[int, ...]:
        """Numbers of the open batches."""
        return tuple(mark.batch_id for mark in self._open)

    def mark(self, entries: int, position: Position | None) -> int:
        """Open a batch; return its number."""
        number = self.next_id
        self.next_id += 1
        self._open.append(Mark(number, entries, position))
        return number

    def first(self, batch_id: int) -> Mark:
        """Return a batch that may be acknowledged: the first one; raise `BatchRefused`."""
        if batch_id not in self.ids:
            raise BatchRefused(
                f"batchId:{batch_id} is not open: it was never given, is acknowledged, or was rolled back"
            )
        if self._open[0].batch_id != batch_id:
            raise BatchRefused(
                f"batchId:{batch_id} is not the firstly:{self._open[0].batch_id}, which has to be acknowledged before"
            )
        return self._open[0]

    def ack(self, batch_id: int) -> Mark:
        """Close the first batch and return it; raise `BatchRefused` for any other one."""
        mark = self.first(batch_id)
        self._open.popleft()
        return mark

    def rollback(self, batch_id: int | None = None) -> None:
        """Forget all batches, so that they are given again; raise `BatchRefused` for a closed one.

        A number only says which batch failed: those after it would be out of order without it.
        """
        if batch_id is not None and batch_id not in self.ids:
            raise BatchRefused(f"batchId:{batch_id} is not open, so it cannot be rolled back")
        self._open.clear()
