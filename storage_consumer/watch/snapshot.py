"""The state of a feed at one moment, as it is stored: what `status` judges."""

from __future__ import annotations

from dataclasses import dataclass

from storage_consumer.model import DdlId, TableName
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.table_decisions import shown_state
from storage_consumer.plan.table_state import TableState
from storage_consumer.rows.comparison import TableResult
from storage_consumer.summary import slowest
from storage_consumer.watch.report import Report

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
    """Commit ts up to which it is applied, inclusive, where it does not follow `Snapshot.checkpoint_running`."""
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
        """Commit ts up to which all tables are applied (inclusive) that are not being loaded: those that catch up since included."""
        own = {table.name.folded(): table.checkpoint for table in self.tables}
        joining = [own.get(load.name.folded(), load.low) for load in self.loads if load.phase == LoadPhase.JOINING]
        return slowest(self.checkpoint, joining)

    def shown(self, table: Table) -> TableState:
        """Return the word for a table's state."""
        waits = self.report is not None and str(table.name) in self.report.waiting
        return TableState(shown_state(table.state, table.error, waits=waits))

    def reached(self, table: Table) -> int:
        """Return the commit ts up to which a table is applied, inclusive."""
        return self.checkpoint_running if table.follows else table.checkpoint
