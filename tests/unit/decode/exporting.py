"""Dumpling's and mydumper's side, written for tests from the description of their formats: values to SQL and CSV, rows and files."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode.decoder import FileRead, RowChange, RowLayout, Tally
from storage_consumer.decode.export_files import ExportDecoder
from storage_consumer.model import CommitRange, TableColumn, TableName
from tests.unit.decode.encoders import BINARY, go_float

HEAD = "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
EVERYTHING = CommitRange(low=0, high=2**63)
SQL = DumpOptions()
CSV = DumpOptions(file_format="csv")
QUOTED_NUMBERS = frozenset(("YEAR", "MEDIUMINT"))
"""Numbers that Dumpling writes in quotes; MEDIUMINT only if it is unsigned."""
PLAIN = frozenset(("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"))
_SQL_ESCAPES = {0: b"\\0", 10: b"\\n", 13: b"\\r", 92: b"\\\\", 39: b"\\'", 34: b'\\"', 26: b"\\Z"}
_CSV_ESCAPES = {0: b"\\0", 10: b"\\n", 13: b"\\r", 92: b"\\\\"}
Value = object
"""None, an int, a float, a str or bytes, as a client would see it."""


def layout(*kinds: str, zone: str = "", table: str = "orders") -> RowLayout:
    """The layout of shop.orders with columns c0, c1 … of these types."""
    unsigned = ("BIT", "YEAR", "MEDIUMINT")
    columns = tuple(
        TableColumn(name=f"c{index}", type=kind, unsigned=kind in unsigned) for index, kind in enumerate(kinds)
    )
    return RowLayout(table=TableName(schema="shop", table=table), columns=columns, zone=zone)


def wire(kind: str, value: Value) -> str | None:
    """What the target has to get."""
    if value is None:
        return None
    if kind == "BIT":
        assert isinstance(value, bytes)
        return str(int.from_bytes(value, "big"))
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, float):
        return go_float(value, exponent=True)
    return "0000" if kind == "YEAR" and value == 0 else str(value)


def _text(value: Value) -> bytes:
    return value if isinstance(value, bytes) else (wire("", value) or "").encode()


# SQL


def sql_string(content: bytes, *, escape: bool = True) -> bytes:
    """A string as Dumpling writes it."""
    if not escape:
        return b"'%b'" % content.replace(b"'", b"''")
    return b"'%b'" % b"".join(_SQL_ESCAPES.get(byte, bytes([byte])) for byte in content)


@dataclass(kw_only=True)
class SqlStyle:
    """How SQL is spelled; the default is Dumpling's way, a chance makes it anybody's."""

    options: DumpOptions = SQL
    chance: random.Random | None = None
    per_statement: int = 1000
    order: Sequence[int] | None = None
    """Order of the columns, if they are named."""

    def pick(self, *spellings: bytes) -> bytes:
        """The first of these, or any."""
        return self.chance.choice(spellings) if self.chance else spellings[0]

    def value(self, kind: str, value: Value) -> bytes:
        """A literal."""
        escape = self.options.escape_backslash
        if value is None:
            return self.pick(b"NULL", b"null")
        if isinstance(value, bytes):
            digits, string = value.hex().encode(), sql_string(value, escape=escape)
            others = [b"0x" + digits] if digits else []
            return self.pick(b"x'%b'" % digits, b"X'%b'" % digits.upper(), b"_binary " + string, string, *others)
        text = _text(0 if kind == "YEAR" and value == 0 else value)
        string = sql_string(text, escape=escape)
        if kind in PLAIN:
            return self.pick(text, string)
        if kind in QUOTED_NUMBERS:
            return self.pick(string, text)
        double = b'"%b"' % text.replace(b"\\", b"\\\\" if escape else b"\\").replace(b'"', b'""')
        converted = [b"CONVERT(%b USING UTF8MB4)" % string, b"convert( %b USING utf8 )" % double]
        return self.pick(string, double, *converted)

    def row(self, kinds: Sequence[str], values: Sequence[Value]) -> bytes:
        """A row in parentheses."""
        order = range(len(kinds)) if self.order is None else self.order
        found = [self.value(kinds[place], values[place]) for place in order]
        return b"(%b)" % self.pick(b",", b" ,\n ").join(found)

    def file(self, kinds: Sequence[str], rows: Sequence[Sequence[Value]], table: str = "`orders`") -> bytes:
        """A whole file."""
        listed = "" if self.order is None else " (" + ",".join(f"`c{place}`" for place in self.order) + ")"
        parts = [HEAD.encode()]
        for start in range(0, len(rows), self.per_statement):
            verb = self.pick(b"INSERT INTO", b"INSERT IGNORE INTO", b"REPLACE INTO", b"insert into")
            some = [self.row(kinds, values) for values in rows[start : start + self.per_statement]]
            parts += [
                verb,
                f" {table}{listed} VALUES\n".encode(),
                self.pick(b",\n", b",", b" ,\r\n").join(some),
                b";\n",
            ]
            parts.append(self.pick(b"", b"/* note; */\n", b"-- note;\n", b"\n\n"))
        return b"".join(parts)


# CSV


@dataclass(kw_only=True)
class CsvStyle:
    """How CSV is spelled."""

    options: DumpOptions = CSV
    order: Sequence[int] | None = None
    escapes: dict[int, bytes] = field(default_factory=dict)

    def text(self, content: bytes) -> bytes:
        """A text, with the delimiter around it."""
        mark, separator = self.options.delimiter.encode(), self.options.separator.encode()
        if self.options.escape_backslash:
            special = (mark or separator)[0]
            escapes = _CSV_ESCAPES | {special: b"\\" + bytes([special])}
            content = b"".join(escapes.get(byte, bytes([byte])) for byte in content)
        elif mark:
            content = content.replace(mark, mark * 2)
        return mark + content + mark

    def value(self, kind: str, value: Value) -> bytes:
        """A field."""
        if value is None:
            return self.options.null.encode()
        if isinstance(value, bytes) and self.options.binary != "raw":
            coded = value.hex().encode() if self.options.binary == "hex" else base64.b64encode(value)
            return self.text(coded)
        return _text(value) if kind in PLAIN else self.text(_text(value))

    def file(self, kinds: Sequence[str], rows: Sequence[Sequence[Value]]) -> bytes:
        """A whole file."""
        order = list(range(len(kinds)) if self.order is None else self.order)
        separator, end = self.options.separator.encode(), self.options.terminator.encode()
        lines = [[self.text(f"c{place}".encode()) for place in order]] if self.options.header else []
        lines += [[self.value(kinds[place], values[place]) for place in order] for values in rows]
        return b"".join(separator.join(line) + end for line in lines)


# reading


def cut(content: bytes, size: int) -> Iterator[bytes]:
    """Pieces of this many bytes."""
    return (content[start : start + size] for start in range(0, len(content), size))


def read(  # noqa: PLR0913 - what a test may want to vary
    content: bytes,
    table: RowLayout,
    options: DumpOptions,
    *,
    size: int = 1 << 20,
    commit_range: CommitRange = EVERYTHING,
    clock: int = 0,
    tally: Tally | None = None,
) -> FileRead:
    """What a decoder is given of a file."""
    return FileRead(
        blocks=cut(content, size),
        source="shop.orders.000000000.sql",
        layout=table,
        commit_range=commit_range,
        clock=clock,
        tally=tally or Tally(),
    )


def values_of(content: bytes, table: RowLayout, options: DumpOptions, *, size: int = 1 << 20) -> list[object]:
    """The values of each row."""
    return [change[3] for change in changes_of(content, table, options, size=size)]


def changes_of(content: bytes, table: RowLayout, options: DumpOptions, *, size: int = 1 << 20) -> list[RowChange]:
    """The rows, one by one."""
    return list(ExportDecoder(options).rows(read(content, table, options, size=size)))


def expected(kinds: Sequence[str], rows: Iterable[Sequence[Value]]) -> list[object]:
    """The values that the target has to get of each row."""
    return [tuple(wire(kind, value) for kind, value in zip(kinds, row, strict=True)) for row in rows]


ALL_KINDS = (
    *("TINYINT", "MEDIUMINT", "BIGINT", "DECIMAL", "FLOAT", "DOUBLE", "YEAR", "DATE", "DATETIME", "TIMESTAMP", "TIME"),
    *("CHAR", "TEXT", "JSON", "ENUM", "SET", "VECTOR", "BIT", *sorted(BINARY)),
)
