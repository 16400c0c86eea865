"""ConsumerService: the lease, rounds until asked to stop, and retries when something outside did not answer."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from storage_consumer.clock import Clock
from storage_consumer.config.settings import Config
from storage_consumer.driver.context import RoundContext
from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.driver.lease_holder import identity, process_is_gone, readable
from storage_consumer.driver.remedies import table_command
from storage_consumer.driver.round import Round
from storage_consumer.errors import ConfigError, LeaseHeld, LeaseLost, StorageConsumerError, TransientError
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.selection import Selection
from storage_consumer.plan.shared_names import refuse_other_places
from storage_consumer.poll.same_feed import refuse_ahead_of_clock
from storage_consumer.ports import State
from storage_consumer.summary import RoundSummary
from storage_consumer.telemetry import Log

_log = Log("service")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class StopSignal(Protocol):
    """Whether the program should end; see signals.py."""

    requested: threading.Event


class ConsumerService:
    """Runs rounds against one target state, as its only writer.

    It can afford to lose what it holds in memory: after a fault it starts over from the state in the target.
    """

    def __init__(
        self, config: Config, state: State, assemble: Callable[[ConsumerManager], RoundContext], clock: Clock
    ) -> None:
        """Prepare without touching the target; `assemble` builds new parts around a manager."""
        self._config = config
        self._state = state
        self._assemble = assemble
        self._clock = clock
        self._me = identity(clock.now())
        self._parts: RoundContext | None = None
        self._lanes: DdlWorkers | None = None
        self._storage_floor = 0
        self._renewal: Renewal | None = None
        self._rose_at = 0.0
        self._last_seen = -1
        self._steps = 0

    # the lease

    def _start(self, stop: StopSignal, *, once: bool) -> RoundContext | None:
        """Acquire the lease and load the state; return None when asked to stop while standing by. Raises `LeaseHeld` if not to stand by."""
        if self._parts is not None:
            return self._parts
        tuning = self._config.tuning
        if self._renewal is None:
            self._state.open(self._config.upstream.identity)
            standby = not once if tuning.standby is None else tuning.standby
            if not self._acquire(stop, standby=standby):
                return None
            self._renewal = Renewal(self._state, tuning.lease_ttl, self._clock)
        # Late tasks of an earlier owner or round may have written until now; from here on they can't.
        self._state.open_window(0, 0)
        # While statements run, decisions wait for a round, which knows what those statements touch.
        if self._lanes is None or not self._lanes.running:
            self._obey()
        restart, self._storage_floor = self._state.load()
        highest = max(self._storage_floor, restart.checkpoint, *restart.tables.values())
        refuse_ahead_of_clock(highest, self._config.downstream.state_schema, self._clock.now())
        timed = self._config.upstream.tells_time
        selection = Selection.of(self._config.selecting, self._config.downstream.state_schema)
        refuse_other_places(restart, selection.routes)
        manager = ConsumerManager(
            restart,
            tuning.gap_timeout,
            timed=timed,
            selection=selection,
            command=lambda verb, name: table_command(verb, name, self._config.downstream),
        )
        self._parts = self._assemble(manager)
        self._lanes = self._parts.lanes
        self._parts.reader.resume(self._storage_floor, restart.done, self._state.known_versions())
        return self._parts

    def _acquire(self, stop: StopSignal, *, standby: bool) -> bool:
        """Wait for the lease: as long as it takes (`standby`), or until it would have expired had its holder died."""
        ttl, me = self._config.tuning.lease_ttl, self._me
        deadline = self._clock.monotonic() + ttl + 5
        told = False
        while not stop.requested.is_set():
            other = self._state.acquire(me, ttl)
            # A process that is gone cannot renew, so there is no need to wait for its lease to expire.
            if other and process_is_gone(other):
                other = self._state.acquire(me, ttl, dead=other)
            if not other:
                _log.info("lease_acquired", holder=readable(me), epoch=self._state.epoch)
                return True
            if not standby and self._clock.monotonic() > deadline:
                message = f"another process writes to this target: {readable(other)}. Stop it first, or wait for its end with --standby"
                raise LeaseHeld(message)
            if not told:
                _log.warning("lease_waiting", holder=readable(other))
                told = True
            self._clock.wait(stop.requested, 1.0)
        return False

    def _obey(self) -> bool:
        """Apply operators' decisions about tables to what is stored; return whether any took effect."""
        found = self._state.apply_decisions(self._busy(), timed=self._config.upstream.tells_time)
        for each in found:
            told = {"table": each.table, "verb": each.decision.verb, "decided_by": each.decision.decided_by}
            if each.refusal:
                _log.error("decision_refused", **told, error=each.refusal)
            else:
                _log.info("decision_obeyed", **told, checkpoint=each.decision.at)
        return any(not each.refusal for each in found)

    def _busy(self) -> frozenset[str]:
        """Return the tables that a running statement touches: it would change an operator's copy."""
        if self._parts is None:
            return frozenset()
        manager = self._parts.manager
        return frozenset[str]().union(*(manager.touched(step.origin) for step, _ in self._parts.lanes.running))

    def _drop(self) -> None:
        """Forget everything but the lease."""
        if self._parts is not None:
            self._parts.target.close()
        self._parts = None

    def close(self) -> None:
        """Release the lease and close connections; safe to call again."""
        self._drop()
        if self._renewal is not None:
            self._renewal.stop()
            self._renewal = None
            with suppress(StorageConsumerError):  # the fault itself was logged
                self._state.release()
        self._state.close()

    # rounds

    def run_once(self, stop: StopSignal) -> RoundSummary:
        """Run one round up to the storage checkpoint, including the DDL at exactly that ts; return its summary."""
        summary = self._persistently(lambda: self._round(stop, once=True), stop)
        return summary or RoundSummary()

    def run(self, stop: StopSignal) -> RoundSummary:
        """Run rounds until `stop`; return the last one's summary. Stands by while another process holds the lease."""
        last = RoundSummary()
        while not stop.requested.is_set():
            last = self._persistently(lambda: self._round(stop, once=False), stop) or last
            self._clock.wait(stop.requested, self._config.tuning.flush_interval)
        return last

    def _round(self, stop: StopSignal, *, once: bool) -> RoundSummary | None:
        """Run one round; return None when asked to stop before it began."""
        if self._parts is not None and self._obey():
            self._drop()
        parts = self._start(stop, once=once)
        if parts is None:
            return None
        current = Round(
            parts=parts,
            storage_floor=self._storage_floor,
            take_last_ddl=once,
            settled_at=self._last_seen if self._has_settled() else -1,
            should_continue=lambda: self._keep_on(stop),
            step_done=self._step_done,
        )
        summary = current.run()
        if summary.storage_checkpoint > self._last_seen:
            self._last_seen, self._rose_at = summary.storage_checkpoint, self._clock.monotonic()
        self._storage_floor = max(self._storage_floor, summary.storage_checkpoint)
        return summary

    def _has_settled(self) -> bool:
        """Return whether the storage checkpoint was unchanged long enough for a DDL at exactly that ts."""
        waited = self._clock.monotonic() - self._rose_at
        return self._last_seen >= 0 and waited >= self._config.tuning.ddl_at_checkpoint_wait

    def _keep_on(self, stop: StopSignal) -> bool:
        """Return whether the round's next step may start. Raises `LeaseLost` if another process has the lease."""
        if self._renewal is not None and self._renewal.fault is not None:
            raise self._renewal.fault
        if self._renewal is not None and self._renewal.lost.is_set():
            message = (
                "the lease was lost to another process: this one was paused, or could not reach the target, for longer than "
                "--lease-ttl"
            )
            raise LeaseLost(message)
        return not stop.requested.is_set()

    def _step_done(self) -> None:
        """Note that rows or a statement took effect and are stored as done."""
        self._steps += 1

    def _persistently(self, attempt: Callable[[], RoundSummary | None], stop: StopSignal) -> RoundSummary | None:
        """Retry with growing pauses while something outside does not answer, up to the limit.

        Raises `ConfigError` only while nothing was applied; later the same fault is a failure of a running program.
        The limit counts from the first fault after the last finished step: a long round may meet many.
        """
        failing_since: float | None = None
        pause = _FIRST_PAUSE
        while True:
            steps = self._steps
            try:
                return attempt()
            except ConfigError as fault:
                if not self._steps:
                    raise
                # It was right before: credentials may have been revoked since.
                raise StorageConsumerError(str(fault)) from fault
            except TransientError as fault:
                self._drop()
                now = self._clock.monotonic()
                if failing_since is None or self._steps > steps:
                    failing_since, pause = now, _FIRST_PAUSE
                if now - failing_since > self._config.tuning.retry_limit or stop.requested.is_set():
                    raise
                _log.warning("retry", what="round", wait=round(pause, 1), error=str(fault))
            self._clock.wait(stop.requested, pause * random.uniform(0.7, 1.0))  # noqa: S311 - not for secrets
            pause = min(_LONGEST_PAUSE, pause * 2)


class Renewal:
    """Renews the lease from its own thread, so that a long step does not lose it."""

    def __init__(self, state: State, ttl: float, clock: Clock) -> None:
        """Start the thread. `ttl`: seconds for which the lease was just acquired."""
        self.lost = threading.Event()
        self.fault: StorageConsumerError | None = None
        """Why the lease could not be renewed, if another process does not have it."""
        self._state = state
        self._ttl = ttl
        self._clock = clock
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-renewal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Renew three times per time to live, until another process has the lease.

        A target that does not answer for longer than that takes nothing from us. While nobody else takes the lease, it can be
        renewed when the target is back; if somebody does, the epoch keeps us from writing.
        """
        try:
            while not self._clock.wait(self._end, self._ttl / 3):
                if not self._renewed():
                    self.lost.set()
                    return
        # Nobody renews without this thread, so the round must not continue.
        except BaseException:
            self.lost.set()
            raise

    def _renewed(self) -> bool:
        """Renew the lease; return False if another process has it, or the renewal failed for good."""
        try:
            return self._state.renew(self._ttl)
        except TransientError as fault:
            _log.warning("retry", what="lease renewal", error=str(fault))
            return True
        except StorageConsumerError as fault:
            self.fault = fault  # the round's own thread raises it
            return False

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join(timeout=self._ttl)
