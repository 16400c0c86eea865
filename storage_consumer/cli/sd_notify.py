"""What systemd is told of a service of ``Type=notify``: that it is ready and alive, and that it ends.

Without a service manager (no ``NOTIFY_SOCKET`` in the environment) nothing is sent and no thread is started.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from storage_consumer import telemetry
from storage_consumer.watch.recorder import TICK, Ticker

_log = telemetry.Log("sd_notify")


class Notifier:
    """Tells the service manager about a consumer."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        """Take the address of the service manager from the environment, and how long it waits for a sign of life."""
        # A name that begins with @ is in the abstract namespace, which the kernel spells with a zero byte.
        self._address = environ.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        micros = environ.get("WATCHDOG_USEC", "")
        is_ours = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self._watchdog = int(micros) / 1_000_000 if micros.isdigit() and is_ours else 0.0
        """Systemd's ``WatchdogSec``; 0 if there is none for this process."""
        self._is_ready = self._has_failed = False

    @contextmanager
    def telling(self, silent_seconds: Callable[[], float | None]) -> Iterator[None]:
        """Tell the service manager about the consumer until the block ends, which is told too.

        `silent_seconds`: see `Consumer.silent_seconds`.
        """
        if not self._address:
            yield
            return
        try:
            with Ticker(lambda: self._tell(silent_seconds())):
                yield
        finally:
            self.send("STOPPING=1")

    def _tell(self, silent: float | None) -> None:
        if silent is not None and not self._is_ready:
            self._is_ready = True
            self.send("READY=1")
        # Not while the program is silent: then systemd kills it, and a new one goes on from the target.
        if self._watchdog and silent is not None and silent < self._watchdog:
            self.send("WATCHDOG=1")

    def send(self, assignment: str) -> None:
        """Send an assignment as one datagram. A failure is logged once, and stops nothing."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A service manager that does not read must not hold anything up.
                sender.settimeout(TICK)
                sender.sendto(assignment.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                _log.warning("notify_failed", error=str(error))
            self._has_failed = True
