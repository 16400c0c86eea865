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
    handle, path = tempfile.mkstemp(prefix=f"{_PREFIX}{os.getpid()}-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({field.name: getattr(secrets, field.name) for field in fields(secrets)}, file)
    return path


def _remove_orphans() -> None:
    """Remove what processes of this user that were killed have left behind."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            with suppress(OSError):
                left.unlink()


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
