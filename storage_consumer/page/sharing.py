"""One look at the state for all viewers: at most one at a time, at most one every few seconds, and nobody waits long for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from storage_consumer.clock import Clock
from storage_consumer.errors import StorageConsumerError

KEPT = 2.0
"""Seconds for which a look is shown before the next viewer causes another."""
PATIENCE = 2.0
"""Seconds that a viewer waits for a look; then the last one is shown."""
FIRST_PATIENCE = 5.0
"""The same while there is no last one."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen(Generic[T]):
    """What was seen last, and what has become of looking since."""

    value: T | None
    """None before the first look that succeeded."""
    age: float
    """Seconds since then."""
    fault: str = ""
    """Why there is nothing newer; empty if there is no reason to expect that."""


class Shared(Generic[T]):
    """Looks when somebody asks, in a thread of its own, and keeps what was seen."""

    def __init__(self, look: Callable[[], T], clock: Clock) -> None:
        """`look` may raise any `StorageConsumerError`, and may take long."""
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._value: T | None = None
        self._seen_at = 0.0
        self._tried_at = -KEPT
        self._fault = ""
        self._running: threading.Event | None = None

    def latest(self) -> Seen[T]:
        """Return what was seen at most `KEPT` seconds ago; an older look if the new one fails or takes longer than `PATIENCE`."""
        with self._lock:
            running = self._running
            if running is None and self._clock.monotonic() - self._tried_at >= KEPT:
                running = self._running = threading.Event()
                threading.Thread(target=self._refresh, args=(running,), name="status-page", daemon=True).start()
            patience = PATIENCE if self._value is not None else FIRST_PATIENCE
        late = running is not None and not running.wait(patience)
        with self._lock:
            age = self._clock.monotonic() - self._seen_at if self._value is not None else 0.0
            fault = self._fault or (f"no answer for {patience:.0f} s" if late else "")
            return Seen(value=self._value, age=age, fault=fault)

    def _refresh(self, running: threading.Event) -> None:
        value, fault = None, "looking at the state failed; the log says why"
        began = self._clock.monotonic()
        try:
            value, fault = self._look(), ""
        except StorageConsumerError as error:
            fault = str(error)
        finally:
            with self._lock:
                self._tried_at = self._clock.monotonic()
                self._fault = fault
                if not fault:
                    # What was seen is as old as the question.
                    self._value, self._seen_at = value, began
                self._running = None
            running.set()
