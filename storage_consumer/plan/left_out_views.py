"""Views that cannot be made in the target for now. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from storage_consumer.model import MAX_TSO, DdlId
from storage_consumer.plan.ddl_backlog import DdlBacklog
from storage_consumer.plan.lifetimes import Lifetimes
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table import TableConsumer
from storage_consumer.plan.touches import Touches

_OTHER = "{}: {} gives a view that was left out another name, which something else has by now. The view is left out: create it as the source has it"


class LeftOutViews:
    """The statements that create them. A view has no rows, so that nothing waits for it, and it can be made at any later time."""

    def __init__(
        self, tables: Mapping[str, TableConsumer], backlog: DdlBacklog, touches: Touches, lifetimes: Lifetimes
    ) -> None:
        """Begin without any; the others are what is known, now and later."""
        self._tables = tables
        self._backlog = backlog
        self._touches = touches
        self._lifetimes = lifetimes
        self._views: dict[str, DdlStep] = {}
        self._due: set[str] = set()

    def take(self, step: DdlStep) -> None:
        """Have a view be made at the next time, since it was left out before or its file came late."""
        self._views[step.table_key] = step
        self._due.add(step.table_key)

    def leave_out(self, step: DdlStep, why: str) -> None:
        """Note that a view cannot be made now; one that is to be created is tried again after statements on what it reads."""
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
        """Queue those that may be made by now, or that an operator has `decided` about; return whether there were any.

        `at_work`: statements that run or are about to. A later one of a view may end it, so
        that the view waits for it. A view's own is queued again, so that what comes after it waits.
        """
        wanted = [step for key, step in self._views.items() if key in self._due or step.identity in decided]
        own = {step.identity for step in at_work}
        busy = {step.table_key for step in at_work} | self._in_doubt() if wanted else set()
        found = [step for step in wanted if step.identity in own or step.table_key not in busy]
        self._due = {step.table_key for step in wanted if step not in found}
        for step in found:
            del self._views[step.table_key]
            table = self._tables[step.table_key]
            if table.status.excluded or not self.is_last(step):
                continue
            if step.identity not in own and self._may_meet_another(step):
                table.pass_statement(step.version, dropped=False, why=_OTHER.format(step.name, step.definition.path))
            else:
                self._backlog.put_back(step)
        if found:
            self._touches.update(self._backlog.take_queued(), ())
        return bool(found)

    def _in_doubt(self) -> set[str]:
        """Return the keys of tables of which an earlier run began a statement: what the target has of them shows whether it took effect."""
        begun = [step for step in self._backlog if step.identity in self._backlog.started]
        # What only reads a view tells nothing of it.
        return {key for step in begun for key in ((step.table_key,) if step.creates_view else self._touches.of(step))}

    def former(self, step: DdlStep) -> TableConsumer | None:
        """Return what is known under the old name of a renamed view, unless a statement of the same version gives that name to something else."""
        table = self._under_old_name(step)
        return None if table is None or table.timeline.has_statement(step.version, step.version) else table

    def _may_meet_another(self, step: DdlStep) -> bool:
        """Return whether the old name of a renamed view may be another's by now."""
        table = self._under_old_name(step)
        return table is not None and table.timeline.has_statement(step.version, MAX_TSO)

    def _under_old_name(self, step: DdlStep) -> TableConsumer | None:
        pair = step.ddl.renamed
        return None if pair is None else self._tables.get(key_of(pair[0]))

    def is_last(self, step: DdlStep) -> bool:
        """Return whether nothing that has run since has made another view of it, or has ended it; what is still to come runs after it."""
        table = self._tables[step.table_key]
        # One of this very version may wait until all of its time is stored.
        waits = any(each.version == table.checkpoint and each.table_key == table.key for each in self._backlog)
        since = step.version + 1, table.checkpoint - waits
        if table.timeline.has_statement(*since) or self._lifetimes.ends_of(table).has_within(*since):
            return False
        # Where the bucket was emptied since, only the state still tells of it. A view that comes late may be younger than what was dropped.
        has_ended = table.status.dropped and step.version < table.checkpoint and self._backlog.was_refused(step)
        return not (has_ended or self._backlog.has_followed(step))
