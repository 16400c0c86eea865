"""The DDL of a round: what starts, in which order, and what follows from its outcome.

Statements of one version that are ready together are a *group*: they run one after another, since each may need what the previous
one created. Groups touch different tables, so they run in parallel. The rows of all other tables continue meanwhile, over
rounds if need be. Everything is decided here, in the round's own thread; `ddl_workers` only runs statements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from storage_consumer.driver.context import RoundContext, progress_of
from storage_consumer.driver.ddl_prepare import decided, in_order, prepared, was_seen, with_homes_of_names
from storage_consumer.driver.ddl_workers import Identity, Outcome
from storage_consumer.driver.remedies import ways_on
from storage_consumer.errors import TableError, TargetBusy
from storage_consumer.plan.barriers import mentioned_names
from storage_consumer.plan.renames import unfinished
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.stopped import LATE
from storage_consumer.ports import DdlContext, Decision
from storage_consumer.telemetry import Log

_log = Log("ddl")

_TOLD_EVERY = 30.0
"""Seconds between two checks of what blocks a statement."""
_MOST_UNSTORED = 100
"""Number of tables."""
UNFINISHED = (
    "the DDL of {} looks like an intermediate step of a rename cycle, and the file with the final name has not arrived"
)


@dataclass(slots=True, kw_only=True)
class DdlScheduler:
    """The DDL side of one round. What still runs at its end is collected by the next one."""

    parts: RoundContext
    storage_checkpoint: int
    halt: Callable[[str, str], None]
    """Halts a table, by key, with an error."""
    goes_on: Callable[[], bool]
    """Called right before a statement starts; False ends the round early."""
    done: Callable[[DdlStep], None]
    """Called with each statement that took effect or was skipped, as it ran on the target."""
    late: Sequence[DdlStep] = ()
    """Statements that turned up after later rows of their tables had been applied; the tables are halted."""
    _decisions: Mapping[Identity, Decision] = field(default_factory=dict)
    rows_may_be_late: bool = True
    """Whether a job for rows has run since the last statement started: one of its tasks may still be about to write."""
    _groups: list[deque[DdlStep]] = field(default_factory=list)
    _begun: set[Identity] = field(default_factory=set)
    _unstored: set[str] = field(default_factory=set)
    """Tables touched by statements that have ended; what those stored of them is from when they started."""

    @property
    def is_running(self) -> bool:
        """Whether a statement is running."""
        return bool(self.parts.lanes.running)

    def is_young(self, seconds: float) -> bool:
        """Return whether a statement has been running for less than `seconds`."""
        return any(since < seconds for _, since in self.parts.lanes.running)

    def still_running(self) -> dict[str, str]:
        """Return table key → which statement the table waits for, and since when."""
        texts = {
            step: f"the DDL of {step.name} with version {step.version} has been running for {seconds:.0f} s"
            for step, seconds in self.parts.lanes.running
        }
        return {key: text for step, text in texts.items() for key in self.parts.manager.touched(step.origin)}

    def apply_decisions(self) -> None:
        """Halt the tables of late statements, and resume those whose statements an operator has decided about."""
        manager = self.parts.manager
        self._decisions = self.parts.state.decisions()
        for step in self.late:
            if step.identity in self._decisions:
                manager.stopped.note(step, late=True)
            else:
                self._refuse(step, LATE.format(step.definition.path), late=True)
        for stopped in manager.stopped.released({i: made.decided_at for i, made in self._decisions.items()}):
            self._resume(stopped.step)
        for step in manager.stopped.decided_late.values():
            self._take([step])

    def _resume(self, step: DdlStep) -> None:
        table = self.parts.manager.tables[step.table_key]
        if not (table.held or table.late or table.lacks_past or table.absent):
            table.go_on()
        _log.info("table_resumed", table=str(table.name), checkpoint=table.checkpoint)

    def begin(self, groups: Iterable[Sequence[DdlStep]]) -> bool:
        """Start what can start of these groups and of those that wait; return whether any was started or refused."""
        for group in groups:
            self._take(group)
        return self._go_on()

    def _take(self, group: Sequence[DdlStep]) -> None:
        """Queue a group, unless part of it was taken already or is running."""
        running = {step.identity for step, _ in self.parts.lanes.running}
        identities = {step.identity for step in group}
        if identities & (self._begun | running):
            return
        ordered = in_order(group, self.parts.manager, self.parts.target)
        if (step := unfinished(ordered)) is not None and step.identity not in self._decisions:
            self._wait_for_the_rest(step)
        else:
            self._groups.append(deque(ordered))
            self._begun |= identities

    def _wait_for_the_rest(self, step: DdlStep) -> None:
        """Hold back a cycle of renames until all of it can be read; one that stays incomplete for too long halts its table."""
        reason = UNFINISHED.format(step.definition.path)
        if self.parts.manager.wait(step.table_key, (reason,), self.parts.clock.monotonic()):
            self._refuse(step, f"{reason}. Rename the tables manually")

    def collect(self, seconds: float) -> bool:
        """Process what has ended, waiting up to `seconds` for it, and start what waited for that; return whether anything ended or started.

        Raises what stops the whole run: `LeaseLost`, `TransientError`.
        """
        ended = self.parts.lanes.collect(seconds)
        for outcome in ended:
            self._judge(outcome)
        self._unstored.update(key for outcome in ended for key in self.parts.manager.touched(outcome.step.origin))
        if len(self._unstored) >= _MOST_UNSTORED:
            self.store()
        if self.parts.server_info.server_type == "tidb":
            self._tell_who_blocks()
        return self._go_on() or bool(ended)

    def _tell_who_blocks(self) -> None:
        """Log what blocks statements that never give up: TiDB waits for open transactions, however long those last."""
        for step, seconds in self.parts.lanes.overdue(self.parts.config.downstream.ddl_lock_wait, _TOLD_EVERY):
            if blockers := self.parts.target.blockers(mentioned_names(step.definition)):
                _log.warning(
                    "ddl_blocked",
                    table=str(step.name),
                    version=step.version,
                    error=f"it has been running for {seconds:.0f} s",
                    blockers="; ".join(blockers),
                )

    def store(self) -> None:
        """Store the current state of the tables of statements that have ended; batched, since each call is a transaction."""
        manager = self.parts.manager
        if tables := [progress_of(manager.tables[key], manager) for key in sorted(self._unstored)]:
            self.parts.state.save(tables=tables, streams={}, checkpoint=0, storage_checkpoint=0)
        self._unstored.clear()

    def _go_on(self) -> bool:
        """Start the next statement of each group whose previous one has ended; return whether any was started or refused."""
        anything = False
        for group in self._groups:
            while group and self.parts.lanes.is_free and not self._is_busy(group[0].version):
                anything = True
                self._start(group.popleft())
        self._groups = [group for group in self._groups if group]
        return anything

    def _is_busy(self, version: int) -> bool:
        """Return whether a statement of this version is running."""
        return any(step.version == version for step, _ in self.parts.lanes.running)

    def _start(self, step: DdlStep) -> None:
        """Start one statement; if that is not possible, halt its table."""
        manager = self.parts.manager
        decision = self._decisions.get(step.identity)
        if decision is None and (late := manager.beyond(step)):
            self._refuse(
                step,
                f"the DDL of {step.definition.path} touches {', '.join(late)}, whose later rows were applied while it "
                "could not be read; repair all of these tables manually",
            )
            return
        try:
            step = step if decision else with_homes_of_names(step, manager, self.parts.target)
            ready = decided(step, manager) if decision else prepared(step, manager, self.parts.target)
        except TableError as fault:
            self._refuse(step, str(fault))
            return
        table = manager.tables[step.table_key]
        context = DdlContext(
            database_is_ours=manager.creates_database(step),
            database_statements=manager.lifetimes.database_statements(step.name.schema, step.version),
            table_was_seen=was_seen(step, manager),
            made_by=table.made_before(step.version),
            decision=decision,
            should_continue=self.parts.lanes.should_continue,
        )
        # Computed here, since the tables belong to the round's thread; the lane only stores it.
        moved = [progress_of(table, manager) for table in manager.moved_by(step)]
        if self.rows_may_be_late:
            self.parts.state.open_window(0, self.storage_checkpoint)  # no late task may write after a DDL
            self.rows_may_be_late = False
        # The order matters: lanes are fenced before the last check of the lease, and the statement starts after it.
        self.parts.lanes.fence(self.parts.state.epoch)
        if not self.goes_on():
            return
        self.parts.progress.ddl(table=str(ready.name), query=ready.definition.query)
        _log.info("ddl_started", table=str(ready.name), version=step.version, query=ready.definition.query)
        self.parts.lanes.start(ready, context, moved)

    def _judge(self, outcome: Outcome) -> None:
        """Apply the outcome of a statement to its tables."""
        step, fault = outcome.step.origin, outcome.fault
        if isinstance(fault, TargetBusy):
            self._wait(step, str(fault))
        elif isinstance(fault, TableError):
            self._stop(step, str(fault))
        elif fault is not None:
            raise fault
        else:
            self._took_effect(step, outcome)

    def _wait(self, step: DdlStep, reason: str) -> None:
        """Retry a statement in the next round; the table of one that came late is halted anyway."""
        if not self.parts.manager.stopped.is_late(step):
            self.parts.manager.wait(step.table_key, (reason,), self.parts.clock.monotonic())
        self._let_go(step)
        _log.warning("ddl_waits", table=str(step.name), version=step.version, error=reason)

    def _took_effect(self, step: DdlStep, outcome: Outcome) -> None:
        """Advance the tables of a statement, unless a fault of the round had the state reloaded in the meantime, with this in it."""
        manager = self.parts.manager
        late = manager.stopped.is_late(step)
        if not late and not manager.is_pending(step):
            return
        manager.ddl_done(step)
        self.done(outcome.step)
        told = {"table": str(step.name), "version": step.version, "query": step.definition.query}
        if late:
            manager.stopped.decided_late.pop(step.identity, None)
            self._resume(step)
            _log.info("ddl_settled", **told)
        else:
            _log.info("ddl_finished", **told, note=outcome.note, seconds=round(outcome.seconds, 3))

    def _refuse(self, step: DdlStep, error: str, *, late: bool = False) -> None:
        """Halt the table of a statement that cannot even start."""
        self.parts.state.refused(step, error)
        self._stop(step, error, late=late)

    def _stop(self, step: DdlStep, error: str, *, late: bool = False) -> None:
        """Halt the table of a statement until an operator decides about it, and log the next steps."""
        self.parts.manager.stopped.note(step, late=late)
        self.halt(step.table_key, f"{error}. {ways_on(step, self.parts.config.downstream)}")
        self._let_go(step)

    def _let_go(self, step: DdlStep) -> None:
        """Release a statement without effect: those of its group that may need it do not start in this round."""
        stopped = set(self.parts.manager.touched(step))
        self._begun.discard(step.identity)
        for group in self._groups:
            # Repeated until nothing is added: a statement that is held back may hold back others.
            while mates := [mate for mate in group if self.parts.manager.touched(mate) & stopped]:
                for mate in mates:
                    group.remove(mate)
                    self._begun.discard(mate.identity)
                    stopped |= self.parts.manager.touched(mate)
