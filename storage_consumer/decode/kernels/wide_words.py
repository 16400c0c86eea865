"""What all loops share: eight-byte words, UTF-8, numbers, parts of lines. Import late: `jit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from storage_consumer.decode.kernels.arrays import (
    FLOAT_FIELD,
    UNSIGNED_FIELD,
    YEAR_FIELD,
    Bytes,
    Offsets,
)
from storage_consumer.decode.kernels.jit import compiled, inlined

Words = NDArray[np.uint64]
WORD = 8
"""Bytes in a word."""
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_LOWS, _MARKS_TO_TOP = ~_TOPS, np.uint64(0x0102040810204080)
_NONE, _ONE, _SEVEN, _TOP_BYTE = np.uint64(0), np.uint64(1), np.uint64(7), np.uint64(56)
_ASCII_END, _KIND, _INSIDE = 0x80, 0xC0, 0x80
_TWO, _THREE, _FOUR, _BEHIND_FOUR = 0xC2, 0xE0, 0xF0, 0xF5
"""First bytes of characters of two, three and four bytes, and the first byte value after these."""
_LEAST_OF_THREE, _LEAST_OF_FOUR = 0xA0, 0x90
"""Least second bytes after the lowest first bytes: lower ones would be overlong encodings."""
_SURROGATE, _HALVES, _LAST, _BEHIND_LAST = 0xED, 0xA0, 0xF4, 0x90
"""First and second bytes of surrogates, no characters, and of code points past the last."""


class Text(NamedTuple):
    """Bytes, and for each place the word that begins there; the last seven places have none."""

    bytes: Bytes
    words: Words


def text_of(content: bytes | bytearray | Bytes) -> Text:
    """Return content as loops take it; an array can be written to."""
    array = content if isinstance(content, np.ndarray) else np.frombuffer(content, np.uint8)
    # Overlapping words, one for each byte: stride 1. They are unaligned; `first` and `bits` read
    # them as little-endian.
    count = max(0, len(array) - WORD + 1)
    return Text(array, np.ndarray((count,), np.uint64, array.data, strides=(1,)))


@inlined
def all_bytes(byte: int) -> np.uint64:
    """Return the word that holds this byte eight times."""
    return np.uint64(byte) * _ONES


@inlined
def matching(word: np.uint64, wanted: np.uint64) -> np.uint64:
    """Return non-zero if `word` has a byte of `wanted`; `first` finds it; results may be OR-ed."""
    # The subtraction borrows, so marks above the lowest may be false. The lowest is exact, and
    # `first` reads no other.
    others = word ^ wanted
    return (others - _ONES) & ~others & _TOPS


@inlined
def first(marked: np.uint64) -> int:
    """Return the index of the first marked byte; at least one must be marked."""
    # All bits below the lowest mark; the multiplication sums bytes' lowest bits on top.
    below = (marked & (~marked + _ONE)) - _ONE
    return np.int64((((below & _ONES) * _ONES) >> _TOP_BYTE) - _ONE)  # type: ignore[return-value] # what Python's own integer is compiled to


@inlined
def bits(word: np.uint64, wanted: np.uint64) -> int:
    """Return which bytes of the word are the byte of `wanted`, the first one in the lowest bit."""
    # Unlike `matching` this marks exactly: each byte is added within seven bits, so nothing
    # carries. The multiplication gathers the marks.
    others = word ^ wanted
    tops = ~(((others & _LOWS) + _LOWS) | others) & _TOPS
    return np.int64((tops >> _SEVEN) * _MARKS_TO_TOP >> _TOP_BYTE)  # type: ignore[return-value] # as above


@inlined
def copy(text: Text, start: int, end: int, out: Text, at: int) -> int:
    """Write bytes; return where they end. A word of room must follow, to be overwritten."""
    size = end - start
    place = 0
    # Whole words may run past the end of the piece, which is why the output needs a spare word.
    # Near the end of the content not every place has a word: there bytes go one by one.
    if end < len(text.words):
        while place < size:
            out.words[at + place] = text.words[start + place]
            place += WORD
    while place < size:
        out.bytes[at + place] = text.bytes[start + place]
        place += 1
    return at + size


def gather(content: Bytes, starts: Offsets, ends: Offsets) -> Bytes:
    """Return the lines between these places side by side, each with the LF at its end."""
    sizes = ends + 1 - starts
    # `copy` writes whole words, so it may touch the one after the last piece.
    out = np.empty(int(sizes.sum()) + WORD, np.uint8)
    _gather(text_of(content), starts, sizes, text_of(out))
    return out[:-WORD]


@compiled
def _gather(source: Text, starts: Offsets, sizes: Offsets, out: Text) -> None:
    """Write pieces one after the other."""
    at = 0
    for number in range(len(starts)):
        at = copy(source, starts[number], starts[number] + sizes[number], out, at)


@inlined
def begins(content: Bytes, at: int, text: Bytes) -> bool:
    """Return whether `text` is at `at`."""
    # Compiled code checks no index, so the length is checked here.
    if at + len(text) > len(content):
        return False
    for place in range(len(text)):  # noqa: SIM110 - a loop is what compiles well
        if content[at + place] != text[place]:
            return False
    return True


@inlined
def _goes_on(content: Bytes, at: int) -> bool:
    """Return whether the byte at `at` continues a character."""
    return bool(content[at] & _KIND == _INSIDE)


@inlined
def _character_end(content: Bytes, at: int) -> int:
    """Return where the non-ASCII character at `at` ends; -1 if it is not one."""
    # Content ends with LF, which continues no character: each byte is read only after the ones
    # before it continued.
    first, second = content[at], content[at + 1]
    if not (_TWO <= first < _BEHIND_FOUR and _goes_on(content, at + 1)):
        return -1
    if first < _THREE:
        return at + 2
    if not _goes_on(content, at + 2):
        return -1
    if first < _FOUR:
        is_other = (first == _THREE and second < _LEAST_OF_THREE) or (
            first == _SURROGATE and second >= _HALVES
        )
        return -1 if is_other else at + 3
    is_other = (first == _FOUR and second < _LEAST_OF_FOUR) or (
        first == _LAST and second >= _BEHIND_LAST
    )
    return at + 4 if _goes_on(content, at + 3) and not is_other else -1


@inlined
def utf8_between(text: Text, at: int, end: int) -> bool:
    """Return whether `at` to `end` is UTF-8; an ASCII character or nothing must follow."""
    while at < end:
        # No byte of the word has its top bit set: eight ASCII characters.
        if at + WORD <= end and text.words[at] & _TOPS == _NONE:
            at += WORD
            continue
        at = at + 1 if text.bytes[at] < _ASCII_END else _character_end(text.bytes, at)
        if at < 0:
            return False
    return True


@compiled
def is_utf8(text: Text) -> bool:
    """Return whether `text`, which ends with LF, is UTF-8 throughout."""
    return utf8_between(text, 0, len(text.bytes))


MINUS, POINT, ZERO, _NINE, _PLUS, _EXPONENT, _SMALL_EXPONENT = b"-.09+Ee"
_MOST_DIGITS, _YEAR_DIGITS = 20, 4
"""Most digits of a 64-bit integer, without its sign, and of a year."""
_SURE_DIGITS, _SURE_EXPONENT = 38, 37
"""Numbers of at most these digits before the point, or one and this exponent, fit a FLOAT."""
_TIMES_TEN = np.uint64(10)
_LARGEST = np.uint64(2**63 - 1)


@inlined
def digits_end(content: Bytes, at: int) -> int:
    """Return where the digits at `at` end."""
    # The content ends with LF, which is no digit: no check of the length is needed.
    while ZERO <= content[at] <= _NINE:
        at += 1
    return at


@inlined
def _fraction_end(content: Bytes, at: int) -> int:
    """Return the end of an optional fraction and exponent; -1 if one has no digits."""
    if content[at] == POINT:
        end = digits_end(content, at + 1)
        if end == at + 1:
            return -1
        at = end
    if content[at] == _EXPONENT or content[at] == _SMALL_EXPONENT:
        # The byte after the letter exists: at the latest it is the final LF.
        at += 2 if content[at + 1] == _PLUS or content[at + 1] == MINUS else 1
        end = digits_end(content, at)
        return -1 if end == at else end
    return at


@inlined
def number_end(content: Bytes, at: int, form: int) -> int:
    """Return where the number at `at` ends; -1 if it is not of this form."""
    if content[at] == MINUS and form not in (UNSIGNED_FIELD, YEAR_FIELD):
        at += 1
    end = digits_end(content, at)
    if end == at:
        return -1
    if form == FLOAT_FIELD:
        return _fraction_end(content, end)
    return -1 if end - at > (_YEAR_DIGITS if form == YEAR_FIELD else _MOST_DIGITS) else end


@inlined
def single_end(content: Bytes, at: int) -> int:
    """Return the end of the FLOAT at `at`; -1 if there is none or it may be too large."""
    start = at + (content[at] == MINUS)
    whole = digits_end(content, start)
    end = number_end(content, at, FLOAT_FIELD)
    if end < 0 or whole - start > _SURE_DIGITS:
        return -1
    fraction = digits_end(content, whole + 1) if content[whole] == POINT else whole
    if fraction == end:
        return end
    # The rest is an exponent, of two digits if positive after one digit before the point.
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
def number_of(content: Bytes, start: int, end: int) -> int:
    """Return the digits' number; -1 if not digits, with a leading zero or over 63 bits."""
    if end == start or end - start >= _MOST_DIGITS or (content[start] == ZERO and end - start > 1):
        return -1
    # Up to 19 digits never overflow 64 unsigned bits: one comparison at the end is enough.
    number = np.uint64(0)
    for place in range(start, end):
        digit = content[place] - ZERO
        # Compiled code subtracts in 64 bits, so a byte below the digits gives a negative number.
        if not 0 <= digit <= 9:  # noqa: PLR2004 - the highest digit
            return -1
        number = number * _TIMES_TEN + np.uint64(digit)
    return -1 if number > _LARGEST else np.int64(number)  # type: ignore[return-value] # what Python's own integer is compiled to


@compiled
def read_integers(content: Bytes, starts: Offsets, ends: Offsets, numbers: Offsets) -> bool:
    """Read numbers between places (end exclusive), maybe with a minus; return whether all are.

    Not readable are empty numbers, unusual spellings (``007``, ``-0``), and numbers of more than 63
    bits.
    """
    for row in range(len(starts)):
        start = starts[row]
        is_negative = start < ends[row] and content[start] == MINUS
        number = number_of(content, start + is_negative, ends[row])
        if number < 0 or (is_negative and number == 0):
            return False
        numbers[row] = -number if is_negative else number
    return True


TAB, LF, ESCAPE, _SMALL_T, _SMALL_N = b"\t\n\\tn"
HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


class Extra(NamedTuple):
    """Fields that are not copied from the content, by column and then by row."""

    text: Text
    borders: Offsets
    """For each column, where the field of each row begins and where the last one ends."""


class LineRoom(NamedTuple):
    """Output buffers for lines: their bytes and one spare word, and the place of each line's LF."""

    text: Text
    ends: Offsets


def room_for(size: int, rows: int, columns: int) -> LineRoom:
    """Return buffers for `rows` lines of `columns` fields, of at most `size` bytes."""
    # One byte for the separator after each field; the spare word is what `copy` may overwrite.
    return LineRoom(
        text_of(np.empty(size + rows * columns + WORD, np.uint8)), np.empty(rows, np.int64)
    )


def line_fields(
    written: Sequence[int], converted: Mapping[int, list[bytes]], place_of: Sequence[int], rows: int
) -> tuple[Offsets, Extra]:
    """Return per column its index in a row, or -1 minus that in other fields; and these fields.

    `converted`: the other fields, by index in the layout. `place_of`: the index in a row of each
    column of the layout.
    """
    extra = [converted[place] for place in written if place in converted]
    # Below 0, so that one array says for each field both where it comes from and which it is there.
    others = iter(range(-1, -1 - len(extra), -1))
    fields = [next(others) if place in converted else place_of[place] for place in written]
    sizes = np.array([[len(field) for field in column] for column in extra], np.int64).reshape(
        len(extra), rows
    )
    # The fields lie in one text, column after column: the sum runs through all columns.
    ends = np.cumsum(sizes, dtype=np.int64).reshape(sizes.shape)
    borders = np.concatenate([ends[:, :1] - sizes[:, :1], ends], axis=1) if rows else ends
    # Never empty, even without fields: the compiler then sees the same types and needs no second
    # version of the loop.
    content = b"".join(chain(*extra, (bytes(2 * WORD),)))
    return np.array(fields, np.int64), Extra(text_of(content), borders)


@inlined
def write_escaped(byte: int, out: Bytes, at: int) -> int:
    """Write a byte of a text as a line has it; return where it ends."""
    # All that `LOAD DATA` reads specially under our clauses (see `wire_format`).
    if byte in (ESCAPE, TAB, LF):
        out[at] = ESCAPE
        at += 1
        byte = _SMALL_T if byte == TAB else _SMALL_N if byte == LF else byte
    out[at] = byte
    return at + 1
