"""One round: poll, take in what is new, then wave after wave of rows and DDL until nothing more can be done."""

from __future__ import annotations

from storage_consumer.driver.context import RoundContext
from storage_consumer.driver.ddl_schedule import DdlScheduler
from storage_consumer.driver.intake import Intake
from storage_consumer.driver.ledger import RoundLedger
from storage_consumer.driver.loading import LoadJobs
from storage_consumer.driver.row_jobs import RowJobs
from storage_consumer.plan.planner import unreached
from storage_consumer.plan.steps import in_one_job
from storage_consumer.summary import RoundSummary
from storage_consumer.telemetry import Log

_log = Log("round")


def run_round(
    context: RoundContext, ledger: RoundLedger, *, take_last_ddl: bool, stable_checkpoint: int
) -> RoundSummary:
    """Apply what the storage checkpoint covers, and return what was done. Raises only what stops the whole run.

    `take_last_ddl`: whether to run a DDL at exactly the storage checkpoint too, and to wait for the end of every statement.
    `stable_checkpoint`: a storage checkpoint that stood still for long enough to run a DDL at exactly that ts; -1 for none.
    """
    manager = context.manager
    _log.debug("round_started", number=ledger.number)
    # What the poll reads as the checkpoint was written before the listing began, so the listing has all that it promises.
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
    # Statements at exactly the checkpoint may still be missing from the bucket. One of them that ran shows that all were stored.
    is_stable = (
        take_last_ddl or reach < checkpoint or checkpoint == stable_checkpoint or manager.backlog.is_half_done(reach)
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
        # A statement at exactly that ts may still come, unless the storage checkpoint has passed it.
        is_there = is_stable and not unreached(manager.tables, manager.touches.pending(), reach, stuck)
        ledger.reached_until = is_there and reach == context.config.limits.until
    summary = ledger.summary(reached, stuck)
    context.progress.round_finished(summary)
    return summary


def _apply(
    context: RoundContext, ledger: RoundLedger, work: tuple[RowJobs, DdlScheduler], *, is_stable: bool, to_the_end: bool
) -> None:
    """Do wave after wave, until nothing more can be done, or the round ends early.

    `is_stable`: whether all DDL at exactly the end of the round's reach are stored; `to_the_end`: whether to wait for every statement,
    and to load all tables.
    """
    rows, ddls = work
    loads = LoadJobs(context, ledger, context.loading, rows.fence) if context.loading is not None else None
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
        # Nothing started, nothing ended, and nothing is to be written: the rest waits for a file, for time, or for an operator.
        if not (wave.rows or copied):
            break
        # The bucket is polled again before more parts are loaded, so that the other tables keep up.
        is_due = context.clock.monotonic() - ledger.began >= context.config.tuning.flush_interval / 2
        if is_due and has_loaded and not (wave.rows or to_the_end):
            ledger.goes_on = True
            break
        with ledger.stage("rows"):
            # Stored before a job that may fail: after a fault the tables are as they were stored.
            ddls.store()
            taken = in_one_job(ledger.oldest_first(wave.rows), ledger.files_left) if wave.rows else ()
            began = context.clock.monotonic()
            written = rows.write([*taken, *copied])
        if loads is not None:
            loads.note(copied, written, context.clock.monotonic() - began)
            has_loaded = has_loaded or bool(copied)
    if loads is not None:
        loads.end_written()
