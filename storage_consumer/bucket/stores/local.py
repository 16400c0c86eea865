"""A folder on a local disk or a mounted file system as a `Storage`.

On NFS, mount with ``actimeo=0``: a client that caches folders can show a new ``metadata`` before
the files that it covers. A file that another client is still writing may be shown in part: once it
has grown it is shown again with another tag.

Folders whose entries have not changed since they were last read are not read again. A file system
updates a folder's time whenever an entry is created, removed or renamed, before the call that did
it returns. So a folder whose time is unchanged has the same entries, provided that

* its file system keeps that promise and shows the change immediately: those of this machine do, and
  NFS without an attribute cache. A cache, or a program that only looks like a file system, may show
  an old time for a while;
* the time was the same when read twice, at least `SETTLED` apart, and the entries were read the
  second time or later. File systems count time in ticks, some as long as two seconds: two changes
  within one tick leave the same time, and the first reading may lie between them.

Nothing here compares the clocks of two machines. Files in a folder may still grow, so the status of
each is checked.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path

from storage_consumer.bucket.paths import (
    SchemaPath,
    is_of_file_system,
    parse_data_name,
    parse_other,
    sequence_of,
)
from storage_consumer.bucket.storage import SCHEMA_FILE_BYTES, read_up_to
from storage_consumer.errors import ConfigError, StorageUnavailable
from storage_consumer.model import StoredObject
from storage_consumer.telemetry import Log

_log = Log("storage")
_EDITORS_LOCK = ".#"
"""How links to nowhere begin that Emacs and others leave beside a file being edited."""


class LocalStorage:
    """Everything below one folder, and nothing elsewhere.

    Links that lead out of it are not followed, nor are links to folders. The latter end the
    listing, since whole tables may lie there.
    """

    def __init__(self, root: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Prepare for folder `root` without reading it; `monotonic`: seconds, never going back."""
        self._root = root
        self._monotonic = monotonic
        self._known = KnownFolders()
        self._warned: set[str] = set()
        self.requests = 0
        """Number of folders listed so far."""

    def check(self) -> None:
        """Raise `ConfigError` when the folder does not exist or may not be listed."""
        try:
            os.scandir(self._root).close()
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigError(
                f"the folder {self._root} does not exist: give the folder of the changefeed's sink URI as upstream URI, "
                "and check that its file system is mounted"
            ) from None
        except OSError as error:
            raise self._translated(error, self._root) from error

    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """Yield files not below `closed` nor up to `after`'s names; ``meta`` after its siblings.

        A folder that has not changed is not read again unless everything is asked for; the status
        of its files is checked.
        """
        pending = [""]
        while pending:
            folder = pending.pop()
            files, folders = self._shown(folder, after, ignore_known=not (closed or after))
            yield from files
            # Taken from the end: what comes first here, `meta`, is listed after all of its siblings
            # and what they hold.
            names = sorted(sorted(folders, reverse=True), key="meta".__ne__)
            paths = (f"{folder}/{name}" if folder else name for name in names)
            pending.extend(path for path in paths if path not in closed)

    def read(self, path: str, most: int = SCHEMA_FILE_BYTES) -> bytes:
        """Return a file's content; of one over `most` bytes, a beginning longer than `most`."""
        return read_up_to(self, path, most)

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """Yield a file in pieces of `size` bytes, each while the tag holds; `Storage.blocks`."""
        if Path(self._root, path).is_symlink() and not self._is_within(path):
            raise FileNotFoundError(f"{path} is a link that leads out of {self._root}")
        try:
            place = f"{self._root}/{path}"
            # Anything but a regular file, such as a pipe or a device, could block or never end.
            if not stat.S_ISREG(os.stat(place).st_mode):  # noqa: PTH116 - as in `_shown`
                raise FileNotFoundError
            # Unbuffered: a buffer would hold bytes from before the check of the tag.
            with open(place, "rb", buffering=0, opener=_open_at_once) as file:
                file.seek(start)
                yield from iter(lambda: _piece(file, size, tag), b"")
        except OSError as error:
            raise self._translated(error, path) from error

    def any_object(self) -> StoredObject | None:
        """Return a file that exists; None in an empty or absent folder; `Folder.any_object`."""
        try:
            os.stat(self._root)  # noqa: PTH116 - as in `_shown`
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._translated(error, self._root) from error
        return next(self.listing(frozenset(), {}), None)

    def put(self, path: str, content: bytes) -> None:
        """Write a file, whole or not at all, and the folder if there is none; see `Folder.put`."""
        place = Path(self._root, path)
        part = place.with_name(f".{place.name}.part")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(place)
        except OSError as error:
            raise self._translated(error, path) from error

    def _shown(
        self, folder: str, after: Mapping[str, str], *, ignore_known: bool
    ) -> tuple[list[StoredObject], Iterable[str]]:
        """Return a folder's files but those up to `after`'s names, and its folders' names.

        A folder that vanishes in the meantime has neither: TiCDC removes those that are expired and
        empty.
        """
        try:
            # The status comes before the entries: any later change of the entries changes it.
            status = os.stat(f"{self._root}/{folder}")  # noqa: PTH116 - a Path takes longer than the call
            known = None if ignore_known else self._known.entries(folder, status, after)
            if known is None:
                return self._scan(folder, status, after)
            # Nothing was added or removed, but a file may have grown or been rewritten in place.
            prefix = f"{folder}/" if folder else ""
            found = (_stored(Path(self._root, folder, name), prefix) for name in known.files)
            return [file for file in found if file is not None], known.folders
        except (FileNotFoundError, NotADirectoryError) as error:
            self._known.forget(folder)
            if not folder:
                raise StorageUnavailable(f"the folder {self._root} is gone") from error
        except PermissionError as error:
            # lost+found and the like: only the system's administrator may read them, and nothing of
            # TiCDC's is there.
            if not is_of_file_system(folder):
                raise self._translated(error, folder) from error
            return [
                self._warn(
                    folder,
                    "it may not be read, and is called like a folder of the file system's own",
                )
            ], ()
        except OSError as error:
            raise self._translated(error, folder) from error
        return [], ()

    def _scan(
        self, folder: str, status: os.stat_result, after: Mapping[str, str]
    ) -> tuple[list[StoredObject], Iterable[str]]:
        self.requests += 1
        files: list[StoredObject] = []
        names: list[str] = []
        folders: list[str] = []
        marks: dict[str, str] = {}
        prefix, odd, now = f"{folder}/" if folder else "", False, self._monotonic()
        for entry in self._entries(folder):
            if unusable := self._unusable(entry, prefix):
                files += unusable
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            # Without reading its status, which costs more than its name.
            elif entry.name <= (
                mark := after.get(sequence := sequence_of(prefix + entry.name), "")
            ):
                marks[sequence] = mark
            elif found := _stored(entry, prefix):
                files.append(found)
                names.append(entry.name)
            # What a link leads to may change without a trace in this folder, so a folder with one
            # is read each time.
            odd = odd or bool(unusable) or entry.is_symlink()
        files.sort(key=lambda stored: stored.path)
        entries = Entries(files=tuple(sorted(names)), folders=tuple(folders), left_out=marks)
        self._known.read(folder, status, now, None if odd else entries)
        return files, folders

    def _unusable(self, entry: os.DirEntry[str], prefix: str) -> list[StoredObject]:
        """Return what to count for an entry that is not followed; nothing for any other.

        An entry named like a data or schema file keeps its name, since it may stand for rows or a
        statement. `blocks` refuses it, so its table waits. Anything else is shown by a text that no
        file of TiCDC's has. Raises `ConfigError` at a link to a folder, and `StorageUnavailable` at
        one that may be such a link.
        """
        path = prefix + entry.name
        try:
            entry.name.encode("utf-8")
        except UnicodeEncodeError:  # Python decodes other bytes to lone surrogates
            return [self._warn(path, "its name is not UTF-8 text")]
        if entry.is_symlink() and entry.is_dir():
            raise ConfigError(
                f"{path} below {self._root} is a link to a folder. It may lead to tables, and links to folders "
                "aren't followed: mount the folder in place of the link (mount --bind), or remove the link if no "
                "files of the changefeed are there"
            )
        if entry.is_symlink() and not _is_there(entry):
            # Nothing tells a link to a lost file from one to a folder of a file system that is not
            # mounted just now.
            if path == "metadata" or _is_of_ticdc(path) or entry.name.startswith(_EDITORS_LOCK):
                return [self._warn(path, "it is a link that leads nowhere")]
            raise StorageUnavailable(
                f"{path} below {self._root} is a link that leads nowhere. Tables may lie behind it: mount the file system that it "
                "leads to, or remove the link if no files of the changefeed are there"
            )
        if entry.is_symlink() and not self._is_within(path):
            return [self._warn(path, "it is a link out of the storage")]
        if not (entry.is_file() or entry.is_dir()) and _is_there(entry):
            return [self._warn(path, "it is not a file, but a pipe, a socket or a device")]
        return []

    def _warn(self, path: str, reason: str) -> StoredObject:
        # A name that is not UTF-8 has lone surrogates, which no log or error takes.
        shown = path.encode("utf-8", "backslashreplace").decode()
        if shown not in self._warned:
            self._warned.add(shown)
            _log.warning("storage_warning", path=shown, text=f"{shown} is not read: {reason}")
        stands_for_file = shown == path and _is_of_ticdc(path)
        return StoredObject(path=path if stands_for_file else f"{shown} ({reason})", size=1, tag="")

    def _is_within(self, path: str) -> bool:
        """Return whether `path`, with its links followed, lies below the root."""
        root = os.path.realpath(self._root)
        # By whole segments: /data2 is not within /data.
        return os.path.commonpath((root, os.path.realpath(f"{self._root}/{path}"))) == root

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        with os.scandir(f"{self._root}/{folder}") as entries:
            return list(entries)

    def _translated(self, error: OSError, path: str) -> Exception:
        """Return what `error`, met at `path`, means to the caller."""
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(f"{path} does not exist below {self._root}")
        if isinstance(error, PermissionError):
            return ConfigError(
                f"{path} below {self._root} may not be read: give this process's user read access to all files and "
                "folders there"
            )
        return StorageUnavailable(
            f"{path} below {self._root} can't be read: {error.strerror or error}"
        )


def _stored(entry: os.DirEntry[str] | Path, prefix: str) -> StoredObject | None:
    """Return a file's current state; None if it is gone or not a regular file."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return StoredObject(
        path=prefix + entry.name, size=status.st_size, tag=_tag(status), modified=status.st_mtime
    )


def _is_of_ticdc(path: str) -> bool:
    """Return whether a path is that of a data or schema file."""
    return parse_data_name(path.rpartition("/")[2]) is not None or isinstance(
        parse_other(path), SchemaPath
    )


def _is_there(entry: os.DirEntry[str]) -> bool:
    """Return whether a listed entry still exists and leads somewhere."""
    try:
        entry.stat()
    except FileNotFoundError:
        return False
    return True


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without blocking, as on a pipe that it may have become."""
    return os.open(path, flags | os.O_NONBLOCK)


def _piece(file: RawIOBase, size: int, tag: str) -> bytes:
    """Return the next bytes; raise `FileNotFoundError` unless `tag` is empty or the file's."""
    piece = file.read(size) or b""
    # Checked after the read: a file that was replaced or appended to before now has another tag.
    if tag not in {"", _tag(os.fstat(file.fileno()))}:
        raise FileNotFoundError
    return piece


def _tag(status: os.stat_result) -> str:
    """Return a text that changes with a file's content."""
    return f"{status.st_mtime_ns}-{status.st_size}"


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
    """Sequence of files (`paths.sequence_of`) → name up to which files were skipped, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownFolder:
    state: tuple[int, int, int]
    """The folder's inode number, and two times: that of its entries, and that of any change to its
    inode.

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
        self._known: dict[str, _KnownFolder] = {}
        self._devices: dict[int, bool] = {}

    def entries(
        self, folder: str, status: os.stat_result, after: Mapping[str, str]
    ) -> Entries | None:
        """Return a folder's kept entries beyond `after`, perhaps more; None if it must be read."""
        known = self._known.get(folder)
        # Anything created, removed or renamed here has changed the state.
        if known is None or known.state != _state(status) or known.entries is None:
            return None
        shown = known.entries
        # Kept entries serve only if they lack nothing: what was skipped then may be skipped now.
        return (
            shown
            if all(after.get(name, "") >= mark for name, mark in shown.left_out.items())
            else None
        )

    def read(
        self, folder: str, status: os.stat_result, now: float, entries: Entries | None
    ) -> None:
        """Note that a folder was read at monotonic second `now`, right after its `status`.

        `entries`: None where they are not enough to go by, since links are among them or the folder
        was read for another purpose.
        """
        known = self._known.get(folder)
        if known is None or known.state != _state(status):
            # The first reading notes the state; entries are kept from one `SETTLED` later on.
            self._known[folder] = _KnownFolder(state=_state(status), since=now)
        elif now - known.since >= SETTLED and entries is not None:
            device = status.st_dev
            if device not in self._devices:
                self._devices[device] = keeps_time(device)
            if self._devices[device] and len(entries.files) <= MOST_FILES:
                self._known[folder] = _KnownFolder(
                    state=known.state, since=known.since, entries=entries
                )

    def forget(self, folder: str) -> None:
        """Forget a folder that is gone."""
        self._known.pop(folder, None)


def _state(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def keeps_time(device: int, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Return whether a device's folders show changes immediately; False if unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    # In mountinfo the third field is the device; type, source and options follow " - ".
    wanted = f"{os.major(device)}:{os.minor(device)}"
    found = [line.partition(" - ") for line in lines if line.split(" ", 3)[2:3] == [wanted]]
    # A device may be mounted several times, at unknown paths: all mounts must be prompt.
    for _, _, tail in found:
        # The last field holds the options of the file system itself, those of NFS among them.
        mount = tail.split(" ")
        kind, options = mount[0], set(mount[-1].split(","))
        if kind not in _LOCAL and not (
            kind in _NFS and ("noac" in options or options >= _UNCACHED)
        ):
            return False
    return bool(found)
