"""Schema JSON → TableDefinition, checksum verified."""

from __future__ import annotations

import posixpath
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, NoReturn

import msgspec

from storage_consumer.bucket.paths import SchemaPath, parse_other
from storage_consumer.bucket.storage import Storage, read_schema_file
from storage_consumer.errors import MalformedSchemaFile
from storage_consumer.model import (
    DdlKind,
    TableColumn,
    TableDefinition,
    TableName,
    TableVersion,
    folded_name,
)
from storage_consumer.plan.steps import key_of
from storage_consumer.sql.tokens import tokens

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
LONGEST_NAME, LONGEST_DIRECTORY, LONGEST_PATH = 255, 512, 700
"""Characters that the state keeps; TiDB's names have 64 at most."""
LARGEST_TYPE = (1 << 31) - 1
"""The state keeps no larger one; TiDB's are below a thousand."""
_REMEDY = "TiCDC writes these files itself: restore it from a copy of the bucket, or recreate the changefeed in an empty prefix"


# A number with a point or exponent stays text: a float would be another number.
_JSON = msgspec.json.Decoder(float_hook=str)
_Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Entry(msgspec.Struct, rename="pascal"):
    """A column; numbers and flags may be texts."""

    column_name: str
    column_type: str
    column_id: Any = None
    column_default: Any = None
    column_precision: _Integer | None = None
    column_length: _Integer | None = None
    column_scale: _Integer | None = None
    column_nullable: bool | None = None
    column_is_pk: bool | None = None
    column_elems: tuple[str, ...] | None = None


class _Document(msgspec.Struct, rename="pascal"):
    """What a file says."""

    table: str
    schema: str
    table_version: int
    query: str
    table_columns: list[_Entry] | None
    table_columns_total: int
    version: int = _FORMATS[-1]
    type: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TYPE)] | None = None


def parse_schema_file(
    content: bytes, path: str, version: int, checksum: int | None, table_dir: str
) -> TableDefinition:
    """Return a schema file's definition; the other arguments are what its path says.

    `checksum` is None in the older layout, whose file names have none: then it is computed from the
    content.

    Oddities that leave the meaning clear (wrong checksum, unknown attribute, swapped names) become
    warnings of the result. Raises `MalformedSchemaFile` if the file can't be read as one.
    """

    def fail(what: str) -> NoReturn:
        raise MalformedSchemaFile(f"schema file {path}: {what}. {_REMEDY}.")

    try:
        fields = _JSON.decode(content)
        document = msgspec.convert(fields, _Document, strict=False)
    except msgspec.ValidationError as fault:
        fail(str(fault))
    except (msgspec.DecodeError, RecursionError) as fault:
        fail(f"not JSON: {fault}")
    if document.table_version != version:
        fail(f"TableVersion is {document.table_version}, but the file's name says {version}")
    columns = tuple(map(_column, document.table_columns or ()))
    if document.table_columns_total != len(columns):
        fail(
            f"TableColumnsTotal is {document.table_columns_total}, but TableColumns has {len(columns)} entries"
        )
    seen: set[str] = set()
    for column in columns:
        # TiDB finds names of columns equal whatever their case.
        if (folded := folded_name(column.name)) in seen:
            fail(f"column {column.name!r} is listed twice")
        seen.add(folded)
    name, name_warnings = _identity(document.schema, document.table, table_dir)
    # Here one table halts for it; the state, which cannot keep it, would refuse it for all.
    # Their key is as long as both together, and longer where they hold backquotes.
    if (
        max(len(name.schema), len(name.table)) > LONGEST_NAME
        or len(key_of(name)) > LONGEST_DIRECTORY
    ):
        fail(f"Schema or Table has more than {LONGEST_NAME} characters")
    if len(table_dir) > LONGEST_DIRECTORY or len(path) > LONGEST_PATH:
        fail(
            f"its directory has more than {LONGEST_DIRECTORY} characters, or its path more than {LONGEST_PATH}"
        )
    query = document.query
    computed = schema_checksum(content.decode())
    verified = ""
    if checksum is not None and computed is None:
        verified = "the checksum can't be verified: the file is not laid out as TiCDC writes it"
    elif checksum not in (None, computed):
        verified = (
            f"checksum of the columns is {computed:010d}, but the file's name says {checksum:010d}"
        )
    # A plain integer, since the state stores it by a driver that knows no other.
    return TableDefinition(
        name=name,
        version=TableVersion(version),
        query=query,
        ddl_type=document.type
        if document.type is not None
        else int(_ACTIONS.get(tuple(token.upper for token in tokens(query)[:2]), 0)),
        columns=columns,
        path=path,
        # The one in the name stays the identity of the file, even where the content has another.
        checksum=(computed or 0) if checksum is None else checksum,
        warnings=(*_oddities(document.version, fields), *name_warnings, *filter(None, [verified])),
    )


def read_definition(storage: Storage, path: str) -> TableDefinition:
    """Read the definition at a path; raise `FileNotFoundError`, or as `parse_schema_file`."""
    found = parse_other(path)
    assert isinstance(found, SchemaPath), path
    content = read_schema_file(storage, path)
    return parse_schema_file(
        content, path, found.version, found.checksum, table_dir=found.table_dir
    )


def schema_checksum(text: str) -> int | None:
    """Return the CRC-32 in the name of a schema file with this content; None if unknown.

    TiCDC hashes the JSON of the file without Query, Type and TableVersion, with Version 0 and with
    the columns sorted by the bytes of their names. The pieces are cut out of the original text, so
    that neither unknown attributes nor characters that a JSON library would write differently
    disturb the result.
    """
    # Four spaces of indentation are the fields of the file itself; deeper ones belong to columns.
    lines = text.split("\n")
    heads = {
        line.split(":", 1)[0].strip(): line.rstrip(",")
        for line in lines
        if line.startswith('    "')
    }
    wanted = [heads.get(f'"{field}"') for field in ("Table", "Schema", "TableColumnsTotal")]
    found: list[tuple[bytes, str]] = []
    start = None
    # TiCDC indents by four spaces, so the objects of the array begin at eight.
    for number, line in enumerate(lines):
        if line == "        {":
            start = number
        elif start is not None and line.rstrip(",") == "        }":
            # Without the comma: sorting may move a block to the end or away from it.
            block = "\n".join(lines[start:number]) + "\n        }"
            try:
                name = str(_JSON.decode(block).get("ColumnName"))
            except msgspec.DecodeError:
                return None
            found.append((name.encode("utf-8", "surrogatepass"), block))
            start = None
    if None in wanted:
        return None
    blocks = [block for _, block in sorted(found, key=lambda entry: entry[0])]
    table, schema, total = (line or "" for line in wanted)
    joined = "[\n" + ",\n".join(blocks) + "\n    ]" if blocks else "[]"
    hashed = (
        f'{{\n{table},\n{schema},\n    "Version": 0,\n    "TableColumns": {joined},\n{total}\n}}'
    )
    return zlib.crc32(hashed.encode("utf-8", "surrogatepass"))


def _column(entry: _Entry) -> TableColumn:
    base, default = entry.column_type.strip().upper(), entry.column_default
    return TableColumn(
        name=entry.column_name,
        type=base.removesuffix(" UNSIGNED"),
        unsigned=base.endswith(" UNSIGNED"),
        # TiCDC's documentation calls it ColumnLength; no known version writes that.
        precision=entry.column_length if entry.column_precision is None else entry.column_precision,
        scale=entry.column_scale,
        nullable=entry.column_nullable is not False,
        is_pk=bool(entry.column_is_pk),
        # TiCDC writes strings; numbers occur in its own tests.
        default=default
        if default is None or isinstance(default, str)
        else msgspec.json.encode(default).decode(),
        elements=entry.column_elems or (),
    )


def _identity(schema: str, table: str, table_dir: str) -> tuple[TableName, tuple[str, ...]]:
    """Return the table's name: the file's pair, unless it is the path's pair swapped."""
    stated = TableName(schema=schema, table=table)
    # An id in place of a path says nothing about names.
    if table_dir.isdecimal() or table_dir == directory_of(stated):
        return stated, ()
    swapped = TableName(schema=table, table=schema)
    if table and table_dir == directory_of(swapped):
        return swapped, (
            f"Schema {schema!r} and Table {table!r} are swapped relative to the path; read as {swapped}",
        )
    return stated, (
        f"the path says {table_dir!r}, Schema and Table say {stated}; the latter is used",
    )


def directory_of(name: TableName) -> str:
    """Return TiCDC's directory of a table or database, unless table ids are its paths."""
    # Segments joined, with empty ones, `.` and `..` resolved.
    return posixpath.normpath(f"{name.schema}/{name.table}").lstrip("/")


def _oddities(version: int, fields: dict[str, Any]) -> Iterator[str]:
    if version not in _FORMATS:
        yield f"file format version {version} is not known; read as version {_FORMATS[-1]}"
    if unknown := _unknown(fields, _Document):
        yield f"unknown fields: {', '.join(unknown)}"
    if odd := _unknown({name for entry in fields["TableColumns"] or () for name in entry}, _Entry):
        yield f"unknown column attributes: {', '.join(odd)}"


def _unknown(names: Iterable[str], kind: type[msgspec.Struct]) -> list[str]:
    return sorted({*names} - {field.encode_name for field in msgspec.structs.fields(kind)})
