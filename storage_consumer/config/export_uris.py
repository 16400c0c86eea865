"""Where an export is, and how it was written, by its URI."""

from __future__ import annotations

from dataclasses import replace

from storage_consumer.config import parsers
from storage_consumer.config.settings import DumpOptions, Upstream
from storage_consumer.config.uris import STORE_PARAMETERS, Uri, is_secret, parse_store, place_of
from storage_consumer.errors import ConfigError

_PLACE = ("endpoint", "region", "force-path-style", "account-name")
"""Parameters of a store that say where its server is."""
TIME_ZONE = "time-zone"
"""Parameter for the zone of TIMESTAMPs: of exports, only SQL files may begin with theirs."""
_DIALECTS = {"default": "raw", "snowflake": "hex", "redshift": "hex", "bigquery": "base64"}
_TEXTS = ("csv-separator", "csv-delimiter", "csv-null-value", "csv-line-terminator")
_OF_STORES = frozenset[str]().union(*STORE_PARAMETERS.values())
OF_DUMPLING = frozenset(("escape-backslash", "no-header", "csv-output-dialect", *_TEXTS))
"""Options of Dumpling that change what its files mean, and that none of them shows."""
_PARAMETERS = OF_DUMPLING | _OF_STORES | {TIME_ZONE}


def export_origin(uri: str, bucket: Upstream) -> Upstream:
    """Return an export's store, and its format as its URI says; raise `ConfigError`.

    It is read with the bucket's credentials. In the same kind of store it is on the bucket's server
    unless its URI names another one.
    """
    parsed = parse_export(uri)
    origin = Upstream(
        **place_of(parsed),
        protocol="dump-sql",
        time_zone=parsed.value(TIME_ZONE, parsers.time_zone, ""),
        dump=_options(parsed),
    )
    if origin.scheme == bucket.scheme and not origin.role_arn:
        origin = replace(origin, role_arn=bucket.role_arn, external_id=bucket.external_id)
    if origin.scheme != bucket.scheme or any(parsed.parameters.get(name) for name in _PLACE):
        return origin
    return replace(
        origin,
        endpoint=bucket.endpoint,
        region=bucket.region,
        force_path_style=bucket.force_path_style,
        account_name=bucket.account_name,
    )


def parse_export(text: str) -> Uri:
    """Parse an export's URI; raise `ConfigError` if it is unreadable or has a secret.

    The URI is stored with the load, and shown.
    """
    uri = parse_store("dump", text, _PARAMETERS)
    if given := sorted(filter(is_secret, _OF_STORES & uri.parameters.keys())):
        raise uri.error(
            f"{', '.join(f'`{name}`' for name in given)}: no secret belongs here, because the URI is stored and shown. An export is read "
            "with the credentials of the bucket, which --upstream-uri or the environment gives"
        )
    if uri.parameters.get(TIME_ZONE, "").lower() == "system":
        raise uri.error(
            f"`{TIME_ZONE}`: give the zone by its name, such as UTC or +08:00: every process reads this URI"
        )
    _options(uri)
    uri.value(TIME_ZONE, parsers.time_zone, "")
    return uri


def with_time_zone(uri: str, zone: str) -> str:
    """Return an export's URI with its TIMESTAMPs' zone; raise `ConfigError` for two zones."""
    parsed = parse_export(uri)
    if not zone:
        return uri
    known = parsed.parameters.get(TIME_ZONE, zone)
    if known != zone:
        raise parsed.error(f"`{TIME_ZONE}` is {known}, --dump-tz {zone}: give one of them")
    if TIME_ZONE in parsed.parameters:
        return uri
    # A plus in a parameter stays a plus, so an offset needs no escape.
    complete = f"{uri}{'&' if '?' in uri else '?'}{TIME_ZONE}={zone}"
    parse_export(complete)
    return complete


def refuse_inside(origin: Upstream, bucket: Upstream) -> None:
    """Raise `ConfigError` if an export would be written among the changefeed's files."""
    is_same_store = (origin.scheme, origin.endpoint, origin.account_name) == (
        bucket.scheme,
        bucket.endpoint,
        bucket.account_name,
    )
    if is_same_store and f"{origin.root}/".startswith(f"{bucket.root}/"):
        raise ConfigError(
            f"--dump {origin.identity} is in the changefeed's own folder, where nothing may be written: give another one, beside it"
        )


def below(uri: str, folder: str) -> str:
    """Return the URI of a folder below that of an export."""
    place, mark, parameters = uri.partition("?")
    return f"{place.rstrip('/')}/{folder}{mark}{parameters}"


def _options(uri: Uri) -> DumpOptions:
    """Return how the files are written, by Dumpling's own options."""
    plain = DumpOptions()
    usual = (plain.separator, plain.delimiter, plain.null, plain.terminator)
    separator, delimiter, null, terminator = (
        str(parsers.unescaped(uri.parameters.get(name, default))) for name, default in zip(_TEXTS, usual, strict=True)
    )
    if not (separator and terminator):
        raise uri.error(f"`{_TEXTS[0]}` and `{_TEXTS[3]}` cannot be empty")
    dialect = uri.value("csv-output-dialect", parsers.choice(*_DIALECTS), "default")
    return DumpOptions(
        escape_backslash=uri.value("escape-backslash", parsers.boolean, plain.escape_backslash),
        header=not uri.value("no-header", parsers.boolean, not plain.header),
        binary=_DIALECTS[dialect],  # type: ignore[arg-type]  # a value of the table above
        separator=separator,
        delimiter=delimiter,
        null=null,
        terminator=terminator,
    )
