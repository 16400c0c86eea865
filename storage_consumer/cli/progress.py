"""How a round is shown: as a progress bar while it works off a backlog, and as one log line at its end."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Never, TextIO

from tqdm import tqdm

from storage_consumer import telemetry
from storage_consumer.clock import span
from storage_consumer.model import physical_ms
from storage_consumer.summary import Progress, RoundSummary, Silent

_log = telemetry.Log("display")
MANY_FILES = 50
"""Number of files from which a round shows its bar immediately."""
_NAMED = 10
"""Number of halted tables that a line names."""
_LOGGED_AGAIN = 600.0
"""Seconds between two lines about tables that stay halted."""
PATIENCE = 3.0
"""Seconds after which a round with fewer files shows its bar too."""
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} files [{elapsed}<{remaining}{postfix}]"


def lag_seconds(checkpoint: int, now: float) -> float | None:
    """Return the seconds of wall clock since the time of a TSO, at least 0; None for TSO 0, which means that there is none."""
    return max(0.0, round(now - physical_ms(checkpoint) / 1000, 3)) if checkpoint else None


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
        "lag_seconds": lag_seconds(summary.checkpoint, now),
        "source_lag_seconds": lag_seconds(summary.storage_checkpoint, now),
        "pending_files": summary.pending_files,
        "finished_files": summary.finished_files,
        "halted": len(summary.halted),
        "halted_tables": summary.halted_tables[:_NAMED],
        "waiting": len(summary.waiting),
        "skipped": summary.skipped,
    }


def progress_for(*, wanted: bool, stream: TextIO | None = None) -> Progress:
    """Return a bar on standard error if `wanted` and that is a terminal that can show one; else `Silent`."""
    where = sys.stderr if stream is None else stream
    # In a file or a pipe a bar would be a mass of control characters.
    if wanted and where.isatty() and os.environ.get("TERM") != "dumb":
        return Bar(stream=where)
    return Silent()


class Reporter:
    """A `Progress` that logs each round and every change among waiting tables, and passes all calls on to another.

    While tables are halted, it logs them again at intervals, however little the rounds do.
    """

    def __init__(
        self,
        inner: Progress,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Pass calls on to `inner`; `now` returns the wall clock in seconds since 1970, `monotonic` seconds that only grow."""
        self._monotonic = monotonic
        self._halted: tuple[str, ...] = ()
        self._halts_logged_at = 0.0
        self._inner = inner
        self._now = now
        self._waiting: dict[str, str] = {}

    def round_started(self, *, files: int, size: int, storage_checkpoint: int) -> None:
        """Pass the call on."""
        self._inner.round_started(files=files, size=size, storage_checkpoint=storage_checkpoint)

    def advanced(self, *, files: int, rows: int) -> None:
        """Pass the call on."""
        self._inner.advanced(files=files, rows=rows)

    def ddl(self, *, table: str, query: str) -> None:
        """Pass the call on."""
        self._inner.ddl(table=table, query=query)

    def round_finished(self, summary: RoundSummary) -> None:
        """Log the round, and each table that begins or ends to wait."""
        self._inner.round_finished(summary)
        waiting = {table.table: table.error for table in summary.waiting}
        for table in summary.waiting:
            if self._waiting.get(table.table) != table.error:
                _log.warning("table_waiting", table=table.table, checkpoint=table.checkpoint, error=table.error)
        # A table that has halted did not go on, though it waits no longer.
        for name in self._waiting.keys() - waiting.keys() - {table.table for table in summary.halted}:
            _log.info("table_resumed", table=name)
        self._waiting = waiting
        _log.info("round_finished", **round_fields(summary, self._now()))
        self._log_halted(summary)

    def _log_halted(self, summary: RoundSummary) -> None:
        """Log which tables are halted when that changes, and again while it lasts."""
        halted, now = summary.halted_tables, self._monotonic()
        # By a clock that only grows: whoever corrects the machine's time must not silence an alarm.
        if halted and (halted != self._halted or now - self._halts_logged_at >= _LOGGED_AGAIN):
            fields = round_fields(summary, self._now())
            names = ("halted", "halted_tables", "checkpoint", "checkpoint_running", "lag_seconds")
            _log.error("tables_halted", **{name: fields[name] for name in names})
            self._halts_logged_at = now
        self._halted = halted


class Bar:
    """A `Progress` on a terminal: files, rows, rows/s, lag of the checkpoint behind the wall clock, time left.

    It appears only while a round takes long, and leaves nothing on the screen. Calls may come from any thread.
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
        self._started = 0.0
        self._rows = 0
        self._checkpoint = 0
        self._storage_checkpoint = 0

    def round_started(self, *, files: int, size: int, storage_checkpoint: int) -> None:  # noqa: ARG002 - files are the scale
        """Prepare a bar if there is anything to do."""
        with self._lock:
            self._close()
            self._rows, self._started, self._storage_checkpoint = 0, time.monotonic(), storage_checkpoint
            if not files:
                return
            self._bar = tqdm(
                total=files,
                desc="catching up",
                file=self._stream,
                leave=False,
                mininterval=self._every,
                dynamic_ncols=True,
                bar_format=_BAR,
                # tqdm itself waits so long before it shows anything
                delay=0 if files >= self._many_files else self._patience,
                postfix=self._words(),
            )
            telemetry.around_writes(self._aside)

    def advanced(self, *, files: int, rows: int) -> None:
        """Move the bar."""
        with self._lock:
            self._rows += rows
            if self._bar is not None:
                # The update draws the bar, at most as often as it may.
                self._bar.set_postfix_str(self._words(), refresh=False)
                self._bar.update(files)

    def ddl(self, *, table: str, query: str) -> None:  # noqa: ARG002 - a statement can be longer than a line
        """Name the table whose statement runs."""
        with self._lock:
            if self._bar is not None:
                self._bar.set_postfix_str(f"DDL on {table}, {self._words()}", refresh=False)
                # No file moves while a statement runs, and by itself tqdm draws only what has moved far enough.
                if self._is_due():
                    self._bar.refresh()

    def round_finished(self, summary: RoundSummary) -> None:
        """Remove the bar."""
        with self._lock:
            # A round before the first checkpoint reports 0, which says nothing about the lag.
            self._checkpoint = summary.checkpoint or self._checkpoint
            self._close()

    def _close(self) -> None:
        if self._bar is not None:
            # First, so that no line of the log looks for a bar that is gone.
            telemetry.around_writes(None)
            # tqdm itself takes away only what an update has drawn, not what a statement or a line of the log has.
            if self._is_due():
                self._bar.clear()
            self._bar.close()
            self._bar = None

    def _is_due(self) -> bool:
        """Return whether the bar may be on the screen by now."""
        # Read once: a line of the log asks from its own thread.
        bar = self._bar
        return bar is not None and time.monotonic() - self._started >= (bar.delay or 0)

    def _aside(self) -> AbstractContextManager[object]:
        """Take the bar off the screen for a line of the log, and put it back below; do nothing before its time."""
        return tqdm.external_write_mode(file=self._stream) if self._is_due() else nullcontext()

    def _words(self) -> str:
        """Return rows, rows/s and lag; before the checkpoint is known, the bucket's lag is a lower limit."""
        # The first call may come in the same instant as the start.
        rate = self._rows / max(time.monotonic() - self._started, 0.001)
        words = f"{self._rows:,} rows, {rate:,.0f} rows/s"
        known = lag_seconds(self._checkpoint, self._now())
        # The target is never ahead of the bucket.
        least = lag_seconds(self._storage_checkpoint, self._now())
        if known is not None:
            return f"{words}, lag {span(known)}"
        return f"{words}, lag >{span(least)}" if least is not None else words
