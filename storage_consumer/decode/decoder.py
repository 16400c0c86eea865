"""The decoding stage's interface: bytes of one data file in, row changes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from storage_consumer.decode.canonical_text import Spelling
from storage_consumer.decode.file_splits import RowBoundary
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.model import TableColumn, TableName, Window

MOST_TS = 2**63 - 1
"""The highest commit ts that rows which are read at once may have: there they are signed integers."""

Values = tuple[str | None, ...]
"""One value per column of the `RowLayout`, as wire text (see values.py); None is SQL NULL."""

RowChange = tuple[int, int, int, Values, Values | None]
"""(row number in the file from 1, commit ts, operation, values, old values).

`values` is the new image of an INSERT or UPDATE and the old image of a DELETE; old values are there only for an UPDATE whose
file says them. A plain tuple, since millions of them are made. Where the file does not say the row's commit ts, it is the
lowest one that the row may have.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Which columns the rows of one version directory carry, in order."""

    table: TableName
    columns: tuple[TableColumn, ...]
    """Hidden, virtual generated and unselected columns left out; stored generated ones are in."""
    unselected: frozenset[str] = frozenset()
    """Casefolded names of the columns that a column selector keeps out of the rows."""
    listed: tuple[str, ...] = ()
    """Names of all columns of the schema file, in order: a CSV header line may name those too that rows lack."""
    zone: str = ""
    """Zone whose TIMESTAMP texts become UTC while they are decoded; empty: they stay as they are."""
    spelled: tuple[Spelling | None, ...] = ()
    """Per column how its texts are spelled while they are decoded (see `key_forms`); empty: all stay as they are."""

    def spelling(self, place: int) -> Spelling | None:
        """How the texts of the column at this place are spelled; None: they stay as they are."""
        return self.spelled[place] if self.spelled else None


@dataclass(slots=True)
class Tally:
    """Counts of one file, filled while its rows are decoded."""

    rows: int = 0
    """Rows read, whatever became of them."""
    duplicates: int = 0
    """Rows with commit ts <= the window's low border: applied before."""
    later: int = 0
    """Rows with commit ts > the window's high border: kept for a later round."""
    max_ts: int = 0
    """Highest commit ts in the file."""
    next_ts: int = 0
    """Lowest commit ts above the window, 0 if there is none."""

    @property
    def inside(self) -> int:
        """Rows inside the window, where each is a change of its own."""
        return self.rows - self.duplicates - self.later

    def add(self, ts: NDArray[np.int64], inside: NDArray[np.bool_], later: NDArray[np.bool_]) -> None:
        """Count many rows but for `rows`; `inside` and `later`: see `apart`."""
        if not len(ts):
            return
        beyond = int(later.sum())
        self.max_ts = max(self.max_ts, int(ts.max()))
        self.duplicates += len(ts) - int(inside.sum()) - beyond
        if beyond:
            self.later += beyond
            self.next_ts = min(int(ts[later].min()), self.next_ts or MOST_TS)


def apart(ts: NDArray[np.int64], window: Window) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows of these commit ts are inside the window, and which are later."""
    later = ts > min(window.high, MOST_TS)
    return (ts > min(window.low, MOST_TS)) & ~later, later


class Batch(Protocol):
    """Row changes inside the window, read at once and not made into values. All columns have one entry for each change.

    It holds inserts, whole deletes and updates that do not change a key or, where there is none, do not tell an old image.
    Any other update is in it as a delete of its old row and, right behind that, an insert of its new one with the same number.
    """

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Row numbers in the file."""
        ...

    @property
    def ts(self) -> NDArray[np.uint64]:
        """Commit ts."""
        ...

    @property
    def operations(self) -> NDArray[np.int8]:
        """INSERT, UPDATE or DELETE."""
        ...

    def integers(self, place: int) -> NDArray[np.int64] | None:
        """The values of the layout's column at this place, None where they are not all integers that such an array holds."""
        ...

    def texts(self, place: int, chosen: NDArray[np.intp]) -> list[str | None]:
        """The wire texts of the layout's column at this place, of the changes at the chosen ones."""
        ...

    def lines(self, written: Sequence[int], chosen: NDArray[np.intp]) -> Lines:
        """The lines that `wire.LineEncoder` makes of these columns, of the changes at the chosen places."""
        ...


class FilesBatch(NamedTuple):
    """The changes of several files, in their sequence."""

    batch: Batch
    """Its numbers are those of the rows in their own files."""
    files: NDArray[np.int64]
    """Of each change which file it is in, from 0."""
    tallies: list[Tally]
    """Of each file."""


class Decoder(Protocol):
    """Decodes one protocol."""

    @property
    def mark(self) -> RowBoundary | None:
        """Where a row begins in any file, None where that cannot be told without all that stands before."""
        ...

    def changes(
        self,
        blocks: Iterable[bytes],
        layout: RowLayout,
        window: Window,
        tally: Tally,
        source: str,
        key: Sequence[int],
    ) -> Iterator[RowChange | Batch]:
        """As `rows`, in any order, with many changes at once wherever they have the form that the layout's rows usually have.

        `key`: the places of the key's columns in the layout; an update that tells that it changes one comes by itself, or as
        a delete and an insert (see `Batch`), and without a key every update that tells its old image does. Of old images
        nothing but the key need be looked at.
        """
        ...

    def together(
        self, contents: Sequence[bytes], layout: RowLayout, window: Window, key: Sequence[int]
    ) -> FilesBatch | None:
        """What `changes` gives of each of these files, all at once.

        None where one of them has to be read by itself: some row has not the form that the layout's rows usually have, or the files
        do not tell where rows begin (`mark`).
        """
        ...

    def rows(
        self, blocks: Iterable[bytes], layout: RowLayout, window: Window, tally: Tally, source: str
    ) -> Iterator[RowChange]:
        """The changes with ``window.low < commit ts <= window.high``, in file order.

        Rows outside the window are only counted in `tally`, before their columns are decoded. `source` is the file's path,
        for messages. Raises `UndecodableRow` with file, row number, byte offset, excerpt and (where known) commit ts.
        """
        ...
