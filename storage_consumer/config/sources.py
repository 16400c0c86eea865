"""Where settings come from: a value's places and their rank, and a changefeed's file.

That is as TiCDC takes it or prints it.

The key names of the file are those of both TiCDC architectures (tiflow and ticdc), deprecated ones
included. What ``cdc cli changefeed create`` and ``query`` print is a changefeed as JSON, with its
sink URI, start-ts and whole configuration. The API of both architectures writes the keys of the
TOML file with ``_`` for ``-``, and a few under another name; TiCDC's own records in etcd have
``-``. ``create`` has lines of text around the object. The API also answers in TOML, and TiDB
Cloud's API has a form of its own.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from storage_consumer.config import parsers
from storage_consumer.config.options import BY_KEYWORD, OPTIONS, OWN_TABLE
from storage_consumer.config.parsers import MAPPING, Document, did_you_mean
from storage_consumer.config.private_files import password_in
from storage_consumer.config.uris import SCHEMES, parse_downstream, parse_upstream, same_place
from storage_consumer.errors import ConfigError

SINK_URI = f"{OWN_TABLE}.sink-uri"
_OWN = {
    SINK_URI,
    *(option.toml_key for option in OPTIONS if option.toml_key.startswith(f"{OWN_TABLE}.")),
}
_OF_TABLES: Mapping[str, str] = {
    "": "performance-mode memory-quota case-sensitive force-replicate check-gc-safe-point "
    "enable-old-value enable-sync-point enable-table-monitor ignore-ineligible-table "
    "bdr-mode sync-point-interval sync-point-retention changefeed-error-stuck-duration "
    "sql-mode enable-active-active active-active-progress-interval "
    "active-active-sync-stats-interval event-collector-batch-count "
    "event-collector-batch-bytes",
    "filter": "rules ignore-txn-start-ts ddl-allow-list do-dbs ignore-dbs",
    "filter.event-filters": "matcher ignore-event ignore-sql ignore-insert-value-expr "
    "ignore-update-old-value-expr ignore-update-new-value-expr ignore-delete-value-expr "
    "ignore-update-only-columns",
    "filter.do-tables": "db-name tbl-name",
    "filter.ignore-tables": "db-name tbl-name",
    "mounter": "worker-num",
    "sink": "protocol transaction-atomicity schema-registry encoder-concurrency terminator "
    "date-separator enable-partition-separator file-index-digit enable-kafka-sink-v2 "
    "only-output-updated-columns delete-only-output-handle-key-columns content-compatible "
    "safe-mode advance-timeout-in-sec send-bootstrap-interval-in-sec "
    "send-bootstrap-in-msg-count send-bootstrap-to-all-partition "
    "send-all-bootstrap-at-start debezium-disable-schema case-sensitive force-replicate",
    "sink.dispatchers": "matcher dispatcher partition index columns topic target-schema target-table",
    "sink.column-selectors": "matcher columns",
    "sink.csv": "delimiter quote null include-commit-ts binary-encoding-method output-old-value "
    "output-handle-key output-field-header",
    "sink.cloud-storage-config": "worker-count flush-interval file-size spool-disk-quota spool-base-dir "
    "output-column-id file-expiration-days file-cleanup-cron-spec flush-concurrency "
    "use-table-id-as-path output-raw-change-event",
    "sink.integrity": "integrity-check-level corruption-handle-level",
    "scheduler": "type polling-time enable-table-across-nodes region-threshold write-key-threshold "
    "region-per-span region-count-per-span scheduling-task-count-per-node "
    "region-count-refresh-interval enable-splittable-check force-split "
    "balance-score-threshold min-traffic-percentage max-traffic-percentage "
    "add-table-batch-size",
    "integrity": "integrity-check-level corruption-handle-level",
    "synced-status": "synced-check-interval checkpoint-interval",
    f"{OWN_TABLE}.filter.event-filters": "matcher ignore-event ignore-sql",
    f"{OWN_TABLE}.routes": "matcher target-schema target-table",
}
"""Table → its keys."""
_OTHER_SINKS = (
    *(
        "consistent",
        "cyclic-replication",
        "sink.kafka-config",
        "sink.pulsar-config",
        "sink.mysql-config",
    ),
    *("sink.iceberg-config", "sink.open", "sink.debezium", "sink.simple"),
)
"""Tables that may have any key."""


def _above(keys: Iterator[str]) -> Iterator[str]:
    """Yield the tables that these dotted keys are in."""
    for key in keys:
        while key := key.rpartition(".")[0]:
            yield key


_KEYS = dict.fromkeys(
    (
        *(
            f"{table}.{key}".lstrip(".")
            for table, keys in _OF_TABLES.items()
            for key in keys.split()
        ),
        *sorted(_OWN),
    )
)
_TABLES = dict.fromkeys((*_above(iter(_KEYS)), *_OTHER_SINKS))
START_TS = BY_KEYWORD["start_ts"].toml_key
_IN_SINK_URI: Mapping[str, str] = {
    **{
        option.uri[1]: option.toml_key
        for option in OPTIONS
        if option.uri and option.toml_key.startswith("sink.")
    },
    **{
        name: f"sink.cloud-storage-config.{name}"
        for name in ("file-expiration-days", "output-raw-change-event")
    },
}
"""Parameter of a sink URI that says how TiCDC writes → the key that says it in the file."""
OF_THE_WRITER = frozenset(
    {
        "sink.content-compatible",
        "sink.only-output-updated-columns",
        "sink.delete-only-output-handle-key-columns",
        "sink.cloud-storage-config.use-table-id-as-path",
        "sink.cloud-storage-config.output-raw-change-event",
    }
)
"""Settings that the files themselves show, message by message and path by path; they need not be
given.

For raw change events that holds only if an update also carries its old row; otherwise they are
refused (`refuse_lost_keys`).
"""


SELECTORS = frozenset(
    {"case-sensitive", "sink.column-selectors.matcher", "sink.column-selectors.columns"}
)
"""Keys that say which columns rows lack."""
REFUSED = "enable-active-active"
"""A setting that changes the files in a way that this program cannot read."""

_BEGIN = re.compile(r'^\ufeff?(?:Info:[ \t]*)?(?=\{\s*["}])', re.MULTILINE)
"""Before the object; warnings of ``create`` hold braces too, but begin no line with one."""
_OTHER_NAMES = {
    "file-index-width": "file-index-digit",
    "advance-timeout": "advance-timeout-in-sec",
    "database-name": "db-name",
    "table-name": "tbl-name",
}
_EMPTY_IS_UNSET = frozenset({"protocol", "date-separator", "binary-encoding-method"})
"""Settings for which TiCDC takes an empty text as none; early releases print one."""


_OF_CLOUD = {"csv-config": "csv", "null-value": "null", "encoding": "binary-encoding-method"}
_WORDS = frozenset({"protocol", "date-separator", "binary-encoding-method", "ignore-event"})
"""Keys whose values TiDB Cloud writes as names in capitals."""


def read_document(config: object) -> Document:
    """Return a file's content or the mapping; raise `ConfigError` if neither TOML nor TiCDC's."""
    if isinstance(config, Document):
        return config
    if isinstance(config, Mapping):
        return _as_file(MAPPING, config)
    try:
        text = Path(str(config)).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--config {config}: the file cannot be read: {error.strerror}"
        ) from error
    except ValueError as error:
        raise ConfigError(f"--config {config}: this is not UTF-8 text: {error}") from error
    try:
        return _as_file(str(config), tomllib.loads(text))
    except ValueError as error:
        # JSON is never TOML, so nothing is tried that would hide a fault of a TOML file.
        if (begin := _BEGIN.search(text)) is None:
            raise ConfigError(f"--config {config}: this is not TOML: {error}") from error
    try:
        printed, end = json.JSONDecoder().raw_decode(text, begin.end())
    except ValueError as error:
        raise ConfigError(
            f"--config {config}: this is not the whole JSON of a changefeed: {error}"
        ) from error
    if _BEGIN.search(text, end):
        raise ConfigError(
            f"--config {config}: this holds several JSON objects; keep the one of this bucket's changefeed"
        )
    return _as_printed(str(config), printed)


def _as_file(source: str, content: Mapping[str, Any]) -> Document:
    """Return the content of a TOML file, or of a mapping, which may be a printed changefeed."""
    # No changefeed's file has these tables, nor the key.
    is_printed = any(
        isinstance(content.get(key), Mapping) for key in ("config", "info")
    ) or _is_of_cloud(content)
    return _as_printed(source, content) if is_printed else Document(source=source, content=content)


def _is_of_cloud(printed: Mapping[str, Any]) -> bool:
    sink = printed.get("sink")
    return isinstance(sink, Mapping) and isinstance(sink.get("type"), str)


def _of_cloud(source: str, printed: Mapping[str, Any]) -> Mapping[str, object]:
    """Return a changefeed printed for TiDB Cloud's API; raise `ConfigError` without a bucket.

    The role or the keys in it are those that write, so they are left out.
    """
    cloud = printed["sink"].get("cloudStorage")
    storage = cloud.get("storage") if isinstance(cloud, Mapping) else None
    places = (
        [each for each in storage.values() if isinstance(each, Mapping)]
        if isinstance(storage, Mapping)
        else []
    )
    uri = next((each["uri"] for each in places if isinstance(each.get("uri"), str)), "")
    if not uri:
        raise ConfigError(
            f"{source}: this changefeed of TiDB Cloud is of type {printed['sink']['type']}, and its `sink.cloudStorage.storage` "
            "names no `uri` of a bucket, so it says nothing of one"
        )
    written = _from_camel(cloud)
    sink = {**written.get("data-format", {}), "cloud-storage-config": {}}
    for name in ("output-column-id", "use-table-id-as-path", "output-raw-change-event"):
        if name in written:
            sink["cloud-storage-config"][name] = written[name]
    sink |= {
        name: written[name]
        for name in ("date-separator", "enable-partition-separator")
        if name in written
    }
    extension = {"enable-tidb-extension": sink.pop("enable-tidb-extension", None)}
    chosen, start = _from_camel(printed.get("filter") or {}), printed.get("startPosition") or {}
    rules = {"rules": chosen.get("filter-rule"), "event-filters": chosen.get("event-filter-rule")}
    return {
        "sink-uri": uri,
        "start-ts": start.get("tso") if start.get("mode") == "FROM_TSO" else None,
        "config": {
            "sink": {**sink, "kafka-config": {"codec-config": extension}},
            "filter": rules,
            "force-replicate": chosen.get("mode") == "FORCE_SYNC",
            "case-sensitive": chosen.get("case-sensitive"),
        },
    }


def _from_camel(value: Any, name: str = "") -> Any:
    """Return a value of TiDB Cloud's API by the keys and values of the TOML file."""
    if isinstance(value, Mapping):
        plain = {key: re.sub("[A-Z]", lambda found: f"-{found[0].lower()}", key) for key in value}
        named = {key: _OF_CLOUD.get(spelled, spelled) for key, spelled in plain.items()}
        return {named[key]: _from_camel(item, named[key]) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_camel(item, name) for item in value]
    if not isinstance(value, str) or name not in _WORDS:
        return value
    return value.lower().replace("_", " " if name == "ignore-event" else "-")


def _as_printed(source: str, printed: Mapping[str, Any]) -> Document:
    """Return a changefeed that TiCDC printed by the keys of a TOML file; raise `ConfigError` for one that does not write a bucket."""
    printed = _of_cloud(source, printed) if _is_of_cloud(printed) else printed
    inner = printed.get("info")
    fields = {
        key.replace("_", "-"): value
        for key, value in (inner if isinstance(inner, Mapping) else printed).items()
    }
    sink_uri, config = fields.get("sink-uri"), fields.get("config")
    if not isinstance(sink_uri, str) or not sink_uri or not isinstance(config, Mapping):
        raise ConfigError(
            f"{source}: this JSON lacks `sink_uri` or `config`: give what `cdc cli changefeed query` prints without --simple"
        )
    scheme = urlsplit(sink_uri).scheme.lower()
    if scheme not in SCHEMES:
        raise ConfigError(
            f"{source}: this changefeed writes to {scheme}://, not to a bucket, so it says nothing of one"
        )
    content = _respelled(config, "")
    # The sink URI beats the configuration, as in TiCDC.
    for name, value in parse_qsl(urlsplit(sink_uri).query):
        if key := _IN_SINK_URI.get(name.lower().replace("_", "-")):
            _put(content, key, value)
    _put(content, SINK_URI, sink_uri)
    if start_ts := fields.get("start-ts"):
        _put(content, START_TS, start_ts)
    return Document(source=source, content=content, printed=True)


def _respelled(value: Any, where: str) -> Any:
    """Return a printed table or value by the TOML file's keys, without nulls."""
    if isinstance(value, list):
        return [_respelled(item, where) for item in value]
    if not isinstance(value, Mapping):
        return value
    renamed: dict[str, object] = {}
    for key, item in value.items():
        plain = key.replace("_", "-")
        name = _OTHER_NAMES.get(plain, plain)
        if item is None or (item == "" and name in _EMPTY_IS_UNSET):
            continue
        dotted = f"{where}.{name}".lstrip(".")
        # A key that nobody knows keeps its name, since an error will quote it.
        renamed[name if dotted in _KEYS or dotted in _TABLES or _is_free(dotted) else key] = (
            _respelled(item, dotted)
        )
    return renamed


def _put(content: dict[str, Any], dotted: str, value: object) -> None:
    """Set the value of a dotted key, and make the tables around it."""
    table, _, rest = dotted.partition(".")
    if not rest:
        content[table] = value
        return
    inner = content.get(table)
    content[table] = inner = {**inner} if isinstance(inner, Mapping) else {}
    _put(inner, rest, value)


def leaves(
    table: Mapping[str, object],
    prefix: str = "",
    *,
    whole: Collection[str] = _OWN,
    empty: bool = False,
) -> Iterator[tuple[str, object]]:
    """Yield dotted key and value of all that is no table; an array's tables share its key.

    Those of `whole` stay whole; with `empty`, tables without a key count as values.
    """
    for key, value in table.items():
        dotted = f"{prefix}{key}"
        tables: list[Any] = value if isinstance(value, list) else [value]
        # Of TiCDC's arrays only the keys matter; ours are parsed table by table.
        if dotted in whole or not tables or not all(isinstance(item, Mapping) for item in tables):
            yield dotted, value
            continue
        for item in tables:
            if empty and not item:
                yield dotted, item
            yield from leaves(item, f"{dotted}.", whole=whole, empty=empty)


def _is_free(dotted: str) -> bool:
    return any(dotted.startswith(f"{table}.") for table in _OTHER_SINKS)


def check_keys(document: Document) -> None:
    """Raise `ConfigError` for the first key that neither TiCDC nor this program knows."""
    for dotted, value in leaves(document.content, whole=(), empty=True):
        is_table = isinstance(value, Mapping)
        known = (
            dotted in _TABLES
            if is_table
            else dotted in _KEYS or (value == [] and dotted in _TABLES)
        )
        if known or _is_free(dotted):
            continue
        if dotted in _TABLES:
            raise ConfigError(f"{document.source}: `{dotted}` is a table, written as [{dotted}]")
        where = next((table for table in _above(iter((dotted,))) if table in _TABLES), "")
        key = dotted.removeprefix(f"{where}.").partition(".")[0]
        if (single := f"{where}.{key}".lstrip(".")) in _KEYS:
            raise ConfigError(f"{document.source}: `{single}` is a single value, not a table")
        place = f"[{where}] " if where else ""
        raise ConfigError(f"{document.source}: {place}has no key `{key}`{_elsewhere(key, where)}")


def _elsewhere(key: str, where: str) -> str:
    """Return a hint: the table where the key would be right, else its table's nearest key."""
    known = [dotted.rpartition(".") for dotted in (*_KEYS, *_TABLES)]
    homes = [home for home, _, name in known if name == key]
    if not homes:
        return did_you_mean(key, [name for home, _, name in known if home == where])
    # A table below the one where the key stands is likelier than ours, and ours is likelier than
    # any other of TiCDC's.
    below = [home for home in homes if where and home.startswith(f"{where}.")]
    home = (below or [OWN_TABLE] * (OWN_TABLE in homes) or homes)[0]
    return f"; it belongs in [{home}]" if home else "; it belongs at the top of the file"


def merged(documents: tuple[Document, ...]) -> dict[str, tuple[object, str]]:
    """Return dotted key → (value, source) over all documents; later ones override."""
    found: dict[str, tuple[object, str]] = {}
    for document in documents:
        # Key by key: a later file replaces values, never a whole table.
        found.update({key: (value, document.source) for key, value in leaves(document.content)})
    return found


def refuse_active_active(settings: Mapping[str, tuple[object, str]]) -> None:
    """Raise `ConfigError` for a setting that would make this program misread the files."""
    value, source = settings.get(REFUSED, (False, ""))
    if value is not False:
        raise ConfigError(
            f"{source}: `{REFUSED} = {json.dumps(value, default=str)}` is not supported; only false is"
        )


def refuse_routed_selectors(document: Document) -> None:
    """Refuse TiCDC's renamed tables with column selectors: matchers mean the old names.

    Raises `ConfigError`.
    """
    content = dict(leaves(document.content))
    if routed_by_ticdc(document) and "sink.column-selectors.matcher" in content:
        raise ConfigError(
            f"{document.source}: [[sink.column-selectors]] beside `target-schema` or `target-table` in [[sink.dispatchers]] is not "
            "supported: the bucket has only the new names, and the selectors' matchers mean the old ones"
        )


def routed_by_ticdc(document: Document) -> bool:
    """Return whether the changefeed renames tables when it writes."""
    return any(
        key in ("sink.dispatchers.target-schema", "sink.dispatchers.target-table") and value
        for key, value in leaves(document.content)
    )


_NO_BUCKET = "file:///nowhere"
"""A placeholder for commands that need no bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value and where it was given."""

    value: Any
    origin: str
    """Text for messages, like ``--tz`` or ``toml: [sink] protocol``; empty for a default."""


class Places:
    """Places of values but URIs, by precedence; only what is asked for is checked."""

    def __init__(self, options: Mapping[str, object], environ: Mapping[str, str]) -> None:
        """Take options by keyword; of the files only those that were read."""
        self.options = options
        self.environ = environ
        # Empty until the URIs are parsed: a URI cannot be given by a parameter of itself.
        self.parameters: dict[str, Mapping[str, str]] = {}
        config = options.get("config")
        documents = config if isinstance(config, list) else ()
        self.documents = tuple(each for each in documents if isinstance(each, Document))
        # Dotted key → value and file, over all files.
        self.settings = merged(self.documents)
        if SINK_URI in self.settings:
            self.settings.setdefault(BY_KEYWORD["upstream_uri"].toml_key, self.settings[SINK_URI])

    def find(self, keyword: str) -> Given:
        """Return the value of an option: flag or keyword, URI, environment, TOML, default."""
        option = BY_KEYWORD[keyword]
        for given, origin in self.candidates(keyword):
            if given is None:
                continue
            try:
                return Given(value=option.parse(given), origin=origin)
            except ValueError as error:
                # A parser's message may quote the value, and these values hold secrets.
                is_secret = "uri" in option.name or option.name.endswith("password")
                raise ConfigError(
                    f"{origin}: {'a text is expected' if is_secret else error}"
                ) from None
        return Given(value=option.default, origin="")

    def candidates(self, keyword: str) -> list[tuple[object, str]]:
        """Return an option's unparsed values with places, by rank; None where there is none."""
        option = BY_KEYWORD[keyword]
        by_hand = parsers.unescaped if option.escapes else lambda value: value
        found: list[tuple[object, str]] = [
            (by_hand(self.options.get(option.keyword)), f"--{option.name}")
        ]
        if option.uri:
            side, parameter = option.uri
            # An empty parameter or variable counts as not given; an empty flag is a value.
            in_uri = self.parameters.get(side, {}).get(parameter) or None
            found.append((in_uri, f"--{side}-uri: parameter `{parameter}`"))
        in_environment = by_hand(self.environ.get(option.environment) or None)
        found.append((in_environment, f"environment variable {option.environment}"))
        if option.toml_key in self.settings:
            value, source = self.settings[option.toml_key]
            table, _, key = option.toml_key.rpartition(".")
            found.append((value, f"{source}: [{table}] {key}"))
        return found


class Sources(Places):
    """All places, checked as far as anything is unknown or malformed in files and URIs."""

    def __init__(
        self,
        options: Mapping[str, object],
        environ: Mapping[str, str],
        *,
        target: bool,
        bucket: bool = True,
    ) -> None:
        """Read the TOML files and parse the URIs; raise `ConfigError`.

        Without `target`, settings of the target are ignored; without `bucket`, those of the bucket.
        """
        super().__init__(with_files_read(options, environ), environ)
        for document in self.documents:
            check_keys(document)
            refuse_routed_selectors(document)
        # The files come first, since they may name both URIs.
        self.upstream = parse_upstream(self._uri("upstream_uri") if bucket else _NO_BUCKET)
        self.downstream = parse_downstream(self._uri("downstream_uri")) if target else None
        self.parameters = {
            uri.side: uri.parameters for uri in (self.upstream, self.downstream) if uri is not None
        }
        self.elsewhere = tuple(
            each.source
            for each in self.documents
            if each.printed
            and bucket
            and not same_place(self.upstream, str(dict(leaves(each.content))[SINK_URI]))
        )
        """The printed changefeeds that write to another place than the bucket's URI names."""
        # A start-ts of another changefeed would prove what is not so.
        if self.settings.get(START_TS, (0, ""))[1] in self.elsewhere:
            del self.settings[START_TS]

    def _uri(self, keyword: str) -> str:
        given = self.find(keyword)
        if not given.value:
            name = BY_KEYWORD[keyword].name
            example = (
                "file:///dir?protocol=csv" if name == "upstream-uri" else "mysql://user@host:3306/"
            )
            raise ConfigError(f"--{name} is missing; give it, for example, as --{name} '{example}'")
        return str(given.value)

    def values(self, *names: str) -> dict[str, Any]:
        """Return keyword → value for these keywords."""
        return {name: self.find(name).value for name in names}


def with_files_read(options: Mapping[str, object], environ: Mapping[str, str]) -> dict[str, object]:
    """Return given options by keyword, aliases resolved, files of settings already read.

    Those are of ``config`` and ``downstream_password_file``.

    A caller that loads the same options twice must read these files only once, since they may be
    pipes.
    `load` returns the same for the result as for `options`. Raises `ConfigError`, also for an
    unknown option.
    """
    known: dict[str, object] = {}
    for keyword, value in options.items():
        # This table has aliases too: two names of one option meet in its keyword.
        if keyword not in BY_KEYWORD:
            raise ConfigError(f"there is no option `{keyword}`{did_you_mean(keyword, BY_KEYWORD)}")
        name = BY_KEYWORD[keyword].keyword
        if value is not None and known.setdefault(name, value) != value:
            raise ConfigError(
                f"`{keyword}` and `{name}` mean the same option but were given different values"
            )
    places = Places(known, environ)
    config = places.find("config")
    items = config.value or ()
    if config.origin.startswith("environment"):
        # Only a variable has to pack several paths into one text.
        items = [part for item in items for part in str(item).split(os.pathsep) if part]
    if documents := [read_document(item) for item in items]:
        known["config"] = documents
    file = known.get("downstream_password_file")
    if file and known.get("downstream_password") is None:
        given = places.find("downstream_password_file")
        known["downstream_password"] = password_in(given.value, given.origin)
    return known


@dataclass(frozen=True, slots=True)
class LogWish:
    """The log that was asked for."""

    level: str = "info"
    file: str = ""
    """Path; empty: standard error."""
    style: str = "text"


def log_wish(options: Mapping[str, object], environ: Mapping[str, str]) -> LogWish:
    """Return log settings of options, environment and read TOML files, without invalid ones."""
    places, found = Places(options, environ), dict[str, str]()
    for field, name in (("level", "log_level"), ("file", "log_file"), ("style", "log_format")):
        for given in filter(None, (each for each, _ in places.candidates(name))):
            # Reported with the other settings; until then the next place decides.
            with suppress(ValueError):
                found.setdefault(field, str(BY_KEYWORD[name].parse(given)))
    return LogWish(**found)


def is_given(keyword: str, options: Mapping[str, object], environ: Mapping[str, str]) -> bool:
    """Return whether option, environment or file give a value; `options`: `with_files_read`."""
    return any(given for given, _ in Places(options, environ).candidates(keyword))
