"""Private files and folders: a process's own folder, workers' secrets, compiled code.

A process's own folder is in memory if possible, for sockets and for anything that no other user may
see. It is removed when the process ends. If a process is killed, the next one of the same user
removes its folder: each process holds a lock on its folder for as long as it lives, so that nobody
removes the folder of a living one.

Secrets go to workers in a file that only this user can read, never in a closure, a broadcast or a
Spark property. The file is in memory and in no folder. The driver holds it open, and workers open
it through the driver's entry in /proc, which is open to processes of the same user only. So nothing
of it remains when the driver ends, however it ends. On systems without such files, the file is in
the driver's own folder. An executor on another machine has neither; it uses the environment
variables that the program itself reads.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import lru_cache
from pathlib import Path

from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.settings import Secrets
from storage_consumer.config.uris import parse_upstream, store_secrets
from storage_consumer.errors import ConfigError

_PREFIX = "storage-consumer-"
CODE_VARIABLE = "NUMBA_CACHE_DIR"
_REMEDY = f"remove the write permission of other users (chmod go-w), or set {CODE_VARIABLE} to another folder"
MARK = "removed-with-its-process"
"""A file that tells it from a user's folder of a similar name, as a clone of this repository."""
_LINK = "leftover-"
LONGEST = 60
"""Most characters of its path: a socket in it, named by 42, has to stay below 108."""
_OF_SPARK = "spark-"
"""Prefix of the folders that are noted for Spark's JVM."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def own_folder() -> Path:
    """Return this process's folder, mode 0700, always the same; raise `OSError` without one."""
    # By the process: a child that was forked gets a folder of its own.
    return _folder_of(os.getpid())


def remove_later(folder: Path) -> None:
    """Have this process remove a folder of Spark's JVM at its end; after kill -9 the next does."""
    (own_folder() / f"{_LINK}{folder.name}").symlink_to(folder)


def noted() -> list[Path]:
    """Return the folders that this process has noted."""
    return [link.readlink() for link in own_folder().glob(f"{_LINK}*")]


@lru_cache(maxsize=1)
def _folder_of(process: int) -> Path:
    """Create the folder of a process, which is this one, and remove what others have left."""
    # Best first: in memory, where this user's programs keep their sockets.
    places = (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm", tempfile.gettempdir())  # noqa: S108 - made safe by `_made`
    parents = [Path(name).resolve() for name in places if name and os.path.isdir(name)]  # noqa: PTH112 - also where nothing may be asked about it
    # In every place, since the process that is gone may have found another one best.
    for parent in parents:
        _remove_left(parent)
    made = (_made(parent) for parent in parents)
    # As the last resort any place will do: mode 0700 still keeps others out of the folder itself.
    folder = next(filter(None, made), None) or _locked(Path(tempfile.mkdtemp(prefix=_PREFIX)))

    def remove() -> None:
        # A child that is forked runs this too, and must leave the folder to its parent.
        if process == os.getpid():
            _remove_all(folder)

    atexit.register(remove)
    return folder


def _made(parent: Path) -> Path | None:
    """Create and lock the folder; return None if it cannot exist, or its place is untrusted."""
    while True:
        try:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        except OSError:
            return None
        if len(str(folder)) > LONGEST or writers_of(folder):
            folder.rmdir()
            return None
        # else another process took it for left behind before it was locked
        if _locked(folder).exists():
            return folder


def _locked(folder: Path) -> Path:
    """Lock a folder for as long as this process lives, then mark it; return it."""
    # removed, or a file system without locks, where nobody else gets one either
    with suppress(OSError):
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
            # A living process holds the lock: only an abandoned folder can be locked here.
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
    """Return who else could change what is in `folder`, with the place; empty if nobody.

    It is checked as ssh checks its keys, since code that is loaded from there runs with our rights.

    `folder` contains no symbolic link (see `Path.resolve`). The folder, everything in it and each
    folder above it must belong to this user or root, and no other user may write to it. A folder
    above it may be open to all if it is sticky, as /tmp is: nobody else can rename or remove our
    files there. Within a folder that nobody else may enter, only owners count. A missing folder is
    no reason; check again once it was created.
    """

    def raised(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    # From the root downwards: whoever may write to a folder above can put something else in the place of those below.
    for place in (*reversed(folder.parents), folder):
        try:
            found = place.lstat()
        except FileNotFoundError:
            return ""
        sticky = place != folder and bool(found.st_mode & stat.S_ISVTX)
        if reason := _reason(place, found, open_allowed=sticky):
            return reason
    # The last one that was checked is the folder itself.
    closed = not found.st_mode & _OTHERS
    for root, folders, files in os.walk(folder, onerror=raised):
        for place in (Path(root, name) for name in (*folders, *files)):
            reason = ""
            with suppress(FileNotFoundError):  # what vanishes meanwhile is left out
                reason = _reason(place, place.lstat(), open_allowed=closed)
            if reason:
                return reason
    return ""


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

    `chosen`: the user's choice, else it is in their cache folder. `below`: the last parts of its
    path.
    """
    try:
        parent = Path(
            chosen or os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        ).resolve()
    except (RuntimeError, OSError):
        return None
    return parent.joinpath("storage-consumer", "compiled", *below)


def make_place(folder: Path) -> bool:
    """Create a folder and missing parents, for this user only; return whether it exists."""
    try:
        # One by one, the outermost first: mkdir itself would make the parents with the usual mode.
        for missing in reversed(
            [place for place in (folder, *folder.parents) if not place.exists()]
        ):
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


_NAME = "storage-consumer-secrets-"
_AND = "#"
"""Separates the path of a file in memory from its name."""
PASSWORD_VARIABLE = BY_KEYWORD["downstream_password"].environment
_PASSWORD_FILE = BY_KEYWORD["downstream_password_file"].environment
_BUCKET = BY_KEYWORD["upstream_uri"].environment
VARIABLES: Mapping[str, str] = {
    **dict.fromkeys((field.name for field in fields(Secrets)), _BUCKET),
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "gcs_credentials": "GOOGLE_APPLICATION_CREDENTIALS",
    "account_key": "AZURE_STORAGE_KEY",
    "sas_token": "AZURE_STORAGE_SAS_TOKEN",
    "password": PASSWORD_VARIABLE,
}
"""`Secrets` field → an executor's environment variable; a URI may give the bucket's too."""


def write_secrets(secrets: Secrets) -> str:
    """Write the secrets to a new file; return the place for `secrets_from` and `remove_secrets`."""
    content = json.dumps(
        {field.name: getattr(secrets, field.name) for field in fields(secrets)}
    ).encode()
    process, name = Path(f"/proc/{os.getpid()}"), f"{_NAME}{uuid.uuid4().hex}"
    try:
        # No program that is started from here inherits the handle. Workers open its path instead,
        # and the kernel checks whose they are.
        handle = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        path = f"{process}/fd/{handle}"
        try:
            os.fchmod(handle, 0o600)
            os.write(handle, content)
            # Sealed: every worker that opens the file could otherwise change it for the others.
            fcntl.fcntl(
                handle,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK,
            )
            if (process / "fd").stat().st_uid != os.geteuid() or not _holds(path, name):
                raise PermissionError(path)  # other processes would be refused
        except OSError:
            os.close(handle)
            raise
    except (AttributeError, OSError):  # not Linux, or no /proc
        handle, path = tempfile.mkstemp(prefix="secrets-", dir=own_folder())
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        return path
    return f"{path}{_AND}{name}"


def _holds(path: str, name: str) -> bool:
    """Return whether a process's entry is the memory file of this name, not one reused."""
    with suppress(OSError):
        # Process ids and descriptors are reused, so a path proves nothing; the name is random.
        return str(Path(path).readlink()).startswith(f"/memfd:{name} ")
    return False


def remove_secrets(place: str) -> None:
    """Remove the file if it exists; `place`: from `write_secrets` in this process."""
    path, _, name = place.partition(_AND)
    if not name:
        Path(path).unlink(missing_ok=True)
    elif _holds(path, name):
        # The path ends in the number of this process's own handle; without it the memory is free.
        os.close(int(path.rpartition("/")[2]))


def held_secrets(place: str) -> Secrets | None:
    """Return the secrets in the file, or None if this machine and user have no such file."""
    path, _, name = place.partition(_AND)
    # On another machine the path may lead to something else, or to nothing.
    if not path or (name and not _holds(path, name)):
        return None
    with suppress(FileNotFoundError, PermissionError):
        return Secrets(**json.loads(Path(path).read_bytes()))
    return None


def secrets_from(place: str, environ: Mapping[str, str] = os.environ) -> Secrets:
    """Return the secrets in the file, or without it the environment's; raise `ConfigError`."""
    if found := held_secrets(place):
        return found
    bucket, password = environ.get(_BUCKET), environ.get(PASSWORD_VARIABLE)
    if password is None and (file := environ.get(_PASSWORD_FILE)):
        password = password_in(file, f"environment variable {_PASSWORD_FILE}")
    return Secrets(
        password=password or "", **(store_secrets(parse_upstream(bucket)) if bucket else {})
    )


def password_in(path: str, origin: str) -> str:
    """Return a file's password; raise `ConfigError`, naming the file and its `origin`."""
    try:
        content = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{origin}: the password file {path} cannot be read: {reason}") from None
    # One end of a line, of either kind: any other white space belongs to the password.
    return content.removesuffix("\n").removesuffix("\r")
