"""Instants as people type them."""

from __future__ import annotations

import pytest

from storage_consumer.instants import parse_instant
from storage_consumer.telemetry import tso_time


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
    ],
)
def test_what_is_no_instant(given: str, told: str) -> None:
    """What is wrong is said, and what would be right."""
    with pytest.raises(ValueError, match=told):
        parse_instant(given)
