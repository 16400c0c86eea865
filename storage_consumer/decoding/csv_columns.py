"""Many CSV rows at once: NumPy finds their fields, one regular expression checks their forms, and no row becomes values.

Bytes are marked first: those within quotes, from each opening quote up to before the closing one. What is outside of quotes,
closing quotes included, is a short text that shows of each quoted field one quote, and one more for each doubled quote in it.
If that text has the form of the layout's rows, then the whole has. What has not is left to the plain reader, which knows why.

Lines are then made of the file's own bytes: quotes go, delimiters become TABs, and the few bytes that need an escape get it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from storage_consumer.decoding.columns import (
    GONE,
    Bytes,
    Flags,
    Offsets,
    Places,
    begins_with,
    between,
    integers,
    is_utf8,
    without,
)
from storage_consumer.decoding.csv_shape import Shape
from storage_consumer.decoding.decoder import DELETE, INSERT, UPDATE
from storage_consumer.decoding.patterns import repeated
from storage_consumer.decoding.values import Converter, CsvForm, convert_all, csv_form, grammar, in_bytes
from storage_consumer.decoding.wire import NULL
from storage_consumer.model import TableColumn

_CUT = 0xFE
"""Like `GONE`, it is in no UTF-8 text; it stands for the border of two pieces of a line."""
_LF, _CR, _TAB = b"\n"[0], b"\r"[0], b"\t"[0]
_ESCAPES = {b"\\"[0]: (0xFD, b"\\\\"), _TAB: (0xFC, b"\\t"), _LF: (0xFB, b"\\n")}
"""Byte within a text → what stands for it for a while, and its escape (see `wire`)."""
_FEW = 2
"""Where lines are wanted of less than one row in so many, only the bytes of these are looked at."""
_OPERATION = 1
"""Where in a row its operation stands, behind a quote."""
_COMMIT_TS = 3
"""The field that says it; op, table and schema stand before it, and is-update behind it where there is one."""
_OPERATIONS = np.full(256, -1, np.int8)
_OPERATIONS[list(b"IUD")] = INSERT, UPDATE, DELETE


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowForm:
    """What rows of one shape look like."""

    quote: int
    delimiter: int
    outside: re.Pattern[bytes]
    """As many rows as there are, by what is outside of quotes."""
    prefix: bytes
    """A row's bytes before its commit ts; the one at `_OPERATION` says nothing."""
    columns: tuple[TableColumn, ...]
    """In the order of the file."""
    paired: bool
    """A field says of each row whether it is one of an update, which is a D row and an I row."""
    has_cr: bool
    """A CR stands before the LF of each row."""
    place_of: tuple[int, ...]
    """For each column of the layout its place among them."""
    converters: tuple[Converter | None, ...]
    """For each of them."""

    @property
    def head(self) -> int:
        """How many fields stand before the values."""
        return _COMMIT_TS + 1 + self.paired

    @property
    def converted(self) -> list[int]:
        """The columns of the layout whose texts are not written as they stand in the file."""
        return [place for place, column in enumerate(self.place_of) if self.converters[column]]


@lru_cache(maxsize=1024)
def row_form(shape: Shape) -> RowForm | None:
    """How to read rows of this shape at once; None where their options do not let that be done."""
    form, options = shape.form, shape.form.options
    marks = options.quote + options.delimiter
    if (
        not options.include_commit_ts
        or form.handle_key
        or options.null.encode() != NULL
        or options.terminator not in ("\n", "\r\n")
        or len(marks) != 2  # noqa: PLR2004 - one quote, one delimiter
        or not marks.isascii()
        or re.search(r"[\w\\.+-]", marks)
    ):
        return None
    columns = tuple(form.layout.columns[index] for index in form.order)
    converters: list[Converter | None] = [None] * len(columns)
    for place, converter in shape.conversions:
        converters[place] = converter
    prefix = f"{options.quote}I{options.quote}{options.delimiter}{form.names}{options.delimiter}"
    quote, delimiter = (re.escape(mark).encode() for mark in marks)
    first = [quote, quote + b"++", quote + b"++", b"[0-9]++", *[b"(?:true|false)"] * options.output_old_value]
    row = delimiter.join([*first, *(_field(column, quote) for column in columns)]) + options.terminator.encode()
    return RowForm(
        quote=ord(options.quote),
        delimiter=ord(options.delimiter),
        outside=re.compile(repeated(row.decode()).encode()),
        prefix=prefix.encode(),
        columns=columns,
        paired=options.output_old_value,
        has_cr=len(options.terminator) > 1,
        place_of=tuple(form.order.index(index) for index in range(len(columns))),
        converters=tuple(converters),
    )


def _field(column: TableColumn, quote: bytes) -> bytes:
    """What is outside of quotes in a column's field."""
    form = csv_form(column)
    if form is CsvForm.BARE:
        return b"(?:%b|%b)" % (grammar(column, "csv").encode(), re.escape(NULL))
    return b"(?:%b%b|%b)" % (quote, b"++" if form is CsvForm.FREE else b"", re.escape(NULL))


class _Span(NamedTuple):
    """Fields of values side by side in a row, both inclusive."""

    first: int
    last: int

    @property
    def borders(self) -> tuple[int, int]:
        """Before and behind them, by their places among those of a row."""
        return self.first - 1, self.last


@dataclass(frozen=True, slots=True, eq=False)
class _Marked:
    """Bytes, with those within quotes told apart."""

    bytes: Bytes
    is_quote: Flags
    within: Flags
    """An opening quote is, a closing one is not; so a doubled one is not and is."""


@dataclass(frozen=True, slots=True, eq=False)
class CsvRows:
    """Rows of one form that lie one behind the other."""

    form: RowForm
    content: bytes
    marked: _Marked
    borders: Offsets
    """Of each row its delimiters and its LF, as places in `content`."""
    ts: Offsets
    """Commit ts."""
    operations: NDArray[np.int8]
    seconds: Flags
    """Which of them are the I row of an update whose D row is the one before; neither is here without the other."""

    def __len__(self) -> int:
        """How many."""
        return len(self.ts)

    @property
    def end(self) -> int:
        """Where the bytes of the last one end, LF included."""
        return int(self.borders[-1, -1]) + 1

    def integers(self, place: int, rows: Places) -> Offsets | None:
        """A column's values in these rows, None where they can't be such an array; `place` is in the layout."""
        column = self.form.place_of[place]
        if self.form.converters[column]:
            return None
        field = self.form.head + column
        return integers(self.marked.bytes, self.borders[rows, field - 1] + 1, self._ends(field, rows))

    def _fields(self, column: int, rows: Places) -> list[bytes]:
        """The fields of a column of the file in these rows, quotes included."""
        field, content = self.form.head + column, self.content
        borders = zip((self.borders[rows, field - 1] + 1).tolist(), self._ends(field, rows).tolist(), strict=True)
        return [content[start:end] for start, end in borders]

    def converted(self, place: int, rows: Places) -> list[bytes]:
        """The fields of lines for a column in these rows. Raises `ValueError` for one that is no value of the column's type."""
        column = self.form.place_of[place]
        convert = in_bytes(self.form.converters[column])
        if convert is None:
            return [NULL if text is None else text.encode() for text in self.texts(place, rows)]
        return [NULL if field == NULL else convert(field[1:-1]) for field in self._fields(column, rows)]

    def texts(self, place: int, rows: Places) -> list[str | None]:
        """The wire texts of a column in these rows. Raises `ValueError` for one that is no value of the column's type."""
        column = self.form.place_of[place]
        found = self._fields(column, rows)
        form, convert = csv_form(self.form.columns[column]), self.form.converters[column]
        if form is CsvForm.BARE:
            texts = [None if text == NULL else text.decode() for text in found]
        elif form is CsvForm.PLAIN:
            texts = [None if text == NULL else text[1:-1].decode() for text in found]
        else:
            quote = bytes([self.form.quote])
            texts = [None if text == NULL else text[1:-1].replace(quote * 2, quote).decode() for text in found]
        return convert_all(convert, texts) if convert else texts

    def _ends(self, field: int, rows: Places) -> Offsets:
        """Where a field ends in these rows; before LF there may be CR."""
        ends: Offsets = self.borders[rows, field]
        is_last = field == self.borders.shape[1] - 1
        return ends - 1 if is_last and self.form.has_cr else ends

    def lines(self, written: Sequence[int], rows: Places, converted: Mapping[int, list[bytes]]) -> list[bytes]:
        """The lines of these rows. `converted`: per place in the layout the fields of a column that is not written as it stands there.

        Columns that stand side by side, here and in the file, are taken as one piece of the file's own bytes.
        """
        if len(rows) * _FEW < len(self):
            return self._only(rows).lines(written, np.arange(len(rows)), converted)
        parts: list[_Span | list[bytes]] = []
        for place in written:
            field, before = self.form.head + self.form.place_of[place], parts[-1] if parts else None
            if place in converted:
                parts.append(converted[place])
            elif isinstance(before, _Span) and before.last == field - 1:
                parts[-1] = before._replace(last=field)
            else:
                parts.append(_Span(field, field))
        spans = [part for part in parts if isinstance(part, _Span)]
        cuts = sorted({self.borders.shape[1] - 1, *chain.from_iterable(span.borders for span in spans)})
        pieces = self._pieces(cuts) if spans else []
        found = [
            _of_rows(pieces[cuts.index(part.borders[0]) + 1 :: len(cuts)], rows) if isinstance(part, _Span) else part
            for part in parts
        ]
        return found[0] if len(found) == 1 else list(map(b"\t".join, zip(*found, strict=True)))

    def _only(self, rows: Places) -> CsvRows:
        """These rows with no other bytes than their own."""
        starts, ends = _starts(self.borders)[rows], self.borders[rows, -1] + 1
        content = b"".join([self.content[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)])
        moved = starts - np.cumsum(ends - starts) + (ends - starts)
        borders = self.borders[rows] - moved[:, None]
        marked = _marked(np.frombuffer(content, np.uint8), self.form.quote)
        return CsvRows(self.form, content, marked, borders, self.ts[rows], self.operations[rows], self.seconds[rows])

    def _pieces(self, cuts: Sequence[int]) -> list[bytes]:
        """The bytes of lines of all rows, cut at these borders, by their places among those of a row."""
        marked, end = self.marked, self.end
        content, within, is_quote = marked.bytes[:end], marked.within[:end], marked.is_quote[:end]
        gone = is_quote.copy()
        gone[1:] &= ~(within[1:] & is_quote[:-1])  # of a doubled quote one stays
        out = without(content, gone | ((content == _CR) & ~within))
        text_bytes = within & ~gone
        escapes = []
        for byte, (mark, escape) in _ESCAPES.items():
            special = text_bytes & (content == byte)
            if special.any():
                out[special] = mark
                escapes.append((bytes([mark]), escape))
        out[self.borders[:, :-1]] = _TAB
        out[self.borders[:, cuts]] = _CUT
        text = out.tobytes().translate(None, bytes([GONE]))
        for mark_byte, escape in escapes:
            text = text.replace(mark_byte, escape)
        return text.split(bytes([_CUT]))


def _of_rows(of_all: list[bytes], rows: Places) -> list[bytes]:
    """What belongs to these rows, of what there is for all."""
    return of_all if len(of_all) == len(rows) else [of_all[row] for row in rows.tolist()]


def read_rows(form: RowForm, content: bytes) -> CsvRows | None:
    """The rows of this form that `content` begins with; None where it begins with none."""
    array = np.frombuffer(content, np.uint8)
    if not is_utf8(array):
        return None
    marked = _marked(array, form.quote)
    outside = without(marked.bytes, marked.within)
    text = outside.tobytes().translate(None, bytes([GONE]))
    match = form.outside.match(text)
    count = text.count(b"\n", 0, match.end()) if match else 0
    is_border = (outside == form.delimiter) | (outside == _LF)
    fields = form.head + len(form.columns)
    borders = np.flatnonzero(is_border)[: count * fields].reshape(count, fields)
    operations = _operations(form, marked.bytes, borders)
    borders = borders[: len(operations)]
    ts = integers(marked.bytes, borders[:, _COMMIT_TS - 1] + 1, borders[:, _COMMIT_TS])
    if ts is None:
        return None
    if form.paired:
        is_update = marked.bytes[borders[:, _COMMIT_TS] + 1] == b"t"[0]
        seconds = _seconds(ts, operations, is_update)
    else:
        seconds = np.zeros(len(ts), np.bool_)
    count = len(seconds)
    if not count:
        return None
    return CsvRows(form, content, marked, borders[:count], ts[:count], operations[:count], seconds)


def _seconds(ts: Offsets, operations: NDArray[np.int8], is_update: Flags) -> Flags:
    """Which rows are the second one of an update, of those before the first row that is not as TiCDC writes updates.

    Such a one is also a D row whose I row is not among them.
    """
    firsts: Flags = is_update & (operations == DELETE)
    seconds: Flags = is_update & (operations == INSERT)
    pairs = firsts[:-1] & seconds[1:] & (ts[:-1] == ts[1:])
    odd = firsts | seconds | (~is_update & (operations == UPDATE))
    odd[:-1] &= ~pairs
    odd[1:] &= ~pairs
    found: Flags = seconds[: int(odd.argmax())] if odd.any() else seconds
    return found


def _marked(content: Bytes, quote: int) -> _Marked:
    """Which bytes are within quotes."""
    is_quote = content == quote
    return _Marked(content, is_quote, between(is_quote))


def _starts(borders: Offsets) -> Offsets:
    """Where rows begin that lie one behind the other from the beginning on."""
    return np.concatenate(([0], borders[:-1, -1] + 1))[: len(borders)]


def _operations(form: RowForm, content: Bytes, borders: Offsets) -> NDArray[np.int8]:
    """The operations of the rows before the first one that does not begin as they should."""
    starts = _starts(borders)
    operations = _OPERATIONS[content[starts + _OPERATION]]
    mask = bytes(255 * (place != _OPERATION) for place in range(len(form.prefix)))
    fits = begins_with(content, starts, form.prefix, mask) & (operations >= 0)
    found: NDArray[np.int8] = operations if fits.all() else operations[: int(fits.argmin())]
    return found
