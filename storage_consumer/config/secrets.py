"""Secrets on their way to workers: in a file that only this user can read, never in a closure, a broadcast or a Spark property.

The file is in memory and in no folder. The driver holds it open, and workers open it through the driver's entry in /proc, which is
open to processes of the same user only. So nothing of it remains when the driver ends, however it ends. On systems without such
files, the file is in the driver's own folder. An executor on another machine has neither; it uses the environment variables that
the program itself reads.
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
"""Field of `Secrets` → the environment variable that gives it to an executor; the bucket's may also come in the URI."""


def write_secrets(secrets: Secrets) -> str:
    """Write the secrets to a new file; return the place for `secrets_from` and `remove_secrets`."""
    content = json.dumps({field.name: getattr(secrets, field.name) for field in fields(secrets)}).encode()
    try:
        return _held_open(content)
    except (AttributeError, OSError):  # not Linux, or no /proc
        handle, path = tempfile.mkstemp(prefix="secrets-", dir=own_folder())
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        return path


def _held_open(content: bytes) -> str:
    """Return the place of a file in memory that this process holds open; raise `AttributeError` or `OSError` without such files."""
    process, name = Path(f"/proc/{os.getpid()}"), f"{_NAME}{uuid.uuid4().hex}"
    # No program that is started from here inherits the handle. Workers open its path instead, and the kernel checks whose they are.
    handle = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    path = f"{process}/fd/{handle}"
    try:
        os.fchmod(handle, 0o600)
        os.write(handle, content)
        # Seal the content: every worker that opens the file could otherwise change it for the others.
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        if (process / "fd").stat().st_uid != os.geteuid() or not _holds(path, name):  # other processes would be refused
            raise PermissionError(path)
    except OSError:
        os.close(handle)
        raise
    return f"{path}{_AND}{name}"


def _holds(path: str, name: str) -> bool:
    """Return whether a process's entry leads to the file in memory with this name: after the process ended, it may be anything."""
    with suppress(OSError):
        # Process ids and descriptors are reused, so the path alone proves nothing; the name is random.
        return str(Path(path).readlink()).startswith(f"/memfd:{name} ")
    return False


def remove_secrets(place: str) -> None:
    """Remove the file; do nothing if it is gone. `place`: as `write_secrets` returned it in this process."""
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
    """Return the secrets in the file, or those of the environment if there is no such file here; raise `ConfigError`."""
    if found := held_secrets(place):
        return found
    bucket, password = environ.get(_BUCKET), environ.get(PASSWORD_VARIABLE)
    if password is None and (file := environ.get(_PASSWORD_FILE)):
        password = password_in(file, f"environment variable {_PASSWORD_FILE}")
    return Secrets(password=password or "", **(store_secrets(parse_upstream(bucket)) if bucket else {}))


def password_in(path: str, origin: str) -> str:
    """Return the password in a file; raise `ConfigError`, which names the file and who named it (`origin`)."""
    try:
        content = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{origin}: the password file {path} cannot be read: {reason}") from None
    # One end of a line, of either kind: any other white space belongs to the password.
    return content.removesuffix("\n").removesuffix("\r")
