"""Byte loops that Numba compiles to machine code when they first run.

Only modules that are imported late may use it: importing Numba costs a process a quarter of a
second and 60 MB, which small rounds and the driver do not need.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import __version__, config, njit
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target

from storage_consumer.config.private_files import make_place, mistrust, place_of_code
from storage_consumer.telemetry import Log

config.DISABLE_JIT = 0  # type: ignore[attr-defined] # Numba fills this module; uncompiled, NumPy's numbers of one byte would overflow in the loops

_log = Log("decoding")
Loop = TypeVar("Loop", bound=Callable[..., object])


def compiled(function: Loop) -> Loop:
    """Compile a function that calls only `inlined` ones and creates no arrays.

    So nothing counts references.

    The compiled code is cached for the next process, in NUMBA_CACHE_DIR or the user's cache folder.
    Each process compiles again, which takes some seconds, if that folder is not writable or others
    may write to it, and on executors that get this package as a zip.
    """
    kept = _njit(function, callable_by_python=True)
    with suppress(RuntimeError):  # no folder can be written to
        cache = _Cache(function)  # type: ignore[no-untyped-call] # Numba's
        # Numba falls back to other places such as `__pycache__`: use only the checked folder.
        if _FOLDER and Path(cache.cache_path).is_relative_to(_FOLDER):
            kept._cache = cache  # noqa: SLF001 - as `enable_caching` does
    return cast("Loop", kept)


def inlined(function: Loop) -> Loop:
    """Return a function that becomes part of those that call it."""
    return cast("Loop", _njit(function, callable_by_python=False))


class _Cache(FunctionCache):
    """Compiled code in files; where a file is unusable, the function is compiled again."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for these argument types, or None if it has to be compiled.

        Processes that compile for different types at the same time may use one file name. Code for
        other types would read and write beyond its arrays, so the signature is checked.
        """
        try:
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call] # Numba's
        except Exception:  # noqa: BLE001 - whatever damaged bytes lead to
            # Forget the index as well: it names a file that cannot be read.
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call] # Numba's
            return None
        return found if found and found.signature.args == sig else None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Cache the code for these argument types."""
        with suppress(OSError):  # a disk that is full
            super().save_overload(sig, data)  # type: ignore[no-untyped-call] # Numba's


def _njit(function: Loop, *, callable_by_python: bool) -> Any:
    """Compile without Numba's runtime: counting references takes longer than most loops.

    Numba does not document these options; `pyproject.toml` allows only versions that have them.
    """
    options = {
        "_nrt": False,
        "no_cfunc_wrapper": True,
        "no_cpython_wrapper": not callable_by_python,
    }
    return njit(function, **options)  # type: ignore[call-overload] # its types do not list them either


def _folder() -> Path | None:
    """Return these sources' cache folder; None without source files or a trusted folder.

    Numba alone notices a change of the module that a function is in, but not of the modules that it
    calls. Nor does it separate the code of two kinds of processors that share a folder and compile
    at the same time (see `_Cache`).
    """
    # What is loaded from here runs as machine code: the name covers all that it depends on.
    digest = hashlib.sha256(
        repr((__version__, cpu_target.target_context.codegen().magic_tuple())).encode()
    )
    sources = sorted(Path(__file__).parent.glob("*.py"))
    for path in sources:
        digest.update(path.read_bytes())
    configured = str(config.CACHE_DIR or "")  # type: ignore[attr-defined] # as above
    folder = place_of_code(configured, digest.hexdigest()[:16]) if sources else None
    if folder is None or not make_place(folder):
        return None
    if why := mistrust(folder):
        _log.warning("cache_refused", folder=str(folder), error=why)
    return None if why else folder


_FOLDER = _folder()
# Before any module of loops is imported: Numba reads this when it makes a cache.
if _FOLDER:
    config.CACHE_DIR = str(_FOLDER)  # type: ignore[attr-defined] # as above
