"""Arrays about the bytes of many rows, and which bytes are text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]


def is_utf8(content: bytes) -> bool:
    """Whether all of it is UTF-8."""
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
