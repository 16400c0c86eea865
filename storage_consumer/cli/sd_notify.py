"""What systemd is told of a service of ``Type=notify``: that it is ready and alive, how far it is, and that it ends.

Without a service manager (no ``NOTIFY_SOCKET`` in the environment) nothing is sent and no thread is started.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from storage_consumer import telemetry
from storage_consumer.clock import span
from storage_consumer.monitoring.health import lag_of
from storage_consumer.monitoring.recorder import Recorder
from storage_consumer.monitoring.ticker import EVERY, Ticker
from storage_consumer.signals import StopSignal
from storage_consumer.summary import RunningStatement

_log = telemetry.Log("sd_notify")
_STATUS_EVERY = 5.0
"""Seconds between two changes of the status, at least."""
_STANDBY = "standby: another process is the writer, or the bucket or the target is waited for"


class Observable(Protocol):
    """What is asked of a consumer."""

    @property
    def is_writer(self) -> bool:
        """Whether this process has the lease."""
        ...

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since a thread last went to wait, as `Consumer.silent_seconds` counts them; None before the first wait."""
        ...

    def running_statements(self) -> tuple[RunningStatement, ...]:
        """Return the statements that run on the target now; called from another thread."""
        ...


class Notifier:
    """Tells the service manager about a consumer, and what its recorder knows of the rounds."""

    def __init__(
        self, recorder: Recorder, environ: Mapping[str, str] = os.environ, now: Callable[[], float] = time.time
    ) -> None:
        """`now` returns the wall clock in seconds since 1970."""
        self._recorder = recorder
        self._now = now
        # A name that begins with @ is in the abstract namespace, which the kernel spells with a zero byte.
        self._address = environ.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        micros = environ.get("WATCHDOG_USEC", "")
        is_ours = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self._watchdog = int(micros) / 1_000_000 if micros.isdigit() and is_ours else 0.0
        """Systemd's ``WatchdogSec``; 0 if there is none for this process."""
        self._is_ready = self._has_failed = False
        self._told, self._told_at = "", 0.0

    @contextmanager
    def telling(self, running: Observable, stop: StopSignal) -> Iterator[None]:
        """Tell the service manager about `running` until the block ends, which is told too."""
        if not self._address:
            yield
            return
        try:
            with Ticker(lambda: self._tell(running, stop)):
                yield
        finally:
            self.send("STOPPING=1", "STATUS=ending")

    def _tell(self, running: Observable, stop: StopSignal) -> None:
        said = []
        silent = running.silent_seconds
        if silent is not None and not self._is_ready:
            self._is_ready = True
            said.append("READY=1")
        # Not while the program is silent: then systemd kills it, and a new one goes on from the target.
        if self._watchdog and silent is not None and silent < self._watchdog:
            said.append("WATCHDOG=1")
        status = "ending" if stop.requested.is_set() else self._status(running)
        if status != self._told and time.monotonic() - self._told_at >= _STATUS_EVERY:
            self._told, self._told_at = status, time.monotonic()
            said.append(f"STATUS={status}")
        if said:
            self.send(*said)

    def _status(self, running: Observable) -> str:
        """Return one line for ``systemctl status``: the checkpoint, its lag and halted tables, and the running round."""
        if not running.is_writer:
            return _STANDBY
        report, last, known = self._recorder.report(), self._recorder.summary(), []
        if report.totals.rounds:
            lag = lag_of(last.checkpoint, self._now())
            behind = "" if lag is None else f", {span(lag)} behind"
            halted = f", halted tables: {len(last.halted)}" if last.halted else ""
            known.append(f"checkpoint {last.checkpoint}{behind}{halted}")
        if report.work is not None and report.work.steps:
            known.append(f"round: {report.work.counted}")
        known += [f"DDL on {each.table}" for each in running.running_statements()[:1]]
        # A table can have any name.
        return telemetry.escaped(telemetry.redact("; ".join(known) or "first round"))

    def send(self, *assignments: str) -> None:
        """Send these assignments as one datagram. A failure is logged once, and stops nothing."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A service manager that does not read must not hold anything up.
                sender.settimeout(EVERY)
                sender.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                _log.warning("notify_failed", error=str(error))
            self._has_failed = True
