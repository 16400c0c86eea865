"""`read_changes`: typed columns of one table's changes, in order and each once."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_consumer import ConfigError, read_changes
from tests.harness.small_bucket import SmallBucket, column, of_two_structures, row, ts

TYPES = (
    column("id", "BIGINT UNSIGNED", key=True),
    column("small", "TINYINT"),
    column("d", "DECIMAL", ColumnPrecision="12", ColumnScale="2"),
    column("x", "FLOAT"),
    column("b", "VARBINARY", ColumnPrecision="9"),
    column("bits", "BIT", ColumnPrecision="10"),
    column("day", "DATE"),
    column("at", "DATETIME"),
    column("moment", "TIMESTAMP", ColumnScale="3"),
    column("span", "TIME"),
    column("doc", "JSON"),
)
QUERY = "CREATE TABLE `t` (id BIGINT UNSIGNED PRIMARY KEY)"
FIRST = (
    *("18446744073709551615", "-128", '"1.50"', "0.1", '"AP8="', "513", '"2024-02-29"'),
    *('"9999-12-31 23:59:59"', '"2026-01-02 03:04:05.678"', '"-838:59:59"', '"{""a"": 1}"'),
)
ZEROES = (*("1", r"\N", r"\N", r"\N", r"\N", "0", '"0000-00-00"'), '"2024-00-10 00:00:00"', r"\N", r"\N", r"\N")


def read(bucket: SmallBucket, table: str, **options: Any) -> list[dict[str, Any]]:
    """The changes of a table, as rows."""
    rows: list[dict[str, Any]] = pa.Table.from_batches(
        list(found := read_changes(bucket.uri, table, tz=options.pop("tz", "UTC"), **options)), found.schema
    ).to_pylist()
    return rows


def test_transactions_that_are_left_out(tmp_path: Path) -> None:
    """Their rows are absent, and no others."""
    bucket = of_two_structures(tmp_path)
    every = read(bucket, "d.a")
    some = read(bucket, "d.a", skip_commit_ts=[ts(3), f"d.a:{ts(8)}", f"d.b:{ts(4)}"])
    assert some == [each for each in every if each["_commit_version"] not in (ts(3), ts(8))]
    assert len(some) == len(every) - 2


def test_dates_that_no_calendar_has(tmp_path: Path) -> None:
    """They are null, whether they have a zero in them or a day too many; all others in the same file are not."""
    bucket = SmallBucket(root=tmp_path)
    columns = (column("id", "INT", key=True), column("day", "DATE"), column("at", "DATETIME"))
    bucket.schema("d.t", ts(1), "CREATE TABLE `t` (id INT PRIMARY KEY)", 3, columns)
    days = ("2024-02-29", "2023-02-29", "0000-00-00", "0001-01-01", "9999-12-31")
    rows = [row("d.t", 2 + n, str(n), f'"{day}"', f'"{day} 01:02:03.5"') for n, day in enumerate(days)]
    bucket.rows("d.t", 1, *rows)
    bucket.metadata(ts(9))
    found = read(bucket, "d.t")
    assert [str(each["day"]) for each in found] == ["2024-02-29", "None", "None", "0001-01-01", "9999-12-31"]
    assert [each["at"] is None for each in found] == [False, True, True, False, False]
    assert found[0]["at"] == datetime(2024, 2, 29, 1, 2, 3, 500_000)  # noqa: DTZ001 - a DATETIME has no zone


@pytest.mark.parametrize("key", [True, False])
def test_rows_of_dates_that_no_calendar_has(tmp_path: Path, *, key: bool) -> None:
    """Rows of one transaction in two files whose dates differ are two, though both are null as values; equal ones are one."""
    bucket = SmallBucket(root=tmp_path)
    columns = (column("day", "DATE", key=key), column("n", "INT"))
    bucket.schema("d.t", ts(1), "CREATE TABLE `t` (day DATE, n INT)", 3, columns)
    for number, day in enumerate(("0000-00-00", "2024-00-10", "2024-00-10"), 1):
        bucket.rows("d.t", number, row("d.t", 2, f'"{day}"', "1"))
    bucket.metadata(ts(9))
    assert [(each["day"], each["_file"][-5]) for each in read(bucket, "d.t")] == [(None, "1"), (None, "2")]


def test_types(tmp_path: Path) -> None:
    """Each value as Arrow has such values; a date with a zero in it, which no calendar has, is null."""
    bucket = SmallBucket(root=tmp_path)
    bucket.schema("d.t", ts(1), QUERY, 3, TYPES)
    bucket.rows("d.t", 1, row("d.t", 2, *FIRST), row("d.t", 3, *ZEROES))
    bucket.metadata(ts(9))
    first, zeroes = read(bucket, "d.t", tz="+08:00")
    assert {name: first[name] for name in first if not name.startswith("_")} == {
        "id": Decimal(2**64 - 1),
        "small": -128,
        "d": Decimal("1.50"),
        "x": pytest.approx(0.1),
        "b": b"\x00\xff",
        "bits": b"\x02\x01",
        "day": date(2024, 2, 29),
        "at": datetime(9999, 12, 31, 23, 59, 59),  # noqa: DTZ001 - a DATETIME has no zone
        "moment": datetime(2026, 1, 1, 19, 4, 5, 678_000, tzinfo=UTC),
        "span": "-838:59:59",
        "doc": '{"a": 1}',
    }
    assert (zeroes["day"], zeroes["at"], zeroes["bits"], zeroes["small"]) == (None, None, b"\x00\x00", None)
    assert (first["_change_type"], first["_commit_version"], first["_row"]) == ("insert", ts(2), 1)
    assert first["_commit_timestamp"] == datetime.fromtimestamp((ts(2) >> 18) / 1000, UTC)


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """A table with rows of two structures."""
    return of_two_structures(tmp_path)


def test_a_window_over_structures(bucket: SmallBucket) -> None:
    """Rows of an older structure lack the newer columns; repeated deliveries come once; borders are inclusive."""
    rows = read(bucket, "d.a")
    assert [(each["_commit_version"], each["_change_type"], each["id"], each["more"]) for each in rows] == [
        (ts(2), "insert", 2, None),
        (ts(3), "insert", 3, None),
        (ts(4), "insert", 4, None),
        (ts(5), "insert", 5, None),
        (ts(7), "update_postimage", 3, 7),
        (ts(8), "delete", 2, None),
    ]
    assert read(bucket, "d.a", start=ts(4), end=ts(7)) == rows[2:5]
    assert read(bucket, "d.a", start=datetime.fromtimestamp((ts(7) >> 18) / 1000, UTC)) == rows[4:]
    assert read(bucket, "d.b") == []


def test_an_end_that_a_row_has_shown(tmp_path: Path) -> None:
    """A window up to the time of a row, as that row has it, has the row, wherever in its millisecond it was committed."""
    found = SmallBucket(root=tmp_path)
    found.create("d.a")
    found.rows("d.a", 1, *(f'"I","a","d",{stamp},{n},"x"' for n, stamp in enumerate((ts(2) + 77, ts(3)))))
    found.metadata(ts(9))
    last = read(found, "d.a")[0]["_commit_timestamp"]
    for end in (last, last.isoformat(timespec="milliseconds"), str(ts(2) + 77)):
        assert [each["id"] for each in read(found, "d.a", end=end)] == [0], end
    assert read(found, "d.a", end=ts(2)) == []


@pytest.mark.parametrize("count", [1, 5_000])
def test_updates_with_old_rows(tmp_path: Path, count: int) -> None:
    """In a file of one update or of many: an update that keeps its key is one row, and one that moves its row is two."""
    bucket = SmallBucket(root=tmp_path)
    bucket.create("d.a")
    kept = [("D", tick, tick, "old") for tick in range(2, 2 + count)]
    lines = [(kind, tick, key, name) for _, tick, key, _ in kept for kind, name in (("D", "old"), ("I", "new"))]
    lines += [("D", 8_000, 2, "new"), ("I", 8_000, 9_000, "new")]
    rows = [f'"{kind}","a","d",{ts(tick)},true,{key},"{name}"' for kind, tick, key, name in lines]
    bucket.rows("d.a", 1, *rows)
    bucket.metadata(ts(9_000))
    (tmp_path / "feed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\noutput-old-value = true\n")
    found = read(bucket, "d.a", config=str(tmp_path / "feed.toml"))
    assert [(each["_change_type"], each["id"], each["_row"]) for each in found] == [
        *(("update_postimage", tick, 2 * place + 1) for place, (_, tick, *_) in enumerate(kept)),
        ("delete", 2, 2 * count + 1),
        ("insert", 9_000, 2 * count + 1),
    ]


def test_old_rows_of_canal_json(tmp_path: Path) -> None:
    """An update that moves its row is a delete with all that the row was, and an insert with all that it is."""
    bucket = SmallBucket(root=tmp_path, protocol="canal-json")
    bucket.create("d.a")
    bucket.rows("d.a", 1, row("d.a", 2, "2", '"new"', operation="U", old=("1", '"old"')))
    bucket.metadata(ts(9))
    found = [(each["_change_type"], each["id"], each["name"]) for each in read(bucket, "d.a")]
    assert found == [("delete", 1, "old"), ("insert", 2, "new")]


def test_what_is_refused(bucket: SmallBucket) -> None:
    """A window that is not complete, a time without a zone, a name that is none, and a column that became another type."""
    for table, options, told in (
        ("d.a", {"end": ts(20)}, "complete up to its checkpoint"),
        ("d.a", {"start": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - that is the point
        ("d", {}, "database.table is expected"),
    ):
        with pytest.raises(ConfigError, match=told):
            read_changes(bucket.uri, table, tz="UTC", **options)
    columns = (column("id", "INT", key=True), column("name", "INT"))
    bucket.schema("d.a", ts(8), "ALTER TABLE `a` MODIFY `name` INT", 12, columns)
    bucket.rows("d.a", 1, row("d.a", 9, "9", "9"), version=ts(8))
    with pytest.raises(ConfigError, match="column name is int64 now, and was string"):
        read_changes(bucket.uri, "d.a", tz="UTC")


def test_own_columns_with_reserved_names(bucket: SmallBucket) -> None:
    """Two columns of one name would hide one another, so the table is refused, whatever the name's case."""
    columns = (column("id", "INT", key=True), column("_ROW", "INT"))
    bucket.schema("d.own", ts(1), "CREATE TABLE `own` (id INT PRIMARY KEY, _ROW INT)", 3, columns)
    bucket.rows("d.own", 1, row("d.own", 2, "1", "7"))
    with pytest.raises(ConfigError, match=r'd\.own has a column _ROW, .*format\("ticdc"\)'):
        read(bucket, "d.own")


def test_a_table_that_the_bucket_does_not_have(tmp_path: Path) -> None:
    """It is refused by name, and a window that ends before it begins as well: nothing would look like no changes."""
    bucket = SmallBucket(root=tmp_path)
    bucket.create("d.a")
    bucket.rows("d.a", 1, row("d.a", 2, "1", '"one"'))
    bucket.metadata(ts(9))
    with pytest.raises(ConfigError, match=r"the bucket has no table d\.nope"):
        read_changes(bucket.uri, "d.nope", tz="UTC")
    with pytest.raises(ConfigError, match="is before start"):
        read_changes(bucket.uri, "d.a", tz="UTC", start=ts(5), end=ts(3))


def test_a_table_that_the_filter_leaves_out(bucket: SmallBucket) -> None:
    """It is refused although it is named: what a filter keeps back is not read another way."""
    with pytest.raises(ConfigError, match=r"no table d\.a that the filter \(d\.\*, !d\.a\) takes"):
        read_changes(bucket.uri, "d.a", tz="UTC", filter=("d.*", "!d.a"))
    assert read(bucket, "d.a", filter=("d.*",)) == read(bucket, "d.a")
