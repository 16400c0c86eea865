"""One round: poll, plan, then wave after wave of rows and DDL, each followed by its progress."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from storage_consumer.decode import decoder_for
from storage_consumer.driver.context import RoundContext, progress_of
from storage_consumer.driver.counts import Counts, table_summaries
from storage_consumer.driver.ddl_prepare import described
from storage_consumer.driver.ddl_schedule import DdlScheduler
from storage_consumer.driver.remedies import missing_table
from storage_consumer.driver.schema_files import taken_in
from storage_consumer.errors import ConfigError, TableError
from storage_consumer.job.match import table_work, unread_work
from storage_consumer.job.reports import by_path, file_works, told
from storage_consumer.job.shape import shape
from storage_consumer.job.spec import WHOLE, JobSpec, TablePlan
from storage_consumer.job.target_table import TargetTable
from storage_consumer.job.task_reports import FileReport, WriteReport
from storage_consumer.model import TableName, latest_tso, tso_of
from storage_consumer.plan.barriers import touched_names
from storage_consumer.plan.checkpoints import Checkpoints, checkpoints
from storage_consumer.plan.missing import gone_by
from storage_consumer.plan.shared_names import nowhere
from storage_consumer.plan.steps import DdlStep, RowStep, in_one_job
from storage_consumer.plan.table import HALTED, TableConsumer
from storage_consumer.poll.reader import Poll
from storage_consumer.ports import TableProgress
from storage_consumer.summary import RoundSummary
from storage_consumer.telemetry import Log, tso_time
from storage_consumer.tso import may_have_expired

_log = Log("round")
_LOOK_UP = 0.5
"""Seconds between two checks of whether the round is to end while statements run."""
_PATIENCE = 1.0
"""Seconds for which rows wait for a statement, so that all tables' rows go into one job; they do not wait for a longer one."""


@dataclass(slots=True)
class Round:
    """One round over all tables; call `run` once, then discard it."""

    parts: RoundContext
    storage_floor: int
    """Highest storage checkpoint that any run has seen, so that a step back changes nothing."""
    take_last_ddl: bool
    """Whether to run a DDL at exactly the storage checkpoint too."""
    settled_at: int
    """A storage checkpoint that was unchanged long enough for the same, -1 for none."""
    should_continue: Callable[[], bool]
    """Called between steps; raises `LeaseLost`, or returns False to end the round early."""
    step_done: Callable[[], None]
    """Called after each step that took effect and was stored; a job that only halted tables does not count, since they retry."""
    written: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    counts: dict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))
    undivided: set[str] = field(default_factory=set)
    """Paths of files that turned out to have changed while they were read in splits."""
    known: dict[TableName, TargetTable] = field(default_factory=dict)
    ddls: DdlScheduler = field(init=False)
    storage_checkpoint: int = 0
    ended_early: bool = False

    def run(self) -> RoundSummary:
        """Apply what the storage checkpoint covers. Raises only what stops the whole run."""
        parts, began = self.parts, self.parts.clock.monotonic()
        poll = parts.reader.poll()
        self.storage_checkpoint = max(poll.checkpoint, self.storage_floor)
        self.ddls = DdlScheduler(
            parts=parts,
            storage_checkpoint=self.storage_checkpoint,
            halt=self._halt,
            goes_on=self._goes_on,
            done=self._ddl_done,
            late=self._take(poll),
        )
        files = parts.manager.pending_files
        parts.progress.round_started(
            files=files, size=parts.manager.pending_bytes, storage_checkpoint=self.storage_checkpoint
        )
        stood_still = self.settled_at == self.storage_checkpoint
        settled = self.take_last_ddl or stood_still or parts.manager.is_half_done(self.storage_checkpoint)
        self.ddls.apply_decisions()
        while self._goes_on():
            self.ddls.collect(0)
            wave = parts.manager.next_wave(self.storage_checkpoint, settled=settled)
            if wave.rows:
                # Stored before a job that may fail: after a fault the tables are as they were stored.
                self.ddls.store()
                self._write_rows(in_one_job(wave.rows))
            elif not self._run_ddls(wave.ddls):
                break
        self.ddls.store()
        reached = self._store_checkpoints()
        stuck = {} if self.ended_early else parts.manager.stuck(self.storage_checkpoint) | self.ddls.still_running()
        tables = table_summaries(parts.manager, self.counts, stuck)
        summary = RoundSummary(
            rows=sum(table.rows for table in tables),
            files=sum(table.files for table in tables),
            ddls=sum(table.ddls for table in tables),
            written=self.written,
            checkpoint=reached.lowest,
            checkpoint_running=reached.running,
            storage_checkpoint=self.storage_checkpoint,
            seconds=parts.clock.monotonic() - began,
            finished_files=parts.manager.finished_files,
            pending_files=parts.manager.pending_files,
            skipped={reason: count for reason, count in self.skipped.items() if count},
            tables=tables,
        )
        parts.progress.round_finished(summary)
        return summary

    def _store_checkpoints(self) -> Checkpoints:
        """Store how far the tables are, if that has changed."""
        manager = self.parts.manager
        reached = checkpoints(manager.tables.values(), self.storage_checkpoint)
        if listed := manager.note_listed(self.storage_checkpoint):
            stored = [progress_of(table, manager) for table in listed]
            self.parts.state.save(tables=stored, streams={}, checkpoint=0, storage_checkpoint=0)
        streams = manager.streams.to_store()
        if reached.running > manager.stored_checkpoint or reached.lowest != manager.stored_lowest or streams:
            self.parts.state.save(
                tables=(),
                streams=streams,
                checkpoint=reached.running,
                storage_checkpoint=self.storage_checkpoint,
                lowest=reached.lowest,
            )
            manager.stored_checkpoint = max(reached.running, manager.stored_checkpoint)
            manager.stored_lowest = reached.lowest
        return reached

    def _goes_on(self) -> bool:
        """Return whether the next step may start."""
        self.ended_early = not self.should_continue()
        return not self.ended_early

    # poll

    def _take(self, poll: Poll) -> list[DdlStep]:
        """Hand what was listed to the manager; return the statements that came too late to run in their place."""
        parts = self.parts
        if poll.contradictions:
            raise ConfigError(poll.warnings[-1] if poll.warnings else poll.contradictions[0])
        for warning in poll.warnings:
            _log.warning("storage_warning", text=warning)
        if not self.storage_checkpoint:
            _log.warning("checkpoint_missing", path="metadata")
        self._tell_expired()
        if poll.changed:
            self.skipped["object: content changed under a known name, read again"] += poll.changed
        self.skipped.update({f"object: {reason}": count for reason, count in poll.ignored.items()})
        parts.manager.new_round(tso_of(parts.clock.now()))
        intake = taken_in(poll, parts.reader, parts.manager, parts.state)
        for file, error in intake.unreadable:
            self._halt(parts.manager.unreadable(file.table_dir, file.version), error)
        for warning in (warning for definition in intake.definitions for warning in definition.warnings):
            _log.warning("schema_warning", text=warning)
        parts.manager.finished_files += poll.finished
        late = parts.manager.dispatch(intake.definitions, intake.table_dirs, poll.data_files)
        covered = parts.manager.covered()
        self._pass_over()
        moved = parts.manager.taken_over() + parts.manager.vanished(poll.vanished)
        # Stored with the record that the files were rewritten: else a process that ends in between forgets the loss.
        moved += self._halt_overwritten(poll)
        parts.manager.streams.leave_out(parts.reader.left_out())
        rewound = parts.manager.streams.rewound()
        if moved or rewound:
            stored = [progress_of(table, parts.manager) for table in moved]
            parts.state.save(tables=stored, streams=rewound, checkpoint=0, storage_checkpoint=0)
        self._covered(covered)
        missing = parts.manager.look_for_gaps(self.storage_checkpoint, parts.clock.monotonic())
        for key, error in missing.items():
            self._halt(key, error)
        return late

    def _covered(self, steps: Sequence[DdlStep]) -> None:
        """Record statements whose effects copies hold; a table that they removed at the source has to be dropped manually."""
        manager = self.parts.manager
        names = [gone_by(step, manager.tables) for step in steps]
        there = (
            described([name for name in names if name is not None], manager, self.parts.target) if any(names) else {}
        )
        for step, name in zip(steps, names, strict=True):
            self.parts.state.copied(step, manager.tables[step.table_key].copied_at)
            if name is not None and name.folded() in there:
                text = (
                    f"the source has had no table {name} since version {step.version}. The statement of that version was "
                    f"not run, because the copy of {step.name} already has its effect. The target still has "
                    f"{there[name.folded()].name} with its old rows: drop it manually"
                )
                _log.warning("storage_warning", text=text)

    def _halt_overwritten(self, poll: Poll) -> list[TableConsumer]:
        """Halt the tables that lost rows in files rewritten unseen; return them, to be stored by the caller."""
        manager = self.parts.manager
        overwritten = manager.overwritten(poll.overwritten)
        for key, error in overwritten.items():
            self._halt(key, error, save=False)
        return [manager.tables[key] for key in overwritten]

    def _tell_expired(self) -> None:
        """Warn at a start if TiCDC may have deleted files before they were read: whole days that are gone leave no gap in the numbers."""
        manager, days = self.parts.manager, self.parts.config.upstream.file_expiration_days
        stored = min(manager.stored_lowest, manager.stored_checkpoint)
        if manager.is_new and may_have_expired(stored, self.storage_checkpoint, days):
            text = (
                f"TiCDC deletes files after {days} day(s), and the target is further behind the bucket than that, at "
                f"{tso_time(stored)}: rows in between may have been deleted unread. Compare the tables with the "
                "source, and reload those that differ (`storage-consumer table hold`, then `table reload-done`)"
            )
            _log.warning("storage_warning", text=text)

    def _pass_over(self) -> None:
        """Skip what the filter leaves out; halt tables whose name in the target is another's or reserved."""
        manager = self.parts.manager
        if left_out := manager.left_out_files:
            self.skipped["object: data file of a table that the filter leaves out"] += left_out
            self.parts.reader.leave_out(manager.left_out_directories())
        for key, error in nowhere(manager.tables.values()).items():
            self._halt(key, error)
        for key, error in manager.collisions().items():
            self._halt(key, error)  # stored without a place, so that another route may be given

    # rows

    def _write_rows(self, steps: Sequence[RowStep]) -> None:
        """Run one Spark job for the row steps of all tables that can run."""
        works = self._works(steps)
        if not works:
            return
        parts = self.parts
        upstream = parts.config.upstream
        splittable = decoder_for(upstream).mark is not None
        files = [
            file
            for step, work in works
            for file in file_works(step, work.index, lambda path: splittable and path not in self.undivided)
        ]
        cut = shape(files, upstream.protocol, parts.pipeline.cores, parts.config.tuning.partitions)
        spec = JobSpec(
            upstream=upstream,
            downstream=parts.config.downstream,
            secrets_file=parts.secrets_file,
            tables=tuple(work for _, work in works),
            partitions=cut.partitions,
            whole=cut.whole,
            epoch=parts.state.epoch,
            window_id=parts.state.open_window(cut.partitions, self.storage_checkpoint),
            load_data=parts.server_info.load_data and parts.config.tuning.local_infile,
            max_packet=parts.server_info.max_packet,
        )
        # From here on tasks exist that may still write after the job ended or failed: see `DdlScheduler.rows_may_be_late`.
        self.ddls.rows_may_be_late = True
        reports = parts.pipeline.run(spec, files, parts.progress)
        by_table: dict[int, list[FileReport | WriteReport]] = defaultdict(list)
        for report in reports:
            by_table[report.table].append(report)
        moved = [self._acknowledge(step, by_table[work.index]) for step, work in works]
        parts.state.save(
            tables=[m for m in moved if m],
            streams=parts.manager.streams.to_store(),
            checkpoint=0,
            storage_checkpoint=self.storage_checkpoint,
        )
        if any(progress is not None and progress.state != HALTED for progress in moved):
            self.step_done()

    def _works(self, steps: Sequence[RowStep]) -> list[tuple[RowStep, TablePlan]]:
        """Return the plan of each table for its tasks; tables whose rows do not fit the target halt here."""
        wanted = {step.name.folded(): step.name for step in steps}
        missing = [name for folded, name in wanted.items() if folded not in self.known]
        self.known |= described(missing, self.parts.manager, self.parts.target)
        works: list[tuple[RowStep, TablePlan]] = []
        latest = latest_tso(self.storage_checkpoint, self.parts.clock.now())
        for step in steps:
            there = self.known.get(step.name.folded())
            try:
                if there is None or step.dropped:
                    place = self.parts.manager.selection.routes.target(step.name)
                    text = missing_table(step.name, place, self.parts.config.downstream)
                    work = unread_work(len(works), step, self.parts.config.upstream, text)
                else:
                    work = table_work(len(works), step, there, self.parts.config.upstream)
            except TableError as fault:
                self._halt(step.table_key, str(fault))
            else:
                works.append((step, replace(work, latest=latest)))
        return works

    def _acknowledge(self, step: RowStep, reports: Sequence[FileReport | WriteReport]) -> TableProgress | None:
        """Advance one table, or halt it; return what to store of it."""
        files = by_path(reports)
        if changed := {r.path for r in reports if isinstance(r, FileReport) and r.gone and r.span != WHOLE}:
            # Nothing of the table was written; the next wave of this round reads these files whole, as they are by then.
            self.undivided |= changed
            return None
        counts, table = self.counts[step.table_key], self.parts.manager.tables[step.table_key]
        self.written += sum(r.written for r in reports if isinstance(r, WriteReport))
        counts.files += len(files)
        for file in files.values():
            self.skipped["row: repeated delivery"] += file.duplicates
            self.skipped["row: beyond the storage checkpoint"] += file.later
        errors = [told(r, step, reports) for r in reports if r.error]
        if errors:
            # A torn file may still be being written: the table waits, and halts only if the tags stay the same.
            if all(isinstance(r, FileReport) and r.torn for r in reports if r.error):
                seen = (errors[0], *sorted(file.stored.tag for file in step.files))
                if self.parts.manager.wait(step.table_key, seen, self.parts.clock.monotonic()):
                    self._halt(step.table_key, f"{errors[0]}. The file has not changed for a while", save=False)
                    return progress_of(table, self.parts.manager)
                if any(isinstance(r, FileReport) and r.gone for r in reports):
                    self.parts.reader.list_everything()
                return None
            self._halt(step.table_key, errors[0], save=False)
            return progress_of(table, self.parts.manager)
        unread = [
            file.stored.path
            for file in step.files
            if not (file.stored.path in files and files[file.stored.path].span == WHOLE)
        ]
        if unread:
            message = f"the job gave no report for {unread[0]} ({len(unread)} files)"
            raise RuntimeError(message)
        self.parts.manager.rows_applied(step)
        for listed in step.files:
            report = files[listed.stored.path]
            counts.rows += report.applied
            table.finish(listed, max_ts=report.max_ts, next_ts=report.next_ts)
        return progress_of(table, self.parts.manager)

    # DDL

    def _run_ddls(self, groups: Sequence[Sequence[DdlStep]]) -> bool:
        """Start statements, or check on those that run; return False if nothing more comes of it in this round."""
        anything = self.ddls.begin(groups)
        while self.ddls.is_young(_PATIENCE) and self._goes_on():
            anything |= self.ddls.collect(_LOOK_UP)
        while not anything and self.take_last_ddl and self.ddls.is_running and self._goes_on():
            anything = self.ddls.collect(_LOOK_UP)
        return anything

    def _ddl_done(self, step: DdlStep) -> None:
        """Count a statement that took effect or was skipped, and forget the structures that it may have changed."""
        self.step_done()
        if step.skip:
            self.skipped[f"ddl: {step.skip}"] += 1
        self.counts[step.table_key].ddls += not (step.ensure or step.skip)
        step = step.origin
        for name in touched_names(step.definition):
            self.known.pop(name, None)
        if not step.name.table:
            self.known.clear()

    def _halt(self, key: str, error: str, *, save: bool = True) -> None:
        """Halt one table and store why."""
        manager = self.parts.manager
        manager.halt(key, error)
        table = manager.tables[key]
        _log.error("table_halted", table=str(table.name), checkpoint=table.checkpoint, error=table.error)
        if save:
            stopped = progress_of(table, manager)
            self.parts.state.save(tables=[stopped], streams={}, checkpoint=0, storage_checkpoint=0)
