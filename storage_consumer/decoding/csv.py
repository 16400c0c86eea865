r"""TiCDC's CSV: ``op,table,schema,commit-ts,value...`` with quoted text, bare numbers and bare ``\N`` for NULL.

Inside quotes every byte is data (CR, LF, NUL, delimiter, backslash), but for the quote itself, which is doubled. The
layout says of each column whether it is written in quotes, so one regular expression reads a whole row, checks its form,
and tells a bare ``\N`` from the text ``"\N"``. Text that it does not match is looked at field by field, to say what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decoding.csv_dialect import CHECK_OPTIONS, Dialect, check_options
from storage_consumer.decoding.decoder import DELETE, INSERT, UPDATE, RowChange, RowLayout, Tally, Values
from storage_consumer.decoding.faults import MAX_ROW_BYTES, RowPlace
from storage_consumer.decoding.values import Converter, CsvForm, converter, csv_form, grammar
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import TSO_PHYSICAL_SHIFT, Window

_OPERATIONS = {"I": INSERT, "U": UPDATE, "D": DELETE}
_EARLIEST_TS = 1_420_070_400_000 << TSO_PHYSICAL_SHIFT
"""2015-01-01, when there was no TiDB yet. A number below it, in a row of another shape, is some column's value."""
_ERROR_BYTES = 1024
"""How much of a row is looked at for an error message."""
_Fields = tuple[str | None, ...]
"""The groups of a matched row; None: NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A layout in a dialect, prepared for many rows."""

    dialect: Dialect
    layout: RowLayout
    pattern: re.Pattern[str]
    """One row, or all text that is left. Groups: op, names, commit ts, one for each column, other values, no row."""
    fields: tuple[re.Pattern[str], ...]
    """The form of each column's field, NULL included."""
    free: tuple[int, ...]
    """Columns in whose text a doubled quote may stand."""
    conversions: tuple[tuple[int, Converter], ...]

    def values(self, row: str, fields: _Fields) -> Values:
        """The wire texts of a row that has the layout's form. Raises ValueError, naming the column."""
        values = list(fields[3:-2])
        doubled, quote = self.dialect.doubled, self.dialect.options.quote
        if doubled in row:
            for index in self.free:
                text = values[index]
                if text and doubled in text:
                    values[index] = text.replace(doubled, quote)
        index = 0
        try:
            for index, convert in self.conversions:
                text = values[index]
                if text is not None:
                    values[index] = convert(text)
        except ValueError as error:
            raise ValueError(f"column {self.layout.columns[index].name}: {error}") from error
        return tuple(values)

    def mismatch(self, row: str) -> str:
        """Why a whole row does not have the layout's form."""
        split = self.dialect.split(row)
        if split.problem:
            return split.problem
        texts, columns = split.fields[4:], self.layout.columns
        if len(texts) != len(columns):
            return (
                f"it has {len(texts)} values, but {self.layout.table} should have {len(columns)} "
                f"({', '.join(column.name for column in columns)}). Reasons may be a column that is a virtual generated one on "
                "one side only, a column selector, or TiCDC's output-old-value or output-handle-key"
            )
        for column, form, text in zip(columns, self.fields, texts, strict=True):
            if not form.fullmatch(text):
                return f"column {column.name} ({column.type}): {text[:40]!r} is not the form of such a value; {CHECK_OPTIONS}"
        return f"it does not have the form of a row; {CHECK_OPTIONS}"


@lru_cache(maxsize=1024)
def _shape(options: CsvOptions, layout: RowLayout) -> _Shape:
    dialect = Dialect(options)
    quote = re.escape(options.quote)
    null = re.escape(options.null)
    forms = {
        CsvForm.FREE: f"(?:{dialect.quoted('(', ')')}|{null})",
        CsvForm.PLAIN: f"(?:{quote}([^{quote}]*+){quote}|{null})",
    }
    patterns = [forms.get(csv_form(column), f"(?:({grammar(column, 'csv')})|{null})") for column in layout.columns]
    delimiter, terminator = re.escape(options.delimiter), re.escape(options.terminator)
    expected = "".join(delimiter + pattern for pattern in patterns)
    converters = (
        (index, converter(column, "csv", binary_encoding=options.binary_encoding, zone=layout.zone))
        for index, column in enumerate(layout.columns)
    )
    return _Shape(
        dialect=dialect,
        layout=layout,
        pattern=re.compile(
            f"{dialect.head}(?:{expected}{terminator}|((?:{delimiter}{dialect.unread})?+){terminator})|((?s:.+))"
        ),
        fields=tuple(re.compile(pattern) for pattern in patterns),
        free=tuple(index for index, column in enumerate(layout.columns) if csv_form(column) is CsvForm.FREE),
        conversions=tuple((index, convert) for index, convert in converters if convert is not None),
    )


@dataclass(slots=True, kw_only=True)
class _Scan:
    """One file being read."""

    blocks: Iterator[bytes]
    shape: _Shape
    window: Window
    tally: Tally
    source: str
    pending: bytearray = field(default_factory=bytearray)
    """What was read but not taken yet; begins at the beginning of a row."""
    offset: int = 0
    """Byte of the file at which `pending` begins."""
    accepted: str = ""
    """The table and schema fields that rows had so far, known to be the layout's."""

    def changes(self) -> Iterator[RowChange]:
        """The changes inside the window. Raises `UndecodableRow`."""
        enough = 0
        for block in self.blocks:
            self.pending += block
            if len(self.pending) >= enough:
                yield from self.whole_rows()
                enough = 2 * len(self.pending)  # a long row is looked at again only when twice as much is there
            if len(self.pending) > 2 * MAX_ROW_BYTES:
                self.tally.rows += 1
                raise self.pending_error(f"the row is longer than {MAX_ROW_BYTES} bytes; {CHECK_OPTIONS}", at_end=False)
        yield from self.whole_rows()
        if self.pending:
            self.tally.rows += 1
            raise self.pending_error(
                f"the file ends inside this row: a quote is not closed, or the terminator is missing; {CHECK_OPTIONS}",
                at_end=True,
            )

    def whole_rows(self) -> Iterator[RowChange]:
        """The changes of all rows that end in `pending`, which are taken out of it."""
        text, size, is_utf8 = self.text()
        tally, low, high = self.tally, self.window.low, self.window.high
        rest = ""
        for match in self.shape.pattern.finditer(text):
            fields = match.groups()
            if fields[0] is None:
                rest = match[0]
                break
            tally.rows += 1
            ts = int(fields[2])
            tally.max_ts = max(ts, tally.max_ts)
            if low < ts <= high:
                yield self.change(match, fields, ts)
            else:
                self.pass_over(match, fields, ts)
        taken = size - len(rest.encode())
        del self.pending[:taken]
        self.offset += taken
        trouble = self.shape.dialect.trouble(rest) if rest else ""
        if trouble or not is_utf8:
            tally.rows += 1
            raise self.pending_error(trouble or "it is not UTF-8", at_end=self.is_last_pending())

    def text(self) -> tuple[str, int, bool]:
        """`pending` up to its last terminator, its size in bytes, and whether it is UTF-8; if not, only what is."""
        terminator = self.shape.dialect.options.terminator.encode()
        size = self.pending.rfind(terminator) + len(terminator)
        if size < len(terminator):
            return "", 0, True
        try:
            return self.pending[:size].decode(), size, True
        except UnicodeDecodeError as error:
            end = self.pending.rfind(terminator, 0, error.start)
            size = 0 if end < 0 else end + len(terminator)
            return self.pending[:size].decode(), size, False

    def change(self, match: re.Match[str], fields: _Fields, ts: int) -> RowChange:
        """The change of a row inside the window."""
        if fields[1] != self.accepted:
            self.check_names(match, fields[1] or "", ts)
        if fields[-2] is not None:
            raise self.row_error(match, self.shape.mismatch(match[0]), ts)
        try:
            values = self.shape.values(match[0], fields)
        except ValueError as error:
            raise self.row_error(match, str(error), ts) from error
        return self.tally.rows, ts, _OPERATIONS[fields[0] or ""], values, None

    def pass_over(self, match: re.Match[str], fields: _Fields, ts: int) -> None:
        """Count a row outside the window; its values may have another table version's form."""
        if fields[-2] is not None and ts < _EARLIEST_TS:
            raise self.row_error(match, f"{ts} is no commit ts; {CHECK_OPTIONS}", None)
        tally = self.tally
        if ts > self.window.high:
            tally.later += 1
            tally.next_ts = min(ts, tally.next_ts or ts)
        else:
            tally.duplicates += 1

    def check_names(self, match: re.Match[str], names: str, ts: int) -> None:
        """Remember the row's names if they are the layout's, without case; raise `UndecodableRow` if not."""
        table = self.shape.layout.table
        found = self.shape.dialect.names(names)
        if found.folded() != table.folded():
            raise self.row_error(match, f"the row belongs to {found}, but lies among the files of {table}", ts)
        self.accepted = names

    def row_error(self, match: re.Match[str], reason: str, ts: int | None) -> UndecodableRow:
        """The error for a whole row, inside `pending`."""
        begin = len(match.string[: match.start()].encode())
        end = begin + len(match[0].encode())
        place = RowPlace(
            source=self.source, number=self.tally.rows, offset=self.offset + begin, start=match[0], commit_ts=ts
        )
        return place.error(reason, at_end=end == len(self.pending) and not any(self.blocks))

    def pending_error(self, reason: str, *, at_end: bool) -> UndecodableRow:
        """The error for the row that `pending` begins with."""
        start = self.pending[:_ERROR_BYTES].decode("utf-8", "replace")
        place = RowPlace(
            source=self.source,
            number=self.tally.rows,
            offset=self.offset,
            start=start,
            commit_ts=self.shape.dialect.commit_ts(start),
        )
        return place.error(reason, at_end=at_end)

    def is_last_pending(self) -> bool:
        """Whether nothing follows the row that `pending` begins with."""
        end = self.shape.dialect.split(self.pending.decode("latin-1")).end  # one character a byte, valid or not
        return end in (None, len(self.pending)) and not any(self.blocks)


class CsvDecoder:
    """Decodes CSV files written with quotes and with commit ts."""

    def __init__(self, options: CsvOptions) -> None:
        """Raises `ConfigError`, naming TiCDC's option, for options under which rows cannot be read for certain."""
        check_options(options)
        self.options = options

    def rows(
        self, blocks: Iterable[bytes], layout: RowLayout, window: Window, tally: Tally, source: str
    ) -> Iterator[RowChange]:
        """See `Decoder.rows`. An update has no old values; I and U rows are told apart, but mean the same."""
        shape = _shape(self.options, layout)
        scan = _Scan(blocks=iter(blocks), shape=shape, window=window, tally=tally, source=source)
        return scan.changes()
