"""Byte loops over the rows of exports, in SQL and in CSV: check their form, find the values, and write the lines.

Rows in any other form than the usual one are left to the plain reader. Content must end with LF, so that no loop runs past
it; quotes and separators are ASCII and not LF. Import late, see `jit`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from storage_consumer.kernels.arrays import FLOAT_FIELD, YEAR_FIELD, Bytes, Flags, Offsets, Places
from storage_consumer.kernels.csv_rows import base64_end, free_end, write_base64, write_doubled
from storage_consumer.kernels.jit import compiled, inlined
from storage_consumer.kernels.line_bytes import ESCAPE, HEX, LF, TAB, Extra, Written, write_escaped
from storage_consumer.kernels.numbers import MINUS, ZERO, number_end, single_end
from storage_consumer.kernels.words import WORD, Text, all_bytes, begins, copy, first, matching, utf8_between

SINGLE_FIELD, TEXT_FIELD, BYTES_FIELD, HEX_FIELD, BASE64_FIELD = range(FLOAT_FIELD + 1, FLOAT_FIELD + 6)
"""Forms of values besides those of numbers: a FLOAT certain to be within range, any text, and bytes in three spellings."""
_OPEN, _CLOSE, _COMMA, _END, _X, _CR, _SPACE, _NINE = b"(),;x\r 9"
_CONVERT, _USING = (np.frombuffer(text, np.uint8) for text in (b"CONVERT(", b" USING UTF8MB4)"))
_IS_HEX = np.zeros(256, np.bool_)
_IS_HEX[list(b"0123456789abcdefABCDEF")] = True
_IS_ESCAPED = np.zeros((2, 256), np.bool_)
_IS_ESCAPED[0, list(b"0nr\\")] = True
_IS_ESCAPED[1, list(b"0nrZ\\'\"")] = True
"""What Dumpling and mydumper write behind a backslash, in CSV besides the mark, and in SQL: all else shows that backslashes are content."""
_CAPITAL_N, _PERCENT, _UNDERLINE, _SMALL_A, _SMALL_F = b"N%_af"
_TO_CAPITAL = 32
_SQL_MEANS = np.arange(256, dtype=np.uint8)
"""The byte that each letter behind a backslash stands for, in SQL; in CSV there are fewer."""
_SQL_MEANS[list(b"0bnrtZ")] = list(b"\0\b\n\r\t\x1a")
_CSV_MEANS = np.arange(256, dtype=np.uint8)
_CSV_MEANS[list(b"0nr")] = list(b"\0\n\r")
NO_QUOTE = 256
"""Stands for the quote where there is none: no byte is equal to it."""


class ExportMarks(NamedTuple):
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


class ExportBytes(NamedTuple):
    """The fixed parts of rows of one table."""

    marks: ExportMarks
    null: Bytes
    """What stands for NULL; it begins neither as a number nor with a quote."""
    values: Bytes
    """The form of each value."""
    nullable: Flags
    """Whether each value may be NULL; without quotes what looks like it is else a text."""


class ExportFound(NamedTuple):
    """Output arrays, one entry per row, for the largest possible number of rows."""

    borders: Offsets
    """Where each value begins and ends (exclusive), quotes included: two entries for each."""
    behind: Offsets
    """Where what follows the row begins."""


@inlined
def _is_escaped(byte: int, mark: int, marks: ExportMarks) -> bool:
    """Return whether a byte may stand behind a backslash; `mark`: the byte of a CSV file that needs one."""
    return bool(_IS_ESCAPED[int(marks.is_sql), byte]) or byte == mark


@inlined
def _escaped_end(text: Text, at: int, marks: ExportMarks) -> int:
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
def _hex_end(content: Bytes, at: int, quote: int) -> int:
    """Return where the pairs of hexadecimal digits at `at` end, closing quote included; -1 if there are no such."""
    start = at
    # LF is no digit, so this ends before the content does.
    while _IS_HEX[content[at]]:
        at += 1
    return at + 1 if content[at] == quote and (at - start) % 2 == 0 else -1


@inlined
def _bare_end(text: Text, at: int, marks: ExportMarks) -> int:
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
def is_null(content: Bytes, start: int, end: int, form: ExportBytes, value: int) -> bool:
    """Return whether a value that nothing is around is NULL."""
    return bool(form.nullable[value]) and end - start == len(form.null) and begins(content, start, form.null)


@inlined
def _unquoted_end(text: Text, at: int, value: int, form: ExportBytes) -> int:
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
def _quoted_end(text: Text, at: int, code: int, marks: ExportMarks) -> int:
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
def _value_end(text: Text, at: int, value: int, form: ExportBytes) -> int:
    """Return where the value at `at` ends; -1 if it is neither NULL nor of the form of the value at this index."""
    content, marks, code = text.bytes, form.marks, form.values[value]
    is_quoted = content[at] == marks.quote
    if code <= SINGLE_FIELD and (is_quoted or content[at] == MINUS or ZERO <= content[at] <= _NINE):
        begin = at + is_quoted
        end = single_end(content, begin) if code == SINGLE_FIELD else number_end(content, begin, code)
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
def _text_begin(content: Bytes, at: int, code: int, marks: ExportMarks) -> int:
    """Return where the quote of a text begins that mydumper has converted to its charset, or `at` if it has not."""
    begin = at + len(_CONVERT)
    # LF ends the content, so there is a byte behind what `begins` has found.
    is_converted = code == TEXT_FIELD and marks.is_sql and begins(content, at, _CONVERT)
    return begin if is_converted and content[begin] == marks.quote else at


@inlined
def _values_end(text: Text, at: int, form: ExportBytes, borders: Offsets) -> int:
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
def _row_end(content: Bytes, at: int, marks: ExportMarks) -> int:
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
def find_rows(text: Text, form: ExportBytes, found: ExportFound) -> int:
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


@inlined
def _meaning(byte: int, marks: ExportMarks) -> int:
    """Return the byte that one behind a backslash stands for."""
    meaning: int = _SQL_MEANS[byte] if marks.is_sql else _CSV_MEANS[byte]
    return meaning


@inlined
def _write_unescaped(text: Text, start: int, end: int, marks: ExportMarks, out: Text, at: int) -> int:
    """Write a text with escapes as a line has it; return where it ends. One word of room must follow."""
    escapes, tabs, ends = all_bytes(ESCAPE), all_bytes(TAB), all_bytes(LF)
    while start < end:
        # Eight bytes at once, up to the next one that needs a look.
        if start < len(text.words):
            word = text.words[start]
            marked = matching(word, escapes) | matching(word, tabs) | matching(word, ends)
            count = min(first(marked) if marked else WORD, end - start)
            # Copy the whole word but advance only past its plain bytes: the rest is overwritten by what comes next.
            out.words[at] = word
            start += count
            at += count
            if not marked or start == end:
                continue
        byte = text.bytes[start]
        if byte == ESCAPE:
            start += 1
            byte = text.bytes[start]
            # These two keep their backslash: they are wildcards where texts are compared.
            if marks.is_sql and byte in (_PERCENT, _UNDERLINE):
                at = write_escaped(ESCAPE, out.bytes, at)
            byte = _meaning(byte, marks)
        at = write_escaped(byte, out.bytes, at)
        start += 1
    return at


@inlined
def _write_bytes(content: Bytes, start: int, end: int, marks: ExportMarks, out: Bytes, at: int) -> int:
    """Write bytes that stand as they are, with escapes or doubled quotes, as hexadecimal digits; return where they end."""
    while start < end:
        byte = content[start]
        if marks.escapes and byte == ESCAPE:
            start += 1
            byte = content[start]
            if marks.is_sql and byte in (_PERCENT, _UNDERLINE):
                out[at], out[at + 1] = HEX[ESCAPE >> 4], HEX[ESCAPE & 15]
                at += 2
            byte = _meaning(byte, marks)
        elif byte == marks.quote:
            # Only a doubled quote is inside.
            start += 1
        out[at], out[at + 1] = HEX[byte >> 4], HEX[byte & 15]
        at += 2
        start += 1
    return at


@inlined
def _write_hex(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write hexadecimal digits in upper case; return where they end."""
    for place in range(start, end):
        byte = content[place]
        out[at] = byte - _TO_CAPITAL if _SMALL_A <= byte <= _SMALL_F else byte
        at += 1
    return at


@inlined
def _write_number(text: Text, start: int, end: int, code: int, out: Text, at: int) -> int:
    """Write a number; return where it ends."""
    # Year zero: as the string ``0`` it would become 2000 (see `values.year`).
    if code == YEAR_FIELD and end - start == 1 and text.bytes[start] == ZERO:
        for _ in range(3):
            out.bytes[at] = ZERO
            at += 1
    return copy(text, start, end, out, at)


@inlined
def _write_quoted(text: Text, marks: ExportMarks, start: int, end: int, code: int, out: Text, at: int) -> int:  # noqa: PLR0913, PLR0917 - as below
    """Write what is between quotes, or has none around it, as a line has it; return where it ends."""
    if code == TEXT_FIELD and marks.escapes:
        return _write_unescaped(text, start, end, marks, out, at)
    if code == TEXT_FIELD:
        return write_doubled(text, start, end, marks.quote, out, at)
    if code == BYTES_FIELD:
        return _write_bytes(text.bytes, start, end, marks, out.bytes, at)
    if code == HEX_FIELD:
        return _write_hex(text.bytes, start, end, out.bytes, at)
    if code == BASE64_FIELD:
        return write_base64(text.bytes, start, end, out.bytes, at)
    return _write_number(text, start, end, code, out, at)


@inlined
def _write_value(text: Text, form: ExportBytes, start: int, end: int, value: int, out: Text, at: int) -> int:  # noqa: PLR0913, PLR0917 - as below
    """Write the value at this index of a row as a line has it; return where it ends."""
    content, marks, code = text.bytes, form.marks, form.values[value]
    # NULL may be written as nothing.
    if start < end and content[start] == marks.quote:
        return _write_quoted(text, marks, start + 1, end - 1, code, out, at)
    if code < TEXT_FIELD and start < end and (content[start] == MINUS or ZERO <= content[start] <= _NINE):
        return _write_number(text, start, end, code, out, at)
    if marks.quote == NO_QUOTE and not is_null(content, start, end, form, value):
        return _write_quoted(text, marks, start, end, code, out, at)
    # Besides NULL, only a literal ``x'…'`` has no quote at its beginning and one at its end.
    if code == BYTES_FIELD and start < end and marks.is_sql and content[end - 1] == marks.quote:
        return _write_hex(content, start + 2, end - 1, out.bytes, at)
    out.bytes[at], out.bytes[at + 1] = ESCAPE, _CAPITAL_N
    return at + 2


@compiled
def write_lines(  # noqa: PLR0913, PLR0917 - Numba takes no records that hold all
    text: Text, form: ExportBytes, borders: Offsets, rows: Places, fields: Offsets, extra: Extra, lines: Written
) -> int:
    """Write the lines of these rows, each followed by LF; return their size in bytes.

    `borders`: see `ExportFound`. `fields`: for each column of a line, the index of its value in the row, or -1 minus its
    index in `extra`.
    """
    out, at = lines.text, 0
    for number in range(len(rows)):
        row = borders[rows[number]]
        for field in fields:
            if field < 0:
                ends = extra.borders[-1 - field]
                at = copy(extra.text, ends[number], ends[number + 1], out, at)
            else:
                start, end = row[2 * field], row[2 * field + 1]
                at = _write_value(text, form, start, end, field, out, at)
            out.bytes[at] = TAB
            at += 1
        # The TAB after the last field becomes the end of the line.
        out.bytes[at - 1] = LF
        lines.ends[number] = at - 1
    return at
