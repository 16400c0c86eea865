"""The jobs of a round: a wave's row steps as one job, its reports as progress of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from storage_consumer.config.settings import Upstream
from storage_consumer.config.table_filter import skipped_in, table_rules
from storage_consumer.driver.ddl_prepare import described
from storage_consumer.driver.doubts import doubt_late, with_doubt
from storage_consumer.driver.ledger import RoundContext, RoundLedger
from storage_consumer.driver.remedies import (
    missing_table,
    quarantine_ways,
    reason_of,
    table_command,
)
from storage_consumer.errors import NotReplicable, TableError
from storage_consumer.model import SkippedRows, TableName, latest_tso
from storage_consumer.plan.steps import DdlStep, RowStep
from storage_consumer.plan.table_state import HaltKind, TableState
from storage_consumer.rows.fitting import TargetTable
from storage_consumer.rows.match import table_work, unread_work
from storage_consumer.rows.row_keys import key_signature
from storage_consumer.rows.spec import (
    FileReport,
    JobFile,
    JobSpec,
    Mode,
    Quarantine,
    TableOutcome,
    TablePlan,
    WriteReport,
    in_sequence,
    is_blocked,
    job_title,
    shape,
    table_outcome,
)
from storage_consumer.telemetry import Log

_EXCHANGED = (
    "{} was exchanged or removed while the copy of {} was loaded. Put it back, or begin again with a copy as of now or later. "
    "From an export: {}"
)
_log = Log("round")
QUARANTINED = "row: quarantined, since the target refused it"
SKIPPED = "row: left out by --skip-commit-ts"
_Planned = tuple[RowStep, TablePlan]
_Ended = tuple[RowStep, TablePlan, TableOutcome]


@dataclass(slots=True)
class RowJobs:
    """Writes rows, a job per wave; knows the target's tables as first needed in the round."""

    context: RoundContext
    ledger: RoundLedger
    _known: dict[TableName, TargetTable] = field(default_factory=dict)
    """By folded name in the bucket."""
    _waves: int = 0
    """Number of jobs so far."""
    _may_be_late: bool = True
    """Whether a task may be about to write: one of a job since the last fence, or before."""

    def write(self, steps: Sequence[RowStep]) -> frozenset[str]:
        """Run a job for all row steps that can run, store its work, and return the keys written."""
        planned = self._planned(steps)
        if not planned:
            return frozenset()
        wanted = self.context.config.upstream.skip_commit_ts
        # Their checkpoints move with their rows: a restart might find nothing of what was left out.
        if noted := [
            SkippedRows(step.name, ts, None)
            for step, plan in planned
            if plan.mode is Mode.KEYLESS and not step.origin
            for ts in skipped_in(wanted, step.name, step.commit_range)
        ]:
            self.context.state.progress.skip(noted)
        by_table = self._run(planned)
        # All rows' former states are gone or replaced by now: what blocks a row stays there.
        if again := [
            (
                step,
                replace(
                    plan,
                    is_settled=True,
                    has_entries=plan.has_entries or plan.quarantine is not None,
                ),
            )
            for step, plan in planned
            if is_blocked(by_table[plan.index])
        ]:
            by_table |= self._run(again)
        outcomes = [
            (step, plan, table_outcome(step, by_table[plan.index])) for step, plan in planned
        ]
        for step, plan, outcome in outcomes:
            rows = outcome.quarantined
            # A bucket that ended with an error does not tell what it quarantined before that.
            if rows or (plan.quarantine and outcome.error):
                self.context.manager.quarantined.note(
                    step.table_key, len(rows), key_signature(plan)
                )
            if rows:
                self.ledger.skipped[QUARANTINED] += len(rows)
                first = rows[0]
                _log.error(
                    "row_quarantined",
                    table=str(step.name),
                    rows=len(rows),
                    key=first.key,
                    path=in_sequence(step)[first.place.rank].stored.path,
                    row=first.place.row,
                    commit_ts=step.as_of or first.place.commit_ts,
                    error=first.reason,
                )
        tables = self.context.manager.tables
        moved = [
            tables[step.table_key]
            for step, _, outcome in outcomes
            if self._acknowledge(step, outcome)
        ]
        # The rows are committed. After a crash before this the same job runs again: last states are
        # idempotent, and keyless tables have moved their stored checkpoints with their rows.
        self.ledger.save_rows(moved, self._skipped(outcomes, noted))
        if any(table.status.stored != TableState.HALTED for table in moved):
            self.ledger.steps += 1
        return frozenset(table.key for table in moved if not table.status.is_halted)

    def _skipped(
        self, outcomes: Iterable[_Ended], noted: Iterable[SkippedRows]
    ) -> dict[str, list[SkippedRows]]:
        """Count what was left out of tables that went on, by key; `noted`: before the job."""
        found = {}
        for step, _, outcome in outcomes:
            if outcome.error or step.origin:
                continue
            counts = Counter({each.commit_ts: 0 for each in noted if each.table == step.name})
            for report in outcome.files.values():
                counts.update(dict(report.skipped))
            self.ledger.skipped[SKIPPED] += counts.total()
            found[step.table_key] = [SkippedRows(step.name, *each) for each in counts.items()]
        return found

    def _run(self, planned: Sequence[_Planned]) -> dict[int, list[FileReport | WriteReport]]:
        """Run one job; return the reports of each table, by `TablePlan.index`."""
        files = [file for step, plan in planned for file in files_of(step, plan.index)]
        self._waves += 1
        context, config = self.context, self.context.config
        pace = config.tuning.rows_per_second
        cores, wish = context.pipeline.cores, config.tuning.partitions
        cut = shape(files, config.upstream.protocol, cores, wish, pace)
        spec = JobSpec(
            origins=self._origins,
            downstream=config.downstream,
            secrets_file=context.secrets_file,
            tables=tuple(plan for _, plan in planned),
            partitions=cut.partitions,
            whole=cut.whole,
            epoch=context.state.lease.epoch,
            # Last, right before the job: tasks of earlier jobs can commit nothing from here on.
            window_id=context.state.lease.open_window(
                cut.partitions,
                self.ledger.storage_checkpoint,
                _early_writes(plan for _, plan in planned),
            ),
            statements=context.state.lease.task_statements,
            load_data=context.server_info.load_data and config.tuning.local_infile,
            max_packet=context.server_info.max_packet,
            rows_per_second=pace,
            title=job_title(
                self.ledger.number, self._waves, [str(step.name) for step, _ in planned], files
            ),
        )
        # From here on tasks exist that may still write after the job ended or failed.
        self._may_be_late = True
        by_table: dict[int, list[FileReport | WriteReport]] = {
            plan.index: [] for _, plan in planned
        }
        for report in self.context.pipeline.run(spec, files, self.context.progress):
            by_table[report.table].append(report)
        return by_table

    @property
    def _origins(self) -> tuple[Upstream, ...]:
        """Where files may be: in the bucket, and in the copies that are open."""
        loading = self.context.loading
        return (self.context.config.upstream, *(loading.origins() if loading is not None else ()))

    def fence(self) -> None:
        """Keep late tasks of earlier jobs from writing the former structure, before a statement."""
        if self._may_be_late:
            # Without partitions: all that matters is that the slots of earlier tasks change.
            self.context.state.lease.open_window(0, self.ledger.storage_checkpoint)
            self._may_be_late = False

    def forget(self, step: DdlStep) -> None:
        """Forget structures that a statement may have changed; `step` has the bucket's names."""
        for name in step.ddl.touched:
            self._known.pop(name, None)
        # A statement about a database may change all of its tables.
        if not step.name.table:
            self._known.clear()

    # the job

    def _planned(self, steps: Sequence[RowStep]) -> list[_Planned]:
        """Return each step with its tasks' plan; halt tables whose rows do not fit the target."""
        names = [
            name for step in steps for name in (step.name, step.early_name) if name is not None
        ]
        wanted = {name.folded(): name for name in names}
        missing = [name for folded, name in wanted.items() if folded not in self._known]
        self._known |= described(missing, self.context.manager, self.context.target)
        # A commit-ts beyond this is damage: no source can have issued it yet.
        latest = latest_tso(self.ledger.storage_checkpoint, self.context.clock.now())
        planned: list[_Planned] = []
        for step in steps:
            try:
                plan = self._plan(len(planned), step)
            except TableError as fault:
                self._halt(step, reason_of(fault, self.context.config), "schema")
            else:
                planned.append((step, replace(plan, latest=latest)))
        return planned

    def _plan(self, index: int, step: RowStep) -> TablePlan:
        """Return a table's plan; raise `TableError` if rows do not fit, or quarantined keys."""
        there, upstream = self._known.get(step.name.folded()), self._origins[step.origin]
        if step.early_name is not None and (step.is_early or there is None):
            there = self._known.get(step.early_name.folded())
        # Even if the target has a table of the name of a dropped one: at this time the source has
        # none, so nothing may be written.
        if there is not None and not step.dropped:
            try:
                plan = replace(table_work(index, step, there, upstream), origin=step.origin)
            except NotReplicable as fault:
                # The copy may show the next statement's effect already, or be all that shows the
                # structure before it. There is seldom a row between copy and statement.
                # Nor may files from before a view hold anything but repeats.
                if step.upcoming is None and not step.is_before_structure and not there.is_view:
                    raise
                return unread_work(index, step, upstream, reason_of(fault, self.context.config))
            if there.is_planned:
                return plan
            name, tuning = step.name, self.context.config.tuning
            entries = self.context.manager.quarantined.of(step.table_key)
            if entries and entries.signatures - {key_signature(plan)}:
                raise NotReplicable(
                    f"{name}: {entries.count} of its rows are in the quarantine, and its key is no longer compared as it was when they "
                    f"came there. {quarantine_ways(name, self.context.config.downstream)}"
                )
            rule = None
            if tuning.quarantine and table_rules(tuning.quarantine).matches(
                name.schema, name.table
            ):
                paths = tuple(file.stored.path for file in in_sequence(step))
                rule = Quarantine(limit=tuning.quarantine_limit, paths=paths, as_of=step.as_of)
            return (
                replace(plan, quarantine=rule, has_entries=entries is not None)
                if rule or entries
                else plan
            )
        place = self.context.manager.selection.routes.target(step.name)
        return unread_work(
            index, step, upstream, missing_table(step.name, place, self.context.config.downstream)
        )

    # its outcome

    def _acknowledge(self, step: RowStep, outcome: TableOutcome) -> bool:
        """Advance a table to the range's end, halt it, or let it retry; return whether to store.

        A file without a report is a bug, and ends the program.
        """
        ledger = self.ledger
        ledger.written += outcome.written
        ledger.counts[step.table_key].files += len(outcome.files)
        ledger.size += sum(
            file.stored.size for file in step.files if file.stored.path in outcome.files
        )
        rest_of = self.context.manager.sequences.rest
        for report in outcome.files.values():
            # What comes after a part of the rows, or after a statement, is yet to be written.
            if step.commit_range.high >= ledger.reach:
                border = (
                    "the storage checkpoint"
                    if ledger.reach == ledger.storage_checkpoint
                    else "--until"
                )
                ledger.skipped[f"row: beyond {border}"] += report.later
        # Rows of a file that is read again for those after them are no deliveries of their own.
        reread = {file.stored.path for file in step.files if rest_of(file)}
        ledger.skipped["row: repeated delivery"] += sum(
            report.duplicates for report in outcome.files.values() if report.path not in reread
        )
        error = outcome.error
        if not error:
            if unread := [
                file.stored.path for file in step.files if file.stored.path not in outcome.files
            ]:
                raise RuntimeError(f"the job gave no report for {unread[0]} ({len(unread)} files)")
            ledger.counts[step.table_key].rows += sum(
                report.applied for report in outcome.files.values()
            )
            # A copy's parts have no commit-ts: `LoadJobs` stores how far a load is.
            if not step.origin:
                self._finish(step, outcome)
            return True
        if outcome.gone and step.origin:
            paths = sorted(report.path for report in outcome.files.values() if report.gone)
            again = table_command("reload-done", step.name, self.context.config.downstream)
            error = _EXCHANGED.format(paths[0], step.name, again)
        elif outcome.may_pass:
            # A torn file may be being written: the table waits, and halts only if tags stay equal.
            seen = (error, *sorted(file.stored.tag for file in step.files))
            if not self.context.manager.wait(step.table_key, seen, self.context.clock.monotonic()):
                # What is remembered of the bucket is out of date somewhere, so nothing of it may
                # shorten the next listing.
                if outcome.gone:
                    self.context.reader.list_everything()
                return False
            error = f"{error}. The file has not changed for a while"
        self._halt(step, error, "row" if outcome.refused else "file", save=False)
        return True

    def _finish(self, step: RowStep, outcome: TableOutcome) -> None:
        """Advance a table and its files; doubt it if it had passed rows of one that came late."""
        manager = self.context.manager
        # First, since `finish` judges each file by the table's checkpoint.
        manager.rows_applied(step)
        table, late = manager.tables[step.table_key], manager.catalog.late
        for file in step.files:
            report = outcome.files[file.stored.path]
            shown = max(late.read(table.key, file, report.max_ts), file.version, step.made_at)
            if report.repeated_ts > max(shown, table.copies.copied_at) and not step.dropped:
                doubt_late(step.name, file.stored.path, step.commit_range.low, self.context)
            table.finish(file, max_ts=report.max_ts, next_ts=report.next_ts, later=report.later)

    def _halt(self, step: RowStep, error: str, kind: HaltKind, *, save: bool = True) -> None:
        """Halt a table, and look whether it is what it was in the target."""
        # A copy may be from after the next statement, or from before that of `current`.
        if not (step.dropped or step.is_before_structure):
            soon, upcoming = step.early_name, step.upcoming
            error = with_doubt(
                error, step.name, step.current, self.context, soon=soon, or_as=upcoming
            )
        self.ledger.halt(step.table_key, error, kind=kind, save=save)


def _early_writes(plans: Iterable[TablePlan]) -> dict[str, int]:
    """Return table key → range's end, of tables whose rows show before their checkpoint moves."""
    # The events of a keyless table commit together with its checkpoint.
    return {
        plan.table_key: plan.commit_range.high for plan in plans if plan.mode is not Mode.KEYLESS
    }


def files_of(step: RowStep, index: int) -> Iterator[JobFile]:
    """Yield the files of one table, which has this index in the job, with their ranks."""
    last: dict[str, int] = {}
    for file in step.files:
        last[file.sequence] = max(last.get(file.sequence, 0), file.number)
    for rank, file in enumerate(in_sequence(step)):
        yield JobFile(
            table=index,
            file=file,
            rank=rank,
            # Only a sequence's last file may be being written, so only its end may be torn.
            newest=file.number == last[file.sequence],
            exact=step.origin > 0,
        )
