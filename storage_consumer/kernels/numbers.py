"""Numbers in bytes, for compiled loops: their forms and their values. Import late, see `jit`."""

from __future__ import annotations

import numpy as np

from storage_consumer.kernels.arrays import FLOAT_FIELD, UNSIGNED_FIELD, YEAR_FIELD, Bytes, Offsets
from storage_consumer.kernels.jit import compiled, inlined

MINUS, POINT, ZERO, _NINE, _PLUS, _EXPONENT, _SMALL_EXPONENT = b"-.09+Ee"
_MOST_DIGITS, _YEAR_DIGITS = 20, 4
"""Most digits of a 64-bit integer, without its sign, and of a year."""
_SURE_DIGITS, _SURE_EXPONENT = 38, 37
"""Numbers with at most so many digits before the point, or with one digit and at most this exponent, are below the largest FLOAT."""
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
    """Return where the optional fraction and exponent at `at` end; -1 if one of them has no digits."""
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
    """Return where the FLOAT at `at` ends; -1 if there is none, or if it may exceed the largest FLOAT."""
    start = at + (content[at] == MINUS)
    whole = digits_end(content, start)
    end = number_end(content, at, FLOAT_FIELD)
    if end < 0 or whole - start > _SURE_DIGITS:
        return -1
    fraction = digits_end(content, whole + 1) if content[whole] == POINT else whole
    if fraction == end:
        return end
    # What is left is an exponent: of one digit before the point it may have two digits, if it is positive.
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
    """Return the number that these digits spell; -1 if they are not digits, have a leading zero, or need more than 63 bits."""
    if end == start or end - start >= _MOST_DIGITS or (content[start] == ZERO and end - start > 1):
        return -1
    # 19 digits at most: these never overflow 64 unsigned bits, so one comparison at the end is enough.
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
    """Read the numbers between these places (end exclusive), each with an optional minus; return whether all could be read.

    Not readable are empty numbers, unusual spellings (``007``, ``-0``), and numbers of more than 63 bits.
    """
    for row in range(len(starts)):
        start = starts[row]
        is_negative = start < ends[row] and content[start] == MINUS
        number = number_of(content, start + is_negative, ends[row])
        if number < 0 or (is_negative and number == 0):
            return False
        numbers[row] = -number if is_negative else number
    return True
