"""Schema files of every age: attributes that come and go, other ways to write a value, and the published example."""

from __future__ import annotations

from typing import Any

import pytest

from storage_consumer.bucket.reader import StorageReader
from storage_consumer.bucket.schema_file import parse_schema_file, schema_checksum
from storage_consumer.bucket.stores.local import LocalStorage
from storage_consumer.config.settings import Upstream
from storage_consumer.errors import MalformedSchemaFile
from storage_consumer.model import TableColumn, TableDefinition
from tests.harness.corpora import FIXTURES
from tests.harness.twins.storage import FakeClock

V = 449000000000000001
FILE = """{
    "Table": "t",
    "Schema": "s",
    "Version": 1,
    "TableVersion": 449000000000000001,
    "Query": "",
    "Type": 0,
    "TableColumns": [
        {
            "ColumnName": "a",
            "ColumnType": "INT"%s
        }
    ],
    "TableColumnsTotal": 1
}"""


def read(*attributes: str, **fields: str) -> TableDefinition:
    """A file whose one column has further attributes, and in which fields have other values."""
    text = FILE % "".join(f",\n            {attribute}" for attribute in attributes)
    for field, value in fields.items():
        head, _, rest = text.partition(f'"{field}": ')
        text = f'{head}"{field}": {value}{rest[rest.index(",") :]}'
    path = f"s/t/meta/schema_{V}_0000000001.json"
    return parse_schema_file(text.encode(), path, V, schema_checksum(text), "s/t")


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ((), {}),
        (('"ColumnPrecision": "11"', '"ColumnNullable": "false"', '"ColumnIsPk": "true"'), {}),
        (('"ColumnDefault": "7"', '"ColumnPrecision": "11"'), {"default": "7"}),
        (('"ColumnId": "3"', '"ColumnPrecision": "11"', '"ColumnScale": "2"'), {"scale": 2}),
        (('"ColumnElems": [\n                "x",\n                "y"\n            ]',), {"elements": ("x", "y")}),
    ],
    ids=["bare", "6.5.0", "6.5.3", "with column ids", "new architecture"],
)
def test_attributes_by_age(attributes: tuple[str, ...], expected: dict[str, Any]) -> None:
    """An attribute that a TiCDC does not write yet has its default; all that it writes is known and hashed."""
    definition = read(*attributes)
    (column,) = definition.columns
    assert definition.warnings == ()
    assert {field: getattr(column, field) for field in ("default", "scale", "elements")} == {
        "default": None,
        "scale": None,
        "elements": (),
    } | expected


@pytest.mark.parametrize(("version", "odd"), [("0", False), ("1", False), ('"1"', False), ("2", True)])
def test_format_versions(version: str, *, odd: bool) -> None:
    """Format versions 0 and 1 are known; another one is warned about."""
    assert any("format version" in text for text in read(Version=version).warnings) == odd


@pytest.mark.parametrize(("written", "nullable"), [("false", False), ('"FALSE"', False), ("0", False), ('"1"', True)])
def test_flags(written: str, *, nullable: bool) -> None:
    """A flag may be a truth value, a number or the text of one."""
    assert read(f'"ColumnNullable": {written}').columns[0].nullable == nullable


@pytest.mark.parametrize("written", ["18446744073709551616", '"99999999999999999999"', "-18446744073709551616"])
def test_numbers_beyond_64_bits(written: str) -> None:
    """A number that no TiCDC writes is refused with the name of its attribute."""
    with pytest.raises(MalformedSchemaFile, match=r"TableColumns\[0\]\.ColumnPrecision"):
        read(f'"ColumnPrecision": {written}')


@pytest.mark.parametrize("escape", ["\\b", "\\u0008", "\\f", "\\u000c", "\\ufffd", "\ufffd", "\\u2028", "\\u003c"])
def test_escapes(escape: str) -> None:
    """However Go's JSON library writes a character, it is read as that, and the checksum is that of the text."""
    definition = read(f'"ColumnDefault": "{escape}"')
    assert definition.columns[0].default == escape.encode().decode("unicode_escape" if escape[0] == "\\" else "utf-8")
    assert definition.warnings == ()


def test_half_a_character() -> None:
    """Half of a surrogate pair is no text that could be passed on: the file is refused; a whole pair is one character."""
    assert read('"ColumnDefault": "\\ud83d\\ude00"').columns[0].default == "😀"
    with pytest.raises(MalformedSchemaFile, match="not JSON"):
        read('"ColumnDefault": "\\ud83d"')


def test_older_layout() -> None:
    """Where the file's name has no checksum, that of the content is taken; where it can't be computed, 0."""
    content = (FILE % "").encode()
    path = f"s/t/{V}/schema.json"
    expected = schema_checksum(content.decode())
    assert parse_schema_file(content, path, V, None, "s/t").checksum == expected
    squeezed = b"".join(line.strip() for line in content.splitlines())
    definition = parse_schema_file(squeezed, path, V, None, "s/t")
    assert (definition.checksum, definition.warnings) == (0, ())


def test_published_example() -> None:
    """The guide's example is read by the names of its path, with a warning, as the creation of a table."""
    root = str(FIXTURES / "published")
    reader = StorageReader(LocalStorage(root), Upstream(scheme="file", root=root, protocol="csv"), FakeClock())
    (read,) = reader.poll().schema_files
    assert isinstance(definition := read.content, TableDefinition)
    assert (str(definition.name), definition.version, definition.ddl_type) == ("test.tbl_1", 437752935075545091, 3)
    assert definition.columns == (
        TableColumn(name="Id", type="INT", nullable=False, is_pk=True),
        TableColumn(name="LastName", type="CHAR", precision=20),
        TableColumn(name="FirstName", type="VARCHAR", precision=30),
        TableColumn(name="HireDate", type="DATETIME"),
        TableColumn(name="OfficeLocation", type="BLOB", precision=20),
    )
    assert [text for text in definition.warnings if "swapped" in text]
