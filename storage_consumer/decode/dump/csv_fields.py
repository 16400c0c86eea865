"""Fields of a CSV data file of an export, by bytes: where they end, and what they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode.dump.columns import Reader
from storage_consumer.decode.dump.sql_values import NO_ESCAPE, Unfinished

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_MEANINGS = {b"0": b"\0", b"n": b"\n", b"r": b"\r", b"\\": b"\\"}


class Field(NamedTuple):
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
    """What may end a quoted text: a match of the delimiter's length ends it, a longer one is content."""
    bare: re.Pattern[bytes]
    """What ends a field without delimiters; its group is set if it is not content."""

    def field_at(self, content: bytearray, at: int) -> Field:
        """Return the field at `at`. Raise `Unfinished`, or `ValueError` for what is none."""
        if self.delimiter and content.startswith(self.delimiter, at):
            return self._quoted_at(content, at)
        for found in self.bare.finditer(content, at):
            if found[1] is not None:
                return Field(at, found.start(), found.start(), quoted=False)
        raise Unfinished

    def _quoted_at(self, content: bytearray, at: int) -> Field:
        size = len(self.delimiter)
        for found in self.inside.finditer(content, at + size):
            if found[1] is None:
                continue
            behind = found.end()
            # Of two delimiters in a row the first one may be all that is there.
            if len(content) - behind < max(size, len(self.separator), len(self.terminator)) and not self.ends_at(
                content, behind
            ):
                raise Unfinished
            if not self.ends_at(content, behind):
                raise ValueError(
                    f"after the text that ends at its byte {behind - at} comes neither the separator nor the end of the row"
                )
            return Field(at + size, found.start(), behind, quoted=True)
        raise Unfinished

    def ends_at(self, content: bytearray, at: int) -> bool:
        """Return whether a separator or the end of a row is at `at`."""
        return content.startswith(self.separator, at) or content.startswith(self.terminator, at)

    def text_of(self, content: bytearray, field: Field) -> bytes:
        """Return what a field holds, without escapes."""
        raw = bytes(content[field.start : field.end])
        return self.unquoted(raw) if field.quoted or not self.delimiter else raw

    def unquoted(self, raw: bytes) -> bytes:
        """Return what a text means; `raw` is what its delimiters enclose."""
        if self.escape:
            return _ESCAPE.sub(self._meant, raw) if b"\\" in raw else raw
        return raw.replace(self.delimiter * 2, self.delimiter) if self.delimiter else raw

    def _meant(self, escape: re.Match[bytes]) -> bytes:
        """Return what an escape means; raise `ValueError` for one that Dumpling does not write."""
        following = escape[1]
        # Of the delimiter the first byte is escaped; without one, that of the separator.
        if following == (self.delimiter or self.separator)[:1]:
            return following
        if following not in _MEANINGS:
            raise ValueError(NO_ESCAPE.format(following.decode("latin-1")))
        return _MEANINGS[following]

    def value_of(self, content: bytearray, field: Field, reader: Reader, binary: str) -> str | None:
        """Return the wire text of a field in a column; None for NULL. Raise `ValueError`, with the reason, for what is no value."""
        raw = content[field.start : field.end]
        is_text = field.quoted or not self.delimiter
        if not field.quoted and raw == self.null and (self.delimiter or reader.column.nullable):
            return None
        if not is_text and not reader.is_number:
            raise ValueError(f"{bytes(raw[:40])!r} is neither NULL nor a text in {self.delimiter.decode()}")
        found = self.text_of(content, field)
        if reader.holds_bytes and binary != "raw":
            return reader.of_text(found.decode("ascii", "replace"))
        return reader.of_bytes(found)


@lru_cache(maxsize=64)
def dialect_of(options: DumpOptions) -> ExportDialect:
    """Return the dialect of a set of options."""
    separator, delimiter, null, terminator = (
        text.encode() for text in (options.separator, options.delimiter, options.null, options.terminator)
    )
    mark, ends = re.escape(delimiter), re.escape(separator) + b"|" + re.escape(terminator)
    if options.escape_backslash:
        inside, bare = rb"\\.|(%b)" % mark, rb"\\.|(%b)" % ends if not delimiter else rb"(%b)" % ends
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
