"""Wait a while for what a bucket does not show: a store may not answer, and not every way to copy a bucket keeps the order in which TiCDC writes."""

from __future__ import annotations

from threading import Event

from storage_consumer.clock import Clock
from storage_consumer.errors import FilesMissing, StorageUnavailable


class Patience:
    """How long something has been missing."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        """Wait for so many seconds each time that something is missing."""
        self.seconds = seconds
        self._clock = clock
        self._since: float | None = None

    @property
    def is_tried(self) -> bool:
        """Whether something is missing now."""
        return self._since is not None

    def bear(self, fault: FilesMissing | StorageUnavailable, pause: float = 0.0) -> None:
        """Return if there is time left to wait, after a pause in seconds; else raise what is missing."""
        now = self._clock.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= self.seconds:
            raise fault
        if pause:
            self._clock.wait(Event(), pause)

    def end(self) -> None:
        """Note that nothing is missing now."""
        self._since = None
