"""What loops and their Python twins exchange: arrays over many rows' bytes, and codes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
Operations = NDArray[np.int8]
Stamps = NDArray[np.uint64]
"""Commit-ts."""

# Loops compile codes in as constants. The cache key covers them, as it covers all sources of this
# room (see `jit`).
PARTIAL_DELETE, DELETE, INSERT, UPDATE = -1, 0, 1, 2
"""Operations of a row change; those above DELETE leave a row, all that counts with a key.

PARTIAL_DELETE is a delete whose file has the handle key's columns only; its other values are None
and mean nothing.
"""

INTEGER_FIELD, UNSIGNED_FIELD, YEAR_FIELD, FLOAT_FIELD = range(4)
"""Forms of numbers in a file; each protocol adds forms of other values."""


class Packed(NamedTuple):
    """The values of a column in some rows."""

    bytes: Bytes
    offsets: NDArray[np.int32]
    """Where each value begins, and where the last one ends."""
    valid: Flags
    """Whether each value is one; NULL has no bytes."""
    is_binary: bool
    """Whether they are bytes, not texts."""
