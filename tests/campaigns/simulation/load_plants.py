"""Planted bugs in the loading of tables from copies; see `plants`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

from storage_consumer.driver.loading import LoadJobs
from storage_consumer.driver.open_copies import OpenCopy
from storage_consumer.plan import table_decisions
from storage_consumer.plan.ddl_backlog import DdlBacklog
from storage_consumer.plan.loads import Load
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table import TableConsumer
from storage_consumer.plan.table_decisions import StoredTable, TableDecision
from storage_consumer.plan.table_state import TableStanding
from storage_consumer.rows.spec import TablePlan
from tests.campaigns.simulation.remembered import everywhere
from tests.harness.twins.writer import FencedWriter


def _floor_too_low(stack: ExitStack) -> None:
    """Rows at exactly the TSO of a copy are applied again over it."""
    good = table_decisions.obeyed

    def bad(table: StoredTable, decision: TableDecision, running: int) -> StoredTable:
        found = good(table, decision, running)
        return replace(found, checkpoint=decision.at - 1) if decision.verb == "reload-done" else found

    everywhere(stack, good, bad)


def _on_before_the_last_part(stack: ExitStack) -> None:
    """A table goes on when the last part of its copy is still to be written."""
    stack.enter_context(patch.object(Load, "is_written", property(lambda load: load.parts_done >= load.parts - 1)))


def _load_clock_reused(stack: ExitStack) -> None:
    """What a task stores of a load lacks the last row that it has written."""
    good = FencedWriter._move

    def bad(self: FencedWriter, work: TablePlan, commit_ts: int) -> None:
        good(self, work, commit_ts - bool(work.origin))

    stack.enter_context(patch.object(FencedWriter, "_move", bad))


def _copied_statements_run(stack: ExitStack) -> None:
    """A statement that a copy holds runs again over it."""
    good = DdlBacklog.take

    def bad(self: DdlBacklog, step: DdlStep, table: TableConsumer) -> bool:
        if step.version <= table.copies.copied_at and step.identity not in self._ran and not step.ensure:
            self.put_back(step)
            return False
        return good(self, step, table)

    stack.enter_context(patch.object(DdlBacklog, "take", bad))


def _any_copy(stack: ExitStack) -> None:
    """An interrupted load goes on with whatever copy is at its place now."""
    good = LoadJobs._open

    def bad(self: LoadJobs) -> list[Load]:
        return [_of_any(load, self.loading.copy_at(load.source)) for load in good(self)]

    stack.enter_context(patch.object(LoadJobs, "_open", bad))


def _of_any(load: Load, copy: OpenCopy) -> Load:
    table = copy.tables.get(load.table_key)
    return load if table is None else replace(load, identity=copy.identity, parts=len(table.parts))


def _loads_counted(stack: ExitStack) -> None:
    """The checkpoint that others are told counts tables that are being loaded."""
    stack.enter_context(patch.object(TableStanding, "apart", property(lambda _: False)))


LOAD_PLANTS: Mapping[str, Callable[[ExitStack], None]] = {
    "load-floor-too-low": _floor_too_low,
    "load-without-its-last-part": _on_before_the_last_part,
    "load-clock-reused": _load_clock_reused,
    "load-copied-statements-run": _copied_statements_run,
    "load-any-copy": _any_copy,
    "load-counted": _loads_counted,
}
"""The bugs by name."""
