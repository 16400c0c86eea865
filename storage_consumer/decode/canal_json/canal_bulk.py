"""Messages of canal-json in bulk: see `decode.bulk`. Import late, see `jit`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np

from storage_consumer.decode.bulk import BulkForm, BulkRows, RowsBatch, array_over, counted, of_files
from storage_consumer.decode.canal_json.message import UNREADABLE, MessageShape
from storage_consumer.decode.decoder import ABSENT, FilesBatch, Tally
from storage_consumer.decode.values import (
    NUMBER_FIELDS,
    Converter,
    bytes_of_latin1,
    convert_all,
    grammar,
    single,
    year,
)
from storage_consumer.kernels import canal_messages
from storage_consumer.kernels.arrays import YEAR_FIELD, Offsets, Packed, Places
from storage_consumer.kernels.packed import packed_json
from storage_consumer.kernels.words import is_utf8, text_of
from storage_consumer.model import CommitRange, TableColumn, TableName

_CONVERTED: Mapping[Converter, int] = {
    year: YEAR_FIELD,
    single: canal_messages.SINGLE_FIELD,
    bytes_of_latin1: canal_messages.BINARY_FIELD,
}
"""Converters that the loops replace, with the form of value that does: these need no call for each value."""
_HEAD = ["id", "database", "table", "pkNames"]
_BEHIND_HEAD = b',"isDdl":false,"type":"'
_LEAST_BYTES = 100
"""Bytes that every message has besides its head and the names in its data."""
_decode_texts = msgspec.json.Decoder(list[str | None]).decode


def message_form(shape: MessageShape, row: bytes) -> BulkForm | None:
    """Return how to read messages that begin like `row` in bulk; None if it does not begin as TiCDC's messages of this layout do."""
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
    # The form holds the names as this row spells them; a row in another spelling is left to the plain reader.
    if TableName(schema=schema, table=table).folded() != shape.layout.table.folded():
        return None
    return _form(shape, row[: end + len(_BEHIND_HEAD)])


@lru_cache(maxsize=1024)
def _form(shape: MessageShape, head: bytes) -> BulkForm:
    """Return the form of messages that begin with `head`."""
    converters: list[Converter | None] = [None] * len(shape.names)
    for place, converter in shape.conversions:
        converters[place] = converter
    # The names one after another, in one array, with their borders beside it: loops take no lists.
    names = [_name(name) for name in shape.names]
    return BulkForm(
        bytes=canal_messages.MessageBytes(
            head=array_over(head),
            names=array_over(b"".join(names)),
            ends=np.cumsum([0, *map(len, names)], dtype=np.int64),
            values=np.array([_message_field(*pair) for pair in zip(shape.columns, converters, strict=True)], np.uint8),
            key=np.array(shape.key, np.int64),
        ),
        converters=tuple(converters),
        place_of=shape.place_of,
        converted=[
            place
            for place, column in enumerate(shape.place_of)
            if column < 0 or ((convert := converters[column]) and convert not in _CONVERTED)
        ],
    )


def _name(name: str) -> bytes:
    """Return a column's name as a member name with its colon: Go escapes some characters that need no escape."""
    text = json.dumps(name, ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f"{text}:".encode()


def _message_field(column: TableColumn, convert: Converter | None) -> int:
    """Return the form of a column's values."""
    if convert and convert in _CONVERTED:
        return _CONVERTED[convert]
    form = grammar(column, "canal-json")
    return NUMBER_FIELDS[form] if form else canal_messages.TEXT_FIELD


@dataclass(frozen=True, slots=True, eq=False)
class MessageRows(BulkRows):
    """Rows of messages of one form: one for each message, or two for an update that becomes a delete and an insert."""

    numbers: Offsets
    """Line number of each row, from 0."""
    write_lines = staticmethod(canal_messages.write_lines)

    def size(self, rows: Places) -> int:
        """See `BulkRows`; not all values of a row are from one image."""
        return int((self.borders[rows, 1::2] - self.borders[rows, ::2]).sum())

    def between(self, column: int, rows: Places) -> tuple[Offsets, Offsets]:
        """See `BulkRows`."""
        # Without the quotes. What is left of a NULL is no number, and then there are no integers at all.
        return self.borders[rows, 2 * column] + 1, self.borders[rows, 2 * column + 1] - 1

    def texts(self, place: int, rows: Places) -> list[str | None]:
        """See `BulkRows`."""
        if (place := self.form.place_of[place]) < 0:
            return [ABSENT] * len(rows)
        starts, ends = self.borders[rows, 2 * place].tolist(), self.borders[rows, 2 * place + 1].tolist()
        # One JSON array of all values: one call decodes the escapes of the whole column.
        values = b",".join([self.content[start:end] for start, end in zip(starts, ends, strict=True)])
        texts, convert = _decode_texts(b"[%b]" % values), self.form.converters[place]
        return convert_all(convert, texts) if convert else texts

    def packed(self, place: int, rows: Places) -> Packed | None:
        """See `BulkRows`."""
        place = self.form.place_of[place]
        convert = self.form.converters[place]
        if place < 0 or convert not in (None, bytes_of_latin1):
            return None
        starts, ends = self.borders[rows, 2 * place], self.borders[rows, 2 * place + 1]
        return packed_json(array_over(self.content), starts, ends, is_binary=convert is bytes_of_latin1)


def read_messages(
    form: BulkForm, content: bytes, commit_range: CommitRange, tally: Tally
) -> tuple[RowsBatch, list[tuple[int, int]]] | None:
    """Return the changes of the messages of this form in these lines, and the place and number (from 0) of each other line.

    The lines end with LF. All of them count in `tally`; other lines count as `tally.rows` only. Returns None, with
    nothing counted, if no line can be judged.
    """
    found = _read_lines(form, content)
    if found is None:
        return None
    rows, others, lines = found
    # A message of two rows counts once.
    firsts = np.append(True, rows.numbers[1:] != rows.numbers[:-1])[: len(rows.ts)]
    batch = counted(commit_range, rows, rows.numbers, tally, lines, firsts)
    return None if batch is None else (batch, others)


def read_messages_together(
    shape: MessageShape, contents: Sequence[bytes], commit_range: CommitRange
) -> FilesBatch | None:
    """Return the changes of whole files; None if a message differs in form from the first, or a file does not end with LF."""
    content = b"".join(contents)
    form = message_form(shape, content[: content.find(b"\n")])
    if form is None or not all(one.endswith(b"\n") for one in contents):
        return None
    found = _read_lines(form, content)
    # One odd line is enough to read these files one by one.
    if found is None or found[1]:
        return None
    counts = np.array([one.count(b"\n") for one in contents], np.int64)
    return of_files(commit_range, found[0], found[0].numbers, counts)


def _read_lines(form: BulkForm, content: bytes) -> tuple[MessageRows, list[tuple[int, int]], int] | None:
    """Return the rows of messages of this form, place and number of each other line, and the number of lines.

    Returns None if some bytes are not UTF-8, or if the lines are many and short.
    """
    text = text_of(content)
    if not is_utf8(text):
        return None
    # Sized by the shortest possible message. Many lines that are shorter overflow it: then the plain reader takes over.
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
        form, content, found.borders[:count], found.ts[:count], found.operations[:count], found.numbers[:count]
    )
    return rows, [(start, number) for start, number in found.odd[:odd].tolist()], lines
