r"""Decode CSV ``op,table,schema[,commit-ts][,is-update][,handle-key],value...``, any options.

Layout and options determine what each column's field may look like. So one regular expression reads
a whole row, checks its form, and keeps NULL and text apart. Text that it does not match is examined
field by field, to say what is wrong.

What the format itself leaves open:

* Without a quote, a text that equals the null marker is written like NULL, unless the marker is
  ``\N``. It is read as NULL in a nullable column, and as text in any other.
* Without a quote, a text that ends in a part of a delimiter such as ``|+|`` may be read in two
  ways: such a row is refused.
* Without a terminator rows run together, and a row ends where another begins. So a row of another
  table version cannot be skipped; it halts its table. And the last row of a torn file may seem
  complete.
* The classic architecture writes the handle key under ``output-handle-key``, the new one ignores
  the setting. The number of fields in a file's first row shows which one wrote it only if the
  virtual generated columns are certain: a column that is virtual at the source and not in the
  target makes up for a handle key, and one that is virtual in the target alone looks like one. Then
  some row of the file must have a form that rules this out. A handle key is an integer, or the
  values of a key in braces: ``{1024, 3}``. It may be bytes that are not text; no other field may.
* A header line names the columns of the file's first row. If its order differs from the layout's,
  it holds only if that row is inside the commit range: a row from before a reordering of the
  columns may precede rows from after it.
"""

from __future__ import annotations

import codecs
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode.csv_dialect import (
    CHECK_OPTIONS,
    IS_UPDATE,
    NOT_UTF8,
    Dialect,
    FileForm,
    Header,
    Shape,
    check_options,
    dialect_of,
    is_utf8,
    read_header,
    shape,
)
from storage_consumer.decode.decoder import (
    MAX_ROW_BYTES,
    Batch,
    Decoder,
    FileRead,
    FilesBatch,
    RowChange,
    RowLayout,
    Tally,
    Values,
    is_hidden,
    undecodable,
)
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, UPDATE
from storage_consumer.errors import NotReplicable, UndecodableRow
from storage_consumer.model import TSO_PHYSICAL_SHIFT, CommitRange, folded_name

AMBIGUOUS = (
    "it can be read both with and without the handle key of output-handle-key, if a column is a virtual generated "
    "column only at the source or only in the target. If TiCDC's new architecture, which ignores that option, wrote "
    "this file, give --output-handle-key false; if the classic one did, make the target's virtual generated columns "
    "the same as the source's and start again"
)
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_IN_BRACES = re.compile(r"(?s:\{.*\})")
_NEW_NAME = re.compile(r"(?:.*/)?CDC_[0-9]+_[0-9]+[^/]*")


def never_written(layout: RowLayout, source: str) -> bool:
    """Return whether the new architecture wrote a file: it names dispatchers, ENUM members."""
    return bool(_NEW_NAME.fullmatch(source)) or any(column.elements for column in layout.columns)


def is_ambiguous(shape: Shape, row: str) -> bool:
    """Return whether the row also parses with the handle-key setting reversed."""
    texts = _values(shape.dialect, row)
    # A handle key is written as a text, so a bare first value is no handle key.
    first = texts[0]
    if not shape.dialect.is_text(first):
        return False
    return _hides_column(shape, texts) if shape.form.handle_key else _hides_handle_key(shape, texts)


def _hides_handle_key(shape: Shape, texts: list[str]) -> bool:
    """Return whether a handle key may be first and a column missing, but none of the key.

    All columns after the missing one are in place anyway, so the first one that may be missing
    decides.
    """
    columns = shape.form.columns
    # A virtual generated column cannot be part of a primary key.
    may_lack = next((place for place, column in enumerate(columns) if not column.is_pk), None)
    if may_lack is None or not _in_place(shape.columns, texts[1:], may_lack):
        return False
    handle = shape.dialect.content(texts[0])
    keys = [place for place, column in enumerate(columns) if column.is_pk]
    if _INTEGER.fullmatch(handle) or _IN_BRACES.fullmatch(handle):
        return True
    # A one-column handle key may be that column's value without braces, of any form.
    return keys == [0] and may_lack > 0 and shape.dialect.content(texts[1]) == handle


def _hides_column(shape: Shape, texts: list[str]) -> bool:
    """Return whether the handle key may be a value, and a virtual column be in the row."""
    form = shape.form
    carried = form.layout.places
    known = [name for name in form.layout.listed if not is_hidden(name)]
    # The columns before the first one that the layout leaves out are in place either way.
    extra = next(
        (place for place, name in enumerate(known) if folded_name(name) not in carried), None
    )
    if extra is None or not _in_place(shape.columns[1:], texts, extra):
        return False
    columns, handle = form.columns, shape.dialect.content(texts[0])
    keys = [
        shape.dialect.content(text) if shape.dialect.is_text(text) else text
        for column, text in zip(columns, texts[1:], strict=True)
        if column.is_pk
    ]
    # It repeats the values of the primary key, so it is the handle key.
    if keys and handle in (
        {keys[0], f"{{{keys[0]}}}"} if len(keys) == 1 else {f"{{{', '.join(keys)}}}"}
    ):
        return False
    return not _IN_BRACES.fullmatch(handle) or extra == 0 or columns[0].type == "JSON"


def _in_place(forms: tuple[re.Pattern[str], ...], texts: list[str], count: int) -> bool:
    """Return whether each of the first `count` texts has the form of its column."""
    return all(
        form.fullmatch(text) for form, text in zip(forms[:count], texts[:count], strict=True)
    )


def _values(dialect: Dialect, row: str) -> list[str]:
    """Return a row's fields as written, from the handle key on."""
    text, null, delimiter = (
        row.removesuffix(dialect.options.terminator),
        dialect.options.null,
        dialect.options.delimiter,
    )
    texts: list[str] = []
    start = 0
    while True:
        end = start + len(null)
        # NULL first: without a quote its marker, such as ``\N``, need not have the form of a text.
        if not text.startswith(null, start) or not (
            end == len(text) or text.startswith(delimiter, end)
        ):
            end = dialect.field_end(text, start)
        texts.append(text[start:end])
        if not text.startswith(delimiter, end):
            return texts[dialect.first_value :]
        start = end + len(delimiter)


_OPERATIONS = {"I": INSERT, "U": UPDATE, "D": DELETE}
_EARLIEST_TS = 1_420_070_400_000 << TSO_PHYSICAL_SHIFT
"""2015-01-01, before the first TiDB; a lower number in another shape is a column's value."""
AT_ONCE_BYTES, MOST_AT_ONCE = 32 << 10, 1 << 20
"""Least and most bytes that are read in bulk. Reading fewer rows one by one is faster."""
_HEADER_BYTES = 64 << 10
"""Enough for most header lines; the plain reader takes any longer one."""
_ERROR_BYTES = 1024
"""How much of a row an error message examines."""


@dataclass(slots=True, kw_only=True)
class Scan:
    """One file while it is read."""

    blocks: Iterator[bytes]
    shape: Shape
    """The form of the rows so far."""
    commit_range: CommitRange
    tally: Tally
    source: str
    form_confirmed: bool
    """Whether a row inside the commit range has confirmed that `shape` is the file's."""
    header: Header | None = None
    """None until the beginning of the file has been read."""
    pending: bytearray = field(default_factory=bytearray)
    """Bytes that are read but not consumed yet; they begin at the beginning of a row."""
    offset: int = 0
    """Byte of the file at which `pending` begins."""
    text: str = ""
    """The text at the beginning of `pending` that is being read."""
    position: int = 0
    """Where in `text` the next row begins."""
    is_utf8: bool = True
    """Whether all of `text` was UTF-8."""
    before: tuple[int, int, Values, re.Match[str]] | None = None
    """Row number, commit-ts, values and match of a D row that is the first half of an update."""
    at_once: bool = False
    """Whether to yield rows in batches where possible."""

    def changes(self) -> Iterator[Any]:
        """Yield changes inside the commit range; raise `UndecodableRow` for a bad row."""
        enough = 0
        for block in self.blocks:
            self.pending += block
            if len(self.pending) >= enough:
                yield from self.whole_rows(final=False)
                # A long row is scanned again only when twice as much is there.
                enough = min(2 * len(self.pending), MAX_ROW_BYTES + 1)
            if len(self.pending) > MAX_ROW_BYTES:
                self.tally.rows += 1
                raise self.pending_error(
                    f"the row is longer than {MAX_ROW_BYTES} bytes; {CHECK_OPTIONS}", at_end=False
                )
        yield from self.whole_rows(final=True)
        if self.pending:
            self.tally.rows += 1
            raise self.pending_error(
                f"the file ends inside this row: a quote is not closed, or the terminator is missing; {CHECK_OPTIONS}",
                at_end=True,
            )
        if self.before:
            raise self.pending_error(_half_update(self.before[0]), at_end=True)

    def whole_rows(self, *, final: bool) -> Iterator[RowChange | Batch]:
        """Yield the changes of all rows that end in `pending`, and consume these rows."""
        if self.at_once and len(self.pending) >= AT_ONCE_BYTES:
            yield from self.batches()
        size = self.read_text(final=final)
        going = self.header is not None or self.begins(final=final)
        # Two readers alternate: one for rows of the shape, one for the row that stopped it.
        while going and self.position < len(self.text):
            yield from self.rows_of_shape(final=final)
            going = self.position < len(self.text) and self.other_row(final=final)
        rest = self.text[self.position :]
        # In bytes of the file: `text` is in characters, and may hold surrogates.
        taken = size - len(_bytes(rest))
        self.take_out(taken)
        # The rest begins a row, unless its first fields show that it does not.
        trouble = self.shape.dialect.trouble(rest, final=final) if rest and self.header else ""
        if trouble:
            self.tally.rows += 1
            raise self.pending_error(trouble, at_end=self.is_last_pending())

    def passes_header(self) -> bool:
        """Consume the header line if there is one; return False while that cannot be decided."""
        self.read_text(final=False, most=_HEADER_BYTES)
        if not self.begins(final=False):
            return False
        self.take_out(len(_bytes(self.text[: self.position])))
        return True

    def batches(self) -> Iterator[Batch]:
        """Yield and consume batches of rows of the shape that begin `pending`, while many."""
        from storage_consumer.decode.bulk import csv_row_form, read_csv  # noqa: PLC0415 - late, see `jit`

        # Until a row has confirmed the shape, rows go one by one.
        form = csv_row_form(self.shape)
        if form is None or not (self.header or self.passes_header()) or not self.form_confirmed:
            return
        self.put_back()
        while not self.before and len(self.pending) >= AT_ONCE_BYTES:
            content = bytes(self.pending[:MOST_AT_ONCE])
            # The last LF may be inside a text. Then the loops find no end of that row and leave it
            # for the next turn.
            found = read_csv(
                form, content[: content.rfind(b"\n") + 1], self.commit_range, self.tally
            )
            if found is None:
                return
            batch, size = found
            self.take_out(size)
            # All of these rows may be outside the commit range.
            if len(batch.numbers):
                yield batch

    def put_back(self) -> None:
        """Put the D row of an update back before its I row, so that a batch holds both."""
        if self.before and self.before[0] == self.tally.rows:
            row = _bytes(self.before[3][0])
            self.pending[:0] = row
            self.offset -= len(row)
            self.tally.rows -= 1
            self.before = None

    def take_out(self, size: int) -> None:
        """Consume the first bytes of `pending`."""
        del self.pending[:size]
        self.offset += size

    def read_text(self, *, final: bool, most: int = sys.maxsize) -> int:
        """Set `text` to `pending` up to its last terminator, or all; return its size in bytes.

        Examines about `most` bytes at most. Bytes that are not UTF-8 become surrogates: the handle
        key may hold any bytes, and in other fields they are detected.
        """
        terminator = self.shape.dialect.options.terminator.encode()
        # A text may hold the terminator, so the last row up to here may still be incomplete.
        last = self.pending.rfind(terminator, 0, most) if terminator else len(self.pending)
        content = self.pending[: 0 if last < 0 else last + len(terminator)]
        self.position = 0
        try:
            self.text, self.is_utf8 = content.decode(), True
        except UnicodeDecodeError:
            whole = bool(terminator) or final  # otherwise a block may end inside a character
            self.text, self.is_utf8 = (
                codecs.utf_8_decode(content, "surrogateescape", whole)[0],
                False,
            )
            return len(_bytes(self.text))
        return len(content)

    def begins(self, *, final: bool) -> bool:
        """Skip the file's header line if it has one; return False while that cannot be decided."""
        if not self.text:
            return False
        form = self.shape.form
        self.header = header = read_header(self.text, self.shape.dialect, form.layout, final=final)
        if header is None:
            return False
        # Where the header ends is unknown, so no row can be read.
        if header.problem and not header.length:
            self.tally.rows += 1
            raise self.pending_error(header.problem, at_end=final)
        # The header matters only to rows inside the commit range: the first of them confirms it, or
        # raises its problem.
        if header.problem or list(header.order) != sorted(header.order):
            self.form_confirmed = False
        else:
            self.shape = shape(replace(form, order=header.order))
        self.position = header.length
        return True

    def rows_of_shape(self, *, final: bool) -> Iterator[RowChange]:
        """Yield the changes of rows of the shape, up to the first row of another shape."""
        if not self.form_confirmed:
            return
        shape, tally, low, high = (
            self.shape,
            self.tally,
            self.commit_range.low,
            self.commit_range.high,
        )
        has_commit_ts, paired = (
            shape.form.options.include_commit_ts,
            shape.form.options.output_old_value,
        )
        values_of = shape.values if self.is_utf8 else shape.checked_values
        # Without a terminator a row ends where the next begins, the last at the text's end.
        for match in (shape.last if final else shape.pattern).finditer(self.text, self.position):
            fields = match.groups()
            operation = fields[0]
            # The empty alternative: no row of the shape begins here. The last match is always of
            # this kind, if only at the end of the text.
            if operation is None:
                self.position = match.start()
                return
            number = tally.rows = tally.rows + 1
            ts = 0
            if has_commit_ts:
                ts = int(fields[1])
                if ts > tally.max_ts:  # noqa: PLR1730 - a call for each row would cost time
                    tally.max_ts = ts
                # Outside the commit range no value is read: such rows may be of another version.
                if not low < ts <= high:
                    self.pass_over(ts, match.start(), match.end())
                    continue
            try:
                values = values_of(match, fields)
            except ValueError as error:
                raise self.row_error(match.start(), match.end(), str(error), ts) from error
            change = (number, ts, _OPERATIONS[operation], values, None)
            if not paired:
                yield change
            elif whole := self.whole_change(change, match):
                yield whole

    def whole_change(self, change: RowChange, match: re.Match[str]) -> RowChange | None:
        """Return the change that this row is or completes; None for the first half of an update."""
        number, ts, operation, values, _ = change
        before, self.before = self.before, None
        is_update = match[IS_UPDATE] == "true"
        if before:
            # The halves of an update are adjacent rows of one commit-ts.
            if is_update and operation == INSERT and before[:2] == (number - 1, ts):
                return before[0], ts, UPDATE, values, before[2]
            raise self.row_error(match.start(), match.end(), _half_update(before[0]), ts)
        # Kept across calls: the I row may come with the next block.
        if is_update and operation == DELETE:
            self.before = (number, ts, values, match)
            return None
        if is_update != (operation == UPDATE):
            reason = (
                f"it is a row {match[1]} with is-update {match[IS_UPDATE]}, which TiCDC does not write "
                f"{'without a D row before it' if is_update else 'with output-old-value'}; {CHECK_OPTIONS}"
            )
            raise self.row_error(match.start(), match.end(), reason, ts)
        return change

    def other_row(self, *, final: bool) -> bool:
        """Skip a row of another shape, or adopt it; return False if it ends outside the text."""
        dialect, start = self.shape.dialect, self.position
        head = dialect.head.match(self.text, start)
        end = dialect.row_end(self.text, head.end()) if head else None
        # Not all of the row is there yet, or it is no row: `whole_rows` decides which.
        if head is None or (end is None and dialect.options.terminator):
            return False
        has_commit_ts = dialect.options.include_commit_ts
        ts = int(head[2]) if has_commit_ts else 0
        is_inside = not has_commit_ts or self.commit_range.low < ts <= self.commit_range.high
        # Without a terminator only a shape shows where a row ends, so there each row must have one.
        if (is_inside or end is None) and self.found_shape(head, end, ts, final=final):
            return True
        if end is None:
            return False
        self.tally.rows += 1
        self.tally.max_ts = max(ts, self.tally.max_ts)
        if is_inside:
            raise self.row_error(start, end, self.shape.mismatch(self.text[start:end]), ts)
        # The options may announce a commit-ts that rows lack: then this is another number.
        if ts < _EARLIEST_TS:
            raise self.row_error(start, end, f"{ts} is not a commit ts; {CHECK_OPTIONS}", None)
        # Skipping a row by quotes alone is unsafe: a lost quote would swallow later rows.
        starts = dialect.next_row.finditer(self.text, head.end(), end) if dialect.next_row else ()
        if any(self.text.startswith(head[1], found.end()) for found in starts):
            raise self.row_error(
                start, end, f"another row begins within it: a quote is missing; {CHECK_OPTIONS}", ts
            )
        self.pass_over(ts, start, end)
        self.position = end
        return True

    def found_shape(self, head: re.Match[str], end: int | None, ts: int, *, final: bool) -> bool:
        """Adopt a row's shape; raise `UndecodableRow` unless names fold to the layout's."""
        form, header = self.shape.form, self.header
        found, table = self.shape.dialect.names(head[1]), form.layout.table
        # Names are compared as TiDB does, ignoring case; the shape then takes the file's own
        # spelling.
        problem = header.problem if header else ""
        if not is_utf8(head[1]):
            problem = NOT_UTF8
        elif found.folded() != table.folded():
            problem = f"the row belongs to {found}, but lies among the files of {table}"
        elif (
            header
            and list(header.order) != sorted(header.order)
            and not self.form_confirmed
            and self.tally.rows
        ):
            problem = (
                "the header line names the columns in another order than the schema file, and precedes rows from "
                "before the window, so it may apply to those only"
            )
        if problem:
            self.tally.rows += 1
            raise self.row_error(head.start(), end, problem, ts)
        # Both readings are tried only until a row has confirmed the shape, which then holds for the
        # whole file.
        asked = form.options.output_handle_key and not self.form_confirmed
        keys = (
            (False, True)
            if asked and not never_written(form.layout, self.source)
            else (form.handle_key,)
        )
        # A confirmed shape has taken the header's order already.
        order = header.order if header and not self.form_confirmed else form.order
        forms = [replace(form, names=head[1], handle_key=key, order=order) for key in keys]
        # TiCDC either obeyed the selectors or it did not: the number of values tells which.
        has_no_names = header is not None and not header.length
        if form.layout.unselected and has_no_names:
            kept = [
                i
                for i, c in enumerate(form.layout.columns)
                if folded_name(c.name) not in form.layout.unselected
            ]
            every = tuple(range(len(form.layout.columns)))
            forms = [
                *(replace(each, order=every) for each in forms),
                replace(forms[0], order=tuple(kept), handle_key=False),
            ]
        shapes = list(map(shape, forms))
        matches = [
            (fit.last if final else fit.pattern).match(self.text, head.start()) for fit in shapes
        ]
        fitting = [
            fit
            for fit, match in zip(shapes, matches, strict=True)
            if match and match.end() > match.start()
        ]
        # Exactly one reading must fit: with none the row is bad, with two the handle key is
        # undecided.
        if len(fitting) != 1:
            return False
        if len(keys) > 1 and self.is_open(fitting[0], head.start(), final=final):
            self.tally.rows += 1
            raise self.row_error(head.start(), end, AMBIGUOUS, ts)
        if (
            has_no_names
            and form.layout.vouching
            and len(fitting[0].form.order) < len(form.layout.columns)
        ):
            self.tally.rows += 1
            raise NotReplicable(
                str(self.row_error(head.start(), end, _unnamed(fitting[0].form), ts))
            )
        self.shape, self.form_confirmed = fitting[0], True
        return True

    def is_open(self, fit: Shape, start: int, *, final: bool) -> bool:
        """Return whether no row in range shows that this shape has or lacks a handle key."""
        low, high = self.commit_range.low, self.commit_range.high
        for match in (fit.last if final else fit.pattern).finditer(self.text, start):
            if match[1] is None:
                break
            # Rows outside the commit range may be of another table version, so they prove nothing.
            inside = not fit.form.options.include_commit_ts or low < int(match[2]) <= high
            if inside and not is_ambiguous(fit, match[0]):
                return False
        return True

    def pass_over(self, ts: int, start: int, end: int) -> None:
        """Count a row outside the commit range, unread; raise `UndecodableRow` for commit-ts 0."""
        tally = self.tally
        if ts > self.commit_range.high:
            # The file is read again once a window reaches its lowest later commit-ts.
            tally.later += 1
            tally.next_ts = min(ts, tally.next_ts or ts)
        elif ts:
            tally.duplicates += 1
            tally.repeated_ts = max(ts, tally.repeated_ts)
        else:
            raise self.row_error(start, end, f"0 is not a commit ts; {CHECK_OPTIONS}", None)

    def row_error(self, start: int, end: int | None, reason: str, ts: int | None) -> UndecodableRow:
        """Return the error for a row of `text`; `end` is None if it is not known."""
        offset = self.offset + len(_bytes(self.text[:start]))
        size = None if end is None else len(_bytes(self.text[:end]))
        known = ts if self.shape.form.options.include_commit_ts else None
        excerpt = self.text[start : start + _ERROR_BYTES if end is None else end]
        # Only the last row of a file may be torn; for any other one time changes nothing.
        at_end = size == len(self.pending) and not any(self.blocks)
        return undecodable(
            (self.source, self.tally.rows, offset), excerpt, reason, at_end=at_end, commit_ts=known
        )

    def pending_error(self, reason: str, *, at_end: bool) -> UndecodableRow:
        """Return the error for the row that `pending` begins with."""
        start = self.pending[:_ERROR_BYTES].decode("utf-8", "replace")
        place, ts = (self.source, self.tally.rows, self.offset), self.shape.dialect.commit_ts(start)
        return undecodable(place, start, reason, at_end=at_end, commit_ts=ts)

    def is_last_pending(self) -> bool:
        """Return whether nothing follows the row that `pending` begins with."""
        dialect = self.shape.dialect
        text = self.pending.decode("utf-8", "surrogateescape")
        end = dialect.split(text).end if dialect.options.terminator else None
        return end in (None, len(text)) and not any(self.blocks)


def _half_update(number: int) -> str:
    return f"row {number} is the D row of an update, and the I row with the same commit ts that should follow it is missing"


def _unnamed(form: FileForm) -> str:
    """Return why a row is not read that has as many values as the selectors leave."""
    layout = form.layout
    return (
        f"it has {len(form.order)} values, {layout.table} has {len(layout.columns)} columns "
        f"({', '.join(column.name for column in layout.columns)}), and no header line says which these are. By the "
        "[[sink.column-selectors]] that are given they would be "
        f"{', '.join(layout.columns[place].name for place in form.order)}, but other selectors may have been in force when TiCDC wrote the "
        f"row. Give {layout.vouching} if these were in force for all rows without a header line that are still to be read. Otherwise set "
        "output-field-header = true under [sink.csv] of the changefeed, and load the table from an export made after that: "
        f"storage-consumer load --table {shlex.quote(str(layout.table))} --replace --dump URI"
    )


def _bytes(text: str) -> bytes:
    """Return the bytes that `text` was decoded from."""
    return text.encode("utf-8", "surrogateescape")


class CsvDecoder(Decoder):
    """Decodes CSV files written under one set of options.

    The key does not matter: an update with its old row is two rows here. I and U rows are kept
    apart, but mean the same. An update has old values with ``output-old-value``: row by row, its D
    and I rows become one change with the D row's number. So the first change of a file always has
    number 1, which shows that a transaction continues there. If the rows have no commit-ts, the
    changes have 0, and the commit range excludes none of them.
    """

    def __init__(self, options: CsvOptions) -> None:
        """Initialize; raise `ConfigError`, naming TiCDC's option, if its rows are ambiguous."""
        check_options(options)
        self.options = options
        self._latest: tuple[RowLayout, Shape] | None = None

    def together(
        self,
        contents: Sequence[bytes],
        layout: RowLayout,
        commit_range: CommitRange,
        key: Sequence[int],  # noqa: ARG002
    ) -> FilesBatch | None:
        """See `Decoder`."""
        from storage_consumer.decode.bulk import csv_row_form, read_csv_together  # noqa: PLC0415 - late, see `jit`

        # These hold for a whole file: a header line, what its first row shows of the handle key,
        # and old values.
        options = self.options
        by_itself = (
            options.output_field_header or options.output_handle_key or options.output_old_value
        )
        form = None if by_itself else csv_row_form(self._shape(layout))
        return read_csv_together(form, contents, commit_range) if form else None

    def scan(self, file: FileRead, *, many: bool) -> Iterator[Any]:
        """See `Decoder`."""
        return Scan(
            blocks=iter(file.blocks),
            shape=self._shape(file.layout),
            commit_range=file.commit_range,
            tally=file.tally,
            source=file.source,
            form_confirmed=not self.options.output_handle_key,
            at_once=many,
        ).changes()

    def _shape(self, layout: RowLayout) -> Shape:
        """Return the shape without handle key or own column order, cached for the next file."""
        # The files of one directory share the layout object, so identity is enough.
        if self._latest is None or self._latest[0] is not layout:
            names = (
                dialect_of(self.options).encode(name)
                for name in (layout.table.table, layout.table.schema)
            )
            form = FileForm(
                options=self.options,
                layout=layout,
                names=self.options.delimiter.join(names),
                order=tuple(range(len(layout.columns))),
                handle_key=False,
            )
            self._latest = layout, shape(form)
        return self._latest[1]
