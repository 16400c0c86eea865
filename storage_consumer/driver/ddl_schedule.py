"""The DDL of a round: what starts, and in which order.

The rows of all tables that a statement does not touch continue while it runs, over rounds if need be. Everything is decided here and
in `ddl_outcomes`, in the round's own thread; `ddl_workers` only runs statements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from storage_consumer.driver.context import RoundContext
from storage_consumer.driver.ddl_outcomes import DdlOutcomes, kind_of
from storage_consumer.driver.ddl_prepare import decided, in_order, prepared, shown_by, was_seen, with_homes_of_names
from storage_consumer.driver.ddl_queue import DdlQueue
from storage_consumer.driver.doubts import doubt_without
from storage_consumer.driver.ledger import RoundLedger, progress_of
from storage_consumer.driver.remedies import quarantine_ways
from storage_consumer.driver.row_jobs import RowJobs
from storage_consumer.errors import StatementRefused, TableError
from storage_consumer.model import DdlId
from storage_consumer.plan.covered import in_doubt_by
from storage_consumer.plan.ddl_backlog import LATE, may_run
from storage_consumer.plan.planner import unfinished
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table import TableConsumer
from storage_consumer.ports import DdlContext, Decision
from storage_consumer.telemetry import Log

_log = Log("ddl")

_LOOK_UP = 0.5
"""Seconds between two checks of whether the round is to end while statements run."""
_PATIENCE = 1.0
"""Seconds for which rows wait for a statement, so that all tables' rows go into one job; they do not wait for a longer one."""
_BLOCKERS_EVERY = 30.0
"""Seconds between two checks of what blocks a statement."""
UNFINISHED = (
    "the DDL of {} looks like an intermediate step of a rename cycle, and the file with the final name has not arrived"
)


@dataclass(slots=True)
class DdlScheduler:
    """The DDL side of one round. What still runs at its end is collected by the next one."""

    context: RoundContext
    ledger: RoundLedger
    rows: RowJobs
    _queue: DdlQueue = field(init=False)
    _outcomes: DdlOutcomes = field(init=False)
    _decisions: Mapping[DdlId, Decision] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with nothing queued."""
        self._queue = DdlQueue(self.context.manager, self.context.ddl_workers)
        self._outcomes = DdlOutcomes(self.context, self.ledger, self.rows, self._queue)

    def apply_decisions(self, late: Sequence[DdlStep]) -> None:
        """Halt the tables of late statements, and resume those whose statements an operator has decided about.

        `late`: statements that turned up after later rows of their tables had been applied.
        """
        stopped = self.context.manager.stopped
        self._decisions = self.context.state.decisions.on_statements()
        for step in late:
            if step.identity in self._decisions:
                stopped.note(step, late=True)
                # It goes on by itself once the statement has run.
                self.context.manager.tables[step.table_key].unannounced = ""
            else:
                self._outcomes.refuse(step, LATE.format(step.definition.path), late=True)
        released = stopped.released({i: made.decided_at for i, made in self._decisions.items()})
        for each in released:
            self._outcomes.resume(each.step)
        self.context.manager.left_out.try_again(self._queue.at_work, [each.step.identity for each in released])
        # Each alone: the planner puts no late statement into a group, since it is a barrier for nothing any more.
        for step in stopped.decided_late.values():
            self._enqueue([step])

    def run(self, groups: Sequence[Sequence[DdlStep]], *, to_the_end: bool) -> bool:
        """Start statements, or check on those that run; return False if nothing more comes of it in this round.

        `groups`: see `Wave.ddls`. `to_the_end`: wait until one ends, however long that takes.
        """
        for group in groups:
            self._enqueue(group)
        anything = self._start_ready() or self.context.manager.left_out.try_again(self._queue.at_work)
        # A short pause here saves a job: the rows of the tables that these statements release go with those of all others.
        while self._is_any_young() and self.ledger.should_continue():
            anything |= self.collect(_LOOK_UP)
        # Only until one ends: what it releases is planned first, and may run beside the others.
        while not anything and to_the_end and self.context.ddl_workers.running and self._may_wait():
            anything = self.collect(_LOOK_UP)
        return anything

    def collect(self, seconds: float = 0.0) -> bool:
        """Process what has ended, waiting up to `seconds` for it, and start what waited for that; return whether anything ended or started.

        Raises what stops the whole run: `LeaseLost`, `TransientError`.
        """
        ended = self.context.ddl_workers.collect(seconds)
        # Before anything starts: a statement that ended lets the next one of its version start, or keeps it from starting.
        self._outcomes.apply(ended)
        if self.context.server_info.server_type == "tidb":
            self._log_blockers()
        return self._start_ready() or bool(ended)

    def store(self) -> None:
        """Store the current state of the tables of statements that have ended."""
        self._outcomes.store()

    def still_running(self) -> dict[str, str]:
        """Return table key → which statement the table waits for, and since when."""
        texts = {
            step: f"the DDL of {step.name} with version {step.version} has been running for {seconds:.0f} s"
            for step, seconds in self.context.ddl_workers.running
        }
        touches = self.context.manager.touches
        pending = touches.pending()
        return {
            key: text for step, text in texts.items() for key in pending.held_by(step.origin, touches.of(step.origin))
        }

    def _may_wait(self) -> bool:
        """Return whether the round may go on waiting for a statement; if not, it ends early."""
        if not self.ledger.should_continue():
            return False
        self.ledger.ended_early = self.ledger.limit()
        return not self.ledger.ended_early

    def _is_any_young(self) -> bool:
        """Return whether a statement runs that may still end before rows stop waiting for it."""
        return any(since < _PATIENCE for _, since in self.context.ddl_workers.running)

    def _log_blockers(self) -> None:
        """Log what blocks statements that never give up: TiDB waits for open transactions, however long those last."""
        overdue = self.context.ddl_workers.overdue(self.context.config.downstream.ddl_lock_wait, _BLOCKERS_EVERY)
        for step, seconds in overdue:
            if blockers := self.context.target.blockers(step.ddl.mentioned):
                _log.warning(
                    "ddl_blocked",
                    table=str(step.name),
                    version=step.version,
                    error=f"it has been running for {seconds:.0f} s",
                    blockers="; ".join(blockers),
                )

    # what starts

    def _enqueue(self, group: Sequence[DdlStep]) -> None:
        """Queue a group in the order in which it can run, unless part of it was queued already or is running.

        A cycle of renames is held back until all of it can be read; one that stays incomplete for too long halts its table.
        """
        if self._queue.has(group):
            return
        manager = self.context.manager
        ordered = in_order(group, manager, self.context.target)
        step = unfinished(ordered)
        # An operator who decided about the step that seems unfinished has said that nothing more comes.
        if step is None or step.identity in self._decisions:
            self._queue.add(group, ordered)
            return
        reason = UNFINISHED.format(step.definition.path)
        if manager.wait(step.table_key, (reason,), self.context.clock.monotonic()):
            self._outcomes.refuse(step, f"{reason}. Rename the tables manually")

    def _start_ready(self) -> bool:
        """Start the next statement of each group whose previous one has ended; return whether any was started or refused."""
        anything = False
        for step in self._queue.take_ready():
            anything = True
            self._start(step)
        return anything

    def _start(self, step: DdlStep) -> None:
        """Start one statement; if that is not possible, halt its table."""
        manager, target = self.context.manager, self.context.target
        decision = self._decisions.get(step.identity)
        try:
            step = step if decision else with_homes_of_names(step, manager, target)
            # Nothing of a decided one is looked up: if it runs at all, it is the operator's own text.
            ready = decided(step, manager) if decision else prepared(step, manager, target)
        except TableError as fault:
            if not step.makes_view or isinstance(fault, StatementRefused):
                self._outcomes.refuse(step, str(fault), kind=kind_of(fault))
                return
            ready = replace(step, refusal=str(fault), source=step)
        if decision is None and not ready.skip and (held := self._held_by_quarantine(step)):
            self._outcomes.refuse(step, held)
            return
        # One that is not run changes no rows. An operator who decides about a statement answers for those that are beyond it.
        if decision is None and not ready.skip and (late := manager.touches.beyond(step)):
            self._outcomes.refuse(step, self._beyond(step, late))
            return
        surroundings = self._surroundings(step, decision)
        # Computed here, since the tables belong to the round's thread; the worker only stores it.
        moved = [progress_of(table, manager) for table in manager.moved_by(step)]
        # The order matters: rows are fenced, then workers, before the last check of the lease, and the statement starts after it.
        self.rows.fence()
        self.context.ddl_workers.fence(self.context.state.lease.epoch)
        # Nothing is journaled yet, and the next round queues what has not run, so the statement is not lost.
        if not self.ledger.should_continue():
            return
        if decision is not None and decision.verb == "skip":
            doubt_without(step, self.context)
        self.context.progress.ddl(table=str(ready.name), query=ready.definition.query)
        _log.info("ddl_started", table=str(ready.name), version=step.version, query=ready.definition.query)
        self.context.ddl_workers.start(ready, surroundings, moved)

    def _beyond(self, step: DdlStep, late: Sequence[TableConsumer]) -> str:
        """Return why a statement may not run that comes after the rows of tables that it touches, with the next step."""
        manager, names = self.context.manager, ", ".join(str(table.name) for table in late)
        touches = f"the DDL of {step.definition.path} touches {names}"
        lacking = sorted(manager.touches.of(step) - {table.key for table in late})
        others = [table for key in lacking if (table := manager.tables[key]).name.table and not table.status.excluded]
        # Where all that it touches has a copy that holds it, it is done.
        if not others or any(table.copies.copied_at < step.version for table in late):
            return f"{touches}, whose later rows were applied while it could not be read; repair all of these tables manually"
        ways = " -- and ".join(manager.catalog.command("reload-done", table.name) for table in others)
        return (
            f"{touches}, whose copy holds what it does already. Give {' and '.join(str(table.name) for table in others)} a copy of the source "
            f"too, as of now or later. From an export: {ways}"
        )

    def _held_by_quarantine(self, step: DdlStep) -> str:
        """Return why a statement may not run while rows are in the quarantine; empty if it may."""
        manager = self.context.manager
        touched = manager.touches.of(step)
        if not any(manager.quarantined.of(key) for key in touched):
            return ""
        # No job runs beside this: what the state holds now is what it holds until the statement ends, or less.
        manager.quarantined.replace(self.context.state.quarantine.entries())
        for key in sorted(touched):
            entries, table = manager.quarantined.of(key), manager.tables.get(key)
            own = table.timeline.structure_at(step.version - 1) if table and key == step.table_key else None
            if entries and not may_run(step, own, entries):
                name = table.name if table else step.name
                return (
                    f"the DDL of {step.definition.path} waits, because {entries.count} rows of {name} are in the quarantine and it would "
                    f"move rows or change the key by which they are found. {quarantine_ways(name, self.context.config.downstream)}"
                )
        return ""

    def _surroundings(self, step: DdlStep, decision: Decision | None) -> DdlContext:
        """Return what the files say about a statement's surroundings, and what an operator said about it."""
        manager = self.context.manager
        return DdlContext(
            database_is_ours=manager.creates_database(step),
            database_statements=manager.lifetimes.database_statements(step.name.schema, step.version),
            table_was_seen=was_seen(step, manager),
            after_copy=shown_by(step, manager),
            in_doubt_by=in_doubt_by(step, manager.tables),
            made_by=manager.tables[step.table_key].timeline.made_before(step.version),
            decision=decision,
            resumes=manager.tables[manager.touches.held_up(step)[0]].name,
            should_continue=self.context.ddl_workers.should_continue,
        )
