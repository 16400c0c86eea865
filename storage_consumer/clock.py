"""Time as the program sees it, so that tests can hold it in their hands."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from and how waiting is done."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC by the wall clock; may jump."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set or `seconds` have passed; whether it is set."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC by the wall clock; may jump."""
        return time.time()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set or `seconds` have passed; whether it is set."""
        return event.wait(seconds)
