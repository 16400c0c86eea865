"""Numbers out of bytes, in compiled loops. To be imported late, see `compiled`."""

from __future__ import annotations

import numpy as np

from storage_consumer.decoding.columns import Bytes, Offsets
from storage_consumer.decoding.compiled import compiled, inlined

_MINUS, _ZERO, _NINE = b"-09"
MOST_DIGITS = 20
"""Of an integer of 64 bits, the sign not counted."""
_TIMES_TEN = np.uint64(10)
_LARGEST = np.uint64(2**63 - 1)


@inlined
def digits_end(content: Bytes, at: int) -> int:
    """Where the digits end that begin here."""
    while _ZERO <= content[at] <= _NINE:
        at += 1
    return at


@inlined
def number_of(content: Bytes, start: int, end: int) -> int:
    """The number that these digits are; -1 for none, for one written as nobody does, and for one beyond 63 bits."""
    if end == start or end - start >= MOST_DIGITS or (content[start] == _ZERO and end - start > 1):
        return -1
    number = np.uint64(0)
    for place in range(start, end):
        digit = content[place] - _ZERO
        if not 0 <= digit <= 9:  # noqa: PLR2004 - the highest digit
            return -1
        number = number * _TIMES_TEN + np.uint64(digit)
    return -1 if number > _LARGEST else np.int64(number)  # type: ignore[return-value] # what Python's own integer is compiled to


@compiled
def read_integers(content: Bytes, starts: Offsets, ends: Offsets, numbers: Offsets) -> bool:
    """Read the numbers between these places (the end exclusive), each of digits behind one or no minus.

    False where one is empty, is written as nobody writes numbers (``007``, ``-0``), or has more than 63 bits.
    """
    for row in range(len(starts)):
        start = starts[row]
        is_negative = start < ends[row] and content[start] == _MINUS
        number = number_of(content, start + is_negative, ends[row])
        if number < 0 or (is_negative and number == 0):
            return False
        numbers[row] = -number if is_negative else number
    return True
