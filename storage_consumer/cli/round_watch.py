"""How far a long round is: what it has done, how fast, what it does now, and when it should be over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from storage_consumer.amounts import seconds_left
from storage_consumer.summary import RunningStatement
from storage_consumer.telemetry import Log, utc_time

_log = Log("display")
EVERY = 30.0
"""Seconds between two lines about one round, and from its beginning to the first."""
_LONGEST_QUERY = 200
"""Characters of a statement that a line shows."""
Phase = Literal["poll", "rows", "statement"]


@dataclass(slots=True)
class _Round:
    """What is known of the round that runs."""

    began: float
    """By the monotonic clock."""
    polled: bool = False
    """Whether the bucket was listed, so that the next figures are known."""
    files: int = 0
    size: int = 0
    storage_checkpoint: int = 0
    ddls: int = 0
    """Statements to run."""
    done: int = 0
    """Files read."""
    rows: int = 0
    ddls_done: int = 0
    has_advanced: bool = True
    """Whether files were read since the last line."""


class RoundWatch:
    """Says when a line about progress is due, and what it holds. Calls may come from any thread."""

    def __init__(self, now: Callable[[], float], monotonic: Callable[[], float]) -> None:
        """Begin without a round; `now` returns the wall clock in seconds since 1970, `monotonic` seconds that only grow."""
        self._now = now
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._round: _Round | None = None
        self._said_at = monotonic()

    def heard(self, name: str, _level: int, fields: Mapping[str, object]) -> None:
        """Take an event of the log: a round begins to poll, or was given up until the next try."""
        if name == "round_started":
            with self._lock:
                self._begin()
        elif name == "retry" and fields.get("what") == "round":
            self.finished()

    def started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:
        """Note that the bucket was polled: see `Progress.round_started`."""
        with self._lock:
            running = self._round or self._begin()
            running.polled = True
            running.files, running.size, running.storage_checkpoint = files, size, storage_checkpoint
            running.ddls = statements

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Count what was done."""
        with self._lock:
            if self._round is not None:
                self._round.done += files
                self._round.rows += rows
                self._round.ddls_done += statements
                self._round.has_advanced |= bool(files or rows)

    def finished(self) -> None:
        """Note that no round runs."""
        with self._lock:
            self._round = None

    def tick(self, statements: Sequence[RunningStatement]) -> None:
        """Log the line if one is due."""
        if fields := self.due(statements):
            _log.info("round_progress", **fields)

    def due(self, statements: Sequence[RunningStatement]) -> dict[str, object] | None:
        """Return the fields of a line, or None if none is due: nothing runs, or the round or the last line is not old enough.

        `statements`: what runs on the target; a statement may go on after its round.
        """
        at = self._monotonic()
        with self._lock:
            age = 0.0 if self._round is None else at - self._round.began
            oldest = max([age, *(each.seconds for each in statements)])
            if oldest < EVERY or at - self._said_at < EVERY:
                return None
            self._said_at = at
            # Beside a statement that outlasts them, short rounds come and go.
            running = self._round if age >= EVERY or not statements else None
            fields = {} if running is None else self._of_round(running, age)
            phase = self._phase(running, statements)
            if running is not None:
                running.has_advanced = False
        return {"phase": phase, **fields, **_of_statements(statements)}

    def _begin(self) -> _Round:
        self._round = _Round(began=self._monotonic())
        return self._round

    @staticmethod
    def _phase(running: _Round | None, statements: Sequence[RunningStatement]) -> Phase:
        if running is not None and not running.polled:
            return "poll"
        # Rows go on beside a statement; it is what the round waits for if no more of them were read.
        is_reading = running is not None and running.has_advanced and running.done < running.files
        return "statement" if statements and not is_reading else "rows"

    def _of_round(self, running: _Round, age: float) -> dict[str, object]:
        fields: dict[str, object] = {"seconds": round(age, 1)}
        if not running.polled:
            return fields
        fields |= {
            "files_done": running.done,
            "files": running.files,
            "bytes": running.size,
            "rows": running.rows,
            "rows_per_second": round(running.rows / max(age, 0.001)),
            "storage_checkpoint": running.storage_checkpoint,
        }
        if running.ddls:
            fields |= {"ddls_done": running.ddls_done, "ddls": running.ddls}
        if left := seconds_left(age, (running.done, running.files), (running.ddls_done, running.ddls)):
            fields |= {"seconds_left": round(left), "expected_end": utc_time(self._now() + left)}
        return fields


def _of_statements(statements: Sequence[RunningStatement]) -> dict[str, object]:
    """Return the fields about the statement that has been running longest, and how many run."""
    if not statements:
        return {}
    longest = max(statements, key=lambda each: each.seconds)
    query = longest.query if len(longest.query) <= _LONGEST_QUERY else f"{longest.query[: _LONGEST_QUERY - 1]}…"
    return {
        "statements": len(statements),
        "table": longest.table,
        "version": longest.version,
        "query": query,
        "statement_seconds": round(longest.seconds, 1),
    }
