"""Protocols that the driver needs: the target's state, structure and DDL; the row job.

`checkpoint`, `ddl`, `downstream` and `spark` implement them; `api.py` wires them together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from storage_consumer.model import DdlId, SkippedRows, TableDefinition, TableName
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.ddl_backlog import TableEntries
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.journal_entry import ExecutionOutcome, JournalEntry, Sent
from storage_consumer.plan.loads import Load
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table_decisions import Obeyed
from storage_consumer.rows.fitting import TargetTable
from storage_consumer.rows.spec import FileReport, JobFile, JobSpec, TaskStatements, WriteReport
from storage_consumer.summary import Progress

SERIAL_SLOTS = 16
"""Slots of a window beyond those of the partitions, for tables whose write transactions queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    """The stored progress of one table."""

    table_key: str
    """See `plan.steps.key_of`."""
    schema: str
    table: str
    checkpoint: int
    """Commit ts up to which the table is applied (inclusive); the stored value never decreases."""
    state: str
    """``running``, ``waiting``, ``halted`` or ``dropped``."""
    follows: bool = True
    """True if its checkpoint is not below the overall one, which it follows while idle."""
    error: str = ""
    copies: Copies | None = None
    """What a copy of the table must contain; None if nothing about it is to be stored."""
    target: TableName | None = None
    """Where its rows are by routes (`shared_names.NOWHERE`: not yet); None: by its name."""
    skipped: tuple[SkippedRows, ...] = ()
    """What was left out of it on the way there."""
    may_be_outdated: bool = False
    """Whether an unfinished statement may have stored it: keep state, error, `follows`, place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What the target server is and allows."""

    server_type: str
    """``mariadb``, ``mysql`` or ``tidb``."""
    version: str
    max_packet: int
    """Largest packet, in bytes."""
    load_data: bool
    """Whether LOAD DATA LOCAL is allowed."""


class Lease(Protocol):
    """The right to write: one owner, one window at a time; see `checkpoint.transactions`."""

    task_statements: TaskStatements
    """What the tasks of a window run on the state tables."""

    @property
    def epoch(self) -> int:
        """The number of our lease, higher than that of every earlier one; 0 before the first."""
        ...

    def acquire(self, holder: str, ttl: float, *, dead: str = "") -> str:
        """Try to become the writer for `ttl` seconds; return ``""``, or the holder who prevents it.

        `dead`: a holder that is known to be gone, so that its lease need not run out.
        """
        ...

    def renew(self, ttl: float) -> bool:
        """Extend the lease to `ttl` seconds from now; return False if it is no longer ours."""
        ...

    def release(self) -> None:
        """Release the lease."""

    def open_window(
        self, partitions: int, storage_checkpoint: int, writes: Mapping[str, int] | None = None
    ) -> int:
        """Fence off all older windows and owners; return the id of the new window.

        `writes`: table key → the commit-ts up to which the window may write rows that are visible
        before the table's checkpoint moves.
        """
        ...


class ProgressStore(Protocol):
    """How far tables and files are; see `checkpoint.progress`."""

    def load(self) -> tuple[Restart, int]:
        """Return an earlier run's state, and the highest storage checkpoint that it saw."""
        ...

    def save(
        self,
        *,
        tables: Iterable[TableProgress],
        sequences: Mapping[str, Finished],
        checkpoint: int,
        storage_checkpoint: int,
        lowest: int | None = None,
        joined: Collection[str] = (),
    ) -> None:
        """Store all of what moved or nothing.

        `checkpoint`: followed by idle tables; `lowest`: published to others, None to leave it
        unchanged.

        `joined`: the keys of tables that have caught up with the others since their loads.
        """

    def skip(self, rows: Iterable[SkippedRows], *, anew: bool = False) -> None:
        """Store what is left out; with `anew`, forget the entries without a table."""


class Journal(Protocol):
    """The state of each statement; see `checkpoint.journal`."""

    def entry(self, step: DdlStep) -> JournalEntry | None:
        """Return the entry of a statement, or None."""
        ...

    def record(
        self,
        step: DdlStep,
        state: str,
        *,
        run: Sent | ExecutionOutcome | None = None,
        note: str = "",
        tables: Iterable[TableProgress] = (),
    ) -> None:
        """Store a statement's state with the progress of its `tables`, in one transaction."""

    def refused(self, step: DdlStep, error: str) -> None:
        """Record why a statement stops its table; a started one, unresolved, stays started."""

    def copied(self, step: DdlStep, at: int) -> None:
        """Record a statement as done: its table's copy as of TSO `at` contains its effect."""


class SchemaHistory(Protocol):
    """The content of every schema file that was ever read; see `checkpoint.journal`."""

    def keep(self, read: Iterable[tuple[str, TableDefinition]]) -> None:
        """Store schema files' content with table directories; stored content costs nothing."""

    def kept(self, table_dir: str, version: int) -> list[TableDefinition]:
        """Return a version directory's schema files, whether or not they still exist."""
        ...

    def known_versions(self) -> frozenset[tuple[str, int]]:
        """Return table directory and version of all schema files that were ever read."""
        ...

    def unresolved(self) -> list[tuple[str, int]]:
        """Return directory and version of kept statements neither done nor skipped."""
        ...


class Decisions(Protocol):
    """What operators decide; see `checkpoint.tables`."""

    def on_statements(self) -> Mapping[DdlId, Decision]:
        """Return decisions on statements neither done nor skipped, by `DdlStep.identity`."""
        ...

    def waiting(self) -> tuple[bool, bool]:
        """Return whether decisions on tables wait, and whether loads do; one query per round."""
        ...

    def apply_to_tables(
        self, busy: Collection[str] = (), *, tells_time: bool = True
    ) -> list[Obeyed]:
        """Apply stored decisions on tables, each once, and return their results.

        `ProgressStore.load` returns the rest.

        `busy`: keys of tables that a running statement touches; decisions on them wait.
        `tells_time`: rows carry a commit-ts.
        """
        ...


class Loads(Protocol):
    """Which tables are loaded (`checkpoint.tables`); `ProgressStore.load` returns open ones."""

    def requested(self) -> list[Load]:
        """Return the loads that no consumer has looked at, by table."""
        ...

    def unsettled(self, load: Load) -> tuple[int, bool]:
        """Return the last unfinished statement's version that may touch a load's table, or 0.

        And whether the table is halted, so that nobody finds out what became of it until an
        operator decides.
        """
        ...

    def begin(
        self,
        loads: Collection[Load],
        *,
        by: str,
        floor: int = 0,
        places: Mapping[str, TableName] | None = None,
    ) -> list[Load]:
        """Store that these loads begin, and return those that do.

        Nothing but their copies is written to their tables from here on.

        `by`: who wants them; empty for loads that were requested, of which one that was withdrawn
        or replaced meanwhile does not begin. `floor`: the TSO of the copy that a new feed begins
        with, 0 for one that has begun. `places`: table key → where the routes send the table in the
        target; None without routes.
        """
        ...

    def wait(self, load: Load, why: str) -> None:
        """Store why a requested load does not begin yet."""

    def refuse(self, load: Load, error: str) -> None:
        """Store why a copy cannot be used."""

    def cancel(self, load: Load, why: str) -> None:
        """Store why a begun load ends; its table has to be known as one that lacks rows."""

    def advance(self, clocks: Mapping[str, int]) -> None:
        """Store table key → the clock (inclusive) up to which rows are written; never back."""

    def clocks(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Return how far the loads of these tables are, as tasks have left them."""
        ...

    def finish(self, load: Load) -> str:
        """Let a table go on after its written copy; return why it may not yet, or empty."""
        ...


class QuarantineStore(Protocol):
    """Rows that the target refused; see `checkpoint.findings`."""

    def entries(self) -> Mapping[str, TableEntries]:
        """Return what the quarantine holds, by table key."""
        ...


class VerifiedStore(Protocol):
    """What is known of tables that may not be equal to the source; see `checkpoint.findings`."""

    def doubt(self, table_key: str, document: Mapping[str, object]) -> None:
        """Store that a table may differ from the source, until it is compared or copied.

        `document`: what `TableResult.document` returns.
        """


class State(Protocol):
    """Everything that a feed keeps in the target, apart from rows; see `checkpoint.store`."""

    @property
    def lease(self) -> Lease:
        """Who may write."""
        ...

    @property
    def progress(self) -> ProgressStore:
        """How far tables and files are."""
        ...

    @property
    def journal(self) -> Journal:
        """What became of each statement."""
        ...

    @property
    def history(self) -> SchemaHistory:
        """What each schema file said."""
        ...

    @property
    def decisions(self) -> Decisions:
        """What operators decide."""
        ...

    @property
    def quarantine(self) -> QuarantineStore:
        """Which rows the target refused."""
        ...

    @property
    def verified(self) -> VerifiedStore:
        """Which tables may not be equal to the source."""
        ...

    @property
    def loads(self) -> Loads:
        """Which tables are loaded from a copy."""
        ...

    def open(self, upstream: str) -> None:
        """Create what is missing; raise `ConfigError` if the state belongs to another bucket."""

    def close(self) -> None:
        """Close all connections."""


class Target(Protocol):
    """Structure of the target; see `downstream.structure`."""

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the wanted tables that exist, by folded name."""
        ...

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """Map folded to own names of existing tables and databases (empty table name)."""
        ...

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:
        """Return holders of locks that a statement on these tables waits for, if known."""
        ...

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An operator's decision on a statement that stopped its table."""

    verb: Literal["done", "skip", "replace"]
    """It took effect manually, is not to run, or is to be replaced by `statement`."""
    statement: str = ""
    decided_at: str = ""
    """Time by the target's clock; a later decision on the same statement has another one."""
    decided_by: str = ""


class Ddl(Protocol):
    """Runs statements one after another, each once; see `ddl.runner`."""

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Run the statement, or find that it ran; return a note, or ``""``.

        The transaction that records it stores `moved`.

        Of a view that cannot be made `moved` is stored too; see `DdlFailed.left_out`.
        """
        ...

    def refused(self, step: DdlStep, error: str) -> None:
        """Record why a statement stops its table."""

    def fence(self) -> None:
        """End whatever a former owner may still be about to run in this worker."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlContext:
    """What the files say about a statement's surroundings."""

    database_is_ours: bool
    """Whether the bucket has its database's CREATE DATABASE: no need to create it here."""
    table_was_seen: bool
    """Whether the bucket has an earlier structure of it or its database: it should exist."""
    after_copy: int = 0
    """TSO of the copy before its table's first statement, or 0: maybe it has the effect.

    A statement of TiDB takes effect in steps, and a snapshot from right before its version can show
    the last ones already.
    """
    in_doubt_by: int = 0
    """TSO of a copy right before a RENAME, 0 for none: a reason for names that do not fit."""
    made_by: DdlStep | None = None
    """The last statement before this one that created the table; it may not have run here."""
    database_statements: tuple[str, ...] = ()
    """The source's CREATE and ALTER DATABASE until then, in order: a new table's defaults."""
    decision: Decision | None = None
    """An operator's decision on it."""
    resumes: TableName | None = None
    """The table to resume for another try, by bucket name; none: the statement's own."""
    should_continue: Callable[[], bool] = lambda: True
    """Called repeatedly in a wait; raises `LeaseLost`, or returns False to end."""


class RowPipeline(Protocol):
    """Runs one wave's rows; see `spark.pipeline`."""

    @property
    def cores(self) -> int:
        """Number of tasks that run in parallel."""
        ...

    def run(
        self, spec: JobSpec, files: Sequence[JobFile], progress: Progress
    ) -> list[FileReport | WriteReport]:
        """Read, decode, order and write; raise `TransientError`, `LeaseLost` for the whole job."""
        ...
