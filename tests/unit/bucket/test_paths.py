"""What each path of a bucket is."""

from __future__ import annotations

import pytest

from storage_consumer.bucket import paths
from storage_consumer.bucket.paths import DataDirectory, DataName, Ignored, SchemaPath
from storage_consumer.config.settings import DateSeparator
from tests.harness.paths import DataPath, ParsedPath, parse_path

V1, V2 = 449000000000000001, 449000000000000002
INDEX = "00000000000000000007"


def parse(path: str, *tables: str, date: DateSeparator | None = "day", partitions: bool | None = True) -> ParsedPath:
    """`path` in a bucket where each of `tables` has schema files of both versions."""
    return parse_path(path, {table: {V1: {1}, V2: {1}} for table in tables}, date, partition_separator=partitions)


def place(path: str, *tables: str, date: DateSeparator | None = "day", partitions: bool | None = True) -> DataDirectory:
    """The directory of the data file `path`."""
    parsed = parse(path, *tables, date=date, partitions=partitions)
    assert isinstance(parsed, DataPath), parsed
    return parsed.directory


@pytest.mark.parametrize(
    ("date", "partitions", "middle", "partition", "text"),
    [
        ("none", True, "", None, ""),
        ("none", True, "/2024", 2024, ""),
        ("none", False, "", None, ""),
        ("year", True, "/2024", None, "2024"),
        ("year", True, "/2024/2025", 2024, "2025"),
        ("month", True, "/2024-12", None, "2024-12"),
        ("month", True, "/113/2024-12", 113, "2024-12"),
        ("day", True, "/2024-12-31", None, "2024-12-31"),
        ("day", True, "/113/2024-12-31", 113, "2024-12-31"),
        ("day", False, "/2024-12-31", None, "2024-12-31"),
        (None, None, "", None, ""),
        (None, None, "/113", 113, ""),
        (None, None, "/2024-12", None, "2024-12"),
        (None, None, "/2024-12-31", None, "2024-12-31"),
        (None, None, "/113/2024", 113, "2024"),
        (None, None, "/2024/2025", 2024, "2025"),
        (None, None, "/113/2024-12", 113, "2024-12"),
        (None, None, "/113/2024-12-31", 113, "2024-12-31"),
        (None, None, "/0999", None, "0999"),
        (None, False, "/2024", None, "2024"),
        (None, False, "", None, ""),
        ("year", None, "/2024", None, "2024"),
        ("year", None, "/113/2024", 113, "2024"),
        ("none", None, "/2024", 2024, ""),
    ],
)
def test_directories(
    date: DateSeparator | None, *, partitions: bool | None, middle: str, partition: int | None, text: str
) -> None:
    """Version, partition and date are read as the settings or the texts say, whether the table is known or has to be guessed."""
    path = f"shop/orders/{V1}{middle}/CDC{INDEX}.csv"
    known = place(path, "shop", "shop/orders", date=date, partitions=partitions)
    assert known == DataDirectory(table_dir="shop/orders", version=V1, partition=partition, date=text)
    guessed = place(path, date=date, partitions=partitions)
    assert guessed == DataDirectory(table_dir="shop/orders", version=V1, partition=partition, date=text, known=False)


@pytest.mark.parametrize("tables", [(), ("shop/orders",)])
def test_four_digits_may_be_a_year_or_a_partition(tables: tuple[str, ...]) -> None:
    """Where no setting tells, four digits below the version are taken for a partition, which is never done with."""
    found = place(f"shop/orders/{V1}/2024/CDC{INDEX}.csv", *tables, date=None, partitions=None)
    assert (found.partition, found.date) == (2024, "")


@pytest.mark.parametrize("middle", ["", "/113", "/2024-12-31", "/113/2024-12", "/113/2024"])
@pytest.mark.parametrize("checksums", [{None}, {None, 7}])
def test_older_layout_is_not_judged_by_the_settings(middle: str, checksums: set[int | None]) -> None:
    """A version of the older layout may have been written with other settings; one of the present layout may not."""
    path = f"shop/orders/{V1}{middle}/CDC000001.csv"
    found = parse_path(path, {"shop/orders": {V1: checksums, V2: {8}}}, "year", partition_separator=False)
    assert isinstance(found, DataPath)
    assert (found.directory.table_dir, found.directory.version) == ("shop/orders", V1)
    assert isinstance(parse(path, "shop/orders", date="year", partitions=False), Ignored)


@pytest.mark.parametrize(
    ("date", "partitions", "middle", "reason"),
    [
        ("day", True, "", paths.CONTRADICTS_DATE),
        ("day", True, "/113", paths.CONTRADICTS_DATE),
        ("day", True, "/2024", paths.CONTRADICTS_DATE),
        ("day", True, "/2024-12", paths.CONTRADICTS_DATE),
        ("year", True, "/12345", paths.CONTRADICTS_DATE),
        ("none", True, "/2024-12-31", paths.CONTRADICTS_DATE),
        ("none", True, "/113/2024-12-31", paths.CONTRADICTS_DATE),
        ("none", False, "/113", paths.CONTRADICTS_PARTITION),
        ("day", False, "/113/2024-12-31", paths.CONTRADICTS_PARTITION),
        ("day", None, "/113", paths.CONTRADICTS_DATE),
        (None, False, "/113", paths.CONTRADICTS_PARTITION),
        (None, False, "/113/2024", paths.CONTRADICTS_PARTITION),
    ],
)
@pytest.mark.parametrize("tables", [(), ("shop/orders",)])
def test_contradictions(
    date: DateSeparator | None, *, partitions: bool | None, middle: str, reason: str, tables: tuple[str, ...]
) -> None:
    """A directory that only other settings explain is refused with the setting's name."""
    parsed = parse(f"shop/orders/{V1}{middle}/CDC{INDEX}.csv", *tables, date=date, partitions=partitions)
    assert parsed == Ignored(reason=reason)
    assert parsed.contradicts


@pytest.mark.parametrize(
    "table",
    [
        "meta",
        "metadata",
        "2024-01-01",
        "2024",
        "CDC000001",
        "CDC000001.json",
        "schema_1_2.json",
        "schema.json",
        "449",
        "a/b",
        "a.b",
        str(V1),
        "é 😀%",
        "quote'\"`d",
        "two\nlines",
        " ",
    ],
)
@pytest.mark.parametrize("schema", ["names", "metadata", "meta", str(V2)])
@pytest.mark.parametrize(("date", "day"), [("none", ""), ("day", "/2024-12-31"), (None, ""), (None, "/2024-12-31")])
def test_look_alikes(schema: str, table: str, date: DateSeparator | None, day: str) -> None:
    """A table's or schema's name may look like any other part of a path."""
    folder = f"{schema}/{table}"
    assert parse(f"{folder}/meta/schema_{V1}_0000000007.json") == SchemaPath(table_dir=folder, version=V1, checksum=7)
    assert parse(f"{folder}/{V1}/schema.json") == SchemaPath(table_dir=folder, version=V1, checksum=None)
    found = place(f"{folder}/{V2}{day}/CDC000001.json", schema, folder, date=date)
    assert (found.table_dir, found.version, found.partition) == (folder, V2, None)
    guessed = place(f"{folder}/{V2}{day}/CDC000001.json", date=date)
    assert (guessed.table_dir, guessed.version, guessed.known) == (folder, V2, False)


@pytest.mark.parametrize("date", ["none", None])
@pytest.mark.parametrize("checksum", [7, None])
def test_nested_tables(date: DateSeparator | None, checksum: int | None) -> None:
    """Of two tables of which one's directory holds the other's, a file goes to the one that has its version."""
    tables = {"names/a": {V1: {checksum}}, f"names/a/{V1}": {V2: {checksum}}}
    inner = parse_path(f"names/a/{V1}/{V2}/CDC000001.csv", tables, date, partition_separator=True)
    outer = parse_path(f"names/a/{V1}/113/CDC000001.csv", tables, date, partition_separator=True)
    assert isinstance(inner, DataPath)
    assert isinstance(outer, DataPath)
    assert inner.directory == DataDirectory(table_dir=f"names/a/{V1}", version=V2, partition=None, date="")
    assert outer.directory == DataDirectory(table_dir="names/a", version=V1, partition=113, date="")


@pytest.mark.parametrize("day", ["", "/2024-12-31"])
def test_table_ids_as_path(day: str) -> None:
    """Where a table's id is its directory, there is one segment above the version, also while its schema file is not known (U10)."""
    path = f"104/{V1}{day}/CDC_123_000001.csv"
    assert place(path, "104", date=None).table_dir == "104"
    assert place(path, date=None) == DataDirectory(
        table_dir="104", version=V1, partition=None, date=day.strip("/"), known=False
    )


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("CDC000001.csv", ("", 1, 6, "csv")),
        ("CDC00000000000000000012.json", ("", 12, 20, "json")),
        ("CDC_123456789_000012.json", ("123456789", 12, 6, "json")),
        ("CDC999999.csv", ("", 999999, 6, "csv")),
        ("CDC1000000.csv", ("", 1000000, 6, "csv")),
        ("CDC0100000.csv", ("", 100000, 7, "csv")),
        ("CDC10000000000000000000.csv", ("", 10**19, 6, "csv")),
    ],
)
def test_data_names(name: str, parts: tuple[str, int, int, str]) -> None:
    """Dispatcher, number and width are read from the name; a number that outgrew its width stays in its sequence."""
    dispatcher, number, width, extension = parts
    expected = DataName(dispatcher=dispatcher, number=number, width=width, extension=extension)
    assert paths.parse_data_name(name) == expected
    assert paths.format_data_name(expected) == name


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata", "metadata"),
        (f"shop/t/{V1}/2024-12-31/meta/CDC.index", "index"),
        (f"shop/t/{V1}/2024-12-31/meta/CDC_12345.index", "index"),
        (f"shop/meta/schema_{V1}_4294967295.json", SchemaPath(table_dir="shop", version=V1, checksum=4294967295)),
        (f"shop/meta/schema_{V1}_4294967296.json", Ignored(reason=paths.UNKNOWN)),
        (f"shop/meta/schema_{1 << 64}_0000000001.json", Ignored(reason=paths.UNKNOWN)),
        (f"meta/schema_{V1}_0000000001.json", Ignored(reason=paths.UNKNOWN)),
        (f"shop/t/{V1}/2024-12-31/CDC{INDEX}.csv.tmp", Ignored(reason=paths.TMP)),
        (f"shop/t/{V1}/2024-12-31/CDC{INDEX}.csv.tmp.8a1c-22", Ignored(reason=paths.TMP)),
        ("metadata.tmp.8a1c-22", Ignored(reason=paths.TMP)),
        (f"shop/t/{V1}/CDC.index", "index"),
        (f"shop/t/{V1}/schema.json", SchemaPath(table_dir="shop/t", version=V1, checksum=None)),
        (f"shop/{V1}/schema.json", Ignored(reason=paths.UNKNOWN)),
        (f"shop/t/{1 << 64}/schema.json", Ignored(reason=paths.UNKNOWN)),
        (f"shop/t/0{V1}/schema.json", Ignored(reason=paths.UNKNOWN)),
        ("shop/t/schema.json", Ignored(reason=paths.UNKNOWN)),
        ("CDC000001.csv", Ignored(reason=paths.UNKNOWN)),
        (f"shop/t/{V1}/2024-12-31/CDC000000.csv", Ignored(reason=paths.UNKNOWN)),
        (f"shop/t/{V1}/2024-12-31/cdc000001.csv", Ignored(reason=paths.UNKNOWN)),
        (f"shop/t/0{V1}/2024-12-31/CDC000001.csv", Ignored(reason=paths.UNKNOWN)),
        (f"shop/t/{V1}/2024-12-31/CDC_{'1' * 41}_000001.csv", Ignored(reason=paths.UNKNOWN)),
        ("shop/readme/CDC000001.csv", Ignored(reason=paths.UNKNOWN)),
        ("some/notes.txt", Ignored(reason=paths.UNKNOWN)),
    ],
)
def test_other_paths(path: str, expected: object) -> None:
    """Bookkeeping is told from residue, and residue has a reason."""
    assert parse(path, "shop/t") == expected
