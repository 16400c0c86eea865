"""One row by its primary key: values are compared as their columns' types have them, and taken as they are printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from storage_consumer.changes.reading import Wanted
from storage_consumer.changes.rendering import OfKey, Whole, json_lines, key_values
from storage_consumer.errors import NotReplicable
from tests.harness.small_bucket import SmallBucket, column, row, ts
from tests.unit.changes.building import everything, feed_of, told


@pytest.mark.parametrize(
    ("kind", "stored", "given", "others"),
    [
        ("INT", "7", ("7", "07", "+7", "7"), ("8", "-7", "7.0", "x", "")),
        ("BIGINT", "-7", ("-7", "-07"), ("7",)),
        ("YEAR", "0", ("0", "0000"), ("2000",)),
        ("VARCHAR", '"7"', ("7",), ("007", "+7", "7 ")),
        ("VARCHAR", '"007"', ("007",), ("7",)),
        ("VARCHAR", '"Ab"', ("Ab",), ("ab", "AB")),
        ("VARCHAR", '""', ("",), ("0",)),
        ("DECIMAL", '"1.50"', ("1.5", "1.50", "01.500"), ("1.51", "x", "NaN")),
        ("DOUBLE", "1e+06", ("1000000", "1e+06", "1000000.0"), ("1000001", "x", "nan")),
        (
            "DATETIME",
            '"2026-01-01 00:00:00.500"',
            ("2026-01-01 00:00:00.5", "2026-01-01T00:00:00.500"),
            ("2026-01-01",),
        ),
        (
            "DATETIME",
            '"2026-01-01 00:00:00.000"',
            ("2026-01-01 00:00:00", "2026-01-01"),
            ("2026-01-01 00:00:00.001", "x"),
        ),
        (
            "TIMESTAMP",
            '"2026-06-01 00:00:00"',
            ("2026-06-01 00:00:00", "2026-06-01T00:00:00Z"),
            ("2026-06-01 00:00:01",),
        ),
        ("TIME", '"-01:00:00.50"', ("-01:00:00.5", "-1:00:00.50"), ("01:00:00.5", "x")),
        ("DATE", '"2026-06-01"', ("2026-06-01",), ("2026-06-02",)),
        ("VARBINARY", '"AQI="', ("AQI=", "0x0102", "0X0102"), ("0102", "AQ==", "x")),
        ("BINARY", '"YWIAAA=="', ("YWIAAA==", "0x61620000"), ("ab", "0x616200")),
        ("BIT", "513", ("513",), ("512",)),
        ("ENUM", '"a"', ("a",), ("1", "A")),
    ],
)
def test_values_by_type(
    kind: str, stored: str, given: tuple[str, ...], others: tuple[str, ...], tmp_path: Path
) -> None:
    """Numbers and times in any spelling, bytes as base64 or as hexadecimal digits, texts by their bytes; and always as JSON prints it."""
    bucket = SmallBucket(root=tmp_path)
    columns = (column("id", kind, key=True, ColumnPrecision="10", ColumnScale="3"),)
    bucket.schema("d.a", ts(1), "CREATE TABLE `a` (id INT PRIMARY KEY)", 3, columns)
    bucket.rows("d.a", 1, row("d.a", 2, stored))
    bucket.metadata(ts(9))
    *_, line = map(json_lines("csv"), feed_of(bucket, "d.a").events(0))
    printed = str(json.loads(line)["after"]["id"])
    for text in (*given, printed):
        wanted = OfKey([text], "csv")
        assert (len(everything(bucket, "d.a", wanted=wanted)), wanted.has_matched) == (2, True), text
    for text in others:
        wanted = OfKey([text], "csv")
        assert (len(everything(bucket, "d.a", wanted=wanted)), wanted.has_matched) == (1, False), text


def test_members_of_an_enum_in_canal_json(tmp_path: Path) -> None:
    """The files have numbers, and the key is given by the name that is printed."""
    protocol: Literal["canal-json"] = "canal-json"
    bucket = SmallBucket(root=tmp_path, protocol=protocol)
    query = "CREATE TABLE `a` (id ENUM('x','y') PRIMARY KEY)"
    bucket.schema("d.a", ts(1), query, 3, (column("id", "ENUM", key=True),))
    bucket.rows("d.a", 1, row("d.a", 2, "1"), row("d.a", 3, "2"))
    bucket.metadata(ts(9))
    assert everything(bucket, "d.a", wanted=OfKey(["y"], protocol))[1:] == ["3 I d.a 2"]
    assert everything(bucket, "d.a", wanted=OfKey(["2"], protocol))[1:] == []


def test_several_columns(tmp_path: Path) -> None:
    """They are given in the order of the table, whatever that of the key; another number of them is refused with their names."""
    bucket = SmallBucket(root=tmp_path)
    columns = (column("a", "INT", key=True), column("n", "INT"), column("b", "VARCHAR", key=True))
    query = "CREATE TABLE `a` (a INT, n INT, b VARCHAR(9), PRIMARY KEY (b, a))"
    bucket.schema("d.a", ts(1), query, 3, columns)
    bucket.rows("d.a", 1, row("d.a", 2, "1", "0", '"2"'), row("d.a", 3, "2", "0", '"1"'))
    bucket.metadata(ts(9))
    assert everything(bucket, "d.a", wanted=OfKey(["1", "2"], "csv"))[1:] == ["2 I d.a 1,0,2"]
    with pytest.raises(NotReplicable, match=r"--key has 1 value\(s\), but the primary key's columns are: a, b"):
        everything(bucket, "d.a", wanted=OfKey(["1"], "csv"))


@pytest.fixture
def moved(tmp_path: Path) -> SmallBucket:
    """d.a, whose row 1 gets a name at tick 4 and the key 2 at tick 5; the files have old values."""
    bucket = SmallBucket(root=tmp_path)
    bucket.create("d.a")
    text = '"{}","a","d",{},true,{},"{}"'
    rows = [("D", 4, 1, "x"), ("I", 4, 1, "y"), ("D", 5, 1, "y"), ("I", 5, 2, "y"), ("D", 6, 3, "x"), ("I", 6, 3, "z")]
    bucket.rows("d.a", 1, *(text.format(kind, ts(tick), *values) for kind, tick, *values in rows))
    bucket.metadata(ts(9))
    return bucket


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("1", "gave the row of --key the primary key id = 2, so that"),
        ("2", "gave the row with the primary key id = 1 that of --key, so that"),
    ],
)
def test_a_row_that_moved_is_not_taken_back_by_half(moved: SmallBucket, key: str, why: str) -> None:
    """Of an update that gives a row another key, the part with one of the two keys would leave the row twice or not at all."""
    with pytest.raises(NotReplicable, match=rf"row 3, commit ts {ts(5)}: this update {why}.*--from {ts(5) + 1}"):
        list(feed_of(moved, "d.a", old=True).events(ts(1), wanted=Whole(OfKey([key], "csv"))))


def test_a_row_that_stayed_is_taken_back(moved: SmallBucket) -> None:
    """What others did does not matter, nor what the row did outside the window."""
    wanted = Whole(OfKey(["3"], "csv"))
    assert those_of(moved, wanted, ts(1), ts(9)) == ["6 U d.a 3,x > 3,z"]
    wanted = Whole(OfKey(["1"], "csv"))
    assert those_of(moved, wanted, ts(1), ts(4)) == ["4 U d.a 1,x > 1,y"]


def those_of(bucket: SmallBucket, wanted: Wanted, low: int, high: int) -> list[str]:
    """The events of a window that are wanted."""
    return told(feed_of(bucket, "d.a", old=True).events(low, high, wanted))


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("42", ["42"]),
        ("1,2", ["1", "2"]),
        ("", [""]),
        (",", ["", ""]),
        ("a\nb,c\r\n", ["a\nb", "c\r\n"]),
        ('"a,b",c', ["a,b", "c"]),
        ('"say ""x""\n"', ['say "x"\n']),
        ('it"s,5" disk', ['it"s', '5" disk']),
        ('"open', ['"open']),
    ],
)
def test_values_between_commas(given: str, values: list[str]) -> None:
    """As in a CSV row, with quotes around those that hold a comma; a line break is a character as others."""
    assert key_values(given) == values
