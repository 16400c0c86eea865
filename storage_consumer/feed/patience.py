"""Wait a while for files that a bucket does not show yet: not every way to copy a bucket keeps the order in which TiCDC writes."""

from __future__ import annotations

from threading import Event

from storage_consumer.clock import Clock
from storage_consumer.errors import FilesMissing


class Patience:
    """How long something has been missing."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        """Wait for so many seconds each time that something is missing."""
        self._clock = clock
        self._seconds = seconds
        self._since: float | None = None

    def bear(self, fault: FilesMissing, pause: float = 0.0) -> None:
        """Return if there is time left to wait, after a pause in seconds; else raise what is missing."""
        now = self._clock.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._seconds:
            raise fault
        if pause:
            self._clock.wait(Event(), pause)

    def end(self) -> None:
        """Note that nothing is missing now."""
        self._since = None
