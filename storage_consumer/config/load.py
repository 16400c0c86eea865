"""Turn options, URIs, environment and TOML into settings, checking all before any action."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from storage_consumer.config import parsers
from storage_consumer.config.commands import given_again
from storage_consumer.config.options import (
    BY_ENVIRONMENT,
    BY_KEYWORD,
    ENVIRONMENT_PREFIX,
    OPTIONS,
    OWN_TABLE,
)
from storage_consumer.config.parsers import Parser, did_you_mean
from storage_consumer.config.private_files import password_in
from storage_consumer.config.settings import (
    ColumnSelector,
    Config,
    CsvOptions,
    Downstream,
    DumpOptions,
    LeftOut,
    Limits,
    Loading,
    Monitoring,
    Secrets,
    Selecting,
    Server,
    Tuning,
    Upstream,
)
from storage_consumer.config.sources import (
    OF_THE_WRITER,
    REFUSED,
    SELECTORS,
    Given,
    LogWish,
    Sources,
    leaves,
    refuse_active_active,
    routed_by_ticdc,
)
from storage_consumer.config.table_filter import (
    CarriedColumns,
    check_selectors,
    routed_to_reserved,
    taken_from_reserved,
)
from storage_consumer.config.uris import (
    STORE_PARAMETERS,
    UNNEEDED,
    Uri,
    default_port,
    environment_secrets,
    is_secret,
    mask_uri,
    parse_downstream,
    parse_store,
    place_of,
    store_secrets,
)
from storage_consumer.errors import ConfigError
from storage_consumer.telemetry import register_secret

_ADDRESS = re.compile(r"https?://[^\s'\"/]+([^\s'\"|;<>]*)")
_SECRET_PATH = 16
"""Characters from which the path of an address may be a secret; a shorter one could be any word."""
CSV_KEYWORDS: tuple[str, ...] = CsvOptions.__slots__
"""Options in `CsvOptions`. A changefeed file with ``[sink]`` gives all, by TiCDC's defaults."""
FORMAT_KEYWORDS = ("protocol", *CSV_KEYWORDS, "enable_tidb_extension")
"""The options without which data files cannot be read."""
_SHOWN_BY_PATHS = ("date_separator", "enable_partition_separator", "tz")
"""Options that may be missing: paths show the first two, TIMESTAMPs alone need the last."""
_MOVING = frozenset(
    (
        *("all", "all dml", "insert", "update", "delete"),
        *("all ddl", "alter table", "truncate table", "recover table"),
        *("truncate table partition", "drop table partition", "exchange table partition"),
    )
)
"""Events that change which rows there are; silent structural changes show when it is read."""
_EXPRESSIONS = (
    *("ignore-insert-value-expr", "ignore-update-old-value-expr", "ignore-update-new-value-expr"),
    *("ignore-delete-value-expr", "ignore-update-only-columns"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How the program behaves, as opposed to what it does; of no meaning to the library."""

    once: bool = False
    log: LogWish = field(default_factory=LogWish)
    no_progress: bool = False
    on_halt: tuple[str, ...] = ()
    """The words of the command to run when a table halts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The result of `load`."""

    config: Config
    secrets: Secrets
    program: Program
    notices: tuple[str, ...] = ()
    """Settings that were accepted without effect, or assumed: to be logged once at the start."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Keyword of a format option → who gave it; missing ones are inferred before files are read."""
    source: Server | None = None
    """Of which server a new feed makes an export; None for none."""
    raw_updates: str = ""
    """Who configured TiCDC not to split updates that change a key; empty: nobody."""

    @property
    def unset(self) -> tuple[str, ...]:
        """Keywords of format options that matter and were not given; `config` has placeholders."""
        return _unset(self.config.upstream, self.origins)

    def completed(self, upstream: Upstream, inferred: Mapping[str, str]) -> Loaded:
        """Return the settings completed by `inferred` (keyword → evidence); raise `ConfigError`."""
        _require_commit_ts(upstream)
        _refuse_lost_keys(upstream, self.raw_updates)
        # What was given keeps its origin: nothing that is inferred replaces it.
        return replace(
            self,
            config=replace(self.config, upstream=upstream),
            origins={**inferred, **self.origins},
        )

    @property
    def warning(self) -> str:
        """What is promised less than usual; empty if nothing is."""
        if self.unset or self.config.upstream.has_commit_ts:
            return ""
        return (
            "--allow-missing-commit-ts: rows do not say when they committed. Between rounds the target may run ahead of its "
            "checkpoint, repeated deliveries are applied again in the order of files, and tables without a key halt"
        )


def load(
    options: Mapping[str, object], environ: Mapping[str, str], *, target: bool = True
) -> Loaded:
    """Return the settings that these options and this environment give.

    `options` are the keywords of `Consumer` (which are the flags with underscores); None counts as
    not given. Precedence: flag or keyword, then URI parameter, then environment variable, then TOML
    file, then default.
    Without `target`, settings of the target are ignored. Raises `ConfigError`, whose message names
    the place, the value (never a secret) and the remedy. Opens no connection. From here on no
    message shows a secret of theirs.
    """
    sources = Sources(options, environ, target=target)
    zone, notices = sources.find("tz"), list[str]()
    time_zone = str(zone.value)
    if time_zone == "System":
        try:
            time_zone = parsers.system_zone(environ)
        except ValueError as error:
            raise ConfigError(f"{zone.origin}: {error}") from None
        what = f"System is this host's time zone, {time_zone}; what counts is the zone of the TiCDC servers"
        notices.append(f"{zone.origin}: {what}")
    refuse_active_active(sources.settings)
    upstream, origins = _upstream(sources, time_zone)
    given = _of_writer(sources, "output-raw-change-event", parsers.boolean)
    raw_updates = next((origin for is_raw, origin in given if is_raw), "")
    # What is still to be inferred is judged in `completed`.
    if not _unset(upstream, origins):
        _require_commit_ts(upstream)
        _refuse_lost_keys(upstream, raw_updates)
    downstream = _downstream(sources, time_zone)
    program = Program(
        **sources.values("once", "no_progress", "on_halt"),
        log=LogWish(*sources.values("log_level", "log_file", "log_format").values()),
    )
    secrets = Secrets(
        password=_password(sources) if target else "",
        **store_secrets(sources.upstream),
    )
    source = None
    if target and (uri := sources.find("source").value):
        variable = BY_KEYWORD["source_password"].environment
        password = {variable: sources.find("source_password").value}
        source = load_source(
            uri, sources.find("source_password_file").value or None, password, downstream
        )
    # Also what the stores' own clients take from the environment: their errors may quote it.
    _hide(*secrets.texts(), *environment_secrets(environ))
    # A command may quote an address, and a path that is a secret, as chat services' are.
    for found in _ADDRESS.finditer(" ".join(program.on_halt)):
        _hide(found[0], *([found[1]] if len(found[1]) >= _SECRET_PATH else []))
    loading = _loading(sources)
    return Loaded(
        config=Config(
            upstream=upstream,
            downstream=downstream,
            # Fields of these have the names of their options, so a new one needs no line here.
            tuning=Tuning(**sources.values(*Tuning.__slots__)),
            selecting=_selecting(sources, downstream.state_schema),
            limits=Limits(**sources.values(*Limits.__slots__)),
            monitoring=Monitoring(**sources.values(*Monitoring.__slots__)),
            loading=loading,
            given=tuple(given_again(sources.options)),
        ),
        secrets=secrets,
        program=program,
        notices=(*notices, *_notices(sources), *filter(None, [loading.assumed])),
        origins=origins,
        raw_updates=raw_updates,
        source=source,
    )


def _hide(*texts: str) -> None:
    for text in texts:
        register_secret(text)


def load_target(options: Mapping[str, object], environ: Mapping[str, str]) -> Server:
    """Return the target, hiding secrets as `load` does, without a bucket; raise `ConfigError`."""
    sources = Sources(options, environ, target=True, bucket=False)
    password = _password(sources)
    _hide(password, *environment_secrets(environ))
    return Server(settings=_downstream(sources, ""), password=password)


def load_source(
    uri: str,
    password_file: str | None,
    environ: Mapping[str, str],
    target: Downstream,
    *,
    frozen: bool = False,
) -> Server:
    """Return the source, by a URI like the target's, hiding secrets; raise `ConfigError`.

    `target`: whether its certificate is checked counts for the source too. `frozen`: whether
    nothing writes to the source; else it has to be a TiDB, which can be read as of a commit-ts.
    """
    scheme = uri.partition(":")[0].lower().removesuffix("+ssl")
    if scheme != "tidb" and not frozen:
        raise ConfigError(
            "--source must be a TiDB (tidb://user@host:4000/), which can be read as of a commit-ts; `verify` takes another "
            "server only with --frozen, by which you promise that nothing writes to it meanwhile"
        )
    options = {
        "downstream_uri": uri,
        "downstream_password_file": password_file,
        "allow_unverified_server": target.allow_unverified_server or None,
    }
    password = environ.get(BY_KEYWORD["source_password"].environment, "")
    passwords = {BY_KEYWORD["downstream_password"].environment: password} if password else {}
    try:
        return load_target(options, passwords)
    except ConfigError as error:
        named = (
            str(error)
            .replace("--downstream-uri", "--source")
            .replace("--downstream-password-file", "--source-password-file")
        )
        raise ConfigError(named) from None


def load_carried(options: Mapping[str, object], environ: Mapping[str, str]) -> CarriedColumns:
    """Return which columns the feed's rows carry, without a bucket; raise `ConfigError`."""
    return _carried(Sources(options, environ, target=False, bucket=False))


def _upstream(sources: Sources, time_zone: str) -> tuple[Upstream, Mapping[str, str]]:
    """Return the bucket, and for each format option that was given: keyword → who gave it.

    An option that was not given has TiCDC's default in the record, which must not be relied on.
    Raises `ConfigError`.
    """
    carried = _carried(sources)
    given = {keyword: sources.find(keyword) for keyword in FORMAT_KEYWORDS}
    given |= {keyword: sources.find(keyword) for keyword in _SHOWN_BY_PATHS}
    # A changefeed's file is complete: a CSV option that it leaves out has TiCDC's default, and need
    # not be inferred.
    sinks = (
        each.source for each in sources.documents if isinstance(each.content.get("sink"), Mapping)
    )
    if sink := next(sinks, ""):
        silent = f"{sink}: TiCDC's default"
        given |= {
            keyword: Given(value=given[keyword].value, origin=given[keyword].origin or silent)
            for keyword in CSV_KEYWORDS
        }
    days, _ = _of_writer(sources, "file-expiration-days", parsers.integer(low=0, high=100_000))[0]
    # TiCDC deletes only with daily folders; if unknown, the bucket may have them.
    days_kept = int(str(days or 0)) if given["date_separator"].value in (None, "day") else 0
    upstream = Upstream(
        **place_of(sources.upstream),
        protocol=given["protocol"].value,
        csv=CsvOptions(**{keyword: given[keyword].value for keyword in CSV_KEYWORDS}),
        enable_tidb_extension=given["enable_tidb_extension"].value,
        date_separator=given["date_separator"].value,
        partition_separator=given["enable_partition_separator"].value,
        column_selectors=carried.selectors,
        headerless_selectors=sources.find("headerless_selectors").value,
        skip_commit_ts=sources.find("skip_commit_ts").value,
        left_out=tuple(_left_out(sources)),
        file_expiration_days=days_kept,
        case_sensitive=carried.case_sensitive,
        time_zone=time_zone,
        allow_missing_commit_ts=sources.find("allow_missing_commit_ts").value,
    )
    return upstream, {keyword: found.origin for keyword, found in given.items() if found.origin}


def _unset(upstream: Upstream, origins: Mapping[str, str]) -> tuple[str, ...]:
    """Return keywords of format options that matter for this protocol and were not given."""
    # Which options matter depends on the protocol, so without it all of them do.
    if "protocol" not in origins:
        return tuple(keyword for keyword in FORMAT_KEYWORDS if keyword not in origins)
    needed = CSV_KEYWORDS if upstream.protocol == "csv" else ("enable_tidb_extension", "terminator")
    return tuple(keyword for keyword in needed if keyword not in origins)


def _require_commit_ts(upstream: Upstream) -> None:
    """Raise `ConfigError` for files without commit-ts, unless they are allowed."""
    is_allowed = upstream.allow_missing_commit_ts and not upstream.skip_commit_ts
    if upstream.has_commit_ts or is_allowed:
        return
    what, remedy = {
        "csv": (
            "CSV rows",
            (
                "`[sink.csv] include-commit-ts = true`, and that file is given here by --config (or give "
                "--include-commit-ts)"
            ),
        ),
        "canal-json": (
            "canal-json messages",
            "`enable-tidb-extension=true` in its sink URI, and so does --upstream-uri here",
        ),
    }[upstream.protocol]
    raise ConfigError(
        f"{what} without commit ts can be neither ordered nor deduplicated: the changefeed needs {remedy}. "
        'with --allow-missing-commit-ts `run` accepts such files as they are, with a weaker promise; `changes`, format("ticdc") and --skip-commit-ts cannot'
    )


def _of_writer(sources: Sources, name: str, parse: Parser) -> list[tuple[object, str]]:
    """Return URI's and file's value of TiCDC's own setting and its place; raise `ConfigError`.

    None if neither has one.
    """
    value, source = sources.settings.get(f"sink.cloud-storage-config.{name}", (None, ""))
    given = [
        (sources.upstream.parameters.get(name) or None, f"--upstream-uri: parameter `{name}`"),
        (value, f"{source}: [sink.cloud-storage-config] {name}"),
    ]
    found: list[tuple[object, str]] = []
    for text, origin in given:
        try:
            found += [(parse(text), origin)] if text is not None else []
        except ValueError as error:
            raise ConfigError(f"{origin}: {error}") from None
    return found or [(None, "")]


def _refuse_lost_keys(upstream: Upstream, raw_updates: str) -> None:
    """Raise `ConfigError` if updates of a key carry only the new one: old rows would stay.

    `raw_updates`: who configured TiCDC not to split such updates. Canal-json carries the row before
    the update anyway.
    """
    if raw_updates and upstream.protocol == "csv" and not upstream.csv.output_old_value:
        raise ConfigError(
            f"{raw_updates} = true with CSV and without `output-old-value`: an update that changes a key carries "
            "only the new one, so nobody can tell which row it replaced. The changefeed needs `[sink.csv] "
            "output-old-value = true`, "
            "or `[sink.cloud-storage-config] output-raw-change-event = false`, and a new bucket, because the files "
            "written until then lack the old keys"
        )


def _carried(sources: Sources) -> CarriedColumns:
    """Return which columns rows carry, with the selectors in the order of the changefeed's file."""
    found: list[ColumnSelector] = []
    for document in sources.documents:
        sink = document.content.get("sink")
        entries = sink.get("column-selectors") if isinstance(sink, Mapping) else None
        for entry in entries or ():
            texts = [
                entry.get(key) if isinstance(entry, Mapping) else None
                for key in ("matcher", "columns")
            ]
            if not all(
                isinstance(each, list) and all(isinstance(text, str) for text in each)
                for each in texts
            ):
                raise ConfigError(
                    f"{document.source}: [[sink.column-selectors]] needs `matcher` and `columns`, each a list of texts"
                )
            matcher, columns = texts
            found.append(ColumnSelector(matcher=tuple(matcher or ()), columns=tuple(columns or ())))
    check_selectors(found)
    case_sensitive = sources.settings.get("case-sensitive", (False, ""))[0] is True
    return CarriedColumns(selectors=tuple(found), case_sensitive=case_sensitive)


def _left_out(sources: Sources) -> Iterator[LeftOut]:
    """Yield changes that TiCDC leaves out when it writes, if they decide which rows exist."""
    for document in sources.documents:
        filters = document.content.get("filter")
        if document.source in sources.elsewhere or not isinstance(filters, Mapping):
            continue
        if filters.get("ignore-txn-start-ts"):
            yield LeftOut(
                matcher=("*.*",), what=f"ignore-txn-start-ts of [filter] in {document.source}"
            )
        entries = filters.get("event-filters")
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, Mapping):
                continue
            events = [
                repr(event)
                for event in _texts(entry.get("ignore-event"))
                if event.strip().lower() in _MOVING
            ]
            what = [f"ignore-event {', '.join(events)}"] if events else []
            what += [key for key in _EXPRESSIONS if entry.get(key)]
            if what:
                named = f"{', '.join(what)} of [[filter.event-filters]] in {document.source}"
                yield LeftOut(matcher=_texts(entry.get("matcher")), what=named)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def _downstream(sources: Sources, time_zone: str) -> Downstream:
    uri = sources.downstream
    if uri is None:
        return Downstream()
    given = sources.values(
        *("ssl_ca", "ssl_cert", "ssl_key", "ssl_mode", "allow_unverified_server"),
        *("state_schema", "connect_timeout", "ddl_lock_wait"),
    )
    for name in ("ssl_ca", "ssl_cert", "ssl_key"):
        if given[name] and not Path(given[name]).is_file():
            raise uri.error(f"`{name.replace('_', '-')}`: there is no file {given[name]}")
    if bool(given["ssl_cert"]) != bool(given["ssl_key"]):
        raise uri.error("`ssl-cert` and `ssl-key` are given together or not at all")
    # Whoever gives a certificate wants TLS, even without +ssl.
    mode, asked = given["ssl_mode"], uri.ssl or bool(given["ssl_ca"] or given["ssl_cert"])
    if mode in ("disabled", "preferred") and asked:
        raise uri.error(
            f"`ssl-mode` {mode} contradicts +ssl, `ssl-ca` or `ssl-cert`, which ask for TLS"
        )
    if mode == "required" and given["ssl_ca"]:
        raise uri.error(
            "`ssl-mode` required verifies nothing, so `ssl-ca` has no effect; verify-ca uses it"
        )
    if given["allow_unverified_server"] and (mode.startswith("verify-") or (asked and not mode)):
        raise uri.error(
            "`allow-unverified-server` has no effect if TLS verifies the server: remove one of them"
        )
    # Whole paths: messages name them in commands that are pasted elsewhere than where this runs.
    files = {
        name: str(Path(given[name]).absolute())
        for name in ("ssl_ca", "ssl_cert", "ssl_key")
        if given[name]
    }
    password_file, origin = (
        str(sources.find("downstream_password_file").value),
        _password_in_uri(sources)[1],
    )
    files_with_password = [
        Path(each.source).expanduser()
        for each in sources.documents
        if origin.startswith(f"{each.source}: ")
    ]
    return Downstream(
        host=uri.host,
        port=uri.port or default_port(uri),
        unix_socket=uri.parameters.get("unix-socket", ""),
        user=uri.user or Downstream().user,
        ssl=asked or mode not in ("", "disabled", "preferred"),
        time_zone=time_zone or Downstream().time_zone,
        given_uri=mask_uri(str(sources.find("downstream_uri").value)),
        password_file=str(Path(password_file).absolute()) if password_file else "",
        password_in=tuple(str(file.absolute()) for file in files_with_password if file.is_file()),
        **{**given, **files},
    )


def _selecting(sources: Sources, state_schema: str) -> Selecting:
    """Return our filter and routes; raise `ConfigError` for a database that the target reserves."""
    filtered, routed = sources.find("filter"), sources.find("route")
    selecting = Selecting(
        rules=filtered.value, event_filters=sources.find("event_filter").value, routes=routed.value
    )
    if fault := routed_to_reserved(selecting, state_schema):
        raise ConfigError(f"{routed.origin}: {fault}")
    if fault := taken_from_reserved(selecting, state_schema):
        raise ConfigError(f"{filtered.origin}: {fault}")
    return selecting


def _loading(sources: Sources) -> Loading:
    """Return the copy before the changes, and where these begin."""
    given = sources.values("dump", "dump_tz", "source", "no_copy")
    dump = given["dump"]
    if given["dump_tz"] and (given["source"] or not dump):
        raise ConfigError(
            "--dump-tz is the zone of an export's TIMESTAMP values: it goes with --dump, without --source"
        )
    if given["no_copy"] and (dump or given["source"]):
        raise ConfigError(
            "--no-copy says that the feed begins without a copy, and --dump or --source gives it one: give one of them"
        )
    if given["source"]:
        bucket = sources.upstream
        if not dump and not bucket.path.rstrip("/"):
            raise ConfigError(
                "--source: the changefeed has the whole bucket: name the folder for the export with --dump, in another bucket"
            )
        dump = dump or f"{bucket.scheme}://{bucket.host}{quote(bucket.path.rstrip('/'))}-copy"
        if foreign := sorted(OF_DUMPLING & parse_export(dump).parameters.keys()):
            raise ConfigError(
                f"--dump: {', '.join(foreign)}: these say how Dumpling wrote files, and --source writes them in its own way"
            )
        if routed := next(filter(routed_by_ticdc, sources.documents), None):
            raise ConfigError(
                f"{routed.source}: the bucket has the names of target-schema and target-table, which an export of --source lacks: export with Dumpling, "
                "give its files these names, and begin with --dump"
            )
    rules = sources.settings.get("filter.rules", ([], ""))[0]
    start = sources.find("start_ts")
    # Who gives it by hand says what the target has; a printed changefeed has it in any case.
    printed = any(
        document.printed and start.origin.startswith(document.source)
        for document in sources.documents
    )
    return Loading(
        start_ts=start.value,
        dump=with_time_zone(dump, given["dump_tz"]) if dump else "",
        source_rules=tuple(map(str, rules)) if isinstance(rules, list) else (),
        source_keyless=sources.settings.get("force-replicate", (False, ""))[0] is True,
        no_copy=given["no_copy"] or bool(start.value and not (printed or dump)),
    )


def _password(sources: Sources) -> str:
    """Return the password of the first: keyword or flag, URI, environment, other URI, file.

    The file is the one that environment or TOML name.
    """
    # The caller's own words first: a file that a flag names outranks the password in the URI, and
    # was read already.
    if sources.options.get("downstream_password") is not None:
        return str(sources.find("downstream_password").value)
    if sources.downstream is not None and sources.downstream.password is not None:
        return sources.downstream.password
    if (environment := BY_KEYWORD["downstream_password"].environment) in sources.environ:
        return sources.environ[environment]
    if (password := _password_in_uri(sources)[0]) is not None:
        return password
    file = sources.find("downstream_password_file")
    return password_in(file.value, file.origin) if file.value else ""


def _password_in_uri(sources: Sources) -> tuple[str | None, str]:
    """Return the password in the target's URI, or a lesser one's of that account, and its place.

    So a command may name the account, and leave the password where it is.
    """
    for text, origin in sources.candidates("downstream_uri"):
        with suppress(ConfigError):
            uri = parse_downstream(str(text or ""))
            if uri.password is not None and _account(uri) == _account(sources.downstream):
                return uri.password, origin
    return None, ""


def _account(uri: Uri | None) -> tuple[object, ...]:
    return (
        (uri.user, uri.host, uri.port or default_port(uri), uri.parameters.get("unix-socket"))
        if uri
        else ()
    )


def _notices(sources: Sources) -> Iterator[str]:
    uri = sources.downstream
    if uri is not None and not uri.port and "unix-socket" not in uri.parameters:
        yield f"--downstream-uri has no port: {default_port(uri)} is used"
    for found in filter(None, (sources.upstream, sources.downstream)):
        if idle := sorted(found.parameters.keys() & UNNEEDED[found.side]):
            yield f"--{found.side}-uri: accepted, without effect here: {', '.join(idle)}"
    if sources.find("file_index_width").origin:
        yield "file-index-width, file-index-digit: accepted; file numbers of any width are read"
    if sources.find("enable_profiling").value:
        yield "--enable-profiling: accepted; no profiling port is opened"
    if sources.find("source").value and not (sources.documents or sources.find("filter").value):
        yield (
            "--source: without --config of the changefeed, or --filter, tables that the changefeed leaves out are exported too, and "
            "nothing will ever change them"
        )
    yield from _file_notices(sources)
    for name in sorted(sources.environ):
        # A misspelt variable has no effect, and nothing else would show that.
        if name.startswith(ENVIRONMENT_PREFIX) and name not in BY_ENVIRONMENT:
            yield f"environment variable {name} is not known{did_you_mean(name, BY_ENVIRONMENT)}"


def _file_notices(sources: Sources) -> Iterator[str]:
    # Whatever is neither read here nor shown by the files has no effect: say so.
    used = {option.toml_key for option in OPTIONS}
    used |= {REFUSED} | OF_THE_WRITER | SELECTORS
    for document in sources.documents:
        keys = dict(leaves(document.content))
        if days := keys.get("sink.cloud-storage-config.file-expiration-days"):
            yield f"{document.source}: TiCDC deletes files after {days} days, whether they were read by then or not"
        # The default rules take every table.
        filters = sorted(
            key for key in keys if key.startswith("filter.") and keys[key] not in ("", [], ["*.*"])
        )
        if filters:
            yield f"{document.source}: {', '.join(filters)}: TiCDC applied them when it wrote; not applied again"
        if routed_by_ticdc(document):
            what = "target-schema, target-table of [[sink.dispatchers]]"
            yield f"{document.source}: {what}: the bucket has the new names; not applied again"
        idle = sorted(
            key
            for key in keys
            if key not in used and not key.startswith(("filter.", f"{OWN_TABLE}."))
        )
        # A printed changefeed has every setting, whether or not anybody chose it.
        if idle and not document.printed:
            yield f"{document.source}: accepted, without effect here: {', '.join(idle)}"
        if document.source in sources.elsewhere:
            yield (
                f"{document.source}: its changefeed writes to another place than --upstream-uri names. Its settings are taken, but its "
                "start_ts is not: give --start-ts if the bucket is the same"
            )


# exports: where one is, and how it was written

_OF_PLACES = ("endpoint", "region", "force-path-style", "account-name")
"""Parameters of a store that say where its server is."""
TIME_ZONE = "time-zone"
"""Parameter for the zone of TIMESTAMPs: of exports, only SQL files may begin with theirs."""
_DIALECTS = {"default": "raw", "snowflake": "hex", "redshift": "hex", "bigquery": "base64"}
_OF_CSV = ("csv-separator", "csv-delimiter", "csv-null-value", "csv-line-terminator")
_OF_STORES = frozenset[str]().union(*STORE_PARAMETERS.values())
OF_DUMPLING = frozenset(
    ("escape-backslash", "no-header", "csv-output-dialect", "zero-dates", *_OF_CSV)
)
"""Options of Dumpling that change what its files mean, and that none of them shows."""
_OF_EXPORTS = OF_DUMPLING | _OF_STORES | {TIME_ZONE}


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
        dump=_dump_options(parsed),
    )
    if origin.scheme == bucket.scheme and not origin.role_arn:
        origin = replace(origin, role_arn=bucket.role_arn, external_id=bucket.external_id)
    if origin.scheme != bucket.scheme or any(parsed.parameters.get(name) for name in _OF_PLACES):
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
    uri = parse_store("dump", text, _OF_EXPORTS)
    if given := sorted(filter(is_secret, _OF_STORES & uri.parameters.keys())):
        raise uri.error(
            f"{', '.join(f'`{name}`' for name in given)}: no secret belongs here, because the URI is stored and shown. An export is read "
            "with the credentials of the bucket, which --upstream-uri or the environment gives"
        )
    if uri.parameters.get(TIME_ZONE, "").lower() == "system":
        raise uri.error(
            f"`{TIME_ZONE}`: give the zone by its name, such as UTC or +08:00: every process reads this URI"
        )
    _dump_options(uri)
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


def _dump_options(uri: Uri) -> DumpOptions:
    """Return how the files are written, by Dumpling's own options."""
    plain = DumpOptions()
    usual = (plain.separator, plain.delimiter, plain.null, plain.terminator)
    separator, delimiter, null, terminator = (
        str(parsers.unescaped(uri.parameters.get(name, default)))
        for name, default in zip(_OF_CSV, usual, strict=True)
    )
    if not (separator and terminator):
        raise uri.error(f"`{_OF_CSV[0]}` and `{_OF_CSV[3]}` cannot be empty")
    dialect = uri.value("csv-output-dialect", parsers.choice(*_DIALECTS), "default")
    return DumpOptions(
        escape_backslash=uri.value("escape-backslash", parsers.boolean, plain.escape_backslash),
        zero_dates=uri.value("zero-dates", parsers.boolean, plain.zero_dates),
        header=not uri.value("no-header", parsers.boolean, not plain.header),
        binary=_DIALECTS[dialect],  # type: ignore[arg-type]  # a value of the table above
        separator=separator,
        delimiter=delimiter,
        null=null,
        terminator=terminator,
    )
