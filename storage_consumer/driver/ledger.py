"""What a round works with, and its ledger: going on, halted tables, stored state, work done."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from storage_consumer.bucket.reader import StorageReader
from storage_consumer.clock import Clock, StopSignal
from storage_consumer.config.settings import Config
from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.driver.lease import Renewal
from storage_consumer.driver.open_copies import LoadingState
from storage_consumer.driver.remedies import with_a_way_on
from storage_consumer.model import SkippedRows
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import DdlStep, RowStep, beginning
from storage_consumer.plan.table import Checkpoints, TableConsumer, checkpoints, is_all_apart
from storage_consumer.plan.table_state import HaltKind, TableState
from storage_consumer.plan.touches import place_of
from storage_consumer.ports import RowPipeline, ServerInfo, State, TableProgress, Target
from storage_consumer.rows.spec import ROW_BYTES
from storage_consumer.summary import Progress, RoundSummary, TableSummary
from storage_consumer.telemetry import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundContext:
    """Everything a round works with; assembled in api.py."""

    config: Config
    reader: StorageReader
    manager: ConsumerManager
    state: State
    target: Target
    ddl_workers: DdlWorkers
    """Where statements run; those that are running outlive a fault of the round."""
    pipeline: RowPipeline
    server_info: ServerInfo
    progress: Progress
    clock: Clock
    secrets_file: str
    loading: LoadingState | None = None
    """Loads tables from copies; None where none is loaded, as in a plan."""
    retry_quarantined: Callable[[RoundContext, Collection[str]], None] | None = None
    """Retries requested quarantined rows, except of tables that a running statement touches."""


_log = Log("round")
_STORED_BY_STATEMENTS = (TableState.RUNNING, TableState.WAITING, TableState.DROPPED)
"""States that a statement may have replaced at its end."""
JOB_SECONDS = 60
"""How long a job may take for which --rows-per-second leaves only so much to write."""
_STANDING = (TableState.HALTED, TableState.PAUSED, TableState.WAITING)
"""States of which every round tells."""


@dataclass(slots=True)
class Counts:
    """What one table did in a round."""

    rows: int = 0
    files: int = 0
    ddls: int = 0


@dataclass(slots=True, kw_only=True)
class RoundLedger:
    """What a round did so far; everything in it writes here.

    Nobody else stores progress, except DDL with its own.
    """

    context: RoundContext
    stop: StopSignal
    renewal: Renewal
    number: int = 1
    """Number of the round since the start of the program, from 1."""
    storage_checkpoint: int
    """Highest storage checkpoint of any run, so that a step back changes nothing; polls raise it.
    """
    refused_checkpoint: int = 0
    """See `RoundSummary.refused_checkpoint`."""
    steps: int = 0
    """Steps that took effect and are stored as done, without jobs that only halted tables.

    Those retry.
    """
    ended_early: str = ""
    """See `RoundSummary.ended_early`."""
    goes_on: bool = False
    """Whether it ended only to poll: more of a copy is to be written, so the next begins at once.
    """
    reached_until: bool = False
    """See `RoundSummary.reached_until`."""
    written: int = 0
    """Rows written and deleted."""
    size: int = 0
    """Bytes of the data files read."""
    loaded: set[str] = field(default_factory=set)
    """Keys of tables whose copies are complete: what is stored of them is newer than this."""
    locked: set[str] = field(default_factory=set)
    """Keys of the tables whose statement waits for locks of other sessions."""
    stages: Counter[str] = field(default_factory=Counter)
    """Stage of the round → seconds; see `RoundSummary.stages`."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason → number of objects, rows or statements."""
    counts: defaultdict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))
    """By table key."""
    began: float = field(init=False)
    """When the round began, by the monotonic clock."""

    def __post_init__(self) -> None:
        """Begin the round's time."""
        self.began = self.context.clock.monotonic()

    @property
    def reach(self) -> int:
        """How far this round may go, inclusive: the storage checkpoint or a lower option `until`.

        Only what is applied ends there. What is listed, missed or remembered of the bucket goes by
        the storage checkpoint.
        """
        return min(
            self.storage_checkpoint, self.context.config.limits.until or self.storage_checkpoint
        )

    @property
    def files_left(self) -> int:
        """Number of files that the next job may read; 0 for no limit of the round."""
        most = self.context.config.limits.max_files
        return max(1, most - self._files_read) if most else 0

    @property
    def _files_read(self) -> int:
        return sum(each.files for each in self.counts.values())

    def oldest_first(self, steps: Sequence[RowStep]) -> Sequence[RowStep]:
        """Return row steps in order; under a limit the tables furthest behind come first.

        Otherwise the same tables would get their turn in each round, and the others never.
        """
        limited = self.context.config.limits.max_files or self.context.config.tuning.rows_per_second
        return sorted(steps, key=lambda step: step.commit_range.low) if limited else steps

    def paced(self, steps: Sequence[RowStep]) -> Sequence[RowStep]:
        """Return what of row steps a job writes in about `JOB_SECONDS` at the wanted pace.

        The checkpoint moves after each job.
        """
        config, manager = self.context.config, self.context.manager
        row_bytes = ROW_BYTES[config.upstream.protocol]
        left = config.tuning.rows_per_second * JOB_SECONDS
        # Without a commit-ts in the rows nothing of a table can be left for later.
        if not left or not config.upstream.has_commit_ts:
            return steps
        taken: list[RowStep] = []
        for step in steps:
            some, rows = beginning(step, left, row_bytes, manager.sequences.rest)
            # Only the first one is cut: the others have their turn.
            if taken and (rows > left or some.commit_range != step.commit_range):
                break
            taken.append(some)
            left = max(1, left - rows)
        return taken

    def limit(self) -> str:
        """Return which limit of a round is reached, by the option's name; empty if none is."""
        limits = self.context.config.limits
        if limits.max_files and self._files_read >= limits.max_files:
            return "max-files"
        return (
            "max-seconds"
            if limits.max_seconds
            and self.context.clock.monotonic() - self.began >= limits.max_seconds
            else ""
        )

    def should_continue(self) -> bool:
        """Return whether to start the next step or end early; raise `LeaseLost` if it is lost."""
        # Before the wish to end: a process that lost its lease gives that as its reason.
        self.renewal.check()
        self.ended_early = "asked" if self.stop.requested.is_set() else ""
        return not self.ended_early

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the seconds of the block as those of a stage."""
        began = self.context.clock.monotonic()
        try:
            yield
        finally:
            self.stages[name] += self.context.clock.monotonic() - began  # type: ignore[assignment] # typeshed: counts are whole

    # tables

    def halt(self, key: str, error: str, *, kind: HaltKind, save: bool = True) -> None:
        """Halt a table and store why; without `save` the caller stores it, with other changes."""
        table = self.context.manager.tables[key]
        # A name in the target is given by the settings alone, which are read at a start.
        if kind != "name":
            error = with_a_way_on(error, table.name, self.context.config.downstream)
        table.halt(error, kind)
        if table.unannounced:
            _announce(table)
        if save:
            self.save([table])

    def announce_halts(self) -> None:
        """Log the halts that the plan has come to by itself, when it took in what was listed."""
        for table in self.context.manager.tables.values():
            if table.unannounced and table.status.is_halted:
                _announce(table)

    def save(
        self,
        tables: Iterable[TableConsumer],
        sequences: Mapping[str, Finished] | None = None,
        *,
        joined: Collection[str] = (),
    ) -> None:
        """Store the progress of tables and file sequences; `joined`: see `ports.Progress.save`."""
        # Zeros leave the feed as it is: both of its values only grow.
        self.context.state.progress.save(
            tables=self._progress(tables),
            sequences=sequences or {},
            checkpoint=0,
            storage_checkpoint=0,
            joined=joined,
        )

    def save_rows(
        self, tables: Iterable[TableConsumer], skipped: Mapping[str, Sequence[SkippedRows]]
    ) -> None:
        """Store the progress of tables after their job for rows, with the finished files.

        `skipped`: table key → what was left out.
        """
        progress = self._progress(tables)
        self.context.state.progress.save(
            tables=[
                replace(each, skipped=tuple(skipped.get(each.table_key, ()))) for each in progress
            ],
            sequences=self.context.manager.sequences.to_store(),
            checkpoint=0,
            storage_checkpoint=self.storage_checkpoint,
        )

    def _progress(self, tables: Iterable[TableConsumer]) -> list[TableProgress]:
        """Return what to store of tables; a statement may have moved some, not yet known here."""
        # A worker stores the tables of its statement before the round hears of its end. Here a
        # table may still be as a DROP, or the former step of a cycle of renames, left it, and that
        # must not replace what the worker stored. A halt is stored all the same.
        moved = self.context.ddl_workers.moved
        # The end of a load has moved its table, which the next round reads.
        tables = [table for table in tables if table.key not in self.loaded]
        return [
            progress_of(
                table,
                self.context.manager,
                may_be_outdated=table.key in moved and table.status.stored in _STORED_BY_STATEMENTS,
            )
            for table in tables
        ]

    def ddl_done(self, step: DdlStep) -> None:
        """Count a statement that took effect or was skipped, as it ran on the target."""
        self.steps += 1
        if step.skip:
            self.skipped[f"ddl: {step.skip}"] += 1
        # Neither a structure that was created from columns nor a statement left out by the filter
        # is a statement that ran.
        self.counts[step.table_key].ddls += not (step.ensure or step.skip)

    # the end of the round

    def save_checkpoints(self) -> Checkpoints:
        """Store how far the tables are, if that has changed; return it."""
        manager, catalog = self.context.manager, self.context.manager.catalog
        reached = _reached(manager, self.reach)
        # Those that have caught up since their loads count from here on.
        if joined := [
            table
            for table in manager.tables.values()
            if table.status.joining
            and not table.status.blocked
            and table.checkpoint >= reached.running
        ]:
            for table in joined:
                table.join()
            self.save(joined, joined=[table.key for table in joined])
            reached = _reached(manager, self.reach)
        self._save_caught_up(reached)
        sequences = manager.sequences.to_store()
        # `lowest` can also go back, when the filter takes a table again. What the bucket has is
        # news also where all tables wait.
        moved = (
            reached.running > catalog.stored_checkpoint or reached.lowest != catalog.stored_lowest
        )
        if moved or sequences or self.storage_checkpoint > catalog.stored_reach:
            self.context.state.progress.save(
                tables=(),
                sequences=sequences,
                checkpoint=reached.running,
                storage_checkpoint=self.storage_checkpoint,
                lowest=reached.lowest,
            )
            # In the state it only grows too: idle tables may have followed it.
            catalog.stored_checkpoint = max(reached.running, catalog.stored_checkpoint)
            catalog.stored_lowest, catalog.stored_reach = reached.lowest, self.storage_checkpoint
        return reached

    def _save_caught_up(self, reached: Checkpoints) -> None:
        """Store tables that were let go on and idled since; where possible they follow the feed.

        Their rows would show them behind for ever, below what other programs were told that all
        tables have reached.
        """
        manager, catalog = self.context.manager, self.context.manager.catalog
        follows = max(reached.running, catalog.stored_checkpoint)
        moved = [
            table
            for key, stored in catalog.stored_behind.items()
            if (table := manager.tables.get(key)) is not None
            and not table.status.is_halted
            and (table.checkpoint > stored or table.checkpoint >= follows)
        ]
        if moved:
            self.save(moved)
        for table in moved:
            catalog.stored_behind[table.key] = table.checkpoint
            if table.checkpoint >= follows:
                del catalog.stored_behind[table.key]

    def summary(self, reached: Checkpoints, stuck: Mapping[str, str]) -> RoundSummary:
        """Return the round's result; `stuck`: table key → what blocks one that does not wait."""
        manager, tables = self.context.manager, list[TableSummary]()
        for table in manager.tables.values():
            counts = self.counts.get(table.key, Counts())
            state, error = table.status.shown, table.status.error
            # Not blocked itself: a statement before its rows cannot run yet, or still runs.
            waits_for_statement = table.key in stuck and not table.status.blocked
            if waits_for_statement:
                state, error = TableState.WAITING, stuck[table.key]
            waits_for = (
                "lock" if table.key in self.locked else "ddl" if waits_for_statement else "file"
            )
            # Those that did something, are halted or wait, and the views that are left out.
            if counts.rows or counts.files or counts.ddls or error or state in _STANDING:
                tables.append(
                    TableSummary(
                        table=str(table.name),
                        rows=counts.rows,
                        files=counts.files,
                        ddls=counts.ddls,
                        checkpoint=table.checkpoint,
                        state=state,
                        error=error,
                        waits_for=waits_for if state == TableState.WAITING else "",
                    )
                )
        loads = self.context.loading.loads.values() if self.context.loading is not None else ()
        # A table that only waits for a statement before its rows is not waiting by its state.
        waiting = {each.table for each in tables if each.state == TableState.WAITING}
        taken = [table for table in manager.tables.values() if not table.status.excluded]
        states = Counter(
            str(TableState.WAITING if str(t.name) in waiting else t.status.shown) for t in taken
        )
        # Where they are being loaded, only the rest of that keeps these from going on.
        able = {table.key for table in taken if not table.status.is_halted}
        return RoundSummary(
            rows=sum(each.rows for each in tables),
            files=sum(each.files for each in tables),
            ddls=sum(each.ddls for each in tables),
            written=self.written,
            checkpoint=reached.lowest,
            checkpoint_running=reached.running,
            joining=tuple(
                table.checkpoint for table in manager.tables.values() if table.status.joining
            ),
            storage_checkpoint=self.storage_checkpoint,
            refused_checkpoint=self.refused_checkpoint,
            seconds=self.context.clock.monotonic() - self.began,
            finished_files=manager.finished_files,
            pending_files=manager.pending_files,
            pending_bytes=manager.pending_bytes,
            load_files=sum(load.parts for load in loads),
            load_files_done=sum(load.parts_done for load in loads),
            loading=tuple(str(load.name) for load in loads if load.table_key in able),
            stages=dict(self.stages),
            skipped={reason: count for reason, count in self.skipped.items() if count},
            ended_early=self.ended_early,
            reached_until=self.reached_until,
            bytes=self.size,
            states=dict(states),
            tables=tuple(sorted(tables, key=lambda each: each.table)),
            quarantined={
                str(manager.tables[key].name) if key in manager.tables else key: count
                for key, count in sorted(manager.quarantined.counts.items())
            },
        )


def _reached(manager: ConsumerManager, reach: int) -> Checkpoints:
    """Return how far the tables are that count for the whole. `reach`: how far the round may go."""
    tables, stored = manager.tables.values(), manager.catalog.stored_checkpoint
    # A run that ends sooner than an earlier one takes nothing back. Where all tables are being
    # loaded, no table is any further.
    found = checkpoints(tables, stored if is_all_apart(tables) else max(reach, stored))
    # All relevant tables have at least the feed's beginning, but not those of cancelled loads.
    return Checkpoints(
        lowest=max(found.lowest, manager.floor), running=max(found.running, manager.floor)
    )


def _announce(table: TableConsumer) -> None:
    """Log a halt, once."""
    fields = {"table": str(table.name), "checkpoint": table.checkpoint, "kind": table.unannounced}
    table.unannounced = ""
    _log.error("table_halted", **fields, error=table.status.error)


def progress_of(
    table: TableConsumer, manager: ConsumerManager, *, may_be_outdated: bool = False
) -> TableProgress:
    """Return what to store of a table; `may_be_outdated`: see `TableProgress`."""
    return TableProgress(
        table_key=table.key,
        schema=table.name.schema,
        table=table.name.table,
        checkpoint=table.checkpoint,
        state=table.status.stored,
        # A table behind the feed must not jump to the feed's checkpoint when the state is loaded.
        follows=not (table.status.is_halted or table.status.apart)
        and table.checkpoint >= manager.catalog.stored_checkpoint,
        # Who skips it stays known, whatever else is said of it meanwhile.
        error=table.status.skipped or table.status.error,
        copies=table.copies.to_store(),
        target=place_of(table, manager.selection.routes),
        may_be_outdated=may_be_outdated,
    )
