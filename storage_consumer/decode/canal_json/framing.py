"""Find where one canal-json message ends and the next begins, for every terminator that TiCDC can be configured to write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from storage_consumer.decode.decoder import MAX_ROW_BYTES

LINE_ENDS = (b"\r\n", b"\n")
"""Terminators that no JSON text holds."""
_NO_BRACE = rb'[^"{}]++|"(?>(?:[^"\\]++|\\.)*)"'
_MESSAGE = re.compile(rb"\{(?>(?:%b|\{(?>(?:%b)*)\})*)\}" % (_NO_BRACE, _NO_BRACE), re.DOTALL)
"""A JSON object whose members hold objects without objects inside: all of TiCDC's messages are such."""
_TRUNCATED = "truncated"
"""The word in msgspec's message for JSON that ends too early, and for no other fault."""


class BadEnd(Exception):
    """The bytes after the last complete row are not a row."""

    def __init__(self, start: bytes, reason: str, *, torn: bool) -> None:
        """Initialize; `torn`: they are the beginning of a row, so the file may still be being written."""
        super().__init__(reason)
        self.start = start
        self.reason = reason
        self.torn = torn


@dataclass(slots=True)
class Frames:
    """The rows of one file.

    JSON text holds no raw line end, so with CRLF and LF each LF ends a row. Any other terminator may also occur inside
    a text, or be empty: then a row ends at its closing brace.
    """

    blocks: Iterator[bytes]
    terminator: bytes
    read: int = 0
    """Number of bytes of the file read so far."""

    @property
    def gap(self) -> int:
        """Bytes between the end of a row and the beginning of the next."""
        # A CR before the LF counts as part of the row, since JSON ignores it.
        return 1 if self.ends_lines else len(self.terminator)

    @property
    def ends_lines(self) -> bool:
        """Whether each row ends with LF."""
        return self.terminator in LINE_ENDS

    def is_last(self, end: int) -> bool:
        """Return whether nothing follows byte `end` (exclusive) of the file."""
        # `read` runs ahead of the rows by what is left of a block, so equality means that the block is used up too.
        return end == self.read and not any(self.blocks)

    def lines(self) -> Iterator[bytes]:
        """Yield the rows in order, many in one piece, each with its LF and with any CR before it, where LF ends rows.

        Raises `BadEnd` for bytes after the last complete row, and for a row that never ends.
        """
        rest: list[bytes] = []
        size = 0
        for block in self.blocks:
            self.read += len(block)
            # Only the last LF of a block matters: where the rows before it end is up to whoever reads them.
            if end := block.rfind(b"\n") + 1:
                whole = b"".join([*rest, memoryview(block)[:end]])
                # Free the old pieces before the rows are read, so that a long row is in memory only once.
                rest, size = [block[end:]], len(block) - end
                yield whole
                continue
            rest.append(block)
            size += len(block)
            if size > MAX_ROW_BYTES:
                raise BadEnd(rest[0], f"the row is longer than {MAX_ROW_BYTES} bytes", torn=False)
        if size:
            raise BadEnd(b"".join(rest), "the file ends inside this row: no line end follows", torn=True)

    def messages(self) -> Iterator[list[bytes]]:
        """Yield the rows in order, as lists, for any terminator. Raises as `lines` does."""
        pending = bytearray()
        enough = 0
        for block in self.blocks:
            pending += block
            self.read += len(block)
            # Each attempt begins at the first byte again, so attempts have to become rarer as a row grows.
            if len(pending) >= enough:
                yield self._whole(pending)
                enough = 2 * len(pending)  # a long row is scanned again only when twice as much is there
                if self._is_none(pending):
                    raise BadEnd(bytes(pending[:1000]), self._no_row(), torn=False)
            if len(pending) > MAX_ROW_BYTES:
                raise BadEnd(bytes(pending[:1000]), f"the row is longer than {MAX_ROW_BYTES} bytes", torn=False)
        yield self._whole(pending)
        if pending:
            raise self._unended(bytes(pending))

    def _whole(self, pending: bytearray) -> list[bytes]:
        """Remove the complete rows from `pending` and return them."""
        rows = []
        start = 0
        # A closed message without its terminator stays: the rest of the terminator may come with the next block.
        while (found := _MESSAGE.match(pending, start)) and pending.startswith(self.terminator, found.end()):
            rows.append(found[0])
            start = found.end() + len(self.terminator)
        del pending[:start]
        return rows

    def _is_none(self, pending: bytes | bytearray) -> bool:
        """Return whether `pending` cannot begin with a row, whatever follows."""
        found = _MESSAGE.match(pending)
        # Nothing is closed yet. Whether a message at least begins shows in the first byte.
        if found is None:
            return bytes(pending[:1]) not in (b"{", b"")
        # What follows the message has to be the terminator, or as much of it as there is.
        return not self.terminator.startswith(pending[found.end() : found.end() + len(self.terminator)])

    def _no_row(self) -> str:
        text = self.terminator.decode("utf-8", "replace")
        return (
            f"no canal-json message followed by the terminator {text!r}; is `[sink] terminator` the one given to TiCDC?"
        )

    def _unended(self, pending: bytes) -> BadEnd:
        """Return the fault of a file whose last bytes are not a complete row."""
        reason = "the file ends inside this row: no complete terminator follows"
        if self._is_none(pending):
            return BadEnd(pending, self._no_row(), torn=False)
        # The message is whole, and its terminator is cut short.
        if _MESSAGE.match(pending):
            return BadEnd(pending, reason, torn=True)
        # Raw skips the values: all that counts is whether the JSON ends too early.
        try:
            msgspec.json.decode(pending, type=msgspec.Raw)
        except (msgspec.MsgspecError, RecursionError) as error:
            return BadEnd(pending, reason, torn=_TRUNCATED in str(error))
        return BadEnd(pending, self._no_row(), torn=False)


def rows_of(lines: bytes) -> list[bytes]:
    """Return the rows in what `Frames.lines` yields."""
    return lines[:-1].split(b"\n")
