"""Secrets on their way to workers: a file that only this user can read, never a closure, a broadcast or a Spark property.

A worker on another machine has no such file; there the same environment variables that the program itself reads count.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from storage_consumer.config.settings import Secrets

_PREFIX = "storage-consumer-"
PASSWORD_VARIABLE = "STORAGE_CONSUMER_DOWNSTREAM_PASSWORD"  # noqa: S105 - the variable's name


def write_secrets(secrets: Secrets) -> str:
    """Put the secrets in a new file with mode 0600 and return its path; `remove_secrets` removes it."""
    _remove_orphans()
    handle, path = tempfile.mkstemp(prefix=f"{_PREFIX}{_process_space()}-{os.getpid()}-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({field.name: getattr(secrets, field.name) for field in fields(secrets)}, file)
    return path


def _remove_orphans() -> None:
    """Remove what processes of this user that were killed have left behind."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        space, _, rest = left.name.removeprefix(_PREFIX).partition("-")
        owner = rest.partition("-")[0]
        if space == _process_space() and owner.isdigit() and _is_gone(int(owner)):
            with suppress(OSError):
                left.unlink()


def _process_space() -> str:
    """Tells whether a process number means the same process here: containers may share a folder for temporary files."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"


def _is_gone(process: int) -> bool:
    """Whether no process has this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def remove_secrets(path: str) -> None:
    """Remove the file; no error if it is gone."""
    with suppress(FileNotFoundError):
        Path(path).unlink()


def secrets_from(path: str, environ: Mapping[str, str] = os.environ) -> Secrets:
    """The secrets in the file, or those of the environment where there is no such file on this machine."""
    try:
        known = json.loads(Path(path).read_text(encoding="utf-8")) if path else None
    except FileNotFoundError:
        known = None
    if known is None:
        return Secrets(password=environ.get(PASSWORD_VARIABLE, ""))
    return Secrets(**known)
