"""Arrays about the bytes of many rows, and which bytes are text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]


def is_utf8(content: Bytes) -> bool:
    """Whether all of it is UTF-8. Only what is not ASCII is looked at, with the byte behind it."""
    wanted = content > 0x7F  # noqa: PLR2004 - the last byte of ASCII
    if not wanted.any():
        return True
    wanted[1:] |= wanted[:-1]
    try:
        content[np.flatnonzero(wanted)].tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True
