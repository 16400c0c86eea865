"""The lease of a running writer: renewed in the background, and checked before each step."""

from __future__ import annotations

import threading

from storage_consumer.clock import Clock
from storage_consumer.errors import LeaseLost, StorageConsumerError, TransientError
from storage_consumer.ports import Lease
from storage_consumer.telemetry import Log, utc_time

_log = Log("service")


class Renewal:
    """Renews the lease from its own thread, so that a long step does not lose it."""

    def __init__(self, lease: Lease, ttl: float, clock: Clock) -> None:
        """Start the thread. `ttl`: seconds for which the lease was just acquired."""
        self.lost = threading.Event()
        self.fault: StorageConsumerError | None = None
        """Why the lease could not be renewed, if another process does not have it."""
        self._lease = lease
        self._ttl = ttl
        self._clock = clock
        self._failing_since: float | None = None
        """By the wall clock; None if the last renewal succeeded."""
        self._renewed_at = clock.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-renewal", daemon=True)
        self._thread.start()

    @property
    def has_run_out(self) -> bool:
        """Whether the lease was last renewed longer ago than it lasts: anybody may take it, and the state shows no writer."""
        return self._clock.monotonic() - self._renewed_at > self._ttl

    def check(self) -> None:
        """Raise why the lease is no longer renewed: `LeaseLost` if another process has it; return if it still is."""
        # The cause is more helpful than the loss that follows from it.
        if self.fault is not None:
            raise self.fault
        if self.lost.is_set():
            raise LeaseLost(
                "the lease was lost to another process: this one was paused, or could not reach the target, for longer than "
                "--lease-ttl"
            )

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
        asked_at = self._clock.monotonic()
        try:
            renewed = self._lease.renew(self._ttl)
        except TransientError as fault:
            if self._failing_since is None:
                self._failing_since = self._clock.now()
            since = utc_time(self._failing_since)
            _log.warning("retry", what="lease renewal", since=since, wait=round(self._ttl / 3, 1), error=str(fault))
            return True
        except StorageConsumerError as fault:
            # Before `lost` is set, so that `check` does not take it for a lease that another process has.
            self.fault = fault  # the round's own thread raises it
            return False
        self._failing_since, self._renewed_at = None, asked_at
        return renewed

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        # Without a limit a renewal that hangs in the network would keep the process from ending.
        self._thread.join(timeout=self._ttl)
