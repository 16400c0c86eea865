"""Read small files of one table version together, as if they were one: a flush every few seconds leaves thousands of them.

The cost of decoding a batch hardly depends on its number of rows: for files of 12 KiB it exceeded the cost of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from storage_consumer.decode.decoder import Decoder, Tally
from storage_consumer.job.spec import JobFile
from storage_consumer.model import CommitRange
from storage_consumer.order.batch_buffer import BadKey
from storage_consumer.order.buffer import PIECE_BYTES, Buffer

SMALL_BYTES = 64 << 10
"""Files of fewer bytes are read together, up to `PIECE_BYTES` in all."""
LEAST_BYTES = 32 << 10
"""Least number of bytes that are read together: fewer are faster one by one."""


def runs(files: Iterable[JobFile]) -> Iterator[list[JobFile]]:
    """Yield the files in their sequence; adjacent files that may be read together share a list."""
    run: list[JobFile] = []
    size = 0
    for work in files:
        is_small = work.size < SMALL_BYTES
        if run and not (is_small and size + work.size <= PIECE_BYTES):
            yield run
            run, size = [], 0
        run.append(work)
        # After a large file the run counts as full, so that it stays alone.
        size += work.size if is_small else PIECE_BYTES + 1
    if run:
        yield run


def read_together(
    run: Sequence[JobFile], contents: Sequence[bytes], commit_range: CommitRange, buffer: Buffer, decoder: Decoder
) -> list[Tally] | None:
    """Take the changes of these files into the buffer; return the tally of each file.

    Returns None, having taken none, if each file has to be read by itself. `contents`: fewer than files if one is gone.
    """
    size = sum(map(len, contents))
    if len(contents) < len(run) or size < LEAST_BYTES:
        return None
    found = decoder.together(contents, buffer.version.layout, commit_range, buffer.version.key)
    if found is None:
        return None
    try:
        buffer.take_batch(found.batch, np.array([work.rank for work in run])[found.files], size)
    except BadKey:  # reading each file by itself finds the file and the row
        return None
    for tally in found.tallies:
        # Every row inside the commit range is one change, also an update of two rows.
        tally.taken = tally.inside
    return found.tallies
