"""A batch of rows that compiled loops found in a file's bytes, for both protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from storage_consumer.decode.decoder import FilesBatch, Tally, apart
from storage_consumer.decode.wire_format import encode_field
from storage_consumer.kernels.arrays import Flags, Offsets, Packed, Places
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.model import CommitRange


class Rows(Protocol):
    """Rows that are adjacent in some bytes; a column is given by its index in the layout."""

    @property
    def ts(self) -> Offsets:
        """Commit-ts of each row."""
        ...

    @property
    def operations(self) -> NDArray[np.int8]:
        """INSERT, UPDATE or DELETE for each row."""
        ...

    def integers(self, place: int, rows: Places) -> Offsets | None:
        """Return a column's values in these rows, or None if such an array cannot hold them."""
        ...

    def texts(self, place: int, rows: Places) -> list[str | None]:
        """Return the wire texts of a column in these rows. Raise `ValueError` for a text that is not a value of its type."""
        ...

    def packed(self, place: int, rows: Places) -> Packed | None:
        """Return a column's values in these rows as `texts` means them, bytes as such; None where they have to be read one by one."""
        ...

    def lines(self, written: Sequence[int], rows: Places, converted: Mapping[int, list[bytes]]) -> Lines:
        """Return the lines of these rows. `converted`: by column, the fields that differ from the bytes in the file."""
        ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowsBatch:
    """An implementation of `decoder.Batch`."""

    rows: Rows
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


def inside(
    commit_range: CommitRange, rows: Rows, numbers: Offsets, converted: Sequence[int]
) -> tuple[RowsBatch, Flags, Flags]:
    """Return the rows inside the commit range as a batch, which of all rows they are, and which rows are later.

    `numbers`: the number in the file of each row. `converted`: the columns whose fields are not written as the bytes
    have them. Raises `ValueError` if a text of these columns is not a value of its column's type.
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
        converted={place: [encode_field(text) for text in rows.texts(place, places)] for place in converted},
    )
    return batch, within, later


def of_files(
    commit_range: CommitRange, rows: Rows, lines: Offsets, counts: Offsets, converted: Sequence[int]
) -> FilesBatch:
    """Return all rows of some files as one batch.

    `lines`: for each row, its number in all files together, from 0; only the two rows of one update share a number.
    `counts`: how many such numbers each file has. `converted`, and what is raised: see `inside`.
    """
    ends: Offsets = np.cumsum(counts)
    # The file in which each row lies: the first one that ends after its number.
    files = np.searchsorted(ends, lines, "right")
    batch, within, later = inside(commit_range, rows, lines - (ends - counts)[files] + 1, converted)
    # The two rows of an update are one row of the file, so only the first of them is counted.
    firsts = np.append(True, lines[1:] != lines[:-1])
    # Rows of one file are adjacent: its first row, and the first of the next one.
    borders = np.searchsorted(files, np.arange(len(counts) + 1))
    tallies = [Tally(rows=int(count)) for count in counts]
    for tally, start, end in zip(tallies, borders[:-1], borders[1:], strict=True):
        one = np.flatnonzero(firsts[start:end]) + start
        tally.add(rows.ts[one], within[one], later[one])
    return FilesBatch(batch, files[batch.inside], tallies)
