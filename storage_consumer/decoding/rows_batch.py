"""A batch of rows that compiled loops have found in a file's bytes, of either protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from storage_consumer.decoding.columns import Offsets, Places
from storage_consumer.decoding.lines import Lines
from storage_consumer.decoding.wire import encode_field


class Rows(Protocol):
    """Rows that lie one behind the other in some bytes; a column is told by its place in the layout."""

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


def converted_fields(rows: Rows, places: Sequence[int], inside: Places) -> dict[int, list[bytes]]:
    """The fields of these columns. Raises `ValueError` where a text is no value of its column's type."""
    return {place: [encode_field(text) for text in rows.texts(place, inside)] for place in places}
