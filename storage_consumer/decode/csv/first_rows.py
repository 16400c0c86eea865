"""Read the rows at the start of some bytes of a CSV file, or those of small files, as one batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from storage_consumer.decode.batch import RowsBatch, inside, of_files
from storage_consumer.decode.csv.batch import RowForm, read_rows
from storage_consumer.decode.decoder import FilesBatch, Tally
from storage_consumer.model import CommitRange


def read_batch(form: RowForm, content: bytes, commit_range: CommitRange, tally: Tally) -> tuple[RowsBatch, int] | None:
    """Return the changes of the rows that `content` begins with, and where the last of these rows ends; count them in `tally`.

    Returns None if the first row is not of this form, or if a value is not one of its column's type: both are for the
    plain reader.
    """
    rows = read_rows(form, content)
    if rows is None or not rows.ts.all():  # 0 is not a commit-ts
        return None
    # Both rows of an update carry the number of its D row.
    numbers = np.arange(len(rows)) - rows.seconds + (tally.rows + 1)
    try:
        # Nothing is counted before everything has succeeded: the plain reader counts the same rows.
        batch, within, later = inside(commit_range, rows, numbers, form.converted)
    except ValueError:
        return None
    tally.rows += len(rows)
    tally.add(rows.ts, within, later)
    return batch, rows.end


def read_together(form: RowForm, contents: Sequence[bytes], commit_range: CommitRange) -> FilesBatch | None:
    """Return the changes of whole files without old images; None if `read_batch` would not read each of them to its end."""
    content = b"".join(contents)
    rows = read_rows(form, content) if content.endswith(b"\n") else None
    if rows is None or rows.end != len(content) or not rows.ts.all():
        return None
    ends, borders = rows.borders[:, -1] + 1, np.cumsum([*map(len, contents)])
    # Each file has to end where some row ends; `last` is that row.
    last = np.searchsorted(ends, borders)
    if not (ends[last] == borders).all():  # a row continues in the next file
        return None
    try:
        return of_files(commit_range, rows, np.arange(len(rows)), np.diff(last + 1, prepend=0), form.converted)
    except ValueError:
        return None
