"""Turn lines (see `wire_format`) into the literals of many rows, in a compiled loop, for ordinary fields. Import late, see `jit`.

The escapes of a line mean the same in a literal. A literal has a few more, chosen as the driver does.
"""

from __future__ import annotations

import numpy as np

from storage_consumer.kernels.arrays import Bytes, Offsets
from storage_consumer.kernels.bulk_values import Field, field_of, is_null
from storage_consumer.kernels.jit import compiled, inlined
from storage_consumer.kernels.line_bytes import ESCAPE
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.kernels.words import WORD, Text, copy, text_of

TEXT_LITERAL, HEX_LITERAL, DIGITS_LITERAL, NUMBER_LITERAL, FLOAT_LITERAL = range(5)
"""In quotes; ``x'…'``; digits alone; a number; a number with an exponent, ``e0`` where it has none."""
_QUOTE, _COMMA, _OPEN, _CLOSE, _SMALL_X, _SMALL_E, _CAPITAL_E, _POINT, _ZERO, _NINE = b"',()xeE.09"
_PLUS, _MINUS, _SMALL_A, _SMALL_F, _CAPITAL_A, _CAPITAL_F = b"+-afAF"
_SMALL_T, _SMALL_N, _SMALL_R, _CAPITAL_Z = b"tnrZ"
_NUL, _CR, _SUB = b"\0\r\x1a"
"""Characters that a literal escapes with another character, though a line does not."""
_NULL = np.frombuffer(b"NULL", np.uint8)
_AROUND = 6
"""Most bytes that a literal adds to its field, the separator included."""


def literal_rows(lines: Lines, kinds: Offsets) -> bytes | None:
    """Return the literals of these lines, ``1,'a'),(2,'b'``; None if a field is not an ordinary one of its kind."""
    content, starts, ends = lines.places()
    # Every byte of a field becomes two at most.
    out = text_of(np.empty(2 * lines.size + _AROUND * len(lines) * len(kinds) + WORD, np.uint8))
    end = _write(text_of(content), starts, ends, kinds, out)
    return out.bytes[:end].tobytes() if end >= 0 else None


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
            field = field_of(source, place, ends[row])
            at = _write_field(source, field, kinds[column], out, _write_border(row, column, out.bytes, at))
            if at < 0:
                return -1
            place = field.end + 1
        # Bytes are left before the LF: more fields than `kinds`.
        if place != ends[row] + 1:
            return -1
    return at


@inlined
def _write_border(row: int, column: int, out: Bytes, at: int) -> int:
    """Write the separator before a value; return where it ends."""
    if column:
        out[at] = _COMMA
        return at + 1
    if row:
        out[at], out[at + 1], out[at + 2] = _CLOSE, _COMMA, _OPEN
        return at + 3
    return at


@inlined
def _write_null(out: Bytes, at: int) -> int:
    """Write NULL; return where it ends."""
    for step in range(len(_NULL)):
        out[at + step] = _NULL[step]
    return at + len(_NULL)


@inlined
def _write_field(source: Text, field: Field, kind: int, out: Text, at: int) -> int:
    """Write one literal; return where it ends, or -1 if the field is not an ordinary one."""
    start, end, _ = field
    if is_null(source.bytes, field):
        return _write_null(out.bytes, at)
    if kind == TEXT_LITERAL:
        return _write_text(source.bytes, start, end, out.bytes, at)
    if kind == HEX_LITERAL:
        return _write_hex(source.bytes, start, end, out.bytes, at)
    number, exponent = _number_end(source.bytes, start, end)
    if number != end or (kind == DIGITS_LITERAL and not _are_digits(source.bytes, start, end)):
        return -1
    at = copy(source, start, end, out, at)
    # Without an exponent it would be a DECIMAL literal, which is cut at 81 digits.
    if kind == FLOAT_LITERAL and not exponent:
        out.bytes[at], out.bytes[at + 1] = _SMALL_E, _ZERO
        at += 2
    return at


@inlined
def _write_text(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write a text in quotes; return where it ends, or -1 if an escape is incomplete or unknown."""
    out[at] = _QUOTE
    at += 1
    is_escaped = False
    for place in range(start, end):
        # Bytes after a backslash pass as they are, so only escapes that a line may hold are let through.
        byte = content[place]
        if is_escaped and byte not in (ESCAPE, _SMALL_T, _SMALL_N):
            return -1
        if byte in (_QUOTE, _NUL, _CR, _SUB):
            out[at] = ESCAPE
            at += 1
        out[at] = _ZERO if byte == _NUL else _SMALL_R if byte == _CR else _CAPITAL_Z if byte == _SUB else byte
        at += 1
        # The second of two backslashes begins no escape.
        is_escaped = byte == ESCAPE and not is_escaped
    out[at] = _QUOTE
    return -1 if is_escaped else at + 1


@inlined
def _write_hex(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write hexadecimal digits as a bytes literal; return where it ends, or -1 if these are no pairs of digits."""
    if (end - start) % 2:
        return -1
    out[at], out[at + 1] = _SMALL_X, _QUOTE
    at += 2
    for place in range(start, end):
        byte = content[place]
        is_letter = _CAPITAL_A <= byte <= _CAPITAL_F or _SMALL_A <= byte <= _SMALL_F
        if not (is_letter or _ZERO <= byte <= _NINE):
            return -1
        out[at] = byte
        at += 1
    out[at] = _QUOTE
    return at + 1


@inlined
def _digits_end(content: Bytes, at: int, end: int) -> int:
    """Return where the digits at `at` end; `at` itself if there are none."""
    while at < end and _ZERO <= content[at] <= _NINE:
        at += 1
    return at


@inlined
def _are_digits(content: Bytes, start: int, end: int) -> bool:
    """Return whether all bytes are digits."""
    return _digits_end(content, start, end) == end


@inlined
def _signed_end(content: Bytes, at: int, end: int) -> int:
    """Return where the digits at `at`, with an optional sign, end; -1 if there are none."""
    if at < end and content[at] in (_PLUS, _MINUS):
        at += 1
    behind = _digits_end(content, at, end)
    return behind if behind > at else -1


@inlined
def _number_end(content: Bytes, start: int, end: int) -> tuple[int, bool]:
    """Return where the number at `start` ends, or -1 if there is none, and whether it has an exponent."""
    at = _signed_end(content, start, end)
    if 0 <= at < end and content[at] == _POINT:
        behind = _digits_end(content, at + 1, end)
        at = behind if behind > at + 1 else -1
    if 0 <= at < end and content[at] in (_SMALL_E, _CAPITAL_E):
        return _signed_end(content, at + 1, end), True
    return at, False
