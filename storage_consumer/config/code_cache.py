"""Where compiled code is kept for the next process: only in places where nobody else could put code of theirs."""

from __future__ import annotations

import os
from pathlib import Path

from storage_consumer.config.own_folder import writers_of

VARIABLE = "NUMBA_CACHE_DIR"
_REMEDY = f"remove the write permission of other users (chmod go-w), or set {VARIABLE} to another folder"


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
