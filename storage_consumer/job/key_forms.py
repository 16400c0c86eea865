"""One key, one text: how key values of a window's directories are brought to one form, for every pair of types that can meet.

The rows of a window may come from directories of different structures, with no statement between them that would end the
window: an event filter of the changefeed took the statement away, and its rows tell of the new structure by a schema file
alone. Then one key is ``3.5`` in one directory and ``3.500`` in the next. Keys are compared as texts wherever a window
is folded and cut into buckets, so each of them is spelled in the one form that the *target's* type gives it.

`_TABLE` decides it, by target and source; what is not in it has no known form, and the rows of such a directory stop the
table. Where all directories write a column in one form, nothing is spelled and nothing costs more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.canonical_text import Form, Spelling
from storage_consumer.decode.values import WireKind, wire_kind
from storage_consumer.job.lossy_columns import members
from storage_consumer.job.target_table import TargetColumn
from storage_consumer.model import TableColumn, VersionKey

_AS_WRITTEN = None
_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
_TEXTS = ("CHAR", "VARCHAR", "VAR_STRING", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
_BYTES = ("VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
_ZONED = "TIMESTAMP"

_SORTS: Mapping[str, str] = {
    **dict.fromkeys(_INTEGERS, "INTEGER"),
    **dict.fromkeys(_TEXTS, "TEXT"),
    **dict.fromkeys(_BYTES, "BYTES"),
}
"""Source types of which all write a value alike; each other type is a sort of its own."""

_PLACES: Mapping[str, str] = {
    **dict.fromkeys((*(kind.lower() for kind in _INTEGERS), "decimal", "double"), "number"),
    **dict.fromkeys((kind.lower() for kind in _TEXTS), "text"),
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
"""Target type → how its keys are compared. A type that is not here takes values of its own name's type only: YEAR and BIT
take a text for something else than the number in it."""

_TABLE: Mapping[str, Mapping[str, Form | None]] = {
    # numbers are equal by value; what the column would round is refused (`lossy_columns`)
    "number": {
        "INTEGER": _AS_WRITTEN,
        "YEAR": Form.NUMBER,  # year zero is 0000
        "DECIMAL": Form.NUMBER,
        "FLOAT": Form.NUMBER,
        "DOUBLE": Form.NUMBER,
    },
    # 0.1 of a FLOAT and 0.10000000149011612 of a DOUBLE are one number in single precision
    "single": {
        "INTEGER": _AS_WRITTEN,
        "YEAR": Form.NUMBER,
        "DECIMAL": Form.SINGLE,
        "FLOAT": Form.NEAREST_SINGLE,
        "DOUBLE": Form.SINGLE,
    },
    # 2024-01-31 is midnight
    "moment": {"DATE": Form.MOMENT, "DATETIME": Form.MOMENT, "TIMESTAMP": Form.MOMENT},
    "day": {"DATE": _AS_WRITTEN, "DATETIME": Form.DAY, "TIMESTAMP": Form.DAY},
    "time": {"TIME": Form.TIME},
    # the source makes of these values the very texts that stood in the files; of a FLOAT, a TIMESTAMP or YEAR zero it makes others
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
    # a text that is not a member but a number is taken for the member's number
    "enum": {"ENUM": _AS_WRITTEN},
    # names come in the order in which the source lists its members, and are compared as a text
    "set": {"SET": Form.MEMBERS},
    # source and target pad with NULs to the column's length
    "binary": {"BINARY": Form.PADDED, "BYTES": _AS_WRITTEN},
    "bytes": {"BYTES": _AS_WRITTEN, "BINARY": _AS_WRITTEN},
}


_NO_FORM = (
    "the key column {} is {} in this directory and {} in the structure in force, without a statement between them, and {}: so "
    "equal keys can't be told. Give the table a fresh copy of the source's"
)


@dataclass(frozen=True, slots=True)
class KeyForms:
    """How the values of one column are spelled, by directory."""

    spellings: Mapping[VersionKey, Spelling] = field(default_factory=dict)
    """Directories that are not in it need none."""
    unknown: Mapping[VersionKey, str] = field(default_factory=dict)
    """Why the rows of a directory can't be compared with those of the structure in force."""


def key_forms(
    columns: Mapping[VersionKey, TableColumn],
    newest: TableColumn,
    there: TargetColumn,
    protocol: Protocol,
    zone: str,
    *,
    is_key: bool,
) -> KeyForms:
    """How the values of a column are spelled in each directory of a window.

    `columns`: as each directory's schema file has it. `newest`: as the structure in force has it. `zone`: see `RowLayout.zone`.
    `is_key`: it is compared for each row; else its values are parts of rows that are compared whole.
    """
    forms = {_written_form(column) for column in (*columns.values(), newest)}
    place = _PLACES.get(there.data_type, there.data_type)
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
        if version not in unknown and (spelling := _spelling(column, there, place))
    }
    return KeyForms(spellings, unknown)


def _sort(column: TableColumn) -> str:
    return _SORTS.get(column.type, column.type)


def _written_form(column: TableColumn) -> tuple[str, int]:
    """Equal for two columns that write each value in the same way, as far as a schema file tells."""
    sort = _sort(column)
    detail = column.precision if sort == "BINARY" else column.scale if sort in _SCALED else 0
    return sort, detail or 0


_SCALED = frozenset(("DECIMAL", "DATETIME", "TIMESTAMP", "TIME"))


def _spelling(column: TableColumn, there: TargetColumn, place: str) -> Spelling | None:
    form = _TABLE[place].get(_sort(column)) if place in _TABLE else None
    if form is Form.PADDED:
        return Spelling(form, length=there.length or 0)
    if form is Form.MEMBERS:
        return Spelling(form, members=members(there.column_type))
    return None if form is None else Spelling(form)


def _unknown(column: TableColumn, newest: TableColumn, place: str, forms: set[tuple[str, int]], zone: str) -> str:
    """Why there is no form in which these values can be compared with those of the structure in force; empty if there is one."""
    if _written_form(column) == _written_form(newest):
        return ""
    sorts = {sort for sort, _ in forms}
    if place not in _TABLE or _sort(column) not in _TABLE[place]:
        return f"the target does not take {column.type} for what it was"
    if {"FLOAT", "DOUBLE"} <= sorts and place != "single":
        return "one number has other digits as a FLOAT than as a DOUBLE"
    if _ZONED in sorts and len(sorts) > 1 and zone:
        return f"a TIMESTAMP becomes UTC on its way from {zone}, and other types do not"
    if (
        place in ("text", "bytes")
        and len({form for form in forms if form[0] not in ("TEXT", "BYTES", "ENUM", "SET")}) > 1
    ):
        return "the target keeps the text, which differs between them"
    return ""
