"""The DDL of a round: what starts, in which order, and what follows from each outcome.

The rows of all tables that a statement does not touch continue while it runs, over rounds if need
be. Everything is decided here, in the round's own thread; `ddl_workers` only runs statements.

Statements of one version that are ready together are a *group*: they run one after another, since
each may need what the previous one created. Groups touch different tables, so they run in parallel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from storage_consumer.driver.ddl_prepare import (
    decided,
    in_order,
    prepared,
    shown_by,
    was_seen,
    with_homes_of_names,
)
from storage_consumer.driver.ddl_workers import DdlWorkers, StatementOutcome
from storage_consumer.driver.doubts import doubt_without, with_doubt
from storage_consumer.driver.ledger import RoundContext, RoundLedger, progress_of
from storage_consumer.driver.remedies import quarantine_ways, ways_on
from storage_consumer.driver.row_jobs import RowJobs
from storage_consumer.errors import DdlFailed, StatementRefused, TableError, TargetBusy
from storage_consumer.model import DdlId
from storage_consumer.plan.covered import in_doubt_by
from storage_consumer.plan.ddl_backlog import LATE, may_run
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.planner import unfinished
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table_state import HaltKind
from storage_consumer.ports import DdlContext, Decision
from storage_consumer.telemetry import Log

_log = Log("ddl")
_LEFT_OUT = "The view is left out, and holds up nothing; it is tried again at each start, and after each statement on what it reads"
_MOST_UNSTORED = 100
"""Number of tables."""
_LOOK_UP = 0.5
"""Seconds between two checks of whether the round is to end while statements run."""
_PATIENCE = 1.0
"""Seconds that rows wait for a statement, so that all tables share a job; then they go on."""
_BLOCKERS_EVERY = 30.0
"""Seconds between two checks of what blocks a statement."""
UNFINISHED = "the DDL of {} looks like an intermediate step of a rename cycle, and the file with the final name has not arrived"


@dataclass(slots=True)
class DdlQueue:
    """Groups of statements, each in the order in which it runs."""

    manager: ConsumerManager
    workers: DdlWorkers
    _groups: list[deque[DdlStep]] = field(default_factory=list)
    _taken: set[DdlId] = field(default_factory=set)
    """Statements that were added in this round: each is tried once in it."""

    def has(self, group: Sequence[DdlStep]) -> bool:
        """Return whether part of a group was added, or still runs since an earlier round."""
        running = {step.identity for step, _ in self.workers.running}
        return any(step.identity in self._taken or step.identity in running for step in group)

    @property
    def at_work(self) -> list[DdlStep]:
        """The statements that run or wait for their turn."""
        waiting = (step for group in self._groups for step in group)
        return [step.origin for step in (*waiting, *(step for step, _ in self.workers.running))]

    def add(self, group: Sequence[DdlStep], ordered: Sequence[DdlStep]) -> None:
        """Add a group; `ordered`: its statements, and inferred ones, in running order."""
        self._groups.append(deque(ordered))
        self._taken |= {step.identity for step in group}

    def take_ready(self) -> Iterator[DdlStep]:
        """Yield and remove each statement that may start now.

        It has to be started or let go before the next one is asked for.
        """
        for group in self._groups:
            # By version, not by group: the rest of a version may have been started by an earlier
            # round. The caller starts or releases what it gets before it asks for more, so each
            # check sees the statement before it.
            while (
                group
                and self.workers.is_free
                and all(step.version != group[0].version for step, _ in self.workers.running)
            ):
                yield group.popleft()
        self._groups = [group for group in self._groups if group]

    def release(self, step: DdlStep) -> None:
        """Let a statement be tried again in this round."""
        self._taken.discard(step.identity)

    def let_go(self, step: DdlStep) -> None:
        """Release a statement without effect: what may need it does not start in this round."""
        stopped = set(self.manager.touches.of(step))
        # Only the groups shrink, never their list: `take_ready` may be in the middle of it.
        for group in self._groups:
            # Repeated until nothing is added: a statement that is held back may hold back others.
            while mates := [mate for mate in group if self.manager.touches.of(mate) & stopped]:
                for mate in mates:
                    group.remove(mate)
                    stopped |= self.manager.touches.of(mate)


@dataclass(slots=True)
class DdlOutcomes:
    """Applies outcomes to tables."""

    context: RoundContext
    ledger: RoundLedger
    rows: RowJobs
    queue: DdlQueue
    _unstored: set[str] = field(default_factory=set)
    """Tables touched by ended statements, which stored them as of their start."""

    def apply(self, outcomes: Sequence[StatementOutcome]) -> None:
        """Apply statements' outcomes to tables; raise `LeaseLost`, `TransientError`."""
        manager = self.context.manager
        for outcome in outcomes:
            step, fault = outcome.step.origin, outcome.fault
            # First: a TargetBusy is a TransientError too, but the statement did nothing, so only
            # its own tables wait.
            if isinstance(fault, TargetBusy):
                # The table of one that came late is halted anyway.
                for key in () if manager.stopped.is_late(step) else manager.touches.held_up(step):
                    manager.wait(key, (str(fault),), self.context.clock.monotonic())
                    self.ledger.locked.add(key)
                self.queue.let_go(step)
                _log.warning(
                    "ddl_waits", table=str(step.name), version=step.version, error=str(fault)
                )
            elif isinstance(fault, DdlFailed) and fault.left_out:
                # What the state was reloaded with holds it already.
                if manager.backlog.is_pending(step):
                    manager.stopped.note(step, late=False)
                    text = f"{fault}. {_LEFT_OUT}. {ways_on(step, self.context.config.downstream)}"
                    manager.left_out.leave_out(step, text)
                    self.ledger.steps += 1
                    self.ledger.skipped["ddl: view left out"] += 1
                    self.queue.release(step)
                    _log.warning(
                        "view_left_out", table=str(step.name), version=step.version, error=text
                    )
            elif isinstance(fault, TableError):
                self._stop(step, str(fault), kind=kind_of(fault))
            elif fault is not None:
                # The outcomes after it are lost with this round, but each worker has journaled its
                # own: the next load finds them.
                raise fault
            # Otherwise a fault of the round had the state reloaded meanwhile, with this in it.
            elif (late := manager.stopped.is_late(step)) or manager.backlog.is_pending(step):
                manager.ddl_done(step)
                self.ledger.ddl_done(outcome.step)
                # With the bucket's names, by which `RowJobs` knows structures; `outcome.step` has
                # those of the target.
                self.rows.forget(step)
                fields = {
                    "table": str(step.name),
                    "version": step.version,
                    "query": step.definition.query,
                }
                # A late statement advances no table, so its halted table goes on where it stopped.
                if late:
                    manager.stopped.decided_late.pop(step.identity, None)
                    self.resume(step)
                    _log.info("ddl_settled", **fields)
                else:
                    # One inferred from others was never among those that were to run.
                    self.context.progress.advanced(statements=not step.inferred)
                    _log.info(
                        "ddl_finished",
                        **fields,
                        note=outcome.note,
                        seconds=round(outcome.seconds, 3),
                    )
        # What a statement stored of its tables was computed before it started; they may have
        # changed since, such as by a halt.
        self._unstored.update(
            key for outcome in outcomes for key in manager.touches.of(outcome.step.origin)
        )
        if len(self._unstored) >= _MOST_UNSTORED:
            self.store()

    def store(self) -> None:
        """Store tables of ended statements, in a batch: each call is a transaction."""
        if self._unstored:
            self.ledger.save([self.context.manager.tables[key] for key in sorted(self._unstored)])
        self._unstored.clear()

    def refuse(
        self, step: DdlStep, error: str, *, kind: HaltKind = "ddl", late: bool = False
    ) -> None:
        """Halt the table of a statement that cannot start.

        `late`: it came after later rows of its table were applied.
        """
        # The journal first: after a crash the statement is refused again, and halts the table.
        self.context.state.journal.refused(step, error)
        self._stop(step, error, kind=kind, late=late)

    def resume(self, step: DdlStep) -> None:
        """Let a table go on whose statement was decided about, unless something else halts it."""
        for key in self.context.manager.touches.held_up(step):
            table = self.context.manager.tables[key]
            table.resume()
            _log.info("table_resumed", table=str(table.name), checkpoint=table.checkpoint)

    def _stop(
        self, step: DdlStep, error: str, *, kind: HaltKind = "ddl", late: bool = False
    ) -> None:
        """Halt what a statement holds up until a decision about it, and log the next steps."""
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
        """Halt tables of late statements; resume those whose statements were decided about.

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
        self.context.manager.left_out.try_again(
            self._queue.at_work, [each.step.identity for each in released]
        )
        # Each alone: no group has a late statement, since it is a barrier for nothing.
        for step in stopped.decided_late.values():
            self._enqueue([step])

    def run(self, groups: Sequence[Sequence[DdlStep]], *, to_the_end: bool) -> bool:
        """Start or check on statements; return False if nothing more comes in this round.

        `groups`: see `Wave.ddls`. `to_the_end`: wait until one ends, however long that takes.
        """
        for group in groups:
            self._enqueue(group)
        anything = self._start_ready() or self.context.manager.left_out.try_again(
            self._queue.at_work
        )
        # A short pause here saves a job: the rows of the tables that these statements release go
        # with those of all others.
        workers = self.context.ddl_workers
        while (
            any(since < _PATIENCE for _, since in workers.running) and self.ledger.should_continue()
        ):
            anything |= self.collect(_LOOK_UP)
        # Only until one ends: what it releases is planned first, and may run beside the others.
        while not anything and to_the_end and workers.running and self.ledger.should_continue():
            self.ledger.ended_early = self.ledger.limit()
            if self.ledger.ended_early:
                break
            anything = self.collect(_LOOK_UP)
        return anything

    def collect(self, seconds: float = 0.0) -> bool:
        """Process ended statements within `seconds`, and start what waited for them.

        Return whether anything ended or started.

        Raises what stops the whole run: `LeaseLost`, `TransientError`.
        """
        workers = self.context.ddl_workers
        ended = workers.collect(seconds)
        # Before anything starts: a statement that ended lets the next one of its version start, or
        # keeps it from starting.
        self._outcomes.apply(ended)
        # TiDB waits for open transactions, however long those last.
        is_patient = self.context.server_info.server_type == "tidb"
        lock_wait = self.context.config.downstream.ddl_lock_wait
        for step, since in workers.overdue(lock_wait, _BLOCKERS_EVERY) if is_patient else ():
            if blockers := self.context.target.blockers(step.ddl.mentioned):
                _log.warning(
                    "ddl_blocked",
                    table=str(step.name),
                    version=step.version,
                    error=f"it has been running for {since:.0f} s",
                    blockers="; ".join(blockers),
                )
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
            key: text
            for step, text in texts.items()
            for key in pending.held_by(step.origin, touches.of(step.origin))
        }

    # what starts

    def _enqueue(self, group: Sequence[DdlStep]) -> None:
        """Queue a group in running order, unless part of it was queued or is running.

        A cycle of renames is held back until all of it can be read; one that stays incomplete for
        too long halts its table.
        """
        if self._queue.has(group):
            return
        manager = self.context.manager
        ordered = in_order(group, manager, self.context.target)
        step = unfinished(ordered)
        # An operator who decided about the seemingly unfinished step said that it is over.
        if step is None or step.identity in self._decisions:
            self._queue.add(group, ordered)
            return
        reason = UNFINISHED.format(step.definition.path)
        if manager.wait(step.table_key, (reason,), self.context.clock.monotonic()):
            self._outcomes.refuse(step, f"{reason}. Rename the tables manually")

    def _start_ready(self) -> bool:
        """Start each group's next statement; return whether any was started or refused.

        Where one cannot run, its table halts.
        """
        manager, target = self.context.manager, self.context.target
        anything = False
        for queued in self._queue.take_ready():
            anything = True
            step, decision = queued, self._decisions.get(queued.identity)
            try:
                step = step if decision else with_homes_of_names(step, manager, target)
                # A decided one is run as it is: if it runs at all, it is the operator's own text.
                ready = decided(step, manager) if decision else prepared(step, manager, target)
            except TableError as fault:
                if not step.makes_view or isinstance(fault, StatementRefused):
                    self._outcomes.refuse(step, str(fault), kind=kind_of(fault))
                    continue
                ready = replace(step, refusal=str(fault), source=step)
            # One that is not run changes no rows. An operator who decides about a statement answers
            # for those that are beyond it.
            if decision is None and not ready.skip and (why := self._obstacle(step)):
                self._outcomes.refuse(step, why)
                continue
            # What the files say about the statement's surroundings, and an operator about it.
            surroundings = DdlContext(
                database_is_ours=manager.creates_database(step),
                database_statements=manager.lifetimes.database_statements(
                    step.name.schema, step.version
                ),
                table_was_seen=was_seen(step, manager),
                after_copy=shown_by(step, manager),
                in_doubt_by=in_doubt_by(step, manager.tables),
                made_by=manager.tables[step.table_key].timeline.made_before(step.version),
                decision=decision,
                resumes=manager.tables[manager.touches.held_up(step)[0]].name,
                should_continue=self.context.ddl_workers.should_continue,
            )
            # Computed here: the tables belong to the round's thread; the worker only stores it.
            moved = [progress_of(table, manager) for table in manager.moved_by(step)]
            # The order matters: rows are fenced, then workers, before the last check of the lease,
            # and the statement starts after it.
            self.rows.fence()
            self.context.ddl_workers.fence(self.context.state.lease.epoch)
            # Nothing is journaled yet, and the next round queues what has not run: no loss.
            if not self.ledger.should_continue():
                continue
            if decision is not None and decision.verb == "skip":
                doubt_without(step, self.context)
            self.context.progress.ddl(table=str(ready.name), query=ready.definition.query)
            _log.info(
                "ddl_started",
                table=str(ready.name),
                version=step.version,
                query=ready.definition.query,
            )
            self.context.ddl_workers.start(ready, surroundings, moved)
        return anything

    def _obstacle(self, step: DdlStep) -> str:
        """Return why a statement may not run, quarantined or later rows; empty if it may."""
        manager = self.context.manager
        touched = manager.touches.of(step)
        if any(manager.quarantined.of(key) for key in touched):
            # No job runs beside this: what the state holds now is what it holds until the statement
            # ends, or less.
            manager.quarantined.replace(self.context.state.quarantine.entries())
            for key in sorted(touched):
                entries, table = manager.quarantined.of(key), manager.tables.get(key)
                own = (
                    table.timeline.structure_at(step.version - 1)
                    if table and key == step.table_key
                    else None
                )
                if entries and not may_run(step, own, entries):
                    name = table.name if table else step.name
                    return (
                        f"the DDL of {step.definition.path} waits, because {entries.count} rows of {name} are in the quarantine and it would "
                        f"move rows or change the key by which they are found. {quarantine_ways(name, self.context.config.downstream)}"
                    )
        late = manager.touches.beyond(step)
        if not late:
            return ""
        touches = f"the DDL of {step.definition.path} touches {', '.join(str(table.name) for table in late)}"
        lacking = sorted(touched - {table.key for table in late})
        others = [
            table
            for key in lacking
            if (table := manager.tables[key]).name.table and not table.status.excluded
        ]
        # Where all that it touches has a copy that holds it, it is done.
        if not others or any(table.copies.copied_at < step.version for table in late):
            return f"{touches}, whose later rows were applied while it could not be read; repair all of these tables manually"
        ways = " -- and ".join(
            manager.catalog.command("reload-done", table.name) for table in others
        )
        return (
            f"{touches}, whose copy holds what it does already. Give {' and '.join(str(table.name) for table in others)} a copy of the source "
            f"too, as of now or later. From an export: {ways}"
        )
