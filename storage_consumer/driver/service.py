"""ConsumerService: the start, the lease, rounds until asked to stop, and retries of outages."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from storage_consumer.bucket.inspector import missing_metadata
from storage_consumer.bucket.metadata import refuse_ahead_of_clock
from storage_consumer.bucket.storage import METADATA_BYTES, Storage
from storage_consumer.clock import Clock, StopSignal, some_of
from storage_consumer.config.settings import Config, Tuning, Upstream
from storage_consumer.config.table_filter import table_rules
from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.driver.lease import Renewal, identity, process_is_gone, readable
from storage_consumer.driver.ledger import RoundContext, RoundLedger
from storage_consumer.driver.load_starts import LoadStarts, is_new_feed
from storage_consumer.driver.open_copies import LoadingState
from storage_consumer.driver.remedies import table_command
from storage_consumer.driver.round import run_round
from storage_consumer.errors import (
    ConfigError,
    ExportUnfinished,
    LeaseHeld,
    NoMetadata,
    StorageConsumerError,
    TransientError,
)
from storage_consumer.model import SkippedRows, TableName
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import LateFiles
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.selection import Selection
from storage_consumer.plan.steps import OF_SKIPPED
from storage_consumer.plan.touches import refuse_other_places
from storage_consumer.ports import State
from storage_consumer.summary import RoundSummary
from storage_consumer.telemetry import Log, tso_time, utc_time
from storage_consumer.tso import is_applied

_bucket_log = Log("beginning")
_PAUSE = 1.0
"""Seconds between two attempts to look at a bucket that does not answer."""
_log = Log("service")
_NO_COPY = (
    "the changefeed began at its start-ts {} ({}), so the bucket has no rows from before: if the source had any, the target needs a copy of "
    "its tables as of then or later: --dump, or `storage-consumer load`"
)
_BEGAN_WITHOUT = "{} has no effect: this feed has begun without a copy. `storage-consumer load` loads single tables into a running feed"
_TOO_LATE = (
    "--skip-commit-ts {}: it is too late to leave it out of {}, which the target may have with its rows. "
    "Compare with the source, and mend the rows that differ: `storage-consumer verify --repair`; or "
    "give the tables a copy: `storage-consumer load`"
)
_NAMED = 5
"""Most tables that a message names."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


def wait_for_metadata(
    upstream: Upstream,
    opened: Callable[[Upstream], Storage],
    tuning: Tuning,
    clock: Clock,
    stop: StopSignal,
    *,
    once: bool,
) -> bool:
    """Wait until the bucket has a ``metadata`` of any content; return False if asked to stop.

    Raises `NoMetadata` where `once` allows no second look, `ConfigError` as `Storage.check` does,
    and `TransientError` when the bucket does not answer within the limit.
    """
    storage, has_logged = opened(upstream), False
    answered = clock.monotonic()
    while not stop.requested.is_set():
        pause = tuning.flush_interval
        try:
            storage.check()
            with suppress(FileNotFoundError):
                storage.read("metadata", METADATA_BYTES)
                return True
            answered = clock.monotonic()
        except TransientError:
            # Only silence counts: a bucket that answers without `metadata` has no limit.
            if clock.monotonic() - answered >= tuning.retry_limit:
                raise
            # Not `flush_interval`, which may be long: a bucket that is only away for a moment
            # should not delay the start.
            pause = _PAUSE
        else:
            # Only the first time: to look for likely places costs listings.
            text = "" if has_logged else missing_metadata(upstream, opened)
            if once:
                raise NoMetadata(text)
            if not has_logged:
                _bucket_log.warning("checkpoint_missing", path="metadata", text=text)
                has_logged = True
        clock.wait(stop.requested, pause)
    return False


def manager_of(
    config: Config, restart: Restart, storage_checkpoint: int, now: float
) -> ConsumerManager:
    """Return the manager; raise `ConfigError` if these settings cannot continue the state.

    `storage_checkpoint` is the highest that any run has seen, `now` seconds since 1970-01-01 UTC by
    our clock.
    """
    # A checkpoint beyond any clock would make all rows look applied, so the start is refused.
    highest = max(storage_checkpoint, restart.checkpoint, *restart.tables.values())
    refuse_ahead_of_clock(highest, config.downstream.state_schema, now)
    selection = Selection.of(config.selecting, config.downstream.state_schema, restart.skipped)
    refuse_other_places(restart, selection.routes)
    return ConsumerManager(
        restart,
        config.tuning.gap_timeout,
        tells_time=config.upstream.tells_time,
        selection=selection,
        command=lambda verb, name: table_command(verb, name, config.downstream),
        makes_bare=config.loading.no_copy,
    )


class ConsumerService:
    """Runs rounds against one target state, as its only writer.

    It can afford to lose what it holds in memory: after a fault it starts over from the state in
    the target.
    """

    def __init__(
        self,
        config: Config,
        state: State,
        assemble: Callable[[ConsumerManager], RoundContext],
        clock: Clock,
        look_at_copy: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare without touching the target; `assemble`: makes what a round uses of a manager.

        `look_at_copy` raises where the copy that a new feed begins with cannot be used: before
        `assemble`, which takes long.
        """
        self._config = config
        self._state = state
        self._assemble = assemble
        self._look_at_copy = look_at_copy
        self._clock = clock
        self._me = identity(clock.now())
        self._context: RoundContext | None = None
        self._ddl_workers: DdlWorkers | None = None
        self._storage_floor = 0
        self._renewal: Renewal | None = None
        self._late = LateFiles()
        self._rose_at = 0.0
        self._last_seen = -1
        self._steps = 0
        """Number of steps that took effect in all rounds."""
        self._goes_on = False
        """Whether the next round begins at once: a load has ended in the last one, or goes on."""
        self._touched: frozenset[str] = frozenset()
        """Tables that running statements touched when what was known of tables was forgotten."""
        self._waits_for = ""
        """Why the copy of a new feed cannot be loaded yet, as it was logged."""
        self._loading: LoadingState | None = None
        """What was known of loads when all else was forgotten."""
        self._rounds = 0
        """Number of rounds that were begun."""

    # the lease

    @property
    def is_writer(self) -> bool:
        """Whether this process has the lease, as far as known; one renewed too late is nobody's."""
        # Read once: it is asked for from other threads, and the lease may be given up meanwhile.
        renewal = self._renewal
        return renewal is not None and not (renewal.lost.is_set() or renewal.has_run_out)

    def _hold_lease(self, stop: StopSignal, *, once: bool) -> Renewal | None:
        """Acquire the lease unless it is ours; return None when asked to stop while standing by.

        Raises `LeaseHeld` if not to stand by, once the lease would have expired had its holder
        died.
        """
        if self._renewal is not None:
            return self._renewal
        tuning, me, lease = self._config.tuning, self._me, self._state.lease
        # Before the lease, whose table this may create; it also refuses another bucket's state.
        self._state.open(self._config.upstream.identity)
        # A single round could wait forever for another process; a service is there to take over.
        standby = not once if tuning.standby is None else tuning.standby
        # If the holder has the same --lease-ttl and died, its lease runs out in this time: whoever
        # still has it then renews it.
        deadline = self._clock.monotonic() + tuning.lease_ttl + 5
        former = ""
        while not stop.requested.is_set():
            waited_for, other = former, lease.acquire(me, tuning.lease_ttl)
            former = other or former
            # A process that is gone cannot renew: no need to wait for its lease to expire.
            if other and process_is_gone(other):
                # Only that holder's lease counts as free here: if a third process has taken it by
                # now, that one prevents us.
                other = lease.acquire(me, tuning.lease_ttl, dead=other)
            if not other:
                break
            if not standby and self._clock.monotonic() > deadline:
                message = f"another process writes to this target: {readable(other)}. Stop it first, or wait for its end with --standby"
                raise LeaseHeld(message)
            if not waited_for:
                _log.warning("lease_waiting", holder=readable(other))
            self._clock.wait(stop.requested, 1.0)
        else:
            return None
        fields = {"former": readable(former)} if former else {}
        _log.info("lease_acquired", holder=readable(me), epoch=lease.epoch, **fields)
        try:
            # Whoever wrote meanwhile may have begun with another bucket, or rebound the state.
            self._state.open(self._config.upstream.identity)
        except BaseException:
            with suppress(StorageConsumerError):  # else a standby would wait for its end
                lease.release()
            raise
        self._renewal, self._late = Renewal(lease, tuning.lease_ttl, self._clock), LateFiles()
        return self._renewal

    def close(self) -> None:
        """Release the lease and close connections; safe to call again."""
        self._drop()
        if self._renewal is not None:
            self._renewal.stop()
            self._renewal = None
            with suppress(StorageConsumerError):  # the fault itself was logged
                self._state.lease.release()
        self._state.close()

    # the state

    def _load(self) -> RoundContext:
        """Load the state that earlier runs left, and return what the next rounds work with."""
        context, restart = self._read()
        if self._begin_loads(context, restart):
            # What is stored of the tables that are loaded has changed.
            self._drop()
            context, restart = self._read()
        if context.loading is not None:
            context.loading.loads |= {
                key: load for key, load in restart.loads.items() if load.phase == LoadPhase.LOADING
            }
        context.reader.resume(
            self._storage_floor,
            restart.done,
            self._state.history.known_versions(),
            applied=restart.lowest,
        )
        return context

    def _begin_loads(self, context: RoundContext, restart: Restart) -> bool:
        """Begin loads of a new feed or by request; end those of tables that were left out.

        Return whether any began or ended.
        """
        is_new, given = is_new_feed(restart, self._storage_floor), self._config.loading
        if is_new and given.start_ts and not given.dump:
            _log.warning("notice", text=_NO_COPY.format(given.start_ts, tso_time(given.start_ts)))
        if given.dump and not (is_new or restart.floor):
            # With --source the place of the export may be one that nobody gave.
            is_made = context.loading is not None and context.loading.make_copy is not None
            _log.warning(
                "notice",
                text=_BEGAN_WITHOUT.format("--source" if is_made else f"--dump {given.dump}"),
            )
        if context.loading is None:
            return False
        starts = LoadStarts(context, context.loading)
        if is_new and given.dump:
            # Before an export is made: what the changefeed has written shows that it began earlier.
            seen = context.reader.checkpoint_now()
            uri = (
                given.dump
                if context.loading.make_copy is None
                else starts.made(context.loading.make_copy, seen)
            )
            starts.begin_feed(uri, seen, by=readable(self._me))
            return True
        ended = starts.end_left_out(restart)
        # What was just read has no names yet to show a table that a running statement touches.
        began = starts.begin_requested(
            restart, self._touched if context.ddl_workers.running else ()
        )
        return ended or began

    def _read(self) -> tuple[RoundContext, Restart]:
        """Read the state, and return what the next rounds work with, and what was read."""
        # Late tasks of earlier owners or rounds may have written until now; no longer.
        self._state.lease.open_window(0, 0)
        # While statements run, decisions wait for a round, which knows what those statements touch.
        if self._ddl_workers is None or not self._ddl_workers.running:
            self._apply_decisions()
        restart, self._storage_floor = self._state.progress.load()
        # What is read anew later was written by this very process.
        until, checkpoint, seen = self._config.limits.until, restart.checkpoint, self._storage_floor
        if not self._rounds and 0 < until < max(checkpoint, seen):
            text = (
                f"the target is at {checkpoint} ({tso_time(checkpoint)}) already, beyond --until {until} ({tso_time(until)}): only "
                "tables that are behind can go on to there"
                if until < checkpoint
                else f"an earlier run saw the bucket's checkpoint {seen} ({tso_time(seen)}). If it was interrupted while it wrote rows, "
                f"tables may hold some from after --until {until} ({tso_time(until)}), until a run goes on to that checkpoint"
            )
            _log.warning("notice", text=text)
        manager = manager_of(self._config, restart, self._storage_floor, self._clock.now())
        manager.catalog.late = self._late
        if not self._rounds:
            self._begin_to_skip(restart)
        # After the window was opened, so that no late task adds to it.
        manager.quarantined.replace(self._state.quarantine.entries())
        if self._config.loading.dump and is_new_feed(restart, self._storage_floor):
            self._look_at_copy()
        context = self._assemble(manager)
        if context.loading is not None:
            context.loading.follow(self._loading)
        self._context, self._ddl_workers = context, context.ddl_workers
        return context, restart

    def _begin_to_skip(self, restart: Restart) -> None:
        """Note which transactions are left out; refuse one whose rows all tables have already."""
        given = self._config.upstream.skip_commit_ts
        noted = (each for each in restart.journalled if each.table_dir.startswith(OF_SKIPPED))
        known = {each.version for each in noted}
        for rule, ts in given:
            rules = table_rules((rule or "*.*",))
            late, in_time = list[str](), 0
            for key, (name, _) in restart.targets.items():
                own = restart.tables.get(key, 0)
                reached = own if key in restart.behind else max(own, restart.checkpoint)
                # A job that was killed may have written rows from beyond the checkpoint.
                upto = max(reached, restart.written.get(key, 0), restart.written.get("", 0))
                if rules.matches(name.schema, name.table):
                    late += [str(name)] if is_applied(ts, upto) else []
                    in_time += not is_applied(ts, upto)
            if is_applied(ts, restart.floor) or (
                ts not in known and not in_time and (late or is_applied(ts, restart.checkpoint))
            ):
                raise ConfigError(_TOO_LATE.format(ts, some_of(late, _NAMED) or "every table"))
            if late and ts not in known:
                _log.warning("notice", text=_TOO_LATE.format(ts, some_of(late, _NAMED)))
        if given or known:
            nobody = TableName(schema="", table="")
            now = [SkippedRows(nobody, ts, 0) for _, ts in given]
            self._state.progress.skip(now, anew=True)

    def _apply_decisions(self) -> bool:
        """Apply operators' decisions about tables to the state; return whether any took effect."""
        found = self._state.decisions.apply_to_tables(
            self._busy(), tells_time=self._config.upstream.tells_time
        )
        for each in found:
            fields = {
                "table": each.table,
                "verb": each.decision.verb,
                "decided_by": each.decision.decided_by,
            }
            if each.refusal:
                _log.error("decision_refused", **fields, error=each.refusal)
            else:
                copied = {"checkpoint": each.decision.at} if each.decision.at else {}
                _log.info("decision_obeyed", **fields, **copied)
        return any(not each.refusal for each in found)

    def _busy(self) -> frozenset[str]:
        """Return tables that a running statement touches: it would change an operator's copy."""
        if self._context is None:
            return frozenset()
        manager = self._context.manager
        return frozenset[str]().union(
            *(manager.touches.of(step.origin) for step, _ in self._context.ddl_workers.running)
        )

    def _drop(self) -> None:
        """Forget everything but the lease."""
        if self._context is not None:
            if not self._context.manager.is_new:
                self._touched = self._busy()
            self._context.target.close()
            self._loading = self._context.loading
        self._context = None

    # rounds

    def run_once(self, stop: StopSignal) -> RoundSummary:
        """Run a round up to the storage checkpoint, DDL at exactly that ts included; sum it up."""
        summary = RoundSummary()
        loading = self._context.loading if self._context is not None else self._loading
        if loading is not None:
            loading.refused.clear()
        self._goes_on = True
        while self._goes_on and not stop.requested.is_set():
            last = self._persistently(lambda: self._round(stop, once=True), stop)
            summary = last.following(summary) if last is not None else summary
        if summary.loading and stop.requested.is_set() and not summary.ended_early:
            # The signal came between two rounds.
            summary = replace(summary, ended_early="asked")
        until = self._config.limits.until
        if summary.storage_checkpoint < until and not summary.ended_early:
            text = (
                f"--until {until} ({tso_time(until)}) is not reached: the bucket's checkpoint is only {summary.storage_checkpoint} "
                f"({tso_time(summary.storage_checkpoint)}). Run it again later, or without --once"
            )
            _log.warning("notice", text=text)
        return summary

    def run(self, stop: StopSignal) -> RoundSummary:
        """Run rounds until `stop`, or until a limit is reached; return the last one's summary.

        Stands by while another process holds the lease.
        """
        last = RoundSummary()
        while not stop.requested.is_set():
            last = self._persistently(lambda: self._round(stop, once=False), stop) or last
            if last.reached_until:
                break
            if not self._goes_on:
                self._clock.wait(stop.requested, self._config.tuning.flush_interval)
        return last

    def _round(self, stop: StopSignal, *, once: bool) -> RoundSummary | None:
        """Run a round; return None if asked to stop before it, or without its copy yet."""
        self._goes_on = False
        # A decision changes what is stored, so what is in memory is out of date.
        if (context := self._context) is not None:
            decided, has_requests = self._state.decisions.waiting()
            if (decided and self._apply_decisions()) or (
                has_requests
                and context.loading is not None
                and LoadStarts(context, context.loading).is_any_ready(self._busy())
            ):
                self._drop()
        renewal = self._hold_lease(stop, once=once)
        if renewal is None:
            return None
        try:
            context = self._context or self._load()
        except ExportUnfinished as fault:
            if once:
                raise
            self._drop()
            # Only once: the next round asks again.
            if self._waits_for != str(fault):
                _log.warning("export_waiting", text=str(fault))
            self._waits_for = str(fault)
            return None
        self._rounds += 1
        ledger = RoundLedger(
            context=context,
            stop=stop,
            renewal=renewal,
            number=self._rounds,
            storage_checkpoint=self._storage_floor,
        )
        # Not the wall clock, which may jump.
        waited = self._clock.monotonic() - self._rose_at
        stable = self._last_seen if waited >= self._config.tuning.ddl_at_checkpoint_wait else -1
        try:
            summary = run_round(context, ledger, take_last_ddl=once, stable_checkpoint=stable)
        finally:
            # Also after a fault: each step that took effect restarts the limit for retries.
            self._steps += ledger.steps
        if summary.storage_checkpoint > self._last_seen:
            self._last_seen, self._rose_at = summary.storage_checkpoint, self._clock.monotonic()
        self._storage_floor = max(self._storage_floor, summary.storage_checkpoint)
        self._goes_on = ledger.goes_on
        if context.loading is not None and context.loading.ended:
            # How their tables go on, from where their copies end, is in what is stored of them; the
            # next round reads it.
            self._goes_on = True
            self._drop()
        if once:
            refused = (
                sorted(map(str, context.loading.refused)) if context.loading is not None else ()
            )
            requested = tuple(str(load.name) for load in self._state.loads.requested())
            summary = replace(
                summary, loading=(*summary.loading, *requested), refused_loads=tuple(refused)
            )
        if summary.reached_until:
            _log.info(
                "until_reached",
                checkpoint=summary.checkpoint,
                storage_checkpoint=summary.storage_checkpoint,
            )
        return summary

    def _persistently(
        self, attempt: Callable[[], RoundSummary | None], stop: StopSignal
    ) -> RoundSummary | None:
        """Retry with growing pauses while something outside does not answer, up to the limit.

        Raises `ConfigError` only while nothing was applied; later the same fault is a failure of a
        running program. The limit counts from the first fault after the last finished step: a long
        round may meet many.
        """
        failing_since: float | None = None
        since = 0.0
        pause = _FIRST_PAUSE
        while True:
            steps = self._steps
            try:
                return attempt()
            except ConfigError as fault:
                # Whoever asks for another round gets the same answer: what was read so far would
                # begin the feed without its copy.
                self._drop()
                if not self._steps:
                    raise
                # It was right before: credentials may have been revoked since.
                raise StorageConsumerError(str(fault)) from fault
            except TransientError as fault:
                self._drop()
                now = self._clock.monotonic()
                # Something took effect since the last fault, so what is outside answers now and
                # then: start counting again.
                if failing_since is None or self._steps > steps:
                    failing_since, since, pause = now, self._clock.now(), _FIRST_PAUSE
                if now - failing_since > self._config.tuning.retry_limit or stop.requested.is_set():
                    raise
                _log.warning(
                    "retry",
                    what="round",
                    since=utc_time(since),
                    wait=round(pause, 1),
                    error=str(fault),
                )
            except BaseException:
                # Such as Ctrl-C in a notebook: whoever asks again begins with what is stored.
                self._drop()
                raise
            # Partly random, so that consumers do not return to one server at the same instant.
            self._clock.wait(stop.requested, pause * random.uniform(0.7, 1.0))  # noqa: S311 - not for secrets
            pause = min(_LONGEST_PAUSE, pause * 2)
