"""The comparison's own ruler: which renderings are the same value, and which are not."""

from __future__ import annotations

import pytest

from tests.harness.comparing import form_of


@pytest.mark.parametrize(
    ("kind", "source", "target"),
    [
        ("int(5) unsigned zerofill", "42", "00042"),
        ("year(4)", "0", "0000"),
        ("decimal(65,30)", "1.500000000000000000000000000000", "1.5"),
        ("float", "16777216", "16777216.0"),
        ("float", "3.40282e38", "3.4028234663852886e38"),
        ("float", "0.1", "0.10000000149011612"),
        ("double", "1e15", "1000000000000000"),
        ("json", '{"b": 1.0, "a": [1, null]}', '{"a":[1,null],"b":1}'),
        ("binary(4)", b"ab\0\0", b"ab"),
        ("bit(33)", b"\0\0\0\0\2", b"\2"),
        ("varchar(10)", "é", "é".encode()),
    ],
)
def test_same_value(kind: str, source: str | bytes, target: str | bytes) -> None:
    """Two renderings of one value compare equal under the column's type."""
    form = form_of(kind)
    assert form(source) == form(target)


@pytest.mark.parametrize(
    ("kind", "source", "target"),
    [
        ("bigint(20) unsigned", "18446744073709551615", "18446744073709551614"),
        ("decimal(65,30)", "0.000000000000000000000000000001", "0"),
        ("float", "16777216", "16777200"),
        ("double", "0.1", "0.10000000000000002"),
        ("json", '{"a": 1}', '{"a": "1"}'),
        ("json", "[true]", "[1]"),
        ("json", "9007199254740993", "9007199254740992"),
        ("varbinary(4)", b"ab\0", b"ab"),
        ("varchar(10)", "a ", "a"),
        ("varchar(10)", "A", "a"),
        ("datetime(3)", "2020-01-01 00:00:00.120", "2020-01-01 00:00:00.12"),
    ],
)
def test_other_value(kind: str, source: str | bytes, target: str | bytes) -> None:
    """Two values that differ are told apart, however little."""
    form = form_of(kind)
    assert form(source) != form(target)
