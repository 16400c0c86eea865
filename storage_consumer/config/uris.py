"""URIs of stores and servers, parsed, checked, never shown with secrets; stores' other secrets."""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from storage_consumer.config.parsers import boolean, did_you_mean
from storage_consumer.errors import ConfigError

Store = Literal["file", "s3", "gcs", "azure"]

SCHEMES: Mapping[str, Store] = {
    "file": "file",
    "s3": "s3",
    "gcs": "gcs",
    "gs": "gcs",
    "azure": "azure",
    "azblob": "azure",
    "oss": "s3",
}
"""Scheme of a URI → store; several schemes of one store mean the same."""

STORE_PARAMETERS: Mapping[Store, frozenset[str]] = {
    "file": frozenset(),
    "s3": frozenset(
        {
            *(
                "access-key",
                "secret-access-key",
                "session-token",
                "endpoint",
                "region",
                "force-path-style",
                "provider",
            ),
            *(
                "role-arn",
                "external-id",
                "acl",
                "sse",
                "sse-kms-key-id",
                "storage-class",
                "use-accelerate-endpoint",
            ),
        }
    ),
    "gcs": frozenset({"credentials-file", "endpoint", "storage-class", "predefined-acl"}),
    "azure": frozenset(
        {
            *(
                "account-name",
                "account-key",
                "sas-token",
                "endpoint",
                "access-tier",
                "encryption-scope",
            ),
            *("encryption-key",),
        }
    ),
}
"""Parameters that TiDB's object writer takes in the URI of each store."""

_SECRETS_OF: Mapping[str, tuple[str, ...]] = {
    "s3": ("access-key", "secret-access-key", "session-token"),
    "azure": ("account-key", "sas-token", "encryption-key"),
}
_BY_HOST = frozenset({"alibaba", "netease", "tencent"})
"""Providers whose servers take the bucket's name only as part of the host's."""
_ENDPOINT: Mapping[str, tuple[re.Pattern[str], str]] = {
    "s3": (re.compile(r"https?://[^/@?#]+/?"), "http://host:port or https://host:port"),
    "gcs": (
        re.compile(r"https?://[^/@?#]+(/storage/v1)?/?"),
        "https://host:port or https://host:port/storage/v1/",
    ),
    "azure": (
        re.compile(r"https?://[^/@?#;]+(/[^/@?#;]+)?/?"),
        "https://host:port, with the account's name as path if the server wants it",
    ),
}
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]+")
_AZURE_HOST = re.compile(r"([a-z0-9]+)\.blob\.core\.[a-z.]+")
"""The server of a storage account, which TiDB Cloud writes before the container."""
_AES_KEY_BYTES = 32

_SECRET_WORDS = (
    "key",
    "secret",
    "token",
    "passw",
    "credential",
    "pwd",
    "signature",
    "accessid",
    "auth",
)
_SIGNATURE = "sig"
"""A SAS token's signature, a parameter if the token was not percent-encoded as it should be."""
# Names that only sound as if they held a secret: paths, ids and switches.
_NOT_SECRET = frozenset({"ssl-key", "sse-kms-key-id", "output-handle-key", "output-row-key"})
# Also cut at ; and #: the rest of a secret that was not percent-encoded may follow one of them.
_PARAMETER = re.compile(r"([?&;#])([^=&;#?]*)(?:=([^&;#]*))?")
_USER_AND_PASSWORD = re.compile(
    r"(?s)^(\s*(?:[A-Za-z][A-Za-z0-9+.-]*://|(?![A-Za-z][A-Za-z0-9+.-]*://))[^:/?#]*):(.*)@"
)
"""Also matches without a scheme, as some drivers' addresses are written."""
_KEY_AND_SECRET = re.compile(r"(?s)^(\s*(?:s3|oss|gcs|gs|azure|azblob)://)[^/?#]*@")

_SOURCE_SIDE = frozenset(
    {
        *("acl", "sse", "sse-kms-key-id", "use-accelerate-endpoint", "provider"),
        *("storage-class", "predefined-acl", "access-tier", "encryption-scope"),
        *(
            "content-compatible",
            "delete-only-output-handle-key-columns",
            "enable-table-across-nodes",
        ),
        *("file-cleanup-cron-spec", "file-size", "flush-concurrency", "flush-interval"),
        *("max-batch-size", "max-message-bytes", "only-output-updated-columns", "output-column-id"),
        *("output-raw-change-event", "output-row-key", "spool-base-dir", "spool-disk-quota"),
        *("transaction-atomicity", "use-table-id-as-path", "worker-count"),
    }
)
"""Upstream parameters of TiCDC that only control writing, or that files show."""

UPSTREAM_PARAMETERS = _SOURCE_SIDE.union(
    {
        "protocol",
        "enable-tidb-extension",
        "date-separator",
        "enable-partition-separator",
        "file-index-digit",
    },
    {"file-expiration-days"},
    *STORE_PARAMETERS.values(),
)

_OTHER_SINK = frozenset(
    {
        *(
            "async-ddl-timeout",
            "batch-dml-enable",
            "cache-prep-stmts",
            "dry-run-delay",
            "enable-ddl-ts",
        ),
        *(
            "has-vector-type",
            "max-multi-update-row",
            "max-multi-update-row-size",
            "max-txn-row",
            "multi-stmt-enable",
        ),
        *("read-timeout", "safe-mode", "tidb-txn-mode", "transaction-atomicity", "where-clause"),
        *("write-timeout",),
    }
)
"""Downstream parameters of TiCDC's own MySQL sink that have no counterpart here."""

DOWNSTREAM_PARAMETERS = _OTHER_SINK | {
    *(
        "dry-run",
        "ssl-ca",
        "ssl-cert",
        "ssl-key",
        "ssl-mode",
        "state-schema",
        "time-zone",
        "timeout",
        "unix-socket",
    ),
    "worker-count",
}

UNNEEDED = {"upstream": _SOURCE_SIDE, "downstream": _OTHER_SINK}

_FLAGS = {"upstream": "--upstream-uri", "downstream": "--downstream-uri", "dump": "--dump"}
"""Side → the flag that gives its URI."""
_EXAMPLES = {
    "upstream": "file:///dir?protocol=csv",
    "downstream": "mysql://user@host:3306/",
    "dump": "s3://bucket/full",
}
_MASKS = frozenset({"xxxxx", "***"})
"""What TiCDC and this program write in the place of a secret."""
_DEFAULT_PORT = {"mysql": 3306, "tidb": 4000, "mariadb": 3306}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Uri:
    """A parsed URI; it holds secrets, so its repr is masked."""

    side: str
    """``upstream``, ``downstream`` or ``dump``."""
    masked: str
    """The URI for messages."""
    scheme: str
    """The scheme in lower case, without ``+ssl``; the first one of a store with several schemes."""
    ssl: bool = False
    host: str = ""
    port: int = 0
    """The port; 0 if the URI has none."""
    user: str = ""
    password: str | None = None
    """The password; None if the URI has none. An empty password is a password."""
    path: str = ""
    """The path, percent-decoded, normalised, without a slash at its end."""
    parameters: Mapping[str, str]

    def __repr__(self) -> str:
        """Return the masked URI."""
        return f"Uri({self.masked})"

    def error(self, message: str) -> ConfigError:
        """Return a `ConfigError` about this URI."""
        return _error(self.side, self.masked, message)

    def value(self, name: str, parse: Callable[[object], Any], default: Any) -> Any:
        """Return the value of a parameter, or `default` if it has none; raise `ConfigError`."""
        try:
            return parse(text) if (text := self.parameters.get(name)) else default
        except ValueError as fault:
            raise self.error(f"parameter `{name}`: {fault}") from None


def _error(side: str, masked: str, message: str) -> ConfigError:
    return ConfigError(f"{_FLAGS[side]} {masked}: {message}")


_Fail = Callable[[str], ConfigError]


def mask_uri(uri: str) -> str:
    """Return the URI with ``***`` for passwords and possible secrets; accepts any text.

    A password is taken to reach to the last ``@`` of the text, so one that was not percent-encoded
    as it should be is hidden too, even if that hides more than the password. Whatever follows a
    secret and is not a known parameter is also hidden: it may belong to a secret that contains a
    ``&``.
    """
    behind_secret = False

    def hide(match: re.Match[str]) -> str:
        nonlocal behind_secret
        lead, name, value = match.groups()
        # Matches come from left to right, so this parameter may be the rest of a secret before it.
        if (
            behind_secret
            and name
            and _plain(name) not in UPSTREAM_PARAMETERS | DOWNSTREAM_PARAMETERS
        ):
            return f"{lead}***"
        # A value with an @ may be a URI with a password of its own.
        if value is not None and (is_secret(name) or "@" in unquote(value)):
            behind_secret = True
            return f"{lead}{name}=***"
        return match.group(0)

    return _PARAMETER.sub(
        hide, _KEY_AND_SECRET.sub(r"\1***@", _USER_AND_PASSWORD.sub(r"\1:***@", _as_meant(uri)))
    )


def _as_meant(uri: str) -> str:
    """Return the URI, decoded if encoded as a whole: a secret would be in its path."""
    plain = unquote(uri)
    return (
        plain
        if "?" not in uri and any(is_secret(name) for _, name, _ in _PARAMETER.findall(plain))
        else uri
    )


def secrets_in(uri: str) -> tuple[str, ...]:
    """Return what `mask_uri` hides, raw and decoded, even in a nested URI; accepts any text."""
    # A parameter may be a URI with secrets of its own, such as an endpoint, hence the recursion.
    found = [match[2] for match in _USER_AND_PASSWORD.finditer(uri)]
    for _, name, value in _PARAMETER.findall(_as_meant(uri)):
        nested = unquote(value)
        if "://" in nested:
            found += secrets_in(nested)
        elif is_secret(name) or "@" in nested:
            found.append(value)
    return tuple(text for secret in found for text in {secret, unquote(secret)} if text)


def _plain(name: str) -> str:
    """Return a parameter's name in its known spelling."""
    return unquote(name).lower().replace("_", "-")


def is_secret(name: str) -> bool:
    """Return whether a parameter of this name may hold a secret."""
    plain = _plain(name)
    return plain not in _NOT_SECRET and (
        plain == _SIGNATURE or any(word in plain for word in _SECRET_WORDS)
    )


def parse_upstream(text: str) -> Uri:
    """Parse the bucket's URI; raise `ConfigError` for anything that is not a readable bucket."""
    return parse_store("upstream", text, UPSTREAM_PARAMETERS)


def parse_store(side: str, text: str, known: frozenset[str]) -> Uri:
    """Parse a store folder's URI with `known` parameters; raise `ConfigError` if unreadable."""
    masked = mask_uri(text)
    fail = partial(_error, side, masked)
    split = _split(text, fail, _EXAMPLES[side])
    scheme = split.scheme.lower()
    # A path is stored and shown.
    if secrets_in(split.path):
        raise fail(
            "a secret stands in the path: a `?` that is not percent-encoded begins the parameters"
        )
    if scheme not in SCHEMES:
        raise fail(
            f"{scheme}:// is not a storage that can be read; give file:///dir, s3://bucket/prefix, gcs://… or azure://…"
            f"{did_you_mean(scheme, sorted(SCHEMES))}"
        )
    host, path = _place(split)
    parameters = {**_parameters(split.query, known, fail)}
    if account := SCHEMES[scheme] == "azure" and _AZURE_HOST.fullmatch(split.netloc):
        parameters.setdefault("account-name", account[1])
        parameters.setdefault("endpoint", f"https://{split.netloc}")
    if scheme == "oss":
        # Alibaba's store speaks S3's protocol on a server for each region.
        if not (parameters.get("endpoint") or parameters.get("region")):
            raise fail("give the bucket's region or endpoint: region=ap-southeast-1")
        server = f"https://oss-{parameters.get('region', '').removeprefix('oss-')}.aliyuncs.com"
        parameters = {"endpoint": server, "provider": "alibaba"} | parameters
    uri = Uri(
        side=side,
        masked=masked,
        scheme=SCHEMES[scheme],
        host=host,
        path=path,
        parameters=parameters,
    )
    if uri.scheme == "file" and uri.host not in {"", "localhost"}:
        raise uri.error(
            f"`{uri.host.rpartition('@')[2]}` is in the place of a host; a directory is written with three slashes: "
            "file:///dir"
        )
    if uri.scheme == "file" and not uri.path:
        raise uri.error("no directory is named; give file:///dir")
    if uri.scheme != "file" and not uri.host:
        raise uri.error(f"no bucket is named; give {uri.scheme}://bucket/prefix")
    if uri.scheme != "file" and ("@" in uri.host or ":" in uri.host):
        raise uri.error(
            f"only the bucket's name belongs between {uri.scheme}:// and the next slash; keys go into parameters "
            "like access-key= and account-key="
        )
    hidden = [name for name, value in uri.parameters.items() if value in _MASKS and is_secret(name)]
    if hidden:
        raise uri.error(
            f"{', '.join(f'`{name}`' for name in hidden)}: this is the mask that TiCDC prints in the place of a secret. Give "
            f"--upstream-uri with the secret itself, or without {'it' if len(hidden) == 1 else 'them'}; then the store's usual "
            "credentials (environment, profile, instance) are used"
        )
    if text := _complaint(uri.scheme, uri.parameters):
        raise uri.error(text)
    return uri


def same_place(uri: Uri, sink_uri: str) -> bool:
    """Return whether a sink URI names the bucket and prefix, or directory, of this one."""
    try:
        other = urlsplit(sink_uri.strip())
    except ValueError:
        return False
    host, path = _place(other)
    host = "" if host == "localhost" and uri.scheme == "file" else host
    own_host = "" if uri.scheme == "file" else uri.host
    return (SCHEMES.get(other.scheme.lower()), host, path) == (uri.scheme, own_host, uri.path)


def _place(split: SplitResult) -> tuple[str, str]:
    """Return bucket and prefix, both as they are in the store."""
    # Not `split.hostname`, which is in lower case: a bucket's name stays as it is.
    # The path is percent-decoded and normalised; the root becomes the empty text.
    host, path = split.netloc, posixpath.normpath("/" + unquote(split.path).strip("/")).rstrip("/")
    if _AZURE_HOST.fullmatch(host):
        host, _, rest = path.lstrip("/").partition("/")
        path = f"/{rest}" if rest else ""
    return host, path


def _complaint(store: str, parameters: Mapping[str, str]) -> str:
    """Return what is wrong with the parameters of a store's URI; empty if nothing is."""
    for name in parameters:
        owners = [other for other, known in STORE_PARAMETERS.items() if name in known]
        # Parameters that no store has are refused when read, with the nearest known name.
        if owners and store not in owners:
            return f"`{name}` is a parameter of {' and '.join(owners)}, not of {store}"
    endpoint = parameters.get("endpoint", "")
    if endpoint:
        pattern, example = _ENDPOINT[store]
        if not pattern.fullmatch(endpoint):
            return f"`endpoint` is written as {example}, with no user or password"
    if store == "s3":
        keys = [name for name in ("access-key", "secret-access-key") if parameters.get(name)]
        if len(keys) == 1:
            return f"`{keys[0]}` comes without its partner; give both access-key and secret-access-key, or neither"
        if parameters.get("external-id") and not parameters.get("role-arn"):
            return "`external-id` comes without `role-arn`; give both, or neither"
        if parameters.get("role-arn", "arn:").partition(":")[0] != "arn":
            return "`role-arn` is a role of AWS, like arn:aws:iam::123456789012:role/reader; with another store give keys"
    return _complaint_azure(parameters) if store == "azure" else ""


def _complaint_azure(parameters: Mapping[str, str]) -> str:
    name = parameters.get("account-name", "")
    if name and not _ACCOUNT.fullmatch(name):
        return "`account-name` is the storage account's name alone: letters and digits"
    for key in ("account-key", "encryption-key"):
        value = parameters.get(key, "")
        try:
            # TiCDC takes an encryption key's bytes as they are, so all 32 count.
            is_bytes = key == "encryption-key"
            is_key = (
                len(value.encode()) == _AES_KEY_BYTES
                if is_bytes
                else bool(base64.b64decode(value, validate=True))
            )
        except ValueError:  # also raised for characters outside ASCII
            is_key = False
        if value and not is_key:
            return f"`{key}` is not a key as Azure issues it: check that no `+` became a space and no `=` was lost"
    if ";" in parameters.get("sas-token", ""):
        return "`sas-token` contains a `;`, which no such token has"
    return ""


def place_of(uri: Uri) -> dict[str, Any]:
    """Return `Upstream` field → value for the folder's place; raise `ConfigError`."""
    given, store = uri.parameters, SCHEMES[uri.scheme]
    # S3's accelerated servers, too, take the bucket's name only as part of the host's.
    by_host = (
        given.get("provider", "").lower() in _BY_HOST
        or given.get("use-accelerate-endpoint", "").lower() == "true"
    )
    endpoint = given.get("endpoint", "").rstrip("/")
    return {
        "scheme": store,
        "root": uri.path if store == "file" else f"{uri.host}{uri.path}",
        # For TiCDC an endpoint may have the path of the API; gcsfs adds that itself.
        "endpoint": endpoint.removesuffix("/storage/v1") if store == "gcs" else endpoint,
        "region": given.get("region", ""),
        "force_path_style": uri.value("force-path-style", boolean, not by_host),
        "account_name": given.get("account-name", ""),
        "role_arn": given.get("role-arn", ""),
        "external_id": given.get("external-id", ""),
    }


def store_secrets(uri: Uri) -> dict[str, str]:
    """Return `Secrets` field → value of the bucket's URI; raise `ConfigError`."""
    names = _SECRETS_OF.get(uri.scheme, ())
    found = {name.replace("-", "_"): uri.parameters.get(name, "") for name in names}
    if file := uri.parameters.get("credentials-file"):
        try:
            found["gcs_credentials"] = _read_credentials(file)
        except ValueError as error:
            raise uri.error(str(error)) from None
    return found


_IN_ENVIRONMENT = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"),
    *(
        "AZURE_STORAGE_KEY",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_CONNECTION_STRING",
    ),
    *(
        "AZURE_CLIENT_SECRET",
        "AZURE_CLIENT_CERTIFICATE_PASSWORD",
        "AZURE_PASSWORD",
        "GOOGLE_API_KEY",
    ),
)
"""Variables from which the stores' own clients take secrets."""
_IN_CONNECTION = re.compile(r"(?i)(?:^|;)\s*(?:AccountKey|SharedAccessSignature)\s*=\s*([^;]+)")
_IN_TOKEN = re.compile(r"(?:^|[?&])sig=([^&]+)")


def environment_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the stores' clients' secrets of the environment, with each one's secret parts.

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
    found = [
        str(content.get(name, "")) for name in ("private_key", "refresh_token", "client_secret")
    ]
    return [text for text in found if text]


def signatures(token: str) -> list[str]:
    """Return the signature in an Azure token, as written and percent-decoded."""
    return [text for found in _IN_TOKEN.findall(token) for text in (found, unquote(found))]


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
        raise ValueError(
            f"`credentials-file`: {file} is not a Google credentials file: a JSON object with a `type`"
        )
    return text


def parse_downstream(text: str) -> Uri:
    """Parse the target's URI; raise `ConfigError` for anything that is not a writable server."""
    masked = mask_uri(text)
    fail = partial(_error, "downstream", masked)
    split = _split(text, fail, _EXAMPLES["downstream"])
    scheme, _, extra = split.scheme.lower().partition("+")
    if scheme not in _DEFAULT_PORT or extra not in {"", "ssl"}:
        raise fail(
            f"{split.scheme}:// is not a target; give mysql://, tidb:// or mariadb://, with +ssl for "
            f"TLS{did_you_mean(scheme, _DEFAULT_PORT)}"
        )
    try:
        port = split.port or 0
    except ValueError:
        raise fail(
            "the port is not a number from 1 to 65535; in a password, write / as %2F, @ as %40, : as %3A, ? as %3F, "
            "# as %23"
        ) from None
    # At the last @: an earlier one may belong to a password that was not percent-encoded.
    userinfo, _, _ = split.netloc.rpartition("@")
    user, colon, password = userinfo.partition(":")
    uri = Uri(
        side="downstream",
        masked=masked,
        scheme=scheme,
        ssl=extra == "ssl",
        host=split.hostname or "",
        port=port,
        user=unquote(user),
        password=unquote(password) if colon else None,
        path=unquote(split.path),
        parameters=_parameters(split.query, DOWNSTREAM_PARAMETERS, fail),
    )
    if uri.path not in {"", "/"}:
        raise uri.error(
            "no database belongs here, because tables keep the databases they have at the source; end the URI with "
            "`/` (a `/` inside the password is written %2F)"
        )
    socket = uri.parameters.get("unix-socket", "")
    if socket and not socket.startswith("/"):
        raise uri.error("`unix-socket` must be an absolute path")
    if not uri.host and not socket:
        raise uri.error("no host is named; give mysql://user@host:3306/ or unix-socket=/path")
    if uri.parameters.get("dry-run", "false").lower() not in {"false", "0", "f", ""}:
        raise uri.error("`dry-run` is not supported")
    return uri


def default_port(uri: Uri) -> int:
    """Return the port of a server whose URI names none: TiDB's 4000, MySQL's 3306."""
    return _DEFAULT_PORT[uri.scheme]


def _split(text: str, fail: _Fail, example: str) -> SplitResult:
    if "://" not in text:
        raise fail(f"a URI is expected, like {example}")
    try:
        split = urlsplit(text.strip())
    except ValueError:
        raise fail("this is not a well-formed URI") from None
    # What follows a # would be lost without a word, and it may be the rest of a password.
    if split.fragment or text.strip().endswith("#"):
        raise fail("a `#` ends a URI; inside a password, path or parameter it is written %23")
    return split


def _parameters(query: str, known: frozenset[str], fail: _Fail) -> Mapping[str, str]:
    """Return a query's names and values; ``+`` stays, and ``_`` in names becomes ``-``.

    AWS keys and time zones have a plus.
    """
    parameters: dict[str, str] = {}
    for item in query.split("&"):
        if not item:
            continue
        raw, equals, value = item.partition("=")
        name = _plain(raw)
        if name not in known or not equals:
            # An unknown name may be a secret's tail, so the message must not quote it.
            if before := next((each for each in reversed(parameters) if is_secret(each)), ""):
                what = "token" if before == "sas-token" else "value"
                why = f"percent-encode the {what}: a `&` inside is written %26"
                text = f"what follows `{before}` and begins with a `&` is not a known parameter; if it belongs to the {what}, {why}"
                raise fail(text)
            shown = name if equals else "(without a `=`)"
            hint = (
                did_you_mean(name, sorted(known))
                if equals
                else "; a `&` inside a value is written %26"
            )
            raise fail(f"unknown parameter `{shown}`{hint}")
        if parameters.setdefault(name, unquote(value)) != unquote(value):
            raise fail(f"parameter `{name}` is given twice, with different values")
    return parameters
