"""Loads of tables: from which copy, how far, and how the table continues. No I/O.

A copy as of a TSO S holds every row and statement of the source up to S (inclusive), and none
beyond it. While a table is loaded, none of its changes is applied. Its load has a clock of its own,
which only grows: the part of the copy and the row in it. After the last part the table goes on as
after any other copy as of S; see `table_decisions`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from storage_consumer.model import TableName

_ROW_BITS = 32


class LoadPhase(StrEnum):
    """How far a load is, in the texts that are stored and shown."""

    REQUESTED = "requested"
    """An operator wants it; no consumer has looked at the copy yet."""
    LOADING = "loading"
    """Parts of the copy are being written."""
    JOINING = "joining"
    """All of the copy is written, and the table is behind the others."""
    DONE = "done"
    """The table has caught up with the others."""
    REFUSED = "refused"
    """The copy cannot be used; nothing of it was written."""
    CANCELLED = "cancelled"
    """An operator decided otherwise about the table, or the filter has left it out since."""


OPEN = (LoadPhase.REQUESTED, LoadPhase.LOADING, LoadPhase.JOINING)
"""The phases in which something is still to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The last load of one table."""

    table_key: str
    """See `plan.steps.key_of`."""
    name: TableName
    """The table's name at the source."""
    load_id: str
    """Tells this load from earlier and later ones of the table."""
    source: str
    """Where the copy is: a URI without secrets."""
    identity: str = ""
    """What the copy is, by its content; empty until a consumer has looked at it."""
    low: int = 0
    """The copy holds all changes up to this TSO (inclusive); not begun: the last copy's, if any."""
    high: int = 0
    """The copy holds no change after this TSO; above `low` if parts were read at several times."""
    phase: LoadPhase = LoadPhase.REQUESTED
    done: int = 0
    """The load's clock up to which (inclusive) rows are written; see `clock_of`."""
    parts: int = 0
    """Number of parts of the copy."""
    size: int = 0
    """Their bytes."""
    is_view: bool = False
    """Whether it is a view, which has no rows of its own."""
    replaces: bool = False
    """Whether the target's table is emptied first."""
    error: str = ""
    """Why it was refused, does not go on, or does not begin yet; empty if nothing is wrong."""

    @property
    def as_of(self) -> int:
        """The TSO of the copy; 0 while nobody has looked at it."""
        return self.low if self.identity else 0

    @property
    def is_pending(self) -> bool:
        """Whether something is still to be done of it, or, where it was refused, to be decided."""
        return self.phase in (*OPEN, LoadPhase.REFUSED)

    @property
    def parts_done(self) -> int:
        """Number of parts that are written to their end."""
        return part_before(self.done)

    @property
    def is_written(self) -> bool:
        """Whether all parts are written."""
        return self.parts_done >= self.parts


def clock_of(part: int, row: int = 0) -> int:
    """Return the load's clock at a row of a part; both count from 1, and row 0 is before the first.

    It stands where rows of the bucket have their commit-ts, and fits into 63 bits for up to 2^31
    parts.
    """
    return part << _ROW_BITS | row


def end_of(part: int) -> int:
    """Return the load's clock after the last row of part 1 or later, of any length."""
    return clock_of(part + 1) - 1


def part_before(clock: int) -> int:
    """Return the last part (from 1) that is written to its end at this clock; 0 for none."""
    part = clock >> _ROW_BITS
    return part if clock == end_of(part) else max(0, part - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The parts of one load that the next job writes."""

    load: Load
    first: int
    """Number of the first part, from 1."""
    last: int
    """Number of the last part, inclusive."""


def next_slices(loads: Iterable[tuple[Load, tuple[int, ...]]], most: int) -> list[Slice]:
    """Return each load's part of the next job: about `most` bytes in all, at least a part.

    `loads`: each with the bytes of its parts, in order. Loads that come first are served first, so
    that a small table is done soon.
    """
    slices: list[Slice] = []
    left = most
    for load, sizes in loads:
        first = last = load.parts_done + 1
        # A part is never divided, so one may exceed what is left; another load may not begin in
        # what is left of nothing.
        if first > load.parts or (slices and left <= 0):
            continue
        left -= sizes[first - 1]
        while last < load.parts and sizes[last] <= left:
            left -= sizes[last]
            last += 1
        slices.append(Slice(load=load, first=first, last=last))
    return slices
