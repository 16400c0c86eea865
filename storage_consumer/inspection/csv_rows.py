"""CSV rows found without knowing the options: by the table's name and schema near the beginning of each row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from storage_consumer.inspection.samples import Sample

HEADER = b"ticdc-meta$operation"
_HEADER_TABLE = b"ticdc-meta$table"
_LONGEST_DELIMITER = 3
_LONGEST_TERMINATOR = 16
_LINE_ENDS = b"\r\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """What the first fields of a row show for certain."""

    quote: bytes
    delimiter: bytes
    header: bool


@dataclass(frozen=True, slots=True)
class Token:
    """One field of a row, as written."""

    text: bytes
    quoted: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of a sample under a frame; each row is the text after its schema name, up to the next row or the end."""

    sample: Sample
    frame: Frame
    rows: tuple[bytes, ...]
    whole: bytes
    """The sample up to the end of its last whole row, header included."""


def frames(sample: Sample) -> Iterator[Frame]:
    """Yield all frames under which the sample begins with a row of its table (or with a header line and a row)."""
    text = sample.content
    header = text.startswith(HEADER)
    if header:
        end = text.find(_HEADER_TABLE)
        delimiter = text[len(HEADER) : end]
        if end < 0 or not 1 <= len(delimiter) <= _LONGEST_DELIMITER:
            return
        # The header line is not quoted, so any byte of the sample may be the quote; only the rows can show which.
        quotes = [b"", *(bytes([byte]) for byte in sorted(set(text)) if byte not in _LINE_ENDS)]
        candidates = [(quote, delimiter) for quote in quotes]
    else:
        # Without a header the first byte is the quote, or the letter of the operation if there is none.
        candidates = [(quote, d) for quote, size in ((b"", 1), (text[:1], 3)) for d in _delimiters(text, size)]
    for quote, delimiter in candidates:
        frame = Frame(quote=quote, delimiter=delimiter, header=header)
        if quote and quote in delimiter:
            continue
        # The names of the table are known, so delimiter and quote are right if a row begins with both of them.
        begin = _row_start(frame, sample)
        if begin.search(text) if header else begin.match(text):
            yield frame


def find_rows(sample: Sample, frame: Frame) -> Found | None:
    """Return the sample's whole rows under a frame; None if not one is whole."""
    matches = list(_row_start(frame, sample).finditer(sample.content))
    # A row ends where the next begins, so an incomplete sample's last row is cut off and dropped.
    borders = [match.start() for match in matches] + [len(sample.content)] * sample.complete
    if len(borders) < 2:  # noqa: PLR2004 - a row lies between two borders
        return None
    ends = [after for _, after in pairwise(borders)]
    rows = tuple(sample.content[match.end() : end] for match, end in zip(matches, ends, strict=False))
    return Found(sample=sample, frame=frame, rows=rows, whole=sample.content[: borders[-1]])


def terminators(found: list[Found]) -> list[bytes]:
    """Return the possible row endings: those that all rows share. With quoted texts, an ending of letters is not considered."""
    shared: bytes | None = None
    for each in found:
        for row in each.rows:
            tail = row[-_LONGEST_TERMINATOR:]
            shared = tail if shared is None else _common_end(shared, tail)
    # Every end of the common end is possible, the empty one too.
    ends = [(shared or b"")[at:] for at in range(len(shared or b"") + 1)]
    quote = found[0].frame.quote if found else b""
    if quote:
        # With a quote a bare number may end each row alike: letters and digits are then part of a value.
        ends = [end for end in ends if quote not in end and not re.search(rb"[0-9A-Za-z\x80-\xff]", end)]
    return [end for end in ends if not (found and found[0].frame.delimiter in end)]


def fields(row: bytes, frame: Frame) -> tuple[Token, ...] | None:
    """Return the fields of a row after its schema name, without its terminator; None if it cannot be split so."""
    tokens: list[Token] = []
    position, size = 0, len(row)
    pattern = _field(frame)
    while True:
        match = pattern.match(row, position)
        if match is None:
            return None
        tokens.append(Token(match[1], quoted=bool(frame.quote) and match[1].startswith(frame.quote)))
        position = match.end()
        # A delimiter at the very end is followed by one more field, an empty one.
        if position == size and not match[2]:
            return tuple(tokens)


def _delimiters(text: bytes, begin: int) -> list[bytes]:
    # A quote is the same byte before and after the letter.
    if begin > 1 and (text[:1] != text[2:3] or text[:1] in {b"", b"\r", b"\n"}):
        return []
    if text[begin // 2 : begin // 2 + 1] not in {b"I", b"U", b"D"}:
        return []
    return [text[begin : begin + size] for size in range(1, _LONGEST_DELIMITER + 1)]


@lru_cache(maxsize=256)
def _row_start(frame: Frame, sample: Sample) -> re.Pattern[bytes]:
    name = sample.definition.name
    quote, delimiter = re.escape(frame.quote), re.escape(frame.delimiter)
    parts = [quote + _name(text, frame) + quote + delimiter for text in (name.table, name.schema)]
    return re.compile(quote + b"[IUD]" + quote + delimiter + b"".join(parts), re.DOTALL)


def _name(text: str, frame: Frame) -> bytes:
    """Return a name as written in a row, in upper or lower case."""
    raw = text.encode()
    if frame.quote:
        raw = raw.replace(frame.quote, frame.quote * 2)
    else:
        escaped = b"".join(b"\\" + bytes([byte]) for byte in frame.delimiter)
        raw = raw.replace(b"\\", b"\\\\").replace(b"\r", b"\\r").replace(b"\n", b"\\n")
        raw = raw.replace(frame.delimiter, escaped)
    # TiDB ignores case in names, and classic TiCDC writes a database in lower case after a rename.
    return b"(?i:" + re.escape(raw) + b")"


@lru_cache(maxsize=64)
def _field(frame: Frame) -> re.Pattern[bytes]:
    quote, delimiter = re.escape(frame.quote), re.escape(frame.delimiter)
    if frame.quote:
        # Atomic groups keep the match linear: a damaged row would otherwise backtrack through all splits.
        quoted = quote + b"(?>(?:[^" + quote + b"]|" + quote + quote + b")*)" + quote
        bare = b"(?>(?:(?!" + delimiter + b")[^" + quote + b"])*)"
        return re.compile(b"(" + quoted + b"|" + bare + b")(" + delimiter + b"|\\Z)", re.DOTALL)
    return re.compile(b"((?>(?:\\\\.|(?!" + delimiter + b").)*))(" + delimiter + b"|\\Z)", re.DOTALL)


def _common_end(one: bytes, other: bytes) -> bytes:
    size = 0
    while size < min(len(one), len(other)) and one[-1 - size] == other[-1 - size]:
        size += 1
    return one[len(one) - size :]
