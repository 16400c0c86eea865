"""TiCDC's CSV encoder, written from the description of the format alone, with what decoding must give back."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from decimal import Decimal

from storage_consumer.config.settings import CsvOptions
from storage_consumer.model import TableColumn, TableName

BARE = frozenset(("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "BIT", "YEAR", "FLOAT", "DOUBLE"))
"""Column types whose values are printed without quotes."""
Value = int | float | str | bytes | None
"""A value as a client would see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row change at the source; `old` and `new` are None where there is no row."""

    ts: int
    old: tuple[Value, ...] | None
    new: tuple[Value, ...] | None
    split: bool
    """Whether an update is written as a delete and an insert that nothing links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table and how its changefeed writes."""

    options: CsvOptions
    handle_key: bool
    """Whether the writer heeds ``output-handle-key``."""
    table: TableName
    columns: tuple[TableColumn, ...]
    written: tuple[int, ...]
    """The columns, by index, in the order of the file."""

    def header(self) -> str:
        """The header line, or nothing."""
        options = self.options
        if not options.output_field_header:
            return ""
        meta = ["operation", "table", "schema"]
        meta += ["commit-ts"] * options.include_commit_ts + ["is-update"] * options.output_old_value
        names = [f"ticdc-meta${name}" for name in meta] + [self.columns[index].name for index in self.written]
        return options.delimiter.join(names) + options.terminator

    def rows(self, change: Change) -> list[str]:
        """The rows of a change."""
        old, new = change.old, change.new
        if old is not None and new is not None:
            if change.split:
                return [self.row("D", change.ts, old, is_update=False), self.row("I", change.ts, new, is_update=False)]
            if self.options.output_old_value:
                return [self.row("D", change.ts, old, is_update=True), self.row("I", change.ts, new, is_update=True)]
            return [self.row("U", change.ts, new, is_update=True)]
        if new is not None:
            return [self.row("I", change.ts, new, is_update=False)]
        assert old is not None
        return [self.row("D", change.ts, old, is_update=False)]

    def row(self, operation: str, ts: int, values: tuple[Value, ...], *, is_update: bool) -> str:
        """One row, terminator included."""
        options = self.options
        fields = [self.text(operation), self.text(self.table.table), self.text(self.table.schema)]
        fields += [str(ts)] * options.include_commit_ts
        fields += [str(is_update).lower()] * options.output_old_value
        fields += [self.text(f"{{{ts % 7}, x}}")] * self.handle_key
        fields += [self.field(self.columns[index], values[index]) for index in self.written]
        return options.delimiter.join(fields) + options.terminator

    def field(self, column: TableColumn, value: Value) -> str:
        """One value."""
        if value is None:
            return self.options.null
        text = plain(column.type, value, self.options)
        return text if column.type in BARE else self.text(text)

    def text(self, text: str) -> str:
        """A field of the string class."""
        quote, delimiter = self.options.quote, self.options.delimiter
        if quote:
            return quote + "".join(character * 2 if character == quote else character for character in text) + quote
        written, position = "", 0
        while position < len(text):
            length = len(delimiter) if text.startswith(delimiter, position) else 1
            for character in text[position : position + length]:
                escape = {"\r": "\\r", "\n": "\\n", "\\": "\\\\"}.get(character)
                written += escape or (f"\\{character}" if length > 1 or character == delimiter else character)
            position += length
        return written

    def image(self, values: tuple[Value, ...] | None) -> tuple[str | None, ...] | None:
        """What decoding must make of a row's values."""
        if values is None:
            return None
        return tuple(self.decoded(column, value) for column, value in zip(self.columns, values, strict=True))

    def decoded(self, column: TableColumn, value: Value) -> str | None:
        """What decoding must make of a value: a text that is written like NULL is NULL where the column can be NULL."""
        if value is None or (
            not self.options.quote and column.nullable and self.field(column, value) == self.options.null
        ):
            return None
        if isinstance(value, bytes):
            return value.hex().upper()
        if column.type == "YEAR" and value == 0:
            return "0000"
        return plain(column.type, value, self.options)


def plain(kind: str, value: Value, options: CsvOptions) -> str:
    """A value's text before it is quoted or escaped."""
    if isinstance(value, bytes):
        return value.hex() if options.binary_encoding_method == "hex" else base64.b64encode(value).decode()
    if isinstance(value, float):
        return _go_float(value, single=kind == "FLOAT")
    return str(value)


def _go_float(value: float, *, single: bool) -> str:
    """The shortest digits that lead back to the value, with an exponent below 1e-4 and from 1e21 (or for both, 1e6) on."""
    for digits in range(17):
        text = f"{value:.{digits}e}"
        back = float(text)
        if single:
            back = struct.unpack("<f", struct.pack("<f", back))[0]
        if back == value:
            break
    mantissa, _, exponent = text.partition("e")
    power = int(exponent)
    if power < -4 or power >= 6:
        return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    return f"{Decimal(text):f}"
