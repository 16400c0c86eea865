"""What the program logs: events as lines, where they go, and who else receives them.

``docs/reference/log-events.md`` declares every event with its meaning and fields. Registered
secrets are blanked in all values, messages and tracebacks, those of foreign loggers included, and
characters that a terminal would interpret are escaped.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import logging.handlers
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from urllib.parse import quote, quote_plus

from storage_consumer.errors import ConfigError
from storage_consumer.model import TSO_PHYSICAL_SHIFT

HIDDEN = "***"
_SHORT_SECRET = 4
# The scheme is not matched: finding its start takes quadratic time in a long word.
_USERINFO = re.compile(r"(://[^\s:/?#@\"']*):[^\s/@\"']+@")
_SIGNED = re.compile(
    r"([?&;][\w%.-]{0,40}?(?:signature|token|credential|accesskeyid|accessid|\bsig)=)[^\s&;\"'<>]+",
    re.IGNORECASE,
)
"""A secret among the parameters of a URL that somebody else signed."""

UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What terminals do not show: control characters, line ends, changes of direction."""

_secrets: dict[str, re.Pattern[str]] = {}


def register_secret(secret: str) -> None:
    """Blank `secret` everywhere, also percent-encoded; under 4 characters, as a whole word."""
    # As given, percent-encoded in a URI, or escaped in the repr of a foreign error.
    for spelling in (
        {secret, quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]}
        - {""}
        - _secrets.keys()
    ):
        found = re.escape(spelling)
        # Blanking a secret like "a" inside of words would make every line unreadable.
        if len(spelling) < _SHORT_SECRET:
            found = rf"(?<!\w){found}(?!\w)"
        _secrets[spelling] = re.compile(found)


def forget_secrets() -> None:
    """Stop blanking all registered secrets."""
    _secrets.clear()


def redact(text: str) -> str:
    """Return the text without registered secrets, and without passwords and signatures in URIs."""
    # longest first: a short one may be part of a long one
    for spelling in sorted(_secrets, key=len, reverse=True):
        text = _secrets[spelling].sub(HIDDEN, text)
    # Secrets that nobody registered may be in a URI that a foreign library quotes.
    return _SIGNED.sub(rf"\1{HIDDEN}", _USERINFO.sub(rf"\1:{HIDDEN}@", text))


def escaped(text: str) -> str:
    r"""Return the text with `UNSEEN` characters as ``\u`` and number; valid in JSON, too."""
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def lines_escaped(text: str) -> str:
    """Return the text as `escaped` does, but keep its line ends."""
    return "\n".join(map(escaped, text.split("\n")))


def json_text(document: object) -> str:
    """Return a document with secrets blanked in texts, not in numbers and member names."""
    return lines_escaped(json.dumps(_redacted(document), ensure_ascii=False, indent=2)) + "\n"


def _redacted(value: object) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redacted(item) for key, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, (list, tuple)) else value


ROOT = "storage_consumer"
_LEVEL_NAMES = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}
_WORD = re.compile(r"[^\s\"=]+")

TSO_FIELDS = frozenset(
    {"checkpoint", "checkpoint_running", "storage_checkpoint", "commit_ts", "version"}
)
"""Fields whose numbers are TSOs: shown as number and time."""


def tso_time(ts: int) -> str:
    """Return the time of a TSO, in UTC to the millisecond: ``2026-01-31T10:00:00.123Z``."""
    return utc_time((ts >> TSO_PHYSICAL_SHIFT) / 1000)


def utc_time(seconds: float) -> str:
    """Return a time, given in seconds since 1970, as `tso_time` shows it."""
    moment = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Said:
    """An event with its fields; its text is the line without time and level."""

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        """Keep the event's name, and its fields as they were given."""
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join(filter(None, (self.event, _logfmt(self.shown()))))

    def shown(self) -> dict[str, object]:
        """Return the fields for JSON, without secrets; each TSO is followed by its time."""
        shown: dict[str, object] = {}
        for name, value in self.fields.items():
            shown[name] = _plain(value)
            is_number = (
                name in TSO_FIELDS and isinstance(value, int) and not isinstance(value, bool)
            )
            if is_number and 0 < value < 1 << 64:  # type: ignore[operator]  # it is a number
                shown[f"{name}_time"] = tso_time(value)  # type: ignore[arg-type]  # likewise
        return shown


class TextFormatter(logging.Formatter):
    """One line of logfmt per event.

    Such as ``time=2026-01-31T10:00:00.123Z level=INFO event=round_finished rows=3 …``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        head, trace = _logfmt(_head(record)), _trace(record)
        said = _said(record)
        return f"{head} event={said}" + (f" traceback={_as_text(trace)}" if trace else "")


class JsonFormatter(logging.Formatter):
    """One JSON object per event; each TSO field has a second field with its time."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        said = _said(record)
        component = record.name.removeprefix(f"{ROOT}.")
        line = {**_head(record), "event": said.event, "component": component, **said.shown()}
        trace = _trace(record)
        if trace:
            line["traceback"] = trace
        return escaped(json.dumps(line, ensure_ascii=False))


def _head(record: logging.LogRecord) -> dict[str, object]:
    return {
        "time": utc_time(record.created),
        "level": _LEVEL_NAMES.get(record.levelno, record.levelname),
    }


def _said(record: logging.LogRecord) -> Said:
    """Return event and fields; a foreign logger's message is the text of a `log` event."""
    said = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return (
        said
        if isinstance(said, Said)
        else Said("log", {"logger": record.name, "text": record.getMessage()})
    )


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


def _logfmt(fields: Mapping[str, object]) -> str:
    return " ".join(f"{name}={_as_text(value)}" for name, value in fields.items())


def _as_text(value: object) -> str:
    """Return a value as logfmt has it: as JSON, and in quotes unless it is one word."""
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
    is_word = _WORD.fullmatch(text) and not UNSEEN.search(text)
    return text if is_word else escaped(json.dumps(text, ensure_ascii=False))


def _trace(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return redact("".join(traceback.format_exception(*record.exc_info)).rstrip())


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


Listener = Callable[[str, int, Mapping[str, object]], None]
"""Gets event, `logging` level, fields, maybe with secrets, which it must not change."""

_listeners: tuple[Listener, ...] = ()
"""Replaced as a whole, never changed, so that any thread may read it."""
_listening = threading.Lock()
_telling = threading.local()
_around_write: Callable[[], AbstractContextManager[object]] = nullcontext


def listen(listener: Listener) -> Callable[[], None]:
    """Call `listener` for each event from now on, below the log level too.

    Return a function that ends this.

    It is called in the thread that says the event, so it must return at once. What it raises is
    logged once and then ignored. Events that it says itself are logged, but no listener is called
    for them.
    """
    global _listeners  # noqa: PLW0603 - there is one log
    has_failed = False

    # One function per call: a listener that was added twice is removed once at a time.
    def guarded(name: str, level: int, fields: Mapping[str, object]) -> None:
        nonlocal has_failed
        try:
            listener(name, level, fields)
        except Exception as error:  # noqa: BLE001 - a fault of an observer is none of the observed
            # Once: it would fail the same way again, and perhaps for each event.
            if not has_failed:
                has_failed = True
                _log.warning(
                    "listener_failed",
                    listener=repr(listener),
                    error=f"{type(error).__name__}: {error}",
                )

    with _listening:
        _listeners = (*_listeners, guarded)

    def remove() -> None:
        global _listeners  # noqa: PLW0603 - there is one log
        with _listening:
            _listeners = tuple(each for each in _listeners if each is not guarded)

    return remove


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Give this thread's events inside the block to `listener` alone, not to any log."""
    before = getattr(_telling, "alone", None)
    _telling.alone = listener
    try:
        yield
    finally:
        _telling.alone = before


class Log:
    """Logs the events of one component."""

    def __init__(self, component: str) -> None:
        """Log for `component`, the module or part that speaks."""
        self._logger = logging.getLogger(f"{ROOT}.{component}")

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
            alone(event, level, fields)
            return
        # Before the filter: what is worth a line is another question than what happened.
        # A listener that says an event is not called for it: it would be called without end.
        if _listeners and not getattr(_telling, "busy", False):
            _telling.busy = True
            try:
                for listener in _listeners:
                    listener(event, level, fields)
            finally:
                _telling.busy = False
        if not self._logger.isEnabledFor(level):
            return
        # Not for each error: most name file, row and remedy, which a traceback adds nothing to.
        trace = (
            level >= logging.ERROR
            and self._logger.isEnabledFor(logging.DEBUG)
            and sys.exc_info()[0] is not None
        )
        # The record carries event and fields as they are: our formatters take them from it, those
        # of other programs get the text.
        self._logger.log(level, "%s", Said(event, fields), exc_info=trace)


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
    """Log to standard error or `file`, anew; raise `ConfigError` if it cannot be opened."""
    handler: logging.Handler = _Stream()
    if file:
        try:
            # It opens the file again where another program has rotated it.
            handler = logging.handlers.WatchedFileHandler(file, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"--log-file {file}: it cannot be written: {error.strerror}"
            ) from error
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
    # our own events report a broken connection
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    logging.captureWarnings(capture=True)
