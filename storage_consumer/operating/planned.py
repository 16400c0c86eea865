"""A planned round: the stored state with writes in memory over it, and the plan as records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.model import DdlId, TableDefinition
from storage_consumer.plan.ddl_backlog import TableEntries
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.journal_entry import DONE, FAILED, STARTED, JournalEntry, Sent
from storage_consumer.plan.journal_entry import ExecutionOutcome as Happened
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table_decisions import Foreseen, Obeyed, held, is_skipped
from storage_consumer.plan.table_state import TableState
from storage_consumer.ports import Decision, Loads, TableProgress
from storage_consumer.rows.spec import TaskStatements

_V = TypeVar("_V")


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


class PlannedState:
    """Stands in for `ports.State`, and for each of its parts: their methods have unique names."""

    def __init__(
        self, stored: StateStore | None, on_refusal: Callable[[DdlStep, str], None]
    ) -> None:
        """Read from `stored`, None without a state; `on_refusal` gets why a statement stops."""
        self._stored = stored
        self._on_refusal = on_refusal
        self._entries: dict[DdlId, JournalEntry] = {}
        self._read: defaultdict[tuple[str, int], dict[int, TableDefinition]] = defaultdict(dict)
        self.lease = PlannedLease()
        self.skip: Callable[..., None] = lambda *_, **__: None
        self.progress = self.journal = self.history = self.decisions = self.quarantine = (
            self.verified
        ) = self

    @property
    def loads(self) -> Loads:
        """Not there: tables whose copies are being written stand still in a plan."""
        raise AssertionError("a plan loads nothing")

    def open(self, upstream: str) -> None:
        """Create nothing."""

    def close(self) -> None:
        """Do nothing: whoever gave the stored state closes it."""

    # progress

    def load(self) -> tuple[Restart, int]:
        """Return what is stored, or the state of a first start."""
        return (Restart(), 0) if self._stored is None else self._stored.progress.load()

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
        """Store nothing: the manager knows what moved."""

    # journal

    def entry(self, step: DdlStep) -> JournalEntry | None:
        """Return the planned entry of a statement, else the stored one."""
        planned = self._entries.get(step.identity)
        return (
            planned
            if planned is not None or self._stored is None
            else self._stored.journal.entry(step)
        )

    def record(
        self,
        step: DdlStep,
        state: str,
        *,
        run: Sent | Happened | None = None,
        note: str = "",
        tables: Iterable[TableProgress] = (),  # noqa: ARG002 - the manager knows what moved
    ) -> None:
        """Keep the state of a statement."""
        before = self.entry(step) or JournalEntry(state="", structure_before="", note="")
        # What was sent stays in the entry when the outcome is recorded, as in the stored journal.
        sent = run if isinstance(run, Sent) else before
        self._entries[step.identity] = JournalEntry(
            state=state, structure_before=sent.structure_before, note=note, statement=sent.statement
        )

    def refused(self, step: DdlStep, error: str) -> None:
        """Keep why a statement stops its table; a started one stays started."""
        entry = self.entry(step)
        unresolved = entry is not None and entry.state == STARTED
        self.record(step, STARTED if unresolved else FAILED, note=error)
        self._on_refusal(step, error)

    def copied(self, step: DdlStep, at: int) -> None:  # noqa: ARG002 - the note is for whoever reads the journal
        """Keep that a statement is done."""
        self.record(step, DONE)

    # history

    def keep(self, read: Iterable[tuple[str, TableDefinition]]) -> None:
        """Keep what was read now."""
        for table_dir, definition in read:
            self._read[table_dir, definition.version][definition.checksum] = definition

    def kept(self, table_dir: str, version: int) -> list[TableDefinition]:
        """Return what the schema files of one version directory said, before or now."""
        stored = [] if self._stored is None else self._stored.history.kept(table_dir, version)
        found = {each.checksum: each for each in stored} | self._read.get((table_dir, version), {})
        return [found[checksum] for checksum in sorted(found)]

    def known_versions(self) -> frozenset[tuple[str, int]]:
        """Return what was read before."""
        return frozenset() if self._stored is None else self._stored.history.known_versions()

    def unresolved(self) -> list[tuple[str, int]]:
        """Return what was read before and did not run."""
        return [] if self._stored is None else self._stored.history.unresolved()

    # decisions

    def on_statements(self) -> Mapping[DdlId, Decision]:
        """Return the decisions about statements that wait."""
        return {} if self._stored is None else self._stored.decisions.on_statements()

    def waiting(self) -> tuple[bool, bool]:
        """Return that there is nothing to apply, and nothing to load."""
        return False, False

    def apply_to_tables(
        self,
        busy: Collection[str] = (),  # noqa: ARG002 - as the protocol has it
        *,
        tells_time: bool = True,  # noqa: ARG002 - none is applied
    ) -> list[Obeyed]:
        """Apply none: the plan begins with what they make of the state."""
        return []

    def foreseen(self, *, tells_time: bool = True) -> list[Foreseen]:
        """Return what the next round is going to make of decisions about tables."""
        return (
            [] if self._stored is None else self._stored.decisions.foreseen(tells_time=tells_time)
        )

    # the rest

    def entries(self) -> Mapping[str, TableEntries]:
        """Return what the stored quarantine holds; a plan adds nothing."""
        return {} if self._stored is None else self._stored.quarantine.entries()

    def doubt(self, table_key: str, document: Mapping[str, object]) -> None:
        """Store nothing."""


class PlannedLease:
    """A lease that is always ours, and keeps nobody out."""

    task_statements = TaskStatements(
        lock_slot="", claim_slot="", close_slot="", lock_checkpoint="", store_checkpoint=""
    )
    epoch = 0

    def acquire(self, holder: str, ttl: float, *, dead: str = "") -> str:  # noqa: ARG002 - nothing is acquired
        """Return that nobody prevents it."""
        return ""

    def renew(self, ttl: float) -> bool:  # noqa: ARG002 - nothing runs out
        """Return True."""
        return True

    def release(self) -> None:
        """Do nothing."""

    def open_window(
        self,
        partitions: int,  # noqa: ARG002 - as the protocol has it
        storage_checkpoint: int,  # noqa: ARG002 - as the protocol has it
        writes: Mapping[str, int] | None = None,  # noqa: ARG002 - no task writes
    ) -> int:
        """Return 0."""
        return 0


def decided(restart: Restart, foreseen: Iterable[Foreseen]) -> Restart:
    """Return the stored state as the next round finds it after obeying these decisions."""
    for each in foreseen:
        key, table, verb = each.decision.table_key, each.table, each.decision.verb
        # A decision takes the place of an earlier one, even where it is refused.
        stays = verb == "pause" or (verb == "reload-done" and bool(each.refusal))
        restart = replace(
            restart,
            held=_put(restart.held, key, held(each.decision, each.refusal) if stays else None),
            paused=_with(restart.paused, key, is_in=verb == "pause"),
        )
        if each.refusal:
            continue
        state, error = table.state, table.error
        is_there = table.name.table and state not in (TableState.DROPPED, TableState.EXCLUDED)
        restart = replace(
            restart,
            tables={**restart.tables, key: table.checkpoint},
            behind=_with(restart.behind, key, is_in=not table.follows),
            dropped=_with(restart.dropped, key, is_in=state == TableState.DROPPED),
            lost=_put(restart.lost, key, error if state == TableState.LOST else None),
            excluded=_put(
                restart.excluded, key, table.name if state == TableState.EXCLUDED else None
            ),
            skipped=_put(restart.skipped, key, error if is_skipped(state, error) else None),
            copies={**restart.copies, key: table.copies},
            targets=_put(restart.targets, key, (table.name, each.place) if is_there else None),
        )
    return restart


def _with(members: frozenset[str], key: str, *, is_in: bool) -> frozenset[str]:
    return members | {key} if is_in else members - {key}


def _put(stored: Mapping[str, _V], key: str, value: _V | None) -> Mapping[str, _V]:
    """Return the same with another value at `key`, or without one."""
    others = {at: each for at, each in stored.items() if at != key}
    return others if value is None else {**others, key: value}
