"""Names of time zones that are abbreviations: refused, or told of."""

from __future__ import annotations

import zoneinfo

import pytest

from storage_consumer.config import parsers, zone_names
from storage_consumer.config.load import load


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        (
            "CST",
            ("America/Chicago (-06:00 and -05:00)", "Asia/Shanghai (+08:00)", "America/Havana (-05:00 and -04:00)"),
        ),
        ("cst", ("America/Chicago (-06:00 and -05:00)", "Asia/Shanghai (+08:00)")),
        ("CDT", ("America/Chicago (-06:00 and -05:00)",)),
        ("IST", ("Asia/Kolkata (+05:30)", "Asia/Jerusalem (+02:00 and +03:00)", "Europe/Dublin (+00:00 and +01:00)")),
        ("PST", ("America/Los_Angeles (-08:00 and -07:00)", "Asia/Manila (+08:00)")),
        ("BST", ("Europe/London (+00:00 and +01:00)",)),
        ("MSK", ("Europe/Moscow (+03:00)",)),
        ("JST", ("Asia/Tokyo (+09:00)",)),
        ("EDT", ("America/New_York (-05:00 and -04:00)",)),
        ("CEST", ("Europe/Paris (+01:00 and +02:00)",)),
    ],
)
def test_abbreviations_are_no_zones(word: str, meant: tuple[str, ...]) -> None:
    """An abbreviation is refused with all zones that it may mean and what their clocks show, and never with one that only looks alike."""
    with pytest.raises(ValueError, match="an abbreviation that does not identify the zone") as caught:
        parsers.time_zone(word)
    assert all(one in str(caught.value) for one in meant)
    assert "did you mean" not in str(caught.value)


def test_no_abbreviation_passes() -> None:
    """Of all abbreviations in use, those that are no zone of that name are refused with a zone that has it."""
    words = {word for _, words, _ in zone_names._zones() for word in words if word[0] not in "+-"}
    assert len(words) > 40
    for word in words - zoneinfo.available_timezones():
        with pytest.raises(ValueError, match="an abbreviation"):
            parsers.time_zone(word)


@pytest.mark.parametrize("name", ["localtime", "posixrules", "right/UTC", "Factory"])
def test_files_of_the_database_that_are_no_zones(name: str) -> None:
    """What lies beside the zones is refused: a copy of this host's zone, rules, clocks that count leap seconds."""
    with pytest.raises(ValueError, match="a time zone like"):
        parsers.time_zone(name)


@pytest.mark.parametrize(
    ("zone", "others"),
    [
        *(("EST", "America/New_York"), ("MST", "America/Denver"), ("HST", "America/Adak"), ("CET", "Africa/Algiers")),
        *(
            ("EET", "Africa/Cairo"),
            ("GMT", "Europe/London"),
            ("UTC", ""),
            ("WET", ""),
            ("MET", ""),
            ("Asia/Shanghai", ""),
        ),
        *(("+08:00", ""), ("PRC", ""), ("EST5EDT", "")),
    ],
)
def test_zones_whose_name_is_an_abbreviation(zone: str, others: str) -> None:
    """They mean what they mean to TiCDC, the zone of that name; where others call their time so, that is told."""
    loaded = load({"upstream_uri": "file:///bucket?protocol=csv", "downstream_uri": "mysql://h:1/", "tz": zone}, {})
    assert loaded.config.upstream.time_zone == zone
    told = [text for text in loaded.notices if "taken as the zone of that name" in text]
    assert bool(told) == bool(others)
    assert others in "".join(told)
