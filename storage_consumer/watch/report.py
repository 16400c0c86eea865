"""What is known of a feed, as frozen records: the writer's report, the state, and a verdict.

Reports travel to the state and back as JSON; `status` judges snapshots; status, page, JSON, metrics
and probes have the word from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from storage_consumer.model import DdlId, SkippedRows, TableName, physical_ms
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.table_decisions import shown_state
from storage_consumer.plan.table_state import TableState
from storage_consumer.rows.comparison import TableResult
from storage_consumer.summary import slowest

AHEAD = 60.0
"""Seconds that the bucket's checkpoint may lie ahead of the clock."""

OVERDUE = 600.0
"""Seconds that the tables which are not stopped may lie back further than the bucket's checkpoint
did when it was read, unless a limit is given.
"""


class Health(StrEnum):
    """The one word for a feed. Where several hold, the first of these counts."""

    UNKNOWN = "unknown"
    """The state does not answer, so that only an older look at it is known; `verdict` never says
    so.
    """
    NO_WRITER = "no-writer"
    """Nobody writes: no process has the lease."""
    RETRYING = "retrying"
    """The bucket, the target or Spark does not answer; the last round failed and is tried again."""
    STOPPED = "stopped"
    """One or more tables are halted or paused; the others go on."""
    UNEQUAL = "unequal"
    """One or more tables are not equal to the source: the quarantine holds rows of them, or a
    comparison found differences.
    """
    CLOCK_SKEW = "clock-skew"
    """The bucket's checkpoint lies ahead of the clock: one of the two is wrong, so no lag means
    anything.
    """
    BEHIND = "behind"
    """The checkpoint is older than it may be."""
    HEALTHY = "healthy"


def verdict(
    *,
    is_alone: bool,
    is_retrying: bool,
    has_stopped: bool,
    is_unequal: bool,
    ahead: float,
    is_late: bool,
) -> Health:
    """Return the word.

    `is_alone`: nobody writes, and somebody should; `has_stopped`: a table is halted or paused;
    `is_unequal`: a comparison found a difference, or the quarantine holds rows; `ahead`: seconds by
    which the bucket's checkpoint is ahead of the clock.
    """
    holding = (
        (Health.NO_WRITER, is_alone),
        (Health.RETRYING, is_retrying),
        (Health.STOPPED, has_stopped),
        (Health.UNEQUAL, is_unequal),
        (Health.CLOCK_SKEW, ahead > AHEAD),
        (Health.BEHIND, is_late),
    )
    return next((health for health, holds in holding if holds), Health.HEALTHY)


def seconds_ahead(checkpoint: int, now: float) -> float:
    """Return how far a TSO is ahead of `now`, in seconds; negative if it is behind."""
    return physical_ms(checkpoint) / 1000 - now


def lag_of(checkpoint: int, now: float) -> float | None:
    """Return the seconds from a TSO until `now`, at least 0; None for TSO 0, which is none."""
    return max(0.0, -seconds_ahead(checkpoint, now)) if checkpoint else None


def is_late(checkpoint: int, now: float, limit: float | None) -> bool:
    """Return whether a checkpoint is absent or older than `limit` seconds; never without one."""
    lag = lag_of(checkpoint, now)
    return limit is not None and (lag is None or lag > limit)


def beyond_source(running: int, now: float, source_lag: float | None) -> float | None:
    """Return the seconds that tables not stopped lag behind the bucket's checkpoint as read.

    More than `OVERDUE` is late where no limit is given, and what the alert ``StorageConsumerLag``
    fires at. None: not known.
    """
    lag = lag_of(running, now)
    return None if lag is None or source_lag is None else lag - source_lag


SHOWN_TABLES = 200
"""Most waiting tables that a report names."""


class Phase(StrEnum):
    """What a process is doing."""

    STARTING = "starting"
    """Before it asks for the lease: it looks at the bucket and the target."""
    STANDBY = "standby"
    """Another process is the writer."""
    LOADING = "loading"
    """It has the lease, and its first round has not begun."""
    APPLYING = "applying"
    """A round is running."""
    IDLE = "idle"
    """Between two rounds."""
    RETRYING = "retrying"
    """Something did not answer, and no round has got further since; see `Report.retry`."""
    ENDED = "ended"
    """The program has ended; nothing is written until it is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How far the round is that is running."""

    seconds: float
    """Since it began."""
    files: int
    """Files that it has to read."""
    bytes: int
    files_done: int = 0
    rows: int = 0
    """Row changes read so far."""
    statements: int = 0
    """DDL statements that it has to run."""
    statements_done: int = 0

    @property
    def steps(self) -> int:
        """Files and statements."""
        return self.files + self.statements

    @property
    def steps_done(self) -> int:
        """Those of them that are done."""
        return self.files_done + self.statements_done

    @property
    def seconds_left(self) -> float | None:
        """Seconds to its end at the pace so far of files and statements; None if none is done."""
        kinds = ((self.files_done, self.files), (self.statements_done, self.statements))
        # A kind of which none is done does not count: nobody knows its pace.
        left = sum(max(0, of - done) for done, of in kinds if done)
        return self.seconds * left / self.steps_done if self.steps_done else None

    @property
    def counted(self) -> str:
        """Statements and files done, and of how many: ``1 of 2 statements, 3 of 8 files``."""
        of = (
            (self.statements_done, self.statements, "statements"),
            (self.files_done, self.files, "files"),
        )
        return ", ".join(f"{done:,} of {every:,} {what}" for done, every, what in of if every)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What the process did since it started."""

    rounds: int = 0
    rows: int = 0
    written: int = 0
    files: int = 0
    ddls: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report. Times are seconds since 1970-01-01 UTC by the writer's clock."""

    version: str
    """Of the program."""
    assumed: str = ""
    """What its settings take for granted, see `Loading.assumed`."""
    started_at: float
    phase: Phase
    since: float
    """When the phase began."""
    phase_seconds: float = 0.0
    """For how long the phase had lasted when the report was made."""
    retry: str = ""
    """What did not answer last, while the phase is `RETRYING`; with `ENDED` the error with which
    the program ended, or an empty text.
    """
    work: Work | None = None
    """The running round, once it knows what it has to do."""
    rows_per_second: float = 0.0
    """Over the last minute in which rows were read."""
    rows_per_second_limit: int = 0
    """The option `rows_per_second`."""
    pending_files: int = 0
    """Files with rows beyond the storage checkpoint, or not yet read, at the end of the last round.
    """
    pending_bytes: int = 0
    refused_checkpoint: int = 0
    """The checkpoint-ts of the bucket's ``metadata`` if it lies too far ahead of the clock to be
    believed; else 0.
    """
    source_checkpoint: int = 0
    """The bucket's checkpoint-ts as last read; 0 before that."""
    source_age: float = 0.0
    """Seconds from then until the report was made."""
    last_round_at: float = 0.0
    """When the last round ended; 0 before the first."""
    totals: Totals = Totals()
    skipped: dict[str, int] = field(default_factory=dict)
    """Reason → rows and objects skipped since the start."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Table → what it waited for at the end of the last round; at most `SHOWN_TABLES`."""

    def source_lag(self, now: float, age: float = 0.0) -> float | None:
        """Return the bucket checkpoint's age when read: in a long round nobody reads it.

        TiCDC is not behind for that.
        """
        return lag_of(self.source_checkpoint, now - age - self.source_age)

    def to_json(self) -> str:
        """Return the report as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, document: str) -> Report | None:
        """Return a document's report; None if another version wrote it unreadably."""
        try:
            return msgspec.json.decode(document, type=cls)
        except msgspec.MsgspecError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """How far the feed was in one minute, and what was done in it."""

    minute: int
    """Minutes since 1970-01-01 UTC."""
    checkpoint: int
    checkpoint_running: int
    storage_checkpoint: int
    row_changes: int
    """Row changes read in this minute."""
    statements: int
    """DDL statements executed in it."""


FRESH = 30.0
"""Seconds after which a report no longer tells what its writer is doing."""
SHOWN_CHARACTERS = 4_000
"""Most characters of a statement in a `ShownEntry`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table."""

    name: TableName
    state: str
    """See `plan.table_state.TableState`."""
    checkpoint: int
    """Commit ts up to which it is applied, inclusive, where it does not follow
    `Snapshot.checkpoint_running`.
    """
    follows: bool = True
    """Whether it is at least as far as the feed."""
    error: str = ""
    decision: str = ""
    """The last decision of an operator; empty if there is none."""
    decided_by: str = ""
    decided_at: str = ""
    obeyed: bool = False
    """Whether a consumer has seen the decision."""
    refusal: str = ""
    """Why the decision changed nothing."""
    quarantined: int = 0
    """Its rows in the quarantine: with any, it is not equal to the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStatement:
    """One statement that is neither done nor skipped."""

    identity: DdlId
    name: TableName
    state: str
    """``planned``, ``started`` or ``failed``."""
    query: str
    note: str = ""
    seconds: float | None = None
    """Since it was started, if it runs or its end is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEntry:
    """One statement of a table's journal, as it is shown."""

    version: int
    """Its TSO at the source."""
    state: str
    query: str
    """What the source ran; at most `SHOWN_CHARACTERS`."""
    statement: str = ""
    """What ran here, or was to run; at most `SHOWN_CHARACTERS`."""
    note: str = ""
    seconds: float | None = None
    """How long it took, or since when it has been running; None if it did not start."""
    ended_ago: float | None = None
    """Seconds since its end; None before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that is stored of a feed."""

    now: float
    """Seconds since 1970-01-01 UTC by the target's clock."""
    state_schema: str
    upstream: str
    """The bucket."""
    checkpoint: int
    """Commit ts up to which all tables are applied, inclusive; 0 before the first round."""
    checkpoint_running: int
    """The same for the tables that are not stopped."""
    storage_checkpoint: int
    """Highest checkpoint-ts of the bucket that a writer has read."""
    writer: str
    """Who holds the lease, in words; empty for nobody."""
    last_writer: str
    """Who held it last, if its lease ran out without being released."""
    read_only: bool = False
    """Whether the target takes writes from administrators only."""
    tables: tuple[Table, ...] = ()
    statements: tuple[StoredStatement, ...] = ()
    loads: tuple[Load, ...] = ()
    """The last load of each table that had one."""
    skipped: tuple[SkippedRows, ...] = ()
    """What was left out of tables; without a table, what is to be."""
    verified: tuple[TableResult, ...] = ()
    """The last result of each table that was compared with the source."""
    target: str = ""
    """Address of the server."""
    server: str = ""
    """Its kind and version."""
    report: Report | None = None
    report_age: float = 0.0
    """Seconds since the report was stored."""

    @property
    def reported(self) -> Report | None:
        """The report, if it tells what the writer is doing now."""
        return self.report if self.writer and self.report_age <= FRESH else None

    @property
    def needed(self) -> int:
        """Commit ts up to which (inclusive) no row of the bucket is needed any more.

        `checkpoint` does not count tables that are loaded, or that have not caught up since.
        """
        loading = [load.low for load in self.loads if load.phase == LoadPhase.LOADING]
        return min([self.slowest, *loading])

    @property
    def slowest(self) -> int:
        """Commit ts to which all tables not in load are applied (inclusive), catching up or not."""
        own = {table.name.folded(): table.checkpoint for table in self.tables}
        joining = [
            own.get(load.name.folded(), load.low)
            for load in self.loads
            if load.phase == LoadPhase.JOINING
        ]
        return slowest(self.checkpoint, joining)

    def shown(self, table: Table) -> TableState:
        """Return the word for a table's state."""
        waits = self.report is not None and str(table.name) in self.report.waiting
        return TableState(shown_state(table.state, table.error, waits=waits))

    def reached(self, table: Table) -> int:
        """Return the commit ts up to which a table is applied, inclusive."""
        return self.checkpoint_running if table.follows else table.checkpoint
