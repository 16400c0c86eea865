"""How an event becomes a line: of text, or of JSON."""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import traceback
from collections.abc import Mapping

from storage_consumer.redaction import UNSEEN, escaped, redact

ROOT = "storage_consumer"
_LEVEL_NAMES = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}
_TSO_SHIFT = 18
_WORD = re.compile(r"[^\s\"=]+")

TSO_FIELDS = frozenset({"checkpoint", "checkpoint_running", "storage_checkpoint", "commit_ts", "version"})
"""Fields whose numbers are TSOs: shown as number and time."""


def tso_time(ts: int) -> str:
    """Return the time of a TSO, in UTC to the millisecond: ``2026-01-31T10:00:00.123Z``."""
    return utc_time((ts >> _TSO_SHIFT) / 1000)


def utc_time(seconds: float) -> str:
    """Return a time, given in seconds since 1970, as `tso_time` shows it."""
    moment = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Said:
    """An event with its fields; its text is the line without time and level, for other formatters."""

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        """Keep the event's name, and its fields as they were given."""
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return " ".join(filter(None, (self.event, _logfmt(self.shown()))))

    def shown(self) -> dict[str, object]:
        """Return the fields as JSON takes them, without secrets; each TSO is followed by its time."""
        shown: dict[str, object] = {}
        for name, value in self.fields.items():
            shown[name] = _plain(value)
            if _is_tso(name, value):
                shown[f"{name}_time"] = tso_time(value)  # type: ignore[arg-type]  # _is_tso has looked
        return shown


class TextFormatter(logging.Formatter):
    """One line of logfmt per event: ``time=2026-01-31T10:00:00.123Z level=INFO event=round_finished rows=3 …``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        trace = _trace(record)
        return f"{_logfmt(_head(record))} event={_said(record)}" + (
            f" {_logfmt({'traceback': trace})}" if trace else ""
        )


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
    return {"time": utc_time(record.created), "level": _LEVEL_NAMES.get(record.levelno, record.levelname)}


def _said(record: logging.LogRecord) -> Said:
    """Return event and fields; the message of a foreign logger becomes the text of a `log` event."""
    said = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return said if isinstance(said, Said) else Said("log", {"logger": record.name, "text": record.getMessage()})


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


def _logfmt(fields: Mapping[str, object]) -> str:
    return " ".join(f"{name}={_as_text(value)}" for name, value in fields.items())


def _as_text(value: object) -> str:
    """Return a value as logfmt has it: as JSON, and in quotes unless it is one word."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    is_word = _WORD.fullmatch(text) and not UNSEEN.search(text)
    return text if is_word else escaped(json.dumps(text, ensure_ascii=False))


def _trace(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return redact("".join(traceback.format_exception(*record.exc_info)).rstrip())
