"""The changes of one row: its primary key as texts, each compared as its column's type compares."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial

from storage_consumer.changes.rendering import reader
from storage_consumer.changes.window import Change, Structure
from storage_consumer.config.settings import Protocol
from storage_consumer.decode.values import BINARY_TYPES, FLOAT_TYPES, INTEGER_TYPES
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn

_VALUE = re.compile(r'"((?:[^"]|"")*)"(?=,|\Z)|([^,]*)')
_INTEGER = re.compile(r"[+-]?\d{1,99}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.(\d+))?Z?)?", re.ASCII)
_SPAN = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?", re.ASCII)
_HEX = re.compile(r"0[xX]((?:[0-9A-Fa-f]{2})*)")


def key_values(given: str) -> list[str]:
    """Return the values that stand between commas, as in a CSV row; line breaks are characters as others."""
    values = list[str]()
    end = -1
    while end < len(given):
        found = _VALUE.match(given, end + 1)
        assert found is not None
        quoted, bare = found.groups()
        values.append(bare if quoted is None else quoted.replace('""', '"'))
        end = found.end()
    return values


class OfKey:
    """Says of each change whether it concerns the row with a primary key."""

    def __init__(self, given: Sequence[str], protocol: Protocol) -> None:
        """Take the values of the key's columns, in the order of the table's columns. `protocol`: that of the files."""
        self.has_matched = False
        """Whether a change was of the row."""
        self._given = tuple(given)
        self._parts = lru_cache(maxsize=256)(partial(self._compared, protocol=protocol))

    def __call__(self, change: Change) -> bool:
        """Return whether a change concerns the row. Raises `NotReplicable` for a table whose key has another number of columns."""
        parts = self._parts(change.structure)
        images = (change.values,) if change.old is None else (change.values, change.old)
        found = any(all(is_same(image[place]) for place, is_same in parts) for image in images)
        self.has_matched |= found
        return found

    def _compared(self, structure: Structure, protocol: Protocol) -> list[tuple[int, Callable[[str | None], bool]]]:
        """Return for each column of the key its index, and whether a wire text is the value that was given."""
        columns = [structure.columns[place] for place in structure.key]
        if len(columns) != len(self._given):
            names = ", ".join(column.name for column in columns) or "none"
            raise NotReplicable(
                f"{structure.table}: --key has {len(self._given)} value(s), but the primary key's columns are: {names}"
            )
        pairs = zip(columns, self._given, strict=True)
        return list(zip(structure.key, (_equals(column, text, protocol) for column, text in pairs), strict=True))


class Whole:
    """Says the same as an `OfKey`, for changes that are to be taken back: an update that moves a row to another key is taken whole or not at all."""

    def __init__(self, of_key: OfKey) -> None:
        """Ask this of each change."""
        self._of_key = of_key
        self._last: tuple[Change, bool] | None = None

    def __call__(self, change: Change) -> bool:
        """Return whether a change concerns the row; the two parts of an update come one after the other.

        Raises `NotReplicable` for an update of which only one part does, and what `OfKey` does.
        """
        found = self._of_key(change)
        last, self._last = self._last, (change, found)
        if last is not None and (last[0].file, last[0].row) == (change.file, change.row) and last[1] != found:
            raise NotReplicable(_moved(change, last[0] if found else change, is_to_given=found))
        return found


def _moved(change: Change, other: Change, *, is_to_given: bool) -> str:
    """Return what is wrong with taking back the part of an update that has the key; `other`: the part that has another one."""
    columns = other.structure.columns
    texts = (
        f"{columns[place].name} = {'0x' if columns[place].type in BINARY_TYPES else ''}{other.values[place]}"
        for place in other.structure.key
    )
    key = ", ".join(texts)
    what = (
        f"gave the row with the primary key {key} that of --key"
        if is_to_given
        else f"gave the row of --key the primary key {key}"
    )
    return (
        f"{change.structure.table}, {change.file}, row {change.row}, commit ts {change.commit_ts}: this update {what}, so that the row could be taken back only "
        f"in part. Take the window back without --key, or begin after it, with --from {change.commit_ts + 1}"
    )


def _equals(column: TableColumn, given: str, protocol: Protocol) -> Callable[[str | None], bool]:
    """Return whether a wire text of a column is the value that a text means; none is if the text is no value of its type."""
    if column.type in BINARY_TYPES:
        wanted = _bytes(given)
        return lambda wire: wire is not None and bytes.fromhex(wire) == wanted
    value = _value_of(column, protocol)
    meant = value(given) if column.type not in ("ENUM", "SET") else given
    return lambda wire: wire is not None and meant is not None and value(wire) == meant


def _value_of(column: TableColumn, protocol: Protocol) -> Callable[[str], Hashable | None]:
    """Return the function from a text to what is equal for all spellings of a value; None for no value of the type."""
    if column.type in ("ENUM", "SET"):
        read = reader(column, protocol)
        return lambda wire: str(read(wire))
    return _VALUES.get(column.type, str)


def _integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


def _decimal(text: str) -> Decimal | None:
    if _NUMBER.fullmatch(text):
        with suppress(InvalidOperation):
            return Decimal(text)
    return None


def _float(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _moment(text: str) -> tuple[str, str, str] | None:
    """Return date, time and fraction, without what may be left out."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    date, clock, fraction = found.groups()
    return date, clock or "00:00:00", (fraction or "").rstrip("0")


def _span(text: str) -> tuple[str, int, str, str, str] | None:
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    sign, hours, minutes, seconds, fraction = found.groups()
    return sign, int(hours), minutes, seconds, (fraction or "").rstrip("0")


_VALUES: dict[str, Callable[[str], Hashable | None]] = {
    **dict.fromkeys((*INTEGER_TYPES, "YEAR", "BIT"), _integer),
    **dict.fromkeys(FLOAT_TYPES, _float),
    "DECIMAL": _decimal,
    "DATETIME": _moment,
    "TIMESTAMP": _moment,
    "TIME": _span,
}


def _bytes(text: str) -> bytes | None:
    """Return the bytes that base64 stands for, or hexadecimal digits after ``0x``."""
    if found := _HEX.fullmatch(text):
        return bytes.fromhex(found[1])
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None
