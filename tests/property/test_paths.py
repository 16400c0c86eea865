"""Laws of paths: parsing and formatting are inverses, whatever the names."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.bucket import paths
from storage_consumer.bucket.paths import DataDirectory, DataName, SchemaPath
from storage_consumer.config.settings import DateSeparator
from tests.harness.paths import DataPath, format_data_path, format_schema_path, parse_path

YEAR = re.compile("[1-9][0-9]{3}")
TSO = st.integers(1 << 56, (1 << 64) - 1)
PIECES = st.sampled_from(
    [
        "meta",
        "metadata",
        "2024",
        "2024-01",
        "2024-01-01",
        "CDC000001",
        "CDC000001.csv",
        "schema_1_0000000002.json",
        "é.😀",
    ]
)
SEGMENT = st.one_of(PIECES, TSO.map(str), st.text(min_size=1).filter(lambda text: "/" not in text))
TABLE_DIR = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)
DATES: dict[DateSeparator | None, st.SearchStrategy[str]] = {
    "none": st.just(""),
    "year": st.integers(0, 9999).map(lambda year: f"{year:04d}"),
    "month": st.dates().map(lambda date: date.isoformat()[:7]),
    "day": st.dates().map(lambda date: date.isoformat()),
}
DATES[None] = st.one_of(*DATES.values())
NAMES = st.builds(
    lambda dispatcher, number, width, extension: DataName(
        dispatcher=dispatcher,
        number=number,
        width=width if len(str(number)) < width else 6,
        extension=extension,
    ),
    st.one_of(st.just(""), st.integers(0, 1 << 128).map(str)),
    st.one_of(st.integers(1, 3_000_000), st.integers(1, 10**19)),
    st.integers(6, 20),
    st.sampled_from(["csv", "json"]),
)


@given(
    table_dir=TABLE_DIR,
    version=st.integers(0, (1 << 64) - 1),
    checksum=st.one_of(st.none(), st.integers(0, (1 << 32) - 1)),
)
def test_schema_paths(table_dir: str, version: int, checksum: int | None) -> None:
    """A schema file's path is read back as what it was made from, in both layouts."""
    table_dir = table_dir if checksum is not None else f"shop/{table_dir}"
    parts = SchemaPath(table_dir=table_dir, version=version, checksum=checksum)
    assert parse_path(format_schema_path(parts), {}, "day", partition_separator=True) == parts


@given(name=NAMES)
def test_data_names(name: DataName) -> None:
    """A data file's name is read back as what it was made from."""
    assert paths.parse_data_name(paths.format_data_name(name)) == name


@given(
    data=st.data(),
    table_dir=TABLE_DIR,
    others=st.lists(TABLE_DIR, max_size=3),
    version=TSO,
    partition=st.one_of(st.none(), st.integers(0, 1 << 48)),
    date_separator=st.sampled_from(list(DATES)),
    old=st.booleans(),
    name=NAMES,
)
def test_data_paths(  # noqa: PLR0913 - the parts of a path
    *,
    data: st.DataObject,
    table_dir: str,
    others: list[str],
    version: int,
    partition: int | None,
    date_separator: DateSeparator | None,
    old: bool,
    name: DataName,
) -> None:
    """A data file's path is read back as what it was made from, whatever other tables there are.

    Except that a year may be taken for a partition, where no setting tells: in the older layout none does.
    """
    date = data.draw(DATES[None if old else date_separator])
    directory = DataDirectory(table_dir=table_dir, version=version, partition=partition, date=date)
    path = format_data_path(DataPath(directory=directory, name=name))
    tables: paths.Tables = {other: {1: {1}} for other in others} | {table_dir: {version: {None if old else 1}}}
    separator = data.draw(st.sampled_from([True, None] if partition is not None and not old else [True, False, None]))
    parsed = parse_path(path, tables, date_separator, partition_separator=separator)
    if (old or (separator is not False and date_separator is None)) and partition is None:
        year = int(date) if YEAR.fullmatch(date) else None
        directory = directory if year is None else replace(directory, partition=year, date="")
    assert parsed == DataPath(directory=directory, name=name)
    if not old:
        guessed = parse_path(path, {}, date_separator, partition_separator=separator)
        assert isinstance(guessed, DataPath)
        assert format_data_path(guessed) == path


@given(
    path=st.one_of(st.text(), st.lists(SEGMENT, max_size=6).map("/".join)),
    date_separator=st.sampled_from(list(DATES)),
    partition_separator=st.sampled_from([True, False, None]),
    tables=st.sampled_from([{}, {"meta": {1: {1}}, "2024/é.😀": {1 << 60: {None}}}]),
)
def test_any_text(
    path: str, date_separator: DateSeparator | None, *, partition_separator: bool | None, tables: paths.Tables
) -> None:
    """Any text is one of the kinds of path, and what was read can be written back."""
    parsed = parse_path(path, tables, date_separator, partition_separator=partition_separator)
    if isinstance(parsed, SchemaPath):
        assert format_schema_path(parsed) == path
    elif isinstance(parsed, DataPath):
        assert format_data_path(parsed) == path
    else:
        assert parsed in {"index", "metadata"} or isinstance(parsed, paths.Ignored)
