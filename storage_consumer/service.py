"""ConsumerService: the lease, rounds until told to stop, and another try when something outside did not answer."""

from __future__ import annotations

import os
import random
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from storage_consumer.clock import Clock
from storage_consumer.config.settings import Config
from storage_consumer.consumers.manager import ConsumerManager
from storage_consumer.consumers.selected import refuse_other_places
from storage_consumer.errors import ConfigError, LeaseLost, StorageConsumerError, TransientError
from storage_consumer.parts import Parts
from storage_consumer.planning.selection import Selection
from storage_consumer.ports import State
from storage_consumer.round import Round
from storage_consumer.summary import RoundSummary
from storage_consumer.telemetry import Log

_log = Log("service")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class StopSignal(Protocol):
    """Whether the program should end; see signals.py."""

    requested: threading.Event


class ConsumerService:
    """Runs rounds against one target state, as its only writer.

    What it knows it can lose at any time: after a fault it starts over from the state in the target.
    """

    def __init__(
        self, config: Config, state: State, assemble: Callable[[ConsumerManager], Parts], clock: Clock
    ) -> None:
        """`assemble` makes all parts afresh around a manager."""
        self._config = config
        self._state = state
        self._assemble = assemble
        self._clock = clock
        self._me = identity()
        self._parts: Parts | None = None
        self._storage_floor = 0
        self._renewal: Renewal | None = None
        self._rose_at = 0.0
        self._last_seen = -1
        self._steps = 0

    # the lease

    def _start(self, stop: StopSignal, *, once: bool) -> Parts | None:
        """Get the lease and load the state; None when told to stop while standing by. Raises `LeaseLost` where it is not to."""
        if self._parts is not None:
            return self._parts
        tuning = self._config.tuning
        if self._renewal is None:
            self._state.open(self._config.upstream.identity)
            standby = not once if tuning.standby is None else tuning.standby
            if not self._acquire(stop, standby=standby):
                return None
            self._renewal = Renewal(self._state, tuning.lease_ttl, self._clock)
        self._state.open_window(0, 0)  # what late tasks of an earlier owner or round wrote is done, nothing more comes
        restart, self._storage_floor = self._state.load()
        timed = self._config.upstream.tells_time
        selection = Selection.of(self._config.selecting)
        refuse_other_places(restart, selection.routes)
        self._parts = self._assemble(ConsumerManager(restart, tuning.gap_timeout, timed=timed, selection=selection))
        self._parts.reader.resume(self._storage_floor, {name: done.upto for name, done in restart.done.items()})
        return self._parts

    def _acquire(self, stop: StopSignal, *, standby: bool) -> bool:
        """Wait for the lease: as long as it takes, or until it would have run out had its holder died."""
        ttl, me = self._config.tuning.lease_ttl, self._me
        deadline = self._clock.monotonic() + ttl + 5
        told = False
        while not stop.requested.is_set():
            other = self._state.acquire(me, ttl)
            if other and process_is_gone(other):
                other = self._state.acquire(me, ttl, dead=other)
            if not other:
                _log.info("lease_acquired", holder=me, epoch=self._state.epoch)
                return True
            if not standby and self._clock.monotonic() > deadline:
                message = f"{other} holds the lease on this target state; stop it first, or use another --state-schema"
                raise LeaseLost(message)
            if not told:
                _log.warning("lease_waiting", holder=other)
                told = True
            self._clock.wait(stop.requested, 1.0)
        return False

    def _drop(self) -> None:
        """Forget everything but the lease."""
        if self._parts is not None:
            self._parts.target.close()
        self._parts = None

    def close(self) -> None:
        """Give the lease back and close connections; safe to call again."""
        self._drop()
        if self._renewal is not None:
            self._renewal.stop()
            self._renewal = None
            with suppress(TransientError, LeaseLost):
                self._state.release()
        self._state.close()

    # rounds

    def run_once(self, stop: StopSignal) -> RoundSummary:
        """One round up to the storage checkpoint, the DDL at exactly that ts included."""
        summary = self._persistently(lambda: self._round(stop, once=True), stop)
        return summary or RoundSummary()

    def run(self, stop: StopSignal) -> RoundSummary:
        """Rounds until `stop`; the last one's summary. Stands by while another process holds the lease."""
        last = RoundSummary()
        while not stop.requested.is_set():
            last = self._persistently(lambda: self._round(stop, once=False), stop) or last
            self._clock.wait(stop.requested, self._config.tuning.flush_interval)
        return last

    def _round(self, stop: StopSignal, *, once: bool) -> RoundSummary | None:
        """One round; None when told to stop before it began."""
        parts = self._start(stop, once=once)
        if parts is None:
            return None
        current = Round(
            parts=parts,
            storage_floor=self._storage_floor,
            take_last_ddl=once,
            settled_at=self._last_seen if self._has_settled() else -1,
            keep_on=lambda: self._keep_on(stop),
            step_done=self._step_done,
        )
        summary = current.run()
        if summary.storage_checkpoint > self._last_seen:
            self._last_seen, self._rose_at = summary.storage_checkpoint, self._clock.monotonic()
        self._storage_floor = max(self._storage_floor, summary.storage_checkpoint)
        return summary

    def _has_settled(self) -> bool:
        """Whether the storage checkpoint has stood still long enough for a DDL at exactly that ts."""
        waited = self._clock.monotonic() - self._rose_at
        return self._last_seen >= 0 and waited >= self._config.tuning.ddl_at_checkpoint_wait

    def _keep_on(self, stop: StopSignal) -> bool:
        """Whether the round's next step may begin."""
        if self._renewal is not None and self._renewal.lost.is_set():
            message = (
                "the lease was lost to another process: this one was paused, or could not reach the target, for longer than "
                "--lease-ttl"
            )
            raise LeaseLost(message)
        return not stop.requested.is_set()

    def _step_done(self) -> None:
        """Rows or a statement took effect and are stored as done."""
        self._steps += 1

    def _persistently(self, attempt: Callable[[], RoundSummary | None], stop: StopSignal) -> RoundSummary | None:
        """Try again with growing pauses while something outside does not answer, up to the limit.

        Raises `ConfigError` only while nothing was applied; what turns out to be wrong later is another failure of a running program.
        The limit counts from the first fault after the last step that was finished: a long round may meet many.
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
                raise StorageConsumerError(str(fault)) from fault  # it was good: credentials that were taken back, say
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
    """Renews the lease from a thread of its own, so that a long step does not lose it."""

    def __init__(self, state: State, ttl: float, clock: Clock) -> None:
        """`ttl` in seconds; the lease was just acquired for so long."""
        self.lost = threading.Event()
        self._state = state
        self._ttl = ttl
        self._clock = clock
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-renewal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Renew three times per time to live, until the lease is another's.

        A target that does not answer for longer than that takes nothing from us: while nobody else takes the lease, it can be
        renewed when the target is back; and where somebody does, the epoch keeps us from writing.
        """
        try:
            while not self._clock.wait(self._end, self._ttl / 3):
                if not self._renewed():
                    self.lost.set()
                    return
        except BaseException:
            self.lost.set()
            raise

    def _renewed(self) -> bool:
        """Whether the lease is not known to be another's."""
        try:
            return self._state.renew(self._ttl)
        except TransientError as fault:
            _log.warning("retry", what="lease renewal", error=str(fault))
            return True

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join(timeout=self._ttl)


def identity() -> str:
    """Who holds a lease: host, boot, process space, process, and a number of its own."""
    return f"{socket.gethostname()}|{_place()}|{os.getpid()}|{uuid.uuid4().hex[:12]}"


def _place() -> str:
    """Tells whether a process number means the same process here."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return f"unknown-{uuid.uuid4().hex}"
    return f"{boot}-{space}"


def process_is_gone(holder: str) -> bool:
    """Whether the holder was a process of this very machine (and process space) that does not run any more."""
    parts = holder.split("|")
    if len(parts) != 4 or parts[0] != socket.gethostname() or parts[1] != _place() or not parts[2].isdigit():  # noqa: PLR2004 - as in `identity`
        return False
    return not Path(f"/proc/{parts[2]}").exists()
