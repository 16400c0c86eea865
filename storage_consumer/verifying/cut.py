"""The cut: is a table, as one look at the target shows it, exactly what the source was at the table's checkpoint?"""

from __future__ import annotations

from dataclasses import dataclass

from storage_consumer.model import TableName
from storage_consumer.plan.table_decisions import is_skipped
from storage_consumer.plan.table_state import TableState
from storage_consumer.tso import is_settled


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """What one snapshot of the target's state says about a table."""

    table_key: str
    table: TableName
    """The name at the source."""
    target: TableName
    state: str
    """See `plan.table_state.TableState`."""
    checkpoint: int
    """Commit-ts up to which it is applied, inclusive; that of the running tables where it follows them."""
    noted: int = 0
    """Commit-ts up to which windows may have written its rows."""
    statement: int = 0
    """Version of a statement that may touch it, was started, and is not known to have ended; 0 for none."""
    statements: str = ""
    """A mark of the journal: another one later on shows that a statement was begun or ended meanwhile."""
    quarantined: int = 0
    is_loaded: bool = True
    """Whether it has all rows of the copy that it goes on with, if any."""
    writer: bool = False
    """Whether a process holds the lease."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a table cannot be compared as it is now."""

    why: str
    passes: bool
    """Whether it may pass by itself soon."""


def obstacle(look: TableLook) -> Obstacle | None:
    """Return what keeps a table from being compared in this snapshot; None if its rows are exactly those at its checkpoint."""
    stands, moves = _stands(look), moves_on(look)
    if look.state == TableState.RUNNING and look.error:
        return Obstacle(f"it is a view that is left out: {look.error}", passes=False)
    if lacks_past(look.state, look.error):
        return Obstacle(f"it is halted: {look.error}", passes=False)
    if look.statement:
        return Obstacle(
            f"the statement of version {look.statement} may touch it and is not known to have ended: see "
            "`storage-consumer ddl`",
            passes=look.writer,
        )
    if not look.is_loaded:
        return Obstacle("it is being loaded from a copy: see `storage-consumer load`", passes=moves)
    if not look.checkpoint:
        return Obstacle("nothing of it is applied yet", passes=False)
    if not is_settled(look.noted, look.checkpoint):
        way = (
            "see `storage-consumer table`, and verify it once it has gone on"
            if stands
            else "run `storage-consumer run`"
        )
        return Obstacle(
            f"a job that has not ended may have written rows up to {look.noted}, beyond its checkpoint {look.checkpoint}"
            + ("" if moves else f": {way}"),
            passes=moves,
        )
    return None


def moves_on(look: TableLook) -> bool:
    """Return whether the table's checkpoint is going to move: nothing moves one that is halted, or that nobody writes."""
    return look.writer and not _stands(look)


def _stands(look: TableLook) -> bool:
    return look.state in (TableState.HALTED, TableState.LOST)


def lacks_past(state: str, error: str) -> bool:
    """Return whether a table is stored as left out and is halted: the filter takes it again, and it lacks what was passed over meanwhile."""
    return state == TableState.EXCLUDED and bool(error) and not is_skipped(state, error)


def is_compared(state: str, error: str) -> bool:
    """Return whether a table that is stored so is to be equal to the source, or else to be named; `error`: why it is halted or left out."""
    return state not in (TableState.DROPPED, TableState.EXCLUDED) or lacks_past(state, error)
