"""Schema JSON → TableDefinition."""

from __future__ import annotations

import json
from typing import Any

import pytest

from storage_consumer.bucket.schema_file import parse_schema_file, schema_checksum
from storage_consumer.errors import MalformedSchemaFile
from storage_consumer.model import TableColumn, TableDefinition

V = 449000000000000001


AS_WRITTEN = """{
    "Table": "orders",
    "Schema": "shop",
    "Version": 1,
    "TableVersion": 449000000000000001,
    "Query": "CREATE TABLE `orders` (`id` BIGINT UNSIGNED PRIMARY KEY)",
    "Type": 3,
    "TableColumns": [
        {
            "ColumnName": "id",
            "ColumnType": "BIGINT UNSIGNED",
            "ColumnPrecision": "20",
            "ColumnNullable": "false",
            "ColumnIsPk": "true"
        },
        {
            "ColumnName": "Note",
            "ColumnType": "VARCHAR",
            "ColumnDefault": "a\\u003cb\\u003e \\u0026 \\"c\\"\\n",
            "ColumnPrecision": "64"
        },
        {
            "ColumnName": "kind",
            "ColumnType": "ENUM",
            "ColumnDefault": "",
            "ColumnElems": [
                "x",
                "it's",
                "é"
            ]
        },
        {
            "ColumnName": "amt",
            "ColumnType": "DECIMAL",
            "ColumnPrecision": "12",
            "ColumnScale": "3"
        },
        {
            "ColumnName": "at",
            "ColumnType": "TIMESTAMP",
            "ColumnDefault": "CURRENT_TIMESTAMP",
            "ColumnScale": "6"
        },
        {
            "ColumnName": "flags",
            "ColumnType": "SET",
            "ColumnNullable": "false",
            "ColumnElems": [
                "r",
                "w"
            ]
        }
    ],
    "TableColumnsTotal": 6
}"""
"""A schema file as Go's JSON library writes it."""


def column(name: str, type_text: str, **attributes: Any) -> dict[str, Any]:
    """A column entry."""
    return {"ColumnName": name, "ColumnType": type_text} | attributes


def document(*columns: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A schema file with fields in TiCDC's order."""
    base = {"Table": "orders", "Schema": "shop", "Version": 1, "TableVersion": V, "Query": "", "Type": 0}
    return base | {"TableColumns": list(columns) or None, "TableColumnsTotal": len(columns)} | fields


def written(fields: dict[str, Any]) -> str:
    """As TiCDC lays it out."""
    return json.dumps(fields, indent=4, ensure_ascii=False)


def parse(fields: dict[str, Any], table_dir: str = "shop/orders", checksum: int | None = None) -> TableDefinition:
    """The definition, with a matching checksum unless another is given."""
    text = written(fields)
    known = schema_checksum(text) if checksum is None else checksum
    return parse_schema_file(text.encode(), f"{table_dir}/meta/schema.json", V, known or 0, table_dir)


ORDERS = document(
    column("id", "BIGINT UNSIGNED", ColumnPrecision="20", ColumnNullable="false", ColumnIsPk="true"),
    column("Note", "VARCHAR", ColumnDefault='a<b> & "c"\n', ColumnPrecision="64"),
    column("kind", "ENUM", ColumnDefault="", ColumnElems=["x", "it's", "é"]),
    column("amt", "DECIMAL", ColumnPrecision="12", ColumnScale="3"),
    Query="CREATE TABLE `orders` (…)",
    Type=3,
)


def test_definition() -> None:
    """All that a schema file says arrives, versions above 2^53 exactly."""
    definition = parse(ORDERS)
    assert str(definition.name) == "shop.orders"
    assert (definition.version, definition.ddl_type, definition.is_ddl) == (V, 3, True)
    assert definition.columns == (
        TableColumn(name="id", type="BIGINT", unsigned=True, precision=20, nullable=False, is_pk=True),
        TableColumn(name="Note", type="VARCHAR", default='a<b> & "c"\n', precision=64),
        TableColumn(name="kind", type="ENUM", default="", elements=("x", "it's", "é")),
        TableColumn(name="amt", type="DECIMAL", precision=12, scale=3),
    )
    assert definition.warnings == ()


@pytest.mark.parametrize(
    ("fields", "checksum"),
    [
        (document(Table="", Schema="schema1"), 3233644819),
        (
            document(
                column("Id", "INT", ColumnDefault=10, ColumnPrecision="11", ColumnNullable="false", ColumnIsPk="true"),
                column(
                    "LastName",
                    "VARCHAR",
                    ColumnDefault="Default LastName",
                    ColumnPrecision="128",
                    ColumnNullable="false",
                ),
                column("FirstName", "VARCHAR", ColumnDefault="Default FirstName", ColumnPrecision="64"),
                column("Birthday", "DATETIME", ColumnDefault=12345678),
                Schema="schema1",
                Table="table1",
            ),
            3752767265,
        ),
        (
            document(
                column("col1", "INT", ColumnPrecision="11"),
                column("col2", "VARCHAR", ColumnPrecision="5"),
                Schema="test",
                Table="table1",
            ),
            4192708364,
        ),
    ],
)
def test_known_checksums(fields: dict[str, Any], checksum: int) -> None:
    """The checksum is the one that TiCDC's own tests have for these tables."""
    assert schema_checksum(written(fields)) == checksum


def test_checksum_of_escaped_text() -> None:
    """The checksum is taken of the text as it stands, so that Go's way to escape characters survives."""
    assert schema_checksum(AS_WRITTEN) == 3161939509


def test_column_order_and_query_are_not_in_the_checksum() -> None:
    """Files that differ in column order, query or version have one checksum; another column changes it."""
    columns = ORDERS["TableColumns"]
    reordered = ORDERS | {"TableColumns": columns[::-1], "Query": "ALTER …", "TableVersion": V + 1}
    assert schema_checksum(written(reordered)) == schema_checksum(written(ORDERS))
    assert schema_checksum(written(document(*columns[1:]))) != schema_checksum(written(ORDERS))


def test_strings_for_numbers_and_flags() -> None:
    """Numbers and flags mean the same whether they are written as themselves or as strings."""
    texts = document(column("a", "INT", ColumnLength="20", ColumnNullable="false", ColumnIsPk="true"))
    values = document(column("a", "INT", ColumnLength=20, ColumnNullable=False, ColumnIsPk=True))
    as_text = parse(texts | {"TableColumnsTotal": "1", "TableVersion": str(V), "Type": "3", "Version": "1"})
    as_value = parse(values | {"Type": 3})
    assert as_text.columns == as_value.columns
    assert as_text.columns[0] == TableColumn(name="a", type="INT", precision=20, nullable=False, is_pk=True)
    assert (as_text.version, as_text.ddl_type) == (as_value.version, as_value.ddl_type)


@pytest.mark.parametrize(
    ("text", "base", "unsigned"),
    [
        ("BIT UNSIGNED", "BIT", True),
        ("YEAR UNSIGNED", "YEAR", True),
        ("JSON UNSIGNED", "JSON", True),
        ("bigint unsigned", "BIGINT", True),
        ("UNSPECIFIED", "UNSPECIFIED", False),
    ],
)
def test_types(text: str, base: str, *, unsigned: bool) -> None:
    """The UNSIGNED suffix is split off, whatever the type."""
    parsed = parse(document(column("a", text))).columns[0]
    assert (parsed.type, parsed.unsigned) == (base, unsigned)


@pytest.mark.parametrize(
    ("query", "ddl_type"),
    [
        ("CREATE DATABASE `shop`", 1),
        ("/* by hand */ create schema shop", 1),
        ("DROP DATABASE `shop`", 2),
        ("DROP\nTABLE `shop`.`create`", 4),
        ("ALTER DATABASE `drop`", 0),
        ("DROP", 0),
        ("", 0),
    ],
)
def test_file_without_type(query: str, ddl_type: int) -> None:
    """Where Type is absent, the statement tells it; a database-level file has no columns."""
    fields = document(Table="", Query=query)
    del fields["Type"]
    definition = parse(fields, "shop")
    assert (str(definition.name), definition.columns, definition.ddl_type) == ("shop", (), ddl_type)
    assert type(definition.ddl_type) is int, "the driver that stores it knows no enumeration"
    assert definition.warnings == ()


@pytest.mark.parametrize("default", [10, 12345678.5, True])
def test_defaults_that_are_no_strings(default: object) -> None:
    """A default that is a number or truth value becomes its text."""
    assert parse(document(column("a", "INT", ColumnDefault=default))).columns[0].default == json.dumps(default)


@pytest.mark.parametrize("default", ["1.50", "1e3", "12345678901234567890.12345", "1e400"])
def test_defaults_that_no_float_holds(default: str) -> None:
    """A number is as the file spells it."""
    content = json.dumps(document(column("a", "DECIMAL", ColumnDefault=-1))).replace("-1", default).encode()
    found = parse_schema_file(content, f"shop/orders/meta/schema_{V}_0000000007.json", V, 7, "shop/orders")
    assert found.columns[0].default == default


def test_names_with_slashes() -> None:
    """The pair in the file is the table's name: the path can't tell where the schema ends."""
    definition = parse(document(column("a", "INT"), Schema="a/b", Table="c/d"), "a/b/c/d")
    assert (definition.name.schema, definition.name.table, definition.warnings) == ("a/b", "c/d", ())
    dotted = parse(document(column("a", "INT"), Schema="shop", Table=".."), ".")
    assert (dotted.name.table, dotted.warnings) == ("..", ())


def test_table_id_as_path() -> None:
    """Where the path holds only a table id, the names come from the file without a warning."""
    definition = parse(document(column("a", "INT")), "104")
    assert (str(definition.name), definition.warnings) == ("shop.orders", ())


def test_swapped_names() -> None:
    """Names that are exactly swapped relative to the path are read as the path has them."""
    definition = parse(document(column("a", "INT"), Schema="tbl_1", Table="test"), "test/tbl_1")
    assert str(definition.name) == "test.tbl_1"
    assert "swapped" in definition.warnings[0]


def test_other_names_than_the_path() -> None:
    """Names that have nothing to do with the path are used, with a warning."""
    definition = parse(document(column("a", "INT")), "else/where")
    assert str(definition.name) == "shop.orders"
    assert "else/where" in definition.warnings[0]


def test_oddities_are_warnings() -> None:
    """A wrong checksum, an unknown attribute, field or format version is said, and the file is read."""
    definition = parse(document(column("a", "INT", ColumnMood="good"), Extra=1, Version=2), checksum=5)
    assert len(definition.columns) == 1
    heard = " | ".join(definition.warnings)
    assert all(word in heard for word in ("ColumnMood", "Extra", "version 2", "0000000005"))


def test_unknown_attributes_keep_the_checksum() -> None:
    """An attribute of a later TiCDC is part of its checksum, and is verified as it stands."""
    warnings = parse(document(column("a", "INT", ColumnMood={"deep": [1, 2]}))).warnings
    assert warnings == ("unknown column attributes: ColumnMood",)


def test_other_layout() -> None:
    """A file that someone has reformatted is read, and its checksum is said to be unverifiable or wrong."""
    content = json.dumps(ORDERS).encode()
    definition = parse_schema_file(content, "shop/orders/meta/schema.json", V, 7, "shop/orders")
    assert len(definition.columns) == 4
    assert any("checksum" in text for text in definition.warnings)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not JSON"),
        (b'{"Table": "orders", "Sche', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "Expected `object`"),
        (b'{"TableVersion": NaN}', "not JSON"),
    ],
)
def test_no_schema_file(content: bytes, what: str) -> None:
    """Content that is no JSON object is refused with the file's name, the fault and the remedy."""
    with pytest.raises(MalformedSchemaFile, match=f"shop/t/meta/x.json: {what}.*restore it"):
        parse_schema_file(content, "shop/t/meta/x.json", V, 0, "shop/t")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"TableVersion": V + 1}, f"TableVersion is {V + 1}"),
        ({"TableVersion": 4.49e17}, r"\$\.TableVersion"),
        ({"TableVersion": True}, "TableVersion"),
        ({"TableVersion": -1}, "TableVersion is -1"),
        ({"TableColumnsTotal": 5}, "TableColumnsTotal is 5, but TableColumns has 1"),
        ({"TableColumns": {}}, "TableColumns`"),
        ({"TableColumns": [3]}, r"TableColumns\[0\]"),
        ({"Query": None}, "Query`"),
        ({"Table": 3}, r"\$\.Table`"),
        ({"Table": "t" * 256}, "Schema or Table has more than 255 characters"),
        ({"Table": "`" * 255}, "Schema or Table has more than 255 characters"),
        ({"Type": 1 << 31}, r"<= 2147483647.*\.Type`"),
        ({"TableColumns": [{"ColumnType": "INT"}]}, r"ColumnName`.*TableColumns\[0\]"),
        ({"TableColumns": [column("a", "INT", ColumnNullable="maybe")]}, r"TableColumns\[0\]\.ColumnNullable"),
        ({"TableColumns": [column("a", "INT", ColumnScale="few")]}, r"TableColumns\[0\]\.ColumnScale"),
        ({"TableColumns": [column("a", "SET", ColumnElems="x")]}, r"TableColumns\[0\]\.ColumnElems"),
        ({"TableColumns": [column("a", "INT"), column("A", "INT")], "TableColumnsTotal": 2}, "'A' is listed twice"),
    ],
)
def test_wrong_fields(change: dict[str, Any], what: str) -> None:
    """A field that can't be understood is named, with the file."""
    with pytest.raises(MalformedSchemaFile, match=what) as raised:
        parse(document(column("a", "INT")) | change)
    assert "shop/orders/meta/schema.json" in str(raised.value)


@pytest.mark.parametrize("field", ["Table", "Schema", "TableVersion", "Query", "TableColumns", "TableColumnsTotal"])
def test_missing_fields(field: str) -> None:
    """A field that must be there is missed by name."""
    fields = document(column("a", "INT"))
    del fields[field]
    with pytest.raises(MalformedSchemaFile, match=f"missing required field `{field}`"):
        parse(fields)


def test_directory_that_the_state_cannot_keep() -> None:
    """It is refused here, for its own table alone."""
    folder = "s/" + "t" * 511
    with pytest.raises(MalformedSchemaFile, match="its directory has more than 512 characters"):
        parse_schema_file(AS_WRITTEN.encode(), f"{folder}/meta/x.json", V, 0, folder)
