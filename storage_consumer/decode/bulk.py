"""Read many rows in bulk: compiled loops find values and write lines, without an object per row.

Rows in another form than the layout's usual one are left to the plain reader of their protocol,
which finds out why. Lines are made from the file's own bytes: quotes go, delimiters become TABs,
the few bytes that need an escape get one, and base64 becomes hexadecimal digits. Import late, see
`jit`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode.canal_message import UNREADABLE, MessageShape
from storage_consumer.decode.csv_dialect import Shape
from storage_consumer.decode.decoder import ABSENT, FileRead, FilesBatch, Tally, apart
from storage_consumer.decode.export_fields import Reader
from storage_consumer.decode.kernels import canal_messages, delimited_rows
from storage_consumer.decode.kernels.arrays import (
    DELETE,
    INSERT,
    UPDATE,
    YEAR_FIELD,
    Flags,
    Offsets,
    Operations,
    Packed,
    Places,
)
from storage_consumer.decode.kernels.packed import packed_csv, packed_json
from storage_consumer.decode.kernels.row_lines import Lines
from storage_consumer.decode.kernels.wide_words import (
    is_utf8,
    line_fields,
    read_integers,
    room_for,
    text_of,
)
from storage_consumer.decode.values import (
    IN_FORMATTED,
    NUMBER_FIELDS,
    Converter,
    CsvForm,
    bytes_of_latin1,
    convert_all,
    csv_form,
    grammar,
    is_base64,
    single,
    year,
)
from storage_consumer.decode.wire_format import NULL, encode_field
from storage_consumer.model import CommitRange, TableName

Unquoted = Callable[[bytes], bytes]
"""Function from what is between quotes to what it means."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BulkForm:
    """The fixed parts of rows of one shape."""

    bytes: Any
    """What the loops know of them: the form of `canal_messages` or `delimited_rows`."""
    quote: int
    """The byte around texts."""
    converters: tuple[Converter | None, ...]
    """One for each column of the rows."""
    place_of: tuple[int, ...]
    """For each column of the layout, its index among these; -1 if the rows lack it."""
    converted: list[int]
    """Columns of the layout, also absent ones, whose texts the loops do not write."""
    readers: tuple[Reader, ...] = ()
    """The reader of each column of an export, in the order of the file."""
    unquoted: Unquoted | None = None
    """Of an export too."""


@dataclass(slots=True, eq=False)
class BulkRows(ABC):
    """A `decoder.Batch` of rows adjacent in some bytes; columns are indexes in the layout."""

    form: BulkForm
    content: bytes
    borders: Offsets
    """Begin and end (exclusive) of each value of each row, quotes included: two entries each."""
    ts: NDArray[Any]
    """Commit-ts of each row."""
    operations: Operations
    """INSERT, UPDATE or DELETE for each row."""
    numbers: Offsets
    converted: Mapping[int, list[bytes]] = field(default_factory=dict)
    """By index in the layout: fields of columns that are not written as in the file."""
    write_lines: ClassVar[Callable[..., int]]
    """The loop that writes their lines."""

    @abstractmethod
    def wire_texts(self, column: int, values: Iterable[bytes]) -> list[str | None]:
        """Return unconverted texts of a column, given by its index among the rows' own."""

    def packed(self, place: int, chosen: Places) -> Packed | None:  # noqa: ARG002 - of rows that can
        """See `decoder.Batch`; exports have too many ways of writing a value."""
        return None

    def size(self, rows: Places) -> int:
        """Return at least how many bytes the values of these rows have."""
        return int((self.borders[rows, -1] - self.borders[rows, 0]).sum())

    def between(self, column: int, rows: Places) -> tuple[Offsets, Offsets]:
        """Return where a column's values begin and end; `column`: its index among the rows' own."""
        return self.borders[rows, 2 * column], self.borders[rows, 2 * column + 1]

    def integers(self, place: int) -> Offsets | None:
        """See `decoder.Batch`."""
        column = self.form.place_of[place]
        # What the key compares is the converted text.
        if column < 0 or self.form.converters[column]:
            return None
        content, numbers = np.frombuffer(self.content, np.uint8), np.empty(len(self.ts), np.int64)
        starts, ends = self.between(column, np.arange(len(self.ts)))
        # Without the quotes: the rest of a NULL is no number, so there are no integers then.
        quoted = content[starts] == self.form.quote
        return numbers if read_integers(content, starts + quoted, ends - quoted, numbers) else None

    def texts(self, place: int, chosen: Places) -> list[str | None]:
        """See `decoder.Batch`. Raise `ValueError` for a text that is not a value of its type."""
        column = self.form.place_of[place]
        if column < 0:
            return [ABSENT] * len(chosen)
        starts, ends = self.between(column, chosen)
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        texts = self.wire_texts(column, [self.content[start:end] for start, end in pairs])
        convert = self.form.converters[column]
        return convert_all(convert, texts) if convert and not self.form.readers else texts

    def lines(self, written: Sequence[int], chosen: Places) -> Lines:
        """See `decoder.Batch`."""
        numbers = chosen.tolist()
        converted = {
            place: [fields[number] for number in numbers]
            for place, fields in self.converted.items()
        }
        fields, extra = line_fields(written, converted, self.form.place_of, len(chosen))
        # Escaping and hexadecimal digits double a value at most; NULL that is written as nothing
        # has two bytes, year zero four.
        size = 2 * self.size(chosen) + 4 * len(chosen) * len(fields) + len(extra.text.bytes)
        lines = room_for(size, len(chosen), len(fields))
        end = self.write_lines(
            text_of(self.content), self.form.bytes, self.borders, chosen, fields, extra, lines
        )
        return Lines.side_by_side(lines.text.bytes[:end].copy(), lines.ends)


def _inside(
    commit_range: CommitRange, rows: BulkRows, numbers: Offsets
) -> tuple[BulkRows, Flags, Flags]:
    """Return the rows inside the commit range, their indexes, and which rows are later.

    `numbers`: the number in the file of each row. Raises `ValueError` if a text of
    `BulkForm.converted` is not a value of its column's type.
    """
    within, later = apart(rows.ts, commit_range)
    chosen: Any = slice(None) if within.all() else within
    batch = replace(
        rows,
        borders=rows.borders[chosen],
        ts=rows.ts[chosen].view(np.uint64),
        operations=rows.operations[chosen],
        numbers=numbers[chosen],
    )
    # Only rows inside are converted: values of others may belong to another table version.
    every = np.arange(len(batch.ts))
    batch.converted = {
        place: [*map(encode_field, batch.texts(place, every))] for place in rows.form.converted
    }
    return batch, within, later


def _counted(
    commit_range: CommitRange, rows: BulkRows, tally: Tally, lines: int, firsts: Any = slice(None)
) -> BulkRows | None:
    """Return the rows in the commit range, counting lines; None if a value is not of its type.

    The rows' numbers begin with 0 after the lines that were counted before. `firsts`: which rows
    count.
    """
    try:
        batch, within, later = _inside(commit_range, rows, rows.numbers + (tally.rows + 1))
    except ValueError:
        # Nothing is counted before everything has succeeded: the plain reader counts the same rows.
        return None
    tally.rows += lines
    tally.add(rows.ts[firsts], within[firsts], later[firsts])
    return batch


def _of_files(commit_range: CommitRange, rows: BulkRows, counts: Offsets) -> FilesBatch | None:
    """Return all rows of some files as one batch; None if a value is not one of its column's type.

    The rows are numbered in all files together, from 0; only the two rows of one update share a
    number.
    `counts`: how many such numbers each file has.
    """
    ends: Offsets = np.cumsum(counts)
    lines = rows.numbers
    # The file in which each row lies: the first one that ends after its number.
    files = np.searchsorted(ends, lines, "right")
    try:
        batch, within, later = _inside(commit_range, rows, lines - (ends - counts)[files] + 1)
    except ValueError:
        return None
    # The two rows of an update are one row of the file, so only the first of them is counted.
    firsts = np.append(True, lines[1:] != lines[:-1])
    # Rows of one file are adjacent: its first row, and the first of the next one.
    borders = np.searchsorted(files, np.arange(len(counts) + 1))
    tallies = [Tally(rows=int(count)) for count in counts]
    for tally, start, end in zip(tallies, borders[:-1], borders[1:], strict=True):
        one = np.flatnonzero(firsts[start:end]) + start
        tally.add(rows.ts[one], within[one], later[one])
    return FilesBatch(batch, files[within], tallies)


# messages of canal-json

_CONVERTED: Mapping[Converter, int] = {
    year: YEAR_FIELD,
    single: canal_messages.SINGLE_FIELD,
    bytes_of_latin1: canal_messages.BINARY_FIELD,
}
"""Converters that the loops replace, and the form of value that needs no call."""
_HEAD = ["id", "database", "table", "pkNames"]
_BEHIND_HEAD = b',"isDdl":false,"type":"'
_LEAST_BYTES = 100
"""Bytes that every message has besides its head and the names in its data."""
_decode_texts = msgspec.json.Decoder(list[str | None]).decode


def message_form(shape: MessageShape, row: bytes) -> BulkForm | None:
    """Return how to read messages like `row` in bulk; None unless it begins as TiCDC's do."""
    end = row.find(_BEHIND_HEAD)
    try:  # if a closing brace makes it a JSON object, it ends after a whole member
        head = msgspec.json.decode(row[: max(end, 0)] + b"}")
    except UNREADABLE:
        return None
    if not shape.names or not isinstance(head, dict) or list(head) != _HEAD:
        return None
    schema, table = head["database"], head["table"]
    if not (isinstance(schema, str) and isinstance(table, str)):
        return None
    # The form has names as this row spells them; other spellings go to the plain reader.
    if TableName(schema=schema, table=table).folded() != shape.layout.table.folded():
        return None
    return _message_form(shape, row[: end + len(_BEHIND_HEAD)])


@lru_cache(maxsize=1024)
def _message_form(shape: MessageShape, head: bytes) -> BulkForm:
    """Return the form of messages that begin with `head`."""
    converters = [*map(dict(shape.conversions).get, range(len(shape.names)))]
    names, values = [], []
    for column, convert in zip(shape.columns, converters, strict=True):
        text = json.dumps(column.name, ensure_ascii=False)
        # Go escapes some characters that need no escape.
        for sign in "<>&\u2028\u2029":
            text = text.replace(sign, f"\\u{ord(sign):04x}")
        names.append(f"{text}:".encode())
        form = grammar(column, "canal-json")
        field = NUMBER_FIELDS[form] if form else canal_messages.TEXT_FIELD
        values.append(_CONVERTED.get(convert, field) if convert else field)
    return BulkForm(
        # The names joined in one array, with their borders beside it: loops take no lists.
        bytes=canal_messages.MessageBytes(
            head=np.frombuffer(head, np.uint8),
            names=np.frombuffer(b"".join(names), np.uint8),
            ends=np.cumsum([0, *map(len, names)], dtype=np.int64),
            values=np.array(values, np.uint8),
            key=np.array(shape.key, np.int64),
        ),
        quote=canal_messages.QUOTE,
        converters=tuple(converters),
        place_of=shape.place_of,
        converted=[
            place
            for place, column in enumerate(shape.place_of)
            if column < 0 or ((convert := converters[column]) and convert not in _CONVERTED)
        ],
    )


class MessageRows(BulkRows):
    """Rows of messages of one form: one per message, or two for an update that moves its row.

    Those are a delete and an insert.
    """

    __slots__ = ()
    write_lines = staticmethod(canal_messages.write_lines)

    def size(self, rows: Places) -> int:
        """See `BulkRows`; not all values of a row are from one image."""
        return int((self.borders[rows, 1::2] - self.borders[rows, ::2]).sum())

    def wire_texts(self, column: int, values: Iterable[bytes]) -> list[str | None]:  # noqa: ARG002 - as in the others
        """See `BulkRows`."""
        # One JSON array of all values: one call decodes the escapes of the whole column.
        return _decode_texts(b"[%b]" % b",".join(values))

    def packed(self, place: int, chosen: Places) -> Packed | None:
        """See `decoder.Batch`."""
        column = self.form.place_of[place]
        convert = self.form.converters[column]
        if column < 0 or convert not in (None, bytes_of_latin1):
            return None
        content = np.frombuffer(self.content, np.uint8)
        return packed_json(
            content, *self.between(column, chosen), is_binary=convert is bytes_of_latin1
        )


def read_messages(
    form: BulkForm, content: bytes, commit_range: CommitRange, tally: Tally
) -> tuple[BulkRows, list[tuple[int, int]]] | None:
    """Return the changes of such messages in these lines, and place and number of other lines.

    Numbers begin at 0.

    The lines end with LF. All of them count in `tally`; other lines count as `tally.rows` only.
    Returns None, with nothing counted, if no line can be judged.
    """
    found = _read_lines(form, content)
    if found is None:
        return None
    rows, others, lines = found
    # A message of two rows counts once.
    firsts = np.append(True, rows.numbers[1:] != rows.numbers[:-1])[: len(rows.ts)]
    batch = _counted(commit_range, rows, tally, lines, firsts)
    return None if batch is None else (batch, others)


def read_messages_together(
    shape: MessageShape, contents: Sequence[bytes], commit_range: CommitRange
) -> FilesBatch | None:
    """Return the changes of whole files; None if messages differ in form or no LF ends a file."""
    content = b"".join(contents)
    form = message_form(shape, content[: content.find(b"\n")])
    if form is None or not all(one.endswith(b"\n") for one in contents):
        return None
    found = _read_lines(form, content)
    # One odd line is enough to read these files one by one.
    if found is None or found[1]:
        return None
    return _of_files(
        commit_range, found[0], np.array([one.count(b"\n") for one in contents], np.int64)
    )


def _read_lines(
    form: BulkForm, content: bytes
) -> tuple[MessageRows, list[tuple[int, int]], int] | None:
    """Return rows of such messages, place and number of other lines, and the number of lines.

    Returns None if some bytes are not UTF-8, or if the lines are many and short.
    """
    text = text_of(content)
    if not is_utf8(text):
        return None
    # Sized by the shortest possible message. Many lines that are shorter overflow it: then the
    # plain reader takes over.
    head, names = len(form.bytes.head), len(form.bytes.names)
    most = 2 * (len(content) // (head + names + _LEAST_BYTES) + 1)
    found = canal_messages.MessagesFound(
        borders=np.empty((most, 2 * len(form.converters)), np.int64),
        ts=np.empty(most, np.int64),
        operations=np.empty(most, np.int8),
        numbers=np.empty(most, np.int64),
        odd=np.empty((len(content) // head + 1, 2), np.int64),
    )
    count, odd, lines = canal_messages.find_messages(text, form.bytes, found)
    if lines < 0:
        return None
    rows = MessageRows(
        form,
        content,
        found.borders[:count],
        found.ts[:count],
        found.operations[:count],
        found.numbers[:count],
    )
    return rows, [(start, number) for start, number in found.odd[:odd].tolist()], lines


# rows of CSV

_OPERATIONS = np.full(256, -1, np.int8)
_OPERATIONS[list(b"IUD")] = INSERT, UPDATE, DELETE


@lru_cache(maxsize=1024)
def csv_row_form(shape: Shape) -> BulkForm | None:
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
        # Marks that numbers, NULL, true or false may hold are left to the plain reader.
        or re.search(r"[\w\\.+-]", marks)
        # So are quotes in texts that TiCDC formats: the loops do not search them there.
        or options.quote in IN_FORMATTED
    ):
        return None
    columns = form.columns
    converters = [*map(dict(shape.conversions).get, range(len(columns)))]
    place_of = tuple(
        form.order.index(i) if i in form.order else -1 for i in range(len(form.layout.columns))
    )
    values = []
    for column, convert in zip(columns, converters, strict=True):
        kind, base64 = csv_form(column), is_base64(convert)
        text = delimited_rows.TEXT_FIELD if kind is CsvForm.FREE else delimited_rows.PLAIN_FIELD
        text = delimited_rows.BASE64_FIELD if base64 and kind is not CsvForm.FREE else text
        values.append(NUMBER_FIELDS[grammar(column, "csv")] if kind is CsvForm.BARE else text)
    names = f"{options.quote}{options.delimiter}{form.names}{options.delimiter}"
    return BulkForm(
        bytes=delimited_rows.RowBytes(
            marks=delimited_rows.Marks(
                quote=ord(options.quote),
                separator=ord(options.delimiter),
                is_sql=False,
                has_cr=len(options.terminator) > 1,
                escapes=False,
                has_bytes=False,
                paired=options.output_old_value,
            ),
            null=np.frombuffer(NULL, np.uint8),
            values=np.array(values, np.uint8),
            nullable=np.ones(len(values), np.bool_),
            names=np.frombuffer(names.encode(), np.uint8),
        ),
        quote=ord(options.quote),
        place_of=place_of,
        converters=tuple(converters),
        # Base64 the loops decode.
        converted=[
            place
            for place, column in enumerate(place_of)
            if column < 0 or (converters[column] and values[column] != delimited_rows.BASE64_FIELD)
        ],
    )


class CsvRows(BulkRows):
    """Rows of CSV, both rows of an update included; both have the number of its D row."""

    __slots__ = ()
    write_lines = staticmethod(delimited_rows.write_lines)

    def wire_texts(self, column: int, values: Iterable[bytes]) -> list[str | None]:
        """See `BulkRows`."""
        code, quote = self.form.bytes.values[column], bytes([self.form.quote])
        if code < delimited_rows.TEXT_FIELD:
            return [None if text == NULL else text.decode() for text in values]
        if code != delimited_rows.TEXT_FIELD:
            return [None if text == NULL else text[1:-1].decode() for text in values]
        return [
            None if text == NULL else text[1:-1].replace(quote * 2, quote).decode()
            for text in values
        ]

    def packed(self, place: int, chosen: Places) -> Packed | None:
        """See `decoder.Batch`."""
        column = self.form.place_of[place]
        base64 = bool(self.form.bytes.values[column] == delimited_rows.BASE64_FIELD)
        if column < 0 or (self.form.converters[column] and not base64):
            return None
        content = np.frombuffer(self.content, np.uint8)
        return packed_csv(content, *self.between(column, chosen), self.form.quote, is_base64=base64)


def _found_room(form: BulkForm, most: int) -> delimited_rows.RowsFound:
    """Return room for what the loops find of `most` rows."""
    # An export's rows have no commit-ts and no operation.
    size = most if len(form.bytes.names) else 0
    return delimited_rows.RowsFound(
        borders=np.empty((most, 2 * len(form.converters)), np.int64),
        behind=np.empty(most, np.int64),
        ts=np.empty(size, np.int64),
        operations=np.empty(size, np.uint8),
        updates=np.zeros(size, np.bool_),
    )


def _read_rows(form: BulkForm, content: bytes) -> tuple[CsvRows, Offsets] | None:
    """Return such rows at the start of `content`, which ends with LF, and their ends, or None."""
    least = len(form.bytes.names) + 2 * len(form.converters)
    most = min(content.count(b"\n"), len(content) // least)  # a text may be full of LF
    text = text_of(content)
    # Checked once for all: the loops go by bytes.
    if not most or not is_utf8(text):
        return None
    found = _found_room(form, most)
    count = delimited_rows.find_changes(text, form.bytes, found)
    operations = _OPERATIONS[found.operations[:count]]
    if not (operations >= 0).all():
        # Up to the first row that is not I, U or D.
        count = int((operations < 0).argmax())
    seconds = found.updates[:count]
    if form.bytes.marks.paired:
        seconds = _seconds(found.ts[:count], operations[:count], seconds)
        count = len(seconds)
    ts = found.ts[:count]
    # 0 is not a commit-ts.
    if not count or not ts.all():
        return None
    # Both rows of an update carry the number of its D row.
    numbers = np.arange(count) - seconds
    return CsvRows(
        form, content, found.borders[:count], ts, operations[:count], numbers
    ), found.behind[:count]


def _seconds(ts: Offsets, operations: Operations, is_update: Flags) -> Flags:
    """Return which rows are an update's second half, up to the first row unlike TiCDC's.

    A D row without its I row is such a row as well.
    """
    firsts: Flags = is_update & (operations == DELETE)
    seconds: Flags = is_update & (operations == INSERT)
    # The halves of an update are adjacent and of one commit-ts.
    pairs = firsts[:-1] & seconds[1:] & (ts[:-1] == ts[1:])
    # Rows that need a partner or do not occur in this mode; then pairs are taken out.
    odd = firsts | seconds | (~is_update & (operations == UPDATE))
    odd[:-1] &= ~pairs
    odd[1:] &= ~pairs
    found: Flags = seconds[: int(odd.argmax())] if odd.any() else seconds
    return found


def read_csv(
    form: BulkForm, content: bytes, commit_range: CommitRange, tally: Tally
) -> tuple[BulkRows, int] | None:
    """Return and `tally` the changes of the rows that begin `content`, and where they end.

    Returns None if the first row is not of this form, or if a value is not one of its column's
    type: both are for the plain reader.
    """
    if (found := _read_rows(form, content)) is None:
        return None
    rows, ends = found
    batch = _counted(commit_range, rows, tally, len(ends))
    return None if batch is None else (batch, int(ends[-1]))


def read_csv_together(
    form: BulkForm, contents: Sequence[bytes], commit_range: CommitRange
) -> FilesBatch | None:
    """Return whole files' changes without old images; None if `read_csv` would stop earlier."""
    content = b"".join(contents)
    found = _read_rows(form, content) if content.endswith(b"\n") else None
    if found is None or found[1][-1] != len(content):
        return None
    rows, ends = found
    borders = np.cumsum([*map(len, contents)])
    # Each file has to end where some row ends; `last` is that row.
    last = np.searchsorted(ends, borders)
    if not (ends[last] == borders).all():  # a row continues in the next file
        return None
    return _of_files(commit_range, rows, np.diff(last + 1, prepend=0))


# rows of exports

_BINARY_FIELDS = {
    "raw": delimited_rows.BYTES_FIELD,
    "hex": delimited_rows.HEX_FIELD,
    "base64": delimited_rows.BASE64_FIELD,
}


@lru_cache(maxsize=1024)
def export_form(
    readers: tuple[Reader, ...],
    order: tuple[int, ...] | None,
    options: DumpOptions,
    unquoted: Unquoted,
    quote: str,
) -> BulkForm | None:
    """Return how to read rows in bulk; None if the options do not allow it.

    `readers` are in the order of the layout. `quote`: what is around texts; `unquoted`: what its
    content means.
    """
    places = tuple(range(len(readers))) if order is None else order
    is_sql = options.file_format == "sql"
    if not readers or not (is_sql or _is_usual(options)):
        return None
    in_file = tuple(readers[place] for place in places)
    binary = _BINARY_FIELDS["raw" if is_sql else options.binary]
    values, converted = [], []
    for place, reader in enumerate(in_file):
        if reader.convert is single:
            values.append(delimited_rows.SINGLE_FIELD)
        elif reader.grammar is not None:
            values.append(NUMBER_FIELDS[reader.grammar.pattern])
        else:
            values.append(binary if reader.holds_bytes else delimited_rows.TEXT_FIELD)
        # The loops write all values but those that need a function called.
        is_binary = reader.holds_bytes and reader.column.type != "BIT" and not reader.is_spelled
        if not (is_binary or reader.convert in (None, single, year)):
            converted.append(places[place])
    byte = ord(quote) if quote else delimited_rows.NO_QUOTE
    return BulkForm(
        bytes=delimited_rows.RowBytes(
            marks=delimited_rows.Marks(
                quote=byte,
                separator=ord("," if is_sql else options.separator),
                is_sql=is_sql,
                has_cr=not is_sql and len(options.terminator) > 1,
                escapes=options.escape_backslash,
                has_bytes=any(reader.holds_bytes for reader in readers),
                paired=False,
            ),
            null=np.frombuffer(b"NULL" if is_sql else options.null.encode(), np.uint8),
            values=np.array(values, np.uint8),
            nullable=np.array([bool(quote) or reader.column.nullable for reader in in_file]),
            names=np.frombuffer(b"", np.uint8),
        ),
        quote=byte,
        readers=in_file,
        converters=tuple(reader.convert for reader in in_file),
        place_of=tuple(places.index(place) for place in range(len(places))),
        unquoted=unquoted,
        converted=sorted(converted),
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
        # Marks that may be in a number or in the digits of bytes, and ends of lines, are left to
        # the plain reader.
        and not re.search(r"[\w\\.+\s=/-]", options.delimiter)
        and not re.search(r"[\w\\.+\r\n=/-]", options.separator)
        and options.delimiter not in IN_FORMATTED
        and options.terminator in ("\n", "\r\n")
        and not options.null.startswith(tuple("-0123456789" + options.delimiter))
        and options.null.isascii()
        and not any(sign in options.null for sign in (options.separator, "\r", "\n"))
    )


class ExportRows(BulkRows):
    """Rows of an export."""

    __slots__ = ()
    write_lines = staticmethod(delimited_rows.write_lines)

    def wire_texts(self, column: int, values: Iterable[bytes]) -> list[str | None]:
        """See `BulkRows`; a reader converts as well."""
        form, reader, quote = self.form, self.form.readers[column], self.form.quote
        null, code = bytes(form.bytes.null), form.bytes.values[column]
        digits = reader.holds_bytes and code != delimited_rows.BYTES_FIELD
        assert form.unquoted is not None
        found: list[str | None] = []
        for raw in values:
            if quote == delimited_rows.NO_QUOTE:
                is_none = raw == null and reader.column.nullable
                found.append(None if is_none else reader.of_bytes(form.unquoted(raw)))
            elif raw[:1] == bytes([quote]):
                text = form.unquoted(raw[1:-1])
                found.append(reader.of_text(text.decode()) if digits else reader.of_bytes(text))
            elif reader.is_number and raw != null:
                found.append(reader.of_text(raw.decode()))
            elif form.bytes.marks.is_sql and raw[-1] == quote:
                # A literal x'…'.
                found.append(reader.of_text(raw[2:-1].decode()))
            else:
                found.append(None)
        return found


def read_export(form: BulkForm, content: bytes, file: FileRead) -> tuple[BulkRows, int] | None:
    """Return the changes of the rows that begin `content`, and where the rest begins.

    They go up to the end of a statement.

    `content` ends with LF. The rows are counted. Returns None if the first row is not of this form,
    or if a value is not one of its column's type: both are for the plain reader.
    """
    # What separates values is the least that they need: NULL may be written as nothing.
    most = min(content.count(b"\n"), len(content) // len(form.readers))
    text = text_of(content)
    # Checked once for all where it can be: the loops go by bytes.
    if not most or not (form.bytes.marks.has_bytes or is_utf8(text)):
        return None
    found = _found_room(form, most)
    count = delimited_rows.find_rows(text, form.bytes, found)
    if not count:
        return None
    ts = np.arange(count) + (file.clock + file.tally.rows + 1)
    rows = ExportRows(
        form, content, found.borders[:count], ts, np.full(count, INSERT, np.int8), np.arange(count)
    )
    batch = _counted(file.commit_range, rows, file.tally, count)
    return None if batch is None else (batch, int(found.behind[count - 1]))
