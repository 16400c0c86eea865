"""One round: poll, take in what is new, then rows and DDL, wave by wave, until all is done.

`Intake` hands schema files and data files to their tables, with what they show to be lost, late or
left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage_consumer.bucket.reader import Poll, ReadSchemaFile
from storage_consumer.clock import some_of
from storage_consumer.driver.ddl_prepare import BEFORE_FEED, bare, described
from storage_consumer.driver.ddl_schedule import DdlScheduler
from storage_consumer.driver.ledger import RoundContext, RoundLedger
from storage_consumer.driver.loading import LoadJobs
from storage_consumer.driver.row_jobs import RowJobs
from storage_consumer.errors import ConfigError, FilesMissing, TableError
from storage_consumer.model import TableDefinition, tso_of
from storage_consumer.plan.covered import copied_at, gone_by
from storage_consumer.plan.planner import unreached
from storage_consumer.plan.steps import DdlStep, in_one_job
from storage_consumer.plan.table import dropped_unseen
from storage_consumer.plan.table_words import DROPPED_UNSEEN
from storage_consumer.sql.parse import parsed
from storage_consumer.summary import RoundSummary
from storage_consumer.telemetry import Log, tso_time
from storage_consumer.tso import may_have_expired

_log = Log("intake")
_MAY_BE_THERE = "(version {}; {} in the target): compare and drop that table manually, and this one goes on without a restart. Or leave it out: {}"
_BEGINNINGS = (
    "Begin with a copy of the source: --dump URI of an export, or --source tidb://USER@HOST:4000/ to have one made. Or create these tables in the "
    "target as the source had them when the changefeed began, with their rows. With --no-copy they are created from their columns, without those rows"
)
_NAMED = 5
"""Most tables that a message names."""
_Placed = tuple[str, TableDefinition]
"""The table directory of a schema file, and its content."""
_round_log = Log("round")


@dataclass(slots=True)
class Intake:
    """What follows from a poll, up to the first wave."""

    context: RoundContext
    ledger: RoundLedger

    def take(self, poll: Poll) -> list[DdlStep]:
        """Hand listed files to the manager; return statements that came too late."""
        manager = self.context.manager
        self._warn(poll)
        if poll.changed:
            self.ledger.skipped["object: content changed under a known name, read again"] += (
                poll.changed
            )
        self.ledger.skipped.update(
            {f"object: {reason}": count for reason, count in poll.ignored.items()}
        )
        # Before anything is dispatched: tables that waited get another try with what is new.
        manager.new_round(tso_of(self.context.clock.now()))
        placed = self._definitions(poll)
        manager.finished_files += poll.finished
        late = manager.dispatch(
            [definition for _, definition in placed],
            {definition.path: table_dir for table_dir, definition in placed},
            poll.data_files,
        )
        # After all files are dispatched: a copy's statements depend on others of their version.
        covered = manager.covered(self.ledger.storage_checkpoint)
        # Before anything is stored of a table: by that a feed would have begun.
        reached = self.ledger.storage_checkpoint
        # Such a feed would begin without rows and keys of tables from before it.
        if not manager.catalog.stored_checkpoint:
            due = [step for step in manager.backlog if step.version <= reached]
            if lacking := {str(step.name) for step in bare(due, manager, self.context.target)}:
                raise ConfigError(
                    f"{BEFORE_FEED.format(some_of(sorted(lacking), _NAMED))}. {_BEGINNINGS}"
                )
        self._pass_over()
        self._let_go_of_dropped()
        # Progress of tables and files that the poll changed.
        moved = manager.catalog.taken_over() + manager.catalog.vanished(poll.vanished)
        # Rows of files rewritten unseen. Stored with the record that they were: else a process that
        # ends in between forgets the loss.
        overwritten = manager.catalog.overwritten(poll.overwritten)
        for key, error in overwritten.items():
            self.ledger.halt(key, error, kind="gap", save=False)
        moved += [manager.tables[key] for key in overwritten]
        # Unread files may expire. They are stored as listed before any row is, so that a later run
        # misses those that are gone by then.
        moved += manager.note_listed(reached, poll.continues_from)
        manager.sequences.leave_out(self.context.reader.left_out())
        rewound = manager.sequences.rewound()
        if moved or rewound:
            self.ledger.save(moved, rewound)
        # Statements whose effects copies hold do not run, so the target keeps what they removed at
        # the source: only a person can tell whether it may go.
        names = [gone_by(step, manager.tables) for step in covered]
        gone = [name for name in names if name is not None]
        there = described(gone, manager, self.context.target) if gone else {}
        for step, name in zip(covered, names, strict=True):
            # In the journal a covered statement is done, so that no later start queues it again.
            self.context.state.journal.copied(
                step, copied_at(step, manager.tables, manager.touches.of)
            )
            if name is not None and name.folded() in there:
                text = (
                    f"the source has had no table {name} since version {step.version}. The statement of that version was "
                    f"not run, because the copy of {step.name} already has its effect. The target still has "
                    f"{there[name.folded()].name} with its old rows: drop it manually"
                )
                _log.warning("storage_warning", text=text)
        # Those that the copy lacks with which the feed began.
        older = manager.unbased.missing(
            reached, manager.tables, manager.lifetimes, manager.catalog.command
        )
        for key, error in older.items():
            self.ledger.halt(key, error, kind="schema")
        # Last, since what was read just now may have closed a gap.
        for key, error in manager.look_for_gaps(reached, self.context.clock.monotonic()).items():
            self.ledger.halt(key, error, kind="gap")
        return late

    def _warn(self, poll: Poll) -> None:
        """Log what is odd about the bucket as a whole.

        At a start this includes that TiCDC may have deleted files before they were read: whole days
        that are gone leave no gap in the numbers of the files.
        """
        for warning in poll.warnings:
            _log.warning("storage_warning", text=warning)
        if not self.ledger.storage_checkpoint:
            _log.warning("checkpoint_missing", path="metadata")
        manager, days = self.context.manager, self.context.config.upstream.file_expiration_days
        stored = min(manager.catalog.stored_lowest, manager.catalog.stored_checkpoint)
        if manager.is_new and may_have_expired(stored, self.ledger.storage_checkpoint, days):
            text = (
                f"TiCDC deletes files after {days} day(s), and the target is further behind the bucket than that, at "
                f"{tso_time(stored)}: rows in between may have been deleted unread. Compare the tables with the "
                "source (`storage-consumer verify`), and load those that differ anew (`storage-consumer load`)"
            )
            _log.warning("storage_warning", text=text)

    # schema files

    def _definitions(self, poll: Poll) -> list[_Placed]:
        """Return new schema files' content and vanished ones'; halt tables of unreadable ones."""
        placed: list[_Placed] = []
        unreadable: list[tuple[ReadSchemaFile, str]] = []
        catalog = self.context.manager.catalog
        for read in poll.schema_files:
            try:
                placed.append((read.file.table_dir, self._definition(read)))
                # It was written again, and whole.
                catalog.unreadable.pop(read.file.stored.path, None)
            except TableError as fault:
                unreadable.append((read, str(fault)))
        # Before anything comes of them: from here on a file may vanish from the bucket, and its
        # statement still runs.
        self.context.state.history.keep(placed)
        # Of schema files that no listing shows, what was kept of them, where it is needed.
        vanished: list[_Placed] = []
        shown = {(read.file.version, read.file.table_dir) for read in poll.schema_files}
        for version, table_dir in sorted({file.version_key for file in poll.data_files} - shown):
            # Without its structure no data file of a directory can be decoded.
            if not catalog.has_structure((version, table_dir)):
                vanished += self._kept(table_dir, version)
        # Statements that did not run. Later rounds have them in their backlog; only the first one
        # after a start knows nothing but what is listed.
        if self.context.manager.is_new:
            shown |= {(definition.version, table_dir) for table_dir, definition in vanished}
            for table_dir, version in self.context.state.history.unresolved():
                if (version, table_dir) not in shown:
                    vanished += self._kept(table_dir, version)
        placed += vanished
        for read, error in unreadable:
            key = (read.file.version, read.file.table_dir)
            catalog.unreadable[read.file.stored.path] = key, error
            self.ledger.halt(catalog.owner(key).key, error, kind="schema")
        for warning in (warning for _, definition in placed for warning in definition.warnings):
            _log.warning("schema_warning", text=warning)
        return placed

    def _definition(self, read: ReadSchemaFile) -> TableDefinition:
        """Return a schema file's content, as kept if it vanished; raise why there is neither."""
        if isinstance(read.content, TableDefinition):
            return read.content
        if not isinstance(read.content, FilesMissing):
            raise read.content
        file, kept = (
            read.file,
            self.context.state.history.kept(read.file.table_dir, read.file.version),
        )
        # A version directory may have several schema files; this one's name says which counts.
        same = [definition for definition in kept if file.checksum in (None, definition.checksum)]
        if not same:
            raise read.content
        _log_vanished(same)
        if parsed(same[0]).is_astray:
            self.context.reader.set_apart(file)
        return same[0]

    def _kept(self, table_dir: str, version: int) -> list[_Placed]:
        """Return what was kept of the schema files of one version directory."""
        try:
            kept = self.context.state.history.kept(table_dir, version)
        except TableError as fault:
            _log.warning("schema_warning", text=str(fault))
            return []
        _log_vanished(kept)
        return [(table_dir, definition) for definition in kept]

    # tables

    def _pass_over(self) -> None:
        """Skip what the filter leaves out; halt tables whose target name is taken or reserved."""
        manager = self.context.manager
        if left_out := manager.left_out_files:
            self.ledger.skipped["object: data file of a table that the filter leaves out"] += (
                left_out
            )
        if skipped := manager.skipped_files:
            self.ledger.skipped["object: data file of a table that is skipped by an operator"] += (
                skipped
            )
        if left_out or skipped:
            self.context.reader.leave_out(manager.catalog.left_out_directories())
        for key, error in manager.refuse_places().items():
            # stored without a place, so that another route may be given
            self.ledger.halt(key, error, kind="name")

    def _let_go_of_dropped(self) -> None:
        """End halts of tables dropped while filtered out; not while the target has old rows."""
        manager = self.context.manager
        dropped = {
            t.key: v for t in manager.tables.values() if (v := dropped_unseen(t, manager.lifetimes))
        }
        routes = manager.selection.routes
        names = {key: routes.target(manager.tables[key].name) for key in dropped}
        there = self.context.target.existing(names.values()) if names else {}
        for key, version in dropped.items():
            table, place = manager.tables[key], names[key]
            if place.folded() not in there:
                table.hand_on(version, unseen=True)
                manager.touches.renew()
                self.ledger.save([table])
                continue
            # Rows that may be those of another table in the bucket are not for anybody to drop.
            others = (each for each in manager.tables.values() if each is not table)
            is_shared = any(routes.target(each.name).folded() == place.folded() for each in others)
            if not is_shared and not table.status.error.startswith(DROPPED_UNSEEN):
                error = f"{DROPPED_UNSEEN} {_MAY_BE_THERE.format(version, place, manager.catalog.command('skip', table.name))}"
                self.ledger.halt(key, error, kind="ddl")


def _log_vanished(kept: Sequence[TableDefinition]) -> None:
    for definition in kept:
        text = "the bucket has the file no more, or keeps it in an archive; its copy in the state schema is used instead"
        _log.warning("schema_warning", text=text, path=definition.path, version=definition.version)


def run_round(
    context: RoundContext, ledger: RoundLedger, *, take_last_ddl: bool, stable_checkpoint: int
) -> RoundSummary:
    """Apply what the storage checkpoint covers; raise only what stops the whole run.

    Return what was done.

    `take_last_ddl`: whether to run a DDL at exactly the storage checkpoint too, and to wait for the
    end of every statement. `stable_checkpoint`: a storage checkpoint that stood still for long
    enough to run a DDL at exactly that ts; -1 for none.
    """
    manager = context.manager
    _round_log.debug("round_started", number=ledger.number)
    # What the poll reads as the checkpoint was written before the listing began, so the listing has
    # all that it promises.
    with ledger.stage("poll"):
        poll = context.reader.poll()
        ledger.storage_checkpoint = checkpoint = max(poll.checkpoint, ledger.storage_checkpoint)
        ledger.refused_checkpoint = poll.refused_checkpoint
        late = Intake(context, ledger).take(poll)
    reach = ledger.reach
    context.progress.round_started(
        files=manager.pending_files,
        size=manager.pending_bytes,
        storage_checkpoint=checkpoint,
        statements=manager.backlog.upto(reach),
    )
    # Statements at exactly the checkpoint may still be missing from the bucket. One of them that
    # ran shows that all were stored.
    is_stable = (
        take_last_ddl
        or reach < checkpoint
        or checkpoint == stable_checkpoint
        or manager.backlog.is_half_done(reach)
    )
    rows = RowJobs(context, ledger)
    ddls = DdlScheduler(context, ledger, rows)
    ddls.apply_decisions(late)
    ledger.announce_halts()
    # Before the first wave: in the middle of a window it could push out rows that are newer.
    if context.retry_quarantined is not None:
        context.retry_quarantined(context, ddls.still_running())
    _apply(context, ledger, (rows, ddls), is_stable=is_stable, to_the_end=take_last_ddl)
    with ledger.stage("checkpoint"):
        ddls.store()
        reached = ledger.save_checkpoints()
        if manager.quarantined:
            manager.quarantined.replace(context.state.quarantine.entries())
    # After an early end nobody knows what could have gone on, so nothing is called stuck.
    stuck = {}
    if not ledger.ended_early:
        stuck = manager.stuck(reach, is_stable=reach < checkpoint) | ddls.still_running()
        # A statement at exactly that ts may still come, unless the storage checkpoint passed it.
        is_there = is_stable and not unreached(
            manager.tables, manager.touches.pending(), reach, stuck
        )
        ledger.reached_until = is_there and reach == context.config.limits.until
    summary = ledger.summary(reached, stuck)
    context.progress.round_finished(summary)
    return summary


def _apply(
    context: RoundContext,
    ledger: RoundLedger,
    work: tuple[RowJobs, DdlScheduler],
    *,
    is_stable: bool,
    to_the_end: bool,
) -> None:
    """Do wave after wave, until nothing more can be done, or the round ends early.

    `is_stable`: whether all DDL at exactly the end of the round's reach are stored; `to_the_end`:
    whether to wait for every statement, and to load all tables.
    """
    rows, ddls = work
    loads = (
        LoadJobs(context, ledger, context.loading, rows.fence)
        if context.loading is not None
        else None
    )
    has_loaded = False
    while ledger.should_continue():
        # What ended meanwhile moves its tables: the wave has to be planned from where they are now.
        with ledger.stage("ddl"):
            ddls.collect()
        with ledger.stage("plan"):
            wave = context.manager.next_wave(ledger.reach, is_stable=is_stable)
        # Asked only where something is left to do, since else the round just ends.
        if (wave or (loads is not None and loads.is_any_open)) and (limit := ledger.limit()):
            ledger.ended_early = limit
            break
        if not wave.rows:
            with ledger.stage("ddl"):
                went_on = ddls.run(wave.ddls, to_the_end=to_the_end)
            if went_on:
                continue
        copied = loads.steps() if loads is not None else []
        # Nothing started, nothing ended, and nothing is to be written: the rest waits for a file,
        # for time, or for an operator.
        if not (wave.rows or copied):
            break
        # The bucket is polled again before more parts are loaded, so that the other tables keep up.
        is_due = (
            context.clock.monotonic() - ledger.began >= context.config.tuning.flush_interval / 2
        )
        if is_due and has_loaded and not (wave.rows or to_the_end):
            ledger.goes_on = True
            break
        with ledger.stage("rows"):
            # Stored before a job that may fail: after a fault the tables are as they were stored.
            ddls.store()
            first = in_one_job(ledger.oldest_first(wave.rows), ledger.files_left)
            taken = ledger.paced(first)
            began = context.clock.monotonic()
            written = rows.write([*taken, *copied])
        if loads is not None:
            loads.note(copied, written, context.clock.monotonic() - began)
            has_loaded = has_loaded or bool(copied)
    if loads is not None:
        loads.end_written()
