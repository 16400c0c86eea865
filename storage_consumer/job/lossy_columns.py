"""Find what a target's column would silently change in a source's values.

Strict mode makes a server refuse a value that it cannot hold, but not one that it rounds: digits after the point,
fractions of a second, single precision, padding. The target has the source's structure unless someone changed it, so
these checks cost nothing if nobody did.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.decoder import ABSENT, RowLayout, Values
from storage_consumer.decode.values import BINARY_TYPES, FLOAT_TYPES, INTEGER_TYPES, TEXT_TYPES, WireKind, wire_kind
from storage_consumer.job.target_table import TargetColumn, TargetTable
from storage_consumer.model import TableColumn, TableDefinition, folded_name
from storage_consumer.telemetry import tso_time

_MOMENTS = frozenset(("datetime", "timestamp", "time"))
_FAMILIES = {
    **dict.fromkeys((*INTEGER_TYPES, *FLOAT_TYPES, "DECIMAL", "BIT", "YEAR"), "number"),
    **dict.fromkeys(("DATE", "DATETIME", "TIMESTAMP"), "moment"),
    **dict.fromkeys((*TEXT_TYPES, "ENUM", "SET", "JSON", "VECTOR"), "text"),
    **dict.fromkeys(BINARY_TYPES, "bytes"),
    "TIME": "time",
}
"""Type → sort of its values. Within one sort, the target refuses what it cannot hold, or `_rule` checks it."""
_TAKES_ONLY = {"bit": "BIT", "year": "YEAR", "enum": "ENUM", "set": "SET"}
"""Target types that read the text of another type as something else.

The text 5 is the byte 0x35 to BIT, 2005 to YEAR, and the fifth member to ENUM.
"""
_SAME_AS_TEXT = INTEGER_TYPES | {"DECIMAL", "DATE", "DATETIME", "TIME"}
_MEMBERS = re.compile(r"(?:enum|set)\(('(?:[^'\\]|'')*'(?:,'(?:[^'\\]|'')*')*)\)", re.IGNORECASE)
"""A column type whose members are written without backslashes."""
_NUMBER = re.compile(r"\s*[-+]?\d+\s*", re.ASCII)
_SAME_MEMBERS = (
    "Give them the source's members there, in the source's order; if the source changed them and the files have no statement of "
    "that, load the table anew"
)
_BYTES_OF_A_CHARACTER = 4
_BYTES_OF_TEXT = {"tinytext": 255, "text": 65_535, "mediumtext": 16_777_215, "longtext": 4_294_967_295}
"""Most bytes of a value, by type."""
_ANY_DIGITS = 400
_EXPONENT = 18
"""Most digits of an exponent that are read: with more of them the value exceeds any column anyway."""
_MIDNIGHT = re.compile(r".{10}(?: 00:00:00(?:\.0+)?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What the target's column keeps of the values that the source's column holds."""

    place: int
    """Index in the layout."""
    name: str
    keeps: str
    """A key of `_KEPT`."""
    amount: int = 0
    changed_at: int = 0
    """The commit-ts at which the source's own column, without a statement in the files, came to keep no more; 0: it is the target's that does not."""


def other_families(layout: RowLayout, target: TargetTable, become_texts: Collection[str] = ()) -> str:
    """Return which columns hold another sort of values in the target, which would silently change texts like ``007``; or "".

    `become_texts`: folded names of columns that are texts in other directories of the commit range, which a number may go
    with.
    """
    there = {folded_name(c.name): c.data_type for c in target.columns}
    other = [
        f"{c.name} is {there[folded_name(c.name)]} in the target, {c.type} at the source"
        for c in layout.columns
        if not _takes(there[folded_name(c.name)], c.type)
        and not (folded_name(c.name) in become_texts and is_its_text(there[folded_name(c.name)], c.type))
    ]
    return f"the target's table has columns of another type: {', '.join(other)}" if other else ""


def _takes(there: str, kind: str) -> bool:
    """Return whether a target's column reads values of a source's type as what they are, or refuses them.

    A column without a type is only carried. Types of which nothing is known here, such as INET6 and UUID, may write a text anew.
    """
    if there in {"", kind.lower()}:
        return True
    return _FAMILIES.get(there.upper()) == _FAMILIES[kind] and _TAKES_ONLY.get(there, kind) == kind


def is_text(kind: str) -> bool:
    """Return whether a source's type holds texts."""
    return kind in TEXT_TYPES


def is_its_text(there: str, kind: str) -> bool:
    """Return whether the target's column keeps the text of a value, and the source would make the same text of it."""
    return is_text(there.upper()) and kind in _SAME_AS_TEXT


def other_members(layout: RowLayout, target: TargetTable, protocol: Protocol) -> str:
    """Return which ENUM and SET columns have members in the files that mean other ones in the target, or none; or an empty text.

    That is where rows have them by number, and where a name is a number: a column takes one that it lacks for a member's number. A
    column that is only carried, since the target lacks it, has no type. Members that the schema file does not list, or that
    the target writes with escapes, count as equal.
    """
    there = {folded_name(c.name): c for c in target.columns}
    sorts = [(c, there[folded_name(c.name)]) for c in layout.columns if c.type in ("ENUM", "SET")]
    numbered = [(c, kept) for c, kept in sorts if wire_kind(c, protocol) is WireKind.UNSIGNED]
    if strange := [c.name for c, kept in numbered if kept.data_type not in ("enum", "set", "")]:
        return (
            f"the files have members of ENUM and SET by their numbers, which the target's columns do not know: {', '.join(strange)}. "
            "Give these columns the source's type there"
        )
    if other := [c.name for c, kept in numbered if _differ(c.elements, members(kept.column_type))]:
        return f"the target's table has other ENUM or SET members in: {', '.join(other)}. {_SAME_MEMBERS}"
    named = [pair for pair in sorts if pair not in numbered]
    lacking = [
        f"{c.name} ({', '.join(numbers)})" for c, kept in named if (numbers := _numbers_lacked(c.elements, kept))
    ]
    return (
        f"the target's ENUM and SET columns would take names for members' numbers: {', '.join(lacking)}. {_SAME_MEMBERS}"
        if lacking
        else ""
    )


def _numbers_lacked(names: Iterable[str], there: TargetColumn) -> list[str]:
    """Return the names that are numbers and that the target's column does not have."""
    known = members(there.column_type)
    return [name for name in names if known and _NUMBER.fullmatch(name) and name.rstrip(" ") not in known]


def members(column_type: str) -> tuple[str, ...]:
    """Return the members of an ENUM or SET as the server writes the type; empty if it writes them with escapes."""
    found = _MEMBERS.fullmatch(column_type)
    return tuple(text.replace("''", "'") for text in re.findall(r"'((?:[^']|'')*)'", found[1])) if found else ()


def _differ(source: tuple[str, ...], target: tuple[str, ...]) -> bool:
    """Return whether a number may mean another member: the target may only have more members after the source's."""
    if not source or not target:
        return False
    # Servers drop trailing spaces of members when a table is created.
    return [name.rstrip(" ") for name in source] != [name.rstrip(" ") for name in target[: len(source)]]


def limits(layout: RowLayout, written: Iterable[int], target: TargetTable) -> tuple[Limit, ...]:
    """Return what to check in rows of this layout; `written`: the indexes of the columns that the target takes."""
    there = {folded_name(c.name): c for c in target.columns}
    found = []
    for place in written:
        column = layout.columns[place]
        if rule := _rule(column, there[folded_name(column.name)]):
            found.append(Limit(place=place, name=column.name, keeps=rule[0], amount=rule[1]))
    return tuple(found)


def narrowed(layout: RowLayout, later: Iterable[TableDefinition]) -> tuple[Limit, ...]:
    """Return what the source itself took from values of this layout when it changed a column and no statement told of it.

    `later`: structures that came after the rows' own without a statement.
    """
    places = {folded_name(column.name): place for place, column in enumerate(layout.columns)}
    found = []
    for definition in later:
        for newer in definition.columns:
            place = places.get(folded_name(newer.name))
            column = newer if place is None else layout.columns[place]
            digits = 0 if newer.type in INTEGER_TYPES else newer.scale or 0
            kind = newer.type.lower()
            length = _BYTES_OF_TEXT.get(kind, newer.precision)
            kept = TargetColumn(name=newer.name, data_type=kind, nullable=True, digits=digits, length=length)
            rules = () if place is None else (_moved(column, newer, layout.zone), _rule(column, kept))
            # Other lengths of bytes are padded, so nothing of them is lost.
            found += [
                Limit(place=place or 0, name=column.name, keeps=rule[0], amount=rule[1], changed_at=definition.version)
                for rule in rules
                if rule and rule[0] != "bytes"
            ]
    return tuple(found)


def _moved(column: TableColumn, newer: TableColumn, zone: str) -> tuple[str, int] | None:
    """Return what is left of the file's text after the source has given its column another type; None if nothing of it changed."""
    # 0.1 in single precision becomes 0.10000000149011612.
    if column.type == "FLOAT" and newer.type in ("DOUBLE", "DECIMAL"):
        return "single", 0
    # The clock of the session that changed the type decides, and only in UTC it is taken to be that of the files.
    other_clock = column.type != newer.type and "TIMESTAMP" in (column.type, newer.type)
    return ("clock", 0) if zone and other_clock else None


def _rule(column: TableColumn, there: TargetColumn) -> tuple[str, int] | None:
    """Return what the target's column keeps; None if it keeps everything or refuses what it cannot hold."""
    kind = there.data_type
    if kind.upper() in INTEGER_TYPES or kind == "decimal" or (kind in _MOMENTS and column.type.lower() in _MOMENTS):
        # A float may have any number of digits after the point, whatever its declaration.
        written = _ANY_DIGITS if column.type in FLOAT_TYPES else column.scale or 0
        return ("digits", there.digits) if there.digits is not None and there.digits < written else None
    if kind == "date":
        return ("midnight", 0) if column.type in ("DATETIME", "TIMESTAMP") else None
    if kind in ("float", "double"):
        return _precision(column, kind)
    return _padding(column, there)


def _precision(column: TableColumn, kind: str) -> tuple[str, int] | None:
    # 0: every value is exact in single precision, with its 24 bits; 1: in double precision, with its 53.
    exact = {"FLOAT": 0, "TINYINT": 0, "SMALLINT": 0, "MEDIUMINT": 0, "DOUBLE": 1, "INT": 1, "YEAR": 0}
    if kind == "float":
        return None if exact.get(column.type, 2) == 0 else ("single", 0)
    return ("double", 0) if column.type in ("DECIMAL", "BIGINT", "BIT") else None


def _padding(column: TableColumn, there: TargetColumn) -> tuple[str, int] | None:
    kind, length = there.data_type, there.length or 0
    if kind == "binary" and column.type in BINARY_TYPES:
        same = column.type == "BINARY" and column.precision == length
        return None if same else ("bytes", length)
    if not is_text(column.type):
        return None
    # White space beyond the length is dropped with a warning only, in strict mode too.
    if kind in ("char", "varchar"):
        shorter = _longest(column) > length > 0
        # A CHAR loses its trailing spaces when it is read.
        unpadded = kind == "char" and column.type != "CHAR"
        return ("unpadded", length) if unpadded else ("blanks", length) if shorter else None
    longest = _longest(column) * (1 if column.type.lower() in _BYTES_OF_TEXT else _BYTES_OF_A_CHARACTER)
    return ("bytes of blanks", length) if kind in _BYTES_OF_TEXT and longest > length > 0 else None


def _longest(column: TableColumn) -> int:
    """Return the length of the longest value: in characters of CHAR and VARCHAR, else in bytes."""
    return _BYTES_OF_TEXT.get(column.type.lower(), column.precision or _BYTES_OF_TEXT["longtext"])


def _is_blank(rest: str) -> bool:
    return bool(rest) and not rest.strip()


def _single(text: str) -> bool:
    number = float(text)
    try:
        return bool(struct.unpack("<f", struct.pack("<f", number))[0] == number)
    except OverflowError:  # the server refuses it
        return True


_KEPT: Mapping[str, tuple[Callable[[str, int], bool], str]] = {
    "digits": (lambda text, kept: _digits(text) <= kept, "more than {} digits after the point"),
    "midnight": (lambda text, _: _MIDNIGHT.fullmatch(text) is not None, "a time of day"),
    "single": (lambda text, _: _single(text), "more than single precision"),
    "double": (lambda text, _: Decimal(repr(float(text))) == Decimal(text), "more than double precision"),
    "bytes": (lambda text, length: len(text) == 2 * length, "a length other than {} bytes"),
    "unpadded": (lambda text, length: not text.endswith(" ") and not _is_blank(text[length:]), "trailing spaces"),
    "blanks": (lambda text, length: not _is_blank(text[length:]), "white space after {} characters"),
    "bytes of blanks": (
        lambda text, length: not _is_blank(text.encode()[length:].decode(errors="ignore")),
        "white space after {} bytes",
    ),
    "clock": (lambda *_: False, "the time of another clock"),
}
"""Whether the target keeps a value as it is, and the description of what it does not keep."""


def _digits(text: str) -> int:
    """Return the number of digits after the point without trailing zeros, without expanding the exponent."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    significant = (whole + fraction).rstrip("0")
    if significant in ("", "-"):
        return 0
    # Trailing zeros of the mantissa, those before the point too: ``1200e-3`` has one digit after the point.
    zeros = len(whole) + len(fraction) - len(significant)
    shift = int(exponent.lstrip("+-0")[:_EXPONENT] or "0")
    return max(0, len(fraction) - zeros - (-shift if exponent.startswith("-") else shift))


def check(values: Values, limits: Iterable[Limit], commit_ts: int = 0) -> None:
    """Raise `ValueError`, naming the column, for a value that the target would silently change, or that the source has changed since.

    `commit_ts`: that of the row.
    """
    for limit in limits:
        text = values[limit.place]
        keeps, what = _KEPT[limit.keeps]
        if text is None or text is ABSENT or keeps(text, limit.amount) or 0 < limit.changed_at <= commit_ts:
            continue
        why = "the target's column does not keep; make the target's table fit what the source holds, then start again"
        if limit.changed_at:
            why = (
                f"the source's column lost when its type changed at {limit.changed_at} ({tso_time(limit.changed_at)}), of which the "
                "files have no statement. Run `storage-consumer table pause`, export the table after that, then run "
                "`storage-consumer load` with --replace"
            )
        raise ValueError(f"column {limit.name}: {text[:40]!r} has {what.format(limit.amount)}, which {why}")
