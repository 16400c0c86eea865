"""Loops that write the lines of CSV rows that `csv_machine` has found. To be imported late, see `compiled`."""

from __future__ import annotations

from storage_consumer.decoding.byte_words import WORD, Text, Words, all_bytes, copy, first, matching
from storage_consumer.decoding.columns import Bytes, Offsets, Places
from storage_consumer.decoding.compiled import compiled, inlined
from storage_consumer.decoding.csv_machine import BASE64_FIELD, DIGITS, Form
from storage_consumer.decoding.line_bytes import ESCAPE, HEX, LF, TAB, Extra, Written, write_escaped

(_PAD,) = b"="


@inlined
def _write_text(  # noqa: PLR0913, PLR0917 - Numba counts references of what a record holds
    content: Bytes, words: Words, start: int, end: int, quote: int, out: Bytes, out_words: Words, at: int
) -> int:
    """Write a text as a line has it, escaped, each doubled quote once; where it ends."""
    quotes, escapes, tabs, ends = all_bytes(quote), all_bytes(ESCAPE), all_bytes(TAB), all_bytes(LF)
    while start < end:
        if start < len(words):
            word = words[start]
            marked = matching(word, quotes) | matching(word, escapes) | matching(word, tabs) | matching(word, ends)
            count = min(first(marked) if marked else WORD, end - start)
            out_words[at] = word
            start += count
            at += count
            if not marked or start == end:
                continue
        byte = content[start]
        if byte == quote:
            start += 1
        at = write_escaped(byte, out, at)
        start += 1
    return at


@inlined
def _write_base64(content: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write base64, whole groups of four digits, as hexadecimal digits; where they end."""
    for place in range(start, end, 4):
        held = 0
        for step in range(4):
            held = held << 6 | (DIGITS[content[place + step]] & 63)
        for step in range(6):
            out[at + step] = HEX[held >> 20 - 4 * step & 15]
        at += 6
    pads = (content[end - 1] == _PAD) + (content[end - 2] == _PAD) if end > start else 0
    return at - 2 * pads


@inlined
def _write_field(  # noqa: PLR0913, PLR0917 - as above
    content: Bytes, words: Words, start: int, end: int, quote: int, form: int, out: Bytes, out_words: Words, at: int
) -> int:
    """Write a field as a line has it; where it ends."""
    if content[start] != quote:  # a number or NULL
        return copy(content, words, start, end, out, out_words, at)
    if form == BASE64_FIELD:
        return _write_base64(content, start + 1, end - 1, out, at)
    return _write_text(content, words, start + 1, end - 1, quote, out, out_words, at)


@compiled
def write_lines(  # noqa: PLR0913, PLR0917 - as above
    text: Text, form: Form, borders: Offsets, rows: Places, fields: Offsets, extra: Extra, lines: Written
) -> int:
    """Write the lines of these rows, each with LF behind it; how many bytes they are.

    `borders`: see `Found`. `fields`: for each column of a line which value of the row it is, or -1 minus which column of `extra`.
    """
    content, words, line, line_words, quote = (
        text.bytes,
        text.words,
        lines.text.bytes,
        lines.text.words,
        form.marks.quote,
    )
    others, other_words, other_borders = extra.text.bytes, extra.text.words, extra.borders
    forms, line_ends, at = form.values, lines.ends, 0
    last = len(forms) - 1 if form.marks.has_cr else -1
    for number in range(len(rows)):
        row = rows[number]
        for field in fields:
            if field < 0:
                start, end = other_borders[-1 - field, number], other_borders[-1 - field, number + 1]
                at = copy(others, other_words, start, end, line, line_words, at)
            else:
                start, end = borders[row, field] + 1, borders[row, field + 1] - (field == last)
                at = _write_field(content, words, start, end, quote, forms[field], line, line_words, at)
            line[at] = TAB
            at += 1
        line[at - 1] = LF
        line_ends[number] = at - 1
    return at
