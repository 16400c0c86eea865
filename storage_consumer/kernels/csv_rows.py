"""Byte loops over CSV rows: check their form, find the fields, and write the lines.

Rows in any other form are left to the plain reader. Content must be UTF-8 and end with LF, so that no loop runs past
it; quote and delimiter are not LF. Import late, see `jit`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from storage_consumer.kernels.arrays import FLOAT_FIELD, Bytes, Flags, Offsets, Places
from storage_consumer.kernels.jit import compiled, inlined
from storage_consumer.kernels.line_bytes import ESCAPE, HEX, LF, TAB, Extra, Written, write_escaped
from storage_consumer.kernels.numbers import digits_end, number_end, number_of
from storage_consumer.kernels.words import WORD, Text, all_bytes, begins, bits, copy, first, matching

PLAIN_FIELD, BASE64_FIELD, FREE_FIELD = range(FLOAT_FIELD + 1, FLOAT_FIELD + 4)
"""Forms of a quoted text: without a quote inside, base64, and with doubled quotes. Numbers are not quoted."""
NO_DIGIT = 255
DIGITS = np.full(256, NO_DIGIT, np.uint8)
"""The value of each byte as a digit of base64."""
DIGITS[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = range(64)
_CR, _PAD, _NULL = b"\r=N"
_MOST_PADS = 2
_TRUE, _FALSE = (np.frombuffer(text, np.uint8) for text in (b"true", b"false"))


def _step(odd: int, quotes: int) -> int:
    """Return which byte of a word comes right after a closing quote; otherwise -1 if the word ends in an odd run of quotes, else -2.

    `quotes`: a bit for each byte that is a quote. `odd`: whether the word follows an odd run of quotes.
    """
    for place in range(WORD):
        is_quote = quotes >> place & 1
        # Each pair of quotes stands for a quote inside the text, so the last one of an odd run closes it.
        if odd and not is_quote:
            return place
        odd ^= is_quote
    # Below 0, so that the caller cannot take it for a place: -1 and -2 keep `odd` for the next word.
    return odd - 2


# All answers of `_step`, so that the loop over words needs one look-up for eight bytes.
_STEPS = np.array([[_step(odd, quotes) for quotes in range(256)] for odd in range(2)], np.int8)


class CsvMarks(NamedTuple):
    """The bytes between fields and rows."""

    quote: int
    delimiter: int
    has_cr: bool
    """CR precedes the LF of each row."""
    paired: bool
    """A field after the commit-ts says whether the row is half of an update."""


class CsvBytes(NamedTuple):
    """The fixed parts of rows of one table version."""

    marks: CsvMarks
    names: Bytes
    """The bytes between the operation's letter and the commit-ts."""
    values: Bytes
    """The form of each value."""


class CsvFound(NamedTuple):
    """Output arrays, one entry per row, for the largest possible number of rows."""

    borders: Offsets
    """Places of the delimiters before and between the row's values, and of its LF."""
    ts: Offsets
    """The row's commit-ts."""
    operations: Bytes
    """The operation's letter."""
    updates: Flags
    """Whether the row says that it is half of an update."""


@inlined
def _next(text: Text, at: int, byte: int) -> int:
    """Return the place of the next `byte` from `at` on, or the end of the text if there is none."""
    wanted = all_bytes(byte)
    while at < len(text.words):
        marked = matching(text.words[at], wanted)
        if marked:
            return at + first(marked)
        at += WORD
    while at < len(text.bytes) and text.bytes[at] != byte:
        at += 1
    return at


@inlined
def free_end(text: Text, at: int, quote: int) -> int:
    """Return where a text ends, as `_text_end` does; two quotes in a row are a quote inside it."""
    wanted, odd = all_bytes(quote), 0
    while at < len(text.words):
        step: int = _STEPS[odd, bits(text.words[at], wanted)]
        if step >= 0:
            return at + step
        # No closing quote yet. The step also carries over whether an odd run of quotes touches the next word.
        odd = step + 2
        at += WORD
    # The last seven places have no word. The same rule, byte by byte: stop at what follows an odd run.
    while at < len(text.bytes) and (text.bytes[at] == quote or not odd):
        odd ^= text.bytes[at] == quote
        at += 1
    return at if odd else -1


@inlined
def _text_end(text: Text, at: int, quote: int) -> int:
    """Return where the text that begins after the quote before `at` ends, closing quote included; -1 if it has no end."""
    # TiCDC formats these texts itself (dates, decimals). Rows whose quote may occur in one are not read in bulk.
    at = _next(text, at, quote)
    return at + 1 if at < len(text.bytes) else -1


@inlined
def base64_end(content: Bytes, at: int, quote: int) -> int:
    """Return where the base64 text that begins at `at` ends, closing quote included; -1 if it is not base64."""
    start = at
    # LF is neither a digit nor a pad, so both loops end before the content does.
    while DIGITS[content[at]] != NO_DIGIT:
        at += 1
    digits_end = at
    while content[at] == _PAD:
        at += 1
    # TiCDC pads, so only whole groups of four are base64 here, the empty text included.
    whole = (at - start) % 4 == 0 and at - digits_end <= _MOST_PADS
    return at + 1 if whole and content[at] == quote else -1


@inlined
def _field_end(text: Text, at: int, quote: int, form: int) -> int:
    """Return where the field at `at` ends; -1 if it is neither NULL nor of this form."""
    content = text.bytes
    if content[at] == ESCAPE:
        # Bulk reading needs ``\N`` as the marker. A text is in quotes, so a bare backslash begins nothing else.
        return at + 2 if content[at + 1] == _NULL else -1
    if form <= FLOAT_FIELD:
        return number_end(content, at, form)
    if content[at] != quote:
        return -1
    if form == BASE64_FIELD:
        return base64_end(content, at + 1, quote)
    return free_end(text, at + 1, quote) if form == FREE_FIELD else _text_end(text, at + 1, quote)


@inlined
def _is_update(content: Bytes, at: int) -> int:
    """Return 1 if the field at `at` is true, 0 if it is false, -1 for anything else."""
    if begins(content, at, _TRUE):
        return 1
    return 0 if begins(content, at, _FALSE) else -1


@inlined
def _head_end(content: Bytes, at: int, form: CsvBytes, found: CsvFound, row: int) -> int:
    """Read a row from its start to its values; return the place of the delimiter before them, or -1 for another form."""
    quote, delimiter, _, paired = form.marks
    if at + 2 >= len(content) or content[at] != quote or not begins(content, at + 2, form.names):
        return -1
    # Any byte is taken here: `read_rows` cuts before the first that is no operation.
    found.operations[row] = content[at + 1]
    at += 2 + len(form.names)
    # The names end with a delimiter, which is not LF: there is a byte at `at`.
    end = digits_end(content, at)
    found.ts[row] = number_of(content, at, end)
    if found.ts[row] < 0 or content[end] != delimiter:
        return -1
    if paired:
        said = _is_update(content, end + 1)
        if said < 0:
            return -1
        found.updates[row] = said == 1
        # Past the delimiter and "true" or "false".
        end += 6 - said
    return end if content[end] == delimiter else -1


@inlined
def _values_end(text: Text, at: int, form: CsvBytes, borders: Offsets) -> int:
    """Find the values of a row after the delimiter at `at`; return the place of its LF, or -1 for another form."""
    size, last = len(text.bytes), len(form.values) - 1
    borders[0] = at
    for value in range(last + 1):
        at = _field_end(text, at + 1, form.marks.quote, form.values[value])
        if at < 0 or at >= size:
            return -1
        # Only the whole terminator ends a row: a text may hold CR and LF.
        if value == last and form.marks.has_cr:
            if text.bytes[at] != _CR:
                return -1
            at += 1
        if text.bytes[at] != (LF if value == last else form.marks.delimiter):
            return -1
        borders[value + 1] = at
    return at


@compiled
def find_rows(text: Text, form: CsvBytes, found: CsvFound) -> int:
    """Find the rows of this form at the start of a text; return how many there are, at most as many as `found` has room for."""
    at = 0
    for row in range(len(found.ts)):
        at = _head_end(text.bytes, at, form, found, row)
        if at >= 0:
            at = _values_end(text, at, form, found.borders[row])
        # Where the next row begins is not known without reading this one, so nothing after it is looked at.
        if at < 0:
            return row
        at += 1
    return len(found.ts)


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
def _write_value(text: Text, form: CsvBytes, borders: Offsets, field: int, out: Text, at: int) -> int:
    """Write a value of a row as a line has it; return where it ends. `borders`: those of the row, see `CsvFound`."""
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
    text: Text, form: CsvBytes, borders: Offsets, rows: Places, fields: Offsets, extra: Extra, lines: Written
) -> int:
    """Write the lines of these rows, each followed by LF; return their size in bytes.

    `borders`: see `CsvFound`. `fields`: for each column of a line, the index of its value in the row, or -1 minus its
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
