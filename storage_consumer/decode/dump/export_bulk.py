"""Rows of exports in bulk: see `decode.bulk`. Import late, see `jit`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode.bulk import BulkForm, BulkRows, RowsBatch, array_over, counted
from storage_consumer.decode.decoder import FileRead
from storage_consumer.decode.dump.columns import Reader
from storage_consumer.decode.values import IN_FORMATTED, NUMBER_FIELDS, single, year
from storage_consumer.kernels import dump_rows
from storage_consumer.kernels.arrays import INSERT, Offsets, Packed, Places
from storage_consumer.kernels.words import is_utf8, text_of

Unquoted = Callable[[bytes], bytes]
"""Function from what is between quotes to what it means."""
_BINARY_FIELDS = {"raw": dump_rows.BYTES_FIELD, "hex": dump_rows.HEX_FIELD, "base64": dump_rows.BASE64_FIELD}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExportForm(BulkForm):
    """Of the rows of an export."""

    readers: tuple[Reader, ...]
    """The reader of each column, in the order of the file."""
    unquoted: Unquoted


@lru_cache(maxsize=1024)
def export_form(
    readers: tuple[Reader, ...], order: tuple[int, ...] | None, options: DumpOptions, unquoted: Unquoted, quote: str
) -> ExportForm | None:
    """Return how to read rows in bulk; None if the options do not allow it.

    `readers` are in the order of the layout. `quote`: what is around texts; `unquoted`: what its content means.
    """
    places = tuple(range(len(readers))) if order is None else order
    is_sql = options.file_format == "sql"
    if not readers or not (is_sql or _is_usual(options)):
        return None
    in_file = tuple(readers[place] for place in places)
    fields = [_export_field(reader, "raw" if is_sql else options.binary) for reader in in_file]
    return ExportForm(
        bytes=dump_rows.ExportBytes(
            marks=dump_rows.ExportMarks(
                quote=ord(quote) if quote else dump_rows.NO_QUOTE,
                separator=ord("," if is_sql else options.separator),
                is_sql=is_sql,
                has_cr=not is_sql and len(options.terminator) > 1,
                escapes=options.escape_backslash,
                has_bytes=any(reader.holds_bytes for reader in readers),
            ),
            null=array_over(b"NULL" if is_sql else options.null.encode()),
            values=np.array(fields, np.uint8),
            nullable=np.array([bool(quote) or reader.column.nullable for reader in in_file]),
        ),
        readers=in_file,
        converters=tuple(reader.convert for reader in in_file),
        place_of=tuple(places.index(place) for place in range(len(places))),
        unquoted=unquoted,
        converted=[place for place, reader in enumerate(readers) if not _is_written(reader)],
    )


def _is_usual(options: DumpOptions) -> bool:
    """Return whether the loops know this way of writing CSV."""
    marks = options.delimiter + options.separator
    return (
        len(options.delimiter) <= 1 == len(options.separator)
        and options.delimiter != options.separator
        and marks.isascii()
        # Digits of bytes are looked for between quotes.
        and (options.delimiter != "" or options.binary == "raw")
        # Marks that may be in a number or in the digits of bytes, and ends of lines, are left to the plain reader.
        and not re.search(r"[\w\\.+\s=/-]", options.delimiter)
        and not re.search(r"[\w\\.+\r\n=/-]", options.separator)
        and options.delimiter not in IN_FORMATTED
        and options.terminator in ("\n", "\r\n")
        and not options.null.startswith(tuple("-0123456789" + options.delimiter))
        and options.null.isascii()
        and not any(sign in options.null for sign in (options.separator, "\r", "\n"))
    )


def _export_field(reader: Reader, binary: str) -> int:
    """Return the form of a column's values."""
    if reader.convert is single:
        return dump_rows.SINGLE_FIELD
    if reader.grammar is not None:
        return NUMBER_FIELDS[reader.grammar.pattern]
    return _BINARY_FIELDS[binary] if reader.holds_bytes else dump_rows.TEXT_FIELD


def _is_written(reader: Reader) -> bool:
    """Return whether the loops write the values of a column: all but those that need a function called."""
    is_binary = reader.holds_bytes and reader.column.type != "BIT" and not reader.is_spelled
    return reader.convert in (None, single, year) or is_binary


@dataclass(frozen=True, slots=True, eq=False)
class ExportRows(BulkRows):
    """Rows of an export."""

    write_lines = staticmethod(dump_rows.write_lines)

    def between(self, column: int, rows: Places) -> tuple[Offsets, Offsets]:
        """See `BulkRows`."""
        starts, ends = self.borders[rows, 2 * column], self.borders[rows, 2 * column + 1]
        quoted = array_over(self.content)[starts] == self.form.bytes.marks.quote
        return starts + quoted, ends - quoted

    def packed(self, place: int, rows: Places) -> Packed | None:  # noqa: ARG002 - as in the others
        """See `BulkRows`; exports have too many ways of writing a value."""
        return None

    def texts(self, place: int, rows: Places) -> list[str | None]:
        """See `BulkRows`."""
        column, content = self.form.place_of[place], self.content
        reader, marks, unquoted = self.form.readers[column], self.form.bytes.marks, self.form.unquoted
        null, quote, is_number = bytes(self.form.bytes.null), marks.quote, reader.is_number
        found: list[str | None] = []
        starts, ends = self.borders[rows, 2 * column].tolist(), self.borders[rows, 2 * column + 1].tolist()
        for start, end in zip(starts, ends, strict=True):
            if quote == dump_rows.NO_QUOTE:
                raw = content[start:end]
                is_none = raw == null and reader.column.nullable
                found.append(None if is_none else reader.of_bytes(unquoted(raw)))
            elif content[start] == quote:
                text = unquoted(content[start + 1 : end - 1])
                digits = reader.holds_bytes and self.form.bytes.values[column] != dump_rows.BYTES_FIELD
                found.append(reader.of_text(text.decode()) if digits else reader.of_bytes(text))
            elif is_number and (raw := content[start:end]) != null:
                found.append(reader.of_text(raw.decode()))
            elif marks.is_sql and content[end - 1] == quote:
                # A literal x'…'.
                found.append(reader.of_text(content[start + 2 : end - 1].decode()))
            else:
                found.append(None)
        return found


def read_export(form: ExportForm, content: bytes, file: FileRead) -> tuple[RowsBatch, int] | None:
    """Return the changes of the rows that `content` begins with, up to the end of a statement, and where what follows begins.

    `content` ends with LF. The rows are counted. Returns None if the first row is not of this form, or if a value is not one of its
    column's type: both are for the plain reader.
    """
    # What separates values is the least that they need: NULL may be written as nothing.
    most = min(content.count(b"\n"), len(content) // len(form.readers))
    text = text_of(content)
    # Checked once for all where it can be: the loops go by bytes.
    if not most or not (form.bytes.marks.has_bytes or is_utf8(text)):
        return None
    found = dump_rows.ExportFound(
        borders=np.empty((most, 2 * len(form.readers)), np.int64), behind=np.empty(most, np.int64)
    )
    count = dump_rows.find_rows(text, form.bytes, found)
    if not count:
        return None
    ts = np.arange(count) + (file.clock + file.tally.rows + 1)
    rows = ExportRows(form, content, found.borders[:count], ts, np.full(count, INSERT, np.int8))
    batch = counted(file.commit_range, rows, np.arange(count), file.tally, count)
    return None if batch is None else (batch, int(found.behind[count - 1]))
