"""The rows at the beginning of some bytes of a CSV file as one batch."""

from __future__ import annotations

import numpy as np

from storage_consumer.decoding.csv_columns import RowForm, read_rows
from storage_consumer.decoding.decoder import Tally
from storage_consumer.decoding.rows_batch import RowsBatch, inside
from storage_consumer.model import Window


def read_batch(form: RowForm, content: bytes, window: Window, tally: Tally) -> tuple[RowsBatch, int] | None:
    """The changes of the rows that `content` begins with, which are counted in `tally`, and where the last of these rows ends.

    None where no row of this form comes first, or where a value is not one of its column's type: the plain reader has to look.
    """
    rows = read_rows(form, content)
    if rows is None:
        return None
    numbers = np.arange(len(rows)) - rows.seconds + (tally.rows + 1)
    try:
        batch, within, later = inside(window, rows, numbers, form.converted)
    except ValueError:
        return None
    tally.rows += len(rows)
    tally.add(rows.ts, within, later)
    return batch, rows.end
