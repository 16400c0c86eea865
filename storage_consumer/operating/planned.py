"""What the next round would do, as frozen records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """What becomes of a statement."""

    RUN = "run"
    SKIP = "skip"
    """It counts as done without having run; the reason says why."""
    HALT = "halt"
    """It stops its table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRows:
    """The rows of one table in one wave."""

    table: str
    """``schema.table`` in the bucket."""
    target: str
    """The same in the target, as the target spells it."""
    low: int
    """Commit-ts after which rows are taken (exclusive)."""
    high: int
    """Commit-ts up to which rows are taken (inclusive)."""
    files: int
    size: int
    """Bytes of the files, by the listing."""
    rows: int | None = None
    """Row changes inside the commit range; None if the files were not read."""
    duplicates: int = 0
    """Repeated deliveries, which are dropped."""
    later: int = 0
    """Rows beyond the commit range, which wait."""
    error: str = ""
    """What was found in the files that stops the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStatement:
    """One statement of the source."""

    table: str
    """``schema.table`` in the bucket, or ``schema`` for a database."""
    version: int
    path: str
    """Its schema file."""
    original: str
    """What the source ran; empty for a table that is created from its columns."""
    run: tuple[str, ...]
    """What runs on this target, in order; empty if nothing does."""
    schema: str
    """Default database of what runs."""
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    """What was changed in it and why, why it is skipped, or why its table halts."""
    unknown: str = ""
    """Why it was not checked against the target; empty if it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWave:
    """What is done together: rows of all runnable tables, then statements that they reached."""

    rows: tuple[PlannedRows, ...] = ()
    statements: tuple[PlannedStatement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStop:
    """A table that halts or waits."""

    table: str
    checkpoint: int
    """Commit-ts (inclusive) up to which it is applied then."""
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the next round would do, if neither bucket nor target changes before it."""

    upstream: str
    server: str
    """Type and version of the target."""
    state_schema: str
    first_run: bool
    """Whether the target has no state of this bucket, so that the round would create it."""
    writer: str
    """Who writes to this target now; the plan is then what that process has before it. Empty for
    nobody.
    """
    storage_checkpoint: int
    """The checkpoint-ts of the bucket."""
    checkpoint: int
    """Commit-ts (inclusive) up to which all tables are applied now."""
    reached: int
    """The same after the round; tables that halt hold it back."""
    counted: bool
    """Whether files were read, so that rows are exact within the commit range."""
    waves: tuple[PlannedWave, ...]
    halts: tuple[PlannedStop, ...]
    waits: tuple[PlannedStop, ...]
    paused: tuple[PlannedStop, ...]
    """Tables that an operator pauses, or paused before."""
    skipped: dict[str, int]
    """Rows, objects and statements that are skipped, counted by reason."""
    databases: tuple[str, ...]
    """Databases that the round would create."""
    warnings: tuple[str, ...]

    @property
    def statements(self) -> tuple[PlannedStatement, ...]:
        """All statements, in the order in which they begin."""
        return tuple(each for wave in self.waves for each in wave.statements)

    @property
    def rows(self) -> tuple[PlannedRows, ...]:
        """The rows of all waves."""
        return tuple(each for wave in self.waves for each in wave.rows)
