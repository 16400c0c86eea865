"""Whether the target's columns take the source's values: silent changes, and keys' forms.

The table is what its information_schema shows.

Strict mode makes a server refuse a value that it cannot hold, but not one that it rounds: digits
after the point, fractions of a second, single precision, padding. The target has the source's
structure unless someone changed it, so these checks cost nothing if nobody did.

The rows of a commit range may come from directories of different structures without a DDL between
them that would end the commit range: an event filter of the changefeed removed the statement, and
only a schema file shows the new structure. Then one key is ``3.5`` in one directory and ``3.500``
in the next.
Keys are compared as texts wherever a commit range is folded and cut into buckets, so each key is
spelled in the one form that the *target's* type gives it. `_TABLE` decides this, by target and
source. What is not in it has no known form, and the rows of such a directory halt the table. If all
directories write a column in one form, nothing is spelled and nothing costs more.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeVar

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.decoder import ABSENT, RowLayout, Values
from storage_consumer.decode.values import (
    BINARY_TYPES,
    FLOAT_TYPES,
    INTEGER_TYPES,
    TEXT_TYPES,
    Spelling,
    ValueForm,
    WireKind,
    family,
    in_single,
    wire_kind,
)
from storage_consumer.model import TableColumn, TableDefinition, TableName, VersionKey, folded_name
from storage_consumer.telemetry import tso_time


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetColumn:
    """A column as the target's information_schema shows it."""

    name: str
    data_type: str
    """Lower-case base type."""
    nullable: bool
    generated: str = ""
    """``VIRTUAL``, ``STORED`` or empty."""
    binary_collation: bool = True
    """Whether equality is by code point, or the type has no collation."""
    pads: bool = False
    """Whether comparisons ignore trailing spaces."""
    collation: str = ""
    """Name of the collation; empty if the type has none."""
    digits: int | None = None
    """Digits after the point, or of fractions of a second; None if the type has none."""
    length: int | None = None
    """Longest value in characters (bytes for binary types); None if the type has none."""
    column_type: str = ""
    """The type as the server writes it: ``enum('a','b')``."""

    @property
    def beyond_bmp(self) -> bool:
        """Whether the collation weighs characters above U+FFFF, as those since Unicode 5 do."""
        return any(age in self.collation for age in ("_520_", "_0900_", "uca1400_"))


Column = TypeVar("Column", TableColumn, TargetColumn)


def by_name(columns: Iterable[Column]) -> dict[str, Column]:
    """Return columns by folded name."""
    return {folded_name(column.name): column for column in columns}


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueKey:
    """A unique index of the target; never one with a part over an expression."""

    name: str
    columns: tuple[str, ...]
    prefixes: tuple[int | None, ...]
    """Per column, the indexed leading characters (bytes for binary types); None means all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """A table as the target's information_schema shows it."""

    name: TableName
    """The name as the target spells it."""
    columns: tuple[TargetColumn, ...]
    unique_keys: tuple[UniqueKey, ...]
    """The unique keys, the primary key first if there is one."""
    expression_keys: tuple[str, ...] = ()
    """What each unique index with a part over an expression is over, as the server shows it."""
    indexes: int = 0
    """How many indexes it has, unique or not."""
    key_drift: str = ""
    """What others added to its unique keys since our last statement; empty if nothing."""
    unseen: str = ""
    """What to do if the table exists but its columns are not shown; empty if they are."""
    is_view: bool = False
    """Whether it is a view, so that rows written to it would go into other tables."""
    is_planned: bool = False
    """Whether planned statements make it: then only its and its columns' names are known."""

    @property
    def virtual(self) -> frozenset[str]:
        """Folded names of the virtual generated columns."""
        return frozenset(folded_name(c.name) for c in self.columns if c.generated == "VIRTUAL")


_MOMENTS = frozenset(("datetime", "timestamp", "time"))
_TAKES_ONLY = {"bit": "BIT", "year": "YEAR", "enum": "ENUM", "set": "SET", "vector": "VECTOR"}
"""Target types that read the text of another type as something else.

The text 5 is the byte 0x35 to BIT, 2005 to YEAR, and the fifth member to ENUM.
"""
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
"""The shortest first."""
_SAME_AS_TEXT = INTEGER_TYPES | {"DECIMAL", "DATE", "DATETIME", "TIME"}
_MEMBERS = re.compile(r"(?:enum|set)\(('(?:[^'\\]|'')*'(?:,'(?:[^'\\]|'')*')*)\)", re.IGNORECASE)
"""A column type whose members are written without backslashes."""
_NUMBER = re.compile(r"\s*[-+]?\d+\s*", re.ASCII)
_SAME_MEMBERS = (
    "Give them the source's members there, in the source's order; if the source changed them and the files have no statement of "
    "that, load the table anew"
)
BYTES_OF_A_CHARACTER = 4
"""At most."""
_BYTES_OF_TEXT = {
    "tinytext": 255,
    "text": 65_535,
    "mediumtext": 16_777_215,
    "longtext": 4_294_967_295,
}
"""Most bytes of a value, by type."""
_ANY_DIGITS = 400
_EXPONENT = 18
"""Most digits of an exponent to read: with more the value exceeds any column anyway."""
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
    """Commit-ts at which the source's column was narrowed without a statement; 0: the target's is.
    """


def other_families(
    layout: RowLayout, target: TargetTable, become_texts: Collection[str] = ()
) -> str:
    """Return columns that silently change texts like ``007`` in the target; or "".

    `become_texts`: folded names of columns that are texts in other directories of the commit range,
    which a number may go with.
    """
    there = {folded_name(c.name): c.data_type for c in target.columns}
    other = []
    for column in layout.columns:
        name, kind = folded_name(column.name), column.type
        kept = there[name]
        # The same type, or one that reads the values as what they are, or refuses them. A column
        # without a type is only carried. Types of which nothing is known here, such as INET6 and
        # UUID, may write a text anew.
        is_taken = kept in {"", kind.lower()} or (
            family(kept.upper()) == family(kind) and _TAKES_ONLY.get(kept, kind) == kind
        )
        if not is_taken and not (name in become_texts and is_its_text(kept, kind)):
            other.append(f"{column.name} is {kept} in the target, {kind} at the source")
    return f"the target's table has columns of another type: {', '.join(other)}" if other else ""


def is_its_text(there: str, kind: str) -> bool:
    """Return whether the target's column keeps a value's text, as the source would."""
    return there.upper() in TEXT_TYPES and kind in _SAME_AS_TEXT


def other_members(layout: RowLayout, target: TargetTable, protocol: Protocol) -> str:
    """Return ENUM and SET columns whose members mean others in the target, or none; or "".

    That is where rows have them by number, and where a name that the target's column lacks passes
    for another member (`_mistaken`). A column that is only carried, since the target lacks it, has
    no type. Members that the schema file does not list, or that the target writes with escapes,
    count as equal.
    """
    there = by_name(target.columns)
    sorts = [(c, there[folded_name(c.name)]) for c in layout.columns if c.type in ("ENUM", "SET")]
    numbered = [(c, kept) for c, kept in sorts if wire_kind(c, protocol) is WireKind.UNSIGNED]
    if strange := [c.name for c, kept in numbered if kept.data_type not in ("enum", "set", "")]:
        return (
            f"the files have members of ENUM and SET by their numbers, which the target's columns do not know: {', '.join(strange)}. "
            "Give these columns the source's type there"
        )
    # A number may mean another member, unless the target only has more of them after the source's.
    pairs = [
        (c.name, _unpadded(c.elements), _unpadded(members(kept.column_type)))
        for c, kept in numbered
    ]
    if other := [
        name for name, own, theirs in pairs if own and theirs and own != theirs[: len(own)]
    ]:
        return f"the target's table has other ENUM or SET members in: {', '.join(other)}. {_SAME_MEMBERS}"
    named = [pair for pair in sorts if pair not in numbered]
    mistaken = [
        f"{c.name} ({', '.join(names)})" for c, kept in named if (names := _mistaken(c, kept))
    ]
    return (
        f"the target's ENUM and SET columns lack members, and would take their names for others: {', '.join(mistaken)}. {_SAME_MEMBERS}"
        if mistaken
        else ""
    )


def _mistaken(column: TableColumn, there: TargetColumn) -> list[str]:
    """Return members that the target's column lacks and silently takes for others.

    Those are numbers of its members, and names that its collation may find equal to one of them.
    """
    known = members(there.column_type)
    most = len(known) if column.type == "ENUM" else 2 ** len(known) - 1
    numbers = range(int(column.type == "ENUM"), most + 1) if known else range(0)
    alike = set() if there.binary_collation else {_base_letters(name) for name in known}
    lacking = [name for name in column.elements if name.rstrip(" ") not in known]
    return [
        name
        for name in lacking
        if (_NUMBER.fullmatch(name) and int(name) in numbers) or _base_letters(name) in alike
    ]


def _unpadded(names: Iterable[str]) -> list[str]:
    # Servers drop trailing spaces of members when a table is created.
    return [name.rstrip(" ") for name in names]


def _base_letters(name: str) -> str:
    decomposed = unicodedata.normalize("NFKD", name.rstrip(" ").casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def members(column_type: str) -> tuple[str, ...]:
    """Return an ENUM's or SET's members as the server writes them; empty if with escapes."""
    found = _MEMBERS.fullmatch(column_type)
    return (
        tuple(text.replace("''", "'") for text in re.findall(r"'((?:[^']|'')*)'", found[1]))
        if found
        else ()
    )


def limits(layout: RowLayout, written: Iterable[int], target: TargetTable) -> tuple[Limit, ...]:
    """Return what to check in rows; `written`: indexes of the columns that the target takes."""
    there = by_name(target.columns)
    found = []
    for place in written:
        column = layout.columns[place]
        rules = _rules(column, there[folded_name(column.name)])
        found += [
            Limit(place=place, name=column.name, keeps=keeps, amount=amount)
            for keeps, amount in rules
        ]
    return tuple(found)


def narrowed(layout: RowLayout, later: Iterable[TableDefinition]) -> tuple[Limit, ...]:
    """Return what a column change without statement took from values at the source.

    `later`: structures that came after the rows' own without a statement.
    """
    places = layout.places
    found = []
    for definition in later:
        for newer in definition.columns:
            place, kind = places.get(folded_name(newer.name)), newer.type.lower()
            if place is None:
                continue
            column = layout.columns[place]
            digits = (
                0
                if newer.type in INTEGER_TYPES
                else newer.scale or (None if newer.type in FLOAT_TYPES else 0)
            )
            length = _BYTES_OF_TEXT.get(kind, newer.precision)
            kept = TargetColumn(
                name=newer.name, data_type=kind, nullable=True, digits=digits, length=length
            )
            # What is left of the file's text: 0.1 in single precision becomes 0.10000000149011612.
            moved = (
                ["nearest"]
                if column.type == "FLOAT" and newer.type in ("DOUBLE", "DECIMAL")
                else []
            )
            # The clock of the session that changed the type decides. Where no zone is converted, it
            # is taken to be that of the files.
            if (
                layout.zone
                and column.type != newer.type
                and "TIMESTAMP" in (column.type, newer.type)
            ):
                moved.append("clock")
            found += [
                Limit(place=place, name=column.name, keeps=keeps, changed_at=definition.version)
                for keeps in moved
            ]
            # Other lengths of bytes are padded, so nothing of them is lost.
            found += [
                Limit(
                    place=place,
                    name=column.name,
                    keeps=keeps,
                    amount=amount,
                    changed_at=definition.version,
                )
                for keeps, amount in _rules(column, kept)
                if keeps != "bytes"
            ]
    return tuple(found)


def _rules(column: TableColumn, there: TargetColumn) -> Iterator[tuple[str, int]]:
    """Yield what the target's column keeps, if it neither keeps all nor refuses the rest."""
    kind, is_float, length = (
        there.data_type,
        there.data_type in ("float", "double"),
        there.length or 0,
    )
    # FLOAT(7,2) rounds too.
    if (
        kind.upper() in INTEGER_TYPES
        or kind == "decimal"
        or is_float
        or (kind in _MOMENTS and column.type.lower() in _MOMENTS)
    ):
        # A float may have any number of digits after the point, unless it is declared with some.
        written = _ANY_DIGITS if column.type in FLOAT_TYPES else column.scale or 0
        is_same = is_float and column.scale == there.digits
        if there.digits is not None and there.digits < written and not is_same:
            yield "digits", there.digits
    if kind == "date" and column.type in ("DATETIME", "TIMESTAMP"):
        yield "midnight", 0
    # Every other type has values not exact in 24 bits, or in the 53 of double precision.
    if kind == "float" and column.type not in ("FLOAT", "TINYINT", "SMALLINT", "MEDIUMINT", "YEAR"):
        yield "single", 0
    if kind == "double" and column.type in ("DECIMAL", "BIGINT", "BIT"):
        yield "double", 0
    keeps_length = column.type == "BINARY" and column.precision == length
    if kind == "binary" and column.type in BINARY_TYPES and not keeps_length:
        yield "bytes", length
    # White space beyond the length is dropped with a warning only, in strict mode too.
    elif kind in ("char", "varchar") and column.type in TEXT_TYPES:
        # A CHAR loses its trailing spaces when it is read.
        if kind == "char" and column.type != "CHAR":
            yield "unpadded", length
        elif _longest(column) > length > 0:
            yield "blanks", length
    elif kind in _BYTES_OF_TEXT and column.type in TEXT_TYPES:
        most = _longest(column) * (
            1 if column.type.lower() in _BYTES_OF_TEXT else BYTES_OF_A_CHARACTER
        )
        if most > length > 0:
            yield "bytes of blanks", length


def is_lossy(column: TableColumn, there: TargetColumn) -> bool:
    """Return whether the target's column cannot hold each value of the source's as it is."""
    if column.type.lower() in _INTEGERS and there.data_type in _INTEGERS:
        return _INTEGERS.index(there.data_type) < _INTEGERS.index(column.type.lower())
    if column.type in TEXT_TYPES and not (
        column.precision or column.type.lower() in _BYTES_OF_TEXT
    ):
        return False
    shorter = column.type in TEXT_TYPES and 0 < (there.length or 0) < _longest(column)
    return shorter or any(True for _ in _rules(column, there))


def _longest(column: TableColumn) -> int:
    """Return the length of the longest value: in characters of CHAR and VARCHAR, else in bytes."""
    return _BYTES_OF_TEXT.get(column.type.lower(), column.precision or _BYTES_OF_TEXT["longtext"])


def _is_blank(rest: str) -> bool:
    return bool(rest) and not rest.strip()


def _single(text: str) -> bool:
    number = float(text)
    # One that is beyond single precision the server refuses.
    return in_single(number) in (number, math.inf, -math.inf)


_KEPT: Mapping[str, tuple[Callable[[str, int], bool], str]] = {
    "digits": (lambda text, kept: _digits(text) <= kept, "more than {} digits after the point"),
    "midnight": (lambda text, _: _MIDNIGHT.fullmatch(text) is not None, "a time of day"),
    "single": (lambda text, _: _single(text), "more than single precision"),
    "nearest": (lambda text, _: _single(text), "digits that single precision only comes near"),
    "double": (
        lambda text, _: Decimal(repr(float(text))) == Decimal(text),
        "more than double precision",
    ),
    "bytes": (lambda text, length: len(text) == 2 * length, "a length other than {} bytes"),
    "unpadded": (
        lambda text, length: not text.endswith(" ") and not _is_blank(text[length:]),
        "trailing spaces, or white space after {} characters",
    ),
    "blanks": (
        lambda text, length: not _is_blank(text[length:]),
        "white space after {} characters",
    ),
    "bytes of blanks": (
        lambda text, length: not _is_blank(text.encode()[length:].decode(errors="ignore")),
        "white space after {} bytes",
    ),
    "clock": (lambda text, _: text.startswith("0000-00-00"), "the time of another clock"),
}
"""Whether the target keeps a value as it is, and the description of what it does not keep."""


def _digits(text: str) -> int:
    """Return the digits after the point, without trailing zeros or expanding the exponent."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    significant = (whole + fraction).rstrip("0")
    if significant in ("", "-"):
        return 0
    # Trailing zeros of the mantissa, also before the point: ``1200e-3`` has one digit after it.
    zeros = len(whole) + len(fraction) - len(significant)
    shift = int(exponent.lstrip("+-0")[:_EXPONENT] or "0")
    return max(0, len(fraction) - zeros - (-shift if exponent.startswith("-") else shift))


def check(values: Values, limits: Iterable[Limit], commit_ts: int = 0) -> None:
    """Raise `ValueError`, naming the column, for a value that target or source would change.

    `commit_ts`: that of the row.
    """
    for limit in limits:
        text = values[limit.place]
        keeps, what = _KEPT[limit.keeps]
        if (
            text is None
            or text is ABSENT
            or keeps(text, limit.amount)
            or 0 < limit.changed_at <= commit_ts
        ):
            continue
        why = "the target's column does not keep; make the target's table fit what the source holds, then start again"
        if limit.changed_at:
            why = (
                f"the source's column has no longer since its type changed at {limit.changed_at} ({tso_time(limit.changed_at)}), of which the "
                "files have no statement. Run `storage-consumer table pause`, export the table after that, then run "
                "`storage-consumer load` with --replace"
            )
        raise ValueError(
            f"column {limit.name}: {text[:40]!r} has {what.format(limit.amount)}, which {why}"
        )


_AS_WRITTEN = None
_BYTES = BINARY_TYPES - {"BINARY"}  # its values are padded
_ZONED = "TIMESTAMP"

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
"""Target type → how its keys are compared. A type that is not here takes values of its namesake
only.

YEAR and BIT read a text as something other than the number in it.
"""

_TABLE: Mapping[str, Mapping[str, ValueForm | None]] = {
    # Numbers are equal by value; `_rules` refuses what the column would round.
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
    "moment": {
        "DATE": ValueForm.MOMENT,
        "DATETIME": ValueForm.MOMENT,
        "TIMESTAMP": ValueForm.MOMENT,
    },
    "day": {"DATE": _AS_WRITTEN, "DATETIME": ValueForm.DAY, "TIMESTAMP": ValueForm.DAY},
    "time": {"TIME": ValueForm.TIME},
    # The source turns these values into the very texts in the files, but a FLOAT, a TIMESTAMP or
    # YEAR zero into others.
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

    `columns`: the column in each directory's schema file. `newest`: the column in the current
    structure. `zone`: see `RowLayout.zone`. `is_key`: each row is compared by it; otherwise its
    values are parts of rows that are compared whole.
    """
    forms = {_written_form(column) for column in (*columns.values(), newest)}
    place = _PLACES.get(there.data_type, there.data_type)
    # CSV names the members of a SET in the order of its directory's structure, and the target may
    # have another order.
    by_name = is_key and place == "set" and wire_kind(newest, protocol) is WireKind.TEXT
    reordered = by_name and any(
        column.elements != members(there.column_type) for column in columns.values()
    )
    if len(forms) == 1 and not reordered:
        return KeyForms()
    unknown = {
        version: _NO_FORM.format(newest.name, column.type, newest.type, why)
        for version, column in columns.items()
        if (why := _unknown(column, newest, place, forms, zone))
    }
    spellings: dict[VersionKey, Spelling] = {}
    for version, column in columns.items():
        form = None if version in unknown else _TABLE.get(place, {}).get(_sort(column))
        if form is ValueForm.MEMBERS:
            spelling = _of_members(column, there, protocol)
        else:
            # The target's length, since its padding is what a key is compared with.
            length = (there.length or 0) if form is ValueForm.PADDED else 0
            spelling = None if form is None else Spelling(form, length=length)
        spellings |= {} if spelling is None else {version: spelling}
    return KeyForms(spellings, unknown)


def lasting_form(
    column: TableColumn, there: TargetColumn, protocol: Protocol
) -> tuple[Spelling | None, bool]:
    """Return the one form of a column's values over all commit ranges, and whether there is one.

    Within a commit range one form is needed only where directories differ; here the directories of
    later ones are not known yet. A number in single or double precision has no such form: its text
    depends on the type that it came from.
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
    """Return what all source types have in common that write a value alike."""
    kind = column.type
    if kind in INTEGER_TYPES:
        return "INTEGER"
    return "TEXT" if kind in TEXT_TYPES else "BYTES" if kind in _BYTES else kind


def _written_form(column: TableColumn) -> tuple[str, int]:
    """Return what is equal for columns that write values alike, as far as schema files show."""
    sort = _sort(column)
    # The scale shows in how many digits are written; a BINARY is padded to its length.
    detail = column.precision if sort == "BINARY" else column.scale if sort in _SCALED else 0
    return sort, detail or 0


_SCALED = frozenset(("DECIMAL", "DATETIME", "TIMESTAMP", "TIME"))


def _of_members(column: TableColumn, there: TargetColumn, protocol: Protocol) -> Spelling | None:
    # A number of members has one text already.
    by_name = wire_kind(column, protocol) is WireKind.TEXT
    return Spelling(ValueForm.MEMBERS, members=members(there.column_type)) if by_name else None


def _unknown(
    column: TableColumn, newest: TableColumn, place: str, forms: set[tuple[str, int]], zone: str
) -> str:
    """Return why these values have no form comparable with the current ones; "" if they have."""
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
