"""Loops over bytes that are compiled for the processor (Numba) when they run first.

Only modules that are imported late may use it: importing Numba takes a process a quarter of a second and 60 MB, which small rounds
and the driver do not need.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit

Loop = TypeVar("Loop", bound=Callable[..., object])


def compiled(function: Loop) -> Loop:
    """The same function, compiled; what it calls has to be `inlined`. It can't make arrays, so that nothing counts references.

    The compiled code is kept for the next process, below NUMBA_CACHE_DIR or the user's cache folder. Where that cannot be written to,
    and on executors to which this package comes as a zip, each process compiles anew, which takes some seconds.
    """
    kept = _njit(function, callable_by_python=True)
    try:
        kept.enable_caching()
    except RuntimeError:
        return cast("Loop", kept)
    is_ours = _FOLDER is not None and Path(kept.stats.cache_path).is_relative_to(_FOLDER)
    return cast("Loop", kept if is_ours else _njit(function, callable_by_python=True))


def inlined(function: Loop) -> Loop:
    """A function that becomes part of those that call it."""
    return cast("Loop", _njit(function, callable_by_python=False))


def _njit(function: Loop, *, callable_by_python: bool) -> Any:
    """The function, compiled without Numba's run time: to count the references of arrays takes longer than most loops.

    Numba does not document the options; `pyproject.toml` allows the versions that have them.
    """
    options = {"_nrt": False, "no_cfunc_wrapper": True, "no_cpython_wrapper": not callable_by_python}
    return njit(function, **options)  # type: ignore[call-overload] # its types do not tell them either


def _folder() -> Path | None:
    """Where code is kept that was compiled of these very sources; None where they are no files.

    Numba alone would see a change of the module that a function is in, but not one of what it calls.
    """
    digest = hashlib.sha256()
    sources = sorted(Path(__file__).parent.glob("*.py"))
    for path in sources:
        digest.update(path.read_bytes())
    told = config.CACHE_DIR  # type: ignore[attr-defined] # Numba fills this module when it is imported
    parent = told or os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(parent) / "storage-consumer" / "compiled" / digest.hexdigest()[:16] if sources else None


_FOLDER = _folder()
if _FOLDER:
    config.CACHE_DIR = str(_FOLDER)  # type: ignore[attr-defined] # as above
