"""PlannedState: the stored state, over which the writes of a planned round are kept in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from storage_consumer.job.spec import TaskStatements
from storage_consumer.model import DdlId, TableDefinition, TableName
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.journal import DONE, FAILED, STARTED, JournalEntry, Outcome, Sent
from storage_consumer.plan.loads import Load
from storage_consumer.plan.quarantined import TableEntries
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table_decisions import Foreseen, Obeyed
from storage_consumer.ports import (
    Decision,
    Decisions,
    Journal,
    ProgressStore,
    QuarantineStore,
    SchemaHistory,
    TableProgress,
)

_NO_STATEMENTS = TaskStatements(lock_slot="", claim_slot="", close_slot="", lock_checkpoint="", store_checkpoint="")
"""No task of a planned round begins a transaction."""


class ReadDecisions(Decisions, Protocol):
    """What operators decide, and what a round is going to make of it."""

    def foreseen(self, *, tells_time: bool = True) -> list[Foreseen]:
        """Return what `apply_to_tables` would make now of the decisions that nobody has obeyed yet."""
        ...


class Stored(Protocol):
    """The parts of a stored state that are read."""

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
    def decisions(self) -> ReadDecisions:
        """What operators decide."""
        ...

    @property
    def quarantine(self) -> QuarantineStore:
        """Which rows the target refused."""
        ...


class PlannedState:
    """The double of `ports.State`."""

    def __init__(self, stored: Stored | None, on_refusal: Callable[[DdlStep, str], None]) -> None:
        """Read from `stored`; None for a target without a state. `on_refusal` hears why a statement stops its table."""
        self.lease = PlannedLease()
        self.progress = _Progress(stored)
        self.journal = _Journal(stored, on_refusal)
        self.history = _History(stored)
        self.decisions = _Decisions(stored)
        self.quarantine = _Quarantine(stored)
        self.verified = _Verified()
        self.loads = _Loads()

    def open(self, upstream: str) -> None:
        """Create nothing."""

    def close(self) -> None:
        """Do nothing: whoever gave the stored state closes it."""


class PlannedLease:
    """A lease that is always ours, and keeps nobody out."""

    task_statements = _NO_STATEMENTS
    epoch = 0

    def acquire(self, holder: str, ttl: float, *, dead: str = "") -> str:  # noqa: ARG002 - nothing is acquired
        """Return that nobody prevents it."""
        return ""

    def renew(self, ttl: float) -> bool:  # noqa: ARG002 - nothing runs out
        """Return True."""
        return True

    def release(self) -> None:
        """Do nothing."""

    def open_window(self, partitions: int, storage_checkpoint: int, writes: Mapping[str, int] | None = None) -> int:  # noqa: ARG002 - no task writes
        """Return 0."""
        return 0


class _Progress:
    def __init__(self, stored: Stored | None) -> None:
        self._stored = stored

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


class _Journal:
    def __init__(self, stored: Stored | None, on_refusal: Callable[[DdlStep, str], None]) -> None:
        self._stored = stored
        self._on_refusal = on_refusal
        self._planned: dict[DdlId, JournalEntry] = {}

    def entry(self, step: DdlStep) -> JournalEntry | None:
        """Return the planned entry of a statement, else the stored one."""
        planned = self._planned.get(step.identity)
        return planned if planned is not None or self._stored is None else self._stored.journal.entry(step)

    def record(
        self,
        step: DdlStep,
        state: str,
        *,
        run: Sent | Outcome | None = None,
        note: str = "",
        tables: Iterable[TableProgress] = (),  # noqa: ARG002 - the manager knows what moved
    ) -> None:
        """Keep the state of a statement."""
        before = self.entry(step) or JournalEntry(state="", structure_before="", note="")
        # What was sent stays in the entry when the outcome is recorded, as in the stored journal.
        sent = run if isinstance(run, Sent) else before
        self._planned[step.identity] = JournalEntry(
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


class _History:
    def __init__(self, stored: Stored | None) -> None:
        self._stored = stored
        self._read: defaultdict[tuple[str, int], dict[int, TableDefinition]] = defaultdict(dict)

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


class _Loads:
    """A plan loads nothing: tables whose copies are being written stand still in it."""

    def requested(self) -> list[Load]:
        """Return nothing."""
        return []

    def unsettled(self, load: Load) -> tuple[int, bool]:  # noqa: ARG002 - nothing is requested
        """Return that nothing may still change the table."""
        return 0, False

    def begin(
        self,
        loads: Collection[Load],
        *,
        by: str,  # noqa: ARG002 - nothing is stored
        floor: int = 0,  # noqa: ARG002 - likewise
        places: Mapping[str, TableName] | None = None,  # noqa: ARG002 - likewise
    ) -> list[Load]:
        """Store nothing."""
        return list(loads)

    def wait(self, load: Load, why: str) -> None:
        """Store nothing."""

    def refuse(self, load: Load, error: str) -> None:
        """Store nothing."""

    def cancel(self, load: Load, why: str) -> None:
        """Store nothing."""

    def advance(self, clocks: Mapping[str, int]) -> None:
        """Store nothing."""

    def clocks(self, keys: Iterable[str]) -> Mapping[str, int]:  # noqa: ARG002 - no task writes
        """Return nothing."""
        return {}

    def finish(self, load: Load) -> str:  # noqa: ARG002 - none is written
        """Return nothing."""
        return ""


class _Quarantine:
    """What the stored quarantine holds; a plan adds nothing."""

    def __init__(self, stored: Stored | None) -> None:
        self._stored = stored

    def entries(self) -> Mapping[str, TableEntries]:
        return self._stored.quarantine.entries() if self._stored else {}


class _Verified:
    def doubt(self, table_key: str, document: Mapping[str, object]) -> None:
        """Store nothing."""


class _Decisions:
    def __init__(self, stored: Stored | None) -> None:
        self._stored = stored

    def on_statements(self) -> Mapping[DdlId, Decision]:
        """Return the decisions about statements that wait."""
        return {} if self._stored is None else self._stored.decisions.on_statements()

    def waiting(self) -> tuple[bool, bool]:
        """Return that there is nothing to apply, and nothing to load."""
        return False, False

    def apply_to_tables(self, busy: Collection[str] = (), *, tells_time: bool = True) -> list[Obeyed]:  # noqa: ARG002 - none is applied
        """Apply none: the plan begins with what they make of the state."""
        return []

    def foreseen(self, *, tells_time: bool = True) -> list[Foreseen]:
        """Return what the next round is going to make of decisions about tables."""
        return [] if self._stored is None else self._stored.decisions.foreseen(tells_time=tells_time)
