"""MemoryState: the twin of the state, a handle on `TargetRecords`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from storage_consumer.clock import Clock
from storage_consumer.errors import ConfigError, LeaseLost
from storage_consumer.model import DdlId, SkippedRows, TableDefinition, TableName
from storage_consumer.plan.ddl_backlog import TableEntries, gone_by
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.journal_entry import DONE, FAILED, SKIPPED, STARTED, ExecutionOutcome, JournalEntry, Sent
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table_decisions import Foreseen, Obeyed, TableDecision
from storage_consumer.plan.table_state import TableState
from storage_consumer.ports import Decision, TableProgress
from storage_consumer.rows.comparison import renamed, result_from, says_more
from storage_consumer.rows.spec import TaskStatements
from tests.harness.twins.operator import (
    apply_decisions,
    follow,
    foresee_decisions,
    put_tables,
    restart_of,
    unobeyed,
    unsettled,
)
from tests.harness.twins.records import TargetRecords

_ENDED_BY_A_LOAD = ("pause", "reload-done")
NO_STATEMENTS = TaskStatements(lock_slot="", claim_slot="", close_slot="", lock_checkpoint="", store_checkpoint="")
"""Those of a task on a twin, which has no tables to run them on."""


class MemoryState:
    """The twin of `checkpoint.store.StateStore`."""

    def __init__(self, records: TargetRecords, clock: Clock) -> None:
        """Open a handle on `records`; `clock` is the database's."""
        self._records = records
        owned = OwnedRecords(records)
        self.lease = MemoryLease(owned, clock)
        self.progress = MemoryProgress(owned)
        self.journal = MemoryJournal(owned)
        self.history = MemoryHistory(owned)
        self.decisions = MemoryDecisions(owned)
        self.loads = MemoryLoads(owned)
        self.quarantine = MemoryQuarantine()
        self.verified = MemoryVerified(owned)

    def open(self, upstream: str) -> None:
        """Remember the bucket; raise `ConfigError` if the state belongs to another bucket."""
        self._records.upstream = self._records.upstream or upstream
        if self._records.upstream != upstream:
            raise ConfigError(f"the state belongs to the bucket {self._records.upstream}, not to {upstream}")

    def close(self) -> None:
        """Do nothing: no connection is open."""


class MemoryQuarantine:
    """The twin of `checkpoint.findings.StoredQuarantine`: twins refuse no row."""

    def entries(self) -> Mapping[str, TableEntries]:
        """Return nothing."""
        return {}


class MemoryVerified:
    """The twin of `checkpoint.findings.StoredVerified`."""

    def __init__(self, owned: OwnedRecords) -> None:
        """Write to these records."""
        self._owned = owned

    def doubt(self, table_key: str, document: Mapping[str, object]) -> None:
        """Keep it if it says more than what is known."""
        verified = self._owned.of_owner("storing that a table may not be equal").verified
        result = result_from(document)
        if table_key not in verified or says_more(result, verified[table_key]):
            verified[table_key] = result


class OwnedRecords:
    """The twin of `checkpoint.transactions.StateTransactions`."""

    def __init__(self, records: TargetRecords) -> None:
        """Guard `records`."""
        self.all = records
        """The records, whoever has the lease."""
        self.epoch = 0
        """The epoch of our lease; 0 before the first one."""

    def of_owner(self, doing: str) -> TargetRecords:
        """Return the records; raise `LeaseLost` unless the lease is ours."""
        if self.all.epoch != self.epoch:
            raise LeaseLost(f"another process took the lease while {doing}")
        return self.all


class MemoryLease:
    """The twin of `checkpoint.transactions.StoredLease`."""

    def __init__(self, owned: OwnedRecords, clock: Clock) -> None:
        """Take the lease of these records; `clock` is the database's."""
        self._owned = owned
        self._records = owned.all
        self._clock = clock
        self._holder = ""
        self.task_statements = NO_STATEMENTS

    @property
    def epoch(self) -> int:
        """The number of our lease; 0 before the first."""
        return self._owned.epoch

    def acquire(self, holder: str, ttl: float, *, dead: str = "") -> str:
        """Take the lease if it is free, expired, ours or a dead holder's; return ``""``, or the holder who prevents it."""
        records = self._records
        # By the records' clock, as the real lease goes by the database's.
        if records.holder not in ("", holder, dead) and records.expires_at >= self._clock.now():
            return records.holder
        records.holder, records.epoch, records.expires_at = holder, records.epoch + 1, self._clock.now() + ttl
        self._owned.epoch, self._holder = records.epoch, holder
        return ""

    def renew(self, ttl: float) -> bool:
        """Extend the lease if it is ours; return whether it is."""
        if not self._is_ours():
            return False
        self._records.expires_at = self._clock.now() + ttl
        return True

    def release(self) -> None:
        """Release the lease if it is ours."""
        if self._is_ours():
            self._records.holder = ""

    def open_window(self, partitions: int, storage_checkpoint: int, writes: Mapping[str, int] | None = None) -> int:  # noqa: ARG002 - no slots are needed for one writer
        """Fence off all older windows; return the id of the new one."""
        records = self._owned.of_owner("opening a window")
        for key, upto in (writes or {}).items():
            records.writes[key] = max(records.writes.get(key, 0), upto)
        records.storage_checkpoint = max(records.storage_checkpoint, storage_checkpoint)
        # One pair stands for all slots: a writer compares it as a task compares its own slot.
        records.window = (self.epoch, records.window[1] + 1)
        return records.window[1]

    def _is_ours(self) -> bool:
        return (self._records.holder, self._records.epoch) == (self._holder, self.epoch)


class MemoryProgress:
    """The twin of `checkpoint.progress.StoredProgress`."""

    def __init__(self, owned: OwnedRecords) -> None:
        """Read and write these records."""
        self._owned = owned

    def load(self) -> tuple[Restart, int]:
        """Return what was saved, and the highest storage checkpoint."""
        records = self._owned.of_owner("reading the state")
        return restart_of(records), records.storage_checkpoint

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
        """Store what moved; all checkpoints but `lowest` only grow."""
        records = self._owned.of_owner("storing the progress")
        put_tables(records, tables)
        for key in joined:
            if key in records.loads and records.loads[key].phase == LoadPhase.JOINING:
                records.loads[key] = replace(records.loads[key], phase=LoadPhase.DONE)
        for name, sequence in sequences.items():
            # Chunks add to those that are stored, unless they are all that there is.
            before = {} if sequence.replaces else records.sequences.get(name, Finished()).digests
            kept = Finished(upto=sequence.upto, left_out=sequence.left_out, digests={**before, **sequence.digests})
            records.sequences[name] = kept
        records.checkpoint = max(records.checkpoint, checkpoint)
        records.lowest = records.lowest if lowest is None else lowest
        records.storage_checkpoint = max(records.storage_checkpoint, storage_checkpoint)

    def skip(self, rows: Iterable[SkippedRows], *, anew: bool = False) -> None:
        """Store what is left out."""
        records = self._owned.of_owner("storing what is left out")
        if anew:
            records.skipped = {key: each for key, each in records.skipped.items() if each.table.schema}
        records.skipped.update({each[:2]: each for each in rows})

    def skipped(self) -> Sequence[SkippedRows]:
        """Return what was left out."""
        return sorted(self._owned.of_owner("reading the state").skipped.values(), key=lambda each: each.commit_ts)


class MemoryJournal:
    """The twin of `checkpoint.journal.StoredJournal`."""

    def __init__(self, owned: OwnedRecords) -> None:
        """Read and write these records."""
        self._owned = owned

    def entry(self, step: DdlStep) -> JournalEntry | None:
        """Return the entry of a statement, or None."""
        return self._owned.of_owner("reading the DDL journal").journal.get(step.identity)

    def record(
        self,
        step: DdlStep,
        state: str,
        *,
        run: Sent | ExecutionOutcome | None = None,
        note: str = "",
        tables: Iterable[TableProgress] = (),
        copied: bool = False,
    ) -> None:
        """Store the state of a statement, and the tables that it moved; `copied`: whether a copy holds its effect, so that it did not run."""
        records = self._owned.of_owner("writing the DDL journal")
        before = records.journal.get(step.identity, JournalEntry(state="", structure_before="", note=""))
        # What was sent stays in the entry when the outcome is recorded: a restart judges by it.
        sent = run if isinstance(run, Sent) else before
        records.journal[step.identity] = JournalEntry(
            state=state, structure_before=sent.structure_before, note=note, statement=sent.statement
        )
        if state == DONE and before.state != DONE and not copied:
            _take_along(records, step)
        put_tables(records, tables, as_they_were=True)

    def refused(self, step: DdlStep, error: str) -> None:
        """Record why a statement stops its table; a started statement without a known outcome stays started."""
        entry = self.entry(step)
        unresolved = entry is not None and entry.state == STARTED
        self.record(step, STARTED if unresolved else FAILED, note=error)

    def copied(self, step: DdlStep, at: int) -> None:
        """Record that a statement is done, because a copy contains its effect."""
        self.record(step, DONE, note=f"a copy as of {at} holds it", copied=True)


def _take_along(records: TargetRecords, step: DdlStep) -> None:
    """Do to what comparisons found what `checkpoint.findings.take_along` does."""
    table, database = gone_by(step)
    known = records.verified.pop(table, None)
    for key in [key for key in records.verified if database and key.startswith(database)]:
        del records.verified[key]
    if (rename := step.origin.ddl.rename) is not None:
        records.verified.pop(key_of(rename.new), None)
        if known is not None:
            records.verified[key_of(rename.new)] = renamed(known, rename.new)


class MemoryHistory:
    """The twin of `checkpoint.journal.StoredHistory`."""

    def __init__(self, owned: OwnedRecords) -> None:
        """Read and write these records."""
        self._owned = owned

    def keep(self, read: Iterable[tuple[str, TableDefinition]]) -> None:
        """Store the content of schema files."""
        for table_dir, definition in read:
            kept = self._owned.of_owner("storing structures").kept
            # The real history keeps no warnings: they are about reading the file, not about the table.
            kept[DdlId(table_dir, definition.version, definition.checksum)] = replace(definition, warnings=())

    def kept(self, table_dir: str, version: int) -> list[TableDefinition]:
        """Return the content of the schema files of one version directory."""
        kept = self._owned.of_owner("reading a structure").kept
        return [d for identity, d in sorted(kept.items()) if identity[:2] == (table_dir, version)]

    def known_versions(self) -> frozenset[tuple[str, int]]:
        """Return table directory and version of everything that was kept."""
        return frozenset(identity[:2] for identity in self._owned.of_owner("reading which versions are known").kept)

    def unresolved(self) -> list[tuple[str, int]]:
        """Return directory and version of kept statements that are neither done nor skipped."""
        records = self._owned.of_owner("reading which statements are not resolved")
        resolved = {identity for identity, entry in records.journal.items() if entry.state in (DONE, SKIPPED)}
        return sorted({i[:2] for i, definition in records.kept.items() if definition.is_ddl and i not in resolved})


class MemoryDecisions:
    """The twin of `checkpoint.tables.StoredDecisions`."""

    def __init__(self, owned: OwnedRecords) -> None:
        """Read and write these records."""
        self._owned = owned

    def on_statements(self) -> Mapping[DdlId, Decision]:
        """Return the decisions on statements that are neither done nor skipped."""
        records = self._owned.all
        journal = records.journal
        return {i: d for i, d in records.decisions.items() if i in journal and journal[i].state not in (DONE, SKIPPED)}

    def foreseen(self, *, tells_time: bool = True) -> list[Foreseen]:
        """Return what `apply_to_tables` would make now of the decisions that nobody has obeyed yet."""
        return foresee_decisions(self._owned.all, tells_time=tells_time)

    def waiting(self) -> tuple[bool, bool]:
        """Return whether decisions on tables wait, and whether loads are requested."""
        records = self._owned.all
        return bool(unobeyed(records)), any(each.phase == LoadPhase.REQUESTED for each in records.loads.values())

    def apply_to_tables(self, busy: Collection[str] = (), *, tells_time: bool = True) -> list[Obeyed]:
        """Apply decisions on tables, each once, except those on `busy` tables; return their results."""
        # A look without the lease first, as the real one does.
        if not unobeyed(self._owned.all):
            return []
        return apply_decisions(self._owned.of_owner("obeying a decision about a table"), busy, tells_time=tells_time)


class MemoryLoads:
    """The twin of `checkpoint.tables.StoredLoads`."""

    def __init__(self, owned: OwnedRecords) -> None:
        """Read and write these records."""
        self._owned = owned

    def requested(self) -> list[Load]:
        """Return the loads that no consumer has looked at, by table."""
        loads = self._owned.all.loads
        return [load for _, load in sorted(loads.items()) if load.phase == LoadPhase.REQUESTED]

    def unsettled(self, load: Load) -> tuple[int, bool]:
        """Return the last statement that may touch the table and is not known to have ended; and whether the table is halted."""
        return unsettled(self._owned.all, load.table_key, load.name)

    def begin(
        self,
        loads: Collection[Load],
        *,
        by: str,
        floor: int = 0,
        places: Mapping[str, TableName] | None = None,
    ) -> list[Load]:
        """Store that these loads begin, and with `floor` that the feed does; without `by` only those that are still requested."""
        records = self._owned.of_owner("beginning to load tables")
        records.floor = records.floor or floor
        records.checkpoint, records.lowest = max(records.checkpoint, floor), max(records.lowest, floor)
        wished = {(key, load.load_id) for key, load in records.loads.items() if load.phase == LoadPhase.REQUESTED}
        begun = [load for load in loads if by or (load.table_key, load.load_id) in wished]
        for load in begun:
            records.loads[load.table_key] = load
            new = TableProgress(
                table_key=load.table_key, schema=load.name.schema, table=load.name.table, checkpoint=0, state=""
            )
            before = records.tables.get(load.table_key, new)
            place = (places or {}).get(load.table_key)
            records.tables[load.table_key] = replace(
                before, state=TableState.LOADING, follows=False, error="", target=place
            )
            records.verified.pop(load.table_key, None)
            # What kept the table halted until it gets a copy does so no more.
            made, seen = records.table_decisions.get(load.table_key), records.obeyed.get(load.table_key)
            if made is not None and seen is not None and seen.decision == made and made.verb in _ENDED_BY_A_LOAD:
                del records.table_decisions[load.table_key], records.obeyed[load.table_key]
        return begun

    def wait(self, load: Load, why: str) -> None:
        """Store why a requested load does not begin yet."""
        loads = self._owned.of_owner("storing what a load waits for").loads
        if loads[load.table_key].phase == LoadPhase.REQUESTED:
            self._end(loads, load, LoadPhase.REQUESTED, why)

    def refuse(self, load: Load, error: str) -> None:
        """Store why a copy cannot be used."""
        self._end(self._owned.of_owner("refusing a load").loads, load, LoadPhase.REFUSED, error)

    def cancel(self, load: Load, why: str) -> None:
        """Store why a load does not go on."""
        self._end(self._owned.of_owner("ending a load").loads, load, LoadPhase.CANCELLED, why)

    def advance(self, clocks: Mapping[str, int]) -> None:
        """Store how far loads are; it never goes back."""
        loads = self._owned.of_owner("storing how far loads are").loads
        for key, clock in clocks.items():
            if loads[key].phase == LoadPhase.LOADING:
                loads[key] = replace(loads[key], done=max(loads[key].done, clock))

    def clocks(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Return how far the loads of these tables are."""
        loads = self._owned.of_owner("reading how far loads are").loads
        return {key: loads[key].done for key in keys}

    def finish(self, load: Load) -> str:
        """Let a table go on after its copy; return why that may not be yet, or an empty text."""
        records = self._owned.of_owner("ending a load")
        if why := follow(records, TableDecision(table_key=load.table_key, verb="reload-done", at=load.low)):
            return why
        self._end(records.loads, load, LoadPhase.JOINING)
        return ""

    def _end(self, loads: dict[str, Load], load: Load, phase: LoadPhase, error: str = "") -> None:
        # Only this very load: an operator may have requested another one meanwhile.
        if loads[load.table_key].load_id == load.load_id:
            loads[load.table_key] = replace(loads[load.table_key], phase=phase, error=error)
