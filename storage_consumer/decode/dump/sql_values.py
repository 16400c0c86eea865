"""Literals in a SQL data file, by bytes: where they end, and what they mean. Nothing here executes SQL."""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from storage_consumer.decode.dump.columns import Reader

_NUMBER = re.compile(rb"[-+]?[0-9]++(?:\.[0-9]*+)?(?:[eE][-+]?[0-9]++)?|[-+]?\.[0-9]++(?:[eE][-+]?[0-9]++)?")
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
"""Quote, and whether backslashes escape → what may end a string. A single quote ends it; a longer match is content."""
_ESCAPE = re.compile(rb"\\(.)|''|\"\"", re.DOTALL)
_MEANINGS = {b"0": b"\0", b"n": b"\n", b"r": b"\r", b"Z": b"\x1a", b"\\": b"\\", b"'": b"'", b'"': b'"'}
"""All that Dumpling and mydumper write behind a backslash: a server would take more."""
NO_ESCAPE = (
    "a backslash before {!r} is no escape of Dumpling or mydumper: if the export was made with --escape-backslash=false, "
    "say so in its URI: --dump 'URI?escape-backslash=false'"
)


class Unfinished(Exception):
    """What begins here does not end in the bytes that are there; the text says what is missing."""


class Kind(enum.Enum):
    """Kinds of literals."""

    NULL = "NULL"
    NUMBER = "a number"
    STRING = "a string"
    BYTES = "a string of bytes"
    """``_binary '…'``."""
    HEX = "hexadecimal digits"


class Literal(NamedTuple):
    """One literal."""

    kind: Kind
    start: int
    """Where its content begins, without quotes; `end`, exclusive, likewise."""
    end: int
    behind: int
    """Where the literal ends, exclusive."""
    quote: bytes = b""


def literal_at(content: bytearray, at: int, *, escape: bool) -> Literal:
    """Return the literal at `at`. Raise `Unfinished`, or `ValueError` if none begins there; `escape`: whether backslashes escape."""
    first = bytes(content[at : at + 1])
    if first in (b"'", b'"'):
        return _string_at(content, at, first, Kind.STRING, escape=escape)
    # Digits may go on behind what is there.
    if _SO_FAR.match(content, at):
        raise Unfinished(_NO_END)
    if found := _HEX.match(content, at):
        digits = 1 if found[1] is not None else 2
        return Literal(Kind.HEX, found.start(digits), found.end(digits), found.end())
    if found := _NUMBER.match(content, at):
        return Literal(Kind.NUMBER, at, found.end(), found.end())
    return _word_at(content, at, escape=escape)


def _word_at(content: bytearray, at: int, *, escape: bool) -> Literal:
    found = _WORD.match(content, at)
    if found is None or found.end() == len(content):
        if len(content) - at < _LONGEST_WORD and (at == len(content) or _WORD_BEGINS.match(content, at)):
            raise Unfinished(_NO_VALUE)
        raise ValueError(_NO_VALUE)
    word = found[0].lower()
    if word == b"null":
        return Literal(Kind.NULL, at, found.end(), found.end())
    quote = bytes(content[found.end() : found.end() + 1])
    if word.startswith(b"_binary"):
        return _string_at(content, found.end(), quote, Kind.BYTES, escape=escape)
    string = _string_at(content, found.end(), quote, Kind.STRING, escape=escape)
    using = _USING.match(content, string.behind)
    if using is None and len(content) - string.behind < _AFTER_CONVERT:
        raise Unfinished(_NO_USING)
    if using is None:
        raise ValueError(_NO_USING)
    return string._replace(behind=using.end())


def _string_at(content: bytearray, at: int, quote: bytes, kind: Kind, *, escape: bool) -> Literal:
    # The backslash of an escape may be the last byte that is there, and a quote may be the first of two.
    for stop in _STOPS[quote, escape].finditer(content, at + 1):
        if stop.end() - stop.start() == 1:
            if stop.end() == len(content):
                break
            return Literal(kind, at + 1, stop.start(), stop.end(), quote)
    raise Unfinished(_NO_END)


def escaped_content(raw: bytes, quote: bytes = b"'") -> bytes:
    """Return what a string means in which backslashes escape; `raw` is what its quotes enclose. Raise `ValueError` for an unknown escape."""
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
    """Return the wire text of a literal in a column; None for NULL. Raise `ValueError`, with the reason, for what is no value of the column."""
    kind = literal.kind
    if kind is Kind.NULL:
        return None
    if kind is Kind.HEX and reader.holds_bytes:
        digits = content[literal.start : literal.end].decode()
        # Of an odd number of digits the first one has a byte for itself.
        return reader.of_text("0" * (len(digits) % 2) + digits)
    if kind is Kind.NUMBER and (reader.is_number or reader.column.type == "BIT"):
        text = content[literal.start : literal.end].decode()
        return reader.of_text(text.removeprefix("+")) if reader.is_number else _bits(reader, text)
    if kind is Kind.STRING or (kind is Kind.BYTES and reader.holds_bytes):
        mean = escaped_content if escape else doubled_content
        return reader.of_bytes(mean(bytes(content[literal.start : literal.end]), literal.quote))
    raise ValueError(f"{kind.value} is no value of the type {reader.column.type}")


def _bits(reader: Reader, text: str) -> str:
    if not text.isdecimal():
        raise ValueError(f"{text[:40]!r} is no value of the type BIT")
    digits = f"{int(text):x}"
    return reader.of_text("0" * (len(digits) % 2) + digits)
