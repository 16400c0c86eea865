"""Schema files, and exports with their metadata and names, that are spoilt: they are read, or refused by name, and nothing else happens."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.bucket.export import read_export
from storage_consumer.bucket.export_names import read_name
from storage_consumer.bucket.schema_file import parse_schema_file
from storage_consumer.bucket.table_statements import binary_columns, read_create_table, unique_keys
from storage_consumer.errors import ExportRefused, MalformedSchemaFile
from storage_consumer.model import folded_name
from tests.harness.small_bucket import CREATE_TABLE, SchemaFile, schema_document, ts
from tests.harness.twins.storage import MemoryStorage
from tests.unit.bucket.test_create_table import TYPES
from tests.unit.bucket.test_export import PLACE, VIEW, objects, schema

_PIECES = st.sampled_from(
    [
        "`",
        "'",
        '"',
        "(",
        ")",
        ",",
        ";",
        "/*",
        "*/",
        "PRIMARY KEY",
        "KEY (",
        "DEFAULT",
        "DEFAULT (",
        "b'2'",
        "AS (",
        "NULL",
        "\\",
        "--",
        "VIEW",
        "TABLE",
        "DEFINER=",
        "\xff",
        "x'",
    ]
)
_JSON = st.sampled_from(
    [
        "{",
        "[",
        "null",
        "-1",
        "1e999",
        "18446744073709551616",
        '"TableColumns": null',
        '"ColumnElems": ["a"]',
        '"ColumnPrecision": 10',
        '"ColumnNullable": false',
        '"ColumnType": "UNSPECIFIED"',
        '"Version": 0',
    ]
)


def spoilt(text: str, chance: random.Random, pieces: list[str]) -> str:
    """A text with parts taken out, doubled or put in."""
    for piece in pieces:
        place, other = chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)
        match chance.randrange(3):
            case 0:
                text = text[:place] + piece + text[place:]
            case 1:
                text = text[:place] + text[place + chance.randint(1, 30) :]
            case _:
                text = text[:place] + text[other : other + 40] + text[place:]
    return text


@settings(max_examples=400)
@given(st.randoms(use_true_random=False), st.lists(_PIECES, min_size=1, max_size=4))
def test_statements(chance: random.Random, pieces: list[str]) -> None:
    """Any text is a table with columns, or no CREATE TABLE; of a table it can be asked what its keys are, and how its texts are compared."""
    text = spoilt(TYPES, chance, pieces)
    try:
        found = read_create_table(text)
    except ValueError:
        return
    assert found.columns
    assert all(unique_keys(text))
    assert binary_columns(text) <= {folded_name(column.name) for column in found.columns}


@settings(max_examples=300)
@given(st.randoms(use_true_random=False), st.lists(_PIECES, min_size=1, max_size=3))
def test_exports(chance: random.Random, pieces: list[str]) -> None:
    """Whatever is in its files, an export is read or refused."""
    files = objects() | {
        "shop.kinds-schema.sql": schema(TYPES.replace("`t`", "`kinds`", 1)),
        "shop.a-schema.sql": schema(PLACE.format("a")),
        "shop.a-schema-view.sql": schema(VIEW.format("a", "orders")),
    }
    path = chance.choice(sorted(files))
    files[path] = spoilt(files[path].decode(), chance, pieces).encode("latin-1", "replace")
    with suppress(ExportRefused):
        assert read_export(MemoryStorage(files)).tables


@settings(max_examples=400)
@given(st.randoms(use_true_random=False), st.lists(_PIECES | _JSON, min_size=1, max_size=4))
def test_schema_files(chance: random.Random, pieces: list[str]) -> None:
    """A schema file is a definition of its version, or refused by its path."""
    table = SchemaFile(name=("shop", "orders"), query="CREATE TABLE `orders` (id INT)", kind=CREATE_TABLE)
    version = ts(1)
    text, checksum = schema_document(table, version)
    path = f"shop/orders/meta/schema_{version}_{checksum:010d}.json"
    content = spoilt(text, chance, pieces).encode("utf-8", "replace")
    told = path
    try:
        assert parse_schema_file(content, path, version, checksum, table_dir="shop/orders").version == version
    except MalformedSchemaFile as fault:
        told = str(fault)
    assert path in told


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["a", ".", "-schema", ".sql", ".csv", "%2", "E", "/", ".gz", "0" * 9]), max_size=9).map(
        "".join
    )
)
def test_names(path: str) -> None:
    """Any path is a name, or none."""
    assert read_name(path).kind is not None


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE `t` (`a` int, PRIMARY KEY)",
        "CREATE TABLE `t` (`a` int, PRIMARY KEY ())",
        "CREATE TABLE `t` (`a` int DEFAULT b'2')",
        "CREATE TABLE `t` (`a` int DEFAULT ()",
        "CREATE TABLE `t` (`a` enum('x' DEFAULT 'x')",
    ],
)
def test_odd_definitions(query: str) -> None:
    """What SHOW CREATE TABLE never shows is no reason to end otherwise than with `ValueError`."""
    with suppress(ValueError):
        assert read_create_table(query).columns
        assert all(unique_keys(query))
