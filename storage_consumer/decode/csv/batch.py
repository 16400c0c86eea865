"""Read many CSV rows in bulk: compiled loops find their fields (`csv_rows`) and write their lines (`csv_lines`); no row becomes objects.

Rows in another form than the layout's usual one are left to the plain reader, which finds out why. Lines are made from
the file's own bytes: quotes go, delimiters become TABs, the few bytes that need an escape get one, and base64 becomes
hexadecimal digits.
Import late, see `jit`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from storage_consumer.decode.csv.row_pattern import Shape
from storage_consumer.decode.decoder import ABSENT
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
from storage_consumer.kernels.arrays import DELETE, INSERT, UPDATE, Flags, Offsets, Packed, Places
from storage_consumer.kernels.csv_lines import write_lines
from storage_consumer.kernels.csv_rows import (
    BASE64_FIELD,
    FREE_FIELD,
    PLAIN_FIELD,
    Form,
    Found,
    Marks,
    find_rows,
)
from storage_consumer.kernels.line_bytes import line_fields, room_for
from storage_consumer.kernels.numbers import read_integers
from storage_consumer.kernels.packed import packed_csv
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.kernels.words import is_utf8, text_of
from storage_consumer.model import TableColumn

_OPERATIONS = np.full(256, -1, np.int8)
_OPERATIONS[list(b"IUD")] = INSERT, UPDATE, DELETE


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowForm:
    """The fixed parts of rows of one shape."""

    bytes: Form
    columns: tuple[TableColumn, ...]
    """The file's columns, in its order."""
    place_of: tuple[int, ...]
    """For each column of the layout, its index among these; -1 if the file lacks it."""
    converters: tuple[Converter | None, ...]
    """The converter of each of them."""

    @property
    def converted(self) -> list[int]:
        """The columns of the layout whose texts are neither written as they are in the file nor decoded from base64; those that it lacks too."""
        return [
            place
            for place, column in enumerate(self.place_of)
            if column < 0 or (self.converters[column] and self.bytes.values[column] != BASE64_FIELD)
        ]


@lru_cache(maxsize=1024)
def row_form(shape: Shape) -> RowForm | None:
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
    names = f"{options.quote}{options.delimiter}{form.names}{options.delimiter}"
    return RowForm(
        bytes=Form(
            marks=Marks(
                quote=ord(options.quote),
                delimiter=ord(options.delimiter),
                has_cr=len(options.terminator) > 1,
                paired=options.output_old_value,
            ),
            names=np.frombuffer(names.encode(), np.uint8),
            values=np.array([_field(*pair) for pair in zip(columns, converters, strict=True)], np.uint8),
        ),
        columns=columns,
        place_of=tuple(form.order.index(i) if i in form.order else -1 for i in range(len(form.layout.columns))),
        converters=tuple(converters),
    )


def _field(column: TableColumn, converter: Converter | None) -> int:
    """Return the form of a column's field."""
    form = csv_form(column)
    if form is CsvForm.BARE:
        return NUMBER_FIELDS[grammar(column, "csv")]
    if form is CsvForm.FREE:
        return FREE_FIELD
    return BASE64_FIELD if is_base64(converter) else PLAIN_FIELD


@dataclass(frozen=True, slots=True, eq=False)
class CsvRows:
    """Adjacent rows of one form."""

    form: RowForm
    content: bytes
    borders: Offsets
    """For each row, the places in `content` of the delimiters before, between and after its values; the last one is its LF."""
    ts: Offsets
    """Commit-ts of each row."""
    operations: NDArray[np.int8]
    seconds: Flags
    """Whether a row is the I row of an update whose D row precedes it; neither is here without the other."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ts)

    @property
    def end(self) -> int:
        """Where the bytes of the last row end, LF included."""
        return int(self.borders[-1, -1]) + 1

    def integers(self, place: int, rows: Places) -> Offsets | None:
        """Return a column's values in these rows, or None if such an array cannot hold them; `place` is its index in the layout."""
        column = self.form.place_of[place]
        # What the key compares is the converted text.
        if column < 0 or self.form.converters[column]:
            return None
        numbers = np.empty(len(rows), np.int64)
        starts, content = self.borders[rows, column] + 1, np.frombuffer(self.content, np.uint8)
        return numbers if read_integers(content, starts, self._ends(column, rows), numbers) else None

    def texts(self, place: int, rows: Places) -> list[str | None]:
        """Return the wire texts of a column in these rows. Raise `ValueError` for a text that is not a value of its type."""
        column, content = self.form.place_of[place], self.content
        if column < 0:
            return [ABSENT] * len(rows)
        borders = zip((self.borders[rows, column] + 1).tolist(), self._ends(column, rows).tolist(), strict=True)
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
        """See `decode.batch.Rows`."""
        column = self.form.place_of[place]
        is_base64 = self.form.bytes.values[column] == BASE64_FIELD
        if column < 0 or (self.form.converters[column] and not is_base64):
            return None
        content, starts = np.frombuffer(self.content, np.uint8), self.borders[rows, column] + 1
        return packed_csv(
            content, starts, self._ends(column, rows), self.form.bytes.marks.quote, is_base64=bool(is_base64)
        )

    def _ends(self, column: int, rows: Places) -> Offsets:
        """Return where a field ends in these rows; a CR may precede the LF."""
        ends: Offsets = self.borders[rows, column + 1]
        return ends - 1 if self.form.bytes.marks.has_cr and column == len(self.form.columns) - 1 else ends

    def lines(self, written: Sequence[int], rows: Places, converted: Mapping[int, list[bytes]]) -> Lines:
        """Return the lines of these rows. `converted`: by index in the layout, the fields of the columns in `RowForm.converted`."""
        fields, extra = line_fields(written, converted, self.form.place_of, len(rows))
        # Escaping and hexadecimal digits double a value at most.
        size = 2 * int((self.borders[rows, -1] - self.borders[rows, 0]).sum()) + len(extra.text.bytes)
        lines = room_for(size, len(rows), len(fields))
        end = write_lines(text_of(self.content), self.form.bytes, self.borders, rows, fields, extra, lines)
        return Lines.side_by_side(lines.text.bytes[:end].copy(), lines.ends)


def read_rows(form: RowForm, content: bytes) -> CsvRows | None:
    """Return the rows of this form at the start of `content`, which ends with LF; None if there are none."""
    least = len(form.bytes.names) + 2 * len(form.columns)
    most = min(content.count(b"\n"), len(content) // least)  # a text may be full of LF
    text = text_of(content)
    # Checked once for all: the loops go by bytes.
    if not most or not is_utf8(text):
        return None
    found = Found(
        borders=np.empty((most, len(form.columns) + 1), np.int64),
        ts=np.empty(most, np.int64),
        operations=np.empty(most, np.uint8),
        updates=np.zeros(most, np.bool_),
    )
    count = find_rows(text, form.bytes, found)
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
