"""Compiled loops over lines. To be imported late, see `compiled`."""

from __future__ import annotations

import numpy as np

from storage_consumer.decoding.byte_words import WORD, Text, copy, text_of
from storage_consumer.decoding.columns import Bytes, Offsets, Places
from storage_consumer.decoding.compiled import compiled


def gather(content: Bytes, ends: Offsets, places: Places) -> tuple[Bytes, Offsets]:
    """The lines at these places in one piece, and where they end; see `Lines`."""
    starts = np.concatenate(([0], ends[:-1] + 1))[places]
    sizes = ends[places] + 1 - starts
    found = np.cumsum(sizes) - 1
    out = np.empty(int(sizes.sum()) + WORD, np.uint8)
    _gather(text_of(content), starts, sizes, text_of(out))
    return out[:-WORD], found


@compiled
def _gather(source: Text, starts: Offsets, sizes: Offsets, out: Text) -> None:
    """Write pieces one behind the other."""
    at = 0
    for number in range(len(starts)):
        at = copy(source, starts[number], starts[number] + sizes[number], out, at)
