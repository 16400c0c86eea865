"""The stores that a sink URI may name: their schemes, their parameters (TiCDC's own), and which of these are secrets."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

Store = Literal["file", "s3", "gcs", "azure"]

SCHEMES: Mapping[str, Store] = {
    "file": "file",
    "s3": "s3",
    "gcs": "gcs",
    "gs": "gcs",
    "azure": "azure",
    "azblob": "azure",
}
"""Scheme of a URI → store; several schemes of one store mean the same."""

OF_WRITER: frozenset[str] = frozenset(
    {
        *("acl", "sse", "sse-kms-key-id", "use-accelerate-endpoint", "provider"),
        *("storage-class", "predefined-acl", "access-tier", "encryption-scope"),
    }
)
"""Parameters that say how TiCDC writes objects; a reader does not need them."""

PARAMETERS: Mapping[Store, frozenset[str]] = {
    "file": frozenset(),
    "s3": frozenset(
        {
            *("access-key", "secret-access-key", "session-token", "endpoint", "region", "force-path-style", "provider"),
            *("role-arn", "external-id", "acl", "sse", "sse-kms-key-id", "storage-class", "use-accelerate-endpoint"),
        }
    ),
    "gcs": frozenset({"credentials-file", "endpoint", "storage-class", "predefined-acl"}),
    "azure": frozenset(
        {
            *("account-name", "account-key", "sas-token", "endpoint", "access-tier", "encryption-scope"),
            *("encryption-key",),
        }
    ),
}
"""Parameters that TiDB's object writer takes in the URI of each store."""

_BY_HOST = frozenset({"alibaba", "netease", "tencent"})
"""Providers whose servers take the bucket's name only as part of the host's."""
_ENDPOINT: Mapping[Store, tuple[re.Pattern[str], str]] = {
    "s3": (re.compile(r"https?://[^/@?#]+/?"), "http://host:port or https://host:port"),
    "gcs": (re.compile(r"https?://[^/@?#]+(/storage/v1)?/?"), "https://host:port or https://host:port/storage/v1/"),
    "azure": (
        re.compile(r"https?://[^/@?#;]+(/[^/@?#;]+)?/?"),
        "https://host:port, with the account's name as path if the server wants it",
    ),
}
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]+")
_AES_KEY_BYTES = 32


def complaint(store: Store, parameters: Mapping[str, str]) -> str:
    """Return what is wrong with the parameters of a store's URI; empty if nothing is."""
    for name in parameters:
        owners = [other for other, known in PARAMETERS.items() if name in known]
        # A parameter that no store has is refused where the URI is read, with the nearest known name.
        if owners and store not in owners:
            return f"`{name}` is a parameter of {' and '.join(owners)}, not of {store}"
    endpoint = parameters.get("endpoint", "")
    if endpoint:
        pattern, example = _ENDPOINT[store]
        if not pattern.fullmatch(endpoint):
            return f"`endpoint` is written as {example}, with no user or password"
    checks = {"s3": _complaint_s3, "azure": _complaint_azure}
    return checks[store](parameters) if store in checks else ""


def _complaint_s3(parameters: Mapping[str, str]) -> str:
    keys = [name for name in ("access-key", "secret-access-key") if parameters.get(name)]
    if len(keys) == 1:
        return f"`{keys[0]}` comes without its partner; give both access-key and secret-access-key, or neither"
    for name in ("role-arn", "external-id"):
        if parameters.get(name):
            return f"`{name}` is not supported; let the usual AWS chain assume the role (AWS_ROLE_ARN, a profile, the instance)"
    return ""


def _complaint_azure(parameters: Mapping[str, str]) -> str:
    name = parameters.get("account-name", "")
    if name and not _ACCOUNT.fullmatch(name):
        return "`account-name` is the storage account's name alone: letters and digits"
    for key in ("account-key", "encryption-key"):
        if not _is_key(key, parameters.get(key, "")):
            return f"`{key}` is not a key as Azure issues it: check that no `+` became a space and no `=` was lost"
    if ";" in parameters.get("sas-token", ""):
        return "`sas-token` contains a `;`, which no such token has"
    return ""


def _is_key(parameter: str, value: str) -> bool:
    """Return whether a key could be valid; TiCDC takes an encryption key's bytes as they are, so all 32 count."""
    if not value:
        return True
    if parameter == "encryption-key":
        return len(value.encode()) == _AES_KEY_BYTES
    try:
        return bool(base64.b64decode(value, validate=True))
    except ValueError:  # also raised for characters outside ASCII
        return False


def endpoint(store: Store, parameters: Mapping[str, str]) -> str:
    """Return the server's URL as the store's driver takes it; empty: the cloud's own."""
    text = parameters.get("endpoint", "").rstrip("/")
    # For TiCDC an endpoint may have the path of the API; gcsfs adds that itself.
    return text.removesuffix("/storage/v1") if store == "gcs" else text


def path_style(parameters: Mapping[str, str]) -> bool:
    """Return whether the path holds an S3 bucket's name if ``force-path-style`` does not say so."""
    provider = parameters.get("provider", "").lower()
    # S3's accelerated servers, too, take the bucket's name only as part of the host's.
    return provider not in _BY_HOST and parameters.get("use-accelerate-endpoint", "").lower() != "true"


_IN_ENVIRONMENT = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"),
    *("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING"),
    *("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_PASSWORD", "GOOGLE_API_KEY"),
)
"""Variables from which the stores' own clients take secrets."""
_IN_CONNECTION = re.compile(r"(?i)(?:^|;)\s*(?:AccountKey|SharedAccessSignature)\s*=\s*([^;]+)")
_SIGNATURE = re.compile(r"(?:^|[?&])sig=([^&]+)")


def environment_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets that the stores' clients may take from the environment, with the secret parts of each.

    They include those in a Google credentials file that is named there, if it can be read.
    """
    texts = [environ[name].strip() for name in _IN_ENVIRONMENT if environ.get(name, "").strip()]
    # An error may show the key alone, without the connection string around it.
    texts += _IN_CONNECTION.findall(environ.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    if file := environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        with suppress(ValueError):
            texts += credential_parts(_read_credentials(file))
    return tuple(part for text in texts for part in (text, *signatures(text)))


def credential_parts(credentials: str) -> list[str]:
    """Return the secret parts of a Google credentials file's JSON text."""
    content = json.loads(credentials)
    found = [str(content.get(name, "")) for name in ("private_key", "refresh_token", "client_secret")]
    return [text for text in found if text]


def signatures(token: str) -> list[str]:
    """Return the signature in an Azure token, as written and percent-decoded."""
    return [text for found in _SIGNATURE.findall(token) for text in (found, unquote(found))]


def secrets(store: Store, parameters: Mapping[str, str]) -> dict[str, str]:
    """Return field of `Secrets` → value, as far as the URI gives them; raise `ValueError` for an invalid credentials file."""
    names = {
        "s3": {"access_key": "access-key", "secret_access_key": "secret-access-key", "session_token": "session-token"},
        "azure": {"account_key": "account-key", "sas_token": "sas-token", "encryption_key": "encryption-key"},
    }.get(store, {})
    found = {field: parameters.get(name, "") for field, name in names.items()}
    if file := parameters.get("credentials-file"):
        found["gcs_credentials"] = _read_credentials(file)
    return found


def _read_credentials(file: str) -> str:
    """Return the JSON text of a Google credentials file."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"`credentials-file`: {file} cannot be read: {reason}") from None
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict) or "type" not in content:
        raise ValueError(f"`credentials-file`: {file} is not a Google credentials file: a JSON object with a `type`")
    return text
