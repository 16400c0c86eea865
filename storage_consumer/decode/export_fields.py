"""An export's files by bytes: CSV fields, literals, INSERT heads. Nothing executes SQL."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from storage_consumer.config.settings import DumpOptions, Protocol
from storage_consumer.decode.decoder import RowLayout, Values
from storage_consumer.decode.values import (
    BinaryEncoding,
    Converter,
    converted_zone,
    grammar,
    holds_bytes,
    session_zone,
)
from storage_consumer.model import TableColumn, folded_name

NOT_UTF8 = "it is not UTF-8"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reader:
    """Reads the fields of one column."""

    column: TableColumn
    holds_bytes: bool
    """Whether values are bytes, converted from hexadecimal digits or from the file's text."""
    grammar: re.Pattern[str] | None
    """What a number looks like; None: any text is a value."""
    convert: Converter | None
    is_spelled: bool
    """Whether `convert` ends with a spelling (see `RowLayout`)."""

    @property
    def is_number(self) -> bool:
        """Whether values are numbers, which may be written without quotes."""
        return self.grammar is not None

    def of_bytes(self, content: bytes) -> str:
        """Return the wire text of unescaped quoted content; raise `ValueError` with the reason."""
        if self.holds_bytes:
            return self.of_text(content.hex())
        try:
            return self.of_text(content.decode())
        except UnicodeDecodeError as error:
            raise ValueError(NOT_UTF8) from error

    def of_text(self, text: str) -> str:
        """Return the wire text of a text, or of the digits of bytes."""
        if self.grammar and not self.grammar.fullmatch(text):
            raise ValueError(
                f"{text[:40]!r} does not have the form of a value of the type {self.column.type}"
            )
        return self.convert(text) if self.convert else text


@lru_cache(maxsize=1024)
def readers_of(
    layout: RowLayout, protocol: Protocol, encoding: BinaryEncoding
) -> tuple[Reader, ...]:
    """Return the reader of each column; `encoding`: how bytes come to the converter."""
    return tuple(
        Reader(
            column=column,
            holds_bytes=holds_bytes(column),
            grammar=re.compile(form) if (form := grammar(column, protocol)) else None,
            convert=layout.converter(place, protocol, encoding),
            is_spelled=layout.spelling(place) is not None,
        )
        for place, column in enumerate(layout.columns)
    )


def order_of(names: Sequence[str], layout: RowLayout) -> tuple[int, ...]:
    """Return the layout's index for each name; raise `ValueError` for other columns."""
    places = layout.places
    folded = [folded_name(name) for name in names]
    if len(folded) != len(places) or set(folded) != set(places):
        expected = ", ".join(column.name for column in layout.columns)
        raise ValueError(
            f"the file names the columns {', '.join(names)[:200]}, but {layout.table} has {expected[:200]} "
            "besides generated ones"
        )
    return tuple(places[name] for name in folded)


def in_layout_order(values: Sequence[str | None], order: Sequence[int]) -> Values:
    """Return values in the order of the layout; `order`: see `order_of`."""
    placed: list[str | None] = [None] * len(values)
    for place, value in zip(order, values, strict=True):
        placed[place] = value
    return tuple(placed)


_NUMBER = re.compile(
    rb"[-+]?[0-9]++(?:\.[0-9]*+)?(?:[eE][-+]?[0-9]++)?|[-+]?\.[0-9]++(?:[eE][-+]?[0-9]++)?"
)
_HEX = re.compile(rb"0x([0-9a-fA-F]+)|[xX]'([0-9a-fA-F]*)'")
_SO_FAR = re.compile(rb"(?:0x[0-9a-fA-F]*+|[xX](?:'[0-9a-fA-F]*+)?|[-+.0-9eE]++)\Z")
"""A number, or hexadecimal digits, up to the end of what is there."""
_WORD = re.compile(rb"NULL\b|_binary\s*(?=['\"])|CONVERT\s*\(\s*(?=['\"])", re.IGNORECASE)
_WORD_BEGINS = re.compile(rb"[A-Za-z_+.-]")
_USING = re.compile(rb"\s*USING\s+utf8(?:mb[34])?\s*\)", re.IGNORECASE)
_AFTER_CONVERT = 64
"""Bytes in which USING, a charset and the parenthesis have to be."""
_LONGEST_WORD = 64
"""More bytes than any of these words has, white space included."""
_NO_END, _NO_VALUE = "a value has no end", "a value was expected"
_NO_USING = "CONVERT is understood with USING utf8mb4 only"
_STOPS = {
    (b"'", True): re.compile(rb"\\.|''?", re.DOTALL),
    (b'"', True): re.compile(rb'\\.|""?', re.DOTALL),
    (b"'", False): re.compile(rb"''?"),
    (b'"', False): re.compile(rb'""?'),
}
"""Quote, whether backslashes escape → what may end a string: one quote; longer is content."""
_ESCAPE = re.compile(rb"\\(.)|''|\"\"", re.DOTALL)
_MEANINGS = {
    b"0": b"\0",
    b"n": b"\n",
    b"r": b"\r",
    b"Z": b"\x1a",
    b"\\": b"\\",
    b"'": b"'",
    b'"': b'"',
}
"""All that Dumpling and mydumper write after a backslash: a server would take more."""
NO_ESCAPE = (
    "a backslash before {!r} is no escape of Dumpling or mydumper: if the export was made with --escape-backslash=false, "
    "say so in its URI: --dump 'URI?escape-backslash=false'"
)


class Unfinished(Exception):
    """What begins here does not end in the bytes that are there; the text says what is missing."""


class LiteralKind(enum.Enum):
    """Kinds of literals."""

    NULL = "NULL"
    NUMBER = "a number"
    STRING = "a string"
    BYTES = "a string of bytes"
    """``_binary '…'``."""
    HEX = "hexadecimal digits"


class Literal(NamedTuple):
    """One literal."""

    kind: LiteralKind
    start: int
    """Where its content begins, without quotes; `end`, exclusive, likewise."""
    end: int
    behind: int
    """Where the literal ends, exclusive."""
    quote: bytes = b""


def literal_at(content: bytearray, at: int, *, escape: bool) -> Literal:
    """Return the literal at `at`; raise `Unfinished`, or `ValueError` for none.

    `escape`: whether backslashes escape.
    """
    first = bytes(content[at : at + 1])
    if first in (b"'", b'"'):
        return _string_at(content, at, first, LiteralKind.STRING, escape=escape)
    # More digits may follow what is there.
    if _SO_FAR.match(content, at):
        raise Unfinished(_NO_END)
    if found := _HEX.match(content, at):
        digits = 1 if found[1] is not None else 2
        return Literal(LiteralKind.HEX, found.start(digits), found.end(digits), found.end())
    if found := _NUMBER.match(content, at):
        return Literal(LiteralKind.NUMBER, at, found.end(), found.end())
    found = _WORD.match(content, at)
    if found is None or found.end() == len(content):
        if len(content) - at < _LONGEST_WORD and (
            at == len(content) or _WORD_BEGINS.match(content, at)
        ):
            raise Unfinished(_NO_VALUE)
        raise ValueError(_NO_VALUE)
    word = found[0].lower()
    if word == b"null":
        return Literal(LiteralKind.NULL, at, found.end(), found.end())
    quote = bytes(content[found.end() : found.end() + 1])
    if word.startswith(b"_binary"):
        return _string_at(content, found.end(), quote, LiteralKind.BYTES, escape=escape)
    string = _string_at(content, found.end(), quote, LiteralKind.STRING, escape=escape)
    using = _USING.match(content, string.behind)
    if using is None and len(content) - string.behind < _AFTER_CONVERT:
        raise Unfinished(_NO_USING)
    if using is None:
        raise ValueError(_NO_USING)
    return string._replace(behind=using.end())


def _string_at(
    content: bytearray, at: int, quote: bytes, kind: LiteralKind, *, escape: bool
) -> Literal:
    # An escape's backslash may be the last byte, and a quote the first of two.
    for stop in _STOPS[quote, escape].finditer(content, at + 1):
        if stop.end() - stop.start() == 1:
            if stop.end() == len(content):
                break
            return Literal(kind, at + 1, stop.start(), stop.end(), quote)
    raise Unfinished(_NO_END)


def escaped_content(raw: bytes, quote: bytes = b"'") -> bytes:
    """Return the meaning of `raw`, quoted with escapes; raise `ValueError` for an unknown one."""
    if b"\\" not in raw and quote * 2 not in raw:
        return raw
    other = b'""' if quote == b"'" else b"''"

    def meant(match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            return match[0] if match[0] == other else match[0][:1]
        if match[1] not in _MEANINGS:
            raise ValueError(NO_ESCAPE.format(match[1].decode("latin-1")))
        return _MEANINGS[match[1]]

    return _ESCAPE.sub(meant, raw)


def doubled_content(raw: bytes, quote: bytes = b"'") -> bytes:
    """Return what a string means in which only quotes are doubled."""
    return raw.replace(quote * 2, quote)


def value_of(content: bytearray, literal: Literal, reader: Reader, *, escape: bool) -> str | None:
    """Return a column literal's wire text, None for NULL; raise `ValueError` with the reason."""
    kind = literal.kind
    if kind is LiteralKind.NULL:
        return None
    if kind is LiteralKind.HEX and reader.holds_bytes:
        digits = content[literal.start : literal.end].decode()
        # Of an odd number of digits the first one has a byte for itself.
        return reader.of_text("0" * (len(digits) % 2) + digits)
    if kind is LiteralKind.NUMBER and (reader.is_number or reader.column.type == "BIT"):
        text = content[literal.start : literal.end].decode()
        if reader.is_number:
            return reader.of_text(text.removeprefix("+"))
        if not text.isdecimal():
            raise ValueError(f"{text[:40]!r} is no value of the type BIT")
        digits = f"{int(text):x}"
        return reader.of_text("0" * (len(digits) % 2) + digits)
    if kind is LiteralKind.STRING or (kind is LiteralKind.BYTES and reader.holds_bytes):
        mean = escaped_content if escape else doubled_content
        return reader.of_bytes(mean(bytes(content[literal.start : literal.end]), literal.quote))
    raise ValueError(f"{kind.value} is no value of the type {reader.column.type}")


_CSV_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_CSV_MEANINGS = {b"0": b"\0", b"n": b"\n", b"r": b"\r", b"\\": b"\\"}


class CsvField(NamedTuple):
    """One field."""

    start: int
    """Where its content begins, without delimiters; `end`, exclusive, likewise."""
    end: int
    behind: int
    """Where the field ends, exclusive: there is the separator or the end of the row."""
    quoted: bool


@dataclass(frozen=True, slots=True, eq=False)
class ExportDialect:
    """How the fields of a set of options begin and end."""

    separator: bytes
    delimiter: bytes
    null: bytes
    terminator: bytes
    escape: bool
    inside: re.Pattern[bytes]
    """What may end a quoted text: a match of the delimiter's length; a longer one is content."""
    bare: re.Pattern[bytes]
    """What ends a field without delimiters; its group is set if it is not content."""

    def field_at(self, content: bytearray, at: int) -> CsvField:
        """Return the field at `at`. Raise `Unfinished`, or `ValueError` for what is not a field."""
        if self.delimiter and content.startswith(self.delimiter, at):
            size = len(self.delimiter)
            for found in self.inside.finditer(content, at + size):
                if found[1] is None:
                    continue
                behind = found.end()
                # Of two delimiters in a row the first one may be all that is there.
                if len(content) - behind < max(
                    size, len(self.separator), len(self.terminator)
                ) and not self.ends_at(content, behind):
                    raise Unfinished
                if not self.ends_at(content, behind):
                    raise ValueError(
                        f"after the text that ends at its byte {behind - at} comes neither the separator nor the end of the row"
                    )
                return CsvField(at + size, found.start(), behind, quoted=True)
            raise Unfinished
        for found in self.bare.finditer(content, at):
            if found[1] is not None:
                return CsvField(at, found.start(), found.start(), quoted=False)
        raise Unfinished

    def ends_at(self, content: bytearray, at: int) -> bool:
        """Return whether a separator or the end of a row is at `at`."""
        return content.startswith(self.separator, at) or content.startswith(self.terminator, at)

    def text_of(self, content: bytearray, field: CsvField) -> bytes:
        """Return what a field holds, without escapes."""
        raw = bytes(content[field.start : field.end])
        return self.unquoted(raw) if field.quoted or not self.delimiter else raw

    def unquoted(self, raw: bytes) -> bytes:
        """Return what a text means; `raw` is what its delimiters enclose."""
        if self.escape:
            return _CSV_ESCAPE.sub(self._meant, raw) if b"\\" in raw else raw
        return raw.replace(self.delimiter * 2, self.delimiter) if self.delimiter else raw

    def _meant(self, escape: re.Match[bytes]) -> bytes:
        """Return what an escape means; raise `ValueError` for one that Dumpling does not write."""
        following = escape[1]
        # Of the delimiter the first byte is escaped; without one, that of the separator.
        if following == (self.delimiter or self.separator)[:1]:
            return following
        if following not in _CSV_MEANINGS:
            raise ValueError(NO_ESCAPE.format(following.decode("latin-1")))
        return _CSV_MEANINGS[following]

    def value_of(
        self, content: bytearray, field: CsvField, reader: Reader, binary: str
    ) -> str | None:
        """Return a column field's wire text, None for NULL; raise `ValueError` with the reason."""
        raw = content[field.start : field.end]
        is_text = field.quoted or not self.delimiter
        if not field.quoted and raw == self.null and (self.delimiter or reader.column.nullable):
            return None
        if not is_text and not reader.is_number:
            raise ValueError(
                f"{bytes(raw[:40])!r} is neither NULL nor a text in {self.delimiter.decode()}"
            )
        found = self.text_of(content, field)
        if reader.holds_bytes and binary != "raw":
            return reader.of_text(found.decode("ascii", "replace"))
        return reader.of_bytes(found)


@lru_cache(maxsize=64)
def dialect_of(options: DumpOptions) -> ExportDialect:
    """Return the dialect of a set of options."""
    separator, delimiter, null, terminator = (
        text.encode()
        for text in (options.separator, options.delimiter, options.null, options.terminator)
    )
    mark, ends = re.escape(delimiter), re.escape(separator) + b"|" + re.escape(terminator)
    if options.escape_backslash:
        inside, bare = (
            rb"\\.|(%b)" % mark,
            rb"\\.|(%b)" % ends if not delimiter else rb"(%b)" % ends,
        )
    else:
        inside, bare = rb"%b%b|(%b)" % (mark, mark, mark), rb"(%b)" % ends
    return ExportDialect(
        separator=separator,
        delimiter=delimiter,
        null=null,
        terminator=terminator,
        escape=options.escape_backslash,
        inside=re.compile(inside, re.DOTALL),
        bare=re.compile(bare, re.DOTALL),
    )


_SPACE = re.compile(rb"[\s;]*")
"""What is between statements."""
_BLANKS = re.compile(rb"\s*")
_COMMENT = re.compile(
    rb"/\*(?P<heeded>!\d*|T!(?:\[[^\]]*\])?|M!\d*)?(?P<text>.*?)\*/|(?:--(?=\s)|#)[^\n]*\n",
    re.DOTALL,
)
_SET = re.compile(rb"\s*SET\s+(?P<text>(?>(?:[^;'\"]|'[^']*'|\"[^\"]*\")*));", re.IGNORECASE)
_INSERT = re.compile(rb"(?:INSERT(?:\s+IGNORE)?|REPLACE)\s+INTO\s+", re.IGNORECASE)
_NAME = re.compile(rb"`(?>(?:[^`]|``)*)`|\"(?>(?:[^\"]|\"\")*)\"|[^\s(`\"]+")
_LIST = re.compile(
    rb"\s*\((?P<names>(?>(?:`(?>(?:[^`]|``)*)`|\"(?>(?:[^\"]|\"\")*)\"|[^`\"()])*))\)"
)
_COLUMN = re.compile(rb"\s*(`(?>(?:[^`]|``)*)`|\"(?>(?:[^\"]|\"\")*)\"|[^\s,`\"]+)\s*(?:,|\Z)")
_VALUES = re.compile(rb"\s*VALUES(?=[\s(])", re.IGNORECASE)
_CHARSETS = frozenset(("binary", "utf8", "utf8mb3", "utf8mb4"))
_LONGEST = 4 << 20
"""Bytes of the longest head: the names of 4,096 columns have about a megabyte."""
_SETTING = re.compile(
    r"^NAMES\s+'?(\w+)'?|\bTIME_ZONE\s*=\s*'([^']*)'|\bSQL_MODE\s*=.*\b(NO_BACKSLASH_ESCAPES)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """Reads the heads of statements that insert into one table."""

    layout: RowLayout
    options: DumpOptions

    def next_insert(self, content: bytearray, at: int) -> tuple[int, tuple[int, ...] | None]:
        """Pass over comments and settings from `at` on, and over the head of an INSERT.

        Returns where its first row begins, and the places of its columns if it names them. Without
        an INSERT it returns where the content ends, negative. Raises `Unfinished`, or `ValueError`
        with the reason for anything else.
        """
        while True:
            found = _SPACE.match(content, at)
            at = found.end() if found else at
            if at == len(content):
                return -1, None
            if found := _COMMENT.match(content, at):
                if found["heeded"] is not None:
                    self._check(found["text"] + b";")
            elif found := _SET.match(content, at):
                self._check(found[0])
            else:
                return self._head(content, at)
            at = found.end()

    def _check(self, text: bytes) -> None:
        """Raise `ValueError` if a server would do more than set what is irrelevant here."""
        found = _SET.fullmatch(text)
        said = found["text"].decode("utf-8", "replace").strip() if found else ""
        if not said:
            raise ValueError(f"{text[:60]!r} is neither a row nor a setting")
        for names, zone, mode in _SETTING.findall(said):
            if names and names.lower() not in _CHARSETS:
                raise ValueError(f"its texts are in {names}: export again in utf8mb4")
            # As sessions, so that UTC is the same zone by any of its names.
            if zone and self.options.time_zone and _zone(zone) != _zone(self.options.time_zone):
                raise ValueError(
                    f"its times are in {zone}, those of the export in {self.options.time_zone}"
                )
            if mode and self.options.escape_backslash:
                raise ValueError(
                    "it was written under NO_BACKSLASH_ESCAPES, and is read as if backslashes escaped"
                )

    def _head(self, content: bytearray, at: int) -> tuple[int, tuple[int, ...] | None]:
        if not (insert := _INSERT.match(content, at)):
            raise self._missing(content, at, "an INSERT was expected")
        place = insert.end()
        for spelling in _spellings(self.layout.table.table):
            # Dumpling forgets the quotes of names that begin or end with a backquote.
            if content.startswith(spelling, place):
                place += len(spelling)
                break
        else:
            if not (name := _NAME.match(content, place)):
                raise self._missing(content, at, "the name of a table was expected")
            if name.end() == len(content):
                raise Unfinished("the name of a table has no end")
            if _named(name[0]) != folded_name(self.layout.table.table):
                raise ValueError(
                    f"its rows belong to {name[0].decode('utf-8', 'replace')[:80]}, not to {self.layout.table}"
                )
            place = name.end()
        order = None
        place = self._usual_list_end(content, place)
        if not (values := _VALUES.match(content, place)):
            if not (listed := _LIST.match(content, place)):
                raise self._missing(content, at, "a list of columns or VALUES was expected")
            names: list[str] = []
            at_name, found = 0, listed["names"]
            while at_name < len(found):
                column = _COLUMN.match(found, at_name)
                if column is None:
                    raise ValueError(
                        f"{found[at_name : at_name + 60]!r} is not the name of a column"
                    )
                names.append(_named(column[1], fold=False))
                at_name = column.end()
            order = order_of(names, self.layout)
            values = _VALUES.match(content, listed.end())
        if values is None:
            raise self._missing(content, at, "VALUES was expected")
        return values.end(), order

    def _usual_list_end(self, content: bytearray, at: int) -> int:
        """Return the end of a list of all columns in order at `at`, as dumpers write it, or `at`.

        Dumpling forgets the quotes of names that begin or end with a backquote, mydumper to double
        those inside a name: only the names that are expected tell where such a list ends.
        """
        begin = _BLANKS.match(content, at)
        names = [column.name for column in self.layout.columns]
        if begin is None or not names or not content.startswith(b"(", begin.end()):
            return at
        for lists in (
            [_spellings(name)[-1] for name in names],
            [b"`%b`" % name.encode("utf-8", "surrogatepass") for name in names],
        ):
            listed = b"(%b)" % b",".join(lists)
            if content.startswith(listed, begin.end()):
                return begin.end() + len(listed)
        return at

    @staticmethod
    def _missing(content: bytearray, at: int, what: str) -> Exception:
        """Return the error for what is not there, or not there yet."""
        return Unfinished(what) if len(content) - at < _LONGEST else ValueError(what)


def _zone(zone: str) -> str:
    return converted_zone(zone) or session_zone(zone)


def _spellings(name: str) -> list[bytes]:
    """Return how a name is written in backquotes, and how Dumpling writes it."""
    text = name.replace("`", "``").encode("utf-8", "surrogatepass")
    return [b"`%b`" % text, *([text] if "`" in (name[:1], name[-1:]) else [])]


def _named(text: bytes, *, fold: bool = True) -> str:
    name = text.decode("utf-8", "replace")
    if name[:1] in ("`", '"'):
        name = name[1:-1].replace(name[0] * 2, name[0])
    return folded_name(name) if fold else name
