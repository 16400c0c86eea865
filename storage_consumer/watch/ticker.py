"""A thread that looks at the program while the program is busy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from storage_consumer.clock import Clock, SystemClock
from storage_consumer.telemetry import Log

_log = Log("display")
EVERY = 1.0
"""Seconds between two calls."""
_LAST_WAIT = 2.0
"""Seconds that the end waits for the last call, which may hang, as in a write to a terminal that is stopped."""


class Ticker:
    """Calls a function at intervals, and once more at the end, from a thread that neither disturbs the program nor keeps it from ending."""

    def __init__(self, call: Callable[[], object], every: float = EVERY, clock: Clock | None = None) -> None:
        """Call `call` each `every` seconds from `start` to `stop`. What it raises is logged once, and it is called again."""
        self._call = call
        self._every = every
        # A clock of its own: its waits say nothing about the consumer.
        self._clock = clock or SystemClock()
        self._has_failed = False
        self.ends = threading.Event()
        """Set before the last call."""
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    start = __enter__

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def stop(self) -> None:
        """Let it be called for the last time."""
        self.ends.set()
        self._thread.join(_LAST_WAIT)

    def _run(self) -> None:
        while not self._clock.wait(self.ends, self._every):
            self._try()
        self._try()

    def _try(self) -> None:
        try:
            self._call()
        except Exception as error:  # noqa: BLE001 - whoever only looks must not end what is looked at
            if not self._has_failed:
                self._has_failed = True
                _log.warning("listener_failed", listener="ticker", error=f"{type(error).__name__}: {error}")
