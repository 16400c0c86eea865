"""The zone in which TiCDC rendered TIMESTAMP values, and their conversion on the way to the target.

A fixed offset is left to the target's session, which reads the values in it. Servers need not know zones by name, so
values in such a zone become UTC during decoding, and the session's zone is UTC.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Callable
from functools import lru_cache, partial

UTC = "+00:00"
_UTC_NAMES = frozenset(("", "UTC", "ETC/UTC", "Z"))
_OFFSET = re.compile(r"[-+](?:0\d|1[0-2]):[0-5]\d", re.ASCII)
"""The offsets that every server accepts as a session's zone."""
_ANY_OFFSET = re.compile(r"([-+])(\d\d):(\d\d)", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d{1,6})?", re.ASCII)
_ZERO = "0000-00-00 00:00:00"


def session_zone(zone: str) -> str:
    """Return the session zone, as an offset, for rows of a bucket whose TIMESTAMP values are in `zone` (empty: not known)."""
    return zone if _OFFSET.fullmatch(zone) else UTC


def is_utc(zone: str) -> bool:
    """Return whether TIMESTAMP values of this zone (empty: not known) are those of UTC already."""
    return zone.upper() in _UTC_NAMES or zone == UTC


def converted_zone(zone: str) -> str:
    """Return `zone` if its TIMESTAMP values must become UTC during decoding; empty if the session's zone suffices."""
    # UTC and offsets within the servers' range need no conversion: the session's zone takes care of them.
    return "" if zone.upper() in _UTC_NAMES or _OFFSET.fullmatch(zone) else zone


def offset_at(zone: str, milliseconds: int) -> str:
    """Return the offset in force in `zone` at a time in milliseconds since 1970 UTC, to the minute, as a session's zone."""
    if not converted_zone(zone):
        return session_zone(zone)
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, tz=_info(zone))
    offset = moment.utcoffset() or dt.timedelta()
    # Rounded down, since sessions take no seconds; zones had them before they were standardized.
    minutes = int(offset.total_seconds() // 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def zone_caveat(zone: str) -> str:
    """Return what is ambiguous in a zone whose clocks are set back, or an empty text; judged by the offsets of one recent year."""
    if not converted_zone(zone):
        return ""
    months = (dt.datetime(2025, month, 1, tzinfo=_info(zone)) for month in range(1, 13))
    if len({moment.utcoffset() for moment in months}) == 1:
        return ""
    return (
        f"in {zone} an hour occurs twice when the clocks are put back: a TIMESTAMP value in it is read as the first "
        "of the two, because the files do not distinguish them; TiCDC servers that run in UTC (their option --tz) "
        "avoid this"
    )


def utc_of(zone: str, text: str) -> str:
    """Return the same time in UTC; a zero date stays as it is. Raise `ValueError` for text that is not a date and time.

    Offsets count to the second. A wall-clock time that occurred twice, when the clocks were set back, is taken for the
    first of the two: the text does not tell them apart.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a date and time")
    # Cached by the second: offsets leave the fraction as it is.
    return _utc_second(zone, found[1]) + (found[2] or "")


def from_utc(zone: str, text: str) -> str:
    """Return the same time as wall-clock time of `zone`; a zero date stays. Raise `ValueError` for text that is not one."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a date and time")
    # MySQL's zero date is no date of any calendar, and the same in every zone.
    if found[1] == _ZERO:
        return text
    moment = dt.datetime.fromisoformat(found[1]).replace(tzinfo=dt.UTC)
    info = dt.UTC if zone.upper() in _UTC_NAMES else _info(zone)
    return moment.astimezone(info).replace(tzinfo=None).isoformat(" ") + (found[2] or "")


def occurs_twice(zone: str, text: str) -> bool:
    """Return whether a wall-clock time of `zone` occurred twice, when the clocks were set back."""
    found = _MOMENT.fullmatch(text)
    return found is not None and _is_twofold(zone, found[1])


@lru_cache(maxsize=1 << 15)
def _is_twofold(zone: str, text: str) -> bool:
    if text == _ZERO or zone.upper() in _UTC_NAMES:
        return False
    # `fold` chooses the second of two equal wall-clock times. It also changes the offset of times that the clocks
    # skipped, which no server writes.
    first = dt.datetime.fromisoformat(text).replace(tzinfo=_info(zone))
    return first.utcoffset() != first.replace(fold=1).utcoffset()


def between(zone: str, into: str, text: str) -> str:
    """Return the same time of `zone` as wall-clock time of another one; see `utc_of` and `from_utc`."""
    return from_utc(into, utc_of(zone, text))


def to_session(zone: str, session: str, *, tells_rows: bool = False) -> partial[str]:
    """Return `between` from one zone to that of a session, or `utc_of` where that is UTC.

    `tells_rows`: rows are told apart by the times, so the function raises `ValueError` for one that occurred twice.
    """
    convert = partial(utc_of, zone) if session == UTC else partial(between, zone, session)
    return partial(_unless_twofold, zone, convert) if tells_rows else convert


def _unless_twofold(zone: str, convert: Callable[[str], str], text: str) -> str:
    if occurs_twice(zone, text):
        raise ValueError(
            f"{text!r} occurred twice in {zone}, when the clocks were set back, and the column is part of a unique key: the file does "
            "not say which of two rows this is. Load the table anew from a copy that was made after that hour (storage-consumer "
            "load), and let the TiCDC servers run in UTC (their option --tz), where no time occurs twice"
        )
    return convert(text)


@lru_cache(maxsize=1 << 15)
def _utc_second(zone: str, text: str) -> str:
    if text == _ZERO:
        return text
    # Without `fold`, Python takes the first of two equal wall-clock times.
    local = dt.datetime.fromisoformat(text).replace(tzinfo=_info(zone))
    try:
        return local.astimezone(dt.UTC).replace(tzinfo=None).isoformat(" ")
    except OverflowError as error:
        raise ValueError(f"{text!r} is not a date and time of the calendar in UTC") from error


@lru_cache(maxsize=8)
def _info(zone: str) -> dt.tzinfo:
    fixed = _ANY_OFFSET.fullmatch(zone)
    if fixed is None:
        return zoneinfo.ZoneInfo(zone)
    offset = dt.timedelta(hours=int(fixed[2]), minutes=int(fixed[3]))
    return dt.timezone(-offset if fixed[1] == "-" else offset)
