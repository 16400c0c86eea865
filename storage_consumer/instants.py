"""Instants as people type and read them: a TSO, or a time with its zone. One parser for all commands and options."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from storage_consumer.model import TSO_PHYSICAL_SHIFT

_LONGEST = 20
"""Digits of the largest 64-bit number."""
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def parse_instant(given: str) -> int:
    """Return the TSO of a text: a TSO in digits, or a time of RFC 3339 with its zone, such as ``2026-11-23T10:00:00Z``.

    A time is cut to milliseconds, and means the first TSO of its millisecond, as in TiDB's ``AS OF TIMESTAMP``. Raises ValueError, which
    says what is expected.
    """
    text = given.strip()
    if text.isascii() and text.isdecimal():
        if len(text) > _LONGEST or int(text) >= 1 << 64:
            raise ValueError(f"a TSO of 64 bits is expected, not {text[: _LONGEST + 1]}")
        return int(text)
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(
            f"a TSO or a time with its zone, such as 2026-11-23T10:00:00Z or 2026-11-23T18:00:00+08:00, is expected, not {given!r:.80}"
        )
    date, clock, fraction, zone = found.groups()
    if zone is None:
        raise ValueError(
            f"{given!r} has no time zone, so it may mean several instants: write {date}T{clock}Z for UTC, or {date}T{clock}+08:00"
        )
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{zone.upper().replace('Z', '+00:00')}")
        since = moment - _EPOCH
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{given!r} is no time: {error}") from None
    if since < timedelta():
        raise ValueError(f"{given!r} is before 1970, and a TSO counts from there")
    return (since // _MILLISECOND + int(f"{fraction or '':0<3}"[:3])) << TSO_PHYSICAL_SHIFT
