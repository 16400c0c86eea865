"""Loops over the bytes of CSV rows: they check the form byte by byte, find the fields, and write the lines.

What has another form they leave to the plain reader. Content has to be UTF-8 and to end with LF, so that no loop runs beyond it;
quote and delimiter are no LF. To be imported late, see `compiled`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from storage_consumer.decoding.columns import Bytes, Flags, Offsets, Places
from storage_consumer.decoding.compiled import compiled

INTEGER_FIELD, UNSIGNED_FIELD, YEAR_FIELD, FLOAT_FIELD, PLAIN_FIELD, BASE64_FIELD, FREE_FIELD = range(7)
"""Forms of a field that is not NULL: numbers without quotes; text in quotes without a quote, such of base64, and with doubled quotes."""
_LF, _CR, _TAB, _MINUS, _PLUS, _ZERO, _NINE, _POINT, _PAD, _ESCAPE = b"\n\r\t-+09.=\\"
_EXPONENT, _SMALL_EXPONENT, _NULL, _SMALL_N, _SMALL_T = b"EeNnt"
_MOST_DIGITS, _YEAR_DIGITS, _MOST_PADS = 20, 4, 2
_TIMES_TEN = np.uint64(10)
_LARGEST = np.uint64(2**63 - 1)
_NO_DIGIT = 255
_DIGITS = np.full(256, _NO_DIGIT, np.uint8)
_DIGITS[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = range(64)
_HEX, _TRUE, _FALSE = (np.frombuffer(text, np.uint8) for text in (b"0123456789ABCDEF", b"true", b"false"))


class Form(NamedTuple):
    """What rows look like."""

    quote: int
    delimiter: int
    has_cr: bool
    """CR stands before the LF of each row."""
    paired: bool
    """Behind the commit ts a field says whether the row is one of an update."""
    names: Bytes
    """What stands between the operation's letter and the commit ts."""
    values: Bytes
    """The form of each value."""


class Found(NamedTuple):
    """What there is of each row; room for as many as there may be."""

    borders: Offsets
    """The places of the delimiters before and between its values and of its LF."""
    ts: Offsets
    """Its commit ts."""
    operations: Bytes
    """The letter."""
    updates: Flags
    """Whether it says to be one of an update."""


class Extra(NamedTuple):
    """Fields that do not come out of the content, by column and then by row."""

    content: Bytes
    borders: Offsets
    """For each column where the field of each row begins, and where the last one ends."""


@compiled
def _digits_end(content: Bytes, at: int) -> int:
    """Where the digits end that begin here."""
    while _ZERO <= content[at] <= _NINE:
        at += 1
    return at


@compiled
def _fraction_end(content: Bytes, at: int) -> int:
    """Where the fraction and the exponent end that may begin here; -1 for one without digits."""
    if content[at] == _POINT:
        end = _digits_end(content, at + 1)
        if end == at + 1:
            return -1
        at = end
    if content[at] == _EXPONENT or content[at] == _SMALL_EXPONENT:
        at += 2 if content[at + 1] == _PLUS or content[at + 1] == _MINUS else 1
        end = _digits_end(content, at)
        return -1 if end == at else end
    return at


@compiled
def _number_end(content: Bytes, at: int, form: int) -> int:
    """Where a number ends that begins here; -1 for none of this form."""
    if content[at] == _MINUS and form not in (UNSIGNED_FIELD, YEAR_FIELD):
        at += 1
    end = _digits_end(content, at)
    if end == at:
        return -1
    if form == FLOAT_FIELD:
        return _fraction_end(content, end)
    return -1 if end - at > (_YEAR_DIGITS if form == YEAR_FIELD else _MOST_DIGITS) else end


@compiled
def _text_end(content: Bytes, at: int, quote: int, form: int) -> int:
    """Where a text ends that begins behind a quote here, its closing quote included; -1 where it does not end."""
    size = len(content)
    while at < size:
        if content[at] == quote:
            if form != FREE_FIELD or at + 1 == size or content[at + 1] != quote:
                return at + 1
            at += 1
        at += 1
    return -1


@compiled
def _base64_end(content: Bytes, at: int, quote: int) -> int:
    """Where base64 ends that begins behind a quote here, its closing quote included; -1 for what is none."""
    start = at
    while _DIGITS[content[at]] != _NO_DIGIT:
        at += 1
    digits_end = at
    while content[at] == _PAD:
        at += 1
    whole = (at - start) % 4 == 0 and at - digits_end <= _MOST_PADS
    return at + 1 if whole and content[at] == quote else -1


@compiled
def _field_end(content: Bytes, at: int, quote: int, form: int) -> int:
    """Where a field ends that begins here; -1 for none of this form and no NULL."""
    if content[at] == _ESCAPE:
        return at + 2 if content[at + 1] == _NULL else -1
    if form <= FLOAT_FIELD:
        return _number_end(content, at, form)
    if content[at] != quote:
        return -1
    if form == BASE64_FIELD:
        return _base64_end(content, at + 1, quote)
    return _text_end(content, at + 1, quote, form)


@compiled
def _begins(content: Bytes, at: int, text: Bytes) -> bool:
    """Whether this text stands here."""
    if at + len(text) > len(content):
        return False
    for place in range(len(text)):  # noqa: SIM110 - a loop is what compiles well
        if content[at + place] != text[place]:
            return False
    return True


@compiled
def _number(content: Bytes, start: int, end: int) -> int:
    """The number that these digits are; -1 for none, for one written as nobody does, and for one beyond 63 bits."""
    if end == start or end - start >= _MOST_DIGITS or (content[start] == _ZERO and end - start > 1):
        return -1
    number = np.uint64(0)
    for place in range(start, end):
        digit = content[place] - _ZERO
        if not 0 <= digit <= 9:  # noqa: PLR2004 - the highest digit
            return -1
        number = number * _TIMES_TEN + np.uint64(digit)
    return -1 if number > _LARGEST else np.int64(number)  # type: ignore[return-value] # what Python's own integer is compiled to


@compiled
def _head_end(content: Bytes, at: int, form: Form, found: Found, row: int) -> int:
    """Read what stands before the values of a row that begins here; where the delimiter before them is, -1 for another form."""
    if at + 2 >= len(content) or content[at] != form.quote or not _begins(content, at + 2, form.names):
        return -1
    found.operations[row] = content[at + 1]
    at += 2 + len(form.names)
    end = _digits_end(content, at)
    ts = _number(content, at, end)
    found.ts[row] = ts
    if form.paired and ts >= 0 and content[end] == form.delimiter:
        is_update = content[end + 1] == _SMALL_T
        found.updates[row] = is_update
        text = _TRUE if is_update else _FALSE
        if not _begins(content, end + 1, text):
            return -1
        end += 1 + len(text)
    return end if ts >= 0 and content[end] == form.delimiter else -1


@compiled
def _values_end(content: Bytes, at: int, form: Form, borders: Offsets) -> int:
    """Find the values of a row behind the delimiter here; where its LF is, -1 for another form."""
    size, last = len(content), len(form.values) - 1
    borders[0] = at
    for value in range(last + 1):
        at = _field_end(content, at + 1, form.quote, form.values[value])
        if at < 0 or at >= size:
            return -1
        if value == last:
            if form.has_cr and content[at] == _CR:
                at += 1
            elif form.has_cr:
                return -1
        if content[at] != (_LF if value == last else form.delimiter):
            return -1
        borders[value + 1] = at
    return at


@compiled
def find_rows(content: Bytes, form: Form, found: Found) -> int:
    """Find the rows of this form that `content` begins with; how many, no more than `found` has room for."""
    at = 0
    for row in range(len(found.ts)):
        at = _head_end(content, at, form, found, row)
        if at >= 0:
            at = _values_end(content, at, form, found.borders[row])
        if at < 0:
            return row
        at += 1
    return len(found.ts)


@compiled
def read_integers(content: Bytes, starts: Offsets, ends: Offsets, numbers: Offsets) -> bool:
    """Read the numbers between these places (the end exclusive), each of digits behind one or no minus.

    False where one is empty, is written as nobody writes numbers (``007``, ``-0``), or has more than 63 bits.
    """
    for row in range(len(starts)):
        start = starts[row]
        is_negative = start < ends[row] and content[start] == _MINUS
        number = _number(content, start + is_negative, ends[row])
        if number < 0 or (is_negative and number == 0):
            return False
        numbers[row] = -number if is_negative else number
    return True


@compiled
def _copy(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write bytes as they are; where they end."""
    for place in range(start, end):
        out[at] = content[place]
        at += 1
    return at


@compiled
def _write_text(content: Bytes, start: int, end: int, quote: int, out: Bytes, at: int) -> int:
    """Write a text as a line has it, escaped, each doubled quote once; where it ends."""
    place = start
    while place < end:
        byte = content[place]
        if byte == quote:
            place += 1
        if byte in (_ESCAPE, _TAB, _LF):
            out[at] = _ESCAPE
            at += 1
            byte = _SMALL_T if byte == _TAB else _SMALL_N if byte == _LF else byte
        out[at] = byte
        at += 1
        place += 1
    return at


@compiled
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


@compiled
def _write_field(content: Bytes, start: int, end: int, form: Form, value: int, out: Bytes, at: int) -> int:  # noqa: PLR0913, PLR0917 - Numba takes no records that hold both
    """Write a field as a line has it; where it ends."""
    if content[start] != form.quote:  # a number or NULL
        return _copy(content, start, end, out, at)
    if form.values[value] == BASE64_FIELD:
        return _write_base64(content, start + 1, end - 1, out, at)
    return _write_text(content, start + 1, end - 1, form.quote, out, at)


@compiled
def write_lines(  # noqa: PLR0913, PLR0917 - as above
    content: Bytes, form: Form, borders: Offsets, rows: Places, fields: Offsets, extra: Extra, out: Bytes
) -> int:
    """Write the lines of these rows, each with LF behind it; where they end in `out`.

    `borders`: see `Found`. `fields`: for each column of a line which value of the row it is, or -1 minus which column of `extra`.
    """
    last, at = len(form.values) - 1, 0
    for number in range(len(rows)):
        row = rows[number]
        for field in fields:
            if field < 0:
                ends = extra.borders[-1 - field]
                at = _copy(extra.content, ends[number], ends[number + 1], out, at)
            else:
                end = borders[row, field + 1] - (form.has_cr and field == last)
                at = _write_field(content, borders[row, field] + 1, end, form, field, out, at)
            out[at] = _TAB
            at += 1
        out[at - 1] = _LF
    return at
