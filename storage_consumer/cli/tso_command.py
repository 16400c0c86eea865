"""The command `tso`: a TSO as a time, and a time as a TSO."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from storage_consumer.cli.answer import Answer, told
from storage_consumer.cli.verbs import TsoFlags
from storage_consumer.errors import ConfigError
from storage_consumer.model import TSO_PHYSICAL_SHIFT, physical_ms, tso_of
from storage_consumer.session import Session
from storage_consumer.telemetry import tso_time
from storage_consumer.tso import parse_instant

_NOW = "now"
_FIRST_MS = 946_684_800_000
"""Milliseconds of the year 2000, long before TiDB: a TSO below is likely a mistake."""


def answer(own: TsoFlags, _session: Session) -> Answer:
    """Return the instants of the words; raise `ConfigError` for one that is neither a TSO nor a time."""
    zone = _zone(own.tz) if own.tz else None
    # Several words `now` are one instant.
    now = time.time()
    found = [_instant(word, now, zone) for word in own.words or [_NOW]]
    lines = (line for each in found for line in _lines(each))
    return told(own, {"instants": found}, lines)


def _instant(word: str, now: float, zone: tzinfo | None) -> dict[str, Any]:
    try:
        tso = tso_of(now) if word.strip().lower() == _NOW else parse_instant(word)
    except ValueError as error:
        raise ConfigError(f"tso: {error}") from None
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=physical_ms(tso))
    return {
        "given": word,
        "tso": tso,
        "utc": tso_time(tso),
        "local": moment.astimezone(zone).isoformat(timespec="milliseconds") if zone else None,
        "physical_ms": physical_ms(tso),
        "logical": tso & ((1 << TSO_PHYSICAL_SHIFT) - 1),
    }


def _lines(each: Mapping[str, Any]) -> Iterator[str]:
    local = f"  {each['local']}" if each["local"] else ""
    yield f"{each['tso']}  {each['utc']}{local}  logical {each['logical']}"
    if each["physical_ms"] < _FIRST_MS:
        yield (
            f"  note: {each['given']} as a TSO is a time before 2000; if it is a Unix time, give it as a time such as "
            "2026-11-23T10:00:00Z"
        )


def _zone(known: str) -> tzinfo:
    if known == "System":
        raise ConfigError("--tz: name the zone, such as Asia/Shanghai or +08:00")
    if known[0] in "+-":
        hours, minutes = (int(part) for part in known[1:].split(":"))
        return timezone((-1 if known[0] == "-" else 1) * timedelta(hours=hours, minutes=minutes))
    return ZoneInfo(known)
