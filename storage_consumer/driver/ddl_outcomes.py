"""What follows from the outcome of a statement: its tables advance, wait or halt, and what that makes of the rest of its group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from storage_consumer.driver.context import RoundContext
from storage_consumer.driver.ddl_queue import DdlQueue
from storage_consumer.driver.ddl_workers import StatementOutcome
from storage_consumer.driver.doubts import with_doubt
from storage_consumer.driver.ledger import RoundLedger
from storage_consumer.driver.remedies import ways_on
from storage_consumer.driver.row_jobs import RowJobs
from storage_consumer.errors import DdlFailed, StatementRefused, TableError, TargetBusy
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table_state import HaltKind
from storage_consumer.telemetry import Log

_log = Log("ddl")
_LEFT_OUT = "The view is left out, and holds up nothing; it is tried again at each start, and after each statement on what it reads"
_MOST_UNSTORED = 100
"""Number of tables."""


@dataclass(slots=True)
class DdlOutcomes:
    """Applies outcomes to tables."""

    context: RoundContext
    ledger: RoundLedger
    rows: RowJobs
    queue: DdlQueue
    _unstored: set[str] = field(default_factory=set)
    """Tables touched by statements that have ended; what those stored of them is from when they started."""

    def apply(self, outcomes: Sequence[StatementOutcome]) -> None:
        """Apply the outcomes of statements to their tables. Raises what stops the whole run: `LeaseLost`, `TransientError`."""
        for outcome in outcomes:
            step, fault = outcome.step.origin, outcome.fault
            # First: a TargetBusy is a TransientError too, but the statement did nothing, so only its own tables wait.
            if isinstance(fault, TargetBusy):
                self._wait(step, str(fault))
            elif isinstance(fault, DdlFailed) and fault.left_out:
                self._leave_out(step, str(fault))
            elif isinstance(fault, TableError):
                self._stop(step, str(fault), kind=kind_of(fault))
            elif fault is not None:
                # The outcomes after it are lost with this round, but each worker has journaled its own: the next load finds them.
                raise fault
            else:
                self._took_effect(step, outcome)
        # What a statement stored of its tables was computed before it started; they may have changed since, such as by a halt.
        self._unstored.update(
            key for outcome in outcomes for key in self.context.manager.touches.of(outcome.step.origin)
        )
        if len(self._unstored) >= _MOST_UNSTORED:
            self.store()

    def store(self) -> None:
        """Store the current state of the tables of statements that have ended; batched, since each call is a transaction."""
        if self._unstored:
            self.ledger.save([self.context.manager.tables[key] for key in sorted(self._unstored)])
        self._unstored.clear()

    def refuse(self, step: DdlStep, error: str, *, kind: HaltKind = "ddl", late: bool = False) -> None:
        """Halt the table of a statement that cannot even start. `late`: it turned up after later rows of its table were applied."""
        # The journal first: after a crash in between, the statement is refused again, and halts the table then.
        self.context.state.journal.refused(step, error)
        self._stop(step, error, kind=kind, late=late)

    def resume(self, step: DdlStep) -> None:
        """Let the table of a statement go on that an operator has decided about, unless something else keeps it halted."""
        for key in self.context.manager.touches.held_up(step):
            table = self.context.manager.tables[key]
            table.resume()
            _log.info("table_resumed", table=str(table.name), checkpoint=table.checkpoint)

    def _took_effect(self, step: DdlStep, outcome: StatementOutcome) -> None:
        """Advance the tables of a statement, unless a fault of the round had the state reloaded in the meantime, with this in it."""
        manager = self.context.manager
        late = manager.stopped.is_late(step)
        if not late and not manager.backlog.is_pending(step):
            return
        manager.ddl_done(step)
        self.ledger.ddl_done(outcome.step)
        # With the bucket's names, by which `RowJobs` knows structures; `outcome.step` has those of the target.
        self.rows.forget(step)
        fields = {"table": str(step.name), "version": step.version, "query": step.definition.query}
        # A late statement advances no table, so its halted table goes on where it stopped.
        if late:
            manager.stopped.decided_late.pop(step.identity, None)
            self.resume(step)
            _log.info("ddl_settled", **fields)
        else:
            # One inferred from others was never among those that were to run.
            self.context.progress.advanced(statements=not step.inferred)
            _log.info("ddl_finished", **fields, note=outcome.note, seconds=round(outcome.seconds, 3))

    def _leave_out(self, step: DdlStep, why: str) -> None:
        """Let everything go on without a view that cannot be made, and say so."""
        manager = self.context.manager
        # What the state was reloaded with holds it already.
        if not manager.backlog.is_pending(step):
            return
        manager.stopped.note(step, late=False)
        text = f"{why}. {_LEFT_OUT}. {ways_on(step, self.context.config.downstream)}"
        manager.left_out.leave_out(step, text)
        self.ledger.steps += 1
        self.ledger.skipped["ddl: view left out"] += 1
        self.queue.release(step)
        _log.warning("view_left_out", table=str(step.name), version=step.version, error=text)

    def _wait(self, step: DdlStep, reason: str) -> None:
        """Retry a statement in the next round; the table of one that came late is halted anyway."""
        if not self.context.manager.stopped.is_late(step):
            for key in self.context.manager.touches.held_up(step):
                self.context.manager.wait(key, (reason,), self.context.clock.monotonic())
                self.ledger.locked.add(key)
        self.queue.let_go(step)
        _log.warning("ddl_waits", table=str(step.name), version=step.version, error=reason)

    def _stop(self, step: DdlStep, error: str, *, kind: HaltKind = "ddl", late: bool = False) -> None:
        """Halt what a statement holds up until an operator decides about it, and log the next steps."""
        self.context.manager.stopped.note(step, late=late)
        text = f"{error}. {ways_on(step, self.context.config.downstream)}"
        # A table that is about to get another name, or has it already, stands under its old one.
        name = step.ddl.rename.old if step.ddl.rename is not None else step.name
        own = self.context.manager.tables.get(key_of(name))
        before = own.timeline.structure_at(step.version - 1) if own is not None else None
        if kind == "ddl" and step.name.table and before is not None and not step.ddl.creates_table:
            text = with_doubt(text, name, before, self.context, soon=step.name)
        for key in self.context.manager.touches.held_up(step):
            self.ledger.halt(key, text, kind=kind)
        self.queue.let_go(step)


def kind_of(fault: TableError) -> HaltKind:
    """Return the kind of halt for a statement: whether it may not run, or the target refused it."""
    return "gate" if isinstance(fault, StatementRefused) else "ddl"
