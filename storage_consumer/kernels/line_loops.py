"""Compiled loops over lines. Import late, see `jit`."""

from __future__ import annotations

import numpy as np

from storage_consumer.kernels.arrays import Bytes, Offsets
from storage_consumer.kernels.jit import compiled
from storage_consumer.kernels.words import WORD, Text, copy, text_of


def gather(content: Bytes, starts: Offsets, ends: Offsets) -> Bytes:
    """Return the lines between these places side by side, each with the LF at its end."""
    sizes = ends + 1 - starts
    out = np.empty(int(sizes.sum()) + WORD, np.uint8)
    _gather(text_of(content), starts, sizes, text_of(out))
    return out[:-WORD]


@compiled
def _gather(source: Text, starts: Offsets, sizes: Offsets, out: Text) -> None:
    """Write pieces one after the other."""
    at = 0
    for number in range(len(starts)):
        at = copy(source, starts[number], starts[number] + sizes[number], out, at)
