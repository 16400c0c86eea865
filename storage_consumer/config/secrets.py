"""Secrets on their way to workers: a file that only this user can read, never a closure, a broadcast or a Spark property.

The file lies in memory and in no folder: the driver holds it open, and workers open it through the driver's entry in /proc, as only
processes of the same user may. So nothing of it is left when the driver ends, however it ends. Where there is no such thing, the
file lies in the driver's own folder. An executor on another machine has neither; there the same environment variables that the
program itself reads count.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.own_folder import own_folder
from storage_consumer.config.settings import Secrets
from storage_consumer.config.uris import parse_upstream, store_secrets
from storage_consumer.errors import ConfigError

_NAME = "storage-consumer-secrets-"
_AND = "#"
"""Between the path of a file in memory and its name."""
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
"""Field of `Secrets` → the environment variable by which an executor may have it; for the bucket's also the URI with all of them."""


def write_secrets(secrets: Secrets) -> str:
    """Put the secrets in a new file and return by what `secrets_from` finds it; `remove_secrets` removes it."""
    content = json.dumps({field.name: getattr(secrets, field.name) for field in fields(secrets)}).encode()
    try:
        return _held_open(content)
    except (AttributeError, OSError):  # not Linux, or no /proc
        handle, path = tempfile.mkstemp(prefix="secrets-", dir=own_folder())
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        return path


def _held_open(content: bytes) -> str:
    """Where a file in memory is found that this process holds open. Raises `AttributeError` or `OSError` where it would not be."""
    process, name = Path(f"/proc/{os.getpid()}"), f"{_NAME}{uuid.uuid4().hex}"
    handle = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    path = f"{process}/fd/{handle}"
    try:
        os.fchmod(handle, 0o600)
        os.write(handle, content)
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        if (process / "fd").stat().st_uid != os.geteuid() or not _holds(path, name):  # other processes would be refused
            raise PermissionError(path)
    except OSError:
        os.close(handle)
        raise
    return f"{path}{_AND}{name}"


def _holds(path: str, name: str) -> bool:
    """Whether a process's entry leads to the file in memory that was given this name: elsewhere it may be anything."""
    with suppress(OSError):
        return str(Path(path).readlink()).startswith(f"/memfd:{name} ")
    return False


def remove_secrets(place: str) -> None:
    """Remove the file; no error if it is gone. `place`: as `write_secrets` gave it to this process."""
    path, _, name = place.partition(_AND)
    if not name:
        Path(path).unlink(missing_ok=True)
    elif _holds(path, name):
        os.close(int(path.rpartition("/")[2]))


def held_secrets(place: str) -> Secrets | None:
    """The secrets in the file, or None where this machine and user have no such file."""
    path, _, name = place.partition(_AND)
    if not path or (name and not _holds(path, name)):
        return None
    with suppress(FileNotFoundError, PermissionError):
        return Secrets(**json.loads(Path(path).read_bytes()))
    return None


def secrets_from(place: str, environ: Mapping[str, str] = os.environ) -> Secrets:
    """The secrets in the file, or those of the environment where there is no such file here. Raises `ConfigError`."""
    if found := held_secrets(place):
        return found
    bucket = environ.get(_BUCKET)
    return Secrets(password=_password(environ), **(store_secrets(parse_upstream(bucket)) if bucket else {}))


def _password(environ: Mapping[str, str]) -> str:
    if file := environ.get(_PASSWORD_FILE, "") if PASSWORD_VARIABLE not in environ else "":
        return password_in(file, f"environment variable {_PASSWORD_FILE}")
    return environ.get(PASSWORD_VARIABLE, "")


def password_in(path: str, origin: str) -> str:
    """The password that a file holds; raises `ConfigError`, which names the file and who named it (`origin`)."""
    try:
        content = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigError(f"{origin}: the password file {path} cannot be read: {reason}") from None
    return content.removesuffix("\n").removesuffix("\r")


def names_of(secrets: Secrets) -> tuple[str, ...]:
    """The secrets that are set, by the names of their fields."""
    return tuple(field.name for field in fields(secrets) if getattr(secrets, field.name))
