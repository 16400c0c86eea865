"""Files held back until a later listing, so that none is handed out before one that TiCDC wrote earlier elsewhere.

A listing is not a snapshot: at midnight it may show the new day's first file and lack the old day's last one, which was
written in between. Where rows carry no commit-ts, applying the former before the latter lets older values win.

TiCDC goes on to another directory of a table and partition once all files of the previous one are stored. So whatever existed
before the first file of a directory is shown by any listing that begins after that file was seen. Files of a directory are held
back until such a listing has ended; within a directory their numbers show what is missing. Listing again within one poll is
enough: a file that only the second listing shows is newer than the checkpoint that was read before the first.
"""

from __future__ import annotations

from collections.abc import Iterable

from storage_consumer.model import DataFile


class Holding:
    """Files that were listed and may not be handed out yet."""

    def __init__(self) -> None:
        """Start without any listed file."""
        self._known: set[str] = set()
        self._held: dict[str, DataFile] = {}

    def __len__(self) -> int:
        """Return the number of files held back."""
        return len(self._held)

    def take(self, files: Iterable[DataFile], *, moved: bool) -> tuple[DataFile, ...]:
        """Return the files that may be handed out once a listing that showed `files` has ended.

        `moved`: the listing showed some files under the wrong table, and the next one corrects it; none is handed out before that.
        """
        self._held |= {file.stored.path: file for file in files}
        if moved:
            return ()
        folders = {path: path.rpartition("/")[0] for path in self._held}
        ready = tuple(file for path, file in self._held.items() if folders[path] in self._known)
        self._held = {path: file for path, file in self._held.items() if folders[path] not in self._known}
        self._known.update(folders.values())
        return ready
