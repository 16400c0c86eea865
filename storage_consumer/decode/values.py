"""Values by column type: how TiCDC writes them, their wire text, and its one spelling.

Wire text is what goes to the writer: one string per value. It is the same for all protocols if the
target takes the same text, and of one of three kinds if it does not (`WireKind`). One table holds
one entry per column type; a type that is not in it is an error, never a guess.

Exports write values as TiCDC's CSV does, with two exceptions: decimals are numbers without quotes,
and BIT is bytes. Their decoders give the bytes of BIT and of binary columns as hexadecimal digits,
however the file has them.

A `Spelling` is one text for all spellings of a value, for keys whose rows are written in several
ways:
``3.5`` and ``3.500`` are one number, ``2024-01-31`` and ``2024-01-31 00:00:00.000`` one timestamp.
`rows.fitting` decides which form a column needs, if any. A spelling never changes what the target
stores.
A text whose value the target would change stays as it is, and `rows.fitting` refuses it.

TiCDC rendered TIMESTAMP values in some zone. A fixed offset is left to the target's session, which
reads the values in it. Servers need not know zones by name, so values in such a zone become UTC
during decoding, and the session's zone is UTC.
"""

from __future__ import annotations

import binascii
import datetime as dt
import enum
import math
import re
import struct
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from string import ascii_letters, digits
from typing import Literal

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.kernels.arrays import (
    FLOAT_FIELD,
    INTEGER_FIELD,
    UNSIGNED_FIELD,
    YEAR_FIELD,
)
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn

UTC = "+00:00"
_UTC_NAMES = frozenset(("", "UTC", "ETC/UTC", "Z"))
_SESSION_OFFSET = re.compile(r"[-+](?:0\d|1[0-2]):[0-5]\d", re.ASCII)
"""The offsets that every server accepts as a session's zone."""
_ANY_OFFSET = re.compile(r"([-+])(\d\d):(\d\d)", re.ASCII)
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d{1,6})?", re.ASCII)
_ZERO_DATE = "0000-00-00 00:00:00"


def session_zone(zone: str) -> str:
    """Return the session zone, an offset, for TIMESTAMPs in `zone` (empty: not known)."""
    return zone if _SESSION_OFFSET.fullmatch(zone) else UTC


def is_utc(zone: str) -> bool:
    """Return whether TIMESTAMP values of this zone (empty: not known) are those of UTC already."""
    return zone.upper() in _UTC_NAMES or zone == UTC


def converted_zone(zone: str) -> str:
    """Return `zone` if TIMESTAMPs must be converted to UTC; "" if the session's zone serves."""
    # UTC and offsets in the servers' range need no conversion: the session's zone serves.
    return "" if zone.upper() in _UTC_NAMES or _SESSION_OFFSET.fullmatch(zone) else zone


def offset_at(zone: str, milliseconds: int) -> str:
    """Return `zone`'s offset, to the minute, at a time in milliseconds since 1970 UTC."""
    if not converted_zone(zone):
        return session_zone(zone)
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, tz=_zone_info(zone))
    offset = moment.utcoffset() or dt.timedelta()
    # Rounded down, since sessions take no seconds; zones had them before they were standardized.
    minutes = int(offset.total_seconds() // 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def zone_caveat(zone: str) -> str:
    """Return what is ambiguous as `zone` sets clocks back, by one recent year, or ""."""
    if not converted_zone(zone):
        return ""
    months = (dt.datetime(2025, month, 1, tzinfo=_zone_info(zone)) for month in range(1, 13))
    if len({moment.utcoffset() for moment in months}) == 1:
        return ""
    return (
        f"in {zone} an hour occurs twice when the clocks are put back: a TIMESTAMP value in it is read as the first "
        "of the two, because the files do not distinguish them; TiCDC servers that run in UTC (their option --tz) "
        "avoid this"
    )


def utc_of(zone: str, text: str) -> str:
    """Return the time in UTC; a zero date stays. Raise `ValueError` for other texts.

    Offsets count to the second. A wall-clock time that occurred twice, when the clocks were set
    back, is taken for the first of the two: the text does not tell them apart.
    """
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a date and time")
    # Cached by the second: offsets leave the fraction as it is.
    return _utc_second(zone, found[1]) + (found[2] or "")


def from_utc(zone: str, text: str) -> str:
    """Return the time as `zone`'s wall-clock; a zero date stays. Raise `ValueError` for others."""
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a date and time")
    # MySQL's zero date is no date of any calendar, and the same in every zone.
    if found[1] == _ZERO_DATE:
        return text
    moment = dt.datetime.fromisoformat(found[1]).replace(tzinfo=dt.UTC)
    info = dt.UTC if zone.upper() in _UTC_NAMES else _zone_info(zone)
    return moment.astimezone(info).replace(tzinfo=None).isoformat(" ") + (found[2] or "")


def occurs_twice(zone: str, text: str) -> bool:
    """Return whether a wall-clock time of `zone` occurred twice, when the clocks were set back."""
    found = _DATE_TIME.fullmatch(text)
    return found is not None and _is_twofold(zone, found[1])


@lru_cache(maxsize=1 << 15)
def _is_twofold(zone: str, text: str) -> bool:
    if text == _ZERO_DATE or zone.upper() in _UTC_NAMES:
        return False
    # `fold` chooses the second of two equal wall-clock times. It also changes the offset of times
    # that the clocks skipped, which no server writes.
    first = dt.datetime.fromisoformat(text).replace(tzinfo=_zone_info(zone))
    return first.utcoffset() != first.replace(fold=1).utcoffset()


def between(zone: str, into: str, text: str) -> str:
    """Convert a wall-clock time between zones; see `utc_of` and `from_utc`."""
    return from_utc(into, utc_of(zone, text))


def to_session(zone: str, session: str, *, tells_rows: bool = False) -> partial[str]:
    """Return `between` from one zone to that of a session, or `utc_of` where that is UTC.

    `tells_rows`: rows are told apart by the times, so the function raises `ValueError` for one that
    occurred twice.
    """
    convert = partial(utc_of, zone) if session == UTC else partial(between, zone, session)
    return partial(_unless_twofold, zone, convert) if tells_rows else convert


def _unless_twofold(zone: str, convert: Callable[[str], str], text: str) -> str:
    if occurs_twice(zone, text):
        raise ValueError(
            f"{text!r} occurred twice in {zone}, when the clocks were set back, and the column is part of a unique key: the file does "
            "not say which of two rows this is. Load the table anew from a copy that was made after that hour (storage-consumer "
            "load), and let the TiCDC servers run in UTC (their option --tz), where no time occurs twice"
        )
    return convert(text)


@lru_cache(maxsize=1 << 15)
def _utc_second(zone: str, text: str) -> str:
    if text == _ZERO_DATE:
        return text
    # Without `fold`, Python takes the first of two equal wall-clock times.
    local = dt.datetime.fromisoformat(text).replace(tzinfo=_zone_info(zone))
    try:
        return local.astimezone(dt.UTC).replace(tzinfo=None).isoformat(" ")
    except OverflowError as error:
        raise ValueError(f"{text!r} is not a date and time of the calendar in UTC") from error


@lru_cache(maxsize=8)
def _zone_info(zone: str) -> dt.tzinfo:
    fixed = _ANY_OFFSET.fullmatch(zone)
    if fixed is None:
        return zoneinfo.ZoneInfo(zone)
    offset = dt.timedelta(hours=int(fixed[2]), minutes=int(fixed[3]))
    return dt.timezone(-offset if fixed[1] == "-" else offset)


class ValueForm(enum.Enum):
    """The kind of value that is brought to one text."""

    NUMBER = "number"
    """A number by its value: no leading or trailing zeros, no exponent, no negative zero."""
    SINGLE = "single"
    """A number as a single-precision column holds it, if it holds it exactly."""
    NEAREST_SINGLE = "nearest single"
    """A single-precision number: the shortest text that reads back as the same number."""
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
        """Return the one text of this wire text's value; raise `ValueError` for others."""
        if self.form is ValueForm.PADDED:
            # Two hexadecimal digits for each byte.
            return text.ljust(2 * self.length, "0")
        if self.form is ValueForm.MEMBERS:
            chosen = set(text.split(",")) if text else set()
            if not chosen.issubset(self.members):
                # Ignore case only if needed, and only if no two members would become one.
                chosen = {name.casefold() for name in chosen}
                members_of = {name.casefold(): name for name in self.members}
                if len(members_of) < len(self.members) or not chosen <= members_of.keys():
                    raise ValueError(f"{text[:40]!r} has a member that the target's column lacks")
                chosen = {members_of[name] for name in chosen}
            return ",".join(name for name in self.members if name in chosen)
        return _MAKERS[self.form](text)


_PLAIN = 100
"""Digits up to which a number is written without an exponent: more than any DECIMAL has."""
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,9})?", re.ASCII)
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?: ([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?)?", re.ASCII
)
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


def in_single(number: float) -> float:
    """Return the nearest number in single precision; infinity beyond the largest one."""
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    return float(nearest)


def _nearest_single(text: str) -> str:
    nearest = in_single(float(_number(text)))
    # Beyond the largest FLOAT there is no nearest one, so the number keeps its own text.
    return _number(repr(nearest) if math.isfinite(nearest) else text)


def _single(text: str) -> str:
    nearest = _nearest_single(text)
    # A number that no FLOAT holds exactly differs from its neighbour: it keeps its text.
    return nearest if float(nearest) == float(text) else _number(text)


def _moment_parts(text: str) -> tuple[str, str]:
    """Return the date, and the time of day without trailing zeros in the fraction."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a date, with or without a time")
    fraction = (found[3] or "").rstrip("0")
    # A date alone is midnight of that day.
    return found[1], (found[2] or _MIDNIGHT) + (f".{fraction}" if fraction else "")


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


_MAKERS: Mapping[ValueForm, Callable[[str], str]] = {
    ValueForm.NUMBER: _number,
    ValueForm.SINGLE: _single,
    ValueForm.NEAREST_SINGLE: _nearest_single,
    ValueForm.DAY: _day,
    ValueForm.MOMENT: lambda text: " ".join(_moment_parts(text)),
    ValueForm.TIME: _time,
}


Converter = Callable[[str], str]
"""Function from a file's text to wire text; raises ValueError, with the reason."""
BinaryEncoding = Literal["base64", "hex", ""]
"""Empty if no setting gave it and no file has shown it."""


class WireKind(enum.Enum):
    """How the target must take a wire text."""

    TEXT = "text"
    """As a string, which the column type converts."""
    HEX = "hex"
    """Upper-case hexadecimal digits of the bytes, for UNHEX or a hexadecimal literal."""
    UNSIGNED = "unsigned"
    """Decimal digits that must arrive as an integer: a string would be bytes or a member."""


class CsvForm(enum.Enum):
    """The form of a value that is not NULL in a CSV row, with quoting on."""

    BARE = "bare"
    """Never quoted: numbers."""
    PLAIN = "plain"
    """Quoted, and never with a quote inside: what TiCDC formats itself."""
    FREE = "free"
    """Quoted, each quote inside doubled: what a user can type."""


INTEGER = "-?[0-9]{1,20}+"
UNSIGNED_INTEGER = "[0-9]{1,20}+"
YEAR = "[0-9]{1,4}+"
FLOAT = r"-?[0-9]++(?>(?:\.[0-9]++)?)(?>(?:[eE][-+]?+[0-9]++)?)"
"""Go's shortest form with an exponent (CSV) and the plain form without one (canal-json)."""
NUMBER_FIELDS = {
    INTEGER: INTEGER_FIELD,
    UNSIGNED_INTEGER: UNSIGNED_FIELD,
    YEAR: YEAR_FIELD,
    FLOAT: FLOAT_FIELD,
}
"""The names of these forms in compiled loops."""


def year(text: str) -> str:
    """Return a year, with year zero in four digits: as the string ``0`` it would become 2000."""
    return "0000" if text == "0" else text


LARGEST_SINGLE = 3.4028234663852886e38


def single(text: str) -> str:
    """Return a FLOAT in range: servers refuse the largest one's shortest text, 3.4028235e+38."""
    if abs(float(text)) > LARGEST_SINGLE:
        return f"{'-' if text.startswith('-') else ''}{LARGEST_SINGLE!r}"
    return text


def _bytes_of_base64(text: str) -> str:
    try:
        # Strict, since characters that are no digits would otherwise be skipped without an error.
        return binascii.a2b_base64(text, strict_mode=True).hex().upper()
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is not base64: {error}") from error


def _bytes_of_hex(text: str) -> str:
    try:
        binascii.unhexlify(text)
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is not hexadecimal: {error}") from error
    return text.upper()


def _bytes_of_unknown(text: str) -> str:
    """Return empty bytes, the same in any encoding; raise `ValueError` for all else."""
    if text:
        raise ValueError(
            "it is unknown whether its bytes are written as base64 or as hex: give the changefeed's "
            "binary-encoding-method"
        )
    return text


def bytes_of_latin1(text: str) -> str:
    """Return bytes as hexadecimal digits: TiCDC writes each as the code point of its number."""
    try:
        return text.encode("latin-1").hex().upper()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{text[:40]!r} holds code points beyond U+00FF, so it is not a binary value"
        ) from error


def _bits_of_hex(text: str) -> str:
    """Return the number that the bytes of a BIT spell."""
    return str(int(_bytes_of_hex(text) or "0", 16))


def is_base64(convert: Converter | None) -> bool:
    """Return whether a converter turns base64 into hexadecimal digits, and does nothing else."""
    return convert is _bytes_of_base64


def convert_all(convert: Converter, texts: Sequence[str | None]) -> list[str | None]:
    """Convert each text but NULL; raise `ValueError` if one is not a value of the type."""
    return [None if text is None else convert(text) for text in texts]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TypeRule:
    """How values of one column type are written, and what they become."""

    form: CsvForm
    family: str = "number"
    """Within one family a server refuses what its column cannot hold, or `rows.fitting` does."""
    csv_grammar: str = ""
    canal_grammar: str = ""
    csv_kind: WireKind = WireKind.TEXT
    canal_kind: WireKind = WireKind.TEXT
    csv: Converter | None = None
    canal: Converter | None = None
    dump_grammar: str | None = None
    """In exports; None: as in CSV."""


INTEGER_TYPES = frozenset(("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"))
FLOAT_TYPES = frozenset(("FLOAT", "DOUBLE"))
TEXT_TYPES = frozenset(
    ("CHAR", "VARCHAR", "VAR_STRING", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
)
BINARY_TYPES = frozenset(("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"))
"""Column type families as schema files spell them, also for those who only compare types."""

_BINARY = _TypeRule(
    form=CsvForm.PLAIN,
    family="bytes",
    csv_kind=WireKind.HEX,
    canal_kind=WireKind.HEX,
    csv=_bytes_of_base64,
    canal=bytes_of_latin1,
)
IN_FORMATTED = frozenset(f"{ascii_letters}{digits}+-./:= ")
"""What dates, times, decimals, base64 and hexadecimal digits consist of."""
_FREE_TEXT = _TypeRule(form=CsvForm.FREE, family="text")
_FORMATTED = _TypeRule(form=CsvForm.PLAIN, family="moment")
_BITS = _TypeRule(
    form=CsvForm.BARE,
    csv_grammar=UNSIGNED_INTEGER,
    canal_grammar=UNSIGNED_INTEGER,
    csv_kind=WireKind.UNSIGNED,
    canal_kind=WireKind.UNSIGNED,
    dump_grammar="",
)
"""The bits, as a number. A string would be stored as the bytes of its digits."""
_MEMBERS = _TypeRule(
    form=CsvForm.FREE, family="text", canal_grammar=UNSIGNED_INTEGER, canal_kind=WireKind.UNSIGNED
)
"""CSV has the names of the members, canal-json their number."""

_RULES: dict[str, _TypeRule] = {
    **dict.fromkeys(
        INTEGER_TYPES, _TypeRule(form=CsvForm.BARE, csv_grammar=INTEGER, canal_grammar=INTEGER)
    ),
    "BIT": _BITS,
    "YEAR": _TypeRule(
        form=CsvForm.BARE, csv_grammar=YEAR, canal_grammar=YEAR, csv=year, canal=year
    ),
    "FLOAT": _TypeRule(
        form=CsvForm.BARE, csv_grammar=FLOAT, canal_grammar=FLOAT, csv=single, canal=single
    ),
    "DOUBLE": _TypeRule(form=CsvForm.BARE, csv_grammar=FLOAT, canal_grammar=FLOAT),
    "DECIMAL": _TypeRule(form=CsvForm.PLAIN, dump_grammar=FLOAT),
    "DATE": _FORMATTED,
    "DATETIME": _FORMATTED,
    "TIMESTAMP": _FORMATTED,
    "TIME": _TypeRule(form=CsvForm.PLAIN, family="time"),
    **dict.fromkeys(TEXT_TYPES, _FREE_TEXT),
    "JSON": _FREE_TEXT,
    "VECTOR": _FREE_TEXT,
    **dict.fromkeys(BINARY_TYPES, _BINARY),
    "ENUM": _MEMBERS,
    "SET": _MEMBERS,
}


def _rule(column: TableColumn) -> _TypeRule:
    rule = _RULES.get(column.type)
    if rule is None:
        raise NotReplicable(f"column {column.name}: no rule for the column type {column.type}")
    return rule


def is_known(column: TableColumn) -> bool:
    """Return whether the column's type has a rule; without one others raise `NotReplicable`."""
    return column.type in _RULES


def family(kind: str) -> str:
    """Return what a type has values of, empty for one that is not known."""
    rule = _RULES.get(kind)
    return rule.family if rule else ""


def wire_kind(column: TableColumn, protocol: Protocol) -> WireKind:
    """Return how the target must take the column's wire texts."""
    rule = _rule(column)
    return rule.canal_kind if protocol == "canal-json" else rule.csv_kind


def converter(
    column: TableColumn,
    protocol: Protocol,
    *,
    binary_encoding: BinaryEncoding = "base64",
    moved: Converter | None = None,
    spelling: Spelling | None = None,
) -> Converter | None:
    """Return the function from the text in the file to wire text; None if the text stays as it is.

    The text is expected to match `grammar`. `binary_encoding` is TiCDC's
    ``binary-encoding-method``; canal-json has none, and for exports it is how the decoder gives the
    bytes. `moved`: moves a time to the zone of the target's session; `spelling`: see
    `RowLayout.spelling`.
    """
    rule, found = _rule(column), moved
    if moved is None:
        found = rule.canal if protocol == "canal-json" else rule.csv
        # Only CSV and exports have a choice of encodings.
        if rule is _BITS and protocol not in ("canal-json", "csv"):
            # As hexadecimal digits the bytes of base64 spell the number too.
            found = (
                _bits_of_hex
                if binary_encoding != "base64"
                else lambda text: _bits_of_hex(_bytes_of_base64(text))
            )
        elif rule is _BINARY and protocol != "canal-json" and binary_encoding != "base64":
            found = _bytes_of_hex if binary_encoding else _bytes_of_unknown
    # First the target's value, then its spelling: a spelling knows wire texts only.
    if spelling is None or found is None:
        return found if spelling is None else spelling.spell
    convert = found
    return lambda text: spelling.spell(convert(text))


def grammar(column: TableColumn, protocol: Protocol) -> str:
    """Return the pattern, without groups, of a value before conversion; empty: any text."""
    rule = _rule(column)
    if protocol == "canal-json":
        return rule.canal_grammar
    return rule.csv_grammar if protocol == "csv" or rule.dump_grammar is None else rule.dump_grammar


def holds_bytes(column: TableColumn) -> bool:
    """Return whether an export has the column's values as bytes."""
    return _rule(column) is _BINARY or _rule(column) is _BITS


def csv_form(column: TableColumn, quote: str = "") -> CsvForm:
    """Return a column's form in CSV with this quote; empty: with one not in `IN_FORMATTED`."""
    form = _rule(column).form
    return CsvForm.FREE if form is CsvForm.PLAIN and quote in IN_FORMATTED else form
