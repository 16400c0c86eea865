"""Small files of one table version, read together as if they were one: a flush each few seconds leaves thousands of them.

What it takes to decode a batch hardly depends on how many rows are in it: for files of 12 KiB that was more than for the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from storage_consumer.decode.decoder import Decoder, Tally
from storage_consumer.job.spec import WHOLE, FileSplit, VersionPlan
from storage_consumer.model import Window
from storage_consumer.order.buffer import PIECE_BYTES, BadKey, Buffer

SMALL_BYTES = 64 << 10
"""Files of fewer bytes are read together, as many as have `PIECE_BYTES`."""
LEAST_BYTES = 32 << 10
"""Of fewer bytes in all it takes longer than one by one."""


def runs(files: Iterable[FileSplit]) -> Iterator[list[FileSplit]]:
    """The same files in their sequence, those that may be read together side by side."""
    run: list[FileSplit] = []
    size = 0
    for work in files:
        is_small = work.span == WHOLE and work.size < SMALL_BYTES
        if run and not (is_small and size + work.size <= PIECE_BYTES):
            yield run
            run, size = [], 0
        run.append(work)
        size += work.size if is_small else PIECE_BYTES + 1
    if run:
        yield run


def read_together(
    run: Sequence[FileSplit],
    contents: Sequence[bytes],
    version: VersionPlan,
    window: Window,
    buffer: Buffer,
    decoder: Decoder,
) -> list[Tally] | None:
    """Take the changes of these files into the buffer; what was in each. None where each has to be read by itself: none was taken.

    `contents`: fewer than files where one is gone.
    """
    size = sum(map(len, contents))
    if len(contents) < len(run) or size < LEAST_BYTES:
        return None
    found = decoder.together(contents, version.layout, window, version.key)
    if found is None:
        return None
    try:
        if len(found.files):
            buffer.take(found.batch, np.array([work.rank for work in run])[found.files])
    except BadKey:  # the file and the row are told when it is read by itself
        return None
    buffer.size += size
    return found.tallies
