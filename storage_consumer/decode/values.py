"""Values by column type: how TiCDC writes them, and the wire text that they become.

Wire text is what goes to the writer: one string per value. It is the same for all protocols if the target takes the
same text, and of one of three kinds if it does not (`WireKind`). One table holds one entry per column type; a type that
is not in it is an error, never a guess.

Exports write values as TiCDC's CSV does, with two exceptions: decimals are numbers without quotes, and BIT is bytes. Their
decoders give the bytes of BIT and of binary columns as hexadecimal digits, however the file has them.
"""

from __future__ import annotations

import binascii
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Literal

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.canonical_text import Spelling
from storage_consumer.errors import NotReplicable
from storage_consumer.kernels.arrays import FLOAT_FIELD, INTEGER_FIELD, UNSIGNED_FIELD, YEAR_FIELD
from storage_consumer.model import TableColumn

Converter = Callable[[str], str]
"""Function from the text in the file to wire text; it raises ValueError, with the reason, for text that is not a value of the type."""
BinaryEncoding = Literal["base64", "hex", ""]
"""Empty if no setting gave it and no file has shown it."""


class WireKind(enum.Enum):
    """How the target must take a wire text."""

    TEXT = "text"
    """As a string, which the column type converts."""
    HEX = "hex"
    """Upper-case hexadecimal digits of the bytes, for UNHEX or a hexadecimal literal."""
    UNSIGNED = "unsigned"
    """Decimal digits that must arrive as an integer: a string would be taken for bytes or for a member's name."""


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
NUMBER_FIELDS = {INTEGER: INTEGER_FIELD, UNSIGNED_INTEGER: UNSIGNED_FIELD, YEAR: YEAR_FIELD, FLOAT: FLOAT_FIELD}
"""The names of these forms in compiled loops."""


def year(text: str) -> str:
    """Return a year, with year zero in four digits: as the string ``0`` it would become 2000."""
    return "0000" if text == "0" else text


LARGEST_SINGLE = 3.4028234663852886e38


def single(text: str) -> str:
    """Return a FLOAT in range: the shortest text of the largest one, 3.4028235e+38, slightly exceeds it, and servers refuse it."""
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
    """Return empty bytes, which are the same either way; raise `ValueError` for all else, which needs the setting."""
    if text:
        raise ValueError(
            "it is unknown whether its bytes are written as base64 or as hex: give the changefeed's "
            "binary-encoding-method"
        )
    return text


def bytes_of_latin1(text: str) -> str:
    """Return the hexadecimal digits of bytes: TiCDC writes each byte as the code point of the same number."""
    try:
        return text.encode("latin-1").hex().upper()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text[:40]!r} holds code points beyond U+00FF, so it is not a binary value") from error


def _bits_of_hex(text: str) -> str:
    """Return the number that the bytes of a BIT spell."""
    return str(int(_bytes_of_hex(text) or "0", 16))


def _bits_of_base64(text: str) -> str:
    return _bits_of_hex(_bytes_of_base64(text))


def is_base64(convert: Converter | None) -> bool:
    """Return whether a converter turns base64 into hexadecimal digits, and does nothing else."""
    return convert is _bytes_of_base64


def convert_all(convert: Converter, texts: Sequence[str | None]) -> list[str | None]:
    """Return each text converted; NULL stays. Raise `ValueError` if a text is not a value of the type."""
    return [None if text is None else convert(text) for text in texts]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """How values of one column type are written, and what they become."""

    form: CsvForm
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
TEXT_TYPES = frozenset(("CHAR", "VARCHAR", "VAR_STRING", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"))
BINARY_TYPES = frozenset(("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"))
"""Families of column types, as schema files spell them: also for those who ask no more than what a type is like."""

_BINARY = _Rule(
    form=CsvForm.PLAIN,
    csv_kind=WireKind.HEX,
    canal_kind=WireKind.HEX,
    csv=_bytes_of_base64,
    canal=bytes_of_latin1,
)
IN_FORMATTED = frozenset(f"{ascii_letters}{digits}+-./:= ")
"""What dates, times, decimals, base64 and hexadecimal digits consist of."""
_FREE_TEXT = _Rule(form=CsvForm.FREE)
_FORMATTED = _Rule(form=CsvForm.PLAIN)
_BITS = _Rule(
    form=CsvForm.BARE,
    csv_grammar=UNSIGNED_INTEGER,
    canal_grammar=UNSIGNED_INTEGER,
    csv_kind=WireKind.UNSIGNED,
    canal_kind=WireKind.UNSIGNED,
    dump_grammar="",
)
"""The bits, as a number. A string would be stored as the bytes of its digits."""
_MEMBERS = _Rule(form=CsvForm.FREE, canal_grammar=UNSIGNED_INTEGER, canal_kind=WireKind.UNSIGNED)
"""CSV has the names of the members, canal-json their number."""

_RULES: dict[str, _Rule] = {
    **dict.fromkeys(INTEGER_TYPES, _Rule(form=CsvForm.BARE, csv_grammar=INTEGER, canal_grammar=INTEGER)),
    "BIT": _BITS,
    "YEAR": _Rule(form=CsvForm.BARE, csv_grammar=YEAR, canal_grammar=YEAR, csv=year, canal=year),
    "FLOAT": _Rule(form=CsvForm.BARE, csv_grammar=FLOAT, canal_grammar=FLOAT, csv=single, canal=single),
    "DOUBLE": _Rule(form=CsvForm.BARE, csv_grammar=FLOAT, canal_grammar=FLOAT),
    "DECIMAL": _Rule(form=CsvForm.PLAIN, dump_grammar=FLOAT),
    "DATE": _FORMATTED,
    "DATETIME": _FORMATTED,
    "TIMESTAMP": _FORMATTED,
    "TIME": _FORMATTED,
    **dict.fromkeys(TEXT_TYPES, _FREE_TEXT),
    "JSON": _FREE_TEXT,
    "VECTOR": _FREE_TEXT,
    **dict.fromkeys(BINARY_TYPES, _BINARY),
    "ENUM": _MEMBERS,
    "SET": _MEMBERS,
}


def _rule(column: TableColumn) -> _Rule:
    rule = _RULES.get(column.type)
    if rule is None:
        raise NotReplicable(f"column {column.name}: no rule for the column type {column.type}")
    return rule


def is_known(column: TableColumn) -> bool:
    """Return whether there is a rule for the column's type; without one the other functions raise `NotReplicable`."""
    return column.type in _RULES


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

    The text is expected to match `grammar`. `binary_encoding` is TiCDC's ``binary-encoding-method``; canal-json has
    none, and for exports it is how the decoder gives the bytes. `moved`, `spelling`: see `RowLayout.moving` and `RowLayout.spelling`.
    """
    found = moved or _converter(column, protocol, binary_encoding)
    # First the value as the target takes it, then its one spelling: a spelling knows wire texts only.
    if spelling is None or found is None:
        return found if spelling is None else spelling.spell
    convert = found
    return lambda text: spelling.spell(convert(text))


def _converter(column: TableColumn, protocol: Protocol, binary_encoding: BinaryEncoding) -> Converter | None:
    """Return `converter` without a zone and a spelling."""
    rule = _rule(column)
    if protocol == "canal-json":
        return rule.canal
    if rule is _BITS and protocol != "csv":
        return _bits_of_base64 if binary_encoding == "base64" else _bits_of_hex
    # canal-json was handled above: only CSV and exports have a choice of encodings.
    if rule is _BINARY and binary_encoding != "base64":
        return _bytes_of_hex if binary_encoding else _bytes_of_unknown
    return rule.csv


def grammar(column: TableColumn, protocol: Protocol) -> str:
    """Return the regular expression, without groups, that a value's text must match before conversion; empty: any text."""
    rule = _rule(column)
    if protocol == "canal-json":
        return rule.canal_grammar
    return rule.csv_grammar if protocol == "csv" or rule.dump_grammar is None else rule.dump_grammar


def holds_bytes(column: TableColumn) -> bool:
    """Return whether an export has the column's values as bytes."""
    return _rule(column) is _BINARY or _rule(column) is _BITS


def csv_form(column: TableColumn, quote: str = "") -> CsvForm:
    """Return the form of the column's values in a CSV row with this quote; empty: with one that is not in `IN_FORMATTED`."""
    form = _rule(column).form
    return CsvForm.FREE if form is CsvForm.PLAIN and quote in IN_FORMATTED else form
