"""What the program logs: every event with its meaning and fields, and how it becomes a line of text or JSON.

Registered secrets are blanked in all values, messages and tracebacks, those of foreign loggers included.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import logging.handlers
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, quote_plus

from storage_consumer.errors import ConfigError

ROOT = "storage_consumer"
HIDDEN = "***"
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
_LEVEL_NAMES = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}
_NOISY = (
    *("py4j", "pyspark", "fsspec", "s3fs", "aiobotocore", "botocore", "urllib3", "asyncio"),
    *("gcsfs", "google", "adlfs", "azure", "aiohttp"),
)
_SHORT_SECRET = 4
_TSO_SHIFT = 18
_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s:/?#@\"']*):[^\s/@\"']+@")


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
        meaning="The program ends because of this error.", fields=("error", "kind", "exit_code"), levels=("error",)
    ),
    "notify_failed": Event(
        meaning="systemd could not be told how the service is; the work goes on. Logged once.",
        fields=("error",),
        levels=("warning",),
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
    "lease_acquired": Event(meaning="This process is the one writer.", fields=("holder", "epoch")),
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
    "table_halted": Event(
        meaning="This table stops, the others go on; the error says what to do.",
        fields=("table", "checkpoint", "error"),
        levels=("error",),
    ),
    "decision_obeyed": Event(
        meaning="An operator's decision about a table took effect; after a reload, `checkpoint` is the TSO of the "
        "copy.",
        fields=("table", "verb", "decided_by", "checkpoint"),
    ),
    "decision_refused": Event(
        meaning="An operator's decision about a table has no effect; the error says why.",
        fields=("table", "verb", "decided_by", "error"),
        levels=("error",),
    ),
    "tables_halted": Event(
        meaning="Tables are halted; the first of them are named. Repeated every ten minutes while it lasts.",
        fields=("halted", "halted_tables", "checkpoint", "checkpoint_running", "lag_seconds"),
        levels=("error",),
    ),
    "table_waiting": Event(
        meaning="This table waits for something that should arrive.",
        fields=("table", "checkpoint", "error"),
        levels=("warning",),
    ),
    "table_resumed": Event(meaning="This table goes on.", fields=("table", "checkpoint")),
    "retry": Event(
        meaning="Storage or target did not answer; the program tries again.",
        fields=("what", "wait", "error"),
        levels=("warning",),
    ),
    "round_finished": Event(
        meaning="The bucket was polled, and everything that could be applied was applied. This is the line to watch.",
        fields=(
            *("rows", "written", "files", "ddls", "seconds", "rows_per_second", "checkpoint", "storage_checkpoint"),
            *("checkpoint_running", "lag_seconds", "source_lag_seconds", "pending_files", "finished_files"),
            *("halted", "halted_tables", "waiting", "skipped"),
        ),
    ),
}
"""All events. A test compares this table with the calls in the package."""

TSO_FIELDS = frozenset({"checkpoint", "checkpoint_running", "storage_checkpoint", "commit_ts", "version"})
"""Fields whose numbers are TSOs: shown as number and time."""

UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal interprets instead of showing: control characters, line ends, and characters that change the writing direction."""

_secrets: dict[str, re.Pattern[str]] = {}
_around_write: Callable[[], AbstractContextManager[object]] = nullcontext


def register_secret(secret: str) -> None:
    """Blank `secret` wherever it would appear, also percent-encoded; a secret under 4 characters only as a whole word."""
    # A secret may appear as given, percent-encoded in a URI, or escaped in the repr of a foreign error.
    for spelling in {secret, quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]} - {""} - _secrets.keys():
        found = re.escape(spelling)
        # Blanking a secret like "a" inside of words would make every line unreadable.
        if len(spelling) < _SHORT_SECRET:
            found = rf"(?<!\w){found}(?!\w)"
        _secrets[spelling] = re.compile(found)


def forget_secrets() -> None:
    """Stop blanking all registered secrets."""
    _secrets.clear()


def redact(text: str) -> str:
    """Return the text without registered secrets and without passwords in URIs."""
    for spelling in sorted(_secrets, key=len, reverse=True):  # longest first: a short one may be part of a long one
        text = _secrets[spelling].sub(HIDDEN, text)
    # Passwords that nobody registered may be in a URI that a foreign library quotes.
    return _USERINFO.sub(rf"\1:{HIDDEN}@", text)


def escaped(text: str) -> str:
    r"""Return the text with each character of `UNSEEN` written as ``\u`` and its number; valid in JSON as well."""
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def lines_escaped(text: str) -> str:
    """Return the text as `escaped` does, but keep its line ends."""
    return "\n".join(map(escaped, text.split("\n")))


def json_text(document: object) -> str:
    """Return a document for another program, with secrets blanked in its texts; numbers and member names are unchanged."""
    return lines_escaped(json.dumps(_redacted(document), ensure_ascii=False, indent=2)) + "\n"


def _redacted(value: object) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redacted(item) for key, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, (list, tuple)) else value


def tso_time(ts: int) -> str:
    """Return the time of a TSO, in UTC to the millisecond: ``2026-01-31T10:00:00.123Z``."""
    return _utc((ts >> _TSO_SHIFT) / 1000)


def _utc(seconds: float) -> str:
    moment = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
        if not self._logger.isEnabledFor(level):
            return
        # Not for each error: most name file, row and remedy, and a traceback adds nothing for an operator.
        trace = level >= logging.ERROR and self._logger.isEnabledFor(logging.DEBUG) and sys.exc_info()[0] is not None
        # The record carries event and fields as they are: our formatters take them from it, those of other programs get the text.
        self._logger.log(level, "%s", _Said(event, {**self._bound, **fields}), exc_info=trace)


class _Said:
    """An event with its fields; its text is the line without time and level, for other formatters."""

    def __init__(self, event: str, fields: dict[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={_as_text(name, value)}" for name, value in self.fields.items())])


class TextFormatter(logging.Formatter):
    """``2026-01-31T10:00:00.123Z INFO round_finished rows=3 …``, one line per event (a traceback follows on its own lines)."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        level = _LEVEL_NAMES.get(record.levelno, record.levelname)
        trace = _trace(record)
        return f"{_utc(record.created)} {level} {_said(record)}" + (f"\n{trace}" if trace else "")


class JsonFormatter(logging.Formatter):
    """One JSON object per event; each TSO field has a second field with its time."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        said = _said(record)
        level = _LEVEL_NAMES.get(record.levelno, record.levelname)
        line: dict[str, object] = {"time": _utc(record.created), "level": level, "event": said.event}
        line["component"] = record.name.removeprefix(f"{ROOT}.")
        for name, value in said.fields.items():
            line[name] = _plain(value)
            if _is_tso(name, value):
                line[f"{name}_time"] = tso_time(value)  # type: ignore[arg-type]  # _is_tso has looked
        trace = _trace(record)
        if trace:
            line["traceback"] = trace
        return escaped(json.dumps(line, ensure_ascii=False))


def _said(record: logging.LogRecord) -> _Said:
    """Return event and fields; the message of a foreign logger becomes the text of a `log` event."""
    said = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return said if isinstance(said, _Said) else _Said("log", {"logger": record.name, "text": record.getMessage()})


def _is_tso(name: str, value: object) -> bool:
    return name in TSO_FIELDS and isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 64


def _plain(value: object) -> object:
    """Return a value as JSON takes it, without secrets; floats have three decimals."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {redact(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return redact(str(value))


def _as_text(name: str, value: object) -> str:
    if _is_tso(name, value):
        return f"{value} ({tso_time(value)})"  # type: ignore[arg-type]  # _is_tso has looked
    plain = _plain(value)
    if isinstance(plain, str):
        is_word = re.fullmatch(r"[^\s\"=]+", plain) and not UNSEEN.search(plain)
        return plain if is_word else escaped(json.dumps(plain, ensure_ascii=False))
    return escaped(json.dumps(plain, ensure_ascii=False))


def _trace(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return lines_escaped(redact("".join(traceback.format_exception(*record.exc_info)).rstrip()))


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
