"""Canonical forms: the SQL expression that shows a value of a type in the same way on every kind of server.

Each form is injective: two values that differ have different texts on one server. So checksums over forms never hide a difference.
Where two kinds of servers show one value differently all the same, rows are fetched and `Form.normal` brings both to one form.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from storage_consumer.verifying.side import ColumnShape

Normal = Callable[[bytes], bytes]
FEW_BYTES = 256
"""Bytes of a wide value that are fetched as they are; of a longer one its beginning, its length and its hash."""
BEGINNING = 64
"""Characters of a longer one, or its bytes."""


def _same(value: bytes) -> bytes:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How the values of a column are compared; ``{}`` stands for the column."""

    summed: str
    """Expression for checksums: a text in utf8mb4, or bytes."""
    fetched: str
    """Expression for rows that are fetched."""
    normal: Normal = _same
    """Brings a fetched value to the form in which it is compared."""
    is_plain: bool = False
    """Whether its texts are of digits, signs and blanks alone, so that a semicolon can end them."""
    is_wide: bool = False
    """Whether a value may be large: then its hash is compared, and its beginning is fetched to be shown."""
    is_binary: bool = False
    """Whether its beginning is one of bytes, not of characters."""
    beginning: str = ""
    """Expression for the text whose beginning is shown of a longer value; empty where that is `fetched`."""
    charset: str = ""
    """The character set, where its bytes may be no character: then `no_text` reads what is shown in their place."""


_TEXT = "CONVERT({} USING utf8mb4)"
_SHOWN = Form(summed="CAST({} AS CHAR)", fetched="CAST({} AS CHAR)", is_plain=True)
_OTHER = Form(summed="CAST({} AS CHAR)", fetched="CAST({} AS CHAR)")
# TiDB shows no ZEROFILL, and MySQL and MariaDB do.
_SIGNED = Form(summed="CAST({} AS SIGNED)", fetched="CONCAT(CAST({} AS SIGNED))", is_plain=True)
_UNSIGNED = Form(summed="CAST({} AS UNSIGNED)", fetched="CONCAT(CAST({} AS UNSIGNED))", is_plain=True)
_BYTES = Form(summed="{}", fetched="{}")
_CHARACTERS = Form(summed=_TEXT, fetched=_TEXT)
# What a server stores behind the last character of a CHAR is not part of the value.
_PADDED = Form(summed=f"TRIM(TRAILING ' ' FROM {_TEXT})", fetched=f"TRIM(TRAILING ' ' FROM {_TEXT})")
_LONG = Form(summed=_TEXT, fetched=_TEXT, is_wide=True)
_BLOB = Form(summed="{}", fetched="{}", is_wide=True, is_binary=True)
_TEXTS = (_CHARACTERS, _PADDED, _LONG)

# Servers write large and small numbers differently (1e15, 1000000000000000), and not each of them writes -0. So: the sign, the digits
# without zeros around them, and the power of ten, rounded. Of the same digits two powers of ten differ by one at least.
_ZERO = "IF(ATAN2({}, -1) < 0, '-0', '0')"
_DIGITS = (
    "TRIM(BOTH '0' FROM REPLACE(REPLACE(SUBSTRING_INDEX(LOWER(CAST({shown} AS CHAR)), 'e', 1), '.', ''), '-', ''))"
)
_NUMBER = f"CASE WHEN {{}} = 0 THEN {_ZERO} ELSE CONCAT(IF({{}} < 0, '-', ''), {_DIGITS}, 'e', ROUND(LOG10(ABS({{}}))) + 0) END"
_NUMBER_IN_FULL = f"CASE WHEN {{}} = 0 THEN {_ZERO} ELSE CAST({{shown}} AS CHAR) END"
# MySQL shows all digits of a DOUBLE column, but of an expression only what has room in 22 characters, which a sign may take.
# Of a FLOAT column it shows six, and MariaDB as well.
_OF_DOUBLE, _OF_FLOAT = "{}", "ABS({}) + 0e0"


def _double(value: bytes) -> bytes:
    return struct.pack(">d", float(value))


def _single(value: bytes) -> bytes:
    try:
        return struct.pack(">f", float(value))
    except OverflowError:
        return struct.pack(">d", float(value))


def _floating(shown: str, normal: Normal) -> Form:
    """Return the form of a floating-point column; `shown`: the expression that shows its digits."""
    signed = shown.replace("ABS({})", "{}")
    summed, fetched = _NUMBER.replace("{shown}", shown), _NUMBER_IN_FULL.replace("{shown}", signed)
    return Form(summed=summed, fetched=fetched, normal=normal, is_plain=True)


def _json(value: bytes) -> bytes:
    try:
        document = _plain(json.loads(value, object_pairs_hook=_members))
        return json.dumps(document, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):  # no JSON that TiDB or MySQL holds: MariaDB may hold any text
        return b"?" + value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raise `ValueError` if it has a member twice: MariaDB keeps both, and which one counts is up to who reads it."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member twice")
    return members


def _plain(value: Any) -> Any:
    """Return a JSON value with one kind of number: 1.0 is 1."""
    match value:
        case dict():
            return {key: _plain(member) for key, member in value.items()}
        case list():
            return [_plain(member) for member in value]
        case float() if value.is_integer():
            # JSON does not tell -0 from 0, and a server may keep either.
            return int(value)
    return value


def _vector(value: bytes) -> bytes:
    try:
        numbers = json.loads(value)
        return b"".join(_single(str(number).encode()) for number in numbers)
    except (ValueError, TypeError):
        return b"?" + value


# Servers order the members of an object differently, so a text of JSON proves that two values are equal, and never that they differ.
_JSON = Form(summed="CAST({} AS CHAR)", fetched=_TEXT.replace("{}", "CAST({} AS CHAR)"), normal=_json)
_VECTOR = Form(summed="CAST({} AS CHAR)", fetched=_TEXT.replace("{}", "CAST({} AS CHAR)"), normal=_vector)

# A server shows '?', or NULL, for bytes that are no character of Unicode, and may show two of them as one character. So where a text
# does not become the same bytes again, the bytes are shown. No text in UTF-8 begins as they do.
_NO_TEXT = b"\xff"
_EXACT = (
    "IF(CAST(CONVERT({text} USING {charset}) AS BINARY) = CAST({bytes} AS BINARY), CAST({text} AS BINARY), "
    f"CONCAT(x'{_NO_TEXT.hex()}', '{{charset}} ', CAST({{bytes}} AS BINARY)))"
)
_EVERY_BYTES = frozenset(
    (
        *("utf8mb4", "utf8mb3", "utf8", "utf16", "utf16le", "utf32", "latin1", "latin2", "latin5", "latin7", "cp850", "cp852"),
        *("cp866", "keybcs2", "koi8r", "koi8u", "macce", "macroman", "binary"),
    )
)  # fmt: skip
"""Character sets of MySQL and MariaDB in which all bytes that a column takes are characters, each another one."""
_SOME_BYTES_OF_TIDB = frozenset(("latin1", "ascii"))
"""Character sets in which TiDB keeps bytes as they come. It keeps the others as UTF-8."""


def no_text(value: bytes) -> tuple[str, bytes] | None:
    """Return the character set and the bytes of a value of a text's column, as it is fetched, that is no text; None for a text."""
    if not value.startswith(_NO_TEXT):
        return None
    charset, _, content = value.removeprefix(_NO_TEXT).partition(b" ")
    return charset.decode(), content


_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_FORMS: dict[str, Form] = {
    **dict.fromkeys(_INTEGERS, _SIGNED),
    **dict.fromkeys(("bit", "year"), _UNSIGNED),
    "double": _floating(_OF_DOUBLE, _double),
    "float": _floating(_OF_FLOAT, _single),
    **dict.fromkeys(("char",), _PADDED),
    **dict.fromkeys(("varchar", "enum", "set"), _CHARACTERS),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), _LONG),
    **dict.fromkeys(("binary", "varbinary"), _BYTES),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), _BLOB),
    "json": _JSON,
    "vector": _VECTOR,
    **dict.fromkeys(("date", "datetime", "timestamp", "time"), _SHOWN),
}
"""Base type → form."""
ORDERLY = frozenset(
    (*_INTEGERS, "decimal", "char", "varchar", "binary", "varbinary", "date", "datetime", "timestamp", "time")
)
"""Types of key columns whose ranges a server can find by an index."""
NUMBERS = frozenset((*_INTEGERS, "decimal"))
BYTES = frozenset(("binary", "varbinary"))
_ALIKE = tuple(
    frozenset(each)
    for each in (("tinytext", "text", "mediumtext", "longtext"), ("tinyblob", "blob", "mediumblob", "longblob"))
)


def form_of(column: ColumnShape, kind: str) -> Form:
    """Return the form of a column by itself, on a kind of server."""
    if column.data_type in _INTEGERS and "unsigned" in column.column_type:
        return _UNSIGNED
    if column.data_type == "decimal":
        return _decimal(column.column_type)
    form = _FORMS.get(column.data_type, _OTHER)
    if column.charset == "utf8mb4" and form is not _VECTOR and form is not _JSON:
        return replace(form, summed=form.summed.replace(_TEXT, "{}"), fetched=form.fetched.replace(_TEXT, "{}"))
    return _exact(form, column.charset) if form in _TEXTS and _has_other_bytes(column.charset, kind) else form


def _has_other_bytes(charset: str, kind: str) -> bool:
    """Return whether a column may hold bytes that are no character. An export has texts only."""
    return charset in _SOME_BYTES_OF_TIDB if kind == "tidb" else charset not in ("", *_EVERY_BYTES)


def _exact(form: Form, charset: str) -> Form:
    """Return the form of a text that shows bytes which are no character."""
    shown = form.summed
    exact = _EXACT.replace("{text}", shown).replace("{bytes}", shown.replace(_TEXT, "{}")).replace("{charset}", charset)
    return replace(form, summed=exact, fetched=exact, beginning=f"IFNULL({shown}, '')", charset=charset)


def _decimal(column_type: str) -> Form:
    """Return the form of a DECIMAL: without ZEROFILL, and with its own digits."""
    plain = column_type.partition(" ")[0]
    return Form(summed=f"CAST({{}} AS {plain})", fetched=f"CONCAT(CAST({{}} AS {plain}))", is_plain=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedColumn:
    """One column of both sides."""

    source: ColumnShape
    target: ColumnShape
    of_source: Form
    of_target: Form
    normal: Normal
    """Brings a fetched value of either side to the form in which both are compared."""
    sums_agree: bool
    """Whether equal values have equal texts on both sides, so that their checksums can be compared."""


def paired(source: ColumnShape, source_kind: str, target: ColumnShape, target_kind: str) -> PairedColumn:
    """Return how one column of both sides is compared."""
    of_source, of_target = form_of(source, source_kind), form_of(target, target_kind)
    kind = source.data_type
    is_document = kind in ("json", "vector")
    if is_document and target.data_type != kind:
        # MySQL and MariaDB keep it in a column of text; as a whole, since a hash of its text says nothing.
        of_target = _JSON
    is_wide = of_source.is_wide or of_target.is_wide
    of_source, of_target = replace(of_source, is_wide=is_wide), replace(of_target, is_wide=is_wide)
    same_type = kind == target.data_type or any({kind, target.data_type} <= family for family in _ALIKE)
    agrees = same_type and (not is_document or source_kind == target_kind)
    if kind == "decimal" and source.column_type.partition(" ")[0] != target.column_type.partition(" ")[0]:
        agrees = False
    return PairedColumn(
        source=source,
        target=target,
        of_source=of_source,
        of_target=of_target,
        normal=of_source.normal,
        sums_agree=agrees,
    )
