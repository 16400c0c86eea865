"""The two URIs: parsed, checked, and never shown with their secrets."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from storage_consumer.config import stores
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.errors import ConfigError

_SECRET_WORDS = ("key", "secret", "token", "passw", "credential", "pwd", "signature", "accessid", "auth")
_SIGNATURE = "sig"
"""The signature in a SAS token, which is a parameter if the token was not percent-encoded as it should be."""
# Names that only sound as if they held a secret: paths, ids and switches.
_NOT_SECRET = frozenset({"ssl-key", "sse-kms-key-id", "output-handle-key", "output-row-key"})
# Also cut at ; and #: the rest of a secret that was not percent-encoded may follow one of them.
_PARAMETER = re.compile(r"([?&;#])([^=&;#?]*)(?:=([^&;#]*))?")
_USER_AND_PASSWORD = re.compile(
    r"(?s)^(\s*(?:[A-Za-z][A-Za-z0-9+.-]*://|(?![A-Za-z][A-Za-z0-9+.-]*://))[^:/?#]*):(.*)@"
)
"""Also matches without a scheme, as some drivers' addresses are written."""
_KEY_AND_SECRET = re.compile(r"(?s)^(\s*(?:s3|gcs|gs|azure|azblob)://)[^/?#]*@")

_SOURCE_SIDE = frozenset(
    {
        *("content-compatible", "delete-only-output-handle-key-columns", "enable-table-across-nodes"),
        *("file-cleanup-cron-spec", "file-size", "flush-concurrency", "flush-interval"),
        *("max-batch-size", "max-message-bytes", "only-output-updated-columns", "output-column-id"),
        *("output-raw-change-event", "output-row-key", "spool-base-dir", "spool-disk-quota"),
        *("transaction-atomicity", "use-table-id-as-path", "worker-count"),
    }
    | stores.OF_WRITER
)
"""Upstream parameters of TiCDC that only control how it writes, or that the files themselves show."""

UPSTREAM_PARAMETERS = _SOURCE_SIDE.union(
    {"protocol", "enable-tidb-extension", "date-separator", "enable-partition-separator", "file-index-digit"},
    {"file-expiration-days"},
    *stores.PARAMETERS.values(),
)

_OTHER_SINK = frozenset(
    {
        *("async-ddl-timeout", "batch-dml-enable", "cache-prep-stmts", "dry-run-delay", "enable-ddl-ts"),
        *("has-vector-type", "max-multi-update-row", "max-multi-update-row-size", "max-txn-row", "multi-stmt-enable"),
        *("read-timeout", "safe-mode", "tidb-txn-mode", "transaction-atomicity", "where-clause"),
        *("write-timeout",),
    }
)
"""Downstream parameters of TiCDC's own MySQL sink that have no counterpart here."""

DOWNSTREAM_PARAMETERS = _OTHER_SINK | {
    *("dry-run", "ssl-ca", "ssl-cert", "ssl-key", "ssl-mode", "state-schema", "time-zone", "timeout", "unix-socket"),
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
_UNSUPPORTED_STORAGE = {"hdfs", "local", "noop"}
_TARGET_SCHEMES = ("mysql", "tidb", "mariadb")
_DEFAULT_PORT = {"mysql": 3306, "mariadb": 3306, "tidb": 4000}


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


def _error(side: str, masked: str, message: str) -> ConfigError:
    return ConfigError(f"{_FLAGS[side]} {masked}: {message}")


def mask_uri(uri: str) -> str:
    """Return the URI with ``***`` for its password and for each parameter that may be a secret; accepts any text.

    A password is taken to reach to the last ``@`` of the text, so one that was not percent-encoded as it should be is hidden
    too, even if that hides more than the password. Whatever follows a secret and is not a known parameter is also hidden: it may
    belong to a secret that contains a ``&``.
    """
    behind_secret = False

    def hide(match: re.Match[str]) -> str:
        nonlocal behind_secret
        lead, name, value = match.groups()
        # Matches come from left to right, so this parameter may be the rest of a secret before it.
        if behind_secret and name and _plain(name) not in UPSTREAM_PARAMETERS | DOWNSTREAM_PARAMETERS:
            return f"{lead}***"
        # A value with an @ may be a URI with a password of its own.
        if value is not None and (is_secret(name) or "@" in unquote(value)):
            behind_secret = True
            return f"{lead}{name}=***"
        return match.group(0)

    return _PARAMETER.sub(hide, _KEY_AND_SECRET.sub(r"\1***@", _USER_AND_PASSWORD.sub(r"\1:***@", _as_meant(uri))))


def _as_meant(uri: str) -> str:
    """Return the URI, decoded if it was percent-encoded as a whole, so that a secret parameter stands in its path."""
    plain = unquote(uri)
    return plain if "?" not in uri and any(is_secret(name) for _, name, _ in _PARAMETER.findall(plain)) else uri


def secrets_in(uri: str) -> tuple[str, ...]:
    """Return what `mask_uri` hides, as written and percent-decoded, also of a URI within the URI; accepts any text."""
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
    return plain not in _NOT_SECRET and (plain == _SIGNATURE or any(word in plain for word in _SECRET_WORDS))


def parse_upstream(text: str) -> Uri:
    """Parse the bucket's URI; raise `ConfigError` for anything that is not a readable bucket."""
    return parse_store("upstream", text, UPSTREAM_PARAMETERS)


def parse_store(side: str, text: str, known: frozenset[str]) -> Uri:
    """Parse the URI of a folder in a store, with `known` parameters; raise `ConfigError` for anything that cannot be read."""
    split = _split(side, text)
    masked, scheme = mask_uri(text), split.scheme.lower()
    # A path is stored and shown.
    if secrets_in(split.path):
        raise _error(
            side, masked, "a secret stands in the path: a `?` that is not percent-encoded begins the parameters"
        )
    if scheme in _UNSUPPORTED_STORAGE:
        raise _error(side, masked, f"the storage {scheme}:// is not supported; file://, s3://, gcs:// and azure:// are")
    if scheme not in stores.SCHEMES:
        raise _error(
            side,
            masked,
            f"{scheme}:// is not a storage; give file:///dir, s3://bucket/prefix, gcs://… or azure://…"
            f"{did_you_mean(scheme, sorted(stores.SCHEMES))}",
        )
    uri = Uri(
        side=side,
        masked=masked,
        scheme=stores.SCHEMES[scheme],
        # Not `split.hostname`, which is in lower case: a bucket's name stays as it is.
        host=split.netloc,
        path=_normal_path(split.path),
        parameters=_parameters(side, split.query, masked, known),
    )
    _check_place(uri)
    _check_parameters(uri)
    return uri


def _check_place(uri: Uri) -> None:
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


def same_place(uri: Uri, sink_uri: str) -> bool:
    """Return whether a changefeed's sink URI names the bucket and the prefix, or the directory, of this one."""
    try:
        other = urlsplit(sink_uri.strip())
    except ValueError:
        return False
    host = "" if other.netloc == "localhost" and uri.scheme == "file" else other.netloc
    own_host = "" if uri.scheme == "file" else uri.host
    return (stores.SCHEMES.get(other.scheme.lower()), host, _normal_path(other.path)) == (
        uri.scheme,
        own_host,
        uri.path,
    )


def _normal_path(path: str) -> str:
    """Return a path percent-decoded and normalised; the root becomes the empty text."""
    return posixpath.normpath("/" + unquote(path).strip("/")).rstrip("/")


def _check_parameters(uri: Uri) -> None:
    hidden = [name for name, value in uri.parameters.items() if value in _MASKS and is_secret(name)]
    if hidden:
        raise uri.error(
            f"{', '.join(f'`{name}`' for name in hidden)}: this is the mask that TiCDC prints in the place of a secret. Give "
            f"--upstream-uri with the secret itself, or without {'it' if len(hidden) == 1 else 'them'}; then the store's usual "
            "credentials (environment, profile, instance) are used"
        )
    if text := stores.complaint(stores.SCHEMES[uri.scheme], uri.parameters):
        raise uri.error(text)


def store_secrets(uri: Uri) -> dict[str, str]:
    """Return field of `Secrets` → value, as far as the bucket's URI gives them; raise `ConfigError`."""
    try:
        return stores.secrets(stores.SCHEMES[uri.scheme], uri.parameters)
    except ValueError as error:
        raise uri.error(str(error)) from None


def parse_downstream(text: str) -> Uri:
    """Parse the target's URI; raise `ConfigError` for anything that is not a writable server."""
    split = _split("downstream", text)
    masked = mask_uri(text)
    scheme, _, extra = split.scheme.lower().partition("+")
    if scheme not in _TARGET_SCHEMES or extra not in {"", "ssl"}:
        raise _error(
            "downstream",
            masked,
            f"{split.scheme}:// is not a target; give mysql://, tidb:// or mariadb://, with +ssl for "
            f"TLS{did_you_mean(scheme, _TARGET_SCHEMES)}",
        )
    # At the last @: an earlier one may belong to a password that was not percent-encoded.
    userinfo, _, _ = split.netloc.rpartition("@")
    user, colon, password = userinfo.partition(":")
    uri = Uri(
        side="downstream",
        masked=masked,
        scheme=scheme,
        ssl=extra == "ssl",
        host=split.hostname or "",
        port=_port(split, masked),
        user=unquote(user),
        password=unquote(password) if colon else None,
        path=unquote(split.path),
        parameters=_parameters("downstream", split.query, masked, DOWNSTREAM_PARAMETERS),
    )
    _check_server(uri)
    return uri


def _check_server(uri: Uri) -> None:
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


def default_port(uri: Uri) -> int:
    """Return the port of a server whose URI names none: TiDB's 4000, MySQL's 3306."""
    return _DEFAULT_PORT[uri.scheme]


def _port(split: SplitResult, masked: str) -> int:
    try:
        return split.port or 0
    except ValueError:
        raise _error(
            "downstream",
            masked,
            "the port is not a number from 1 to 65535; in a password, write / as %2F, @ as %40, : as %3A, ? as %3F, "
            "# as %23",
        ) from None


def _split(side: str, text: str) -> SplitResult:
    masked = mask_uri(text)
    if "://" not in text:
        raise _error(side, masked, f"a URI is expected, like {_EXAMPLES[side]}")
    try:
        split = urlsplit(text.strip())
    except ValueError:
        raise _error(side, masked, "this is not a well-formed URI") from None
    # What follows a # would be lost without a word, and it may be the rest of a password.
    if split.fragment or text.strip().endswith("#"):
        raise _error(side, masked, "a `#` ends a URI; inside a password, path or parameter it is written %23")
    return split


def _parameters(side: str, query: str, masked: str, known: frozenset[str]) -> Mapping[str, str]:
    """Return names and values of a query; ``+`` stays a plus, as in AWS keys and time zones, and ``_`` in a name becomes ``-``."""
    parameters: dict[str, str] = {}
    for item in query.split("&"):
        if not item:
            continue
        raw, equals, value = item.partition("=")
        name = _plain(raw)
        if name not in known or not equals:
            # An unknown name may be the tail of the secret before it, so the message must not quote it.
            if before := next((each for each in reversed(parameters) if is_secret(each)), ""):
                what = "token" if before == "sas-token" else "value"
                why = f"percent-encode the {what}: a `&` inside is written %26"
                text = f"what follows `{before}` and begins with a `&` is not a known parameter; if it belongs to the {what}, {why}"
                raise _error(side, masked, text)
            shown = name if equals else "(without a `=`)"
            hint = did_you_mean(name, sorted(known)) if equals else "; a `&` inside a value is written %26"
            raise _error(side, masked, f"unknown parameter `{shown}`{hint}")
        if parameters.setdefault(name, unquote(value)) != unquote(value):
            raise _error(side, masked, f"parameter `{name}` is given twice, with different values")
    return parameters
