"""Loops over the bytes of CSV rows, compiled for the processor (Numba) at first use and kept beside the modules.

They check the form of rows byte by byte, find their fields, and write their lines; what has another form they leave to the plain
reader. Content has to be UTF-8 and to end with LF, so that no loop runs beyond it.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from storage_consumer.decoding.columns import Bytes, Flags, Offsets

INTEGER_FIELD, UNSIGNED_FIELD, YEAR_FIELD, FLOAT_FIELD, PLAIN_FIELD, BASE64_FIELD, FREE_FIELD = range(7)
"""Forms of a field that is not NULL: numbers without quotes; text in quotes without a quote, such of base64, and with doubled quotes."""
_LF, _CR, _TAB, _MINUS, _ZERO, _POINT, _PAD, _ESCAPE = 10, 13, 9, 45, 48, 46, 61, 92
_N, _SMALL_T, _SMALL_N = 78, 116, 110
_MOST_DIGITS, _YEAR_DIGITS = 20, 4
_LARGEST = 2**63 - 1
_NO_DIGIT = 255
_DIGITS = np.full(256, _NO_DIGIT, np.uint8)
_DIGITS[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = range(64)
_HEX, _TRUE, _FALSE = (np.frombuffer(text, np.uint8) for text in (b"0123456789ABCDEF", b"true", b"false"))


@njit(cache=True)  # type: ignore[untyped-decorator] # Numba publishes no types
def _digits_end(content: Bytes, at: int) -> int:
    """Where the digits end that begin here."""
    while _ZERO <= content[at] < _ZERO + 10:  # noqa: PLR2004 - the digits
        at += 1
    return at


@njit(cache=True)  # type: ignore[untyped-decorator] # as above
def _number_end(content: Bytes, at: int, form: int) -> int:
    """Where a number ends that begins here; -1 for none of this form."""
    if content[at] == _MINUS and form not in (UNSIGNED_FIELD, YEAR_FIELD):
        at += 1
    end = _digits_end(content, at)
    if end == at:
        return -1
    if form != FLOAT_FIELD:
        return -1 if end - at > (_YEAR_DIGITS if form == YEAR_FIELD else _MOST_DIGITS) else end
    if content[end] == _POINT:
        at = end + 1
        end = _digits_end(content, at)
        if end == at:
            return -1
    if content[end] in (69, 101):  # E, e
        at = end + 1
        if content[at] in (43, _MINUS):
            at += 1
        end = _digits_end(content, at)
        if end == at:
            return -1
    return end


@njit(cache=True)  # type: ignore[untyped-decorator] # as above
def _text_end(content: Bytes, at: int, quote: int, form: int) -> int:
    """Where a text in quotes ends that begins with one here, the closing quote included; -1 for none of this form."""
    size, at = len(content), at + 1
    start, pads = at, 0
    while at < size:
        byte = content[at]
        if byte == quote:
            if form != FREE_FIELD or at + 1 == size or content[at + 1] != quote:
                break
            at += 1
        elif form == BASE64_FIELD:
            if byte == _PAD:
                pads += 1
            elif pads or _DIGITS[byte] == _NO_DIGIT:
                return -1
        at += 1
    if at == size or (form == BASE64_FIELD and (pads > 2 or (at - start) % 4)):  # noqa: PLR2004 - four digits are three bytes
        return -1
    return at + 1


@njit(cache=True)  # type: ignore[untyped-decorator] # as above
def _field_end(content: Bytes, at: int, quote: int, form: int) -> int:
    """Where a field ends that begins here; -1 for none of this form and no NULL."""
    if content[at] == _ESCAPE:
        return at + 2 if content[at + 1] == _N else -1
    if form <= FLOAT_FIELD:
        return _number_end(content, at, form)
    return _text_end(content, at, quote, form) if content[at] == quote else -1


@njit(cache=True)  # type: ignore[untyped-decorator] # as above
def _begins(content: Bytes, at: int, text: Bytes) -> bool:
    if at + len(text) > len(content):
        return False
    for place in range(len(text)):
        if content[at + place] != text[place]:
            return False
    return True


@njit(cache=True)  # type: ignore[untyped-decorator] # as above
def _commit_ts(content: Bytes, at: int, end: int) -> int:
    """The number between these places, -1 where it is written as nobody does, or too large."""
    if end == at or end - at > _MOST_DIGITS - 1 or (content[at] == _ZERO and end - at > 1):
        return -1
    number = np.uint64(0)
    for place in range(at, end):
        number = number * np.uint64(10) + np.uint64(content[place] - _ZERO)
    return -1 if number > np.uint64(_LARGEST) else np.int64(number)


@njit(cache=True)  # type: ignore[untyped-decorator] # as above
def find_rows(
    content: Bytes,
    marks: tuple[int, int, bool],
    names: Bytes,
    forms: Bytes,
    borders: Offsets,
    ts: Offsets,
    operations: Bytes,
    updates: Flags,
    paired: bool,  # noqa: FBT001 - Numba takes no names
) -> int:
    """Find the rows of this form that `content` begins with; how many, no more than `borders` has room for.

    `marks`: quote, delimiter, and whether CR stands before LF. `names`: what stands between the operation's letter and the commit ts.
    `forms`: of each value. `paired`: is-update stands behind the commit ts. Filled in for each row: the places of the delimiters
    before and behind its values and of its LF, its commit ts, its operation's letter, and whether is-update is true.
    """
    quote, delimiter, has_cr = marks
    size, at = len(content), 0
    for row in range(len(borders)):
        if at + 2 >= size or content[at] != quote or not _begins(content, at + 2, names):
            return row
        operations[row] = content[at + 1]
        at += 2 + len(names)
        end = _digits_end(content, at)
        ts[row] = _commit_ts(content, at, end)
        if ts[row] < 0 or content[end] != delimiter:
            return row
        if paired:
            updates[row] = content[end + 1] == _SMALL_T
            if not _begins(content, end + 1, _TRUE if updates[row] else _FALSE):
                return row
            end += 5 if updates[row] else 6
            if content[end] != delimiter:
                return row
        borders[row, 0] = end
        for value in range(len(forms)):
            end = _field_end(content, end + 1, quote, forms[value])
            if end < 0 or end >= size:
                return row
            if value < len(forms) - 1:
                if content[end] != delimiter:
                    return row
            else:
                if has_cr:
                    if content[end] != _CR:
                        return row
                    end += 1
                if end >= size or content[end] != _LF:
                    return row
            borders[row, 1 + value] = end
        at = end + 1
    return len(borders)


@njit(cache=True)  # type: ignore[untyped-decorator] # as above
def _write_text(content: Bytes, start: int, end: int, quote: int, out: Bytes, at: int) -> int:
    """Write a text as a line has it, escaped, each doubled quote once; where it ends."""
    place = start
    while place < end:
        byte = content[place]
        if byte == quote:
            place += 1
        if byte == _ESCAPE or byte == _TAB or byte == _LF:  # noqa: PLR1714 - compiles to less
            out[at] = _ESCAPE
            at += 1
            byte = _SMALL_T if byte == _TAB else _SMALL_N if byte == _LF else byte
        out[at] = byte
        at += 1
        place += 1
    return at


@njit(cache=True)  # type: ignore[untyped-decorator] # as above
def _write_base64(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write base64 as hexadecimal digits; where they end."""
    held = bits = 0
    for place in range(start, end):
        if content[place] == _PAD:
            break
        held, bits = held << 6 | _DIGITS[content[place]], bits + 6
        if bits >= 8:  # noqa: PLR2004 - a byte
            bits -= 8
            byte = held >> bits & 255
            held &= (1 << bits) - 1
            out[at], out[at + 1] = _HEX[byte >> 4], _HEX[byte & 15]
            at += 2
    return at


@njit(cache=True)  # type: ignore[untyped-decorator] # as above
def write_lines(
    content: Bytes,
    borders: Offsets,
    rows: NDArray[np.intp],
    marks: tuple[int, int, bool],
    fields: Offsets,
    forms: Bytes,
    extra: Bytes,
    extra_ends: Offsets,
    out: Bytes,
) -> int:
    """Write the lines of these rows, with LF between them; where they end in `out`.

    `fields`: of each column of the line its value in the row, or -1 minus its place in `extra_ends`, which tells for each of these
    columns where the field of each row begins in `extra`, and at the end where the last one ends. `forms`: of each column of the line.
    """
    quote, last, at = marks[0], borders.shape[1] - 2, 0
    for number in range(len(rows)):
        row = rows[number]
        for column in range(len(fields)):
            if column:
                out[at] = _TAB
                at += 1
            field = fields[column]
            if field < 0:
                ends = extra_ends[-1 - field]
                for place in range(ends[number], ends[number + 1]):
                    out[at] = extra[place]
                    at += 1
                continue
            start, end = borders[row, field] + 1, borders[row, field + 1]
            if marks[2] and field == last:
                end -= 1
            if content[start] != quote:  # a number or NULL
                for place in range(start, end):
                    out[at] = content[place]
                    at += 1
            elif forms[column] == BASE64_FIELD:
                at = _write_base64(content, start + 1, end - 1, out, at)
            else:
                at = _write_text(content, start + 1, end - 1, quote, out, at)
        out[at] = _LF
        at += 1
    return at - 1
