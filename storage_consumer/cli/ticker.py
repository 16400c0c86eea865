"""A thread that looks at the program while the program is busy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from storage_consumer.telemetry import Log

_log = Log("display")
EVERY = 1.0
"""Seconds between two calls."""
_LAST_WAIT = 1.0
"""Seconds that the end of the program waits for a call that hangs, as in a write to a terminal that is stopped."""


class Ticker:
    """Calls a function at intervals, from a thread that neither disturbs the program nor keeps it from ending."""

    def __init__(self, call: Callable[[], None], every: float = EVERY) -> None:
        """Call `call` each `every` seconds while the context is open. What it raises is logged once, and it is called again."""
        self._call = call
        self._every = every
        self._has_failed = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._end.set()
        self._thread.join(_LAST_WAIT)

    def _run(self) -> None:
        while not self._end.wait(self._every):
            try:
                self._call()
            except Exception as error:  # noqa: BLE001 - whoever only looks must not end what is looked at
                if not self._has_failed:
                    self._has_failed = True
                    _log.warning("listener_failed", listener="ticker", error=f"{type(error).__name__}: {error}")
