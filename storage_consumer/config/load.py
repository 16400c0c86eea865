"""From options, URIs, environment and TOML files to the settings: everything is checked here, before anything is touched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage_consumer.config import changefeed, parsers
from storage_consumer.config.options import BY_ENVIRONMENT, BY_KEYWORD, ENVIRONMENT_PREFIX, OPTIONS, OWN_TABLE, Option
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.config.settings import Config, CsvOptions, Downstream, Secrets, Tuning, Upstream
from storage_consumer.config.uris import UNNEEDED, Uri, default_port, mask_uri, parse_downstream, parse_upstream
from storage_consumer.errors import ConfigError

__all__ = ["Loaded", "Program", "load", "mask_uri", "with_files_read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How the program behaves, as opposed to what it does; of no meaning to the library."""

    once: bool = False
    log_level: str = "info"
    log_file: str = ""
    """Empty: standard error."""
    log_format: str = "text"
    progress: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The outcome of `load`."""

    config: Config
    secrets: Secrets
    program: Program
    notices: tuple[str, ...] = ()
    """What was accepted but has no effect, or was assumed: to be logged once at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """A value and who gave it."""

    value: Any
    origin: str
    """For messages, like ``--tz`` or ``changefeed.toml: [sink] protocol``; empty for a default."""


class _Sources:
    """The places that a value may come from, asked in the order of precedence."""

    def __init__(self, options: Mapping[str, object], environ: Mapping[str, str]) -> None:
        """Read the TOML files and take the URIs apart; raises `ConfigError` for what is unknown or malformed there."""
        self.options = _known_options(options)
        self.environ = environ
        self.parameters: dict[str, Mapping[str, str]] = {}
        self.settings: dict[str, tuple[object, str]] = {}
        self.documents = tuple(changefeed.read_document(item) for item in self._config())
        for document in self.documents:
            changefeed.check_keys(document)
            changefeed.refuse_routing(document)
        self.settings = changefeed.merged(self.documents)
        if f"{OWN_TABLE}.sink-uri" in self.settings:
            self.settings.setdefault(f"{OWN_TABLE}.upstream-uri", self.settings[f"{OWN_TABLE}.sink-uri"])
        self.upstream = parse_upstream(self._uri("upstream-uri"))
        self.downstream = parse_downstream(self._uri("downstream-uri"))
        self.parameters = {"upstream": self.upstream.parameters, "downstream": self.downstream.parameters}

    def _config(self) -> list[object]:
        given = self.find(BY_KEYWORD["config"])
        from_environment = given.origin.startswith("environment") and isinstance(given.value, list)
        if from_environment:
            return [part for item in given.value for part in str(item).split(os.pathsep) if part]
        return list(given.value or ())

    def _uri(self, name: str) -> str:
        given = self.find(BY_KEYWORD[name.replace("-", "_")])
        if not given.value:
            example = "file:///dir?protocol=csv" if name == "upstream-uri" else "mysql://user@host:3306/"
            raise ConfigError(f"--{name} is missing; give it, for example, as --{name} '{example}'")
        return str(given.value)

    def find(self, option: Option) -> _Given:
        """The value of an option: flag or keyword, URI, environment, TOML, default."""
        for given, origin in self._candidates(option):
            if given is None:
                continue
            try:
                return _Given(value=option.parse(given), origin=origin)
            except ValueError as error:
                shown = (
                    str(error) if "uri" not in option.name and "password" not in option.name else "a text is expected"
                )
                raise ConfigError(f"{origin}: {shown}") from None
        return _Given(value=option.default, origin="")

    def _candidates(self, option: Option) -> list[tuple[object, str]]:
        found: list[tuple[object, str]] = [(self.options.get(option.keyword), f"--{option.name}")]
        if option.uri:
            side, parameter = option.uri
            in_uri = self.parameters.get(side, {}).get(parameter) or None
            found.append((in_uri, f"--{side}-uri: parameter `{parameter}`"))
        found.append((self.environ.get(option.environment) or None, f"environment variable {option.environment}"))
        if option.toml_key in self.settings:
            value, source = self.settings[option.toml_key]
            table, _, key = option.toml_key.rpartition(".")
            found.append((value, f"{source}: [{table}] {key}"))
        return found

    def values(self, *names: str) -> dict[str, Any]:
        """Keyword → value of options by their keywords."""
        return {name: self.find(BY_KEYWORD[name]).value for name in names}


def load(options: Mapping[str, object], environ: Mapping[str, str]) -> Loaded:
    """The settings that these options and this environment give.

    `options` are the keywords of `Consumer` (which are the flags with underscores); None counts as not given.
    Precedence: flag or keyword, then URI parameter, then environment variable, then TOML file, then default.
    Raises `ConfigError`, whose message names the place, the value (never a secret) and the remedy. Opens no connection.
    """
    sources = _Sources(options, environ)
    time_zone, notices = _time_zone(sources)
    upstream = _upstream(sources, time_zone)
    changefeed.refuse(sources.settings, sources.upstream.parameters, upstream.protocol)
    downstream = _downstream(sources, time_zone)
    tuning = Tuning(**sources.values(*Tuning.__slots__))
    program = _program(sources)
    secrets = Secrets(
        password=_password(sources),
        access_key=sources.upstream.parameters.get("access-key", ""),
        secret_access_key=sources.upstream.parameters.get("secret-access-key", ""),
        session_token=sources.upstream.parameters.get("session-token", ""),
    )
    return Loaded(
        config=Config(upstream=upstream, downstream=downstream, tuning=tuning),
        secrets=secrets,
        program=program,
        notices=(*notices, *_notices(sources, upstream)),
    )


def with_files_read(options: Mapping[str, object], environ: Mapping[str, str]) -> dict[str, object]:
    """The same options with the files that ``config`` and ``downstream_password_file`` name read in.

    A caller that loads the same options twice reads these once, since they may be pipes.
    `load` of the result gives what `load` of `options` gives. Raises `ConfigError`.
    """
    known = _known_options(options)
    config = known.get("config") or environ.get(BY_KEYWORD["config"].environment, "").split(os.pathsep)
    items = config if isinstance(config, (list, tuple)) else [config]
    known["config"] = [changefeed.read_document(item) for item in items if item] or None
    file = known.pop("downstream_password_file", None)
    if file and known.get("downstream_password") is None:
        known["downstream_password"] = _read_password(parsers.path(file), "--downstream-password-file")
    return known


def _known_options(options: Mapping[str, object]) -> dict[str, object]:
    known: dict[str, object] = {}
    for keyword, value in options.items():
        if keyword not in BY_KEYWORD:
            raise ConfigError(f"there is no option `{keyword}`{did_you_mean(keyword, BY_KEYWORD)}")
        name = BY_KEYWORD[keyword].keyword
        if value is None:
            continue
        if name in known and known[name] != value:
            raise ConfigError(f"`{keyword}` and `{name}` mean the same option but were given different values")
        known[name] = value
    return known


def _time_zone(sources: _Sources) -> tuple[str, list[str]]:
    given = sources.find(BY_KEYWORD["tz"])
    if not given.origin:
        assumed = "no time zone was given: TIMESTAMP values are read as UTC; if the TiCDC servers have another zone, give it by --tz"
        return str(given.value), [assumed]
    if given.value != "System":
        return str(given.value), []
    try:
        zone = parsers.system_zone(sources.environ)
    except ValueError as error:
        raise ConfigError(f"{given.origin}: {error}") from None
    return zone, [
        f"{given.origin}: System is this host's time zone, {zone}; what counts is the zone of the TiCDC servers"
    ]


def _upstream(sources: _Sources, time_zone: str) -> Upstream:
    uri = sources.upstream
    given = sources.values("protocol", "include_commit_ts", "enable_tidb_extension", "date_separator")
    protocol = given["protocol"]
    if not protocol:
        raise uri.error(
            "the protocol is not known: add protocol=csv or protocol=canal-json to it, as in TiCDC's --sink-uri"
        )
    if protocol == "csv" and not given["include_commit_ts"]:
        raise ConfigError(
            "CSV rows without commit ts can be neither ordered nor told from duplicates: the changefeed needs "
            "`[sink.csv] include-commit-ts = true`, and that file is given here by --config (or say --include-commit-ts)"
        )
    if protocol == "canal-json" and not given["enable_tidb_extension"]:
        raise uri.error(
            "canal-json messages without their commit ts can be neither ordered nor told from duplicates: the changefeed's "
            "sink URI needs `enable-tidb-extension=true`, and so does this one"
        )
    return Upstream(
        scheme="file" if uri.scheme == "file" else "s3",
        root=uri.path if uri.scheme == "file" else f"{uri.host}{uri.path}",
        endpoint=uri.parameters.get("endpoint", "").rstrip("/"),
        region=uri.parameters.get("region", ""),
        force_path_style=_flag(uri, "force-path-style", default=True),
        protocol=protocol,
        csv=CsvOptions(include_commit_ts=given["include_commit_ts"]),
        enable_tidb_extension=given["enable_tidb_extension"],
        date_separator=given["date_separator"],
        partition_separator=sources.find(BY_KEYWORD["enable_partition_separator"]).value,
        time_zone=time_zone,
    )


def _flag(uri: Uri, parameter: str, *, default: bool) -> bool:
    try:
        return parsers.boolean(uri.parameters.get(parameter) or default)
    except ValueError as error:
        raise uri.error(f"parameter `{parameter}`: {error}") from None


def _downstream(sources: _Sources, time_zone: str) -> Downstream:
    uri = sources.downstream
    given = sources.values("ssl_ca", "ssl_cert", "ssl_key", "state_schema", "connect_timeout")
    for name in ("ssl_ca", "ssl_cert", "ssl_key"):
        if given[name] and not Path(given[name]).is_file():
            raise uri.error(f"`{name.replace('_', '-')}`: there is no file {given[name]}")
    if bool(given["ssl_cert"]) != bool(given["ssl_key"]):
        raise uri.error("`ssl-cert` and `ssl-key` are given together or not at all")
    return Downstream(
        host=uri.host,
        port=uri.port or default_port(uri),
        unix_socket=uri.parameters.get("unix-socket", ""),
        user=uri.user or Downstream().user,
        ssl=uri.ssl or bool(given["ssl_ca"] or given["ssl_cert"]),
        time_zone=time_zone,
        **given,
    )


def _password(sources: _Sources) -> str:
    """From keyword or flag, else the URI, else the environment, else the file that environment or TOML name."""
    given, file = BY_KEYWORD["downstream_password"], BY_KEYWORD["downstream_password_file"]
    for keyword in (given.keyword, file.keyword):
        if sources.options.get(keyword) is not None:
            found = sources.find(BY_KEYWORD[keyword])
            return str(found.value) if keyword == given.keyword else _read_password(found.value, found.origin)
    if sources.downstream.password is not None:
        return sources.downstream.password
    if given.environment in sources.environ:
        return sources.environ[given.environment]
    found = sources.find(file)
    return _read_password(found.value, found.origin) if found.value else ""


def _read_password(path: str, origin: str) -> str:
    try:
        content = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigError(f"{origin}: the password file {path} cannot be read: {reason}") from None
    return content.removesuffix("\n").removesuffix("\r")


def _program(sources: _Sources) -> Program:
    given = sources.values("once", "log_level", "log_file", "log_format")
    return Program(**given, progress=not sources.find(BY_KEYWORD["no_progress"]).value)


def _notices(sources: _Sources, upstream: Upstream) -> list[str]:
    notices: list[str] = []
    uri = sources.downstream
    if not uri.port and "unix-socket" not in uri.parameters:
        notices.append(f"--downstream-uri names no port: {default_port(uri)} is taken")
    for found in (sources.upstream, sources.downstream):
        idle = sorted(name for name in found.parameters if name in UNNEEDED[found.side])
        if idle:
            notices.append(f"--{found.side}-uri: accepted, without effect here: {', '.join(idle)}")
    if sources.find(BY_KEYWORD["file_index_width"]).origin:
        notices.append("file-index-width, file-index-digit: accepted; file numbers of any width are read")
    if sources.find(BY_KEYWORD["enable_profiling"]).value:
        notices.append("--enable-profiling: accepted; no profiling port is opened")
    notices += _file_notices(sources, upstream)
    for name in sorted(sources.environ):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in BY_ENVIRONMENT:
            notices.append(f"environment variable {name} is not known{did_you_mean(name, BY_ENVIRONMENT)}")
    return notices


def _file_notices(sources: _Sources, upstream: Upstream) -> list[str]:
    used = {option.toml_key for option in OPTIONS}
    used |= {refusal.key for refusal in changefeed.REFUSALS if upstream.protocol in refusal.protocols}
    notices: list[str] = []
    for document in sources.documents:
        keys = dict(changefeed.leaves(document.content))
        days = keys.get("sink.cloud-storage-config.file-expiration-days")
        if days:
            notices.append(
                f"{document.source}: TiCDC deletes files after {days} days, whether they were read by then or not"
            )
        filters = sorted(key for key in keys if key.startswith("filter."))
        if filters:
            notices.append(
                f"{document.source}: {', '.join(filters)}: TiCDC applied them when it wrote; not applied again"
            )
        idle = sorted(key for key in keys if key not in used and key not in filters and not key.startswith(OWN_TABLE))
        if idle:
            notices.append(f"{document.source}: accepted, without effect here: {', '.join(idle)}")
    return notices
