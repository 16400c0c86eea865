"""The recorder: counts what the rounds of a process do, and says at any time how far they are.

It is a `Progress` that passes all calls on, and a listener to the events of the log. Calls come from several threads.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from storage_consumer.clock import Clock
from storage_consumer.monitoring.report import SHOWN_TABLES, Minute, Phase, Report, Totals, Work
from storage_consumer.monitoring.table_minutes import TableMinute, TableMinutes, TableRows
from storage_consumer.monitoring.tally import Facts, Tally
from storage_consumer.plan.table_state import STOPPED, TableState
from storage_consumer.redaction import redact
from storage_consumer.summary import Progress, RoundSummary

WINDOW = 60.0
"""Seconds over which a rate is taken."""
_MINUTE = 60
_ENDING_A_STOP = ("resume", "reload-done")
"""Decisions after which a table goes on: the state says so at once, and a round that catches up may take long."""


def _without_stop(last: RoundSummary, name: str) -> RoundSummary:
    """Return a summary in which a table that was stopped is running."""
    stopped = next((each for each in last.tables if each.table == name and each.state in STOPPED), None)
    if stopped is None or not last.states.get(stopped.state):
        return last
    states = Counter(last.states)
    states.update({stopped.state: -1, TableState.RUNNING: 1})
    return replace(last, states=dict(states), tables=tuple(each for each in last.tables if each is not stopped))


@dataclass(slots=True)
class _Round:
    """The running round."""

    began: float
    files: int
    size: int
    statements: int
    files_done: int = 0
    rows: int = 0
    statements_done: int = 0

    @property
    def left(self) -> int:
        """How many files are still to be read, and statements to run."""
        return self.files + self.statements - self.files_done - self.statements_done


@dataclass(slots=True)
class _Rate:
    """Row changes a second, over the last `WINDOW` in which there were any."""

    _read: deque[tuple[float, float, int]] = field(default_factory=deque)
    """From, until and rows of each piece of work."""

    def add(self, began: float, ended: float, rows: int) -> None:
        """Count rows that were read between two moments of a clock that only grows."""
        if rows <= 0:
            return
        self._read.append((began, ended, rows))
        while self._read[0][1] < ended - WINDOW:
            self._read.popleft()

    def per_second(self) -> float:
        """Return the rate; 0 before the first row."""
        # Only the time of the work counts: a program that polls every two seconds is no slower for that.
        seconds = sum(ended - began for began, ended, _ in self._read)
        return sum(rows for _, _, rows in self._read) / seconds if seconds > 0 else 0.0


class Recorder:
    """What a process did and does."""

    def __init__(self, inner: Progress, clock: Clock, version: str) -> None:
        """Pass calls on to `inner`."""
        self._inner = inner
        self._clock = clock
        self._version = version
        self._lock = threading.Lock()
        self._started_at = self._since = clock.now()
        self._entered = clock.monotonic()
        self._phase = Phase.STARTING
        self._retry = ""
        self._least_left = math.inf
        """Fewest files and statements that a round had left which had to be retried, since the retries began."""
        self._round: _Round | None = None
        self._moved_at = 0.0
        self._rate = _Rate()
        self._totals = Totals()
        self._skipped: Counter[str] = Counter()
        self._last = RoundSummary()
        self._last_round_at = 0.0
        self._tables = TableMinutes()
        self._tally = Tally()
        self._source = (0, 0.0)
        """The bucket's checkpoint-ts, and when it was read."""
        self._compared: dict[str, int] = {}
        self._minute = 0
        self._minute_began = self._asked = Totals()
        self._read = 0
        """Row changes read, those of the running round included."""

    # what happens

    def round_started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:
        """Begin a round."""
        with self._lock:
            self._begin(Phase.APPLYING)
            self._moved_at = self._clock.monotonic()
            self._source = (storage_checkpoint, self._clock.now())
            self._round = _Round(self._moved_at, files, size, statements)
        self._inner.round_started(files=files, size=size, storage_checkpoint=storage_checkpoint, statements=statements)

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Count files, rows and statements."""
        with self._lock:
            now = self._clock.monotonic()
            if self._round is not None:
                self._round.files_done += files
                self._round.rows += rows
                self._round.statements_done += statements
                if self._round.left < self._least_left:
                    self._enter(Phase.APPLYING)
            self._read += rows
            self._tally.files += files
            self._rate.add(self._moved_at, now, rows)
            self._moved_at = now
        self._inner.advanced(files=files, rows=rows, statements=statements)

    def ddl(self, *, table: str, query: str) -> None:
        """Pass the call on."""
        self._inner.ddl(table=table, query=query)

    def round_finished(self, summary: RoundSummary) -> None:
        """End a round."""
        with self._lock:
            totals = self._totals
            self._totals = replace(
                totals,
                rounds=totals.rounds + 1,
                rows=totals.rows + summary.rows,
                written=totals.written + summary.written,
                files=totals.files + summary.files,
                ddls=totals.ddls + summary.ddls,
            )
            self._skipped.update(summary.skipped)
            self._tally.round_finished(summary)
            self._last, self._last_round_at = summary, self._clock.now()
            self._tables.add(self._last_round_at, summary.tables)
            self._round = None
            self._enter(Phase.IDLE)
        self._inner.round_finished(summary)

    def heard(self, event: str, fields: Mapping[str, object]) -> None:
        """Take note of an event of the log."""
        with self._lock:
            self._tally.heard(event, fields)
            if event == "lease_waiting":
                self._enter(Phase.STANDBY)
            elif event == "lease_acquired":
                self._begin(Phase.LOADING)
            elif event == "decision_obeyed" and fields.get("verb") in _ENDING_A_STOP:
                self._last = _without_stop(self._last, str(fields.get("table", "")))
            elif event == "retry":
                self._totals = replace(self._totals, retries=self._totals.retries + 1)
                if fields.get("what") == "round":
                    self._retry = str(fields.get("error", ""))
                    self._least_left = min(self._least_left, self._round.left if self._round is not None else math.inf)
                    self._round = None
                    self._enter(Phase.RETRYING)

    def failed(self, error: str) -> None:
        """Keep the error with which the process ends."""
        with self._lock:
            self._retry = error

    def _begin(self, phase: Phase) -> None:
        """Begin a phase unless something is retried: that lasts until a round gets further than those that failed."""
        if self._phase != Phase.RETRYING:
            self._enter(phase)

    def _enter(self, phase: Phase) -> None:
        """Begin a phase. Rounds follow one another closely: applying and idling in turns does not begin anew each time."""
        if phase != self._phase:
            self._phase, self._since, self._entered = phase, self._clock.now(), self._clock.monotonic()
        if phase != Phase.RETRYING:
            self._retry, self._least_left = "", math.inf

    # what is known

    def summary(self) -> RoundSummary:
        """Return the summary of the last round; an empty one before the first."""
        with self._lock:
            return self._last

    def compared(self, outcomes: Mapping[str, int]) -> None:
        """Take over how many tables comparisons with the source have found in each outcome."""
        with self._lock:
            self._compared = dict(outcomes)

    def facts(self) -> Facts:
        """Return what a scrape shows."""
        report = self.report()
        with self._lock:
            return Facts(
                now=self._clock.now(),
                report=report,
                tally=self._tally.copy(),
                rows_read=self._read,
                last=self._last,
                source_checkpoint=self._source[0],
                source_read_at=self._source[1],
                compared=self._compared,
            )

    def report(self) -> Report:
        """Return what there is to say now."""
        with self._lock:
            waiting = self._last.waiting[:SHOWN_TABLES]
            return Report(
                version=self._version,
                started_at=self._started_at,
                phase=self._phase,
                since=self._since,
                phase_seconds=round(self._clock.monotonic() - self._entered, 3),
                retry=redact(self._retry),
                work=self._work(),
                rows_per_second=round(self._rate.per_second(), 1),
                pending_files=self._last.pending_files,
                pending_bytes=self._last.pending_bytes,
                refused_checkpoint=self._last.refused_checkpoint,
                source_checkpoint=self._source[0],
                source_age=round(max(0.0, self._clock.now() - self._source[1]), 3) if self._source[0] else 0.0,
                last_round_at=self._last_round_at,
                totals=self._totals,
                skipped=dict(self._skipped),
                waiting={table.table: table.error for table in waiting},
            )

    def table_minutes(self, table: str) -> tuple[TableMinute, ...]:
        """Return what was done with a table in each minute of the last hour; nothing if it is not among those that are kept."""
        with self._lock:
            return self._tables.of(table, self._clock.now())

    def table_rows(self) -> dict[str, TableRows]:
        """Return the row changes of all tables that had any, by name."""
        with self._lock:
            rates = self._tables.rates(self._clock.now(), self._started_at)
            rows = self._tally.table_rows
            return {name: TableRows(rows=count, per_second=rates.get(name)) for name, count in rows.items()}

    def minute(self) -> Minute:
        """Return what was done in the current minute. Only one thread may ask: it is who tells one minute from the next."""
        with self._lock:
            now = int(self._clock.now()) // _MINUTE
            done = replace(self._totals, rows=self._read)
            if now != self._minute:
                # What was done since the last call belongs to no minute yet.
                self._minute, self._minute_began = now, self._asked
            self._asked = done
            return Minute(
                minute=now,
                checkpoint=self._last.checkpoint,
                checkpoint_running=self._last.checkpoint_running,
                storage_checkpoint=self._last.storage_checkpoint,
                row_changes=done.rows - self._minute_began.rows,
                statements=done.ddls - self._minute_began.ddls,
            )

    def _work(self) -> Work | None:
        running = self._round
        if running is None:
            return None
        return Work(
            seconds=round(self._clock.monotonic() - running.began, 3),
            files=running.files,
            bytes=running.size,
            files_done=running.files_done,
            rows=running.rows,
            statements=running.statements,
            statements_done=running.statements_done,
        )
