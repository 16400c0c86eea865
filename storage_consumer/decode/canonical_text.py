"""Canonical texts: one text for all spellings of a value, for keys whose rows are written in several ways.

``3.5`` and ``3.500`` are one number, ``2024-01-31`` and ``2024-01-31 00:00:00.000`` one timestamp. `job.key_forms`
decides which form a column needs, if any; this module spells it. A spelling never changes what the target stores. A
text whose value the target would change stays as it is, and `job.lossy_columns` refuses it.
"""

from __future__ import annotations

import enum
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal


class ValueForm(enum.Enum):
    """The kind of value that is brought to one text."""

    NUMBER = "number"
    """A number by its value: no leading or trailing zeros, no exponent, no negative zero."""
    SINGLE = "single"
    """A number as a single-precision column holds it, if it holds it exactly."""
    NEAREST_SINGLE = "nearest single"
    """A number written from a single-precision column: its text is the shortest one that reads back as the same number."""
    DAY = "day"
    """A date; the time of day is dropped if it is midnight."""
    MOMENT = "moment"
    """Date and time of day, without trailing zeros in the fraction."""
    TIME = "time"
    """A time without trailing zeros in the fraction."""
    MEMBERS = "members"
    """Names of a set's members in the target's order."""
    PADDED = "padded"
    """Bytes with the trailing NULs that the column adds."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """A form and its parameters."""

    form: ValueForm
    length: int = 0
    """Length in bytes, for PADDED."""
    members: tuple[str, ...] = ()
    """The members in order, for MEMBERS."""

    def spell(self, text: str) -> str:
        """Return the one text for the value of this wire text. Raise `ValueError` for a text that is not such a value."""
        if self.form is ValueForm.PADDED:
            # Two hexadecimal digits for each byte.
            return text.ljust(2 * self.length, "0")
        if self.form is ValueForm.MEMBERS:
            return _in_sequence(text, self.members)
        return _MAKERS[self.form](text)


_PLAIN = 100
"""Digits up to which a number is written without an exponent: more than any DECIMAL has."""
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,9})?", re.ASCII)
_MOMENT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?: ([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?)?", re.ASCII)
_TIME = re.compile(r"(-?)([0-9]{1,3}):([0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?", re.ASCII)
_MIDNIGHT = "00:00:00"


def _number(text: str) -> str:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not a number")
    # Decimal is exact here: no digit of a text is ever rounded.
    sign, digits, exponent = Decimal(text).as_tuple()
    written = "".join(map(str, digits)).lstrip("0")
    significant = written.rstrip("0")
    # Zero has no sign.
    if not significant:
        return "0"
    minus, power = "-" if sign else "", int(exponent) + len(written) - len(significant)
    # Written out, ``1e999999999`` would be a text of a billion characters.
    if not -_PLAIN <= power <= _PLAIN:
        return f"{minus}{significant}e{power}"
    if power >= 0:
        return f"{minus}{significant}{'0' * power}"
    padded = significant.rjust(1 - power, "0")
    return f"{minus}{padded[:power]}.{padded[power:]}"


def _nearest_single(text: str) -> str:
    number = float(_number(text))
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        # Beyond the largest FLOAT there is no nearest one, so the number keeps its own text.
        nearest = math.inf
    return _number(repr(nearest) if math.isfinite(nearest) else text)


def _single(text: str) -> str:
    nearest = _nearest_single(text)
    # A number that a FLOAT does not hold exactly is another value than its neighbour: it keeps its own text.
    return nearest if float(nearest) == float(text) else _number(text)


def _moment_parts(text: str) -> tuple[str, str]:
    """Return the date, and the time of day without trailing zeros in the fraction."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a date, with or without a time")
    fraction = (found[3] or "").rstrip("0")
    # A date alone is midnight of that day.
    return found[1], (found[2] or _MIDNIGHT) + (f".{fraction}" if fraction else "")


def _moment(text: str) -> str:
    return " ".join(_moment_parts(text))


def _day(text: str) -> str:
    date, time = _moment_parts(text)
    return date if time == _MIDNIGHT else f"{date} {time}"


def _time(text: str) -> str:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a time")
    fraction = (found[4] or "").rstrip("0")
    time = f"{int(found[2]):02d}:{found[3]}" + (f".{fraction}" if fraction else "")
    # ``-00:00:00`` is zero as well.
    return time if time == _MIDNIGHT else found[1] + time


def _in_sequence(text: str, members: tuple[str, ...]) -> str:
    """Return the members that a text names, in their own order; a name that differs in case only is that member."""
    chosen = set(text.split(",")) if text else set()
    if not chosen.issubset(members):
        # Ignore case only if needed, and only if no two members would become one.
        chosen = {name.casefold() for name in chosen}
        members_of = {name.casefold(): name for name in members}
        if len(members_of) < len(members) or not chosen <= members_of.keys():
            raise ValueError(f"{text[:40]!r} has a member that the target's column lacks")
        chosen = {members_of[name] for name in chosen}
    return ",".join(name for name in members if name in chosen)


_MAKERS: Mapping[ValueForm, Callable[[str], str]] = {
    ValueForm.NUMBER: _number,
    ValueForm.SINGLE: _single,
    ValueForm.NEAREST_SINGLE: _nearest_single,
    ValueForm.DAY: _day,
    ValueForm.MOMENT: _moment,
    ValueForm.TIME: _time,
}
