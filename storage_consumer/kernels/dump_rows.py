"""Byte loops over the rows of exports, in SQL and in CSV: check their form and find the values.

Rows in any other form than the usual one are left to the plain reader. Content must end with LF, so that no loop runs past
it; quotes and separators are ASCII and not LF. Import late, see `jit`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from storage_consumer.kernels.arrays import FLOAT_FIELD, Bytes, Flags, Offsets
from storage_consumer.kernels.csv_rows import base64_end, free_end
from storage_consumer.kernels.jit import compiled, inlined
from storage_consumer.kernels.line_bytes import ESCAPE, LF
from storage_consumer.kernels.numbers import MINUS, POINT, ZERO, digits_end, number_end
from storage_consumer.kernels.words import WORD, Text, all_bytes, begins, first, matching, utf8_between

SINGLE_FIELD, TEXT_FIELD, BYTES_FIELD, HEX_FIELD, BASE64_FIELD = range(FLOAT_FIELD + 1, FLOAT_FIELD + 6)
"""Forms of values besides those of numbers: a FLOAT certain to be within range, any text, and bytes in three spellings."""
_OPEN, _CLOSE, _COMMA, _END, _X, _CR, _SPACE, _NINE = b"(),;x\r 9"
(_PLUS,) = b"+"
_SURE_DIGITS, _SURE_EXPONENT = 38, 37
"""Numbers with at most so many digits before the point, or with one digit and at most this exponent, are below the largest FLOAT."""
_CONVERT, _USING = (np.frombuffer(text, np.uint8) for text in (b"CONVERT(", b" USING UTF8MB4)"))
_IS_HEX = np.zeros(256, np.bool_)
_IS_HEX[list(b"0123456789abcdefABCDEF")] = True
_IS_ESCAPED = np.zeros((2, 256), np.bool_)
_IS_ESCAPED[0, list(b"0nr\\")] = True
_IS_ESCAPED[1, list(b"0nrZ\\'\"")] = True
"""What Dumpling and mydumper write behind a backslash, in CSV besides the mark, and in SQL: all else shows that backslashes are content."""


NO_QUOTE = 256
"""Stands for the quote where there is none: no byte is equal to it."""


class Marks(NamedTuple):
    """The bytes around values and rows."""

    quote: int
    """The byte around texts, or `NO_QUOTE`: then each value ends at the next separator that no backslash escapes."""
    separator: int
    is_sql: bool
    """A row is in parentheses; else it ends with LF."""
    has_cr: bool
    """CR precedes the LF of each row."""
    escapes: bool
    """A backslash escapes the byte behind it; else a quote inside a text is doubled."""
    has_bytes: bool
    """Some values are bytes, so the content is not UTF-8 throughout and each text is checked."""


class Form(NamedTuple):
    """The fixed parts of rows of one table."""

    marks: Marks
    null: Bytes
    """What stands for NULL; it begins neither as a number nor with a quote."""
    values: Bytes
    """The form of each value."""
    nullable: Flags
    """Whether each value may be NULL; without quotes what looks like it is else a text."""


class Found(NamedTuple):
    """Output arrays, one entry per row, for the largest possible number of rows."""

    borders: Offsets
    """Where each value begins and ends (exclusive), quotes included: two entries for each."""
    behind: Offsets
    """Where what follows the row begins."""


@inlined
def _is_escaped(byte: int, mark: int, marks: Marks) -> bool:
    """Return whether a byte may stand behind a backslash; `mark`: the byte of a CSV file that needs one."""
    return bool(_IS_ESCAPED[int(marks.is_sql), byte]) or byte == mark


@inlined
def _escaped_end(text: Text, at: int, marks: Marks) -> int:
    """Return where the text that begins at `at`, with escapes, ends, closing quote included; -1 if it has no end."""
    quotes, escapes = all_bytes(marks.quote), all_bytes(ESCAPE)
    while at < len(text.bytes):
        if at < len(text.words):
            word = text.words[at]
            marked = matching(word, quotes) | matching(word, escapes)
            if not marked:
                at += WORD
                continue
            at += first(marked)
        byte = text.bytes[at]
        if byte == marks.quote:
            return at + 1
        at += 1
        if byte == ESCAPE:
            if at == len(text.bytes) or not _is_escaped(text.bytes[at], marks.quote, marks):
                return -1
            at += 1
    return -1


@inlined
def _single_end(content: Bytes, at: int) -> int:
    """Return where the FLOAT at `at` ends; -1 if there is none, or if it may exceed the largest FLOAT."""
    start = at + (content[at] == MINUS)
    whole = digits_end(content, start)
    end = number_end(content, at, FLOAT_FIELD)
    if end < 0 or whole - start > _SURE_DIGITS:
        return -1
    fraction = digits_end(content, whole + 1) if content[whole] == POINT else whole
    if fraction == end:
        return end
    # What is left is an exponent: of one digit before the point it may have two digits, if it is positive.
    if content[fraction + 1] == MINUS:
        return end if whole - start == 1 else -1
    begin = fraction + 1 + (content[fraction + 1] == _PLUS)
    if end - begin > 2 or whole - start > 1:  # noqa: PLR2004 - two digits
        return -1
    power = 0
    for place in range(begin, end):
        power = 10 * power + content[place] - ZERO
    return end if power <= _SURE_EXPONENT else -1


@inlined
def _hex_end(content: Bytes, at: int, quote: int) -> int:
    """Return where the pairs of hexadecimal digits at `at` end, closing quote included; -1 if there are no such."""
    start = at
    # LF is no digit, so this ends before the content does.
    while _IS_HEX[content[at]]:
        at += 1
    return at + 1 if content[at] == quote and (at - start) % 2 == 0 else -1


@inlined
def _bare_end(text: Text, at: int, marks: Marks) -> int:
    """Return where the value at `at` ends that nothing is around; -1 if it has no end."""
    content = text.bytes
    while at < len(content):
        byte = content[at]
        if byte == marks.separator:
            return at
        if marks.has_cr and byte == _CR and at + 1 < len(content) and content[at + 1] == LF:
            return at
        if not marks.has_cr and byte == LF:
            return at
        at += 1
        if marks.escapes and byte == ESCAPE:
            if at == len(content) or not _is_escaped(content[at], marks.separator, marks):
                return -1
            at += 1
    return -1


@inlined
def is_null(content: Bytes, start: int, end: int, form: Form, value: int) -> bool:
    """Return whether a value that nothing is around is NULL."""
    return bool(form.nullable[value]) and end - start == len(form.null) and begins(content, start, form.null)


@inlined
def _unquoted_end(text: Text, at: int, value: int, form: Form) -> int:
    """Return where the text or bytes at `at` end that nothing is around; -1 if they are not of this form."""
    # What stands for NULL may begin with a backslash, and is no escape.
    behind = at + len(form.null)
    if is_null(text.bytes, at, behind, form, value) and behind < len(text.bytes):
        byte = text.bytes[behind]
        if byte in (form.marks.separator, _CR if form.marks.has_cr else LF):
            return behind
    end = _bare_end(text, at, form.marks)
    # Numbers are looked at before: what comes here instead of one is NULL or wrong.
    if end < 0 or (form.values[value] <= SINGLE_FIELD and not is_null(text.bytes, at, end, form, value)):
        return -1
    if form.values[value] == TEXT_FIELD and form.marks.has_bytes and not utf8_between(text, at, end):
        return -1
    return end


@inlined
def _quoted_end(text: Text, at: int, code: int, marks: Marks) -> int:
    """Return where the quoted value whose content begins at `at` ends, closing quote included; -1 if it is not of this form."""
    if code == HEX_FIELD:
        return _hex_end(text.bytes, at, marks.quote)
    if code == BASE64_FIELD:
        return base64_end(text.bytes, at, marks.quote)
    end = _escaped_end(text, at, marks) if marks.escapes else free_end(text, at, marks.quote)
    if code == TEXT_FIELD and marks.has_bytes and end >= 0 and not utf8_between(text, at, end - 1):
        return -1
    return end


@inlined
def _value_end(text: Text, at: int, value: int, form: Form) -> int:
    """Return where the value at `at` ends; -1 if it is neither NULL nor of the form of the value at this index."""
    content, marks, code = text.bytes, form.marks, form.values[value]
    is_quoted = content[at] == marks.quote
    if code <= SINGLE_FIELD and (is_quoted or content[at] == MINUS or ZERO <= content[at] <= _NINE):
        begin = at + is_quoted
        end = _single_end(content, begin) if code == SINGLE_FIELD else number_end(content, begin, code)
        if not is_quoted or end < 0:
            return end
        return end + 1 if content[end] == marks.quote else -1
    if is_quoted:
        return _quoted_end(text, at + 1, code, marks)
    if marks.quote == NO_QUOTE:
        return _unquoted_end(text, at, value, form)
    if marks.is_sql and code == BYTES_FIELD and content[at] == _X and content[at + 1] == marks.quote:
        return _hex_end(content, at + 2, marks.quote)
    return at + len(form.null) if begins(content, at, form.null) else -1


@inlined
def _text_begin(content: Bytes, at: int, code: int, marks: Marks) -> int:
    """Return where the quote of a text begins that mydumper has converted to its charset, or `at` if it has not."""
    begin = at + len(_CONVERT)
    # LF ends the content, so there is a byte behind what `begins` has found.
    is_converted = code == TEXT_FIELD and marks.is_sql and begins(content, at, _CONVERT)
    return begin if is_converted and content[begin] == marks.quote else at


@inlined
def _values_end(text: Text, at: int, form: Form, borders: Offsets) -> int:
    """Find the values of a row that begins at `at`; return where the last one ends, or -1 for another form."""
    size, last = len(text.bytes), len(form.values) - 1
    for value in range(last + 1):
        if at >= size:
            return -1
        start = _text_begin(text.bytes, at, form.values[value], form.marks)
        end = _value_end(text, start, value, form)
        borders[2 * value], borders[2 * value + 1] = start, end
        if end >= 0 and start > at:
            end = end + len(_USING) if begins(text.bytes, end, _USING) else -1
        if end < 0 or end >= size or (value < last and text.bytes[end] != form.marks.separator):
            return -1
        at = end + 1
    return at - 1


@inlined
def _begin(content: Bytes, at: int) -> int:
    """Return where the first value of a row in parentheses begins, past white space from `at` on; -1 if there is none."""
    while at < len(content) and (content[at] == LF or content[at] == _SPACE or content[at] == _CR):
        at += 1
    return at + 1 if at < len(content) and content[at] == _OPEN else -1


@inlined
def _row_end(content: Bytes, at: int, marks: Marks) -> int:
    """Return where what follows a row begins, if its last value ends at `at`; -1 if the row does not end there."""
    if marks.is_sql:
        ends = content[at] == _CLOSE and at + 1 < len(content) and content[at + 1] in (_COMMA, _END)
        return at + 2 if ends else -1
    if marks.has_cr:
        if content[at] != _CR:
            return -1
        at += 1
    return at + 1 if at < len(content) and content[at] == LF else -1


@compiled
def find_rows(text: Text, form: Form, found: Found) -> int:
    """Find the rows of this form at the start of a text, up to the end of a statement; return how many there are.

    There are at most as many as `found` has room for.
    """
    at = 0
    for row in range(len(found.behind)):
        begin = _begin(text.bytes, at) if form.marks.is_sql else at
        end = _values_end(text, begin, form, found.borders[row]) if begin >= 0 else -1
        at = _row_end(text.bytes, end, form.marks) if end >= 0 else -1
        # Where the next row begins is not known without reading this one.
        if at < 0:
            return row
        found.behind[row] = at
        if form.marks.is_sql and text.bytes[at - 1] == _END:
            return row + 1
    return len(found.behind)
