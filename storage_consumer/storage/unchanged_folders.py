"""Folders whose entries have not changed since they were last read, so that a round need not read them again.

A file system updates a folder's time whenever an entry is created, removed or renamed, before the call that did it returns.
So a folder whose time is unchanged has the same entries, provided that

* its file system keeps that promise and shows the change immediately: those of this machine do, and NFS without an attribute
  cache. A cache, or a program that only looks like a file system, may show an old time for a while;
* the time was the same in two looks at least `SETTLED` apart, and the entries were read at the second one or later. File systems
  count time in ticks, some as long as two seconds: two changes within one tick leave the same time, and the first look may
  lie between them.

Nothing here compares the clocks of two machines. Files in a folder may still grow, so the status of each is checked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SETTLED = 5.0
"""Seconds."""
MOST_FILES = 1_000
"""A folder that shows more files is read each time."""
_LOCAL = frozenset(("btrfs", "ext2", "ext3", "ext4", "f2fs", "tmpfs", "xfs", "zfs"))
_NFS = frozenset(("nfs", "nfs4"))
_UNCACHED = frozenset(("acdirmin=0", "acdirmax=0"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """What a folder showed."""

    files: tuple[str, ...]
    """Names, without those that were left out."""
    folders: tuple[str, ...]
    left_out: Mapping[str, str]
    """Sequence of files (see `paths.sequence_of`) → name up to which files were left out, for the sequences that had any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    state: tuple[int, int, int]
    """The folder's inode number, and two times: that of its entries, and that of any change to its inode.

    A program that copies folders may set the former back; nobody can set the latter.
    """
    since: float
    """When this state was first seen, in seconds of the monotonic clock."""
    entries: Entries | None = None
    """None while they may be incomplete."""


class KnownFolders:
    """What is known of folders, by path."""

    def __init__(self) -> None:
        """Start without any known folder."""
        self._known: dict[str, _Known] = {}
        self._devices: dict[int, bool] = {}

    def entries(self, folder: str, status: os.stat_result, after: Mapping[str, str]) -> Entries | None:
        """Return what a folder with this status shows beyond `after` (see `Storage.listing`), perhaps more; None if it must be read."""
        known = self._known.get(folder)
        # Anything created, removed or renamed here has changed the state.
        if known is None or known.state != _state(status) or known.entries is None:
            return None
        shown = known.entries
        # The kept entries serve only if they lack nothing: each file left out then may be left out now.
        return shown if all(after.get(name, "") >= mark for name, mark in shown.left_out.items()) else None

    def read(self, folder: str, status: os.stat_result, now: float, entries: Entries | None) -> None:
        """Note that a folder was read at `now`, in seconds of a monotonic clock; `status` was taken right before.

        `entries`: None where they are not enough to go by, since links are among them or the folder was read for another purpose.
        """
        known = self._known.get(folder)
        if known is None or known.state != _state(status):
            # The first look only notes the state; entries are kept from a look at least `SETTLED` later.
            self._known[folder] = _Known(state=_state(status), since=now)
        elif now - known.since >= SETTLED and entries is not None and self._is_kept(entries, status.st_dev):
            self._known[folder] = _Known(state=known.state, since=known.since, entries=entries)

    def forget(self, folder: str) -> None:
        """Forget a folder that is gone."""
        self._known.pop(folder, None)

    def _is_kept(self, entries: Entries, device: int) -> bool:
        if device not in self._devices:
            self._devices[device] = keeps_time(device)
        return self._devices[device] and len(entries.files) <= MOST_FILES


def _state(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def keeps_time(device: int, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Return whether folders on a device show each change immediately; False if that is not known."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    # In mountinfo the third field is the device; type, source and options follow " - ".
    wanted = f"{os.major(device)}:{os.minor(device)}"
    found = [line.partition(" - ") for line in lines if line.split(" ", 3)[2:3] == [wanted]]
    # One device may be mounted several times, and a path does not say by which: all mounts must be prompt.
    return bool(found) and all(_is_prompt(tail.split(" ")) for _, _, tail in found)


def _is_prompt(mount: list[str]) -> bool:
    """Return whether a mount shows changes immediately, judged by its type, source and options."""
    # The last field holds the options of the file system itself, those of NFS among them.
    kind, options = mount[0], set(mount[-1].split(","))
    return kind in _LOCAL or (kind in _NFS and ("noac" in options or options >= _UNCACHED))
