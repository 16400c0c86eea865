"""ConsumerManager: new files to their tables, the next wave of work, and what was done. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from itertools import chain
from typing import Final

from storage_consumer.clock import some_of
from storage_consumer.model import DataFile, DdlKind, TableDefinition
from storage_consumer.plan.covered import (
    Early,
    Unbased,
    beside_copies,
    count_as_copied,
    covered_renames,
    gives_away,
    is_covered,
)
from storage_consumer.plan.ddl_backlog import (
    LATE,
    DdlBacklog,
    LeftOutViews,
    QuarantinedTables,
    StoppedDdl,
)
from storage_consumer.plan.directories import Catalog, Commands, Restart, plain_command
from storage_consumer.plan.planner import (
    Position,
    ready_ddls,
    standing_still,
    target_of,
    whole_groups,
)
from storage_consumer.plan.selection import Selection
from storage_consumer.plan.steps import DdlStep, RowStep, Wave
from storage_consumer.plan.table import Lifetimes, TableConsumer, begins_at, is_dropped_after
from storage_consumer.plan.table_files import TableVersionConsumer
from storage_consumer.plan.table_state import TableState
from storage_consumer.plan.touches import Touches, collisions
from storage_consumer.plan.unqualified_names import LocatedRenames
from storage_consumer.sql.parse import parsed
from storage_consumer.tso import ddl_is_stored

_NAMED = 3


class ConsumerManager:
    """All tables of one bucket, one `TableConsumer` for all data of a table name.

    What is known lies in its parts: `catalog` (whose a directory is), `backlog` (what has not run),
    `touches` (what a statement is a barrier for), `lifetimes` and `stopped`. What moves several of
    them happens here.
    """

    def __init__(
        self,
        restart: Restart,
        gap_timeout: float,
        *,
        tells_time: bool = True,
        selection: Selection | None = None,
        command: Commands = plain_command,
        makes_bare: bool = True,
    ) -> None:
        """Begin with what an earlier run left.

        `gap_timeout`: seconds to wait for a missing file; `tells_time`: see `TableFiles`;
        `makes_bare`: see `Loading.no_copy`.
        """
        self.finished_files = 0
        self.makes_bare: Final = makes_bare
        self.left_out_files = 0
        self.skipped_files = 0
        self.selection: Final = selection or Selection()
        self.catalog: Final = Catalog(
            restart, tells_time=tells_time, selection=self.selection, command=command
        )
        self.tables: Final[Mapping[str, TableConsumer]] = self.catalog.tables
        self.sequences: Final = self.catalog.sequences
        self.backlog: Final = DdlBacklog(restart.journalled, restart.started, restart.refused)
        self.lifetimes: Final = Lifetimes()
        self.touches: Final = Touches(
            self.backlog, self.catalog, self.selection.routes, self.lifetimes
        )
        self.stopped: Final = StoppedDdl()
        self.left_out: Final = LeftOutViews(self.tables, self.backlog, self.touches, self.lifetimes)
        self.quarantined: Final = QuarantinedTables()
        self._gap_timeout = gap_timeout
        self.floor: Final = restart.floor
        """TSO of the copy that the feed began with, 0 for none."""
        self.early: Final = Early(floor=restart.floor, based=restart.based, started=restart.started)
        self.unbased: Final = Unbased(restart.floor, restart.based)
        self._renames: Final = LocatedRenames(restart.floor, restart.based)
        self._dispatched = False

    @property
    def is_new(self) -> bool:
        """Whether nothing was dispatched yet."""
        return not self._dispatched

    # (2) dispatch: new files to their tables

    def dispatch(
        self,
        definitions: Iterable[TableDefinition],
        table_dirs: Mapping[str, str],
        files: Iterable[DataFile],
    ) -> list[DdlStep]:
        """Hand new schema files (path → table directory) and data files to tables.

        Return late DDL.
        """
        # Older definitions first: whose a directory is depends on the older ones beside it.
        taken = sorted(definitions, key=lambda d: (d.version, d.path))
        defined = [self._define(table_dirs[definition.path], definition) for definition in taken]
        self._renames.locate(self.tables.values(), self.lifetimes)
        # After all definitions, in whatever order they came: one of them may create the table of a
        # structure taken before it.
        dropped = self.backlog.drop_structures(self.tables, self.lifetimes) if taken else []
        late, touched = self.catalog.late, dict[str, TableVersionConsumer]()
        for file in files:
            table = self.catalog.owner(file.version_key)
            if table.status.excluded:
                self.catalog.discard(file)
                if table.status.skipped:
                    self.skipped_files += 1
                else:
                    self.left_out_files += 1
                continue
            late.look_at(table.key, file)
            self.finished_files += not self.catalog.offer(table, file)
            touched[file.sequence] = table.files.versions[file.version_key]
        for sequence, version in touched.items():
            late.miss(sequence, version.never_listed(sequence))
        self.catalog.look_at_copies(again=self._dispatched)
        self._dispatched = True
        self.touches.update(self.backlog.take_queued(), dropped)
        return [step for step in defined if step is not None]

    def _define(self, table_dir: str, definition: TableDefinition) -> DdlStep | None:
        """Take a schema file; queue its statement or first structure, or return a late one."""
        self.catalog.define(table_dir, definition)
        table = self.catalog.table(parsed(definition).subject)
        if definition.is_ddl:
            ignored = not table.status.left_out and bool(self.selection.filter.ignores(definition))
            table.timeline.add(definition, ignored=ignored)
        self.lifetimes.ends(table.key, definition)
        if definition.is_ddl:
            self.unbased.note(table.key, definition)
        step = DdlStep(
            table_dir=table_dir,
            table_key=table.key,
            definition=definition,
            ensure=not definition.is_ddl,
        )
        self._renames.note(step, table.copies.copied_at)
        if (
            step.ensure
            and self._is_needed(step, table)
            and self.unbased.takes(table.key, definition)
        ):
            return None
        late = self._is_needed(step, table) and self.backlog.take(step, table)
        # It was left out before, or its file came late: a view can be made at any time.
        if late and step.makes_view:
            self.left_out.take(step)
            late = False
        if late:
            table.halt(LATE.format(definition.path), "ddl")
        if definition.ddl_type == DdlKind.CREATE_SCHEMA and not self.selection.judged_away(
            definition
        ):
            self.lifetimes.creates(definition.name.schema, definition.version)
        return step if late else None

    def _is_needed(self, step: DdlStep, table: TableConsumer) -> bool:
        """Return whether a step is a statement, or a structure of a table not yet made."""
        if not step.ensure:
            return True
        ends = self.lifetimes.ends_of(table)
        return not table.status.excluded and table.timeline.needs_table_before(
            step.definition, ends
        )

    def covered(self, storage_checkpoint: int) -> list[DdlStep]:
        """Return new statements whose effects are in copies of their tables; queue the others."""
        done: list[DdlStep] = []
        while taken := self.unbased.beside_views(self.backlog.take_copied(), storage_checkpoint):
            copied = self._renames.of(taken)
            # With queued ones: a rename of the same version may hand a name on.
            waiting = [
                step
                for step in chain(copied, self.backlog)
                if gives_away(step) and not step.makes_view
            ]
            together = covered_renames(waiting, self.tables, self.lifetimes.ends_of, self.floor)
            made = [
                step
                for step in copied
                if self.unbased.lacks_view(step, self.tables[step.table_key])
                and self.left_out.is_last(step)
            ]
            alone = (
                step
                for step in copied
                if step not in made and (step.makes_view or not gives_away(step))
            )
            found = [
                step for step in alone if is_covered(step, self.tables, self.touches.of)
            ] + together
            for step in copied:
                if step in made:
                    self.left_out.take(step)
                elif step not in found:
                    self.backlog.put_back(step)
                    self.touches.renew()
            count_as_copied(found, together, (self.backlog, self.catalog, self.touches))
            done += found
            # Older statements led to what a rename moved into a copy, which holds them too.
            if together:
                self.backlog.recall(self.tables)
        return done

    def refuse_places(self) -> dict[str, str]:
        """Mark tables with a colliding target name; return newly affected ones, key → error."""
        errors = {
            table.key: table.status.nowhere
            for table in self.tables.values()
            if table.status.nowhere
        }
        colliding = collisions(
            self.touches.names.alike, self.tables, self.selection.routes, self.lifetimes
        )
        for key, error in colliding.items():
            if not self.tables[key].status.misplaced:
                self.tables[key].misplace()
                # It holds up nobody who has the same name.
                self.touches.renew()
            errors.setdefault(key, error)
        return {
            key: error for key, error in errors.items() if not self.tables[key].status.is_halted
        }

    # (2) plan: the next wave

    def look_for_gaps(self, storage_checkpoint: int, now: float) -> dict[str, str]:
        """Wait for missing files; return table key → error of waits too long. `now`: seconds."""
        late = {}
        at, command = self.catalog.now, self.catalog.command
        for table in self.tables.values():
            # It had files listed before it was left out, and waits for none of them any more.
            if table.status.excluded:
                continue
            # Files that have expired by now need not come once there is a copy.
            if table.status.lacks_past:
                table.copies.miss(table.copies.gaps(), at)
            if reason := table.look_for_gaps(storage_checkpoint, now, self._gap_timeout):
                table.copies.miss(table.copies.gaps(), at)
                self.catalog.late.give_up(table.key)
                # Files that are passed over are not listed any more, so nothing is known of when
                # one of them was written.
                lost = (
                    f"nothing shows whether the copy as of {table.copies.copied_at} holds its rows. It may have been passed over "
                    "while the table was left out, and have expired since, or be lost at the source"
                    if table.copies.copied_at > self.floor
                    else "data was lost at the source"
                )
                late[table.key] = (
                    f"{reason} is missing and did not arrive within {self._gap_timeout:g} s: {lost}. If the "
                    f"file still exists somewhere, restore it and run: {command('resume', table.name)} -- otherwise "
                    "give the table a copy of the source as of now or later. From an export: "
                    f"{command('reload-done', table.name)}"
                )
        return late

    def next_wave(self, storage_checkpoint: int, *, is_stable: bool) -> Wave:
        """Return every table's readable rows; without rows before its next DDL, runnable DDL.

        Tables without files in their commit range advance immediately.
        """
        blocked = [key for key, table in self.tables.items() if table.status.blocked]
        pending = self.touches.pending()
        still = standing_still(pending, _positions(self.tables)) if blocked else set()
        if self.touches.hold_up_nobody((*blocked, *still)):
            still = standing_still(pending, _positions(self.tables))
        steps = []
        for table in self.tables.values():
            if table.status.blocked:
                continue
            target = target_of(table.key, pending.row_barriers, storage_checkpoint)
            if step := table.row_step(target):
                if (
                    ready := beside_copies(step, pending, self.tables, self.lifetimes, self.early)
                ) is not None:
                    steps.append(ready)
            else:
                # No row up to the target is unread: `metadata` is read before the listing, so all
                # files that the checkpoint promises were listed, and a table with a gap is blocked.
                table.advance(target)
        if steps:
            return Wave(rows=tuple(steps), ddls=())
        positions = _positions(self.tables)
        return Wave(
            rows=(),
            ddls=ready_ddls(pending, positions, still, storage_checkpoint, is_stable=is_stable),
        )

    def stuck(self, storage_checkpoint: int, *, is_stable: bool = False) -> dict[str, str]:
        """Return tables that a finished round left before the storage checkpoint, by a DDL.

        Table key → which DDL, the first of several, and which tables hold it up: those that are
        halted or wait, perhaps before an earlier DDL that a table of this one waits for.
        `is_stable`: whether a DDL at exactly that ts counts too.
        """
        found: dict[str, str] = {}
        pending = self.touches.pending()
        causes: dict[str, set[str]] = {}
        for version in sorted(set(pending.barriers.values())):
            if not ddl_is_stored(version, storage_checkpoint, is_stable=is_stable):
                break
            for ddl in whole_groups(pending.at(version)):
                touched = [self.tables[key] for key in sorted(ddl.touches & self.tables.keys())]
                there = (t for t in touched if version >= begins_at(t) or t.key in ddl.stops)
                holding = {f"{t.name} ({t.status.shown})" for t in there if t.status.blocked}
                # A table that an earlier one touches waits for it, and so for what holds that up.
                earlier = (t.key for t in touched if pending.barriers.get(t.key, version) < version)
                holding.update(*(causes[key] for key in earlier))
                why = f"waits for the DDL of {ddl.step.name} with version {version}"
                if holding:
                    why += f", held up by {some_of(sorted(holding), _NAMED)}"
                first = [t.key for t in touched if pending.barriers.get(t.key) == version]
                causes |= dict.fromkeys(first, holding)
                for key in pending.held_by(ddl.step, first):
                    # Of several statements that may be one, a table's own is named.
                    found[key] = why if key == ddl.step.table_key else found.get(key, why)
        return found

    # (6) acknowledge: what was done

    def rows_applied(self, step: RowStep) -> None:
        """Note that all rows of the step's commit range are in the target."""
        self.tables[step.table_key].advance(step.commit_range.high)

    def moved_by(self, step: DdlStep) -> list[TableConsumer]:
        """Return the tables that a statement advances, in their later state; none if late."""
        moved, pair = [], step.ddl.renamed
        gone = pair[0] if pair is not None and pair[0] != pair[1] else None
        # What is behind it has its own rows and statements to come.
        if step.alters_no_table:
            # A view may have had another name.
            former = self.left_out.former(step)
            touched = frozenset(
                {step.table_key} if former is None else {step.table_key, former.key}
            )
        else:
            touched = self.touches.of(step)
        for key in () if self.stopped.is_late(step) else sorted(touched):
            # A copy: the table itself changes only in `ddl_done`. Checkpoint and status are values,
            # so the copy moves alone.
            table = copy(self.tables[key])
            table.pass_statement(step.version, dropped=is_dropped_after(step, table, gone))
            moved.append(table)
        return moved

    def ddl_done(self, step: DdlStep) -> None:
        """Note that a statement took effect, was found to have done so, or is not needed."""
        # Before `forget`, which drops what the statement touches.
        for moved in self.moved_by(step):
            self.tables[moved.key].pass_statement(step.version, dropped=moved.status.dropped)
        self.left_out.look_at(step)
        self.backlog.done(step)
        self.touches.forget(step)

    def wait(self, key: str, seen: tuple[str, ...], now: float) -> bool:
        """Leave a table for this round; return whether it waited too long. `now`: seconds.

        `seen`: the reason, and whatever else shows that nothing has moved since the table last
        waited for it.
        """
        return self.tables[key].wait(seen, now) >= self._gap_timeout

    def new_round(self, now: int = 0) -> None:
        """Let tables that waited try again. `now`: the wall clock's time as a TSO."""
        self.left_out_files = self.skipped_files = 0
        self.catalog.now = now
        for table in self.tables.values():
            table.end_wait()

    def note_listed(self, storage_checkpoint: int, continues_from: int = 0) -> list[TableConsumer]:
        """Note unread files of all tables; return news, to be stored before their rows move.

        `continues_from`: see `Poll`; what a table that has reached it missed is missed no more.
        """
        # Whatever a slow clock says: the source was there by then.
        now, news = max(self.catalog.now, storage_checkpoint), []
        for table in self.tables.values():
            goes_on = (
                0 < continues_from <= table.checkpoint and table.status.state != TableState.LOST
            )
            is_news = goes_on and table.copies.forget()
            # Files of a stand-in may be nobody's, so none of them is ever missed; nor is one of a
            # table that is left out.
            if not (table.is_stand_in or table.status.excluded):
                is_news |= table.copies.note_listed(table.files.unread(), now)
            news += [table] if is_news else []
        return news

    # what is known

    def creates_database(self, step: DdlStep) -> bool:
        """Return whether a bucket's statement makes the step's database, empty until then."""
        schema = self.tables[step.table_key].name.schema
        made = self.lifetimes.is_created(schema, step.version)
        return made and self.selection.owns_database(schema, self.databases)

    @property
    def databases(self) -> frozenset[str]:
        """The databases of all tables that are taken."""
        return self.touches.names.databases

    @property
    def pending_bytes(self) -> int:
        """Bytes of the listed files that are not finished."""
        return sum(table.files.pending_bytes for table in self.tables.values())

    @property
    def pending_files(self) -> int:
        """Number of listed files that are not finished."""
        return sum(table.files.pending for table in self.tables.values())


def _positions(tables: Mapping[str, TableConsumer]) -> dict[str, Position]:
    """Return where every table is, by key."""
    return {
        key: Position(
            checkpoint=t.checkpoint,
            blocked=t.status.blocked,
            first=begins_at(t),
            loading=t.status.loading,
            stopped=t.status.stopped,
        )
        for key, t in tables.items()
    }
