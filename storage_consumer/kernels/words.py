"""Eight bytes at once: compiled loops look at a word of text where they would look at each byte. To be imported late, see `jit`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from storage_consumer.kernels.arrays import Bytes
from storage_consumer.kernels.jit import compiled, inlined

Words = NDArray[np.uint64]
WORD = 8
"""Bytes."""
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_LOWS, _GATHER = ~_TOPS, np.uint64(0x0102040810204080)
_NONE, _ONE, _SEVEN, _TOP_BYTE = np.uint64(0), np.uint64(1), np.uint64(7), np.uint64(56)
_ASCII_END, _KIND, _INSIDE = 0x80, 0xC0, 0x80
_TWO, _THREE, _FOUR, _BEHIND_FOUR = 0xC2, 0xE0, 0xF0, 0xF5
"""First bytes of characters of two, three and four bytes."""
_LEAST_OF_THREE, _LEAST_OF_FOUR = 0xA0, 0x90
"""Second bytes behind the lowest first ones: lower ones would make a character that is written shorter."""
_SURROGATE, _HALVES, _LAST, _BEHIND_LAST = 0xED, 0xA0, 0xF4, 0x90
"""First and second bytes of the halves of pairs, which are no characters, and of what is behind the last code point."""


class Text(NamedTuple):
    """Bytes, and for each place the word that begins there; for the last seven places there is none."""

    bytes: Bytes
    words: Words


def text_of(content: bytes | bytearray | Bytes) -> Text:
    """What loops take; an array can be written to."""
    array = content if isinstance(content, np.ndarray) else np.frombuffer(content, np.uint8)
    count = max(0, len(array) - WORD + 1)
    return Text(array, np.ndarray((count,), np.uint64, array.data, strides=(1,)))


@inlined
def all_bytes(byte: int) -> np.uint64:
    """The word of this byte eight times."""
    return np.uint64(byte) * _ONES


@inlined
def matching(word: np.uint64, wanted: np.uint64) -> np.uint64:
    """Not 0 where a byte of the word is that of `wanted`; `first` says which one. May be joined with those of another byte."""
    others = word ^ wanted
    return (others - _ONES) & ~others & _TOPS


@inlined
def first(marked: np.uint64) -> int:
    """Which byte is the first one marked; something is."""
    below = (marked & (~marked + _ONE)) - _ONE
    return np.int64((((below & _ONES) * _ONES) >> _TOP_BYTE) - _ONE)  # type: ignore[return-value] # what Python's own integer is compiled to


@inlined
def bits(word: np.uint64, wanted: np.uint64) -> int:
    """Which bytes of the word are that of `wanted`, the first one in the lowest bit."""
    others = word ^ wanted
    tops = ~(((others & _LOWS) + _LOWS) | others) & _TOPS
    return np.int64((tops >> _SEVEN) * _GATHER >> _TOP_BYTE)  # type: ignore[return-value] # as above


@inlined
def copy(text: Text, start: int, end: int, out: Text, at: int) -> int:
    """Write bytes as they are; where they end. Behind that there has to be room for a word, whose bytes may change."""
    size = end - start
    place = 0
    if end < len(text.words):
        while place < size:
            out.words[at + place] = text.words[start + place]
            place += WORD
    while place < size:
        out.bytes[at + place] = text.bytes[start + place]
        place += 1
    return at + size


@inlined
def begins(content: Bytes, at: int, text: Bytes) -> bool:
    """Whether this text stands here."""
    if at + len(text) > len(content):
        return False
    for place in range(len(text)):  # noqa: SIM110 - a loop is what compiles well
        if content[at + place] != text[place]:
            return False
    return True


@inlined
def _goes_on(content: Bytes, at: int) -> bool:
    """Whether the byte here is one inside a character."""
    return bool(content[at] & _KIND == _INSIDE)


@inlined
def _character_end(content: Bytes, at: int) -> int:
    """Where the character ends that begins here and is none of ASCII; -1 for none."""
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


@compiled
def is_utf8(text: Text) -> bool:
    """Whether all of it, which ends with LF, is UTF-8."""
    at = 0
    while at < len(text.bytes):
        if at < len(text.words) and text.words[at] & _TOPS == _NONE:
            at += WORD
            continue
        at = at + 1 if text.bytes[at] < _ASCII_END else _character_end(text.bytes, at)
        if at < 0:
            return False
    return True
