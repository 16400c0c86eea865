"""Time as the program sees it, a Protocol so that tests can control it; and durations as readers like them."""

from __future__ import annotations

import threading
import time
from typing import Protocol


def span(seconds: float) -> str:
    """Return a duration as readers like it: ``7s``, ``3m20s``, ``5h07m``, ``2d04h``."""
    whole = int(seconds)
    for unit, size, below, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02d}{below}"
    return f"{whole}s"


class Clock(Protocol):
    """Provides the time and a way to wait."""

    def monotonic(self) -> float:
        """Return the seconds since some fixed point in time; the value never goes back."""
        ...

    def now(self) -> float:
        """Return the seconds since 1970-01-01 UTC by the wall clock; the value may jump."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set or `seconds` have passed; return whether it is set."""
        ...


class SystemClock:
    """The machine's clock. It knows when the program last went to wait, by which a hanging program can be told from a busy one."""

    def __init__(self) -> None:
        """Start with nobody having waited."""
        self._returns: float | None = None
        """Time by `monotonic` at which the longest wait ends, or ended."""

    def silent_seconds(self) -> float | None:
        """Return the seconds since the last wait ended: 0 while a thread waits, None before the first wait."""
        return None if self._returns is None else max(0.0, self.monotonic() - self._returns)

    def monotonic(self) -> float:
        """Return the seconds since some fixed point in time; the value never goes back."""
        return time.monotonic()

    def now(self) -> float:
        """Return the seconds since 1970-01-01 UTC by the wall clock; the value may jump."""
        return time.time()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set or `seconds` have passed; return whether it is set."""
        self._returns = max(self._returns or 0.0, self.monotonic() + seconds)
        return event.wait(seconds)
