"""Who else could write to a place, checked as ssh checks its keys: code that is loaded from there runs with our rights."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def writers_of(folder: Path) -> str:
    """Return who else could change the content of `folder`, as a sentence that names the place; empty if nobody can.

    `folder` contains no symbolic link (see `Path.resolve`). The folder, everything in it and each folder above it must belong to
    this user or root, and no other user may write to it. A folder above it may be open to all if it is sticky, as /tmp is: nobody
    else can rename or remove our files there. Within a folder that nobody else may enter, only owners count. A missing folder is no
    reason; check again once it was created.
    """
    for place in (*reversed(folder.parents), folder):
        try:
            found = place.lstat()
        except FileNotFoundError:
            return ""
        sticky = place != folder and bool(found.st_mode & stat.S_ISVTX)
        if reason := _reason(place, found, open_allowed=sticky):
            return reason
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
