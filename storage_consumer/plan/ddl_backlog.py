"""Pending statements: not run, stopped, views to make later, held up by quarantine. No I/O."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from storage_consumer.model import (
    MAX_TSO,
    DdlId,
    DdlKind,
    TableColumn,
    TableDefinition,
    folded_name,
)
from storage_consumer.plan.in_order import Together
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table import Lifetimes, TableConsumer
from storage_consumer.plan.touches import Touches
from storage_consumer.tso import ddl_is_pending

LATE = (
    "the DDL of {} arrived after later rows had been applied; if it is still needed, run it manually (the rows are "
    "as the source wrote them)"
)


class DdlBacklog:
    """Statements to run, and first structures without one that the target must have."""

    def __init__(
        self,
        journalled: Collection[DdlId],
        started: frozenset[DdlId],
        refused: Collection[DdlId],
    ) -> None:
        """Begin with what the journal says: the statements that are done, started or refused.

        Those that were started may have taken effect, and those that were refused had none.
        """
        self.started: Final = started
        self._refused = refused
        self._pending: dict[DdlId, DdlStep] = {}
        # Those that are structures.
        self._structures: dict[DdlId, DdlStep] = {}
        self._queued: list[DdlStep] = []
        self._copied: list[DdlStep] = []
        self._ran = set(journalled)
        # Directory → the highest version of a statement of it that is done.
        self._reached: dict[str, int] = {}
        for table_dir, version, _ in journalled:
            self._reached[table_dir] = max(version, self._reached.get(table_dir, 0))
        self._ran_versions = {version for _, version, _ in chain(journalled, started)}

    def __iter__(self) -> Iterator[DdlStep]:
        """Yield what has not run."""
        return iter(self._pending.values())

    def upto(self, reach: int) -> int:
        """Return how many have not run up to a commit-ts, inclusive."""
        return sum(step.version <= reach for step in self)

    def take(self, step: DdlStep, table: TableConsumer) -> bool:
        """Queue a table's statement or structure unless it ran; return whether it came too late."""
        ran = step.identity in self._ran
        # Left out at exactly its checkpoint, a view has had its turn: what follows may have begun.
        refused = step.identity in self._refused
        left_out = step.makes_view and refused and not table.status.excluded
        place = step.version - left_out
        # The copy may hold its effects: the manager decides once all definitions are in.
        if step.version <= table.copies.copied_at:
            # A copy brings its own table, so a structure is no longer needed. Nor does what is done
            # wait for one that is being written.
            self._copied += [] if step.ensure or ran else [step]
        elif ddl_is_pending(place, table.checkpoint, journalled=ran):
            # Copies of other tables may hold a statement of a table that is left out.
            if table.status.excluded and (
                step.ddl.exchanges_partition or step.ddl.renamed is not None
            ):
                self._copied.append(step)
            else:
                self.put_back(step)
        # Once the copy that is being written is there, it is taken again, and that one holds it.
        elif not (table.status.loading and step.version <= table.loaded_from):
            return not (step.ensure or table.status.excluded or ran) and place < table.checkpoint
        return False

    def take_queued(self) -> list[DdlStep]:
        """Return what was queued since the last call and still is."""
        queued, self._queued = self._queued, []
        return [step for step in queued if self._pending.get(step.identity) is step]

    def drop_structures(
        self, tables: Mapping[str, TableConsumer], lifetimes: Lifetimes
    ) -> list[DdlStep]:
        """Dequeue and return structures that a later statement or structure creates anyway."""
        ensured: dict[str, int] = {}
        dropped = []
        # In order of version: the first structure of a table is the one that creates it.
        for step in sorted(self._structures.values(), key=lambda s: s.version):
            table = tables.get(step.table_key)
            ends = lifetimes.ends_of(table) if table is not None else Together()
            before = ensured.get(step.table_key)
            # One structure is enough, unless the table ended in between.
            again = before is not None and not ends.has_within(before + 1, step.version - 1)
            if (
                table is None
                or again
                or not table.timeline.needs_table_before(step.definition, ends)
            ):
                self.set_aside(step)
                dropped.append(step)
            ensured[step.table_key] = step.version
        return dropped

    def take_copied(self) -> list[DdlStep]:
        """Return new statements that a copy of their table may hold; they are not queued."""
        copied, self._copied = self._copied, []
        return copied

    def recall(self, tables: Mapping[str, TableConsumer]) -> None:
        """Withdraw queued statements that a copy may now hold; `take_copied` returns them."""
        held = [
            step
            for step in self
            if step.version <= tables[step.table_key].copies.copied_at and not step.ensure
        ]
        for step in held:
            self.set_aside(step)
        self._copied += held

    def put_back(self, step: DdlStep) -> None:
        """Queue a statement that no copy holds."""
        self._pending[step.identity] = step
        self._queued.append(step)
        if step.ensure:
            self._structures[step.identity] = step

    def set_aside(self, step: DdlStep) -> None:
        """Take a step out; one that is not queued is ignored."""
        self._pending.pop(step.identity, None)
        self._structures.pop(step.identity, None)

    def done(self, step: DdlStep) -> None:
        """Note that a statement took effect, or that its effect is there."""
        self._ran.add(step.identity)
        self._reached[step.table_dir] = max(step.version, self._reached.get(step.table_dir, 0))
        self._ran_versions.add(step.version)
        self.set_aside(step)  # an inferred one never was queued

    def has_run(self, step: DdlStep) -> bool:
        """Return whether the journal says done, though tables may not have been advanced."""
        return step.identity in self._ran

    def was_refused(self, step: DdlStep) -> bool:
        """Return whether an earlier run left a statement without effect."""
        return step.identity in self._refused

    def has_followed(self, step: DdlStep) -> bool:
        """Return whether the journal has a later statement of the same directory as done."""
        return self._reached.get(step.table_dir, 0) > step.version

    def is_pending(self, step: DdlStep) -> bool:
        """Return whether a statement is still queued, maybe started before the last fault."""
        return step.inferred or step.identity in self._pending

    def is_half_done(self, version: int) -> bool:
        """Return whether one of this version ran or may have, while another waits.

        All of them were then known to be stored.
        """
        # Statements run once all of their version are stored: others need no second proof.
        return version in self._ran_versions and any(version == step.version for step in self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """One statement that stopped its table."""

    step: DdlStep
    late: bool
    """Whether it came after later rows of its table were applied, so it is not queued."""


class StoppedDdl:
    """The statements that stopped a table since the program started."""

    def __init__(self) -> None:
        """Start without any statement."""
        self._stopped: dict[DdlId, Stopped] = {}
        self._late: set[DdlId] = set()
        self._obeyed: set[tuple[DdlId, str]] = set()
        self.decided_late: dict[DdlId, DdlStep] = {}
        """Late statements decided about, until their outcome is known; their tables stay halted."""

    def note(self, step: DdlStep, *, late: bool = False) -> None:
        """Record that a statement stopped its table."""
        self._late |= {step.identity} if late else set()
        self.decided_late.pop(step.identity, None)
        self._stopped[step.identity] = Stopped(step=step, late=self.is_late(step))

    def is_late(self, step: DdlStep) -> bool:
        """Return whether a statement came after later rows were applied: it advances no table."""
        return step.identity in self._late

    def released(self, decided: Mapping[DdlId, str]) -> list[Stopped]:
        """Return new decisions in time; `decided`: statement → when it was decided on.

        Each decision is returned once: if the text that it gives is refused too, the table waits
        for another decision.
        """
        new = [
            identity
            for identity in self._stopped
            if (identity, decided.get(identity, "")) not in self._obeyed
        ]
        found = [self._stopped.pop(identity) for identity in new if identity in decided]
        self._obeyed |= {
            (stopped.step.identity, decided[stopped.step.identity]) for stopped in found
        }
        self.decided_late |= {
            stopped.step.identity: stopped.step for stopped in found if stopped.late
        }
        return sorted(
            (each for each in found if not each.late), key=lambda stopped: stopped.step.version
        )


_OTHER = "{}: {} gives a view that was left out another name, which something else has by now. The view is left out: create it as the source has it"


class LeftOutViews:
    """Statements of views, which have no rows: nothing waits for one, made at any later time."""

    def __init__(
        self,
        tables: Mapping[str, TableConsumer],
        backlog: DdlBacklog,
        touches: Touches,
        lifetimes: Lifetimes,
    ) -> None:
        """Begin without any; the others are what is known, now and later."""
        self._tables = tables
        self._backlog = backlog
        self._touches = touches
        self._lifetimes = lifetimes
        self._views: dict[str, DdlStep] = {}
        self._due: set[str] = set()

    def take(self, step: DdlStep) -> None:
        """Have a view made next time: it was left out before, or its file came late."""
        self._views[step.table_key] = step
        self._due.add(step.table_key)

    def leave_out(self, step: DdlStep, why: str) -> None:
        """Leave out a view; try to create it again after statements on what it reads."""
        self._tables[step.table_key].pass_statement(step.version, dropped=False, why=why)
        if (former := self.former(step)) is not None:
            former.pass_statement(step.version, dropped=True)
        self._backlog.set_aside(step)
        self._touches.forget(step)
        if step.creates_view:
            self._views[step.table_key] = step

    def look_at(self, step: DdlStep) -> None:
        """Note that a statement took effect, and which of them may be made by it."""
        self._views.pop(step.table_key, None)
        touched = self._touches.of(step)
        self._due |= {key for key, view in self._views.items() if touched & self._touches.of(view)}

    def try_again(self, at_work: Collection[DdlStep], decided: Collection[DdlId] = ()) -> bool:
        """Queue views that may be made now or were `decided`; return whether there were any.

        `at_work`: statements that run or are about to. A later one of a view may end it, so
        that the view waits for it. A view's own is queued again, so that what comes after it waits.
        """
        wanted = [
            step
            for key, step in self._views.items()
            if key in self._due or step.identity in decided
        ]
        own = {step.identity for step in at_work}
        busy = {step.table_key for step in at_work}
        # What the target has shows whether a statement begun by an earlier run took effect.
        for step in self._backlog if wanted else ():
            if step.identity in self._backlog.started:
                # What only reads a view tells nothing of it.
                busy |= {step.table_key} if step.creates_view else self._touches.of(step)
        found = [step for step in wanted if step.identity in own or step.table_key not in busy]
        self._due = {step.table_key for step in wanted if step not in found}
        for step in found:
            del self._views[step.table_key]
            table = self._tables[step.table_key]
            if table.status.excluded or not self.is_last(step):
                continue
            old = self._under_old_name(step)
            # The old name of a renamed view may be another's by now.
            if (
                step.identity not in own
                and old is not None
                and old.timeline.has_statement(step.version, MAX_TSO)
            ):
                table.pass_statement(
                    step.version, dropped=False, why=_OTHER.format(step.name, step.definition.path)
                )
            else:
                self._backlog.put_back(step)
        if found:
            self._touches.update(self._backlog.take_queued(), ())
        return bool(found)

    def former(self, step: DdlStep) -> TableConsumer | None:
        """Return what is known of a renamed view's old name, unless its version reuses that."""
        table = self._under_old_name(step)
        return (
            None
            if table is None or table.timeline.has_statement(step.version, step.version)
            else table
        )

    def _under_old_name(self, step: DdlStep) -> TableConsumer | None:
        pair = step.ddl.renamed
        return None if pair is None else self._tables.get(key_of(pair[0]))

    def is_last(self, step: DdlStep) -> bool:
        """Return whether nothing that ran since has remade or ended it; the rest runs after it."""
        table = self._tables[step.table_key]
        # One of this very version may wait until all of its time is stored.
        waits = any(
            each.version == table.checkpoint and each.table_key == table.key
            for each in self._backlog
        )
        since = step.version + 1, table.checkpoint - waits
        if table.timeline.has_statement(*since) or self._lifetimes.ends_of(table).has_within(
            *since
        ):
            return False
        # Where the bucket was emptied since, only the state still tells of it. A view that comes
        # late may be younger than what was dropped.
        has_ended = (
            table.status.dropped
            and step.version < table.checkpoint
            and self._backlog.was_refused(step)
        )
        return not (has_ended or self._backlog.has_followed(step))


_EMPTYING = frozenset((DdlKind.DROP_TABLE, DdlKind.TRUNCATE_TABLE))
_HARMLESS = frozenset(
    (
        *(
            DdlKind.ADD_COLUMN,
            DdlKind.ADD_COLUMNS,
            DdlKind.DROP_COLUMN,
            DdlKind.DROP_COLUMNS,
            DdlKind.MODIFY_COLUMN,
        ),
        *(
            DdlKind.SET_DEFAULT_VALUE,
            DdlKind.REBASE_AUTO_ID,
            DdlKind.MODIFY_TABLE_COMMENT,
            DdlKind.MULTI_SCHEMA_CHANGE,
        ),
        *(
            DdlKind.ADD_INDEX,
            DdlKind.DROP_INDEX,
            DdlKind.RENAME_INDEX,
            DdlKind.ALTER_INDEX_VISIBILITY,
        ),
        *(
            DdlKind.ADD_FOREIGN_KEY,
            DdlKind.DROP_FOREIGN_KEY,
            DdlKind.ADD_FULLTEXT_INDEX,
            DdlKind.CREATE_HYBRID_INDEX,
        ),
        *(
            DdlKind.ADD_PARTITION,
            DdlKind.ALTER_TTL,
            DdlKind.REMOVE_TTL,
            DdlKind.ALTER_SCHEMA,
            DdlKind.CREATE_SCHEMA,
        ),
        *(DdlKind.CREATE_TABLE, DdlKind.CREATE_TABLES, DdlKind.CREATE_VIEW, DdlKind.DROP_VIEW),
    )
)
"""Statements that move no row from one table to another, and remove none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntries:
    """The quarantined rows of one table."""

    count: int
    signatures: frozenset[str]
    """How their keys are compared; see `rows.row_keys.key_signature`."""


class QuarantinedTables:
    """The tables that may have rows in the quarantine, by key."""

    def __init__(self) -> None:
        """Begin without any."""
        self._tables: dict[str, TableEntries] = {}

    def __bool__(self) -> bool:
        """Return whether there may be any."""
        return bool(self._tables)

    def of(self, key: str) -> TableEntries | None:
        """Return what is known of a table's entries; None if it has none."""
        return self._tables.get(key)

    def replace(self, found: Mapping[str, TableEntries]) -> None:
        """Take what the state holds now."""
        self._tables = dict(found)

    def note(self, key: str, count: int, signature: str) -> None:
        """Note that a table may have entries from now on, up to `count` more."""
        old = self._tables.get(key, TableEntries(count=0, signatures=frozenset()))
        self._tables[key] = TableEntries(
            count=old.count + count, signatures=old.signatures | {signature}
        )

    @property
    def counts(self) -> Mapping[str, int]:
        """Key → number of rows, for tables that have any."""
        return {key: table.count for key, table in self._tables.items() if table.count}


def closed_by(step: DdlStep) -> tuple[str, str]:
    """Return whose entries a statement removes with rows: a table's key, a prefix; or empty."""
    kind = step.origin.definition.ddl_type
    if kind in _EMPTYING:
        return step.table_key, ""
    return ("", f"{step.table_key}.") if kind == DdlKind.DROP_SCHEMA else ("", "")


def gone_by(step: DdlStep) -> tuple[str, str]:
    """Return the names that a statement ends: a table's key, a database's prefix; or empty."""
    kind, rename = step.origin.definition.ddl_type, step.origin.ddl.rename
    if rename is not None:
        return key_of(rename.old), ""
    return ("", "") if kind == DdlKind.TRUNCATE_TABLE else closed_by(step)


def changes_nothing_to_compare(definition: TableDefinition, before: TableDefinition | None) -> bool:
    """Return whether a statement leaves the rows and columns of its table as they were `before`."""
    return (
        definition.ddl_type in _HARMLESS
        and before is not None
        and before.columns == definition.columns
    )


def may_run(step: DdlStep, before: TableDefinition | None, entries: TableEntries) -> bool:
    """Return whether it may run with entries in a table; `before`: its own table's structure."""
    definition = step.origin.definition
    if any(closed_by(step)):
        return True
    if definition.ddl_type not in _HARMLESS:
        return False
    return (
        before is None
        or not definition.columns
        or _key(before, entries) == _key(definition, entries)
    )


def _key(definition: TableDefinition, entries: TableEntries) -> list[TableColumn]:
    """Return the columns by which rows are found."""
    names = {part[0] for signature in entries.signatures for part in json.loads(signature)[1:]}
    return [
        column for column in definition.columns if column.is_pk or folded_name(column.name) in names
    ]
