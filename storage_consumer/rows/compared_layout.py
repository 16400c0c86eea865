"""What is compared of a table: columns of both sides, their forms, and the key for chunks.

A form is the SQL expression that shows a value of a type in the same way on every kind of server.
Each is injective: two values that differ have different texts on one server. So checksums over
forms never hide a difference. Where two kinds of servers show one value differently all the same,
rows are fetched and `Form.normal` brings both to one form.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from storage_consumer.model import folded_name

Key = tuple[bytes, ...]
"""The key of a row: its key columns as they are fetched."""
Row = tuple[bytes | None, ...]
"""A row: each compared column as it is fetched, see `Form.fetched`; None for NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnShape:
    """A column as a server shows it."""

    name: str
    data_type: str
    """Lower-case base type."""
    column_type: str
    """The whole type, such as ``decimal(10,2) unsigned``."""
    nullable: bool = True
    default: str | None = None
    """As the server shows it; None for none."""
    constant: bytes | None = None
    """The value of a constant default that the server was asked for: bytes, or text in UTF-8."""
    extra: str = ""
    charset: str = ""
    collation: str = ""
    is_generated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexShape:
    """An index as a server shows it."""

    name: str
    unique: bool
    columns: tuple[str, ...]
    """A part over an expression is an empty text."""
    prefixes: tuple[int | None, ...]
    method: str = "BTREE"
    is_global: bool = False
    condition: str = ""
    """Of a partial index: which rows it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """A table as a server shows it."""

    kind: str
    """``mariadb``, ``mysql`` or ``tidb``."""
    columns: tuple[ColumnShape, ...]
    indexes: tuple[IndexShape, ...] = ()
    foreign_keys: tuple[tuple[str, ...], ...] = ()
    """The name of each foreign key, and its columns."""
    collation: str = ""
    is_view: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Rows with keys after some keys and not after others, in the side's own order of keys.

    Several borders of one way all count. On a side that sorts as the one that gave them the
    innermost is enough.
    """

    above: tuple[Key, ...] = ()
    """Exclusive."""
    upto: tuple[Key, ...] = ()
    """Inclusive."""

    def before(self, key: Key) -> KeyRange:
        """Return the part up to a key, inclusive."""
        return KeyRange(above=self.above, upto=(*self.upto, key))

    def behind(self, key: Key) -> KeyRange:
        """Return the part behind a key."""
        return KeyRange(above=(*self.above, key), upto=self.upto)


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """A range or a bucket of rows, in short."""

    rows: int
    sums: tuple[int, ...] = ()
    is_whole: bool = True
    """Whether the sums have every row: a value may be larger than the server computes with."""


class Side(Protocol):
    """One side of a table, at one moment."""

    def count(self) -> int:
        """Return the number of rows."""
        ...

    def chunk(self, keys: KeyRange) -> Digest:
        """Return the digest of a range of keys."""
        ...

    def rows(self, keys: KeyRange) -> Iterable[Row]:
        """Return the rows of a range of keys."""
        ...

    def rows_at(self, keys: Sequence[Key]) -> Iterable[Row]:
        """Return the rows whose keys this side finds equal to one of these."""
        ...

    def boundary(self, keys: KeyRange, rows: int) -> Key | None:
        """Return the key of a range's row number `rows`, from 1; None if it has fewer."""
        ...

    def buckets(self) -> dict[int, Digest]:
        """Return digests of rows by bucket, chosen by a hash of their content; omit empty ones."""
        ...

    def bucket(self, numbers: Sequence[int]) -> Iterable[Row]:
        """Return the rows of some buckets."""
        ...


Normal = Callable[[bytes], bytes]
FEW_BYTES = 256
"""Bytes of a wide value fetched as they are; of longer ones: beginning, length and hash."""
BEGINNING = 64
"""Characters of a longer one, or its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How the values of a column are compared; ``{}`` stands for the column."""

    summed: str
    """Expression for checksums: a text in utf8mb4, or bytes."""
    fetched: str
    """Expression for rows that are fetched."""
    normal: Normal | None = None
    """Brings a fetched value to the form in which it is compared; None where it is in that."""
    is_plain: bool = False
    """Whether its texts are of digits, signs and blanks alone, so that a semicolon can end them."""
    is_wide: bool = False
    """Whether a value may be large: then its hash is compared, and its beginning is shown."""
    beginning: str = ""
    """Expression for the shown beginning of a longer value; empty if it is `fetched`."""
    charset: str = ""
    """The character set, if its bytes may be no character: `no_text` then reads what is shown."""


def _form(shown: str, **more: Any) -> Form:
    """Return a form that fetches what it sums."""
    return Form(summed=shown, fetched=shown, **more)


_TEXT = "CONVERT({} USING utf8mb4)"
_OTHER = _form("CAST({} AS CHAR)")
# TiDB shows no ZEROFILL, and MySQL and MariaDB do.
_SIGNED = Form(summed="CAST({} AS SIGNED)", fetched="CONCAT(CAST({} AS SIGNED))", is_plain=True)
_UNSIGNED = Form(
    summed="CAST({} AS UNSIGNED)", fetched="CONCAT(CAST({} AS UNSIGNED))", is_plain=True
)
_BYTES = _form("{}")
_CHARACTERS = _form(_TEXT)
# What a server stores behind the last character of a CHAR is not part of the value.
_PADDED = _form(f"TRIM(TRAILING ' ' FROM {_TEXT})")
_LONG = replace(_CHARACTERS, is_wide=True)
_BLOB = replace(_BYTES, is_wide=True)
_TEXTS = (_CHARACTERS, _PADDED, _LONG)

# Servers write large and small numbers differently (1e15, 1000000000000000), and not each of them
# writes -0. So: the sign, the digits without zeros around them, and the power of ten, rounded. Of
# the same digits two powers of ten differ by one at least.
_ZERO = "IF(ATAN2({}, -1) < 0, '-0', '0')"
_DIGITS = "TRIM(BOTH '0' FROM REPLACE(REPLACE(SUBSTRING_INDEX(LOWER(CAST({shown} AS CHAR)), 'e', 1), '.', ''), '-', ''))"
_NUMBER = f"CASE WHEN {{}} = 0 THEN {_ZERO} ELSE CONCAT(IF({{}} < 0, '-', ''), {_DIGITS}, 'e', ROUND(LOG10(ABS({{}}))) + 0) END"
_NUMBER_IN_FULL = f"CASE WHEN {{}} = 0 THEN {_ZERO} ELSE CAST({{shown}} AS CHAR) END"
# MySQL shows all digits of a DOUBLE column, but of an expression only what has room in 22
# characters, which a sign may take. Of a FLOAT column it shows six, and MariaDB as well.
_OF_DOUBLE, _OF_FLOAT = "{}", "ABS({}) + 0e0"


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
        return json.dumps(document, sort_keys=True, ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
    except (ValueError, RecursionError):
        # no JSON that TiDB or MySQL holds: MariaDB may hold any text
        return b"?" + value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raise `ValueError` for a member twice, which MariaDB keeps.

    Which of the two counts is up to whoever reads it.
    """
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


# Servers order the members of an object differently, so a text of JSON proves that two values are
# equal, and never that they differ.
_JSON = Form(
    summed="CAST({} AS CHAR)", fetched=_TEXT.replace("{}", "CAST({} AS CHAR)"), normal=_json
)
_VECTOR = Form(
    summed="CAST({} AS CHAR)", fetched=_TEXT.replace("{}", "CAST({} AS CHAR)"), normal=_vector
)

# A server shows '?', or NULL, for bytes that are no character of Unicode, and may show two of them
# as one character. So where a text does not become the same bytes again, the bytes are shown. No
# text in UTF-8 begins as they do.
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
"""Charsets of MySQL and MariaDB in which all accepted bytes are distinct characters."""
_SOME_BYTES_OF_TIDB = frozenset(("latin1", "ascii"))
"""Character sets in which TiDB keeps bytes as they come. It keeps the others as UTF-8."""


def no_text(value: bytes) -> tuple[str, bytes] | None:
    """Return charset and bytes of a fetched value that is not text; None for a text."""
    if not value.startswith(_NO_TEXT):
        return None
    charset, _, content = value.removeprefix(_NO_TEXT).partition(b" ")
    return charset.decode(), content


_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_MOMENTS = ("date", "datetime", "timestamp", "time")
_BYTE_TEXTS = ("binary", "varbinary")
_LONG_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
_FORMS: dict[str, Form] = {
    **dict.fromkeys(_INTEGERS, _SIGNED),
    **dict.fromkeys(("bit", "year"), _UNSIGNED),
    "double": _floating(_OF_DOUBLE, lambda value: struct.pack(">d", float(value))),
    "float": _floating(_OF_FLOAT, _single),
    "char": _PADDED,
    **dict.fromkeys(("varchar", "enum", "set"), _CHARACTERS),
    **dict.fromkeys(_LONG_TEXTS, _LONG),
    **dict.fromkeys(_BYTE_TEXTS, _BYTES),
    **dict.fromkeys(_BLOBS, _BLOB),
    "json": _JSON,
    "vector": _VECTOR,
    **dict.fromkeys(_MOMENTS, replace(_OTHER, is_plain=True)),
}
"""Base type → form."""
_NUMBERS = (*_INTEGERS, "decimal")
_ORDERLY = (*_NUMBERS, "char", "varchar", *_BYTE_TEXTS, *_MOMENTS)
"""Types of key columns whose ranges a server can find by an index."""


def _form_of(column: ColumnShape, kind: str) -> Form:
    """Return the form of a column by itself, on a kind of server."""
    charset = column.charset
    if column.data_type in _INTEGERS and "unsigned" in column.column_type:
        return _UNSIGNED
    if column.data_type == "decimal":
        # Without ZEROFILL, and with its own digits.
        plain = column.column_type.partition(" ")[0]
        return Form(
            summed=f"CAST({{}} AS {plain})", fetched=f"CONCAT(CAST({{}} AS {plain}))", is_plain=True
        )
    form = _FORMS.get(column.data_type, _OTHER)
    if charset == "utf8mb4" and form is not _VECTOR and form is not _JSON:
        return replace(
            form, summed=form.summed.replace(_TEXT, "{}"), fetched=form.fetched.replace(_TEXT, "{}")
        )
    # Whether it may hold bytes that are no character. An export has texts only.
    has_others = (
        charset in _SOME_BYTES_OF_TIDB if kind == "tidb" else charset not in ("", *_EVERY_BYTES)
    )
    if form not in _TEXTS or not has_others:
        return form
    shown = form.summed
    exact = (
        _EXACT.replace("{text}", shown)
        .replace("{bytes}", shown.replace(_TEXT, "{}"))
        .replace("{charset}", charset)
    )
    return replace(
        form, summed=exact, fetched=exact, beginning=f"IFNULL({shown}, '')", charset=charset
    )


_LONGEST = 1_000
"""Characters of a value that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideColumn:
    """A compared column on one side."""

    name: str
    form: Form
    literal: Literal["number", "bytes", "text"] = "text"
    """How a value of it is given to the server."""
    agrees: bool = True
    """Whether equal values have equal texts on both sides: their checksums are comparable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLayout:
    """What one side shows of a table."""

    columns: tuple[SideColumn, ...]
    key: tuple[int, ...]
    """Indexes of the key columns; empty for a table that is compared as a bag of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """What is compared of a table."""

    sides: tuple[SideLayout, SideLayout]
    """Source and target."""
    normals: tuple[Normal | None, ...]
    """By column: brings a fetched value of either side to the form in which both are compared."""
    key: tuple[int, ...]
    """Indexes of the columns that tell rows apart; empty for a table without a key."""
    is_ranged: bool
    """Whether ranges of the key can be read."""

    @property
    def names(self) -> list[str]:
        """The names of the columns at the source."""
        return [column.name for column in self.sides[0].columns]

    @property
    def sums_agree(self) -> bool:
        """Whether equal rows have equal checksums on both sides."""
        return all(column.agrees for column in self.sides[0].columns)

    def key_of(self, row: Row) -> Key:
        """Return the key of a row."""
        return tuple(row[place] or b"" for place in self.key)

    def normal(self, row: Row) -> Row:
        """Return a row in the form in which both sides are compared."""
        pairs = zip(row, self.normals, strict=True)
        return tuple(
            value if value is None or normal is None else normal(value) for value, normal in pairs
        )

    def shown(self, row: Row) -> dict[str, str | None]:
        """Return a row as it is reported: column → text."""
        found = {}
        for place, (column, value) in enumerate(zip(self.sides[0].columns, row, strict=True)):
            # The mark before a wide value is of its form.
            text = None if value is None else self._shown(place, value[column.form.is_wide :])
            is_long = text is not None and len(text) > _LONGEST
            found[column.name] = (
                f"{text[:_LONGEST]}… ({len(text)} characters)" if text and is_long else text
            )
        return found

    def shown_key(self, key: Key) -> dict[str, str]:
        """Return a key as it is reported."""
        names = self.names
        return {
            names[place]: self._shown(place, value)
            for place, value in zip(self.key, key, strict=True)
        }

    def _shown(self, place: int, value: bytes) -> str:
        """Return a value of a column as text."""
        has_others = any(side.columns[place].form.charset for side in self.sides)
        found = no_text(value) if has_others else None
        return shown_value(value) if found is None else f"_{found[0]} 0x{found[1].hex()}"


def shown_value(value: bytes) -> str:
    """Return a value as text: bytes that are no text in hexadecimal digits."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def without(shape: TableShape, names: Collection[str]) -> TableShape:
    """Return a structure without columns, by folded name, and without indexes over them."""
    columns = tuple(column for column in shape.columns if folded_name(column.name) not in names)
    indexes = (
        index
        for index in shape.indexes
        if not any(folded_name(name) in names for name in index.columns)
    )
    return replace(shape, columns=columns, indexes=tuple(indexes))


def layout_of(source: TableShape, target: TableShape) -> TableLayout:
    """Return what is compared of a table: the columns of both sides, in the source's order."""
    there = {folded_name(column.name): column for column in target.columns}
    pairs = [
        (column, there[folded_name(column.name)])
        for column in source.columns
        if folded_name(column.name) in there
    ]
    kinds = source.kind, target.kind
    columns: list[list[SideColumn]] = []
    for pair in pairs:
        forms = list(map(_form_of, pair, kinds))
        kind, other = (column.data_type for column in pair)
        is_document = kind in ("json", "vector")
        if is_document and other != kind:
            # MySQL and MariaDB keep it as text; whole, since a hash of its text says nothing.
            forms[1] = _JSON
        is_wide = any(form.is_wide for form in forms)
        agrees = kind == other or {kind, other} <= {*_LONG_TEXTS} or {kind, other} <= {*_BLOBS}
        agrees = agrees and (not is_document or source.kind == target.kind)
        if kind == "decimal" and len({column.column_type.partition(" ")[0] for column in pair}) > 1:
            agrees = False
        columns.append(
            [
                SideColumn(
                    name=column.name,
                    form=replace(form, is_wide=is_wide),
                    literal="number"
                    if column.data_type in _NUMBERS
                    else "bytes"
                    if column.data_type in _BYTE_TEXTS
                    else "text",
                    agrees=agrees,
                )
                for column, form in zip(pair, forms, strict=True)
            ]
        )
    key = _key(source, {folded_name(column.name): place for place, (column, _) in enumerate(pairs)})
    is_ranged = bool(key) and all(
        column.data_type in _ORDERLY for place in key for column in pairs[place]
    )
    here, there_too = (tuple(each[side] for each in columns) for side in (0, 1))
    ranged = key if is_ranged else ()
    return TableLayout(
        sides=(SideLayout(columns=here, key=ranged), SideLayout(columns=there_too, key=ranged)),
        normals=tuple(column.form.normal for column in here),
        key=key,
        is_ranged=is_ranged,
    )


def _key(source: TableShape, places: dict[str, int]) -> tuple[int, ...]:
    """Return the places of the source's key: primary, else unique over NOT NULL columns."""
    shapes = {folded_name(column.name): column for column in source.columns}
    for index in sorted(source.indexes, key=lambda each: (each.name != "PRIMARY", each.name)):
        names = [folded_name(name) for name in index.columns]
        # No two rows can be alike in its columns.
        is_unique = index.unique and all(prefix is None for prefix in index.prefixes)
        if is_unique and all(
            name and name in places and not shapes[name].nullable for name in names
        ):
            return tuple(places[name] for name in names)
    return ()
