"""Loops that write the lines of rows that `dump_rows` has found. Import late, see `jit`."""

from __future__ import annotations

import numpy as np

from storage_consumer.kernels.arrays import YEAR_FIELD, Bytes, Offsets, Places
from storage_consumer.kernels.csv_lines import write_base64, write_doubled
from storage_consumer.kernels.dump_rows import (
    BASE64_FIELD,
    BYTES_FIELD,
    HEX_FIELD,
    NO_QUOTE,
    TEXT_FIELD,
    Form,
    Marks,
    is_null,
)
from storage_consumer.kernels.jit import compiled, inlined
from storage_consumer.kernels.line_bytes import ESCAPE, HEX, LF, TAB, Extra, Written, write_escaped
from storage_consumer.kernels.numbers import MINUS, ZERO
from storage_consumer.kernels.words import WORD, Text, all_bytes, copy, first, matching

_CAPITAL_N, _PERCENT, _UNDERLINE, _NINE, _SMALL_A, _SMALL_F = b"N%_9af"
_TO_CAPITAL = 32
_SQL_MEANS = np.arange(256, dtype=np.uint8)
"""The byte that each letter behind a backslash stands for, in SQL; in CSV there are fewer."""
_SQL_MEANS[list(b"0bnrtZ")] = list(b"\0\b\n\r\t\x1a")
_CSV_MEANS = np.arange(256, dtype=np.uint8)
_CSV_MEANS[list(b"0nr")] = list(b"\0\n\r")


@inlined
def _meaning(byte: int, marks: Marks) -> int:
    """Return the byte that one behind a backslash stands for."""
    meaning: int = _SQL_MEANS[byte] if marks.is_sql else _CSV_MEANS[byte]
    return meaning


@inlined
def _write_unescaped(text: Text, start: int, end: int, marks: Marks, out: Text, at: int) -> int:
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
def _write_bytes(content: Bytes, start: int, end: int, marks: Marks, out: Bytes, at: int) -> int:
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
def _write_quoted(text: Text, marks: Marks, start: int, end: int, code: int, out: Text, at: int) -> int:  # noqa: PLR0913, PLR0917 - as below
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
def _write_value(text: Text, form: Form, start: int, end: int, value: int, out: Text, at: int) -> int:  # noqa: PLR0913, PLR0917 - as below
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
    text: Text, form: Form, borders: Offsets, rows: Places, fields: Offsets, extra: Extra, lines: Written
) -> int:
    """Write the lines of these rows, each followed by LF; return their size in bytes.

    `borders`: see `Found`. `fields`: for each column of a line, the index of its value in the row, or -1 minus its
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
