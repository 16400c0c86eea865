"""ConsumerManager: new files to their tables, the next wave of work, and the checkpoint of the whole. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from itertools import chain

from storage_consumer.model import DataFile, TableDefinition, TableName, folded_name
from storage_consumer.plan.barriers import CREATE_SCHEMA, renamed_keys, touched_keys
from storage_consumer.plan.directories import Catalog, Commands, Restart, plain_command
from storage_consumer.plan.known_names import TableNames
from storage_consumer.plan.lifetimes import Lifetimes, is_dropped_after
from storage_consumer.plan.missing import (
    covered_renames,
    gives_away,
    is_covered,
    leave_behind,
    look_for_gaps,
    stuck,
)
from storage_consumer.plan.planner import PendingDdl, Position, barriers, ready_ddls, target_of
from storage_consumer.plan.renames import renamed, subject
from storage_consumer.plan.selection import Selection
from storage_consumer.plan.shared_names import collisions, note_ignored, sharing_a_name
from storage_consumer.plan.steps import DdlStep, RowStep, Wave, key_of
from storage_consumer.plan.stopped import LATE, StoppedDdl
from storage_consumer.plan.table import RUNNING, WAITING, TableConsumer
from storage_consumer.tso import ddl_is_pending


class ConsumerManager:
    """All tables of one bucket. One `TableConsumer` per table name; the same one for all data of that table."""

    def __init__(
        self,
        restart: Restart,
        gap_timeout: float,
        *,
        timed: bool = True,
        selection: Selection | None = None,
        command: Commands = plain_command,
    ) -> None:
        """Begin with what an earlier run left. `gap_timeout`: seconds to wait for a missing file; `timed`: see `TableConsumer`."""
        self.finished_files = 0
        self.left_out_files = 0
        self.selection = selection or Selection()
        self.stored_lowest = restart.lowest
        """The stored `Checkpoints.lowest`."""
        self._catalog = Catalog(restart, timed=timed, selection=self.selection, command=command)
        self._gap_timeout = gap_timeout
        self._pending: dict[tuple[str, int, int], DdlStep] = {}
        self._ran = set(restart.journalled)
        self.started = restart.started
        """Identities of the DDL during which an earlier run was interrupted."""
        self.stopped = StoppedDdl()
        self._late: list[DdlStep] = []
        self._copied: list[DdlStep] = []
        self.has_structure = self._catalog.has_structure
        self._dispatched = False
        self.streams = self._catalog.streams
        self.lifetimes = Lifetimes()
        self._touches: dict[tuple[str, int, int], frozenset[str]] = {}
        self._tables_are_new = True
        """Whether tables or statements were added since it was computed which statement touches which tables."""
        self._names = TableNames(self.tables, self.selection.routes)
        self._namesakes: Mapping[str, frozenset[str]] = {}

    @property
    def tables(self) -> Mapping[str, TableConsumer]:
        """All tables, by key."""
        return self._catalog.tables

    @property
    def stored_checkpoint(self) -> int:
        """The stored checkpoint that idle tables follow, inclusive: see `Checkpoints.running`."""
        return self._catalog.stored_checkpoint

    @stored_checkpoint.setter
    def stored_checkpoint(self, checkpoint: int) -> None:
        self._catalog.stored_checkpoint = checkpoint

    @property
    def is_new(self) -> bool:
        """Whether nothing was dispatched yet."""
        return not self._dispatched

    # (2) dispatch: new files to their tables

    def dispatch(
        self, definitions: Iterable[TableDefinition], table_dirs: Mapping[str, str], files: Iterable[DataFile]
    ) -> list[DdlStep]:
        """Hand new schema files (path → table directory in `table_dirs`) and data files to their tables; return late DDL."""
        self._late = []
        # Older definitions first: whose a directory is depends on the older ones beside it.
        taken, before = sorted(definitions, key=lambda d: (d.version, d.path)), len(self.tables)
        for definition in taken:
            table_dir = table_dirs[definition.path]
            self._catalog.define(table_dir, definition)
            table = self._catalog.table(subject(definition))
            if definition.is_ddl:
                table.statements[definition.version] = definition.ddl_type
                note_ignored(table, definition, self.selection)
            self.lifetimes.ends(table.key, definition)
            self._enlist(table_dir, table, definition)
            if definition.ddl_type == CREATE_SCHEMA and not self.selection.judged_away(definition):
                self.lifetimes.creates(definition.name.schema, definition.version)
        self._leave_out_structures()
        for file in files:
            table = self._catalog.owner(file.version_key)
            if table.excluded:
                self._catalog.discarded.add(file.version_key)
                self.left_out_files += 1
                continue
            self.finished_files += not self._catalog.offer(table, file)
        self._catalog.look_at_copies(again=self._dispatched)
        self._dispatched = True
        if taken or len(self.tables) != before:
            self._tables_are_new = True
            self._names = TableNames(self.tables, self.selection.routes)
        return self._late

    def _enlist(self, table_dir: str, table: TableConsumer, definition: TableDefinition) -> None:
        """Queue a statement (or a first structure without one), unless it ran."""
        ensure = not definition.is_ddl
        if ensure and (table.excluded or not table.needs_table_before(definition, self.lifetimes.ends_of(table))):
            return
        step = DdlStep(table_dir=table_dir, table_key=table.key, definition=definition, ensure=ensure)
        # The copy may hold its effects: `covered` decides once all definitions are in.
        if step.version <= table.copied_at and step.identity not in self._ran:
            self._copied += [] if ensure else [step]
        elif ddl_is_pending(step.version, table.checkpoint, journalled=step.identity in self._ran):
            self._pending[step.identity] = step
        elif not (ensure or table.excluded) and step.version < table.checkpoint and step.identity not in self._ran:
            self._late.append(step)
            self.halt(table.key, LATE.format(definition.path))

    def _leave_out_structures(self) -> None:
        """Dequeue structures whose table is created by a statement that came later, or by another of its structures."""
        ensured: dict[str, int] = {}
        for step in sorted((s for s in self._pending.values() if s.ensure), key=lambda s: s.version):
            table = self.tables.get(step.table_key)
            ends = self.lifetimes.ends_of(table) if table is not None else ()
            before = ensured.get(step.table_key)
            again = before is not None and not any(before < end < step.version for end in ends)
            if table is None or again or not table.needs_table_before(step.definition, ends):
                del self._pending[step.identity]
            ensured[step.table_key] = step.version

    def covered(self) -> list[DdlStep]:
        """Return statements that came since the last call and whose effects are in copies of their tables; the others are queued."""
        copied, self._copied = self._copied, []
        if not copied:
            return []
        waiting = [step for step in chain(copied, self._pending.values()) if gives_away(step)]
        together = covered_renames(waiting, self.tables, self.lifetimes.ends_of)
        done = [
            step for step in copied if not gives_away(step) and is_covered(step, self.tables, self.touched)
        ] + together
        for step in copied:
            if step not in done:
                self._pending[step.identity] = step
                self._tables_are_new = True
        for step in done:
            self._pending.pop(step.identity, None)
            if (old := leave_behind(step, self.tables)) is not None:
                self._catalog.to_be_stored.append(old)
        for step in together:
            table = self.tables[step.table_key]
            table.copied_at = max(table.copied_at, step.version)
            self._catalog.to_be_stored.append(table)
        self._ran |= {step.identity for step in done}
        return done

    def taken_over(self) -> list[TableConsumer]:
        """Return the tables that gained files since the last call because a schema file named their owner; their progress must be saved."""
        stored, self._catalog.to_be_stored = self._catalog.to_be_stored, []
        return stored

    # (2) plan: the next wave

    def look_for_gaps(self, storage_checkpoint: int, now: float) -> dict[str, str]:
        """Let tables wait for what is missing; return table key → error for those that waited too long. `now` in seconds."""
        tables, catalog = self.tables.values(), self._catalog
        return look_for_gaps(tables, storage_checkpoint, now, self._gap_timeout, catalog.now, catalog.command)

    def next_wave(self, storage_checkpoint: int, *, settled: bool) -> Wave:
        """Return the rows of every table that has some to read; where no table has any before its next DDL, the DDL that can run.

        Tables without files in their window advance immediately.
        """
        pending = self._with_touches()
        barrier = barriers(pending)
        steps = []
        for table in self.tables.values():
            if table.blocked:
                continue
            target = target_of(table.key, barrier, storage_checkpoint)
            if step := table.row_step(target):
                steps.append(step)
            else:
                table.advance(target)
        if steps:
            return Wave(rows=tuple(steps), ddls=())
        positions = {
            key: Position(checkpoint=t.checkpoint, blocked=t.blocked, first=t.first) for key, t in self.tables.items()
        }
        return Wave(rows=(), ddls=ready_ddls(pending, positions, storage_checkpoint, settled=settled))

    def _with_touches(self) -> list[PendingDdl]:
        """Return the DDL that have not run, each with the tables that it touches and with names that exist only during a rename."""
        self._look_at_new_tables()
        return [
            PendingDdl(step=step, touches=self._touches[identity] | renamed_keys(step.definition))
            for identity, step in self._pending.items()
        ]

    def _look_at_new_tables(self) -> None:
        if self._tables_are_new:
            self._namesakes = sharing_a_name(self._names.alike, self.tables)
            self._touches = {identity: self._touched_by(step) for identity, step in self._pending.items()}
            self._tables_are_new = False

    def _touched_by(self, step: DdlStep) -> frozenset[str]:
        touched = touched_keys(step.definition, self._names.known) | {step.table_key}
        return frozenset(touched.union(*(self._namesakes.get(key, ()) for key in touched)))

    def touched(self, step: DdlStep) -> frozenset[str]:
        """Return the tables, by key, that a DDL of the last wave, or one inferred from it, is a barrier for."""
        self._look_at_new_tables()
        if step.identity not in self._touches:
            self._catalog.table(step.name)  # nothing else may know the table that an inferred one names
            self._touches[step.identity] = self._touched_by(step)
        return self._touches[step.identity]

    def namesakes(self, table: str, step: DdlStep) -> list[TableConsumer]:
        """Return the tables of this name that exist right before a statement, among those that it is a barrier for."""
        found = (self.tables[key] for key in sorted(self.touched(step)))
        named = [t for t in found if t.name.table and folded_name(t.name.table) == folded_name(table)]
        return [t for t in named if not t.dropped and (t.first < step.version or t.stays_after(step.version))]

    def structure_before(self, name: TableName, version: int) -> TableDefinition | None:
        """Return the newest structure of a known table from before `version` (exclusive)."""
        return self.tables[key_of(name)].structure_at(version - 1)

    # (6) acknowledge: what was done

    def beyond(self, step: DdlStep) -> list[str]:
        """Return touched tables that were applied beyond a statement, or are copies that already hold its effects.

        There are none unless the statement came late, or only some of the tables that it touches were copied.
        """
        tables = (self.tables[key] for key in sorted(self.touched(step)))
        known = [t for t in tables if 0 < t.first <= step.version]
        return [str(t.name) for t in known if t.checkpoint > step.version or t.copied_at >= step.version]

    def rows_applied(self, step: RowStep) -> None:
        """Note that all rows of the step's window are in the target."""
        self.tables[step.table_key].advance(step.window.high)

    def moved_by(self, step: DdlStep) -> list[TableConsumer]:
        """Return the tables that a statement advances, in their state after it; none for one that came late."""
        moved, pair = [], renamed(step.definition)
        gone = pair[0] if pair is not None and pair[0] != pair[1] else None
        for key in () if self.stopped.is_late(step) else sorted(self.touched(step)):
            # A copy: the table itself changes only in `ddl_done`.
            table = copy(self.tables[key])
            table.advance(step.version)
            table.dropped = is_dropped_after(step, table, gone)
            moved.append(table)
        return moved

    def has_run(self, step: DdlStep) -> bool:
        """Return whether the journal says that a statement is done, though its tables may not have been advanced."""
        return step.identity in self._ran

    def is_half_done(self, version: int) -> bool:
        """Return whether a statement of this version ran, or may have, and another waits: then all of them were known to be stored."""
        waits = any(version == step.version for step in self._pending.values())
        return waits and any(version == ran for _, ran, _ in chain(self._ran, self.started))

    def is_pending(self, step: DdlStep) -> bool:
        """Return whether a statement, which may have been started before the last fault, is still queued."""
        return step.inferred or step.identity in self._pending

    def ddl_done(self, step: DdlStep) -> None:
        """Note that a statement took effect, was found to have done so, or is not needed."""
        for moved in self.moved_by(step):
            self.tables[moved.key].checkpoint, self.tables[moved.key].dropped = moved.checkpoint, moved.dropped
        self._ran.add(step.identity)
        self._touches.pop(step.identity, None)
        self._pending.pop(step.identity, None)  # an inferred one never was queued

    def unreadable(self, table_dir: str, version: int) -> str:
        """Note a version whose structure cannot be read; return the key of the table that it seems to belong to."""
        return self._catalog.owner((version, table_dir)).key

    def collisions(self) -> dict[str, str]:
        """Return the tables that would overwrite another one in the target; key → error."""
        return collisions(self._names.alike, self.tables, self.selection.routes, self.lifetimes)

    def halt(self, key: str, error: str) -> None:
        """Halt one table; the others continue."""
        self.tables[key].halt(error)

    def wait(self, key: str, seen: tuple[str, ...], now: float) -> bool:
        """Leave one table where it is for this round; return whether it has waited too long for the same. `now` in seconds.

        `seen`: the reason, and whatever else shows that nothing has moved since the table last waited for it.
        """
        return self.tables[key].wait(seen, now) >= self._gap_timeout

    def new_round(self, now: int = 0) -> None:
        """Let tables that waited try again. `now`: the wall clock's time as a TSO."""
        self.left_out_files, self._catalog.now = 0, now
        for table in self.tables.values():
            if table.state == WAITING:
                table.state, table.error = RUNNING, ""

    def note_listed(self, storage_checkpoint: int) -> list[TableConsumer]:
        """Note the unread files of the tables that are behind the bucket; return the tables for which that is news."""
        now = self._catalog.now
        return [t for t in self.tables.values() if t.note_listed(behind=t.checkpoint < storage_checkpoint, now=now)]

    def vanished(self, files: Iterable[DataFile]) -> list[TableConsumer]:
        """Note files that are no longer stored; a table waits for those that were unfinished. Return the tables that lost one now."""
        return self._catalog.vanished(files)

    def overwritten(self, files: Iterable[DataFile]) -> dict[str, str]:
        """Note files rewritten unseen, whose rows may pass for repeats; return table key → why the table can't continue."""
        return self._catalog.overwritten(files)

    # what is known

    def stuck(self, storage_checkpoint: int) -> dict[str, str]:
        """Return tables that a finished round could not bring to the storage checkpoint, since a DDL before it did not run.

        Table key → which DDL, the first of several, and which of the tables that it touches are halted or waiting.
        """
        return stuck(self._with_touches(), self.tables, storage_checkpoint)

    def creates_database(self, step: DdlStep) -> bool:
        """Return whether a statement of the bucket creates the step's database before it, and no other table is in that database."""
        schema = self.tables[step.table_key].name.schema
        made = self.lifetimes.is_created(schema, step.version)
        return made and self.selection.owns_database(schema, self.databases)

    @property
    def databases(self) -> frozenset[str]:
        """The databases of all tables that are taken."""
        return self._names.databases

    @property
    def pending_bytes(self) -> int:
        """Bytes of the listed files that are not finished."""
        return sum(table.pending_bytes for table in self.tables.values())

    @property
    def pending_files(self) -> int:
        """Number of listed files that are not finished."""
        return sum(table.pending for table in self.tables.values())

    def left_out_directories(self) -> frozenset[str]:
        """Return version directories that need not be listed: those of tables that the filter leaves out."""
        return frozenset(f"{table_dir}/{version}" for version, table_dir in self._catalog.discarded)
