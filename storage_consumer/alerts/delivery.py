"""The delivery of documents to one hook: in order, from a thread of its own, with a limit on what waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic

from storage_consumer.alerts.calling import CallFailed, call
from storage_consumer.alerts.document import Document, variables
from storage_consumer.clock import Clock
from storage_consumer.config.hooks import Hook
from storage_consumer.redaction import escaped, json_text, redact
from storage_consumer.telemetry import Log

_log = Log("alerts")
MOST_WAITING = 100
"""Documents that wait at most; later ones are dropped."""
LONGEST_VARIABLE = 10_000
"""Characters of a variable that a command finds in its environment; Linux starts no program with one above 128 KiB."""
PAUSES = (1.0, 5.0)
"""Seconds before the second and the third attempt."""
Call = Callable[[Hook, bytes, Mapping[str, str]], None]


class Delivery:
    """Hands documents to one hook. `send` never waits; `close` waits for a while."""

    def __init__(self, hook: Hook, clock: Clock, attempt: Call = call) -> None:
        """Start the thread. `attempt` tries once, and raises `CallFailed`."""
        self._hook = hook
        self._clock = clock
        self._attempt = attempt
        self._waiting: deque[Document] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self.failed = 0
        """Documents that were given up or dropped."""
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
        self._thread.start()

    def send(self, document: Document) -> None:
        """Queue a document, or drop it if too many wait."""
        with self._changed:
            is_full = len(self._waiting) >= MOST_WAITING
            if is_full:
                self.failed += 1
            else:
                self._waiting.append(document)
                self._changed.notify()
        if is_full:
            _log.error(
                "alert_failed",
                hook=self._hook.shown,
                alert=document["event"],
                attempts=0,
                error=f"{MOST_WAITING} others wait already; so far {self.failed} were not delivered",
            )

    def close(self, until: float) -> None:
        """Wait for what is queued, without pauses between attempts, until `until` by `time.monotonic`; log what is left."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        self._thread.join(max(0.0, until - monotonic()))
        with self._changed:
            left = tuple(document["event"] for document in self._waiting)
        if left:
            self.failed += len(left)
            error = f"the program ends; {len(left)} were not delivered"
            _log.error("alert_failed", hook=self._hook.shown, alert=left[0], attempts=0, error=error)

    def _run(self) -> None:
        while (document := self._next()) is not None:
            self._deliver(document)
            # Only now: while it is being delivered it counts as waiting.
            with self._changed:
                self._waiting.popleft()

    def _next(self) -> Document | None:
        """Wait for a document; return None if none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing.is_set())
            return self._waiting[0] if self._waiting else None

    def _deliver(self, document: Document) -> None:
        content = json_text(document).encode()
        # Cut last: half of a secret would not be recognized.
        named = {name: escaped(redact(text)[:LONGEST_VARIABLE]) for name, text in variables(document).items()}
        began = self._clock.monotonic()
        for number in range(1, len(PAUSES) + 2):
            error, may_pass = self._tried(content, named)
            if not error:
                seconds = round(self._clock.monotonic() - began, 3)
                _log.info(
                    "alert_sent", hook=self._hook.shown, alert=document["event"], attempts=number, seconds=seconds
                )
                return
            if not may_pass or number > len(PAUSES):
                break
            self._clock.wait(self._closing, PAUSES[number - 1])
        self.failed += 1
        _log.error("alert_failed", hook=self._hook.shown, alert=document["event"], attempts=number, error=error)

    def _tried(self, content: bytes, named: Mapping[str, str]) -> tuple[str, bool]:
        """Return why an attempt failed, empty if it did not, and whether another one may succeed."""
        try:
            self._attempt(self._hook, content, named)
        except CallFailed as fault:
            return str(fault), fault.may_pass
        except Exception as fault:  # noqa: BLE001 - whatever it is, the next document has to be delivered
            return f"{type(fault).__name__}: {fault}", True
        return "", False
