"""Loops over the bytes of CSV rows: they check the form byte by byte and find the fields.

What has another form they leave to the plain reader. Content has to be UTF-8 and to end with LF, so that no loop runs beyond it;
quote and delimiter are no LF. To be imported late, see `jit`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from storage_consumer.kernels.arrays import Bytes, Flags, Offsets
from storage_consumer.kernels.codes import FLOAT_FIELD
from storage_consumer.kernels.jit import compiled, inlined
from storage_consumer.kernels.numbers import digits_end, number_end, number_of
from storage_consumer.kernels.words import WORD, Text, all_bytes, begins, bits, first, matching

PLAIN_FIELD, BASE64_FIELD, FREE_FIELD = range(FLOAT_FIELD + 1, FLOAT_FIELD + 4)
"""Forms of a text in quotes: without a quote, such of base64, and with doubled quotes. Numbers stand without quotes."""
NO_DIGIT = 255
DIGITS = np.full(256, NO_DIGIT, np.uint8)
"""Byte → which digit of base64 it is."""
DIGITS[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = range(64)
_LF, _CR, _PAD, _ESCAPE, _NULL = b"\n\r=\\N"
_MOST_PADS = 2
_TRUE, _FALSE = (np.frombuffer(text, np.uint8) for text in (b"true", b"false"))


def _step(odd: int, quotes: int) -> int:
    """Where in a word of text the byte is that comes behind a closing quote, or where none is -2, and -1 for an odd number of quotes.

    `quotes`: which bytes are one. `odd`: whether an odd number of them stands right before the word.
    """
    for place in range(WORD):
        is_quote = quotes >> place & 1
        if odd and not is_quote:
            return place
        odd ^= is_quote
    return odd - 2


_STEPS = np.array([[_step(odd, quotes) for quotes in range(256)] for odd in range(2)], np.int8)


class Marks(NamedTuple):
    """What stands between fields and rows."""

    quote: int
    delimiter: int
    has_cr: bool
    """CR stands before the LF of each row."""
    paired: bool
    """Behind the commit ts a field says whether the row is one of an update."""


class Form(NamedTuple):
    """What rows look like."""

    marks: Marks
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


@inlined
def _next(text: Text, at: int, byte: int) -> int:
    """Where this byte comes next, from here on; where the text ends if it does not."""
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
def _free_end(text: Text, at: int, quote: int) -> int:
    """As `_text_end`, of a text in which two quotes are one that belongs to it."""
    wanted, odd = all_bytes(quote), 0
    while at < len(text.words):
        step: int = _STEPS[odd, bits(text.words[at], wanted)]
        if step >= 0:
            return at + step
        odd = step + 2
        at += WORD
    while at < len(text.bytes) and (text.bytes[at] == quote or not odd):
        odd ^= text.bytes[at] == quote
        at += 1
    return at if odd else -1


@inlined
def _text_end(text: Text, at: int, quote: int) -> int:
    """Where a text ends that begins behind a quote here, its closing quote included; -1 where it does not end."""
    at = _next(text, at, quote)
    return at + 1 if at < len(text.bytes) else -1


@inlined
def _base64_end(content: Bytes, at: int, quote: int) -> int:
    """Where base64 ends that begins behind a quote here, its closing quote included; -1 for what is none."""
    start = at
    while DIGITS[content[at]] != NO_DIGIT:
        at += 1
    digits_end = at
    while content[at] == _PAD:
        at += 1
    whole = (at - start) % 4 == 0 and at - digits_end <= _MOST_PADS
    return at + 1 if whole and content[at] == quote else -1


@inlined
def _field_end(text: Text, at: int, quote: int, form: int) -> int:
    """Where a field ends that begins here; -1 for none of this form and no NULL."""
    content = text.bytes
    if content[at] == _ESCAPE:
        return at + 2 if content[at + 1] == _NULL else -1
    if form <= FLOAT_FIELD:
        return number_end(content, at, form)
    if content[at] != quote:
        return -1
    if form == BASE64_FIELD:
        return _base64_end(content, at + 1, quote)
    return _free_end(text, at + 1, quote) if form == FREE_FIELD else _text_end(text, at + 1, quote)


@inlined
def _is_update(content: Bytes, at: int) -> int:
    """What the field says that begins here: 1 for true, 0 for false, -1 for anything else."""
    if begins(content, at, _TRUE):
        return 1
    return 0 if begins(content, at, _FALSE) else -1


@inlined
def _head_end(content: Bytes, at: int, form: Form, found: Found, row: int) -> int:
    """Read what stands before the values of a row that begins here; where the delimiter before them is, -1 for another form."""
    quote, delimiter, _, paired = form.marks
    if at + 2 >= len(content) or content[at] != quote or not begins(content, at + 2, form.names):
        return -1
    found.operations[row] = content[at + 1]
    at += 2 + len(form.names)
    end = digits_end(content, at)
    found.ts[row] = number_of(content, at, end)
    if found.ts[row] < 0 or content[end] != delimiter:
        return -1
    if paired:
        said = _is_update(content, end + 1)
        if said < 0:
            return -1
        found.updates[row] = said == 1
        end += 6 - said
    return end if content[end] == delimiter else -1


@inlined
def _values_end(text: Text, at: int, form: Form, borders: Offsets) -> int:
    """Find the values of a row behind the delimiter here; where its LF is, -1 for another form."""
    size, last = len(text.bytes), len(form.values) - 1
    borders[0] = at
    for value in range(last + 1):
        at = _field_end(text, at + 1, form.marks.quote, form.values[value])
        if at < 0 or at >= size:
            return -1
        if value == last and form.marks.has_cr:
            if text.bytes[at] != _CR:
                return -1
            at += 1
        if text.bytes[at] != (_LF if value == last else form.marks.delimiter):
            return -1
        borders[value + 1] = at
    return at


@compiled
def find_rows(text: Text, form: Form, found: Found) -> int:
    """Find the rows of this form that a text begins with; how many, no more than `found` has room for."""
    at = 0
    for row in range(len(found.ts)):
        at = _head_end(text.bytes, at, form, found, row)
        if at >= 0:
            at = _values_end(text, at, form, found.borders[row])
        if at < 0:
            return row
        at += 1
    return len(found.ts)
