"""Waiting for what happens beside a test: in another process, another thread, a server."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 90.0
"""Seconds for what takes a moment on a free machine."""
_LOOK = 0.2
"""Seconds between two looks; InnoDB shows its transactions anew only to who asks less than ten times a second."""


class TookTooLong(AssertionError):
    """Something did not happen in time; the message holds what was waited for."""


def wait_until(what: str, seen: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until something is seen. Raises `TookTooLong` where it is not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > deadline:
            raise TookTooLong(f"not seen within {seconds:g} s: {what}")
        time.sleep(_LOOK)
