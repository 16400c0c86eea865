"""The rows at the beginning of some bytes of a CSV file as one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from storage_consumer.decoding.columns import Offsets, Places
from storage_consumer.decoding.csv_columns import CsvRows, RowForm, read_rows
from storage_consumer.decoding.decoder import Tally, apart
from storage_consumer.decoding.lines import Lines
from storage_consumer.decoding.wire import NULL
from storage_consumer.model import Window


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CsvBatch:
    """A `decoder.Batch`."""

    rows: CsvRows
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


def read_batch(form: RowForm, content: bytes, window: Window, tally: Tally) -> tuple[CsvBatch, int] | None:
    """The changes of the rows that `content` begins with, which are counted in `tally`, and where the last of these rows ends.

    None where no row of this form comes first, or where a value is not one of its column's type: the plain reader has to look.
    """
    rows = read_rows(form, content)
    if rows is None:
        return None
    within, later = apart(rows.ts, window)
    inside = np.flatnonzero(within)
    try:
        converted = {
            place: [NULL if text is None else text.encode() for text in rows.texts(place, inside)]
            for place in form.converted
        }
    except ValueError:
        return None
    numbers = inside - rows.seconds[inside] + (tally.rows + 1)
    tally.rows += len(rows)
    tally.add(rows.ts, within, later)
    batch = CsvBatch(
        rows=rows,
        inside=inside,
        numbers=numbers,
        ts=rows.ts[inside].view(np.uint64),
        operations=rows.operations[inside],
        converted=converted,
    )
    return batch, rows.end
