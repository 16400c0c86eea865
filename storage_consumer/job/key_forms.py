"""One key, one text: bring the key values of a commit range's directories to one form, for every pair of types that can meet.

The rows of a commit range may come from directories of different structures without a DDL between them that would end the
commit range: an event filter of the changefeed removed the statement, and only a schema file shows the new structure. Then
one key is ``3.5`` in one directory and ``3.500`` in the next. Keys are compared as texts wherever a commit range is folded
and cut into buckets, so each key is spelled in the one form that the *target's* type gives it.

`_TABLE` decides this, by target and source. What is not in it has no known form, and the rows of such a directory halt
the table. If all directories write a column in one form, nothing is spelled and nothing costs more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.canonical_text import Spelling, ValueForm
from storage_consumer.decode.values import BINARY_TYPES, FLOAT_TYPES, INTEGER_TYPES, TEXT_TYPES, WireKind, wire_kind
from storage_consumer.job.lossy_columns import members
from storage_consumer.job.target_table import TargetColumn
from storage_consumer.model import TableColumn, VersionKey

_AS_WRITTEN = None
_BYTES = BINARY_TYPES - {"BINARY"}  # its values are padded
_ZONED = "TIMESTAMP"

_SORTS: Mapping[str, str] = {
    **dict.fromkeys(INTEGER_TYPES, "INTEGER"),
    **dict.fromkeys(TEXT_TYPES, "TEXT"),
    **dict.fromkeys(_BYTES, "BYTES"),
}
"""Source types that all write a value alike; each other type is a sort of its own."""

_PLACES: Mapping[str, str] = {
    **dict.fromkeys((*(kind.lower() for kind in INTEGER_TYPES), "decimal", "double"), "number"),
    **dict.fromkeys((kind.lower() for kind in TEXT_TYPES), "text"),
    **dict.fromkeys((kind.lower() for kind in _BYTES), "bytes"),
    "float": "single",
    "datetime": "moment",
    "timestamp": "moment",
    "date": "day",
    "time": "time",
    "set": "set",
    "enum": "enum",
    "binary": "binary",
}
"""Target type → how its keys are compared. A type that is not here takes values of its namesake only.

YEAR and BIT read a text as something other than the number in it.
"""

_TABLE: Mapping[str, Mapping[str, ValueForm | None]] = {
    # Numbers are equal by value; `lossy_columns` refuses what the column would round.
    "number": {
        "INTEGER": _AS_WRITTEN,
        "BIT": _AS_WRITTEN,
        "YEAR": ValueForm.NUMBER,  # year zero is 0000
        "DECIMAL": ValueForm.NUMBER,
        "FLOAT": ValueForm.NUMBER,
        "DOUBLE": ValueForm.NUMBER,
    },
    # 0.1 of a FLOAT and 0.10000000149011612 of a DOUBLE are one number in single precision.
    "single": {
        "INTEGER": _AS_WRITTEN,
        "BIT": _AS_WRITTEN,
        "YEAR": ValueForm.NUMBER,
        "DECIMAL": ValueForm.SINGLE,
        "FLOAT": ValueForm.NEAREST_SINGLE,
        "DOUBLE": ValueForm.SINGLE,
    },
    # 2024-01-31 is midnight.
    "moment": {"DATE": ValueForm.MOMENT, "DATETIME": ValueForm.MOMENT, "TIMESTAMP": ValueForm.MOMENT},
    "day": {"DATE": _AS_WRITTEN, "DATETIME": ValueForm.DAY, "TIMESTAMP": ValueForm.DAY},
    "time": {"TIME": ValueForm.TIME},
    # The source turns these values into the very texts in the files, but a FLOAT, a TIMESTAMP or YEAR zero into others.
    "text": {
        "TEXT": _AS_WRITTEN,
        "ENUM": _AS_WRITTEN,
        "SET": _AS_WRITTEN,
        "INTEGER": _AS_WRITTEN,
        "DECIMAL": _AS_WRITTEN,
        "DATE": _AS_WRITTEN,
        "DATETIME": _AS_WRITTEN,
        "TIME": _AS_WRITTEN,
    },
    # A text that is a number and not a member is taken for the member's number.
    "enum": {"ENUM": _AS_WRITTEN},
    # Names come in the order in which the source lists its members, and are compared as one text.
    "set": {"SET": ValueForm.MEMBERS},
    # Source and target pad with NULs to the column's length.
    "binary": {"BINARY": ValueForm.PADDED, "BYTES": _AS_WRITTEN},
    "bytes": {"BYTES": _AS_WRITTEN, "BINARY": _AS_WRITTEN},
}


_LASTING: Mapping[str, ValueForm] = {
    "number": ValueForm.NUMBER,
    "moment": ValueForm.MOMENT,
    "day": ValueForm.DAY,
    "time": ValueForm.TIME,
}

_NO_FORM = (
    "the key column {} is {} in this directory and {} in the current structure, with no statement between them, and "
    "{}: equal keys cannot be recognized. Reload the table from the source"
)


@dataclass(frozen=True, slots=True)
class KeyForms:
    """How the values of one column are spelled, by directory."""

    spellings: Mapping[VersionKey, Spelling] = field(default_factory=dict)
    """Spellings by directory; a directory that is absent needs none."""
    unknown: Mapping[VersionKey, str] = field(default_factory=dict)
    """By directory, why its rows cannot be compared with those of the current structure."""


def key_forms(
    columns: Mapping[VersionKey, TableColumn],
    newest: TableColumn,
    there: TargetColumn,
    protocol: Protocol,
    zone: str,
    *,
    is_key: bool,
) -> KeyForms:
    """Return how the values of a column are spelled in each directory of a commit range.

    `columns`: the column in each directory's schema file. `newest`: the column in the current structure. `zone`: see
    `RowLayout.zone`. `is_key`: each row is compared by it; otherwise its values are parts of rows that are compared
    whole.
    """
    forms = {_written_form(column) for column in (*columns.values(), newest)}
    place = _PLACES.get(there.data_type, there.data_type)
    # CSV names the members of a SET in the order of its directory's structure, and the target may have another order.
    by_name = is_key and place == "set" and wire_kind(newest, protocol) is WireKind.TEXT
    reordered = by_name and any(column.elements != members(there.column_type) for column in columns.values())
    if len(forms) == 1 and not reordered:
        return KeyForms()
    unknown = {
        version: _NO_FORM.format(newest.name, column.type, newest.type, why)
        for version, column in columns.items()
        if (why := _unknown(column, newest, place, forms, zone))
    }
    spellings = {
        version: spelling
        for version, column in columns.items()
        if version not in unknown and (spelling := _spelling(column, there, place, protocol))
    }
    return KeyForms(spellings, unknown)


def lasting_form(column: TableColumn, there: TargetColumn, protocol: Protocol) -> tuple[Spelling | None, bool]:
    """Return the one form of a column's values over all commit ranges, and whether there is one.

    Within a commit range one form is needed only where directories differ; here the directories of later ones are not known yet. A
    number in single or double precision has no such form: its text depends on the type that it came from.
    """
    place = _PLACES.get(there.data_type, there.data_type)
    if place == "single" or there.data_type == "double" or column.type in FLOAT_TYPES:
        return None, False
    if place == "set":
        return _of_members(column, there, protocol), True
    if place == "binary":
        return Spelling(ValueForm.PADDED, length=there.length or 0), True
    form = _LASTING.get(place)
    return (None if form is None else Spelling(form)), True


def _sort(column: TableColumn) -> str:
    return _SORTS.get(column.type, column.type)


def _written_form(column: TableColumn) -> tuple[str, int]:
    """Return what is equal for two columns that write each value in the same way, as far as schema files show."""
    sort = _sort(column)
    # The scale shows in how many digits are written; a BINARY is padded to its length.
    detail = column.precision if sort == "BINARY" else column.scale if sort in _SCALED else 0
    return sort, detail or 0


_SCALED = frozenset(("DECIMAL", "DATETIME", "TIMESTAMP", "TIME"))


def _spelling(column: TableColumn, there: TargetColumn, place: str, protocol: Protocol) -> Spelling | None:
    form = _TABLE[place].get(_sort(column)) if place in _TABLE else None
    if form is ValueForm.PADDED:
        # The target's length, since its padding is what a key is compared with.
        return Spelling(form, length=there.length or 0)
    if form is ValueForm.MEMBERS:
        return _of_members(column, there, protocol)
    return None if form is None else Spelling(form)


def _of_members(column: TableColumn, there: TargetColumn, protocol: Protocol) -> Spelling | None:
    # A number of members has one text already.
    by_name = wire_kind(column, protocol) is WireKind.TEXT
    return Spelling(ValueForm.MEMBERS, members=members(there.column_type)) if by_name else None


def _unknown(column: TableColumn, newest: TableColumn, place: str, forms: set[tuple[str, int]], zone: str) -> str:
    """Return why these values cannot be compared with those of the current structure in any form; empty if they can."""
    if _written_form(column) == _written_form(newest):
        return ""
    sorts = {sort for sort, _ in forms}
    if place not in _TABLE or _sort(column) not in _TABLE[place]:
        return f"the target does not read {column.type} values as what they were"
    # 0.1 and 0.10000000149011612: only single precision makes them one number again.
    if {"FLOAT", "DOUBLE"} <= sorts and place != "single":
        return "a number has other digits as a FLOAT than as a DOUBLE"
    # The zone applies to TIMESTAMP alone, so a DATETIME beside it shows another clock.
    if _ZONED in sorts and len(sorts) > 1 and zone:
        return f"a TIMESTAMP is converted from {zone} to UTC, and other types are not"
    if (
        place in ("text", "bytes")
        and len({form for form in forms if form[0] not in ("TEXT", "BYTES", "ENUM", "SET")}) > 1
    ):
        return "the target keeps the text, which differs between them"
    return ""
