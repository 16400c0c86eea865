"""How rounds are shown: as log lines, and as a terminal's bar during a backlog.

Both read the recorder.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from tqdm import tqdm

from storage_consumer import telemetry
from storage_consumer.cli.screen import is_smart
from storage_consumer.clock import Clock, SystemClock, span
from storage_consumer.summary import RoundSummary, RunningStatement
from storage_consumer.telemetry import utc_time
from storage_consumer.watch.recorder import Recorder, Ticker
from storage_consumer.watch.report import lag_of

_log = telemetry.Log("display")
_NAMED = 10
"""Number of halted tables that a line names."""
AGAIN = 600.0
"""Seconds between two lines about tables that stay halted, and while rounds have nothing to do."""
EVERY = 30.0
"""Seconds between two lines about one round, and from its beginning to the first."""
_LONGEST_QUERY = 200
"""Characters of a statement that a line shows."""
_OF_IDLE = (
    "checkpoint",
    "storage_checkpoint",
    "lag_seconds",
    "source_lag_seconds",
    "halted",
    "waiting",
)
_OF_HALTED = ("halted", "halted_tables", "checkpoint", "checkpoint_running", "lag_seconds")
_SECONDS = re.compile(r"\b\d+ s\b")
MANY = 50
"""Number of files and statements from which a round shows its bar immediately."""
PATIENCE = 3.0
"""Seconds after which a round with fewer shows its bar too."""
_FORMAT = "{percentage:.0f}% {bar} {desc}"
_USUAL = 80
"""Columns of a terminal that does not tell its width."""
Statements = Callable[[], Sequence[RunningStatement]]


@contextmanager
def shown(
    recorder: Recorder,
    statements: Statements,
    each_round: Callable[[RoundSummary], None],
    *,
    wants_bar: bool,
) -> Iterator[None]:
    """Show rounds, passing summaries to `each_round`; `statements`: those that run."""
    clock = SystemClock()
    log = RoundLog(recorder, clock, statements)
    # In a file or a pipe a bar would be a mass of control characters.
    bar = (
        Bar(recorder, clock, statements) if wants_bar and is_smart(sys.stderr, os.environ) else None
    )
    bars = (bar.tick,) if bar else ()
    # The bar first: it goes before the line about its round.
    recorder.observers = (each_round, *bars, log.round_finished)
    try:
        with Ticker(lambda: [look() for look in (log.tick, *bars)]):
            yield
    finally:
        if bar:
            bar.close()


def round_fields(summary: RoundSummary, now: float) -> dict[str, object]:
    """Return a round's `round_finished` fields; `now` is in seconds since 1970."""
    return {
        "rows": summary.rows,
        "written": summary.written,
        "files": summary.files,
        "ddls": summary.ddls,
        "seconds": round(summary.seconds, 3),
        "rows_per_second": round(summary.rows / summary.seconds) if summary.seconds > 0 else 0,
        "checkpoint": summary.checkpoint,
        "checkpoint_running": summary.checkpoint_running,
        "storage_checkpoint": summary.storage_checkpoint,
        "lag_seconds": lag_of(summary.checkpoint, now),
        "source_lag_seconds": lag_of(summary.storage_checkpoint, now),
        "pending_files": summary.pending_files,
        "finished_files": summary.finished_files,
        "halted": len(summary.halted),
        "halted_tables": summary.halted_tables[:_NAMED],
        "paused": [table.table for table in summary.paused[:_NAMED]],
        "waiting": len(summary.waiting),
        "skipped": summary.skipped,
        "ended_early": summary.ended_early,
    }


def _standing(summary: RoundSummary) -> tuple[object, ...]:
    """Return a round's halted tables, what it skipped, and whether all is applied."""
    still = tuple(
        (table.table, table.state) for table in (*summary.halted, *summary.paused, *summary.waiting)
    )
    return still, summary.skipped, summary.checkpoint < summary.storage_checkpoint


class RoundLog:
    """Logs rounds, changes of waiting tables, and at intervals progress and halted tables.

    Rounds that did nothing and found nothing changed are at level debug; while there are only such,
    one line every ten minutes sums them up.
    """

    def __init__(
        self,
        recorder: Recorder,
        clock: Clock,
        statements: Statements = tuple,
    ) -> None:
        """Have said nothing yet."""
        self._recorder = recorder
        self._statements = statements
        self._clock = clock
        self._lock = threading.Lock()
        self._last: RoundSummary | None = None
        self._waiting: dict[str, str] = {}
        self._logged_at = self._halts_logged_at = 0.0
        self._progress_logged_at = clock.monotonic()
        self._progress: tuple[int, int] | None = None
        """Files and rows of the last line about progress."""
        self._idle_rounds = 0
        self._halted: tuple[str, ...] = ()

    def round_finished(self, summary: RoundSummary) -> None:
        """Log the round, and each table that begins or ends to wait."""
        # Without the seconds that some reasons hold, or each round would find a new one.
        waiting = {table.table: _SECONDS.sub("", table.error) for table in summary.waiting}
        for table in summary.waiting:
            if self._waiting.get(table.table) != waiting[table.table]:
                _log.warning(
                    "table_waiting",
                    table=table.table,
                    checkpoint=table.checkpoint,
                    error=table.error,
                )
        # A table that has halted did not go on, though it waits no longer.
        for name in self._waiting.keys() - waiting.keys() - {*summary.halted_tables}:
            _log.info("table_resumed", table=name)
        self._waiting = waiting
        done = summary.rows or summary.written or summary.files or summary.ddls
        is_idle = (
            not done and self._last is not None and _standing(self._last) == _standing(summary)
        )
        fields, now = round_fields(summary, self._clock.now()), self._clock.monotonic()
        (_log.debug if is_idle else _log.info)("round_finished", **fields)
        self._idle_rounds = self._idle_rounds + 1 if is_idle else 0
        is_due = now - self._logged_at >= AGAIN
        if is_idle and is_due:
            _log.info("idle", rounds=self._idle_rounds, **{name: fields[name] for name in _OF_IDLE})
            self._idle_rounds = 0
        if is_due or not is_idle:
            self._logged_at = now
        self._last = summary
        self._log_halted(summary)

    def tick(self) -> None:
        """Log what is due; called about once a second, from a thread of its own."""
        if fields := self._progress_due():
            _log.info("round_progress", **fields)
        if self._last is not None:
            self._log_halted(self._last)

    def _log_halted(self, summary: RoundSummary) -> None:
        """Log which tables are halted when that changes, and again while it lasts."""
        halted, now = summary.halted_tables, self._clock.monotonic()
        with self._lock:  # a round that ends and `tick` may find the same
            # By a monotonic clock: correcting the machine's time must not silence an alarm.
            is_due = halted and (halted != self._halted or now - self._halts_logged_at >= AGAIN)
            self._halted = halted
            if is_due:
                self._halts_logged_at = now
        if is_due:
            fields = round_fields(summary, self._clock.now())
            _log.error(
                "tables_halted",
                **{name: fields[name] for name in _OF_HALTED},
                error=summary.halted[0].error,
            )

    def _progress_due(self) -> dict[str, object]:
        """Return a progress line's fields; none without a round or before its interval."""
        age, statements, at = (
            self._recorder.round_seconds,
            self._statements(),
            self._clock.monotonic(),
        )
        oldest = max([age or 0.0, *(each.seconds for each in statements)])
        if oldest < EVERY or at - self._progress_logged_at < EVERY:
            return {}
        self._progress_logged_at = at
        report = self._recorder.report()
        work, fields = report.work, dict[str, object]()
        # Beside a statement that outlasts them, short rounds come and go.
        if age is None or (age < EVERY and statements):
            phase = "statement"
        else:
            fields["seconds"] = round(age, 1)
            phase = "poll" if work is None else "rows"
            if work is not None:
                fields |= {
                    "files_done": work.files_done,
                    "files": work.files,
                    "bytes": work.bytes,
                    "rows": work.rows,
                    "rows_per_second": round(work.rows / max(age, 0.001)),
                    "storage_checkpoint": report.source_checkpoint,
                }
                if work.statements:
                    fields |= {"ddls_done": work.statements_done, "ddls": work.statements}
                if left := work.seconds_left:
                    fields |= {
                        "seconds_left": round(left),
                        "expected_end": utc_time(self._clock.now() + left),
                    }
                # Rows may be written beside a statement, which the round waits for once none is
                # read.
                done = (work.files_done, work.rows)
                if statements and (done == self._progress or work.files_done == work.files):
                    phase = "statement"
                self._progress = done
        fields = {"phase": phase, **fields}
        if statements:
            longest = max(statements, key=lambda each: each.seconds)
            query = longest.query
            if len(query) > _LONGEST_QUERY:
                query = f"{query[: _LONGEST_QUERY - 1]}…"
            fields |= {
                "statements": len(statements),
                "table": longest.table,
                "version": longest.version,
            }
            fields |= {"query": query, "statement_seconds": round(longest.seconds, 1)}
        return fields


class Bar:
    """A bar on standard error: how far the running round is, its lag, and when it should be over.

    It shows only while a round takes long, and leaves nothing on the screen. A name is data from
    outside, and is escaped.
    """

    def __init__(self, recorder: Recorder, clock: Clock, statements: Statements = tuple) -> None:
        """Step aside for lines of the log, until `close`."""
        self._recorder = recorder
        self._clock = clock
        self._statements = statements
        self._lock = threading.Lock()
        self._bar: tqdm[NoReturn] | None = None
        # One lock of threads: tqdm's own is of processes too, of which there are none here.
        tqdm.set_lock(threading.RLock())
        self._screen = _Screen()
        telemetry.around_writes(lambda: tqdm.external_write_mode(self._screen))

    def tick(self, _: object = None) -> None:
        """Show the round's progress unless it is short or over; called from any thread."""
        work = self._recorder.report().work
        with self._lock:
            if work is None or not work.steps or (work.steps < MANY and work.seconds < PATIENCE):
                self._end()
                return
            if self._bar is None:
                self._bar = tqdm(
                    file=self._screen, leave=False, ncols=_columns(), bar_format=_FORMAT
                )
            elif self._bar.ncols != _columns():
                # What is shown may be several lines by now, and tqdm would blank it by as many
                # characters as it had.
                self._screen.write("\r\x1b[J")
                self._bar.sp, self._bar.ncols = tqdm.status_printer(self._screen), _columns()
            self._bar.total, self._bar.n = work.steps, work.steps_done
            # What the line says, the most important first.
            texts: list[str] = []
            known = lag_of(self._recorder.summary().checkpoint, self._clock.now())
            # Before the checkpoint is known, the bucket's lag is a lower limit: the target is never
            # ahead of the bucket.
            least = lag_of(self._recorder.report().source_checkpoint, self._clock.now())
            if known is not None or least is not None:
                texts.append(
                    f"lag {span(known)}" if known is not None else f"lag >{span(least or 0.0)}"
                )
            texts.append(
                f"{span(work.seconds_left) if work.seconds_left is not None else '?'} left"
            )
            longest = max(self._statements(), key=lambda each: each.seconds, default=None)
            texts += (
                [f"DDL on {telemetry.escaped(telemetry.redact(longest.table))}"] if longest else []
            )
            rate = f"{work.rows / max(work.seconds, 0.001):,.0f} rows/s"
            self._bar.set_description_str(
                ", ".join([*texts, work.counted, rate, f"{work.rows:,} rows"])
            )

    def close(self) -> None:
        """Take it away for good."""
        telemetry.around_writes(None)
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None


class _Screen:
    """Standard error for the bar, dropping what is refused: an error would leave tqdm locked."""

    @property
    def encoding(self) -> str:
        """By which tqdm chooses its characters."""
        return sys.stderr.encoding

    def write(self, text: str) -> None:
        """Write, if that is possible."""
        with suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        """Flush, if that is possible."""
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def _columns() -> int:
    """Return the bar's columns: one less than the terminal's, since some wrap full lines."""
    width = 0
    with suppress(OSError, ValueError):
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    return max(1, (width or _USUAL) - 1)
