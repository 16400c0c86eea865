"""Secrets on their way to workers: a file that only this user can read, never a closure, a broadcast or a Spark property.

An executor on another machine has no such file; there the same environment variables that the program itself reads count.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.settings import Secrets
from storage_consumer.config.uris import parse_upstream, store_secrets
from storage_consumer.errors import ConfigError

_PREFIX = "storage-consumer-"
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
    """The secrets in the file, or those of the environment where there is no such file on this machine. Raises `ConfigError`."""
    with suppress(FileNotFoundError):
        if path:
            return Secrets(**json.loads(Path(path).read_text(encoding="utf-8")))
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
