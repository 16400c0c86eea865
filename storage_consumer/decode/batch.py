"""A batch of rows that compiled loops have found in a file's bytes, of either protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from storage_consumer.decode.decoder import FilesBatch, Tally, apart
from storage_consumer.decode.wire_format import encode_field
from storage_consumer.kernels.arrays import Flags, Offsets, Places
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.model import Window


class Rows(Protocol):
    """Rows that lie one behind the other in some bytes; a column is told by its place in the layout."""

    @property
    def ts(self) -> Offsets:
        """Commit ts."""
        ...

    @property
    def operations(self) -> NDArray[np.int8]:
        """INSERT, UPDATE or DELETE."""
        ...

    def integers(self, place: int, rows: Places) -> Offsets | None:
        """A column's values in these rows, None where they can't be such an array."""
        ...

    def texts(self, place: int, rows: Places) -> list[str | None]:
        """The wire texts of a column in these rows. Raises `ValueError` for one that is no value of the column's type."""
        ...

    def lines(self, written: Sequence[int], rows: Places, converted: Mapping[int, list[bytes]]) -> Lines:
        """The lines of these rows. `converted`: fields, by column, that are not written as the bytes have them."""
        ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowsBatch:
    """A `decoder.Batch`."""

    rows: Rows
    """Those that the changes are of, and others outside the window."""
    inside: Places
    """Which of them the changes are of."""
    numbers: Offsets
    ts: NDArray[np.uint64]
    operations: NDArray[np.int8]
    converted: Mapping[int, list[bytes]]
    """By place in the layout: the fields of columns that are not written as they stand in the file."""

    def integers(self, place: int) -> Offsets | None:
        """See `decoder.Batch`."""
        return self.rows.integers(place, self.inside)

    def texts(self, place: int, chosen: Places) -> list[str | None]:
        """See `decoder.Batch`."""
        return self.rows.texts(place, self.inside[chosen])

    def lines(self, written: Sequence[int], chosen: Places) -> Lines:
        """See `decoder.Batch`."""
        numbers = chosen.tolist()
        converted = {place: [fields[number] for number in numbers] for place, fields in self.converted.items()}
        return self.rows.lines(written, self.inside[chosen], converted)


def inside(window: Window, rows: Rows, numbers: Offsets, converted: Sequence[int]) -> tuple[RowsBatch, Flags, Flags]:
    """The rows inside the window as a batch, which of all rows they are, and which are later.

    `numbers`: of each row, in the file. `converted`: the columns whose fields are not written as the bytes have them. Raises
    `ValueError` where a text of these is no value of its column's type.
    """
    within, later = apart(rows.ts, window)
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


def of_files(window: Window, rows: Rows, lines: Offsets, counts: Offsets, converted: Sequence[int]) -> FilesBatch:
    """All rows of some files as one batch.

    `lines`: of each row its number in all files together, from 0, which only two rows of one update share. `counts`: how many such numbers
    each file has. `converted`, and what is raised: see `inside`.
    """
    ends: Offsets = np.cumsum(counts)
    files = np.searchsorted(ends, lines, "right")
    batch, within, later = inside(window, rows, lines - (ends - counts)[files] + 1, converted)
    firsts = np.append(True, lines[1:] != lines[:-1])
    borders = np.searchsorted(files, np.arange(len(counts) + 1))
    tallies = [Tally(rows=int(count)) for count in counts]
    for tally, start, end in zip(tallies, borders[:-1], borders[1:], strict=True):
        one = np.flatnonzero(firsts[start:end]) + start
        tally.add(rows.ts[one], within[one], later[one])
    return FilesBatch(batch, files[batch.inside], tallies)
