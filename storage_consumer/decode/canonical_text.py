"""Spellings: the one text that stands for all texts of a value, for keys whose rows are written in several ways.

``3.5`` and ``3.500`` are one number, ``2024-01-31`` and ``2024-01-31 00:00:00.000`` one moment. Which spelling a column
needs, if any, is decided in `key_forms`; here is how each is made. A spelling never changes what the target stores. A text
that has a value which the target would change stays as it is, for `lossy_columns` to refuse.
"""

from __future__ import annotations

import enum
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal


class Form(enum.Enum):
    """What is brought to one text."""

    NUMBER = "number"
    """A number by its value: no zeros in front or at the end, no exponent, no negative zero."""
    SINGLE = "single"
    """A number as a column of single precision holds it, where it holds it exactly."""
    NEAREST_SINGLE = "nearest single"
    """A number that was written from a column of single precision: its text is the shortest one that leads back to it."""
    DAY = "day"
    """A date; the time of day goes where it is midnight."""
    MOMENT = "moment"
    """Date and time of day, without zeros at the end of the fraction."""
    TIME = "time"
    """A time without zeros at the end of the fraction."""
    MEMBERS = "members"
    """Names of a set's members in the target's sequence."""
    PADDED = "padded"
    """Bytes with as many NULs behind them as the column puts there."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """A form, and what more it takes."""

    form: Form
    length: int = 0
    """Bytes of PADDED."""
    members: tuple[str, ...] = ()
    """For MEMBERS."""

    def spell(self, text: str) -> str:
        """The one text for the value of this wire text. Raises `ValueError` for text that is no such value."""
        if self.form is Form.PADDED:
            return text.ljust(2 * self.length, "0")
        if self.form is Form.MEMBERS:
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
    sign, digits, exponent = Decimal(text).as_tuple()
    written = "".join(map(str, digits)).lstrip("0")
    significant = written.rstrip("0")
    if not significant:
        return "0"
    minus, power = "-" if sign else "", int(exponent) + len(written) - len(significant)
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
        nearest = math.inf
    return _number(repr(nearest) if math.isfinite(nearest) else text)


def _single(text: str) -> str:
    nearest = _nearest_single(text)
    return nearest if float(nearest) == float(text) else _number(text)


def _moment_parts(text: str) -> tuple[str, str]:
    """Date, and time of day without zeros at the end of the fraction."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a date, with or without a time")
    fraction = (found[3] or "").rstrip("0")
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
    return time if time == _MIDNIGHT else found[1] + time


def _in_sequence(text: str, members: tuple[str, ...]) -> str:
    """The members named by a text, in their own sequence; a name that differs in case alone is the member."""
    chosen = set(text.split(",")) if text else set()
    if not chosen.issubset(members):
        chosen = {name.casefold() for name in chosen}
        members_of = {name.casefold(): name for name in members}
        if len(members_of) < len(members) or not chosen <= members_of.keys():
            raise ValueError(f"{text[:40]!r} has a member that the target's column lacks")
        chosen = {members_of[name] for name in chosen}
    return ",".join(name for name in members if name in chosen)


_MAKERS: Mapping[Form, Callable[[str], str]] = {
    Form.NUMBER: _number,
    Form.SINGLE: _single,
    Form.NEAREST_SINGLE: _nearest_single,
    Form.DAY: _day,
    Form.MOMENT: _moment,
    Form.TIME: _time,
}
