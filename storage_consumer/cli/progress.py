"""How a round is shown: as a progress bar while it works off a backlog, and as one log line at its end."""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Never, TextIO

from tqdm import tqdm

from storage_consumer import telemetry
from storage_consumer.amounts import seconds_left
from storage_consumer.cli.bar_line import Figures, bar_format, columns
from storage_consumer.cli.round_watch import RoundWatch
from storage_consumer.clock import span
from storage_consumer.monitoring.health import lag_of
from storage_consumer.summary import Progress, RoundSummary, RunningStatement, Silent

_log = telemetry.Log("display")
MANY_FILES = 50
"""Number of files and statements from which a round shows its bar immediately."""
_NAMED = 10
"""Number of halted tables that a line names."""
_LOGGED_AGAIN = 600.0
"""Seconds between two lines about tables that stay halted."""
_IDLE_EVERY = 600.0
"""Seconds between two lines while rounds have nothing to do."""
_OF_IDLE = ("checkpoint", "storage_checkpoint", "lag_seconds", "source_lag_seconds", "halted", "waiting")
_SECONDS = re.compile(r"\b\d+ s\b")
PATIENCE = 3.0
"""Seconds after which a round with fewer files shows its bar too."""


def round_fields(summary: RoundSummary, now: float) -> dict[str, object]:
    """Return the fields of a round's `round_finished` event; `now` is the wall clock in seconds since 1970."""
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


def progress_for(*, wanted: bool, stream: TextIO | None = None) -> Progress:
    """Return a bar on standard error if `wanted` and that is a terminal that can show one; else `Silent`."""
    where = sys.stderr if stream is None else stream
    # In a file or a pipe a bar would be a mass of control characters.
    if wanted and where.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Bar(stream=where)
    return Silent()


def _standing(summary: RoundSummary) -> tuple[object, ...]:
    """Return what a round says of the tables beside its work: which stand still, what was skipped, and whether all is applied."""
    waiting = tuple(table.table for table in summary.waiting)
    paused = tuple(table.table for table in summary.paused)
    return summary.halted_tables, paused, waiting, summary.skipped, summary.checkpoint < summary.storage_checkpoint


class Reporter:
    """A `Progress` that logs rounds and every change among waiting tables, and passes all calls on to another.

    `tick` logs what is to be said at intervals, however long a round lasts: how far it is, and which tables are halted.
    Rounds that did nothing and found nothing changed are at level debug; while there are only such, one line every ten minutes sums them up.
    """

    def __init__(
        self,
        inner: Progress,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        each_round: Callable[[RoundSummary], None] = lambda _: None,
    ) -> None:
        """Pass calls on to `inner`, and summaries to `each_round` too; `now` returns the wall clock in seconds since 1970, `monotonic` seconds that only grow."""
        self.statements: Callable[[], Sequence[RunningStatement]] = tuple
        """Returns the statements that run on the target; called by `tick`."""
        self._monotonic = monotonic
        self._halted: tuple[str, ...] = ()
        self._halts_logged_at = 0.0
        self._inner = inner
        self._each_round = each_round
        self._now = now
        self._waiting: dict[str, str] = {}
        self._watch = RoundWatch(now, monotonic)
        self._last: RoundSummary | None = None
        self._logged_at = 0.0
        self._idle_rounds = 0
        self._lock = threading.Lock()

    def round_started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:
        """Begin to watch the round, and pass the call on."""
        for each in (self._watch.started, self._inner.round_started):
            each(files=files, size=size, storage_checkpoint=storage_checkpoint, statements=statements)

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Count, and pass the call on."""
        for each in (self._watch.advanced, self._inner.advanced):
            each(files=files, rows=rows, statements=statements)

    def ddl(self, *, table: str, query: str) -> None:
        """Pass the call on."""
        self._inner.ddl(table=table, query=query)

    def round_finished(self, summary: RoundSummary) -> None:
        """Log the round, and each table that begins or ends to wait."""
        self._watch.finished()
        self._inner.round_finished(summary)
        self._each_round(summary)
        # Without the seconds that some reasons hold, or each round would find a new one.
        waiting = {table.table: _SECONDS.sub("", table.error) for table in summary.waiting}
        for table in summary.waiting:
            if self._waiting.get(table.table) != waiting[table.table]:
                _log.warning("table_waiting", table=table.table, checkpoint=table.checkpoint, error=table.error)
        # A table that has halted did not go on, though it waits no longer.
        for name in self._waiting.keys() - waiting.keys() - {table.table for table in summary.halted}:
            _log.info("table_resumed", table=name)
        self._waiting = waiting
        self._log_round(summary)
        self._last = summary
        self._log_halted(summary)

    def heard(self, name: str, level: int, fields: Mapping[str, object]) -> None:
        """Take an event of the log, as a listener."""
        self._watch.heard(name, level, fields)

    def tick(self) -> None:
        """Log what is due; called about once a second, from a thread of its own."""
        self._watch.tick(self.statements())
        if self._last is not None:
            self._log_halted(self._last)

    def _log_round(self, summary: RoundSummary) -> None:
        """Log a round that did something, or found something changed; of others only how many there were, now and then."""
        done = summary.rows or summary.written or summary.files or summary.ddls
        is_idle = not done and self._last is not None and _standing(self._last) == _standing(summary)
        fields, now = round_fields(summary, self._now()), self._monotonic()
        (_log.debug if is_idle else _log.info)("round_finished", **fields)
        self._idle_rounds = self._idle_rounds + 1 if is_idle else 0
        is_due = now - self._logged_at >= _IDLE_EVERY
        if is_idle and is_due:
            _log.info("idle", rounds=self._idle_rounds, **{name: fields[name] for name in _OF_IDLE})
            self._idle_rounds = 0
        if is_due or not is_idle:
            self._logged_at = now

    def _log_halted(self, summary: RoundSummary) -> None:
        """Log which tables are halted when that changes, and again while it lasts."""
        halted, now = summary.halted_tables, self._monotonic()
        with self._lock:  # a round that ends and `tick` may find the same
            # By a clock that only grows: whoever corrects the machine's time must not silence an alarm.
            is_due = halted and (halted != self._halted or now - self._halts_logged_at >= _LOGGED_AGAIN)
            self._halted = halted
            if is_due:
                self._halts_logged_at = now
        if is_due:
            fields = round_fields(summary, self._now())
            names = ("halted", "halted_tables", "checkpoint", "checkpoint_running", "lag_seconds")
            _log.error("tables_halted", **{name: fields[name] for name in names}, error=summary.halted[0].error)


class Bar:
    """A `Progress` on a terminal: statements, files, rows, rows/s, lag of the checkpoint behind the wall clock, time left.

    It appears only while a round takes long, and leaves nothing on the screen. It fits the terminal's width, also after a
    resize, and uses no colours. Calls may come from any thread. A terminal that is gone ends the bar, and nothing else.
    """

    def __init__(
        self,
        *,
        stream: TextIO,
        now: Callable[[], float] = time.time,
        many_files: int = MANY_FILES,
        patience: float = PATIENCE,
        every: float = 0.1,
    ) -> None:
        """Show the bar on `stream`; `now` returns the wall clock in seconds since 1970, and the bar moves at most once per `every` seconds."""
        self._stream = stream
        self._now = now
        self._many_files = many_files
        self._patience = patience
        self._every = every
        self._lock = threading.RLock()
        self._bar: tqdm[Never] | None = None
        self._width = 0
        self._started = 0.0
        self._drawn_at = -every
        self._figures = Figures()
        self._rows = 0
        self._checkpoint = 0
        self._storage_checkpoint = 0

    def round_started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:  # noqa: ARG002 - files and statements are the scale
        """Prepare a bar if there is anything to do."""
        with self._drawing():
            self._close()
            self._rows, self._started, self._storage_checkpoint = 0, time.monotonic(), storage_checkpoint
            self._figures = Figures(files=files, statements=statements)
            if not self._figures.steps:
                return
            # It never draws by itself: how long it waits to be shown, and what the line holds, is decided here.
            self._bar = tqdm(total=self._figures.steps, file=self._stream, leave=False, delay=math.inf, miniters=1)
            telemetry.around_writes(self._aside)
            self._draw()

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Move the bar."""
        with self._drawing():
            self._rows += rows
            done, ran = self._figures.done + files, self._figures.statements_done + statements
            self._figures = replace(self._figures, done=done, statements_done=ran)
            if self._bar is not None:
                self._bar.n = self._figures.steps_done
                self._draw(at_most_every=self._every)

    def ddl(self, *, table: str, query: str) -> None:  # noqa: ARG002 - a statement can be longer than a line
        """Name the table whose statement runs."""
        with self._drawing():
            # A name is data from outside: a terminal would obey what it holds.
            self._figures = replace(self._figures, statement=f"DDL on {telemetry.escaped(telemetry.redact(table))}")
            self._draw()

    def round_finished(self, summary: RoundSummary) -> None:
        """Remove the bar."""
        with self._drawing():
            # A round before the first checkpoint reports 0, which says nothing about the lag.
            self._checkpoint = summary.checkpoint or self._checkpoint
            self._close()

    def tick(self) -> None:
        """Move the times on; called about once a second, since no file may move for minutes."""
        with self._drawing():
            self._draw()

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Let one thread draw at a time; give the bar up if the terminal is gone."""
        with self._lock:
            try:
                yield
            except (OSError, ValueError):  # the second one if the stream was closed
                telemetry.around_writes(None)
                if self._bar is not None:
                    self._bar.disable = True
                    self._bar = None

    def _draw(self, at_most_every: float = 0.0) -> None:
        bar, now = self._bar, time.monotonic()
        if bar is None or not self._is_due() or now - self._drawn_at < at_most_every:
            return
        self._drawn_at = now
        self._fit(bar)
        bar.bar_format = bar_format(self._shown(), self._width)
        # Our own lock is held; tqdm would keep its own for ever if the terminal is gone.
        bar.refresh(nolock=True)

    def _fit(self, bar: tqdm[Never]) -> None:
        """Take over the terminal's width."""
        width = columns(self._stream)
        if width != self._width:
            # What is left of the old line, which a terminal may have wrapped; tqdm would blank it in its old length.
            self._stream.write("\r\x1b[J" if self._width else "")
            bar.sp = tqdm.status_printer(self._stream)  # where tqdm itself keeps it
            self._width = width
        bar.ncols = width

    def _close(self) -> None:
        if self._bar is not None:
            # First, so that no line of the log looks for a bar that is gone.
            telemetry.around_writes(None)
            # tqdm takes away only what it has drawn by itself.
            if self._is_due():
                self._fit(self._bar)
                self._bar.clear(nolock=True)
            self._bar.close()
            self._bar = None

    def _is_due(self) -> bool:
        """Return whether the bar may be on the screen by now."""
        patience = 0.0 if self._figures.steps >= self._many_files else self._patience
        return self._bar is not None and time.monotonic() - self._started >= patience

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Take the bar off the screen for a line of the log, and put it back below; do nothing before its time."""
        with self._lock:
            with self._drawing():
                if self._bar is not None and self._is_due():
                    self._fit(self._bar)
                    self._bar.clear(nolock=True)
            yield
            with self._drawing():
                self._draw()

    def _shown(self) -> Figures:
        """Return the figures of now; before the checkpoint is known, the bucket's lag is a lower limit."""
        # The first call may come in the same instant as the start.
        passed = max(time.monotonic() - self._started, 0.001)
        known = lag_of(self._checkpoint, self._now())
        # The target is never ahead of the bucket.
        least = lag_of(self._storage_checkpoint, self._now())
        lag = f"lag {span(known)}" if known is not None else f"lag >{span(least)}" if least is not None else ""
        figures = self._figures
        left = seconds_left(passed, (figures.done, figures.files), (figures.statements_done, figures.statements))
        return replace(
            figures,
            passed=span(passed),
            left=span(left) if left is not None else "?",
            rows=f"{self._rows:,} rows",
            rate=f"{self._rows / passed:,.0f} rows/s",
            lag=lag,
        )
