"""Rows of CSV in bulk: see `decode.bulk`. Import late, see `jit`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from storage_consumer.decode.bulk import BulkForm, BulkRows, RowsBatch, array_over, counted, of_files
from storage_consumer.decode.csv.row_pattern import Shape
from storage_consumer.decode.decoder import ABSENT, FilesBatch, Tally
from storage_consumer.decode.values import (
    IN_FORMATTED,
    NUMBER_FIELDS,
    Converter,
    CsvForm,
    convert_all,
    csv_form,
    grammar,
    is_base64,
)
from storage_consumer.decode.wire_format import NULL
from storage_consumer.kernels import csv_rows
from storage_consumer.kernels.arrays import DELETE, INSERT, UPDATE, Flags, Offsets, Packed, Places
from storage_consumer.kernels.packed import packed_csv
from storage_consumer.kernels.words import is_utf8, text_of
from storage_consumer.model import CommitRange, TableColumn

_OPERATIONS = np.full(256, -1, np.int8)
_OPERATIONS[list(b"IUD")] = INSERT, UPDATE, DELETE


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CsvRowForm(BulkForm):
    """Of CSV rows."""

    columns: tuple[TableColumn, ...]
    """The file's columns, in its order."""


@lru_cache(maxsize=1024)
def csv_row_form(shape: Shape) -> CsvRowForm | None:
    """Return how to read rows of this shape in bulk; None if their options do not allow it."""
    form, options = shape.form, shape.form.options
    marks = options.quote + options.delimiter
    if (
        # The loops know the usual way of writing rows; all others are left to the plain reader.
        not options.include_commit_ts
        or form.handle_key
        or options.null.encode() != NULL
        or options.terminator not in ("\n", "\r\n")
        or len(options.quote) != 1
        or len(options.delimiter) != 1
        or not marks.isascii()
        # Marks that may occur in a number, in NULL or in true and false are left to the plain reader.
        or re.search(r"[\w\\.+-]", marks)
        # So are quotes that may occur in a text that TiCDC formats itself: the loops do not look for them there.
        or options.quote in IN_FORMATTED
    ):
        return None
    columns = tuple(form.layout.columns[index] for index in form.order)
    converters: list[Converter | None] = [None] * len(columns)
    for place, converter in shape.conversions:
        converters[place] = converter
    place_of = tuple(form.order.index(i) if i in form.order else -1 for i in range(len(form.layout.columns)))
    values = [_csv_field(*pair) for pair in zip(columns, converters, strict=True)]
    names = f"{options.quote}{options.delimiter}{form.names}{options.delimiter}"
    return CsvRowForm(
        bytes=csv_rows.CsvBytes(
            marks=csv_rows.CsvMarks(
                quote=ord(options.quote),
                delimiter=ord(options.delimiter),
                has_cr=len(options.terminator) > 1,
                paired=options.output_old_value,
            ),
            names=array_over(names.encode()),
            values=np.array(values, np.uint8),
        ),
        columns=columns,
        place_of=place_of,
        converters=tuple(converters),
        # Base64 the loops decode.
        converted=[
            place
            for place, column in enumerate(place_of)
            if column < 0 or (converters[column] and values[column] != csv_rows.BASE64_FIELD)
        ],
    )


def _csv_field(column: TableColumn, converter: Converter | None) -> int:
    """Return the form of a column's field."""
    form = csv_form(column)
    if form is CsvForm.BARE:
        return NUMBER_FIELDS[grammar(column, "csv")]
    if form is CsvForm.FREE:
        return csv_rows.FREE_FIELD
    return csv_rows.BASE64_FIELD if is_base64(converter) else csv_rows.PLAIN_FIELD


@dataclass(frozen=True, slots=True, eq=False)
class CsvRows(BulkRows):
    """Rows of CSV: the borders are the places of the delimiters before, between and after its values; the last one is its LF."""

    seconds: Flags
    """Whether a row is the I row of an update whose D row precedes it; neither is here without the other."""
    write_lines = staticmethod(csv_rows.write_lines)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ts)

    @property
    def end(self) -> int:
        """Where the bytes of the last row end, LF included."""
        return int(self.borders[-1, -1]) + 1

    def between(self, column: int, rows: Places) -> tuple[Offsets, Offsets]:
        """See `BulkRows`; where a field begins and ends."""
        ends: Offsets = self.borders[rows, column + 1]
        # A CR may precede the LF.
        has_cr = self.form.bytes.marks.has_cr and column == len(self.form.columns) - 1
        return self.borders[rows, column] + 1, ends - 1 if has_cr else ends

    def texts(self, place: int, rows: Places) -> list[str | None]:
        """See `BulkRows`."""
        column, content = self.form.place_of[place], self.content
        if column < 0:
            return [ABSENT] * len(rows)
        borders = zip(*(places.tolist() for places in self.between(column, rows)), strict=True)
        found = [content[start:end] for start, end in borders]
        form, convert = csv_form(self.form.columns[column]), self.form.converters[column]
        if form is CsvForm.BARE:
            texts = [None if text == NULL else text.decode() for text in found]
        elif form is CsvForm.PLAIN:
            texts = [None if text == NULL else text[1:-1].decode() for text in found]
        else:
            quote = bytes([self.form.bytes.marks.quote])
            texts = [None if text == NULL else text[1:-1].replace(quote * 2, quote).decode() for text in found]
        return convert_all(convert, texts) if convert else texts

    def packed(self, place: int, rows: Places) -> Packed | None:
        """See `BulkRows`."""
        column = self.form.place_of[place]
        is_base64 = self.form.bytes.values[column] == csv_rows.BASE64_FIELD
        if column < 0 or (self.form.converters[column] and not is_base64):
            return None
        quote = self.form.bytes.marks.quote
        return packed_csv(array_over(self.content), *self.between(column, rows), quote, is_base64=bool(is_base64))


def read_rows(form: CsvRowForm, content: bytes) -> CsvRows | None:
    """Return the rows of this form at the start of `content`, which ends with LF; None if there are none."""
    least = len(form.bytes.names) + 2 * len(form.columns)
    most = min(content.count(b"\n"), len(content) // least)  # a text may be full of LF
    text = text_of(content)
    # Checked once for all: the loops go by bytes.
    if not most or not is_utf8(text):
        return None
    found = csv_rows.CsvFound(
        borders=np.empty((most, len(form.columns) + 1), np.int64),
        ts=np.empty(most, np.int64),
        operations=np.empty(most, np.uint8),
        updates=np.zeros(most, np.bool_),
    )
    count = csv_rows.find_rows(text, form.bytes, found)
    updates, ts = found.updates[:count], found.ts[:count]
    operations = _OPERATIONS[found.operations[:count]]
    if not (operations >= 0).all():
        # Up to the first row that is none of I, U and D.
        count = int((operations < 0).argmax())
    seconds = _seconds(ts[:count], operations[:count], updates[:count]) if form.bytes.marks.paired else updates[:count]
    count = len(seconds)
    if not count:
        return None
    return CsvRows(form, content, found.borders[:count], ts[:count], operations[:count], seconds)


def _seconds(ts: Offsets, operations: NDArray[np.int8], is_update: Flags) -> Flags:
    """Return which rows are the second half of an update, up to the first row that is not as TiCDC writes updates.

    A D row without its I row is such a row as well.
    """
    firsts: Flags = is_update & (operations == DELETE)
    seconds: Flags = is_update & (operations == INSERT)
    # The halves of an update are adjacent and of one commit-ts.
    pairs = firsts[:-1] & seconds[1:] & (ts[:-1] == ts[1:])
    # Rows that need a partner, or that TiCDC does not write in this mode; the pairs are then taken out.
    odd = firsts | seconds | (~is_update & (operations == UPDATE))
    odd[:-1] &= ~pairs
    odd[1:] &= ~pairs
    found: Flags = seconds[: int(odd.argmax())] if odd.any() else seconds
    return found


def read_csv(form: CsvRowForm, content: bytes, commit_range: CommitRange, tally: Tally) -> tuple[RowsBatch, int] | None:
    """Return the changes of the rows that `content` begins with, and where the last of these rows ends; count them in `tally`.

    Returns None if the first row is not of this form, or if a value is not one of its column's type: both are for the
    plain reader.
    """
    rows = read_rows(form, content)
    if rows is None or not rows.ts.all():  # 0 is not a commit-ts
        return None
    # Both rows of an update carry the number of its D row.
    batch = counted(commit_range, rows, np.arange(len(rows)) - rows.seconds, tally, len(rows))
    return None if batch is None else (batch, rows.end)


def read_csv_together(form: CsvRowForm, contents: Sequence[bytes], commit_range: CommitRange) -> FilesBatch | None:
    """Return the changes of whole files without old images; None if `read_csv` would not read each of them to its end."""
    content = b"".join(contents)
    rows = read_rows(form, content) if content.endswith(b"\n") else None
    if rows is None or rows.end != len(content) or not rows.ts.all():
        return None
    ends, borders = rows.borders[:, -1] + 1, np.cumsum([*map(len, contents)])
    # Each file has to end where some row ends; `last` is that row.
    last = np.searchsorted(ends, borders)
    if not (ends[last] == borders).all():  # a row continues in the next file
        return None
    return of_files(commit_range, rows, np.arange(len(rows)), np.diff(last + 1, prepend=0))
