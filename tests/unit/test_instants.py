"""Instants as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from storage_consumer.telemetry import tso_time
from storage_consumer.tso import parse_instant, tso_of_instant


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2026-11-23T10:00:00Z", "2026-11-23T10:00:00.000Z"),
        ("2026-11-23t10:00:00z", "2026-11-23T10:00:00.000Z"),
        (" 2026-11-23 10:00:00Z ", "2026-11-23T10:00:00.000Z"),
        ("2026-11-23T18:00:00+08:00", "2026-11-23T10:00:00.000Z"),
        ("2026-11-23T10:00:00.1Z", "2026-11-23T10:00:00.100Z"),
        ("2026-11-23T10:00:00.123999999Z", "2026-11-23T10:00:00.123Z"),
    ],
)
def test_a_time(given: str, shown: str) -> None:
    """A time with its zone is the first TSO of its millisecond."""
    found = parse_instant(given)
    assert (tso_time(found), found & (1 << 18) - 1) == (shown, 0)


def test_a_time_as_an_end() -> None:
    """It is the last TSO of its millisecond, so what is shown with that very time lies before it; a TSO is the end as it stands."""
    shown = tso_time(470607624365932545)
    assert parse_instant(shown) < 470607624365932545 < parse_instant(shown, is_end=True)
    assert parse_instant(shown, is_end=True) == parse_instant(shown) + (1 << 18) - 1
    assert tso_time(parse_instant(shown, is_end=True)) == shown
    assert parse_instant("470607624365932545", is_end=True) == 470607624365932545


def test_instants_of_python() -> None:
    """A number is a TSO, a text what `parse_instant` says, and a time that knows its zone means its millisecond, without a rounding error."""
    assert tso_of_instant(5) == tso_of_instant(5, is_end=True) == tso_of_instant(" 5 ") == 5
    for milliseconds in range(1_790_000_000_000, 1_790_000_001_000):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds, microseconds=999)
        assert tso_of_instant(moment) == milliseconds << 18
        assert tso_of_instant(moment, is_end=True) == (milliseconds + 1 << 18) - 1
    there = datetime(2026, 11, 23, 18, tzinfo=timezone(timedelta(hours=8)))
    assert tso_of_instant(there) == tso_of_instant("2026-11-23T10:00:00Z")
    with pytest.raises(ValueError, match="has no time zone"):
        tso_of_instant(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(ValueError, match="before 1970"):
        tso_of_instant(datetime(1969, 12, 31, tzinfo=UTC))


@pytest.mark.parametrize(
    "given", ["1795225423", "1795225423000", "1795225423000000", "47060757347224780"], ids=["s", "ms", "us", "lost"]
)
def test_a_number_that_no_tidb_can_have_given(given: str) -> None:
    """A time of Unix, and a TSO that lost a digit, are refused: as a TSO each is of a time before TiDB, so a window would be another one."""
    for instant in (given, int(given)):
        with pytest.raises(ValueError, match=f"{given} is no TSO of a TiDB"):
            tso_of_instant(instant)


class Whole:
    """A whole number of another library."""

    def __index__(self) -> int:
        """It is 5."""
        return 5


@pytest.mark.parametrize("wrong", [True, -3, 2**64, 5.0, None])
def test_numbers_of_python(wrong: Any) -> None:
    """Whole numbers of all types are TSOs, such as NumPy's; what is none, or no TSO, is refused in words."""
    assert tso_of_instant(Whole()) == 5
    with pytest.raises(ValueError, match="a TSO or a time is expected, not"):
        tso_of_instant(wrong)


def test_a_tso() -> None:
    """Digits are a TSO as it stands, up to 64 bits."""
    assert parse_instant("470607624365932545") == 470607624365932545
    assert parse_instant(str(2**64 - 1)) == 2**64 - 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("2026-11-23T10:00:00", "no time zone"),
        ("2026-11-23", "a TSO or a time with its zone"),
        ("yesterday", "a TSO or a time with its zone"),
        ("", "a TSO or a time with its zone"),
        ("-1", "a TSO or a time with its zone"),
        ("\u0661", "a TSO or a time with its zone"),
        (str(2**64), "of 64 bits is expected"),
        ("9" * 5000, "of 64 bits is expected"),
        ("2026-13-23T10:00:00Z", "is no time"),
        ("2026-11-23T10:00:00+25:00", "is no time"),
        ("1969-12-31T23:59:59Z", "before 1970"),
        ("0001-01-01T00:00:00+23:00", "before 1970"),
        ("1790000000000000000", "no TSO of a TiDB: it would be from after 2140"),
    ],
)
def test_what_is_no_instant(given: str, told: str) -> None:
    """What is wrong is said, and what would be right."""
    with pytest.raises(ValueError, match=told):
        parse_instant(given)
