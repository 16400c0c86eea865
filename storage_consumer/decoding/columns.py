"""Bytes of many rows at once, by NumPy: which are text, how they begin, and which numbers their digits make."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
GONE = 0xFF
"""A byte that no UTF-8 text holds; it stands for one that is to be left out."""
_WORD = 8
_ZERO, _MINUS = ord("0"), ord("-")
_MOST_DIGITS = 19
"""Of an integer that 64 bits hold without a sign, whatever its digits are."""
_LARGEST = np.uint64(2**63 - 1)
_POWERS = 10 ** np.arange(_MOST_DIGITS - 1, -1, -1, dtype=np.uint64)


def is_utf8(content: Bytes) -> bool:
    """Whether all of it is UTF-8. Only what is not ASCII is looked at, with the byte behind it."""
    wanted = content > 0x7F  # noqa: PLR2004 - the last byte of ASCII
    if not wanted.any():
        return True
    wanted[1:] |= wanted[:-1]
    try:
        content[np.flatnonzero(wanted)].tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True


def without(content: Bytes, left_out: Flags) -> Bytes:
    """The same bytes with `GONE` for those to be left out."""
    return content | np.negative(left_out.view(np.uint8))  # 1 becomes 0xFF


def between(marks: Flags) -> Flags:
    """What is from each odd mark on up to before the next even one, as the bits of whole words are counted."""
    words = np.zeros(-(-len(marks) // 64), np.uint64)
    bits = np.packbits(marks, bitorder="little")
    words.view(np.uint8)[: len(bits)] = bits
    for step in (1, 2, 4, 8, 16, 32):
        words ^= words << np.uint64(step)
    odd = np.bitwise_xor.accumulate(words >> np.uint64(63))
    words[1:] ^= np.negative(odd[:-1])  # 1 becomes all bits
    return np.unpackbits(words.view(np.uint8), bitorder="little")[: len(marks)].view(np.bool_)


def begins_with(content: Bytes, starts: Offsets, prefix: bytes, mask: bytes) -> Flags:
    """At which of these places `content` has a prefix, of at least 8 bytes; where `mask` has a zero, any byte will do."""
    if len(content) < len(prefix):
        return np.zeros(len(starts), np.bool_)
    words = _words(content)
    fits = starts + len(prefix) <= len(content)
    places = np.where(fits, starts, 0)
    for at in {*range(0, len(prefix) - _WORD, _WORD), len(prefix) - _WORD}:
        wanted, heeded = (np.frombuffer(text[at : at + _WORD], np.uint64) for text in (prefix, mask))
        fits &= (words[places + at] & heeded) == (wanted & heeded)
    return fits


def _words(content: Bytes) -> NDArray[np.uint64]:
    """The 8 bytes that begin at each place."""
    return np.ndarray((len(content) - _WORD + 1,), np.uint64, content.data, strides=(1,))


def _windows(content: Bytes, width: int) -> Bytes:
    """The bytes, so many of them, that begin at each place."""
    return np.ndarray((len(content) - width + 1, width), np.uint8, content.data, strides=(1, 1))


def integers(content: Bytes, starts: Offsets, ends: Offsets) -> Offsets | None:
    """The numbers between these borders (the end exclusive), each of digits behind one or no minus.

    None where one is empty, has more digits than surely fit, is written as nobody writes numbers (``007``, ``-0``), or ends
    nearer to the beginning of `content` than the longest of them is long.
    """
    if not len(starts):
        return np.empty(0, np.int64)
    negative = content[starts] == _MINUS
    starts = starts + negative
    widths = ends - starts
    width = int(widths.max())
    if width > _MOST_DIGITS or widths.min() < 1 or ends.min() < width:
        return None
    leading = content[starts] == _ZERO
    if (leading & ((widths > 1) | negative)).any():
        return None
    digits = _windows(content, width)[ends - width] - _ZERO
    digits[np.arange(-width, 0) < -widths[:, None]] = 0
    if (digits > 9).any():  # noqa: PLR2004 - the highest digit
        return None
    unsigned = digits.astype(np.uint64) @ _POWERS[_MOST_DIGITS - width :]
    if (unsigned > _LARGEST).any():
        return None
    numbers: Offsets = unsigned.view(np.int64)
    return np.where(negative, -numbers, numbers)
