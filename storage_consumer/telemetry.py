"""What the program logs: every event with its meaning and fields, where the lines go, and who else hears of them.

Registered secrets are blanked in all values, messages and tracebacks, those of foreign loggers included.
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

from storage_consumer.errors import ConfigError
from storage_consumer.log_lines import ROOT, TSO_FIELDS, JsonFormatter, Said, TextFormatter, tso_time, utc_time
from storage_consumer.redaction import (
    HIDDEN,
    UNSEEN,
    escaped,
    forget_secrets,
    json_text,
    lines_escaped,
    redact,
    register_secret,
)

__all__ = [
    "EVENTS",
    "HIDDEN",
    "LEVELS",
    "ROOT",
    "TSO_FIELDS",
    "UNSEEN",
    "Event",
    "JsonFormatter",
    "Level",
    "Listener",
    "Log",
    "TextFormatter",
    "around_writes",
    "configure",
    "escaped",
    "forget_secrets",
    "json_text",
    "lines_escaped",
    "listen",
    "redact",
    "register_secret",
    "tso_time",
    "utc_time",
]

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
_NOISY = (
    *("py4j", "pyspark", "fsspec", "s3fs", "aiobotocore", "botocore", "urllib3", "asyncio"),
    *("gcsfs", "google", "adlfs", "azure", "aiohttp"),
)


Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One kind of log line."""

    meaning: str
    """When it is logged, and what to do about it if anything."""
    fields: tuple[str, ...] = ()
    """Names of the fields that its line may carry."""
    levels: tuple[Level, ...] = ("info",)
    """Levels at which it is logged."""


EVENTS: dict[str, Event] = {
    "started": Event(
        meaning="The settings are valid and work begins.",
        fields=("version", "upstream", "downstream", "protocol", "time_zone", "once", "state_schema"),
    ),
    "notice": Event(
        meaning="A setting was assumed, or was accepted but has no effect. Read it once.",
        fields=("text",),
        levels=("info", "warning"),
    ),
    "doctor_finding": Event(
        meaning="Something about the target is worth a warning; `check` names it as `storage-consumer doctor` does, which looks at much more.",
        fields=("check", "text", "remedy", "statement"),
        levels=("warning",),
    ),
    "doctor_failed": Event(
        meaning="The target's settings could not be looked at; the work goes on.", fields=("error",), levels=("debug",)
    ),
    "inferred": Event(
        meaning="This setting was not given; the file named in `source` shows it.", fields=("option", "value", "source")
    ),
    "go_on": Event(
        meaning="Tables stopped. Fix what stopped them, then run this command: each table continues where it stopped.",
        fields=("command",),
        levels=("warning",),
    ),
    "stopped": Event(meaning="The program ends.", fields=("exit_code", "reason"), levels=("info", "warning")),
    "stop_requested": Event(
        meaning="First signal: the program finishes its transaction, then ends.", fields=("reason",)
    ),
    "stop_abandoned": Event(
        meaning="Second signal: the program abandons its transaction; the next start repeats it.",
        fields=("reason",),
        levels=("warning",),
    ),
    "abandon_callback_failed": Event(
        meaning="Something could not be cancelled; this is harmless.", fields=("error",), levels=("warning",)
    ),
    "failed": Event(
        meaning="The program ends because of this error. At level debug where it is reported on standard error as well.",
        fields=("error", "kind", "exit_code"),
        levels=("debug", "error"),
    ),
    "notify_failed": Event(
        meaning="systemd could not be told how the service is; the work goes on. Logged once.",
        fields=("error",),
        levels=("warning",),
    ),
    "thread_failed": Event(
        meaning="A thread beside the work ended with an error that nobody expected. The work goes on; please report it.",
        fields=("thread", "error"),
        levels=("warning",),
    ),
    "listener_failed": Event(
        meaning="A part that only watches failed, such as one that counts. The work goes on; this is said once.",
        fields=("listener", "error"),
        levels=("warning",),
    ),
    "alert_failed": Event(
        meaning="The command of --on-halt failed; nobody was told of the event `alert`. Fix the command.",
        fields=("hook", "alert", "error"),
        levels=("error",),
    ),
    "spark_started": Event(meaning="The Spark session is ready.", fields=("version", "master", "seconds", "reused")),
    "executors_ready": Event(
        meaning="The executors of a cluster have what they need: `cores` of all that have joined so far, `hosts` "
        "that were checked.",
        fields=("hosts", "cores", "seconds"),
    ),
    "cache_refused": Event(
        meaning="Other users could change this folder, so compiled code is not kept there. The error says how to fix "
        "that.",
        fields=("folder", "error"),
        levels=("warning",),
    ),
    "spark_said": Event(
        meaning="A line that Spark's JVM or a worker wrote to standard error; a warning if it reports an error.",
        fields=("text",),
        levels=("debug", "warning"),
    ),
    "lease_acquired": Event(
        meaning="This process is the one writer. `former`: whom it waited for, or found dead.",
        fields=("holder", "epoch", "former"),
    ),
    "lease_waiting": Event(
        meaning="Another process, named as `holder`, is the writer; this one is on standby.",
        fields=("holder",),
        levels=("warning",),
    ),
    "connections_ended": Event(
        meaning="A former owner that is paused or cut off held locks on the state; its connections were ended.",
        fields=("connections", "state_schema"),
        levels=("warning",),
    ),
    "storage_warning": Event(
        meaning="Something in the bucket is odd, but stops nothing.", fields=("text", "path"), levels=("warning",)
    ),
    "checkpoint_missing": Event(
        meaning="The bucket has no checkpoint yet: nothing can be applied.",
        fields=("path", "text"),
        levels=("warning",),
    ),
    "schema_warning": Event(
        meaning="Something in a schema file is odd, but stops nothing.",
        fields=("text", "path", "version"),
        levels=("warning",),
    ),
    "ddl_started": Event(meaning="A statement is about to run.", fields=("table", "version", "query")),
    "ddl_finished": Event(meaning="A statement ran.", fields=("table", "version", "query", "seconds", "note")),
    "ddl_near_copy": Event(
        meaning="A partition is emptied so soon after the table's copy that the copy may have rows from after it.",
        fields=("table", "version", "text"),
        levels=("warning",),
    ),
    "view_left_out": Event(
        meaning="A view could not be made; nothing waits for it.",
        fields=("table", "version", "error"),
        levels=("warning",),
    ),
    "ddl_foreign_key": Event(
        meaning="A foreign key held a statement up, so it was dropped or left out; no row needs one in the target.",
        fields=("table", "version", "text"),
        levels=("warning",),
    ),
    "ddl_waits": Event(
        meaning="Other sessions hold a lock that a statement needs. Its tables wait; the others go on.",
        fields=("table", "version", "error"),
        levels=("warning",),
    ),
    "ddl_blocked": Event(
        meaning="Other sessions hold locks that a statement needs. It is tried again; kill these connections if they "
        "do not end.",
        fields=("table", "version", "error", "blockers"),
        levels=("warning",),
    ),
    "ddl_lost": Event(
        meaning="The connection broke during a statement, or the target refused writes. The program first finds out "
        "whether the statement ran.",
        fields=("table", "version", "error"),
        levels=("warning",),
    ),
    "ddl_running": Event(
        meaning="The target still runs a statement whose connection is gone. The program waits for it, up to "
        "--ddl-patience.",
        fields=("table", "version", "query", "seconds", "blockers"),
        levels=("warning",),
    ),
    "ddl_settled": Event(
        meaning="A statement that came late was decided by an operator; its table goes on where it stopped.",
        fields=("table", "version", "query"),
    ),
    "row_quarantined": Event(
        meaning="The target refused rows of this table for what they hold; they are in the quarantine, and the table goes on without them. "
        "The fields after `rows`, their number, are those of the first one.",
        fields=("table", "rows", "key", "path", "row", "commit_ts", "error"),
        levels=("error",),
    ),
    "export_waiting": Event(
        meaning="The export that a new feed begins with is not finished; it is looked at again in each round.",
        fields=("text",),
        levels=("warning",),
    ),
    "export_started": Event(
        meaning="A new feed exports the tables of --source into the folder `path`; what follows is loaded from there.",
        fields=("path",),
    ),
    "export_goes_on": Event(
        meaning="So many rows of --source are exported by now; said every 10 s.",
        fields=("rows",),
    ),
    "export_finished": Event(
        meaning="The export of --source is complete, as of `checkpoint`.",
        fields=("path", "checkpoint", "rows", "files"),
    ),
    "load_started": Event(
        meaning="A table is loaded from a copy as of `checkpoint`; nothing else of it is done meanwhile.",
        fields=("table", "checkpoint", "files", "bytes"),
    ),
    "load_refused": Event(
        meaning="A copy that an operator wants to be loaded cannot be used, or no longer; the error says why.",
        fields=("table", "error"),
        levels=("error",),
    ),
    "load_waits": Event(
        meaning="A load has to wait, for a statement or for the store of its copy. The other tables go on.",
        fields=("table", "text"),
    ),
    "load_finished": Event(
        meaning="A table has all rows of its copy, and goes on with the changes after it.",
        fields=("table", "checkpoint", "files"),
    ),
    "row_retried": Event(
        meaning="A quarantined row was tried again, and is in its table now.",
        fields=("table", "key", "commit_ts"),
    ),
    "retry_refused": Event(
        meaning="A quarantined row was tried again, and stays in the quarantine; the error says why.",
        fields=("table", "key", "commit_ts", "error"),
        levels=("error",),
    ),
    "table_halted": Event(
        meaning="This table stops, the others go on; the error says what to do. `kind` is what stopped it: ddl, gate, file, gap, row, "
        "schema or name.",
        fields=("table", "checkpoint", "kind", "error"),
        levels=("error",),
    ),
    "report_failed": Event(
        meaning="What `status` shows could not be stored. Rounds go on; the next report is tried in a few seconds.",
        fields=("error",),
        levels=("warning",),
    ),
    "listening": Event(
        meaning="The HTTP server of --metrics-listen answers at this address.", fields=("address", "paths")
    ),
    "textfile_failed": Event(
        meaning="The file of --metrics-textfile could not be written; this is said once until it can be again. Rounds go on.",
        fields=("path", "error"),
        levels=("warning",),
    ),
    "page_failed": Event(
        meaning="A page of --metrics-listen could not be made; this is said once until it can be again. Rounds go on.",
        fields=("path", "error"),
        levels=("warning",),
    ),
    "decision_obeyed": Event(
        meaning="An operator's decision about a table took effect. Only after a reload: `checkpoint`, the TSO of the "
        "copy.",
        fields=("table", "verb", "decided_by", "checkpoint"),
    ),
    "decision_refused": Event(
        meaning="An operator's decision about a table has no effect; the error says why.",
        fields=("table", "verb", "decided_by", "error"),
        levels=("error",),
    ),
    "tables_halted": Event(
        meaning="Tables are halted; the first of them are named, with the error of the first. Repeated every ten "
        "minutes while it lasts.",
        fields=("halted", "halted_tables", "checkpoint", "checkpoint_running", "lag_seconds", "error"),
        levels=("error",),
    ),
    "table_waiting": Event(
        meaning="This table waits for something that should arrive.",
        fields=("table", "checkpoint", "error"),
        levels=("warning",),
    ),
    "table_resumed": Event(meaning="This table goes on.", fields=("table", "checkpoint")),
    "retry": Event(
        meaning="Storage or target did not answer; the program tries again after `wait` seconds. `since`: when this trouble "
        "began; --retry-limit counts from there.",
        fields=("what", "since", "wait", "error"),
        levels=("warning",),
    ),
    "round_started": Event(meaning="The next round begins to poll the bucket.", fields=("number",), levels=("debug",)),
    "round_progress": Event(
        meaning="A round, or a statement beside it, takes long; said every 30 seconds. `phase`: whether it lists the "
        "bucket (`poll`), applies rows, or waits for a statement. `bytes` are those of all `files`; `ddls` "
        "are the statements that it has to run; `expected_end` goes by the files and statements that are left. `query` is the longest-running of the `statements` that run.",
        fields=(
            *("phase", "seconds", "files_done", "files", "bytes", "rows", "rows_per_second", "storage_checkpoint"),
            *(
                "ddls_done",
                "ddls",
                "seconds_left",
                "expected_end",
                "statements",
                "table",
                "version",
                "query",
                "statement_seconds",
            ),
        ),
    ),
    "until_reached": Event(
        meaning="Every table that is not stopped has all changes up to `--until`; the run is over.",
        fields=("checkpoint", "storage_checkpoint"),
    ),
    "idle": Event(
        meaning="The last `rounds` had nothing to do, and nothing changed. Said every ten minutes while that lasts.",
        fields=(
            *("rounds", "checkpoint", "storage_checkpoint", "lag_seconds", "source_lag_seconds"),
            *("halted", "waiting"),
        ),
    ),
    "round_finished": Event(
        meaning="The bucket was polled, and everything that could be applied was applied. This is the line to watch. "
        "Rounds that had nothing to do are at level debug; see `idle`.",
        fields=(
            *("rows", "written", "files", "ddls", "seconds", "rows_per_second", "checkpoint", "storage_checkpoint"),
            *("checkpoint_running", "lag_seconds", "source_lag_seconds", "pending_files", "finished_files"),
            *("halted", "halted_tables", "paused", "waiting", "skipped", "ended_early"),
        ),
        levels=("debug", "info"),
    ),
}
"""All events. A test compares this table with the calls in the package."""

Listener = Callable[[str, int, Mapping[str, object]], None]
"""Gets an event's name, its level as a number of `logging`, and its fields, which may hold secrets and must not be changed."""

_listeners: tuple[Listener, ...] = ()
"""Replaced as a whole, never changed, so that any thread may read it."""
_listening = threading.Lock()
_telling = threading.local()
_around_write: Callable[[], AbstractContextManager[object]] = nullcontext


def listen(listener: Listener) -> Callable[[], None]:
    """Call `listener` for each event from now on, also for those below the log level; return a function that ends this.

    It is called in the thread that says the event, so it must return at once. What it raises is logged once and then ignored. Events
    that it says itself are logged, but no listener is called for them.
    """
    global _listeners  # noqa: PLW0603 - there is one log
    # An object of its own for each call: a listener that was added twice is removed once at a time.
    guarded = _Guarded(listener)
    with _listening:
        _listeners = (*_listeners, guarded)

    def remove() -> None:
        global _listeners  # noqa: PLW0603 - there is one log
        with _listening:
            _listeners = tuple(each for each in _listeners if each is not guarded)

    return remove


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Give what this thread says inside the block to `listener` alone: no log has it, nor any other listener."""
    before = getattr(_telling, "alone", None)
    _telling.alone = listener
    try:
        yield
    finally:
        _telling.alone = before


class _Guarded:
    """A listener that cannot disturb whoever says an event."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._has_failed = False

    def __call__(self, name: str, level: int, fields: Mapping[str, object]) -> None:
        try:
            self._listener(name, level, fields)
        except Exception as error:  # noqa: BLE001 - a fault of an observer is none of the observed
            # Once: it would fail the same way again, and perhaps for each event.
            if not self._has_failed:
                self._has_failed = True
                _log.warning("listener_failed", listener=repr(self._listener), error=f"{type(error).__name__}: {error}")


def _tell(name: str, level: int, fields: Mapping[str, object]) -> None:
    """Call all listeners, unless it is one of them that says the event: it would be called without end."""
    if getattr(_telling, "busy", False):
        return
    _telling.busy = True
    try:
        for listener in _listeners:
            listener(name, level, fields)
    finally:
        _telling.busy = False


class Log:
    """Logs the events of one component. Fields bound with `bind` are on each of its lines."""

    def __init__(self, component: str, **bound: object) -> None:
        """Log for `component`, the module or part that speaks."""
        self._logger = logging.getLogger(f"{ROOT}.{component}")
        self._bound = bound

    def bind(self, **fields: object) -> Log:
        """Return a log of the same component with more fields on each line."""
        return Log(self._logger.name.removeprefix(f"{ROOT}."), **{**self._bound, **fields})

    def debug(self, event: str, **fields: object) -> None:
        """Log an event for someone who looks for a fault."""
        self._say(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log an event of normal running."""
        self._say(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log that something is odd."""
        self._say(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log that something stopped; inside an `except`, level debug adds the traceback."""
        self._say(logging.ERROR, event, fields)

    def _say(self, level: int, event: str, fields: dict[str, object]) -> None:
        if (alone := getattr(_telling, "alone", None)) is not None:
            alone(event, level, {**self._bound, **fields})
            return
        # Before the filter: what is worth a line is another question than what happened.
        if _listeners:
            _tell(event, level, {**self._bound, **fields})
        if not self._logger.isEnabledFor(level):
            return
        # Not for each error: most name file, row and remedy, and a traceback adds nothing for an operator.
        trace = level >= logging.ERROR and self._logger.isEnabledFor(logging.DEBUG) and sys.exc_info()[0] is not None
        # The record carries event and fields as they are: our formatters take them from it, those of other programs get the text.
        self._logger.log(level, "%s", Said(event, {**self._bound, **fields}), exc_info=trace)


_log = Log("telemetry")


class _Stream(logging.StreamHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Standard error as it is at each line: a progress bar there steps aside for the write."""

    def emit(self, record: logging.LogRecord) -> None:
        # Tests and progress bars replace sys.stderr, so look it up for each line.
        self.stream = sys.stderr
        with _around_write():
            super().emit(record)


def around_writes(context: Callable[[], AbstractContextManager[object]] | None) -> None:
    """Open `context()` around each line written to standard error; None stops that."""
    global _around_write  # noqa: PLW0603 - there is one standard error
    _around_write = context or nullcontext


def configure(*, level: str = "info", file: str = "", style: str = "text") -> None:
    """Log to standard error or to `file`, replacing an earlier setup; raise `ConfigError` if the file cannot be opened."""
    handler: logging.Handler = _Stream()
    if file:
        try:
            # It opens the file again where another program has rotated it.
            handler = logging.handlers.WatchedFileHandler(file, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--log-file {file}: it cannot be written: {error.strerror}") from error
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    handler.set_name(ROOT)
    root = logging.getLogger()
    # Only our own: a program that uses the library keeps its handlers.
    for old in [each for each in root.handlers if each.get_name() == ROOT]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    logging.getLogger(ROOT).setLevel(LEVELS[level])
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # our own events report a broken connection
    logging.captureWarnings(capture=True)
