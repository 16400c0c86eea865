"""Eight bytes in one step: compiled loops test and copy words of text instead of each byte. Import late, see `jit`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from storage_consumer.kernels.arrays import Bytes, Offsets
from storage_consumer.kernels.jit import compiled, inlined

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
"""First and second bytes of surrogates, which are not characters, and of code points beyond the last one."""


class Text(NamedTuple):
    """Bytes, and for each place the word that begins there; the last seven places have none."""

    bytes: Bytes
    words: Words


def text_of(content: bytes | bytearray | Bytes) -> Text:
    """Return content as loops take it; an array can be written to."""
    array = content if isinstance(content, np.ndarray) else np.frombuffer(content, np.uint8)
    # Overlapping words, one for each byte: stride 1. They are unaligned; `first` and `bits` read them as little-endian.
    count = max(0, len(array) - WORD + 1)
    return Text(array, np.ndarray((count,), np.uint64, array.data, strides=(1,)))


@inlined
def all_bytes(byte: int) -> np.uint64:
    """Return the word that holds this byte eight times."""
    return np.uint64(byte) * _ONES


@inlined
def matching(word: np.uint64, wanted: np.uint64) -> np.uint64:
    """Return a word that is not 0 if a byte of `word` is the byte of `wanted`; `first` finds it. Results for several bytes may be OR-ed."""
    # The subtraction borrows, so marks above the lowest may be false. The lowest is exact, and `first` reads no other.
    others = word ^ wanted
    return (others - _ONES) & ~others & _TOPS


@inlined
def first(marked: np.uint64) -> int:
    """Return the index of the first marked byte; at least one must be marked."""
    # All bits below the lowest mark; the multiplication sums up the lowest bit of each byte into the top byte.
    below = (marked & (~marked + _ONE)) - _ONE
    return np.int64((((below & _ONES) * _ONES) >> _TOP_BYTE) - _ONE)  # type: ignore[return-value] # what Python's own integer is compiled to


@inlined
def bits(word: np.uint64, wanted: np.uint64) -> int:
    """Return which bytes of the word are the byte of `wanted`, the first one in the lowest bit."""
    # Unlike `matching` this marks exactly: each byte is added within seven bits, so nothing carries. The multiplication
    # gathers the marks.
    others = word ^ wanted
    tops = ~(((others & _LOWS) + _LOWS) | others) & _TOPS
    return np.int64((tops >> _SEVEN) * _MARKS_TO_TOP >> _TOP_BYTE)  # type: ignore[return-value] # as above


@inlined
def copy(text: Text, start: int, end: int, out: Text, at: int) -> int:
    """Write bytes as they are; return where they end. One word of room must follow, whose bytes may change."""
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
    # Content ends with LF, which continues no character: each byte is read only after the ones before it continued.
    first, second = content[at], content[at + 1]
    if not (_TWO <= first < _BEHIND_FOUR and _goes_on(content, at + 1)):
        return -1
    if first < _THREE:
        return at + 2
    if not _goes_on(content, at + 2):
        return -1
    if first < _FOUR:
        is_other = (first == _THREE and second < _LEAST_OF_THREE) or (first == _SURROGATE and second >= _HALVES)
        return -1 if is_other else at + 3
    is_other = (first == _FOUR and second < _LEAST_OF_FOUR) or (first == _LAST and second >= _BEHIND_LAST)
    return at + 4 if _goes_on(content, at + 3) and not is_other else -1


@inlined
def utf8_between(text: Text, at: int, end: int) -> bool:
    """Return whether the bytes from `at` to `end`, where an ASCII character follows or the text ends, are UTF-8 throughout."""
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
