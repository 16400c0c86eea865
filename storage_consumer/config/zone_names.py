"""Abbreviations such as CST, which several time zones share: their possible meanings, by the tables of the time zone database.

Its table of current zones has one name, that of the largest city, for all zones whose clocks agree.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

_PACKAGE, _TABLE = "tzdata", "zoneinfo/zonenow.tab"
_NAMES = 2
"""Index of the column with the zone's name."""
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})
_Year = tuple[dt.timedelta | None, ...]
"""The offsets of a zone over a year."""


def is_zone(name: str) -> bool:
    """Return whether this is a zone's name, and not that of a table, or of a clock that counts leap seconds."""
    if name in _NO_ZONES or name.startswith("right/"):
        return False
    try:
        zoneinfo.ZoneInfo(name)
    # A folder of zones, such as Europe, raises an OSError.
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def meant_by(word: str) -> tuple[str, ...]:
    """Return the zones that have this abbreviation now, with their offsets; none if it is not an abbreviation."""
    return tuple(
        f"{name} ({_shown(offsets)})" for name, abbreviations, offsets in _zones() if word.upper() in abbreviations
    )


def others_of(zone: str) -> tuple[str, ...]:
    """Return the zones that have this zone's name as their abbreviation, but not its offsets all year."""
    # Not an abbreviation of another zone, or of any: avoid reading the table.
    if zone == "UTC" or not zone.isalpha():
        return ()
    # Offsets are compared, not names: zones whose clocks agree all year mean the same.
    own = _year_of(zone)[1]
    return tuple(name for name, abbreviations, offsets in _zones() if zone.upper() in abbreviations and offsets != own)


@lru_cache(maxsize=1)
def _zones() -> tuple[tuple[str, frozenset[str], _Year], ...]:
    """Return name, abbreviations and offsets of each zone of the table, for the current year."""
    return tuple((name, *_year_of(name)) for name in _names())


def _names() -> Iterator[str]:
    """Yield the names in the table; none if its package is not installed."""
    try:
        text = files(_PACKAGE).joinpath(_TABLE).read_text(encoding="utf-8")
    except (ModuleNotFoundError, OSError):
        return
    for line in text.splitlines():
        columns = line.split("\t")
        if not line.startswith("#") and len(columns) > _NAMES and is_zone(columns[_NAMES]):
            yield columns[_NAMES]


def _year_of(name: str) -> tuple[frozenset[str], _Year]:
    zone = zoneinfo.ZoneInfo(name)
    year = dt.datetime.now(tz=dt.UTC).year
    moments = [
        # Two days of each month: often enough to meet an offset that lasts for one month only.
        dt.datetime(year, month, day, tzinfo=dt.UTC).astimezone(zone)
        for month in range(1, 13)
        for day in (1, 15)
    ]
    names = (moment.tzname() or "" for moment in moments)
    return frozenset(one.upper() for one in names), tuple(moment.utcoffset() for moment in moments)


def _shown(offsets: _Year) -> str:
    """Return the offsets of a year, the standard one first if there are two."""
    seconds = sorted({int(one.total_seconds()) for one in offsets if one is not None})
    return " and ".join(f"{'-' if one < 0 else '+'}{abs(one) // 3600:02d}:{abs(one) // 60 % 60:02d}" for one in seconds)
