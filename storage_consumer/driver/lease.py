"""The writer's lease: its stored holder, whether that still runs, and renewal in background."""

from __future__ import annotations

import datetime as dt
import getpass
import os
import socket
import threading
import uuid
from pathlib import Path

from storage_consumer.clock import Clock
from storage_consumer.errors import LeaseLost, StorageConsumerError, TransientError
from storage_consumer.ports import Lease
from storage_consumer.telemetry import Log, utc_time

_PARTS = 4
"""Parts of a holder's text; what follows may be missing, as in that of an older version."""
_log = Log("service")


def identity(now: float) -> str:
    """Return a unique text: host, boot, process space, process, random number, time `now`.

    `now` is in seconds since 1970, UTC.
    """
    since = dt.datetime.fromtimestamp(now, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{socket.gethostname()}|{_place()}|{os.getpid()}|{uuid.uuid4().hex[:12]}|{since}"


def user() -> str:
    """Return the user of this process, and the host."""
    try:
        # In a container the user's number may have no name.
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    # As long as the state's column is.
    return f"{name}@{socket.gethostname()}"[:255]


def readable(holder: str) -> str:
    """Return a holder for people: ``host db1, pid 4711, since 2026-01-31T10:00:00Z``.

    The time is that of its start.
    """
    parts = holder.split("|")
    if len(parts) < _PARTS:
        return holder
    since = f", since {parts[_PARTS]}" if len(parts) > _PARTS else ""
    return f"host {parts[0]}, pid {parts[2]}{since}"


def process_is_gone(holder: str) -> bool:
    """Return whether the holder was a process of this machine and space that has ended."""
    parts = holder.split("|")
    # The host's name alone would not do: containers share names and reuse small process numbers.
    if (
        len(parts) < _PARTS
        or parts[0] != socket.gethostname()
        or parts[1] != _place()
        or not parts[2].isdigit()
    ):
        return False
    # A reused number passes for the holder, which only costs the wait until its lease expires.
    try:
        # Signal 0 only asks; /proc may hide other users' processes (hidepid).
        os.kill(int(parts[2]), 0)
    except ProcessLookupError:
        return True
    # It runs, but is another user's; or the number is none that a process can have.
    except (PermissionError, OverflowError):
        return False
    return False


def _place() -> str:
    """Return a text that is equal where process numbers mean the same; random if unknown."""
    try:
        # The boot: after a restart of the machine the same number is another process. The space:
        # containers count on their own.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = Path("/proc/self/ns/pid").readlink()
    except OSError:
        # Never equal to any other, so the holder counts as running and its lease has to run out.
        return f"unknown-{uuid.uuid4().hex}"
    return f"{boot}-{space}"


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
        """Whether the lease has expired: anybody may take it, and the state shows no writer."""
        return self._clock.monotonic() - self._renewed_at > self._ttl

    def check(self) -> None:
        """Raise why the lease is no longer renewed, `LeaseLost` if taken; return if it is."""
        # The cause is more helpful than the loss that follows from it.
        if self.fault is not None:
            raise self.fault
        if self.lost.is_set():
            raise LeaseLost(
                "the lease was lost to another process: this one was paused, or could not reach the target, for longer than "
                "--lease-ttl; or the state was restored from a backup"
            )

    def _run(self) -> None:
        """Renew three times per time to live, until another process has the lease.

        A target that does not answer for longer than that takes nothing from us. While nobody else
        takes the lease, it can be renewed when the target is back; if somebody does, the epoch
        keeps us from writing.
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
        """Renew the lease; return False if another process has it or renewal failed for good."""
        asked_at = self._clock.monotonic()
        try:
            renewed = self._lease.renew(self._ttl)
        except TransientError as fault:
            if self._failing_since is None:
                self._failing_since = self._clock.now()
            since = utc_time(self._failing_since)
            _log.warning(
                "retry",
                what="lease renewal",
                since=since,
                wait=round(self._ttl / 3, 1),
                error=str(fault),
            )
            return True
        except StorageConsumerError as fault:
            # Before `lost` is set, so that `check` does not blame another process.
            self.fault = fault  # the round's own thread raises it
            return False
        self._failing_since, self._renewed_at = None, asked_at
        return renewed

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        # Without a limit a renewal that hangs in the network would keep the process from ending.
        self._thread.join(timeout=self._ttl)
