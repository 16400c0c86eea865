"""The statements that have not run, and those that stopped their tables until an operator decides about them. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from storage_consumer.model import DdlId
from storage_consumer.plan.in_order import Together
from storage_consumer.plan.lifetimes import Lifetimes
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table import TableConsumer
from storage_consumer.tso import ddl_is_pending

LATE = (
    "the DDL of {} arrived after later rows had been applied; if it is still needed, run it manually (the rows are "
    "as the source wrote them)"
)


class DdlBacklog:
    """The statements that have not run, and first structures without one, which the target must have."""

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
        """Queue a statement, or a structure, of a table unless it ran; return whether it came too late to run in its place."""
        ran = step.identity in self._ran
        # Left out at exactly its checkpoint, a view has had its turn: what follows may have begun.
        refused = step.identity in self._refused
        left_out = step.makes_view and refused and not table.status.excluded
        place = step.version - left_out
        # The copy may hold its effects: the manager decides once all definitions are in.
        if step.version <= table.copies.copied_at:
            # A copy brings its own table, so a structure is no longer needed. Nor does what is done wait for one that is being written.
            self._copied += [] if step.ensure or ran else [step]
        elif ddl_is_pending(place, table.checkpoint, journalled=ran):
            if _may_be_held(step, table):
                self._copied.append(step)
            else:
                self._queue(step)
        # Once the copy that is being written is there, it is taken again, and that one holds it.
        elif not (table.status.loading and step.version <= table.loaded_from):
            return not (step.ensure or table.status.excluded or ran) and place < table.checkpoint
        return False

    def _queue(self, step: DdlStep) -> None:
        self._pending[step.identity] = step
        self._queued.append(step)
        if step.ensure:
            self._structures[step.identity] = step

    def take_queued(self) -> list[DdlStep]:
        """Return what was queued since the last call and still is."""
        queued, self._queued = self._queued, []
        return [step for step in queued if self._pending.get(step.identity) is step]

    def drop_structures(self, tables: Mapping[str, TableConsumer], lifetimes: Lifetimes) -> list[DdlStep]:
        """Dequeue and return structures whose table is created by a statement that came later, or by another of its structures."""
        ensured: dict[str, int] = {}
        dropped = []
        # In order of version: the first structure of a table is the one that creates it.
        for step in sorted(self._structures.values(), key=lambda s: s.version):
            table = tables.get(step.table_key)
            ends = lifetimes.ends_of(table) if table is not None else Together()
            before = ensured.get(step.table_key)
            # One structure is enough, unless the table ended in between.
            again = before is not None and not ends.has_within(before + 1, step.version - 1)
            if table is None or again or not table.timeline.needs_table_before(step.definition, ends):
                self.set_aside(step)
                dropped.append(step)
            ensured[step.table_key] = step.version
        return dropped

    def take_copied(self) -> list[DdlStep]:
        """Return the statements taken since the last call that a copy of their table may hold; they are not queued."""
        copied, self._copied = self._copied, []
        return copied

    def recall(self, tables: Mapping[str, TableConsumer]) -> None:
        """Take out the statements again that by now a copy of their table may hold; `take_copied` returns them."""
        held = [step for step in self if step.version <= tables[step.table_key].copies.copied_at and not step.ensure]
        for step in held:
            self.set_aside(step)
        self._copied += held

    def put_back(self, step: DdlStep) -> None:
        """Queue a statement that no copy holds."""
        self._queue(step)

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
        """Return whether the journal says that a statement is done, though its tables may not have been advanced."""
        return step.identity in self._ran

    def was_refused(self, step: DdlStep) -> bool:
        """Return whether an earlier run left a statement without effect."""
        return step.identity in self._refused

    def has_followed(self, step: DdlStep) -> bool:
        """Return whether the journal has a later statement of the same directory as done."""
        return self._reached.get(step.table_dir, 0) > step.version

    def is_pending(self, step: DdlStep) -> bool:
        """Return whether a statement, which may have been started before the last fault, is still queued."""
        return step.inferred or step.identity in self._pending

    def is_half_done(self, version: int) -> bool:
        """Return whether a statement of this version ran, or may have, and another waits: then all of them were known to be stored."""
        # A statement runs only once all of its version are known to be stored: the others need no second proof.
        return version in self._ran_versions and any(version == step.version for step in self)


def _may_be_held(step: DdlStep, table: TableConsumer) -> bool:
    """Return whether copies of other tables may hold a statement of a table that is left out."""
    return table.status.excluded and (step.ddl.exchanges_partition or step.ddl.renamed is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """One statement that stopped its table."""

    step: DdlStep
    late: bool
    """Whether it turned up after later rows of its table had been applied, and so is no longer queued."""


class StoppedDdl:
    """The statements that stopped a table since the program started."""

    def __init__(self) -> None:
        """Start without any statement."""
        self._stopped: dict[DdlId, Stopped] = {}
        self._late: set[DdlId] = set()
        self._obeyed: set[tuple[DdlId, str]] = set()
        self.decided_late: dict[DdlId, DdlStep] = {}
        """Statements that came late and were decided about, until their outcome is known; their tables stay halted."""

    def note(self, step: DdlStep, *, late: bool = False) -> None:
        """Record that a statement stopped its table."""
        self._late |= {step.identity} if late else set()
        self.decided_late.pop(step.identity, None)
        self._stopped[step.identity] = Stopped(step=step, late=self.is_late(step))

    def is_late(self, step: DdlStep) -> bool:
        """Return whether a statement turned up after later rows of its table had been applied, so that it advances no table."""
        return step.identity in self._late

    def released(self, decided: Mapping[DdlId, str]) -> list[Stopped]:
        """Return those in time with a decision that was not returned yet. `decided`: statement → when it was decided on.

        Each decision is returned once: if the text that it gives is refused too, the table waits for another decision.
        """
        new = [identity for identity in self._stopped if (identity, decided.get(identity, "")) not in self._obeyed]
        found = [self._stopped.pop(identity) for identity in new if identity in decided]
        self._obeyed |= {(stopped.step.identity, decided[stopped.step.identity]) for stopped in found}
        self.decided_late |= {stopped.step.identity: stopped.step for stopped in found if stopped.late}
        return sorted((each for each in found if not each.late), key=lambda stopped: stopped.step.version)
