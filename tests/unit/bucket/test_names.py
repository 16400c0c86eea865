"""File names of an export: what each says, whatever the table is called."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.bucket.export_names import ExportFile, Kind, read_name
from storage_consumer.model import TableName


def _said(path: str) -> tuple[Kind, str, str]:
    file = read_name(path)
    return file.kind, file.name.schema, file.name.table


@pytest.mark.parametrize(
    ("path", "kind", "schema", "table"),
    [
        ("metadata", Kind.METADATA, "", ""),
        ("shop-schema-create.sql", Kind.DATABASE, "shop", ""),
        ("shop.orders-schema.sql", Kind.TABLE, "shop", "orders"),
        ("shop.v-schema-view.sql", Kind.VIEW, "shop", "v"),
        ("shop.s-schema-sequence.sql", Kind.SEQUENCE, "shop", "s"),
        ("shop.t-schema-triggers.sql", Kind.TRIGGERS, "shop", "t"),
        ("shop-schema-post.sql", Kind.ROUTINES, "shop", ""),
        ("pol%2F2-placement-policy-create.sql", Kind.POLICY, "pol/2", ""),
        ("hn.metadata.000000000.sql", Kind.DATA, "hn", "metadata"),
        ("hn.000000000.000000000.csv", Kind.DATA, "hn", "000000000"),
        ("hn.t%2Dschema-view-schema.sql", Kind.TABLE, "hn", "t-schema-view"),
        ("h%2Dschema.x%2DSCHEMA-create.000000000.csv", Kind.DATA, "h-schema", "x-SCHEMA-create"),
        ("hn.t%2E000000000-schema.sql", Kind.TABLE, "hn", "t.000000000"),
        ("hn.new%0Aline.000000000.csv", Kind.DATA, "hn", "new\nline"),
        ("库存.商品-schema.sql", Kind.TABLE, "库存", "商品"),
        ("bt.`starts.000000000.sql", Kind.DATA, "bt", "`starts"),
        ("shop.orders.sql", Kind.DATA, "shop", "orders"),
        ("shop.orders.00001.sql", Kind.DATA, "shop", "orders"),
    ],
)
def test_what_a_name_says(path: str, kind: Kind, schema: str, table: str) -> None:
    """Each kind of file is told by its ending, and names come back as the server has them."""
    assert _said(path) == (kind, schema, table)


@pytest.mark.parametrize(
    ("path", "number", "width", "compression"),
    [
        ("a.b.000000000.sql", 0, 9, ""),
        ("a.b.0000000010002.csv.gz", 10002, 13, "gzip"),
        ("a.b.00007.sql.zst", 7, 5, "zstd"),
        ("a.b.csv.snappy", 0, 0, "snappy"),
        ("a.b.000000000.parquet", 0, 9, ""),
        ("a.b.0000000010002.zst.parquet", 10002, 13, ""),
    ],
)
def test_numbers_and_compression(path: str, number: int, width: int, compression: str) -> None:
    """The number of a data file, how many digits it has and how it is compressed are all in its name."""
    file = read_name(path)
    assert (file.kind, file.number, file.width, file.compression) == (Kind.DATA, number, width, compression)


@pytest.mark.parametrize(
    "path",
    [
        "ex/t-schema.sql",
        "ex/t/part.000000000.csv",
        "readme.txt",
        "a.b.c.000000000.sql",
        ".t.sql",
        "a..sql",
        "t.sql.lz4",
        "-schema-create.sql",
    ],
)
def test_names_of_others(path: str) -> None:
    """A path that neither program writes, a template's among them, is not guessed at."""
    assert read_name(path).kind is Kind.UNKNOWN


def _escaped(name: str) -> str:
    """Escape as Dumpling does."""
    text = "".join(
        f"%{ord(sign):02X}" if ord(sign) < 32 or ord(sign) == 127 or sign in '%"*./:<>?\\|' else sign for sign in name
    )
    return re.sub("-(schema)", r"%2D\1", text, flags=re.IGNORECASE)


_NAMES = st.text(min_size=1, max_size=64) | st.sampled_from(
    ["-schema", "-schema-create", "metadata", "a.b", "%2E", "x-SCHEMA-view", "1", "000000000", ".gz", "t.sql"]
)


@given(_NAMES, _NAMES, st.integers(0, 10**13 - 1))
def test_any_name(schema: str, table: str, number: int) -> None:
    """Whatever a table is called, the names that Dumpling gives its files lead back to it."""
    base = f"{_escaped(schema)}.{_escaped(table)}"
    name = TableName(schema=schema, table=table)
    assert read_name(f"{base}-schema.sql.gz") == ExportFile(kind=Kind.TABLE, name=name, compression="gzip")
    width = max(9, len(str(number)))
    assert read_name(f"{base}.{number:0{width}d}.csv") == ExportFile(
        kind=Kind.DATA, name=name, file_format="csv", number=number, width=width
    )
