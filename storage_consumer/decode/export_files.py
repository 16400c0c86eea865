"""Decode an export's data files, CSV rows and INSERT statements, as text, never executed."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode.compression import decompressed
from storage_consumer.decode.decoder import (
    MAX_ROW_BYTES,
    Batch,
    Decoder,
    FileRead,
    RowLayout,
    Values,
    undecodable,
)
from storage_consumer.decode.export_fields import (
    CsvField,
    ExportDialect,
    Heads,
    Literal,
    Reader,
    Unfinished,
    dialect_of,
    doubled_content,
    escaped_content,
    in_layout_order,
    literal_at,
    order_of,
    readers_of,
    value_of,
)
from storage_consumer.decode.kernels.arrays import INSERT
from storage_consumer.decode.parquet_files import as_csv
from storage_consumer.decode.values import BinaryEncoding
from storage_consumer.errors import UndecodableRow

if TYPE_CHECKING:
    from storage_consumer.decode.bulk import BulkForm

AT_ONCE_BYTES, MOST_AT_ONCE = 32 << 10, 1 << 20
"""Least and most bytes that are read in bulk. Reading fewer rows one by one is faster."""
_CHECK = "; check the options that the export was made with: separator, delimiter, null, header, terminator, escape"
_CUT = "the file ends inside a statement ({}): it was cut; copy it again from where it was exported to, or export again"
_SPACE = re.compile(rb"\s*")
_OPEN, _CLOSE, _COMMA, _END = b"(),;"
_OTHER = {"'": '"', '"': "'"}
_MEANINGS: dict[tuple[str, bool], Callable[[bytes], bytes]] = {
    (quote, escape): partial(escaped_content if escape else doubled_content, quote=quote.encode())
    for quote in _OTHER
    for escape in (True, False)
}
"""Quote, whether backslashes escape → function from quoted content to its meaning."""
_Value = CsvField | Literal


@dataclass(slots=True, kw_only=True)
class _ExportScan(ABC):
    """One file being read; rows get their number and commit-ts from their place in it."""

    hint: str = ""
    """What to check where a row is not understood."""
    file: FileRead
    options: DumpOptions
    readers: tuple[Reader, ...]
    """One for each column of the layout."""
    at_once: bool
    """Whether to yield rows in batches where possible."""
    pending: bytearray = field(default_factory=bytearray)
    """Bytes that are read and not consumed."""
    offset: int = 0
    """Byte of the content at which `pending` begins."""
    at: int = 0
    """Where in `pending` to go on."""
    plain_until: int = 0
    """Byte of the content up to which rows are read singly, after one unreadable in bulk."""
    number: int = 1
    """Number of the row at `at`."""
    order: tuple[int, ...] | None = None
    """Places of the columns, if the file names them."""
    missing: str = ""
    """What is missing to what comes next."""

    @property
    def layout(self) -> RowLayout:
        """The layout of its rows."""
        return self.file.layout

    def changes(self) -> Iterator[Any]:
        """Yield changes inside the commit range; raise `UndecodableRow` for all else."""
        enough = 0
        for block in decompressed(self.file.blocks, self.options.compression, self.file.source):
            self.pending += block
            if len(self.pending) < enough:
                continue
            yield from self.whole_rows()
            # A long row is read again only when twice as much is there.
            enough = min(2 * len(self.pending), MAX_ROW_BYTES + 1)
            if len(self.pending) > MAX_ROW_BYTES:
                raise self.error(self.trouble(final=False))
        yield from self.whole_rows()
        if trouble := self.trouble(final=True):
            raise self.error(trouble)
        if not self.file.tally.rows:
            raise self.error("the file holds no row: it was cut; copy it again, or export again")

    @abstractmethod
    def trouble(self, *, final: bool) -> str:
        """Return why the file cannot end here, empty if it can.

        If not `final`: that what comes next is longer than any row.
        """

    @abstractmethod
    def begins_row(self) -> bool:
        """Return whether a row comes next; else skip what does."""

    @abstractmethod
    def row(self) -> tuple[Sequence[_Value], int]:
        """Return the next row's values and its end; raise `Unfinished` or `ValueError`."""

    @abstractmethod
    def text_of(self, value: Any, reader: Reader) -> str | None:
        """Return a column value's wire text, None for NULL; raise `ValueError` with the reason."""

    @abstractmethod
    def forms(self) -> Iterable[BulkForm | None]:
        """Yield the forms in which rows may be read in bulk, the likeliest one first."""

    @abstractmethod
    def passed(self, form: BulkForm, last: int) -> None:
        """Note the form of rows that were read in bulk, and the byte that they end with."""

    def whole_rows(self) -> Iterator[Any]:
        """Yield the changes of all rows that end in `pending`, and consume these rows."""
        self.missing = ""
        try:
            while self.at < len(self.pending):
                yield from self.next_changes()
        except Unfinished as fault:
            self.missing = str(fault)
        except ValueError as fault:
            raise self.error(f"{fault}{self.hint}") from fault
        del self.pending[: self.at]
        self.offset += self.at
        self.at = 0

    def next_changes(self) -> Iterator[Any]:
        """Consume one row, several in bulk, or no row; yield what is in the commit range."""
        if not self.begins_row():
            return
        if self.at_once and (batch := self.batch()):
            yield batch
            return
        values, behind = self.row()
        tally, commit_range = self.file.tally, self.file.commit_range
        self.number = tally.rows = tally.rows + 1
        ts = tally.max_ts = self.file.clock + self.number
        if ts > commit_range.high:
            tally.later += 1
            tally.next_ts = tally.next_ts or ts
        elif ts <= commit_range.low:
            tally.duplicates += 1
            tally.repeated_ts = ts
        else:
            yield self.number, ts, INSERT, self.values(values), None
        self.at = behind
        self.number += 1

    def batch(self) -> Batch | None:
        """Return and consume the next rows as a batch; None if the next must be read alone."""
        if len(self.pending) - self.at < AT_ONCE_BYTES or self.offset + self.at < self.plain_until:
            return None
        from storage_consumer.decode.bulk import read_export  # noqa: PLC0415 - late, see `jit`

        content = bytes(self.pending[self.at : self.at + MOST_AT_ONCE])
        # The last LF may be in a text: the loops then leave that row for the next turn.
        lines = content[: content.rfind(b"\n") + 1]
        for form in self.forms():
            if form and (found := read_export(form, lines, self.file)):
                batch, size = found
                self.at += size
                self.number = self.file.tally.rows + 1
                self.passed(form, content[size - 1])
                return batch
        self.plain_until = self.offset + self.at + AT_ONCE_BYTES
        return None

    def values(self, found: Sequence[_Value]) -> Values:
        """Return the values of a row in the order of the layout."""
        readers = (
            self.readers if self.order is None else [self.readers[place] for place in self.order]
        )
        if len(found) != len(readers):
            raise ValueError(
                f"it has {len(found)} values, but {self.layout.table} should have {len(readers)} "
                f"({', '.join(reader.column.name for reader in readers)[:200]}), generated columns not counted"
            )
        texts: list[str | None] = []
        for value, reader in zip(found, readers, strict=True):
            try:
                texts.append(self.text_of(value, reader))
            except ValueError as fault:
                raise ValueError(f"column {reader.column.name}: {fault}") from fault
        return tuple(texts) if self.order is None else in_layout_order(texts, self.order)

    def error(self, reason: str) -> UndecodableRow:
        """Return the error for what is at `at`."""
        start = self.pending[self.at : self.at + 400].decode("utf-8", "replace")
        return undecodable(
            (self.file.source, self.number, self.offset + self.at), start, reason, at_end=False
        )


@dataclass(slots=True, kw_only=True)
class _CsvScan(_ExportScan):
    """A file in CSV."""

    dialect: ExportDialect
    has_header: bool
    """Whether the header is still to come."""

    def trouble(self, *, final: bool) -> str:
        if not final:
            return f"the row is longer than {MAX_ROW_BYTES} bytes{_CHECK}"
        return (
            f"the file ends inside this row: it was cut, or a delimiter is missing{_CHECK}"
            if self.pending
            else ""
        )

    def begins_row(self) -> bool:
        if not self.has_header:
            return True
        fields, behind = self.row()
        self.has_header = False
        names = [self.dialect.text_of(self.pending, each).decode() for each in fields]
        order = order_of(names, self.layout)
        self.order = None if order == tuple(range(len(order))) else order
        self.at = behind
        return False

    def forms(self) -> Iterable[BulkForm | None]:
        from storage_consumer.decode.bulk import export_form  # noqa: PLC0415 - late, see `jit`

        yield export_form(
            self.readers, self.order, self.options, self.dialect.unquoted, self.options.delimiter
        )

    def passed(self, form: BulkForm, last: int) -> None:
        pass

    def row(self) -> tuple[list[CsvField], int]:
        content, dialect = self.pending, self.dialect
        # A table of generated columns only has rows without fields, and no header.
        if not self.readers:
            if content.startswith(dialect.terminator, self.at):
                return [], self.at + len(dialect.terminator)
            if len(content) - self.at < len(dialect.terminator):
                raise Unfinished
            raise ValueError(
                f"{self.layout.table} has generated columns only, so its rows should be empty lines"
            )
        found: list[CsvField] = []
        at = self.at
        while True:
            found.append(one := dialect.field_at(content, at))
            # The terminator first: it may begin as the separator does.
            if content.startswith(dialect.terminator, one.behind):
                return found, one.behind + len(dialect.terminator)
            at = one.behind + len(dialect.separator)

    def text_of(self, value: CsvField, reader: Reader) -> str | None:
        return self.dialect.value_of(self.pending, value, reader, self.options.binary)


@dataclass(slots=True, kw_only=True)
class _SqlScan(_ExportScan):
    """A file of INSERT statements."""

    heads: Heads
    quote: str = "'"
    """The quote around texts in rows that are read in bulk."""
    in_rows: bool = False
    """Whether a row comes next, and not a statement."""

    def trouble(self, *, final: bool) -> str:
        if not final:
            return f"it is longer than {MAX_ROW_BYTES} bytes ({self.missing})"
        missing = self.missing or ("no semicolon after its last row" if self.in_rows else "")
        return _CUT.format(missing) if missing else ""

    def begins_row(self) -> bool:
        if self.in_rows:
            return True
        begin, self.order = self.heads.next_insert(self.pending, self.at)
        self.at = len(self.pending) if begin < 0 else begin
        self.in_rows = begin >= 0
        return False

    def forms(self) -> Iterable[BulkForm | None]:
        from storage_consumer.decode.bulk import export_form  # noqa: PLC0415 - late, see `jit`

        # Dumpling writes the one quote, mydumper the other.
        for quote in (self.quote, _OTHER[self.quote]):
            yield export_form(
                self.readers,
                self.order,
                self.options,
                _MEANINGS[quote, self.options.escape_backslash],
                quote,
            )

    def passed(self, form: BulkForm, last: int) -> None:
        self.quote = chr(form.bytes.marks.quote)
        self.in_rows = last == _COMMA

    def row(self) -> tuple[list[Literal], int]:
        found: list[Literal] = []
        at = self.past(self.at)
        if self.byte(at) != _OPEN:
            raise ValueError("a row in parentheses was expected")
        self.at = at
        at = self.past(at + 1)
        while self.byte(at) != _CLOSE or found:
            found.append(
                literal := literal_at(self.pending, at, escape=self.options.escape_backslash)
            )
            at = self.past(literal.behind)
            if self.byte(at) == _CLOSE:
                break
            if self.byte(at) != _COMMA:
                raise ValueError(
                    f"a comma or parenthesis was expected after its value {len(found)}"
                )
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

    def text_of(self, value: Literal, reader: Reader) -> str | None:
        return value_of(self.pending, value, reader, escape=self.options.escape_backslash)


class ExportDecoder(Decoder):
    """Decodes exports: each row is an INSERT at commit-ts file clock plus row number."""

    def __init__(self, options: DumpOptions) -> None:
        """Initialize."""
        self.options = options

    def scan(self, file: FileRead, *, many: bool) -> Iterator[Any]:
        """See `Decoder`."""
        options, hint = self.options, _CHECK
        if options.file_format == "parquet":
            file = replace(file, blocks=as_csv(file, options.compression))
            options, hint = DumpOptions(file_format="csv", header=False), ""
        if options.file_format == "csv":
            encoding: BinaryEncoding = "base64" if options.binary == "base64" else "hex"
            return _CsvScan(
                file=file,
                options=options,
                readers=readers_of(file.layout, "dump-csv", encoding),
                at_once=many,
                dialect=dialect_of(options),
                has_header=options.header and bool(file.layout.columns),
                hint=hint,
            ).changes()
        return _SqlScan(
            file=file,
            options=options,
            readers=readers_of(file.layout, "dump-sql", "hex"),
            at_once=many,
            heads=Heads(file.layout, options),
        ).changes()
