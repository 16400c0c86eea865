"""The files of an export, as Dumpling names and writes them: what reads one reads the other.

Format: dumpling v7 and v8, `v4/export/writer_util.go` and `metadata.go`. Data files are INSERT statements, which say everything of
themselves: the columns, the time zone, which values are bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage_consumer.bucket.export_names import METADATA
from storage_consumer.decode.values import grammar, holds_bytes
from storage_consumer.model import TableColumn, TableName
from storage_consumer.sql.tokens import quote

_HEAD = "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n/*!40103 SET TIME_ZONE='+00:00' */;\n"
"""What every file begins with; values of TIMESTAMP columns are in this zone."""
_PLAIN = re.compile(r"[^A-Za-z0-9_\x80-\U0010ffff]")
_SPECIAL = re.compile(rb"[\\'\"\0\n\r\x1a]")
_ESCAPES = {b"\\": b"\\\\", b"'": b"\\'", b'"': b'\\"', b"\0": b"\\0", b"\n": b"\\n", b"\r": b"\\r", b"\x1a": b"\\Z"}
_STATEMENT_BYTES = 1 << 20
"""Bytes of rows after which a statement ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """One file of an export."""

    path: str
    content: bytes


def database_file(schema: str, statement: str) -> WrittenFile:
    """Return the file of a CREATE DATABASE."""
    return _statement_file(f"{_escaped(schema)}-schema-create.sql", statement)


def table_file(name: TableName, statement: str) -> WrittenFile:
    """Return the file of a CREATE TABLE."""
    return _statement_file(f"{_stem(name)}-schema.sql", statement)


def view_file(name: TableName, statement: str) -> WrittenFile:
    """Return the file of a CREATE VIEW."""
    return _statement_file(f"{_stem(name)}-schema-view.sql", statement)


def data_file(
    name: TableName, number: int, columns: Sequence[TableColumn], rows: Iterable[Sequence[bytes | None]]
) -> WrittenFile:
    """Return a data file of a table. `number`: from 0; `rows`: the values of `columns` as the server sends them in texts, None for NULL."""
    kinds = ["bytes" if holds_bytes(c) else "number" if grammar(c, "dump-sql") else "text" for c in columns]
    names = ",".join(quote(column.name) for column in columns)
    opening = f"INSERT INTO {quote(name.table)} ({names}) VALUES\n".encode()
    content, left = bytearray(_HEAD.encode()), 0
    for row in rows:
        text = b"(" + b",".join(_literal(value, kind) for value, kind in zip(row, kinds, strict=True)) + b")"
        content += (b",\n" if left > 0 else opening) + text
        left = (left if left > 0 else _STATEMENT_BYTES) - len(text)
        if left <= 0:
            content += b";\n"
    if left > 0:
        content += b";\n"
    return WrittenFile(path=f"{_stem(name)}.{number:09}.sql", content=bytes(content))


def metadata_file(snapshot: int, started_at: str, finished_at: str) -> WrittenFile:
    """Return the file that says that an export is finished. `snapshot`: its TSO; both times are local."""
    text = (
        f"Started dump at: {started_at}\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {snapshot}\n\tGTID:\n\n"
        f"Finished dump at: {finished_at}\n"
    )
    return WrittenFile(path=METADATA, content=text.encode())


def _statement_file(path: str, statement: str) -> WrittenFile:
    return WrittenFile(path=path, content=f"{_HEAD}{statement};\n".encode())


def _stem(name: TableName) -> str:
    return f"{_escaped(name.schema)}.{_escaped(name.table)}"


def _escaped(text: str) -> str:
    """Return a name without anything that could be mistaken for another part of a file's name; see `names.unescaped`."""
    return _PLAIN.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _literal(value: bytes | None, kind: str) -> bytes:
    if value is None:
        return b"NULL"
    match kind:
        case "number":
            return value
        case "bytes":
            return b"x'" + value.hex().encode() + b"'"
    return b"'" + _SPECIAL.sub(lambda found: _ESCAPES[found[0]], value) + b"'"
