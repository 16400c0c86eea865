"""Values as others take them: columns for Arrow, rows for MariaDB's bulk. Import late, see `jit`.

Arrow: the values of a column, one after the other, from the bytes of CSV rows and of JSON messages.

Bulk statements: from lines (see `wire_format`). Each value starts with one byte that says whether
it is NULL. A value that is not NULL follows as a prepared statement sends its parameters: texts and
bytes with a length prefix, integers in eight bytes.
Format: mariadb.com/docs, COM_STMT_BULK_EXECUTE and "protocol data types".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from storage_consumer.decode.kernels.arrays import Bytes, Offsets, Packed
from storage_consumer.decode.kernels.canal_messages import QUOTE, code_at, write_utf8
from storage_consumer.decode.kernels.delimited_rows import DIGITS
from storage_consumer.decode.kernels.jit import compiled, inlined
from storage_consumer.decode.kernels.row_lines import Lines
from storage_consumer.decode.kernels.wide_words import (
    ESCAPE,
    HEX,
    LF,
    TAB,
    WORD,
    Text,
    all_bytes,
    copy,
    first,
    matching,
    text_of,
)

_NULL_LETTER, _PADDING, _JSON_NULL = b"N=n"


def packed_csv(
    content: Bytes, starts: Offsets, ends: Offsets, quote: int, *, is_base64: bool
) -> Packed:
    """Return the values between these borders, quotes included, which have their form."""
    room = _room(starts, ends, is_base64)
    return room._replace(bytes=room.bytes[: _pack_csv(content, starts, ends, quote, room)])


def packed_json(
    content: Bytes, starts: Offsets, ends: Offsets, *, is_binary: bool
) -> Packed | None:
    """Return strings between borders, quotes included; None if one is no string or null."""
    room = _room(starts, ends, is_binary)
    size = _pack_json(content, starts, ends, room)
    return None if size < 0 else room._replace(bytes=room.bytes[:size])


def _room(starts: Offsets, ends: Offsets, is_binary: bool) -> Packed:  # noqa: FBT001
    # No value grows. The bytes of one batch are few MiB.
    offsets, valid = np.zeros(len(starts) + 1, np.int32), np.ones(len(starts), np.bool_)
    return Packed(np.empty(int((ends - starts).sum()), np.uint8), offsets, valid, is_binary)


@compiled
def _pack_csv(content: Bytes, starts: Offsets, ends: Offsets, quote: int, room: Packed) -> int:
    at = 0
    for number in range(len(starts)):
        start, end = starts[number], ends[number]
        if content[start] == quote:
            if room.is_binary:
                at = _decode(content, start + 1, end - 1, room.bytes, at)
            else:
                at = _undouble(content, start + 1, end - 1, quote, room.bytes, at)
        elif content[start] == ESCAPE and content[start + 1] == _NULL_LETTER:
            room.valid[number] = False
        else:
            for place in range(start, end):
                room.bytes[at] = content[place]
                at += 1
        room.offsets[number + 1] = at
    return at


@inlined
def _undouble(content: Bytes, start: int, end: int, quote: int, out: Bytes, at: int) -> int:
    """Write a text, each pair of quotes as one; return where it ends."""
    while start < end:
        byte = content[start]
        out[at] = byte
        at += 1
        start += 2 if byte == quote else 1
    return at


@inlined
def _decode(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write the bytes of base64; return where they end."""
    while start < end:
        bits = 0
        for place in range(start, start + 4):
            bits = bits << 6 | (DIGITS[content[place]] & 63)
        out[at] = bits >> 16
        at += 1
        if content[start + 2] != _PADDING:
            out[at] = bits >> 8 & 255
            at += 1
        if content[start + 3] != _PADDING:
            out[at] = bits & 255
            at += 1
        start += 4
    return at


@compiled
def _pack_json(content: Bytes, starts: Offsets, ends: Offsets, room: Packed) -> int:
    at = 0
    for number in range(len(starts)):
        start, end = starts[number], ends[number] - 1
        if content[start] == _JSON_NULL:
            room.valid[number] = False
        elif content[start] != QUOTE:
            return -1
        else:
            at = _unescape(content, start + 1, end, room.is_binary, room.bytes, at)
        room.offsets[number + 1] = at
    return at


@inlined
def _unescape(content: Bytes, start: int, end: int, is_binary: bool, out: Bytes, at: int) -> int:  # noqa: FBT001 - Numba takes no keywords
    """Write a string as UTF-8, or as the bytes of code points up to U+00FF; return its end."""
    while start < end:
        if content[start] < 128 and content[start] != ESCAPE:  # noqa: PLR2004 - ASCII
            out[at] = content[start]
            at += 1
            start += 1
        elif is_binary:
            code, start = code_at(content, start)
            out[at] = code
            at += 1
        elif content[start] == ESCAPE:
            code, start = code_at(content, start)
            at = write_utf8(code, out, at)
        else:
            out[at] = content[start]
            at += 1
            start += 1
    return at


TEXT_VALUE, HEX_VALUE, NUMBER_VALUE = range(3)
"""What a field becomes: its text, the bytes of its hexadecimal digits, or its number."""
_IS_VALUE, _IS_NULL = 0, 1
_LONGEST_PREFIX = 9
"""Bytes reserved besides a field's content: the NULL byte with a length or a number."""
_TWO_BYTES, _THREE_BYTES, _EIGHT_BYTES = 0xFC, 0xFD, 0xFE
"""First byte of a length that takes 2, 3 or 8 more bytes."""
_LESS_THAN_ONE, _LESS_THAN_TWO, _LESS_THAN_THREE = 251, 1 << 16, 1 << 24
_ZERO, _NINE, _CAPITAL_N, _SMALL_T, _SMALL_N = b"09Ntn"
_TEN, _MOST = np.uint64(10), np.uint64(2**64 - 1)
_NO_DIGIT = 16
_DIGITS = np.full(256, _NO_DIGIT, np.uint8)
_DIGITS[HEX] = range(16)
_DIGITS[list(b"abcdef")] = range(10, 16)


class _Field(NamedTuple):
    """The borders of a field in a line (end exclusive), and whether it holds an escape."""

    start: int
    end: int
    escaped: bool


def bulk_rows(lines: Lines, kinds: Offsets) -> memoryview | None:
    """Return `lines` as encoded rows; None if a line has other fields or one does not fit."""
    content, starts, ends = lines.places()
    # The NULL byte and a length of nine bytes are one byte more than `_LONGEST_PREFIX`. Each field
    # has that byte: its separator counts in `lines.size`, and is not written.
    room = lines.size + _LONGEST_PREFIX * len(lines) * len(kinds) + WORD
    out = text_of(np.empty(room, np.uint8))
    end = _write(text_of(content), starts, ends, kinds, out)
    return out.bytes[:end].data if end >= 0 else None


@compiled
def _write(source: Text, starts: Offsets, ends: Offsets, kinds: Offsets, out: Text) -> int:
    """Write the rows; return where they end, or -1 if a row is malformed."""
    at = 0
    for row in range(len(starts)):
        place = starts[row]
        for column in range(len(kinds)):
            # The field before ended at the LF: this row has fewer fields than `kinds`.
            if place > ends[row]:
                return -1
            field = _field_of(source, place, ends[row])
            at = _write_field(source, field, kinds[column], out, at)
            if at < 0:
                return -1
            place = field.end + 1
        # A full row has consumed its last byte: `place` is then one past the LF.
        if place != ends[row] + 1:
            return -1
    return at


@inlined
def _field_of(source: Text, start: int, limit: int) -> _Field:
    """Return the field from `start` to the next TAB, or to `limit` if that is first."""
    at, escaped = start, False
    # Skip by words to the first TAB or escape. Later bytes need a look one by one, since an escape
    # must be remembered.
    while at < limit and at < len(source.words):
        word = source.words[at]
        found = matching(word, all_bytes(TAB)) | matching(word, all_bytes(ESCAPE))
        if found:
            at += first(found)
            break
        at += WORD
    while at < limit and source.bytes[at] != TAB:
        escaped = escaped or source.bytes[at] == ESCAPE
        at += 1
    # A word may reach past `limit`, into the next line.
    return _Field(start, min(at, limit), escaped)


@inlined
def _write_field(source: Text, field: _Field, kind: int, out: Text, at: int) -> int:
    """Write one value; return where it ends, or -1 if the field does not fit this kind."""
    start, end, escaped = field
    # A text of these two characters has its backslash doubled, so it is never mistaken for NULL.
    if (
        field.escaped
        and field.end == field.start + 2
        and source.bytes[field.start + 1] == _CAPITAL_N
    ):
        out.bytes[at] = _IS_NULL
        return at + 1
    out.bytes[at] = _IS_VALUE
    at += 1
    if kind == NUMBER_VALUE:
        number = np.uint64(0)
        for place in range(start, end):
            digit = np.uint64(source.bytes[place] - _ZERO)
            # Test before multiplying: the product would wrap around silently.
            if not _ZERO <= source.bytes[place] <= _NINE or number > (_MOST - digit) // _TEN:
                return -1
            number = number * _TEN + digit
        # The protocol's eight bytes of an integer: a word is little-endian too.
        out.words[at] = number
        return at + WORD if end > start else -1
    if kind == HEX_VALUE:
        if (end - start) % 2:
            return -1
        at = _write_length((end - start) // 2, out.bytes, at)
        for place in range(start, end, 2):
            high, low = _DIGITS[source.bytes[place]], _DIGITS[source.bytes[place + 1]]
            if _NO_DIGIT in (high, low):
                return -1
            out.bytes[at] = 16 * high + low
            at += 1
        return at
    if escaped:
        return _write_unescaped(source.bytes, start, end, out.bytes, at)
    # Without an escape the length is known before anything is written.
    return copy(source, start, end, out, _write_length(end - start, out.bytes, at))


@inlined
def _write_length(size: int, out: Bytes, at: int) -> int:
    """Write a length prefix (MySQL's length-encoded integer); return where it ends."""
    if size < _LESS_THAN_ONE:
        out[at] = size
        return at + 1
    if size < _LESS_THAN_TWO:
        out[at], count = _TWO_BYTES, 2
    elif size < _LESS_THAN_THREE:
        out[at], count = _THREE_BYTES, 3
    else:
        out[at], count = _EIGHT_BYTES, 8
    # Little-endian, as all numbers of the protocol.
    for place in range(count):
        out[at + 1 + place] = (size >> (8 * place)) & 0xFF
    return at + 1 + count


@inlined
def _write_unescaped(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write a text with escapes; return its end, or -1 for a partial or unknown escape."""
    # The length comes first on the wire, so count the characters before writing any.
    size, place = 0, start
    while place < end:
        place += 2 if content[place] == ESCAPE else 1
        size += 1
    # A backslash was the last byte: its escape would reach past the field.
    if place != end:
        return -1
    at, place = _write_length(size, out, at), start
    while place < end:
        byte = content[place]
        if byte == ESCAPE:
            place += 1
            sign = content[place]
            if sign not in (ESCAPE, _SMALL_T, _SMALL_N):
                return -1
            byte = TAB if sign == _SMALL_T else LF if sign == _SMALL_N else ESCAPE
        out[at] = byte
        at += 1
        place += 1
    return at
