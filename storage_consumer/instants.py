"""Instants as people type and read them: a TSO, or a time with its zone. One parser for all commands and options."""

from __future__ import annotations

import operator
import re
from datetime import UTC, datetime, timedelta
from typing import SupportsIndex

from storage_consumer.model import TSO_PHYSICAL_SHIFT

Instant = SupportsIndex | str | datetime
"""A TSO, a time of RFC 3339 with its zone or a TSO in digits, or a time that knows its zone."""
_LONGEST = 20
"""Digits of the largest 64-bit number."""
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})?", re.ASCII)
_SECONDS = 10**9
"""Numbers below are taken as they are; times of Unix begin here, in 2001."""
_FIRST = 1_420_070_400_000 << TSO_PHYSICAL_SHIFT
"""The TSO of 2015, before which there was no TiDB."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def tso_of_instant(instant: Instant, *, is_end: bool = False) -> int:
    """Return the TSO of an instant; see `parse_instant`. Raises ValueError."""
    if isinstance(instant, str):
        return parse_instant(instant, is_end=is_end)
    if not isinstance(instant, datetime):
        return _whole(instant)
    if instant.tzinfo is None:
        raise ValueError(f"{instant} has no time zone, so it may mean several instants")
    return _tso(instant - _EPOCH, str(instant), is_end=is_end)


def _whole(number: SupportsIndex) -> int:
    """Return a TSO of any type of whole numbers, such as NumPy's."""
    try:
        tso = -1 if isinstance(number, bool) else operator.index(number)
    except TypeError:
        tso = -1
    if not 0 <= tso < 1 << 64:
        raise ValueError(f"a TSO or a time is expected, not {number!r:.80}")
    if _SECONDS <= tso < _FIRST:
        raise ValueError(
            f"{tso} is no TSO of a TiDB: it would be from before 2015. Give a time of Unix as one with its zone, such as 2026-11-23T10:00:00Z"
        )
    return tso


def parse_instant(given: str, *, is_end: bool = False) -> int:
    """Return the TSO of a text: a TSO in digits, or a time of RFC 3339 with its zone, such as ``2026-11-23T10:00:00Z``.

    A time is cut to milliseconds, and means the first TSO of its millisecond, as in TiDB's ``AS OF TIMESTAMP``. `is_end`: it is the inclusive
    end of a window, and means the last one, since times of changes are shown cut to milliseconds too. Raises ValueError, which says what is
    expected.
    """
    text = given.strip()
    if text.isascii() and text.isdecimal():
        if len(text) > _LONGEST or int(text) >= 1 << 64:
            raise ValueError(f"a TSO of 64 bits is expected, not {text[: _LONGEST + 1]}")
        return _whole(int(text))
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
        since = moment - _EPOCH + int(f"{fraction or '':0<3}"[:3]) * _MILLISECOND
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{given!r} is no time: {error}") from None
    return _tso(since, repr(given), is_end=is_end)


def _tso(since: timedelta, shown: str, *, is_end: bool) -> int:
    """Return the first or the last TSO of the millisecond at a distance from 1970."""
    if since < timedelta():
        raise ValueError(f"{shown} is before 1970, and a TSO counts from there")
    milliseconds = since // _MILLISECOND
    return (milliseconds + 1 << TSO_PHYSICAL_SHIFT) - 1 if is_end else milliseconds << TSO_PHYSICAL_SHIFT
