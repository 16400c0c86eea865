"""Decode the SQL data files of an export: INSERT statements of one table, read as text and never executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode.decoder import Batch, FileRead, FilesBatch, RowChange, RowLayout, Values
from storage_consumer.decode.dump.columns import Reader, in_layout_order, readers_of
from storage_consumer.decode.dump.compression import decompressed
from storage_consumer.decode.dump.counting import RowCounter
from storage_consumer.decode.dump.sql_statements import Heads
from storage_consumer.decode.dump.sql_values import (
    Literal,
    Unfinished,
    doubled_content,
    escaped_content,
    literal_at,
    value_of,
)
from storage_consumer.decode.row_error import MAX_ROW_BYTES, RowPlace
from storage_consumer.errors import UndecodableRow
from storage_consumer.kernels.arrays import INSERT
from storage_consumer.model import CommitRange

_SPACE = re.compile(rb"\s*")
_OPEN, _CLOSE, _COMMA, _END = b"(),;"
AT_ONCE_BYTES, MOST_AT_ONCE = 32 << 10, 1 << 20
"""Least and most bytes that are read in bulk. Reading fewer rows one by one is faster."""
_OTHER = {"'": '"', '"': "'"}
_MEANINGS: dict[tuple[str, bool], Callable[[bytes], bytes]] = {
    (quote, escape): partial(escaped_content if escape else doubled_content, quote=quote.encode())
    for quote in _OTHER
    for escape in (True, False)
}
"""Quote, and whether backslashes escape → function from what is between the quotes to what it means."""
_CUT = "the file ends inside a statement ({}): it was cut; copy it again from where it was exported to, or export again"


@dataclass(slots=True, kw_only=True)
class _Scan:
    """One file while it is read."""

    blocks: Iterator[bytes]
    heads: Heads
    readers: tuple[Reader, ...]
    escape: bool
    quote: str = "'"
    """The quote around texts in rows that are read in bulk."""
    counter: RowCounter
    file: FileRead
    at_once: bool
    """Whether to yield rows in batches where possible."""
    pending: bytearray = field(default_factory=bytearray)
    """Bytes that are read and not consumed."""
    offset: int = 0
    """Byte of the content at which `pending` begins."""
    at: int = 0
    """Where in `pending` to go on."""
    plain_until: int = 0
    """Byte of the content up to which rows are read one by one, after one that could not be read in bulk."""
    number: int = 1
    """Number of the row at `at`."""
    in_rows: bool = False
    """Whether a row comes next, and not a statement."""
    order: tuple[int, ...] | None = None
    """Places of the columns of the current statement, if it names them."""

    def changes(self) -> Iterator[Any]:
        """Yield the changes inside the commit range. Raise `UndecodableRow` for whatever is not understood."""
        enough = 0
        for block in self.blocks:
            self.pending += block
            if len(self.pending) < enough:
                continue
            missing = yield from self.whole_rows()
            # A long row is looked at again only when twice as much is there.
            enough = min(2 * len(self.pending), MAX_ROW_BYTES + 1)
            if len(self.pending) > MAX_ROW_BYTES:
                raise self.error(f"it is longer than {MAX_ROW_BYTES} bytes ({missing})")
        missing = yield from self.whole_rows()
        if missing or self.in_rows:
            raise self.error(_CUT.format(missing or "no semicolon after its last row"))
        if not self.counter.tally.rows:
            raise self.error("the file holds no row: it was cut; copy it again, or export again")

    def whole_rows(self) -> Generator[Any, None, str]:
        """Yield the changes of all rows that end in `pending`, consume these rows, and return what is missing to the next one."""
        missing = ""
        try:
            while self.at < len(self.pending):
                yield from self.next_changes()
        except Unfinished as fault:
            missing = str(fault)
        except ValueError as fault:
            raise self.error(str(fault)) from fault
        del self.pending[: self.at]
        self.offset += self.at
        self.at = 0
        return missing

    def next_changes(self) -> Iterator[Any]:
        """Go on behind the next row, the next rows in bulk, or the head of a statement; yield what is inside the commit range."""
        if not self.in_rows:
            self.begin_statement()
        elif self.at_once and self.are_many() and (batch := self.batch()):
            yield from batch
        else:
            literals, behind = self.row()
            self.number, ts, is_inside = self.counter.next()
            if is_inside:
                yield self.number, ts, INSERT, self.values(literals), None
            self.at = behind
            self.number += 1

    def are_many(self) -> bool:
        """Return whether to read rows in bulk."""
        return len(self.pending) - self.at >= AT_ONCE_BYTES and self.offset + self.at >= self.plain_until

    def batch(self) -> list[Batch]:
        """Return the rows that come next as a batch, if there are such inside the commit range, and go on behind them.

        Returns nothing if the next row has to be read by itself.
        """
        from storage_consumer.decode.dump.batch import read_batch, row_form  # noqa: PLC0415 - late, see `jit`

        content = bytes(self.pending[self.at : self.at + MOST_AT_ONCE])
        # The last LF may be inside a text. Then the loops find no end of that row and leave it for the next turn.
        lines = content[: content.rfind(b"\n") + 1]
        # Dumpling writes the one quote, mydumper the other.
        for quote in (self.quote, _OTHER[self.quote]):
            form = row_form(self.readers, self.order, self.heads.options, _MEANINGS[quote, self.escape], quote)
            if form and (found := read_batch(form, lines, self.file)):
                self.quote = quote
                break
        else:
            self.plain_until = self.offset + self.at + AT_ONCE_BYTES
            return []
        batch, size = found
        self.in_rows = content[size - 1] == _COMMA
        self.at += size
        self.number = self.counter.tally.rows + 1
        return [batch]

    def begin_statement(self) -> None:
        """Go on to the first row of the next statement, or to the end of what is there."""
        begin, order = self.heads.next_insert(self.pending, self.at)
        self.at = len(self.pending) if begin < 0 else begin
        self.in_rows = begin >= 0
        self.order = order

    def row(self) -> tuple[list[Literal], int]:
        """Return the literals of the row that comes next, and where what follows it begins. Raise `Unfinished` or `ValueError`."""
        found: list[Literal] = []
        at = self.past(self.at)
        if self.byte(at) != _OPEN:
            raise ValueError("a row in parentheses was expected")
        self.at = at
        at = self.past(at + 1)
        while self.byte(at) != _CLOSE or found:
            found.append(literal := literal_at(self.pending, at, escape=self.escape))
            at = self.past(literal.behind)
            if self.byte(at) == _CLOSE:
                break
            if self.byte(at) != _COMMA:
                raise ValueError(f"a comma or parenthesis was expected after its value {len(found)}")
            at = self.past(at + 1)
        at = self.past(at + 1)
        mark = self.byte(at)
        if mark not in (_COMMA, _END):
            raise ValueError("a comma or semicolon was expected after it")
        self.in_rows = mark == _COMMA
        return found, at + 1

    def past(self, at: int) -> int:
        """Return where white space at `at` ends."""
        found = _SPACE.match(self.pending, at)
        return found.end() if found else at

    def byte(self, at: int) -> int:
        """Return one byte; raise `Unfinished` where none is."""
        if at >= len(self.pending):
            raise Unfinished("a row has no end")
        return self.pending[at]

    def values(self, literals: Sequence[Literal]) -> Values:
        """Return the values of a row in the order of the layout."""
        readers = self.readers if self.order is None else [self.readers[place] for place in self.order]
        if len(literals) != len(readers):
            raise ValueError(
                f"it has {len(literals)} values, but {self.heads.layout.table} should have {len(readers)} "
                f"({', '.join(reader.column.name for reader in readers)[:200]}), generated columns not counted"
            )
        found: list[str | None] = []
        for literal, reader in zip(literals, readers, strict=True):
            try:
                found.append(value_of(self.pending, literal, reader, escape=self.escape))
            except ValueError as fault:
                raise ValueError(f"column {reader.column.name}: {fault}") from fault
        return tuple(found) if self.order is None else in_layout_order(found, self.order)

    def error(self, reason: str) -> UndecodableRow:
        """Return the error for what is at `at`."""
        place = RowPlace(
            source=self.file.source,
            number=self.number,
            offset=self.offset + self.at,
            start=self.pending[self.at : self.at + 400].decode("utf-8", "replace"),
        )
        return place.error(reason, at_end=False)


class DumpSqlDecoder:
    """Decodes SQL data files of exports. Every row is an INSERT whose commit-ts is the file's clock plus the row's number."""

    def __init__(self, options: DumpOptions) -> None:
        """Initialize."""
        self.options = options

    def changes(self, file: FileRead) -> Iterator[RowChange | Batch]:
        """See `Decoder.changes`."""
        return self._scan(file, at_once=True).changes()

    def together(
        self,
        contents: Sequence[bytes],  # noqa: ARG002 - files of an export are read one by one
        layout: RowLayout,  # noqa: ARG002
        commit_range: CommitRange,  # noqa: ARG002
        key: Sequence[int],  # noqa: ARG002
    ) -> FilesBatch | None:
        """See `Decoder.together`."""
        return None

    def rows(self, file: FileRead) -> Iterator[RowChange]:
        """See `Decoder.rows`."""
        return self._scan(file, at_once=False).changes()

    def _scan(self, file: FileRead, *, at_once: bool) -> _Scan:
        return _Scan(
            blocks=decompressed(file.blocks, self.options.compression, file.source),
            heads=Heads(file.layout, self.options),
            readers=readers_of(file.layout, "dump-sql", "hex"),
            escape=self.options.escape_backslash,
            counter=RowCounter.of(file),
            file=file,
            at_once=at_once,
        )
