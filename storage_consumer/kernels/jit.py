"""Loops over bytes that are compiled for the processor (Numba) when they run first.

Only modules that are imported late may use it: importing Numba takes a process a quarter of a second and 60 MB, which small rounds
and the driver do not need.
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

from storage_consumer.config.code_cache import make_place, mistrust, place_of_code
from storage_consumer.telemetry import Log

config.DISABLE_JIT = 0  # type: ignore[attr-defined] # Numba fills this module; uncompiled, NumPy's numbers of one byte would overflow in the loops

_log = Log("decoding")
Loop = TypeVar("Loop", bound=Callable[..., object])


def compiled(function: Loop) -> Loop:
    """The same function, compiled; what it calls has to be `inlined`. It can't make arrays, so that nothing counts references.

    The compiled code is kept for the next process, below NUMBA_CACHE_DIR or the user's cache folder. Where that cannot be written to,
    where others may write to it, and on executors to which this package comes as a zip, each process compiles anew, which takes some seconds.
    """
    kept = _njit(function, callable_by_python=True)
    with suppress(RuntimeError):  # no folder can be written to
        cache = _Cache(function)  # type: ignore[no-untyped-call] # Numba's
        if _FOLDER and Path(cache.cache_path).is_relative_to(_FOLDER):
            kept._cache = cache  # noqa: SLF001 - as `enable_caching` does
    return cast("Loop", kept)


def inlined(function: Loop) -> Loop:
    """A function that becomes part of those that call it."""
    return cast("Loop", _njit(function, callable_by_python=False))


class _Cache(FunctionCache):
    """Compiled code in files. Where one can't be read or written, or holds something else, the function is compiled anew."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for these types of arguments.

        Processes that compile for different types at the same time may give their files one name: what it was compiled for is
        looked at, since it would read and write beyond its arrays.
        """
        try:
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call] # Numba's
        except Exception:  # noqa: BLE001 - whatever damaged bytes lead to
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call] # Numba's
            return None
        return found if found and found.signature.args == sig else None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code for these types of arguments."""
        with suppress(OSError):  # a disk that is full
            super().save_overload(sig, data)  # type: ignore[no-untyped-call] # Numba's


def _njit(function: Loop, *, callable_by_python: bool) -> Any:
    """The function, compiled without Numba's run time: to count the references of arrays takes longer than most loops.

    Numba does not document the options; `pyproject.toml` allows the versions that have them.
    """
    options = {"_nrt": False, "no_cfunc_wrapper": True, "no_cpython_wrapper": not callable_by_python}
    return njit(function, **options)  # type: ignore[call-overload] # its types do not tell them either


def _folder() -> Path | None:
    """Where code is kept that was compiled of these very sources; None where they are no files, or nobody may trust what is there.

    Numba alone would see a change of the module that a function is in, but not one of what it calls. Nor does it keep what two
    kinds of processors compile at the same time apart (see `_Cache`), which may share a folder.
    """
    digest = hashlib.sha256(repr((__version__, cpu_target.target_context.codegen().magic_tuple())).encode())
    sources = sorted(Path(__file__).parent.glob("*.py"))
    for path in sources:
        digest.update(path.read_bytes())
    told = str(config.CACHE_DIR or "")  # type: ignore[attr-defined] # as above
    folder = place_of_code(told, digest.hexdigest()[:16]) if sources else None
    if folder is None or not make_place(folder):
        return None
    if why := mistrust(folder):
        _log.warning("cache_refused", folder=str(folder), error=why)
    return None if why else folder


_FOLDER = _folder()
if _FOLDER:
    config.CACHE_DIR = str(_FOLDER)  # type: ignore[attr-defined] # as above
