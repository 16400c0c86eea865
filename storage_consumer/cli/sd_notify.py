"""What systemd is told of a service of ``Type=notify``: that it is ready and alive, how far it is, and that it ends.

Without a service manager (no ``NOTIFY_SOCKET`` in the environment) nothing is sent and no thread is started.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from storage_consumer import telemetry
from storage_consumer.clock import span
from storage_consumer.monitoring.health import lag_of
from storage_consumer.signals import StopSignal
from storage_consumer.summary import Progress, RoundSummary

_log = telemetry.Log("sd_notify")
_TICK = 1.0
"""Seconds between two looks at the consumer."""
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


class Notifier:
    """Tells the service manager about a consumer. As a `Progress` it learns how far the rounds are, and passes all calls on to another."""

    def __init__(
        self, inner: Progress, environ: Mapping[str, str] = os.environ, now: Callable[[], float] = time.time
    ) -> None:
        """Pass calls on to `inner`; `now` returns the wall clock in seconds since 1970."""
        self._inner = inner
        self._now = now
        # A name that begins with @ is in the abstract namespace, which the kernel spells with a zero byte.
        self._address = environ.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        self._watchdog = _watchdog_seconds(environ)
        self._round = ""
        self._reached = ""
        self._files, self._statements, self._done = 0, 0, (0, 0)
        self._has_failed = False

    # as a Progress

    def round_started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:
        """Note how many files and statements the round has."""
        self._files, self._statements, self._done = files, statements, (0, 0)
        self._round = self._work()
        self._inner.round_started(files=files, size=size, storage_checkpoint=storage_checkpoint, statements=statements)

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Note how many of them are done."""
        read, ran = self._done
        self._done = read + files, ran + statements
        self._round = self._work()
        self._inner.advanced(files=files, rows=rows, statements=statements)

    def ddl(self, *, table: str, query: str) -> None:
        """Note the table whose statement runs."""
        self._round = f"DDL on {table}"
        self._inner.ddl(table=table, query=query)

    def round_finished(self, summary: RoundSummary) -> None:
        """Note the checkpoint, its lag, and how many tables are halted."""
        lag = lag_of(summary.checkpoint, self._now())
        behind = "" if lag is None else f", {span(lag)} behind"
        halted = f", halted tables: {len(summary.halted)}" if summary.halted else ""
        self._reached, self._round = f"checkpoint {summary.checkpoint}{behind}{halted}", ""
        self._inner.round_finished(summary)

    # as the service's voice

    @contextmanager
    def telling(self, running: Observable, stop: StopSignal) -> Iterator[None]:
        """Tell the service manager about `running` until the block ends, which is told too."""
        if not self._address:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(target=self._tell, args=(running, stop, ended), name="sd-notify", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.send("STOPPING=1", "STATUS=ending")

    def _tell(self, running: Observable, stop: StopSignal, ended: threading.Event) -> None:
        is_ready, told, told_at = False, "", 0.0
        while not ended.wait(_TICK):
            said = []
            silent = running.silent_seconds
            if silent is not None and not is_ready:
                is_ready = True
                said.append("READY=1")
            # Not while the program is silent: then systemd kills it, and a new one goes on from the target.
            if self._watchdog and silent is not None and silent < self._watchdog:
                said.append("WATCHDOG=1")
            status = "ending" if stop.requested.is_set() else self._status(running)
            if status != told and time.monotonic() - told_at >= _STATUS_EVERY:
                told, told_at = status, time.monotonic()
                said.append(f"STATUS={status}")
            if said:
                self.send(*said)

    def _status(self, running: Observable) -> str:
        """Return one line for ``systemctl status``."""
        if not running.is_writer:
            return _STANDBY
        known = [part for part in (self._reached, self._round) if part]
        # A table can have any name.
        return telemetry.escaped(telemetry.redact("; ".join(known) or "first round"))

    def _work(self) -> str:
        """Return how much of the round is done; empty if it has nothing to do."""
        read, ran = self._done
        of = ((ran, self._statements, "statements"), (read, self._files, "files"))
        done = ", ".join(f"{number} of {every} {what}" for number, every, what in of if every)
        return f"round: {done}" if done else ""

    def send(self, *assignments: str) -> None:
        """Send these assignments as one datagram. A failure is logged once, and stops nothing."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A service manager that does not read must not hold anything up.
                sender.settimeout(_TICK)
                sender.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                _log.warning("notify_failed", error=str(error))
            self._has_failed = True


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """Return systemd's ``WatchdogSec``; 0 if there is none for this process."""
    micros = environ.get("WATCHDOG_USEC", "")
    is_ours = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
    return int(micros) / 1_000_000 if micros.isdigit() and is_ours else 0.0
