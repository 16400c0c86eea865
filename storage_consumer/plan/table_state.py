"""A table's state and status: what may be done with the table now, and why not more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

HaltKind = Literal["ddl", "gate", "file", "gap", "row", "schema", "name"]
"""Why a table halts: its statement failed or may not run, a file cannot be read or is missing, the
target refused a row, the structure cannot be read or does not fit, or it has no place of its own in
the target.
"""


class TableState(StrEnum):
    """The state of a table, in the texts that are stored and shown."""

    RUNNING = "running"
    WAITING = "waiting"
    """Nothing of it is done in this round; the next one tries again."""
    HALTED = "halted"
    """Nothing of it is done until an operator decides."""
    PAUSED = "paused"
    """Halted because an operator wants it to be; only shown, stored as halted."""
    DROPPED = "dropped"
    """The source no longer has it; only stored and shown."""
    LOST = "lost"
    """Halted without rows that no file holds: only a copy helps; stored so, shown as halted."""
    EXCLUDED = "excluded"
    """Left out, or lacking what was written while it was, by filter or operator; only stored."""
    LOADING = "loading"
    """A copy of it is being written, and nothing else of it is done."""
    SKIPPED = "skipped"
    """An operator leaves the table out; only shown, stored as excluded."""


STOPPED = (TableState.HALTED, TableState.LOST, TableState.PAUSED)
"""States in which a table stays until somebody decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStanding:
    """A table's state at one moment, and facts beside it; replaced only by its `TableConsumer`."""

    state: TableState = TableState.RUNNING
    """``RUNNING``, ``WAITING``, ``LOADING``, ``HALTED``, ``LOST``; others follow from below."""
    error: str = ""
    """Why it is halted or waits."""
    dropped: bool = False
    """Whether the source no longer has it at its checkpoint."""
    named: bool = False
    """Whether a schema file gave it its name; else the path did."""
    misplaced: bool = False
    """Whether by the routes it has the name of another table that is there at the same time."""
    left_out: bool = False
    """Whether the filter or an operator leaves out a table of this name."""
    lacks_past: bool = False
    """Whether it was left out: by the filter until this start, or by an operator until a pause."""
    held: bool = False
    """Whether an operator keeps it halted, whatever happens to its statements."""
    paused: bool = False
    """Whether that is the only reason why it is halted."""
    loading: bool = False
    """Whether a copy of it is being written, even if it is halted meanwhile."""
    joining: bool = False
    """Whether it has its copy, and has not caught up with the others since."""
    skipped: str = ""
    """Who leaves it out, and since when; empty unless an operator does."""
    nowhere: str = ""
    """Why it has no place in the target; then nothing of it is done, whatever its state."""

    @property
    def is_halted(self) -> bool:
        """Whether only an operator's decision lets it continue."""
        return self.state in (TableState.HALTED, TableState.LOST)

    @property
    def stopped(self) -> bool:
        """Whether it is halted or waits, for whatever reason."""
        return self.is_halted or self.state == TableState.WAITING

    @property
    def blocked(self) -> bool:
        """Whether nothing of it may be done now."""
        return bool(self.nowhere) or self.state != TableState.RUNNING

    @property
    def apart(self) -> bool:
        """Whether overall checkpoints leave it out: they would drop to its copy's TSO."""
        return self.loading or self.joining

    @property
    def excluded(self) -> bool:
        """Whether none of its files is read since the table is left out.

        To the filter, a path alone does not show which table a file belongs to. An operator who
        names what the path shows means it.
        """
        return self.left_out and (self.named or bool(self.skipped))

    @property
    def stored(self) -> TableState:
        """The state as the target remembers it."""
        # First of all: neither a filter nor a DROP gives back the rows that it lacks.
        if self.state == TableState.LOST:
            return TableState.LOST
        if self.excluded or self.lacks_past:
            return TableState.EXCLUDED
        return TableState.HALTED if self.is_halted else self.shown

    @property
    def shown(self) -> TableState:
        """The state as users see it."""
        if self.is_halted:
            return TableState.PAUSED if self.paused else TableState.HALTED
        return (
            TableState.DROPPED if self.dropped and self.state == TableState.RUNNING else self.state
        )

    @property
    def released(self) -> TableStanding:
        """The same without a halt or a wait."""
        return replace(
            self, state=TableState.LOADING if self.loading else TableState.RUNNING, error=""
        )
