"""The rows at the beginning of some bytes of a CSV file as one batch."""

from __future__ import annotations

import numpy as np

from storage_consumer.decoding.csv_columns import RowForm, read_rows
from storage_consumer.decoding.decoder import Tally, apart
from storage_consumer.decoding.rows_batch import RowsBatch, converted_fields
from storage_consumer.model import Window


def read_batch(form: RowForm, content: bytes, window: Window, tally: Tally) -> tuple[RowsBatch, int] | None:
    """The changes of the rows that `content` begins with, which are counted in `tally`, and where the last of these rows ends.

    None where no row of this form comes first, or where a value is not one of its column's type: the plain reader has to look.
    """
    rows = read_rows(form, content)
    if rows is None:
        return None
    within, later = apart(rows.ts, window)
    inside = np.flatnonzero(within)
    try:
        converted = converted_fields(rows, form.converted, inside)
    except ValueError:
        return None
    numbers = inside - rows.seconds[inside] + (tally.rows + 1)
    tally.rows += len(rows)
    tally.add(rows.ts, within, later)
    batch = RowsBatch(
        rows=rows,
        inside=inside,
        numbers=numbers,
        ts=rows.ts[inside].view(np.uint64),
        operations=rows.operations[inside],
        converted=converted,
    )
    return batch, rows.end
