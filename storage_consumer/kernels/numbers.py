"""Numbers in bytes, for compiled loops: their forms, and what they are. To be imported late, see `jit`."""

from __future__ import annotations

import numpy as np

from storage_consumer.kernels.arrays import Bytes, Offsets
from storage_consumer.kernels.codes import FLOAT_FIELD, UNSIGNED_FIELD, YEAR_FIELD
from storage_consumer.kernels.jit import compiled, inlined

MINUS, POINT, ZERO, _NINE, _PLUS, _EXPONENT, _SMALL_EXPONENT = b"-.09+Ee"
_MOST_DIGITS, _YEAR_DIGITS = 20, 4
"""Of an integer of 64 bits, the sign not counted, and of a year."""
_TIMES_TEN = np.uint64(10)
_LARGEST = np.uint64(2**63 - 1)


@inlined
def digits_end(content: Bytes, at: int) -> int:
    """Where the digits end that begin here."""
    while ZERO <= content[at] <= _NINE:
        at += 1
    return at


@inlined
def _fraction_end(content: Bytes, at: int) -> int:
    """Where the fraction and the exponent end that may begin here; -1 for one without digits."""
    if content[at] == POINT:
        end = digits_end(content, at + 1)
        if end == at + 1:
            return -1
        at = end
    if content[at] == _EXPONENT or content[at] == _SMALL_EXPONENT:
        at += 2 if content[at + 1] == _PLUS or content[at + 1] == MINUS else 1
        end = digits_end(content, at)
        return -1 if end == at else end
    return at


@inlined
def number_end(content: Bytes, at: int, form: int) -> int:
    """Where a number ends that begins here; -1 for none of this form."""
    if content[at] == MINUS and form not in (UNSIGNED_FIELD, YEAR_FIELD):
        at += 1
    end = digits_end(content, at)
    if end == at:
        return -1
    if form == FLOAT_FIELD:
        return _fraction_end(content, end)
    return -1 if end - at > (_YEAR_DIGITS if form == YEAR_FIELD else _MOST_DIGITS) else end


@inlined
def number_of(content: Bytes, start: int, end: int) -> int:
    """The number that these digits are; -1 for none, for one written as nobody does, and for one beyond 63 bits."""
    if end == start or end - start >= _MOST_DIGITS or (content[start] == ZERO and end - start > 1):
        return -1
    number = np.uint64(0)
    for place in range(start, end):
        digit = content[place] - ZERO
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
        is_negative = start < ends[row] and content[start] == MINUS
        number = number_of(content, start + is_negative, ends[row])
        if number < 0 or (is_negative and number == 0):
            return False
        numbers[row] = -number if is_negative else number
    return True
