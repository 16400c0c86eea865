"""The command `tso`: a TSO as a time, and a time as a TSO."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from storage_consumer.cli.answer import Answer
from storage_consumer.cli.verbs import TsoFlags
from storage_consumer.errors import ConfigError
from storage_consumer.instants import parse_instant
from storage_consumer.model import TSO_PHYSICAL_SHIFT, physical_ms, tso_of
from storage_consumer.operating.session import Session
from storage_consumer.telemetry import json_text, tso_time

_NOW = "now"
_FIRST_MS = 946_684_800_000
"""Milliseconds of the year 2000, long before TiDB: a TSO below is likely a mistake."""


@dataclass(frozen=True, slots=True)
class _Instant:
    """One instant that was asked for."""

    given: str
    tso: int

    @property
    def logical(self) -> int:
        """The logical part."""
        return self.tso & ((1 << TSO_PHYSICAL_SHIFT) - 1)

    def local(self, zone: tzinfo | None) -> str:
        """Return the time in a zone, as `tso_time` shows it in UTC; empty without a zone."""
        if zone is None:
            return ""
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=physical_ms(self.tso))
        return moment.astimezone(zone).isoformat(timespec="milliseconds")

    @property
    def doubt(self) -> str:
        """What may be wrong with it; empty if nothing is."""
        if physical_ms(self.tso) >= _FIRST_MS:
            return ""
        return f"{self.given} as a TSO is a time before 2000; if it is a Unix time, give it as a time such as 2026-11-23T10:00:00Z"


def answer(own: TsoFlags, _session: Session) -> Answer:
    """Return the instants of the words; raise `ConfigError` for one that is neither a TSO nor a time."""
    zone = _zone(own.tz) if own.tz else None
    # Several words `now` are one instant.
    now = time.time()
    found = [_instant(word, now) for word in own.words or [_NOW]]
    return Answer(_document(found, zone) if own.json else _lines(found, zone))


def _instant(word: str, now: float) -> _Instant:
    try:
        return _Instant(word, tso_of(now) if word.strip().lower() == _NOW else parse_instant(word))
    except ValueError as error:
        raise ConfigError(f"tso: {error}") from None


def _zone(known: str) -> tzinfo:
    if known == "System":
        raise ConfigError("--tz: name the zone, such as Asia/Shanghai or +08:00")
    if known[0] in "+-":
        hours, minutes = (int(part) for part in known[1:].split(":"))
        return timezone((-1 if known[0] == "-" else 1) * timedelta(hours=hours, minutes=minutes))
    return ZoneInfo(known)


def _lines(found: Sequence[_Instant], zone: tzinfo | None) -> str:
    lines = []
    for each in found:
        local = f"  {each.local(zone)}" if zone else ""
        lines.append(f"{each.tso}  {tso_time(each.tso)}{local}  logical {each.logical}")
        lines += [f"  note: {each.doubt}"] if each.doubt else []
    return "\n".join(lines) + "\n"


def _document(found: Sequence[_Instant], zone: tzinfo | None) -> str:
    return json_text(
        {
            "instants": [
                {
                    "given": each.given,
                    "tso": each.tso,
                    "utc": tso_time(each.tso),
                    "local": each.local(zone) or None,
                    "physical_ms": physical_ms(each.tso),
                    "logical": each.logical,
                }
                for each in found
            ]
        }
    )
