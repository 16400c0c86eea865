"""Read many rows in bulk: compiled loops find their values and write their lines, and no row becomes objects.

Rows in another form than the layout's usual one are left to the plain reader of their protocol, which finds out why. Lines are made from
the file's own bytes: quotes go, delimiters become TABs, the few bytes that need an escape get one, and base64 becomes hexadecimal digits.
The loops are in `kernels`: `csv_rows`, `canal_messages`, and for exports `dump_rows`.
Import late, see `jit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from storage_consumer.decode.decoder import FilesBatch, Tally, apart
from storage_consumer.decode.values import Converter
from storage_consumer.decode.wire_format import encode_field
from storage_consumer.kernels.arrays import Bytes, Flags, Offsets, Packed, Places
from storage_consumer.kernels.line_bytes import line_fields, room_for
from storage_consumer.kernels.numbers import read_integers
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.kernels.words import text_of
from storage_consumer.model import CommitRange


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BulkForm:
    """The fixed parts of rows of one shape."""

    bytes: Any
    """What the loops know of them: the form of `canal_messages`, `csv_rows` or `dump_rows`."""
    converters: tuple[Converter | None, ...]
    """One for each column of the rows."""
    place_of: tuple[int, ...]
    """For each column of the layout, its index among these; -1 if the rows lack it."""
    converted: list[int]
    """The columns of the layout whose texts the loops do not write; those that the rows lack too."""


@dataclass(frozen=True, slots=True, eq=False)
class BulkRows(ABC):
    """Rows that are adjacent in some bytes; a column is given by its index in the layout."""

    form: Any
    content: bytes
    borders: NDArray[np.int64]
    """For each row, the borders of its values: see the loop's `Found`."""
    ts: Offsets
    """Commit-ts of each row."""
    operations: NDArray[np.int8]
    """INSERT, UPDATE or DELETE for each row."""
    write_lines: ClassVar[Callable[..., int]]
    """The loop that writes their lines."""

    @abstractmethod
    def between(self, column: int, rows: Places) -> tuple[Offsets, Offsets]:
        """Return where the digits of a number begin and end in these rows; `column` is the index among the rows' own."""

    @abstractmethod
    def texts(self, place: int, rows: Places) -> list[str | None]:
        """Return the wire texts of a column in these rows. Raise `ValueError` for a text that is not a value of its type."""

    @abstractmethod
    def packed(self, place: int, rows: Places) -> Packed | None:
        """Return a column's values in these rows as `texts` means them, bytes as such; None where they have to be read one by one."""

    def size(self, rows: Places) -> int:
        """Return at least how many bytes the values of these rows have."""
        return int((self.borders[rows, -1] - self.borders[rows, 0]).sum())

    def integers(self, place: int, rows: Places) -> Offsets | None:
        """Return a column's values in these rows, or None if such an array cannot hold them."""
        column = self.form.place_of[place]
        # What the key compares is the converted text.
        if column < 0 or self.form.converters[column]:
            return None
        numbers = np.empty(len(rows), np.int64)
        return numbers if read_integers(array_over(self.content), *self.between(column, rows), numbers) else None

    def lines(self, written: Sequence[int], rows: Places, converted: Mapping[int, list[bytes]]) -> Lines:
        """Return the lines of these rows. `converted`: by column, the fields that differ from the bytes in the file."""
        fields, extra = line_fields(written, converted, self.form.place_of, len(rows))
        # Escaping and hexadecimal digits double a value at most; NULL that is written as nothing has two bytes, year zero four.
        size = 2 * self.size(rows) + 4 * len(rows) * len(fields) + len(extra.text.bytes)
        lines = room_for(size, len(rows), len(fields))
        end = self.write_lines(text_of(self.content), self.form.bytes, self.borders, rows, fields, extra, lines)
        return Lines.side_by_side(lines.text.bytes[:end].copy(), lines.ends)


def array_over(content: bytes) -> Bytes:
    """Return bytes as loops take them."""
    return np.frombuffer(content, np.uint8)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowsBatch:
    """An implementation of `decoder.Batch`."""

    rows: BulkRows
    """The rows of the changes, and others outside the commit range."""
    inside: Places
    """The indexes of the rows that are changes."""
    numbers: Offsets
    ts: NDArray[np.uint64]
    operations: NDArray[np.int8]
    converted: Mapping[int, list[bytes]]
    """By index in the layout: the fields of columns that are not written as they are in the file."""

    def integers(self, place: int) -> Offsets | None:
        """See `decoder.Batch`."""
        return self.rows.integers(place, self.inside)

    def texts(self, place: int, chosen: Places) -> list[str | None]:
        """See `decoder.Batch`."""
        return self.rows.texts(place, self.inside[chosen])

    def packed(self, place: int, chosen: Places) -> Packed | None:
        """See `decoder.Batch`."""
        return self.rows.packed(place, self.inside[chosen])

    def lines(self, written: Sequence[int], chosen: Places) -> Lines:
        """See `decoder.Batch`."""
        numbers = chosen.tolist()
        converted = {place: [fields[number] for number in numbers] for place, fields in self.converted.items()}
        return self.rows.lines(written, self.inside[chosen], converted)


def inside(commit_range: CommitRange, rows: BulkRows, numbers: Offsets) -> tuple[RowsBatch, Flags, Flags]:
    """Return the rows inside the commit range as a batch, which of all rows they are, and which rows are later.

    `numbers`: the number in the file of each row. Raises `ValueError` if a text of `BulkForm.converted` is not a value of its column's type.
    """
    # Only rows inside are converted: values of others may belong to another table version.
    within, later = apart(rows.ts, commit_range)
    places = np.flatnonzero(within)
    batch = RowsBatch(
        rows=rows,
        inside=places,
        numbers=numbers[places],
        ts=rows.ts[places].view(np.uint64),
        operations=rows.operations[places],
        converted={place: [encode_field(text) for text in rows.texts(place, places)] for place in rows.form.converted},
    )
    return batch, within, later


def counted(
    commit_range: CommitRange, rows: BulkRows, numbers: Offsets, tally: Tally, lines: int, firsts: Any = slice(None)
) -> RowsBatch | None:
    """Return the rows inside the commit range as a batch, and count so many lines; None if a value is not one of its column's type.

    `numbers`: counted from 1 behind the lines that were counted before. `firsts`: which rows count.
    """
    try:
        batch, within, later = inside(commit_range, rows, numbers + (tally.rows + 1))
    except ValueError:
        # Nothing is counted before everything has succeeded: the plain reader counts the same rows.
        return None
    tally.rows += lines
    tally.add(rows.ts[firsts], within[firsts], later[firsts])
    return batch


def of_files(commit_range: CommitRange, rows: BulkRows, lines: Offsets, counts: Offsets) -> FilesBatch | None:
    """Return all rows of some files as one batch; None if a value is not one of its column's type.

    `lines`: for each row, its number in all files together, from 0; only the two rows of one update share a number.
    `counts`: how many such numbers each file has.
    """
    ends: Offsets = np.cumsum(counts)
    # The file in which each row lies: the first one that ends after its number.
    files = np.searchsorted(ends, lines, "right")
    try:
        batch, within, later = inside(commit_range, rows, lines - (ends - counts)[files] + 1)
    except ValueError:
        return None
    # The two rows of an update are one row of the file, so only the first of them is counted.
    firsts = np.append(True, lines[1:] != lines[:-1])
    # Rows of one file are adjacent: its first row, and the first of the next one.
    borders = np.searchsorted(files, np.arange(len(counts) + 1))
    tallies = [Tally(rows=int(count)) for count in counts]
    for tally, start, end in zip(tallies, borders[:-1], borders[1:], strict=True):
        one = np.flatnonzero(firsts[start:end]) + start
        tally.add(rows.ts[one], within[one], later[one])
    return FilesBatch(batch, files[batch.inside], tallies)
