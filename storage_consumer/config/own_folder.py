"""Folders in which nobody else can write: one of this process alone, and that of compiled code, which the next process finds.

The former is in memory if possible, for sockets and for anything that no other user may see. It is removed when the process ends. If a process is killed, the next one of the same user removes its folder: each process holds a
lock on its folder for as long as it lives, so that nobody removes the folder of a living one.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

_PREFIX = "storage-consumer-"
CODE_VARIABLE = "NUMBA_CACHE_DIR"
_REMEDY = f"remove the write permission of other users (chmod go-w), or set {CODE_VARIABLE} to another folder"
MARK = "removed-with-its-process"
"""A file that distinguishes it from a folder of the user's own with a similar name, such as a clone of this repository."""
_LINK = "leftover-"
LONGEST = 60
"""Upper limit of its path in characters: a socket in it, with a name of 42, has to stay below 108."""
_OF_SPARK = "spark-"
"""Prefix of the folders that are noted for Spark's JVM."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def own_folder() -> Path:
    """Return the folder of this process, mode 0700; the same at each call. Raise `OSError` if none can be created."""
    # By the process: a child that was forked gets a folder of its own.
    return _folder_of(os.getpid())


def remove_later(folder: Path) -> None:
    """Note a folder of Spark's JVM. This process removes it at its end; after kill -9 the next one does."""
    (own_folder() / f"{_LINK}{folder.name}").symlink_to(folder)


def noted() -> list[Path]:
    """Return the folders that this process has noted."""
    return [link.readlink() for link in own_folder().glob(f"{_LINK}*")]


@lru_cache(maxsize=1)
def _folder_of(process: int) -> Path:
    """Create the folder of a process, which is this one, and remove what others have left."""
    parents = [*_parents()]
    # In every place, since the process that is gone may have found another one best.
    for parent in parents:
        _remove_left(parent)
    made = (_made(parent) for parent in parents)
    # As the last resort any place will do: mode 0700 still keeps others out of the folder itself.
    folder = next(filter(None, made), None) or _locked(Path(tempfile.mkdtemp(prefix=_PREFIX)))
    # With the number of the process: a child that is forked runs this too, and must leave the folder to its parent.
    atexit.register(_remove, process, folder)
    return folder


def _parents() -> Iterator[Path]:
    """Yield the places for such a folder, best first: in memory, where this user's programs keep their sockets."""
    for name in (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm", tempfile.gettempdir()):  # noqa: S108 - made safe by `_made`
        if name and os.path.isdir(name):  # noqa: PTH112 - also where nothing may be asked about it
            yield Path(name).resolve()


def _made(parent: Path) -> Path | None:
    """Create the folder and lock it; return None if it can't be there, or if its place cannot be trusted."""
    while True:
        try:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        except OSError:
            return None
        if len(str(folder)) > LONGEST or writers_of(folder):
            folder.rmdir()
            return None
        if _locked(folder).exists():  # else another process took it for left behind before it was locked
            return folder


def _locked(folder: Path) -> Path:
    """Lock a folder for as long as this process lives, then mark it; return it."""
    with suppress(OSError):  # removed, or a file system without locks, where nobody else gets one either
        # The handle is never closed: the lock lasts until the process ends, even if it is killed.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(handle, fcntl.LOCK_EX)
    # Mark only after locking: `_remove_left` removes marked folders whose lock is free.
    with suppress(OSError):  # removed
        (folder / MARK).touch(mode=0o600)
    return folder


def _remove_left(parent: Path) -> None:
    """Remove the folders of processes that are gone, with the folders they noted."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError), _opened(folder) as handle:
            # A process that lives holds the lock, so only a folder that was left behind can be locked here.
            if os.fstat(handle).st_uid == os.geteuid() and (folder / MARK).exists():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_all(folder)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def _remove(process: int, folder: Path) -> None:
    """Remove the folder of this process, but not from a child process."""
    if process == os.getpid():
        _remove_all(folder)


def _remove_all(folder: Path) -> None:
    """Remove a folder with the folders noted in it."""
    remove_noted(folder)
    shutil.rmtree(folder, ignore_errors=True)


def remove_noted(folder: Path) -> None:
    """Remove the Spark folders that are noted in a process's folder, if they are ours."""
    for link in folder.glob(f"{_LINK}*"):
        with suppress(OSError):
            target = link.readlink()
            found = target.lstat()
            # The link was made by us, but what is there now may be somebody else's.
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if ours and target.name.startswith(_OF_SPARK) and link.name == f"{_LINK}{target.name}":
                shutil.rmtree(target, ignore_errors=True)
        link.unlink(missing_ok=True)


def writers_of(folder: Path) -> str:
    """Return who else could change the content of `folder`, as a sentence that names the place; empty if nobody can.

    It is checked as ssh checks its keys, since code that is loaded from there runs with our rights.

    `folder` contains no symbolic link (see `Path.resolve`). The folder, everything in it and each folder above it must belong to
    this user or root, and no other user may write to it. A folder above it may be open to all if it is sticky, as /tmp is: nobody
    else can rename or remove our files there. Within a folder that nobody else may enter, only owners count. A missing folder is no
    reason; check again once it was created.
    """
    # From the root downwards: whoever may write to a folder above can put something else in the place of those below.
    for place in (*reversed(folder.parents), folder):
        try:
            found = place.lstat()
        except FileNotFoundError:
            return ""
        sticky = place != folder and bool(found.st_mode & stat.S_ISVTX)
        if reason := _reason(place, found, open_allowed=sticky):
            return reason
    # The last one that was looked at is the folder itself.
    closed = not found.st_mode & _OTHERS
    return next(filter(None, (_reason(place, each, open_allowed=closed) for place, each in _below(folder))), "")


def _below(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield everything in a folder; raise `OSError` if it can't be listed. What vanishes meanwhile is left out."""
    for root, folders, files in os.walk(folder, onerror=_raised):
        for place in (Path(root, name) for name in (*folders, *files)):
            with suppress(FileNotFoundError):
                yield place, place.lstat()


def _raised(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _reason(place: Path, found: os.stat_result, *, open_allowed: bool) -> str:
    if stat.S_ISLNK(found.st_mode):
        return f"{place} is a symbolic link"
    if found.st_uid not in (0, os.geteuid()):
        return f"{place} belongs to another user (number {found.st_uid})"
    if found.st_mode & _OTHERS_WRITE and not open_allowed:
        return f"others may write to {place} (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def place_of_code(chosen: str, *below: str) -> Path | None:
    """Return the folder for compiled code, which may not exist yet; None if this user has no home.

    `chosen`: the user's choice, else it is in their cache folder. `below`: the last parts of its path.
    """
    try:
        parent = Path(chosen or os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()).resolve()
    except (RuntimeError, OSError):
        return None
    return parent.joinpath("storage-consumer", "compiled", *below)


def make_place(folder: Path) -> bool:
    """Create a folder and its missing parents, each for this user only; return whether it exists."""
    try:
        # One by one, the outermost first: mkdir itself would make the parents with the usual mode.
        for missing in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return False
    return True


def mistrust(folder: Path) -> str:
    """Return why code from this folder is not run, with the remedy; empty if it is."""
    try:
        why = writers_of(folder)
    except OSError as fault:
        why = f"{folder} cannot be searched: {fault.strerror}"
    return f"{why}: {_REMEDY}" if why else ""
