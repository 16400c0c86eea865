"""Loops over bytes that are compiled for the processor (Numba) when they run first.

Only modules that are imported late may use it: importing Numba takes a process a quarter of a second and 60 MB, which small rounds
and the driver do not need.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., object])


def compiled(function: Loop) -> Loop:
    """The same function, compiled; what it calls has to be compiled too.

    The compiled code is kept beside the module or, where that cannot be written to, below the user's cache folder, for the next
    process. Where neither can be written to, as on executors that run as nobody, each process compiles anew, which takes two seconds.
    """
    kept = njit(function)
    try:
        kept.enable_caching()
        folder = Path(kept.stats.cache_path)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return cast("Loop", kept)
    except (OSError, RuntimeError):
        return cast("Loop", njit(function))
