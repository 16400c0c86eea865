"""Decode the CSV data files of an export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode.decoder import Batch, FileRead, FilesBatch, RowChange, RowLayout, Values
from storage_consumer.decode.dump.columns import Reader, in_layout_order, order_of, readers_of
from storage_consumer.decode.dump.compression import decompressed
from storage_consumer.decode.dump.counting import RowCounter
from storage_consumer.decode.dump.csv_fields import Dialect, Field, Unfinished, dialect_of
from storage_consumer.decode.row_error import MAX_ROW_BYTES, RowPlace
from storage_consumer.errors import UndecodableRow
from storage_consumer.kernels.arrays import INSERT
from storage_consumer.model import CommitRange

AT_ONCE_BYTES, MOST_AT_ONCE = 32 << 10, 1 << 20
"""Least and most bytes that are read in bulk. Reading fewer rows one by one is faster."""
_CHECK = "check the options that the export was made with: separator, delimiter, null, header, terminator, escape"


@dataclass(slots=True, kw_only=True)
class _Scan:
    """One file while it is read."""

    blocks: Iterator[bytes]
    options: DumpOptions
    dialect: Dialect
    layout: RowLayout
    readers: tuple[Reader, ...]
    counter: RowCounter
    file: FileRead
    at_once: bool
    """Whether to yield rows in batches where possible."""
    has_header: bool
    """Whether the header is still to come."""
    pending: bytearray = field(default_factory=bytearray)
    """Bytes that are read and not consumed."""
    offset: int = 0
    """Byte of the content at which `pending` begins."""
    at: int = 0
    """Where in `pending` the next row begins."""
    order: tuple[int, ...] | None = None
    """Places of the columns, if the header names them in another order than the layout's."""
    plain_until: int = 0
    """Byte of the content up to which rows are read one by one, after one that could not be read in bulk."""
    number: int = 1
    """Number of the row at `at`."""

    def changes(self) -> Iterator[Any]:
        """Yield the changes inside the commit range. Raise `UndecodableRow` for whatever is not understood."""
        enough = 0
        for block in self.blocks:
            self.pending += block
            if len(self.pending) < enough:
                continue
            yield from self.whole_rows()
            # A long row is looked at again only when twice as much is there.
            enough = min(2 * len(self.pending), MAX_ROW_BYTES + 1)
            if len(self.pending) > MAX_ROW_BYTES:
                raise self.error(f"the row is longer than {MAX_ROW_BYTES} bytes; {_CHECK}")
        yield from self.whole_rows()
        if self.pending:
            raise self.error(f"the file ends inside this row: it was cut, or a delimiter is missing; {_CHECK}")
        if not self.counter.tally.rows:
            raise self.error("the file holds no row: it was cut; copy it again, or export again")

    def whole_rows(self) -> Iterator[Any]:
        """Yield the changes of all rows that end in `pending`, and consume these rows."""
        try:
            while self.at < len(self.pending):
                yield from self.next_changes()
        except Unfinished:
            pass
        except ValueError as fault:
            raise self.error(f"{fault}; {_CHECK}") from fault
        del self.pending[: self.at]
        self.offset += self.at
        self.at = 0

    def next_changes(self) -> Iterator[Any]:
        """Go on behind the next row, the next rows in bulk, or the header; yield what is inside the commit range."""
        if self.at_once and self.are_many() and (batch := self.batch()):
            yield from batch
            return
        fields, behind = self.row()
        if self.has_header:
            self.read_header(fields)
        else:
            self.number, ts, is_inside = self.counter.next()
            if is_inside:
                yield self.number, ts, INSERT, self.values(fields), None
            self.number += 1
        self.at = behind

    def are_many(self) -> bool:
        """Return whether to read rows in bulk."""
        is_behind = self.offset + self.at >= self.plain_until
        return len(self.pending) - self.at >= AT_ONCE_BYTES and is_behind and not self.has_header

    def batch(self) -> list[Batch]:
        """Return the rows that come next as a batch, if there are such inside the commit range, and go on behind them.

        Returns nothing if the next row has to be read by itself.
        """
        from storage_consumer.decode.dump.batch import read_batch, row_form  # noqa: PLC0415 - late, see `jit`

        form = row_form(self.readers, self.order, self.options, self.dialect.unquoted, self.options.delimiter)
        content = bytes(self.pending[self.at : self.at + MOST_AT_ONCE])
        # The last LF may be inside a text. Then the loops find no end of that row and leave it for the next turn.
        found = read_batch(form, content[: content.rfind(b"\n") + 1], self.file) if form else None
        if found is None:
            self.plain_until = self.offset + self.at + AT_ONCE_BYTES
            return []
        batch, size = found
        self.at += size
        self.number = self.counter.tally.rows + 1
        return [batch]

    def row(self) -> tuple[list[Field], int]:
        """Return the fields of the row that comes next, and where the row behind it begins. Raise `Unfinished` or `ValueError`."""
        content, dialect = self.pending, self.dialect
        # A table of generated columns only has rows without fields, and no header.
        if not self.readers:
            if content.startswith(dialect.terminator, self.at):
                return [], self.at + len(dialect.terminator)
            if len(content) - self.at < len(dialect.terminator):
                raise Unfinished
            raise ValueError(f"{self.layout.table} has generated columns only, so its rows should be empty lines")
        found: list[Field] = []
        at = self.at
        while True:
            found.append(one := dialect.field_at(content, at))
            # The terminator first: it may begin as the separator does.
            if content.startswith(dialect.terminator, one.behind):
                return found, one.behind + len(dialect.terminator)
            at = one.behind + len(dialect.separator)

    def read_header(self, fields: Sequence[Field]) -> None:
        """Remember in which order the columns come."""
        self.has_header = False
        names = [self.dialect.text_of(self.pending, each).decode() for each in fields]
        order = order_of(names, self.layout)
        self.order = None if order == tuple(range(len(order))) else order

    def values(self, fields: Sequence[Field]) -> Values:
        """Return the values of a row in the order of the layout."""
        readers = self.readers if self.order is None else [self.readers[place] for place in self.order]
        if len(fields) != len(readers):
            raise ValueError(
                f"it has {len(fields)} values, but {self.layout.table} should have {len(readers)} "
                f"({', '.join(reader.column.name for reader in readers)[:200]}), generated columns not counted"
            )
        found: list[str | None] = []
        for each, reader in zip(fields, readers, strict=True):
            try:
                found.append(self.dialect.value_of(self.pending, each, reader, self.options.binary))
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


class DumpCsvDecoder:
    """Decodes CSV data files of exports. Every row is an INSERT whose commit-ts is the file's clock plus the row's number."""

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
        encoding = "base64" if self.options.binary == "base64" else "hex"
        return _Scan(
            blocks=decompressed(file.blocks, self.options.compression, file.source),
            options=self.options,
            dialect=dialect_of(self.options),
            layout=file.layout,
            readers=readers_of(file.layout, "dump-csv", encoding),
            counter=RowCounter.of(file),
            file=file,
            at_once=at_once,
            has_header=self.options.header and bool(file.layout.columns),
        )
