"""Loops that write the lines of CSV rows that `csv_rows` has found. Import late, see `jit`."""

from __future__ import annotations

from storage_consumer.kernels.arrays import Bytes, Offsets, Places
from storage_consumer.kernels.csv_rows import BASE64_FIELD, DIGITS, Form
from storage_consumer.kernels.jit import compiled, inlined
from storage_consumer.kernels.line_bytes import ESCAPE, HEX, LF, TAB, Extra, Written, write_escaped
from storage_consumer.kernels.words import WORD, Text, all_bytes, copy, first, matching

(_PAD,) = b"="


@inlined
def write_doubled(text: Text, start: int, end: int, quote: int, out: Text, at: int) -> int:
    """Write a text as a line has it, escaped and with doubled quotes undoubled; return where it ends."""
    quotes, escapes, tabs, ends = all_bytes(quote), all_bytes(ESCAPE), all_bytes(TAB), all_bytes(LF)
    while start < end:
        # Eight bytes at once, up to the next one that needs a look.
        if start < len(text.words):
            word = text.words[start]
            marked = matching(word, quotes) | matching(word, escapes) | matching(word, tabs) | matching(word, ends)
            count = min(first(marked) if marked else WORD, end - start)
            # Copy the whole word but advance only past its plain bytes: the rest is overwritten by what comes next.
            out.words[at] = word
            start += count
            at += count
            if not marked or start == end:
                continue
        byte = text.bytes[start]
        # Skip the first of two quotes, and write the second one.
        if byte == quote:
            start += 1
        # A backslash is an ordinary byte of CSV with a quote, but begins an escape in a line.
        at = write_escaped(byte, out.bytes, at)
        start += 1
    return at


@inlined
def write_base64(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write base64, in whole groups of four digits, as hexadecimal digits; return where they end."""
    for place in range(start, end, 4):
        held = 0
        for step in range(4):
            # A pad character counts as any six bits: what it adds is cut off at the end.
            held = held << 6 | (DIGITS[content[place + step]] & 63)
        # Four digits of six bits are three bytes, which are six hexadecimal digits.
        for step in range(6):
            out[at + step] = HEX[held >> 20 - 4 * step & 15]
        at += 6
    # Each pad stands for a byte that is not there: two hexadecimal digits less.
    pads = (content[end - 1] == _PAD) + (content[end - 2] == _PAD) if end > start else 0
    return at - 2 * pads


@inlined
def _write_value(text: Text, form: Form, borders: Offsets, field: int, out: Text, at: int) -> int:
    """Write a value of a row as a line has it; return where it ends. `borders`: those of the row, see `Found`."""
    quote, is_last = form.marks.quote, field == len(form.values) - 1
    # A border is the delimiter before a value; the last one is the LF, with any CR before it.
    start, end = borders[field] + 1, borders[field + 1] - (form.marks.has_cr and is_last)
    if text.bytes[start] != quote:  # a number or NULL
        return copy(text, start, end, out, at)
    if form.values[field] == BASE64_FIELD:
        return write_base64(text.bytes, start + 1, end - 1, out.bytes, at)
    return write_doubled(text, start + 1, end - 1, quote, out, at)


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
                at = _write_value(text, form, row, field, out, at)
            out.bytes[at] = TAB
            at += 1
        # The TAB after the last field becomes the end of the line.
        out.bytes[at - 1] = LF
        lines.ends[number] = at - 1
    return at
