"""Schema JSON → TableDefinition, checksum verified."""

from __future__ import annotations

import json
import posixpath
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from storage_consumer.errors import MalformedSchemaFile
from storage_consumer.model import DdlKind, TableColumn, TableDefinition, TableName, TableVersion, folded_name
from storage_consumer.plan.steps import key_of
from storage_consumer.sql.tokens import tokens
from storage_consumer.storage.base import Storage, read_schema_file
from storage_consumer.storage.paths import SchemaPath, parse_other

_FORMATS = (0, 1)
"""Known file format versions; TiCDC writes 1, and hashes the file as version 0."""
_ACTIONS: Mapping[tuple[str, ...], DdlKind] = {
    ("CREATE", "DATABASE"): DdlKind.CREATE_SCHEMA,
    ("CREATE", "SCHEMA"): DdlKind.CREATE_SCHEMA,
    ("DROP", "DATABASE"): DdlKind.DROP_SCHEMA,
    ("DROP", "SCHEMA"): DdlKind.DROP_SCHEMA,
    ("CREATE", "TABLE"): DdlKind.CREATE_TABLE,
    ("DROP", "TABLE"): DdlKind.DROP_TABLE,
}
"""First words of a statement → TiDB's action code, for files that lack it."""
_MAX_INTEGER = (1 << 64) - 1
LONGEST_NAME, LONGEST_DIRECTORY, LONGEST_PATH = 255, 512, 700
"""Characters that the state keeps; TiDB's names have 64 at most."""
LARGEST_TYPE = (1 << 31) - 1
"""The state keeps no larger one; TiDB's are below a thousand."""
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_FIELDS = {"Table", "Schema", "Version", "TableVersion", "Query", "Type", "TableColumns", "TableColumnsTotal"}
_ATTRIBUTES = {
    "ColumnId",
    "ColumnName",
    "ColumnType",
    "ColumnDefault",
    "ColumnPrecision",
    "ColumnLength",
    "ColumnScale",
    "ColumnNullable",
    "ColumnIsPk",
    "ColumnElems",
}
_REMEDY = "TiCDC writes these files itself: restore it from a copy of the bucket, or recreate the changefeed in an empty prefix"


def parse_schema_file(content: bytes, path: str, version: int, checksum: int | None, table_dir: str) -> TableDefinition:
    """Return the definition in a schema file; `path`, `version`, `checksum` and `table_dir` are what its path says.

    `checksum` is None in the older layout, whose file names have none: then it is computed from the content.

    Oddities that leave the meaning clear (wrong checksum, unknown attribute, swapped names) become warnings of the result.
    Raises `MalformedSchemaFile` if the file can't be read as one.
    """
    document = _Document(content, path)
    if (stated := document.integer("TableVersion")) != version:
        document.fail(f"TableVersion is {stated}, but the file's name says {version}")
    columns = tuple(_column(document, entry, place) for place, entry in enumerate(document.columns(), start=1))
    if (total := document.integer("TableColumnsTotal")) != len(columns):
        document.fail(f"TableColumnsTotal is {total}, but TableColumns has {len(columns)} entries")
    if twice := _repeated(column.name for column in columns):
        document.fail(f"column {twice!r} is listed twice")
    name, name_warnings = _identity(document.text("Schema"), document.text("Table"), table_dir)
    # Here one table halts for it; the state, which cannot keep it, would refuse it for all.
    # Their key is as long as both together, and longer where they hold backquotes.
    if max(len(name.schema), len(name.table)) > LONGEST_NAME or len(key_of(name)) > LONGEST_DIRECTORY:
        document.fail(f"Schema or Table has more than {LONGEST_NAME} characters")
    if len(table_dir) > LONGEST_DIRECTORY or len(document.path) > LONGEST_PATH:
        document.fail(
            f"its directory has more than {LONGEST_DIRECTORY} characters, or its path more than {LONGEST_PATH}"
        )
    query = document.text("Query")
    computed = schema_checksum(document.content)
    verified = () if checksum is None else _checksum_warnings(computed, checksum)
    # A plain integer, since the state stores it by a driver that knows no other.
    return TableDefinition(
        name=name,
        version=TableVersion(version),
        query=query,
        ddl_type=document.integer("Type", most=LARGEST_TYPE)
        if "Type" in document.fields
        else int(_ACTIONS.get(tuple(token.upper for token in tokens(query)[:2]), 0)),
        columns=columns,
        path=path,
        # The one in the name stays the identity of the file, even where the content has another.
        checksum=(computed or 0) if checksum is None else checksum,
        warnings=(*_oddities(document), *name_warnings, *verified),
    )


def read_definition(storage: Storage, path: str) -> TableDefinition:
    """Return the definition in the schema file at a path; raise `FileNotFoundError`, and as `parse_schema_file` does."""
    found = parse_other(path)
    assert isinstance(found, SchemaPath), path
    content = read_schema_file(storage, path)
    return parse_schema_file(content, path, found.version, found.checksum, table_dir=found.table_dir)


def schema_checksum(text: str) -> int | None:
    """Return the CRC-32 that TiCDC puts into the name of a schema file with this content; None if it can't be computed.

    TiCDC hashes the JSON of the file without Query, Type and TableVersion, with Version 0 and with the columns sorted by
    the bytes of their names. The pieces are cut out of the original text, so that neither unknown attributes nor characters
    that a JSON library would write differently disturb the result.
    """
    # Four spaces of indentation are the fields of the file itself; deeper ones belong to columns.
    lines = text.split("\n")
    heads = {line.split(":", 1)[0].strip(): line.rstrip(",") for line in lines if line.startswith('    "')}
    wanted = [heads.get(f'"{field}"') for field in ("Table", "Schema", "TableColumnsTotal")]
    blocks = _column_blocks(lines)
    if None in wanted or blocks is None:
        return None
    table, schema, total = (line or "" for line in wanted)
    joined = "[\n" + ",\n".join(blocks) + "\n    ]" if blocks else "[]"
    hashed = f'{{\n{table},\n{schema},\n    "Version": 0,\n    "TableColumns": {joined},\n{total}\n}}'
    return zlib.crc32(hashed.encode("utf-8", "surrogatepass"))


class _Document:
    """The fields of one file, with errors that name it."""

    def __init__(self, content: bytes, path: str) -> None:
        self.path = path
        try:
            self.content = content.decode("utf-8")
            # Numbers with a point or exponent stay text: none belongs here, and none may become a float.
            self.fields = json.loads(self.content, parse_float=str, parse_constant=_no_constant)
            if "\\ud" in self.content.lower():
                # A lone surrogate, as in "\\ud83d", is not a character that could be passed on.
                json.dumps(self.fields, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            self.fail(f"not JSON: {error}")
        if not isinstance(self.fields, dict):
            self.fail("not a JSON object")

    def fail(self, what: str) -> NoReturn:
        """Raise the error of this file."""
        raise MalformedSchemaFile(f"schema file {self.path}: {what}. {_REMEDY}.")

    def text(self, field: str) -> str:
        """Return a field that must be present and hold a string."""
        value = self._field(field)
        if not isinstance(value, str):
            self.fail(f"{field} must be a string, but is {_shown(value)}")
        return value

    def integer(self, field: str, default: int | None = None, most: int = _MAX_INTEGER) -> int:
        """Return a field that holds an integer up to `most`, or a string of its digits; exact at any size."""
        if field not in self.fields and default is not None:
            return default
        value = self._field(field)
        number = _integer(value)
        if number is None or not 0 <= number <= most:
            self.fail(f"{field} must be an integer from 0 to {most}, but is {_shown(value)}")
        return number

    def columns(self) -> list[dict[str, Any]]:
        """Return the entries of TableColumns; none where the file says null, as for a database."""
        value = self._field("TableColumns")
        entries = [] if value is None else value
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self.fail("TableColumns must be null or an array of objects")
        return entries

    def _field(self, field: str) -> Any:
        if field not in self.fields:
            self.fail(f"{field} is missing")
        return self.fields[field]


def _column(document: _Document, entry: dict[str, Any], place: int) -> TableColumn:
    name, type_text = entry.get("ColumnName"), entry.get("ColumnType")
    if not isinstance(name, str) or not isinstance(type_text, str):
        document.fail(f"column {place} of TableColumns needs the strings ColumnName and ColumnType")
    where = f"of column {name!r}"
    base = type_text.strip().upper()
    # TiCDC's documentation calls it ColumnLength; no known version writes that.
    precision = "ColumnPrecision" if entry.get("ColumnPrecision") is not None else "ColumnLength"
    elements = entry.get("ColumnElems")
    if elements is not None and not (isinstance(elements, list) and all(isinstance(e, str) for e in elements)):
        document.fail(f"ColumnElems {where} must be an array of strings")
    value = entry.get("ColumnDefault")
    return TableColumn(
        name=name,
        type=base.removesuffix(" UNSIGNED"),
        unsigned=base.endswith(" UNSIGNED"),
        precision=_optional_integer(document, entry, precision, where),
        scale=_optional_integer(document, entry, "ColumnScale", where),
        nullable=_flag(document, entry, "ColumnNullable", where, default=True),
        is_pk=_flag(document, entry, "ColumnIsPk", where, default=False),
        default=(value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)),
        elements=tuple(elements or ()),
    )


def _optional_integer(document: _Document, entry: dict[str, Any], attribute: str, where: str) -> int | None:
    value = entry.get(attribute)
    number = _integer(value)
    if value is not None and number is None:
        document.fail(f"{attribute} {where} must be an integer, but is {_shown(value)}")
    return number


def _flag(document: _Document, entry: dict[str, Any], attribute: str, where: str, *, default: bool) -> bool:
    value = entry.get(attribute)
    if value is None:
        return default
    known = {"true": True, "false": False, "1": True, "0": False}.get(str(value).lower())
    if known is None:
        document.fail(f"{attribute} {where} must be true or false, but is {_shown(value)}")
    return known


def _integer(value: Any) -> int | None:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    is_one = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_INTEGER
    return value if is_one else None


def _identity(schema: str, table: str, table_dir: str) -> tuple[TableName, tuple[str, ...]]:
    """Return the table's name: the pair in the file, unless it is exactly the swapped pair of the path."""
    stated = TableName(schema=schema, table=table)
    # An id in place of a path says nothing about names.
    if table_dir.isdecimal() or table_dir == directory_of(stated):
        return stated, ()
    swapped = TableName(schema=table, table=schema)
    if table and table_dir == directory_of(swapped):
        return swapped, (f"Schema {schema!r} and Table {table!r} are swapped relative to the path; read as {swapped}",)
    return stated, (f"the path says {table_dir!r}, Schema and Table say {stated}; the latter is used",)


def directory_of(name: TableName) -> str:
    """Return where TiCDC puts the files of a table, or of a database, unless table ids are its paths."""
    # Segments joined, with empty ones, `.` and `..` resolved.
    return posixpath.normpath(f"{name.schema}/{name.table}").lstrip("/")


def _oddities(document: _Document) -> Iterator[str]:
    if (stated := document.integer("Version", default=_FORMATS[-1])) not in _FORMATS:
        yield f"file format version {stated} is not known; read as version {_FORMATS[-1]}"
    if unknown := sorted(document.fields.keys() - _FIELDS):
        yield f"unknown fields: {', '.join(unknown)}"
    if odd := sorted({attribute for entry in document.columns() for attribute in entry} - _ATTRIBUTES):
        yield f"unknown column attributes: {', '.join(odd)}"


def _checksum_warnings(computed: int | None, checksum: int) -> Iterator[str]:
    if computed is None:
        yield "the checksum can't be verified: the file is not laid out as TiCDC writes it"
    elif computed != checksum:
        yield f"checksum of the columns is {computed:010d}, but the file's name says {checksum:010d}"


def _column_blocks(lines: list[str]) -> list[str] | None:
    """Return the texts of the column objects, sorted by name; None where brackets and indentation are not TiCDC's."""
    blocks: list[tuple[bytes, str]] = []
    start = None
    # TiCDC indents by four spaces, so the objects of the array stand at eight.
    for number, line in enumerate(lines):
        if line == "        {":
            start = number
        elif start is not None and line.rstrip(",") == "        }":
            # Without the comma: sorting may move a block to the end or away from it.
            block = "\n".join(lines[start:number]) + "\n        }"
            try:
                name = str(json.loads(block, parse_float=str).get("ColumnName"))
            except ValueError:
                return None
            blocks.append((name.encode("utf-8", "surrogatepass"), block))
            start = None
    return [block for _, block in sorted(blocks, key=lambda entry: entry[0])]


def _repeated(names: Iterator[str]) -> str:
    seen: set[str] = set()
    for name in names:
        # TiDB finds names of columns equal whatever their case.
        if (folded := folded_name(name)) in seen:
            return name
        seen.add(folded)
    return ""


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 80 else f"{text[:80]}…"  # noqa: PLR2004 - the length of a line
