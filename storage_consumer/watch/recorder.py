"""The recorder: counts what rounds do, and tells how far they are; stored every few seconds.

It is the one record of a round: log, bar, metrics, status, page and service manager read it. It is
a `Progress`, and hears the events of the log. Calls come from several threads.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol, Self

from storage_consumer.clock import Clock, SystemClock
from storage_consumer.errors import StorageConsumerError
from storage_consumer.plan.table_state import STOPPED, TableState
from storage_consumer.rows.comparison import VerifyOutcome
from storage_consumer.summary import Progress, RoundSummary, Silent
from storage_consumer.telemetry import Log, redact
from storage_consumer.watch.report import (
    OVERDUE,
    SHOWN_TABLES,
    Health,
    Minute,
    Phase,
    Report,
    Totals,
    Work,
    beyond_source,
    is_late,
    seconds_ahead,
    verdict,
)

_ticker_log = Log("display")
TICK = 1.0
"""Seconds between two calls."""
_LAST_TICK = 2.0
"""Seconds that the end waits for the last call, which may hang, as in a write to a terminal that is
stopped.
"""


class Ticker:
    """Calls a function at intervals and at the end, in a thread that holds up nothing."""

    def __init__(
        self, call: Callable[[], object], every: float = TICK, clock: Clock | None = None
    ) -> None:
        """Call `call` each `every` seconds until `stop`; log what it raises once, and go on."""
        self._call = call
        self._every = every
        # A clock of its own: its waits say nothing about the consumer.
        self._clock = clock or SystemClock()
        self._has_failed = False
        self.ends = threading.Event()
        """Set before the last call."""
        self._thread = threading.Thread(target=self._run, name="ticker", daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    start = __enter__

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def stop(self) -> None:
        """Let it be called for the last time."""
        self.ends.set()
        self._thread.join(_LAST_TICK)

    def _run(self) -> None:
        has_ended = False
        while not has_ended:
            has_ended = self._clock.wait(self.ends, self._every)
            try:
                self._call()
            except Exception as error:  # noqa: BLE001 - whoever only looks must not end what is looked at
                if not self._has_failed:
                    self._has_failed = True
                    _ticker_log.warning(
                        "listener_failed",
                        listener="ticker",
                        error=f"{type(error).__name__}: {error}",
                    )


_log = Log("monitoring")

WINDOW = 60.0
"""Seconds over which a rate is taken."""
_MINUTE = 60
_ENDING_A_STOP = ("resume", "reload-done")
"""Decisions after which a table goes on: the state says so at once, and a round that catches up may
take long.
"""


def _without_stop(last: RoundSummary, name: str) -> RoundSummary:
    """Return a summary in which a table that was stopped is running."""
    stopped = next(
        (each for each in last.tables if each.table == name and each.state in STOPPED), None
    )
    if stopped is None or not last.states.get(stopped.state):
        return last
    states = Counter(last.states)
    states.update({stopped.state: -1, TableState.RUNNING: 1})
    return replace(
        last, states=dict(states), tables=tuple(each for each in last.tables if each is not stopped)
    )


ROUND_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper borders, inclusive, of the buckets in which rounds are counted by their seconds."""


@dataclass(slots=True)
class ProcessTally:
    """Counts since the start of the process."""

    rows: int = 0
    """Row changes read, those of the running round included."""
    files: int = 0
    """Data files read, the same."""
    epoch: int = 0
    """Of the lease; 0 for a process that never had it."""
    leases: int = 0
    """How often the lease was acquired."""
    rounds_by_bucket: list[int] = field(default_factory=lambda: [0] * (len(ROUND_BUCKETS) + 1))
    """The last one is for longer rounds."""
    retries: Counter[str] = field(default_factory=Counter)
    """What is tried again → how often."""
    halts: Counter[str] = field(default_factory=Counter)
    """Kind → how often a table halted."""
    table_rows: Counter[str] = field(default_factory=Counter)
    """Table → row changes."""
    compared: Mapping[str, int] = field(default_factory=dict)
    """Outcome of the last comparison with the source → number of tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeFacts:
    """Everything that a scrape shows of the rounds."""

    now: float
    """Seconds since 1970-01-01 UTC."""
    report: Report
    tally: ProcessTally
    """A copy."""
    done: RoundSummary
    """All rounds together, and where the last one ended."""

    @property
    def ahead(self) -> float:
        """Seconds by which the bucket's checkpoint, believed or not, is ahead of the clock.

        Negative if it is behind.
        """
        return seconds_ahead(
            self.report.refused_checkpoint or self.report.source_checkpoint, self.now
        )

    def health(self, *, is_writer: bool, max_lag: float | None) -> Health:
        """Return the feed's word, as this process knows it; `max_lag`: in seconds."""
        beyond = beyond_source(
            self.done.checkpoint_running, self.now, self.report.source_lag(self.now)
        )
        return verdict(
            is_alone=not is_writer,
            is_retrying=self.report.phase == Phase.RETRYING,
            has_stopped=any(self.done.states.get(state, 0) for state in STOPPED),
            is_unequal=bool(
                self.tally.compared.get(VerifyOutcome.DIFFERENT, 0) or self.done.quarantined
            ),
            ahead=self.ahead,
            is_late=(beyond or 0.0) > OVERDUE
            if max_lag is None
            else is_late(self.done.slowest, self.now, max_lag),
        )


KEPT = 60
"""Minutes that are kept of a table."""
MOST_TABLES = 500
"""Tables that are kept of a minute."""
RATED = 5
"""Minutes over which the rate of a table is taken, the running one included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Row changes of one table."""

    rows: int
    """Read since the process started."""
    per_second: float | None
    """Over the last `RATED` minutes; None for a table of which no minutes are kept."""


class Recorder:
    """What a process did and does."""

    def __init__(self, clock: Clock, version: str, inner: Progress | None = None) -> None:
        """Pass calls on to `inner`, a `Progress` of whoever uses the library."""
        self._inner = inner or Silent()
        self.limit = 0
        """The option `rows_per_second`."""
        self.observers: tuple[Callable[[RoundSummary], None], ...] = ()
        """Called with the summary of each round, once it is counted."""
        self.assumed = ""
        """See `Report.assumed`."""
        self._clock = clock
        self._version = version
        self._lock = threading.Lock()
        self._started_at = self._since = clock.now()
        self._entered = clock.monotonic()
        self._phase = Phase.STARTING
        self._retry = ""
        self._least_left = math.inf
        """Fewest files and statements that a round had left which had to be retried, since the
        retries began.
        """
        self._work: Work | None = None
        """The running round, once it knows what it has to do; its seconds are counted when it is
        shown.
        """
        self._polled_at: float | None = None
        """When the running round began to poll; None between rounds."""
        self._worked_at = self._moved_at = 0.0
        """When it knew what it has to do, and when it moved last."""
        self._read: deque[tuple[float, float, int]] = deque()
        """From, until and rows of each piece of work, over the last `WINDOW` in which there were
        any.
        """
        self._done = RoundSummary()
        """All rounds together, and where the last one ended."""
        self._last_round_at = 0.0
        self._table_minutes: deque[tuple[int, Counter[str]]] = deque(maxlen=KEPT)
        """Minutes since 1970, each with the row changes that were read in it, by table."""
        self._tally = ProcessTally()
        self._source = (0, 0.0)
        """The bucket's checkpoint-ts, and when it was read."""
        self._minute = 0
        self._minute_began = self._asked = (0, 0)

    # what happens

    def round_started(
        self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0
    ) -> None:
        """Begin a round."""
        with self._lock:
            self._begin(Phase.APPLYING)
            self._worked_at = self._moved_at = self._clock.monotonic()
            self._polled_at = self._worked_at if self._polled_at is None else self._polled_at
            self._source = (storage_checkpoint, self._clock.now())
            self._work = Work(seconds=0, files=files, bytes=size, statements=statements)
        self._inner.round_started(
            files=files, size=size, storage_checkpoint=storage_checkpoint, statements=statements
        )

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Count files, rows and statements."""
        with self._lock:
            now = self._clock.monotonic()
            if (work := self._work) is not None:
                self._work = replace(
                    work,
                    files_done=work.files_done + files,
                    rows=work.rows + rows,
                    statements_done=work.statements_done + statements,
                )
                if self._left() < self._least_left:
                    self._enter(Phase.APPLYING)
            self._tally.rows += rows
            self._tally.files += files
            if rows > 0:
                self._read.append((self._moved_at, now, rows))
                while self._read[0][1] < now - WINDOW:
                    self._read.popleft()
            self._moved_at = now
        self._inner.advanced(files=files, rows=rows, statements=statements)

    def ddl(self, *, table: str, query: str) -> None:
        """Pass the call on."""
        self._inner.ddl(table=table, query=query)

    def round_finished(self, summary: RoundSummary) -> None:
        """End a round."""
        with self._lock:
            self._done, self._last_round_at = summary.following(self._done), self._clock.now()
            self._tally.rounds_by_bucket[bisect_left(ROUND_BUCKETS, summary.seconds)] += 1
            minute = int(self._last_round_at) // _MINUTE
            if not self._table_minutes or self._table_minutes[-1][0] != minute:
                self._table_minutes.append((minute, Counter()))
            kept = self._table_minutes[-1][1]
            for table in (each for each in summary.tables if each.rows):
                self._tally.table_rows[table.table] += table.rows
                if table.table in kept or len(kept) < MOST_TABLES:
                    kept[table.table] += table.rows
            self._work = self._polled_at = None
            self._enter(Phase.IDLE)
        for observe in (*self.observers, self._inner.round_finished):
            observe(summary)

    def heard(self, event: str, fields: Mapping[str, object]) -> None:
        """Take note of an event of the log."""
        with self._lock:
            if event == "lease_waiting":
                self._enter(Phase.STANDBY)
            elif event == "lease_acquired":
                epoch = fields.get("epoch")
                self._tally.epoch = epoch if isinstance(epoch, int) else self._tally.epoch
                self._tally.leases += 1
                self._begin(Phase.LOADING)
            elif event == "round_started":
                self._polled_at = self._clock.monotonic()
            elif event == "decision_obeyed" and fields.get("verb") in _ENDING_A_STOP:
                self._done = _without_stop(self._done, str(fields.get("table", "")))
            elif event == "table_halted":
                self._tally.halts[str(fields.get("kind", ""))] += 1
            elif event == "retry":
                what = str(fields.get("what", ""))
                self._tally.retries[what] += 1
                if what == "round":
                    self._retry = str(fields.get("error", ""))
                    self._least_left = min(self._least_left, self._left())
                    self._work = self._polled_at = None
                    self._enter(Phase.RETRYING)

    def failed(self, error: str) -> None:
        """Keep the error with which the process ends."""
        with self._lock:
            self._retry = error

    def _left(self) -> float:
        """Return how many files the running round has still to read, and statements to run."""
        return math.inf if self._work is None else self._work.steps - self._work.steps_done

    def _begin(self, phase: Phase) -> None:
        """Begin a phase, unless retries last: until a round gets further than those that failed."""
        if self._phase != Phase.RETRYING:
            self._enter(phase)

    def _enter(self, phase: Phase) -> None:
        """Begin a phase; rounds follow closely, so applying and idling do not restart it."""
        if phase != self._phase:
            self._phase, self._since, self._entered = (
                phase,
                self._clock.now(),
                self._clock.monotonic(),
            )
        if phase != Phase.RETRYING:
            self._retry, self._least_left = "", math.inf

    # what is known

    def summary(self) -> RoundSummary:
        """Return the summary of all rounds together; an empty one before the first."""
        with self._lock:
            return self._done

    def compared(self, outcomes: Mapping[str, int]) -> None:
        """Take over how many tables comparisons with the source have found in each outcome."""
        with self._lock:
            self._tally.compared = dict(outcomes)

    def facts(self) -> ScrapeFacts:
        """Return what a scrape shows."""
        report = self.report()
        with self._lock:
            return ScrapeFacts(
                now=self._clock.now(), report=report, tally=deepcopy(self._tally), done=self._done
            )

    @property
    def round_seconds(self) -> float | None:
        """Seconds since the running round began to poll; None between rounds."""
        began = self._polled_at
        return None if began is None else self._clock.monotonic() - began

    def report(self) -> Report:
        """Return what there is to say now."""
        with self._lock:
            done, tally, work = self._done, self._tally, self._work
            # Only the time of the work counts: a program that polls every two seconds is no slower
            # for that.
            seconds = sum(ended - began for began, ended, _ in self._read)
            if work is not None:
                work = replace(work, seconds=round(self._clock.monotonic() - self._worked_at, 3))
            return Report(
                version=self._version,
                assumed=self.assumed,
                started_at=self._started_at,
                phase=self._phase,
                since=self._since,
                phase_seconds=round(self._clock.monotonic() - self._entered, 3),
                retry=redact(self._retry),
                work=work,
                rows_per_second=round(sum(rows for _, _, rows in self._read) / seconds, 1)
                if seconds
                else 0.0,
                rows_per_second_limit=self.limit,
                pending_files=done.pending_files,
                pending_bytes=done.pending_bytes,
                refused_checkpoint=done.refused_checkpoint,
                source_checkpoint=self._source[0],
                source_age=round(max(0.0, self._clock.now() - self._source[1]), 3)
                if self._source[0]
                else 0.0,
                last_round_at=self._last_round_at,
                totals=Totals(
                    rounds=sum(tally.rounds_by_bucket),
                    rows=done.rows,
                    written=done.written,
                    files=done.files,
                    ddls=done.ddls,
                    retries=tally.retries.total(),
                ),
                skipped=done.skipped,
                waiting={table.table: table.error for table in done.waiting[:SHOWN_TABLES]},
            )

    def table_minutes(self, table: str) -> dict[int, int]:
        """Return minute → a table's row changes in the last hour, where known and not zero.

        Nothing is known of tables beyond `MOST_TABLES`.
        """
        with self._lock:
            first = int(self._clock.now()) // _MINUTE - KEPT
            return {
                at: rows[table] for at, rows in self._table_minutes if at > first and table in rows
            }

    def table_rows(self) -> dict[str, TableRows]:
        """Return the row changes of all tables that had any, by name."""
        with self._lock:
            now = self._clock.now()
            first = int(now) // _MINUTE - RATED + 1
            seconds = max(1.0, now - max(self._started_at, first * _MINUTE))
            recent, known = Counter[str](), set[str]()
            for at, rows in self._table_minutes:
                known |= rows.keys()
                recent.update(rows if at >= first else {})
            return {
                name: TableRows(
                    rows=count, per_second=recent[name] / seconds if name in known else None
                )
                for name, count in self._tally.table_rows.items()
            }

    def minute(self) -> Minute:
        """Return what was done in this minute; only the thread that tells minutes apart may ask."""
        with self._lock:
            now = int(self._clock.now()) // _MINUTE
            done = (self._tally.rows, self._done.ddls)
            if now != self._minute:
                # What was done since the last call belongs to no minute yet.
                self._minute, self._minute_began = now, self._asked
            self._asked = done
            return Minute(
                minute=now,
                checkpoint=self._done.checkpoint,
                checkpoint_running=self._done.checkpoint_running,
                storage_checkpoint=self._done.storage_checkpoint,
                row_changes=done[0] - self._minute_began[0],
                statements=done[1] - self._minute_began[1],
            )


EVERY = 5.0
"""Seconds between two reports."""
_SOON = 1.0
"""Seconds until a report says that something is retried, or no more, and until one that could not
be stored is tried again.
"""


class Reports(Protocol):
    """Where reports are stored; see `checkpoint.findings`."""

    def save(self, document: str, minute: Minute) -> Mapping[str, int]:
        """Store a report and its minute's work; do nothing while another process is the writer.

        Return how many tables `verify` has found in each outcome.
        """
        ...


class Reporting:
    """Stores reports until it is stopped; one that cannot be stored stops nothing else."""

    def __init__(self, recorder: Recorder, reports: Reports, clock: Clock) -> None:
        """Start the thread."""
        self._recorder = recorder
        self._reports = reports
        self._clock = clock
        self._due = clock.monotonic() + EVERY
        self._was_retrying = self._has_failed = False
        self._ticker = Ticker(self._look, _SOON, clock)
        self._ticker.start()

    def stop(self) -> None:
        """Store a last report, which says that the program has ended, and end the thread."""
        self._ticker.stop()

    def _look(self) -> None:
        report, now, has_ended = (
            self._recorder.report(),
            self._clock.monotonic(),
            self._ticker.ends.is_set(),
        )
        is_retrying = report.phase == Phase.RETRYING
        if has_ended:
            report = replace(
                report, phase=Phase.ENDED, since=self._clock.now(), phase_seconds=0.0, work=None
            )
        elif not self._has_failed and is_retrying == self._was_retrying and now < self._due:
            return
        self._due, self._was_retrying = now + EVERY, is_retrying
        try:
            self._recorder.compared(self._reports.save(report.to_json(), self._recorder.minute()))
            self._has_failed = False
        except StorageConsumerError as fault:
            # Once: what keeps reports from being stored usually keeps the rounds from working, and
            # they say so.
            if not self._has_failed:
                _log.warning("report_failed", error=str(fault))
            self._has_failed = True
