"""A changefeed's file, as TiCDC takes or prints it: its valid keys, which of them shape the files, and which don't matter.

The key names are those of both TiCDC architectures (tiflow and ticdc), deprecated ones included.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from storage_consumer.config.format_options import FORMAT
from storage_consumer.config.option import OWN_TABLE
from storage_consumer.config.options import BY_KEYWORD, OPTIONS
from storage_consumer.config.parsers import MAPPING, Document, did_you_mean
from storage_consumer.config.printed_changefeed import is_printed, printed_object, put, settings_of
from storage_consumer.errors import ConfigError

ANY: Mapping[str, object] = {"*": None}
"""A table whose keys are all accepted: it belongs to another kind of sink."""


def _keys(names: str) -> dict[str, object]:
    return dict.fromkeys(names.split())


_EVENT_FILTER = _keys(
    "matcher ignore-event ignore-sql ignore-insert-value-expr "
    "ignore-update-old-value-expr ignore-update-new-value-expr ignore-delete-value-expr "
    "ignore-update-only-columns"
)
_DISPATCHER = _keys("matcher dispatcher partition index columns topic target-schema target-table")
_COLUMN_SELECTOR = _keys("matcher columns")
_OLD_TABLE = _keys("db-name tbl-name")
_CSV = _keys(
    "delimiter quote null include-commit-ts binary-encoding-method output-old-value "
    "output-handle-key output-field-header"
)
_CLOUD_STORAGE = _keys(
    "worker-count flush-interval file-size spool-disk-quota spool-base-dir "
    "output-column-id file-expiration-days file-cleanup-cron-spec flush-concurrency "
    "use-table-id-as-path output-raw-change-event"
)
_SINK: dict[str, object] = {
    **_keys(
        "protocol transaction-atomicity schema-registry encoder-concurrency terminator "
        "date-separator enable-partition-separator file-index-digit enable-kafka-sink-v2 "
        "only-output-updated-columns delete-only-output-handle-key-columns content-compatible "
        "safe-mode advance-timeout-in-sec send-bootstrap-interval-in-sec "
        "send-bootstrap-in-msg-count send-bootstrap-to-all-partition "
        "send-all-bootstrap-at-start debezium-disable-schema case-sensitive force-replicate"
    ),
    "dispatchers": _DISPATCHER,
    "column-selectors": _COLUMN_SELECTOR,
    "csv": _CSV,
    "cloud-storage-config": _CLOUD_STORAGE,
    **dict.fromkeys(
        ("kafka-config", "pulsar-config", "mysql-config", "iceberg-config", "open", "debezium", "simple"), ANY
    ),
    "integrity": _keys("integrity-check-level corruption-handle-level"),
}
_FILTER: dict[str, object] = {
    **_keys("rules ignore-txn-start-ts ddl-allow-list do-dbs ignore-dbs"),
    "event-filters": _EVENT_FILTER,
    "do-tables": _OLD_TABLE,
    "ignore-tables": _OLD_TABLE,
}
KNOWN: dict[str, object] = {
    **_keys(
        "performance-mode memory-quota case-sensitive force-replicate check-gc-safe-point "
        "enable-old-value enable-sync-point enable-table-monitor ignore-ineligible-table "
        "bdr-mode sync-point-interval sync-point-retention changefeed-error-stuck-duration "
        "sql-mode enable-active-active active-active-progress-interval "
        "active-active-sync-stats-interval event-collector-batch-count "
        "event-collector-batch-bytes"
    ),
    "filter": _FILTER,
    "mounter": _keys("worker-num"),
    "sink": _SINK,
    "consistent": ANY,
    "cyclic-replication": ANY,
    "scheduler": _keys(
        "type polling-time enable-table-across-nodes region-threshold write-key-threshold "
        "region-per-span region-count-per-span scheduling-task-count-per-node "
        "region-count-refresh-interval enable-splittable-check force-split "
        "balance-score-threshold min-traffic-percentage max-traffic-percentage "
        "add-table-batch-size"
    ),
    "integrity": _keys("integrity-check-level corruption-handle-level"),
    "synced-status": _keys("synced-check-interval checkpoint-interval"),
    OWN_TABLE: {
        # An option that TiCDC's own part of the file gives has no second key here.
        **dict.fromkeys(option.name for option in OPTIONS if option.toml_key == f"{OWN_TABLE}.{option.name}"),
        "sink-uri": None,
        "filter": {**_keys("rules"), "event-filters": _keys("matcher ignore-event ignore-sql")},
        "routes": _keys("matcher target-schema target-table"),
        "load": _keys("start-ts"),
    },
}


START_TS = BY_KEYWORD["start_ts"].toml_key
SINK_URI = f"{OWN_TABLE}.sink-uri"
_IN_SINK_URI: Mapping[str, str] = {
    **{option.uri[1]: option.toml_key for option in FORMAT if option.uri and option.toml_key.startswith("sink.")},
    **{name: f"sink.cloud-storage-config.{name}" for name in ("file-expiration-days", "output-raw-change-event")},
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
"""Settings that the files themselves show, message by message and path by path; they need not be given.

For raw change events that holds only if an update also carries its old row; otherwise they are refused (`refuse_lost_keys`).
"""


SELECTORS = frozenset({"case-sensitive", "sink.column-selectors.matcher", "sink.column-selectors.columns"})
"""Keys that say which columns rows lack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A setting that changes the files in a way that this program cannot read: only `expected` is accepted."""

    key: str
    """Dotted key."""
    expected: object


REFUSALS = (Refusal(key="enable-active-active", expected=False),)


def read_document(config: object) -> Document:
    """Return the content of a file, or the mapping itself; raise `ConfigError` if the file is neither TOML nor what TiCDC prints."""
    if isinstance(config, Document):
        return config
    if isinstance(config, Mapping):
        return _from_json(MAPPING, config) if is_printed(config) else Document(source=MAPPING, content=config)
    try:
        text = Path(str(config)).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--config {config}: the file cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"--config {config}: this is not UTF-8 text: {error}") from error
    try:
        return Document(source=str(config), content=tomllib.loads(text))
    except ValueError as error:
        # What TiCDC prints is never TOML, so nothing is tried that would hide a fault of a TOML file.
        printed = printed_object(str(config), text)
        if printed is None:
            raise ConfigError(f"--config {config}: this is not TOML: {error}") from error
    return _from_json(str(config), printed)


def _from_json(source: str, printed: Mapping[str, object]) -> Document:
    """Return a changefeed that TiCDC printed by the keys of a TOML file; raise `ConfigError` for one that does not write a bucket."""
    content, sink_uri, start_ts = settings_of(source, printed, KNOWN)
    # The sink URI beats the configuration, as in TiCDC.
    for name, value in parse_qsl(urlsplit(sink_uri).query):
        if key := _IN_SINK_URI.get(name.lower().replace("_", "-")):
            put(content, key, value)
    put(content, SINK_URI, sink_uri)
    if start_ts:
        put(content, START_TS, start_ts)
    return Document(source=source, content=content, printed=True)


def leaves(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield dotted key and value of everything that is not a table; tables in an array share its key. Arrays of our own stay whole."""
    for key, value in table.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from leaves(value, f"{dotted}.")
        elif (
            isinstance(value, list)
            and value
            and all(isinstance(item, Mapping) for item in value)
            # Of TiCDC's arrays only the keys matter; ours are parsed table by table.
            and not dotted.startswith(f"{OWN_TABLE}.")
        ):
            for item in value:
                yield from leaves(item, f"{dotted}.")
        else:
            yield dotted, value


def check_keys(document: Document) -> None:
    """Raise `ConfigError` for the first key that neither TiCDC nor this program knows."""
    _check(document.source, document.content, KNOWN, "")


def _check(source: str, table: Mapping[str, object], known: Mapping[str, object], where: str) -> None:
    for key, value in table.items():
        if key not in known:
            place = f"[{where}] " if where else ""
            raise ConfigError(f"{source}: {place}has no key `{key}`{_elsewhere(key, known, where)}")
        below = known[key]
        if below is ANY:
            continue
        # The tables of an array all have the same keys.
        tables = value if isinstance(value, list) else [value]
        for item in tables:
            _check_value(source, item, below, f"{where}.{key}" if where else key)


def _check_value(source: str, value: object, below: object, where: str) -> None:
    if isinstance(below, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{source}: `{where}` is a table, written as [{where}]")
        _check(source, value, below, where)
    elif isinstance(value, Mapping):
        raise ConfigError(f"{source}: `{where}` is a single value, not a table")


def _elsewhere(key: str, known: Mapping[str, object], where: str) -> str:
    """Return a hint: the table in which the key would be right, else the nearest key of its own table."""
    homes = [dotted.rpartition(".")[0] for dotted in _dotted(KNOWN) if dotted.rpartition(".")[2] == key]
    if not homes:
        return did_you_mean(key, known)
    # A table below the one where the key stands is likelier than ours, and ours is likelier than any other of TiCDC's.
    below = [home for home in homes if where and home.startswith(f"{where}.")]
    home = (below or [OWN_TABLE] * (OWN_TABLE in homes) or homes)[0]
    return f"; it belongs in [{home}]" if home else "; it belongs at the top of the file"


def _dotted(known: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    for key, below in known.items():
        yield f"{prefix}{key}"
        if isinstance(below, Mapping):
            yield from _dotted(below, f"{prefix}{key}.")


def merged(documents: tuple[Document, ...]) -> dict[str, tuple[object, str]]:
    """Return dotted key → (value, source) over all documents; a later document overrides an earlier one."""
    found: dict[str, tuple[object, str]] = {}
    for document in documents:
        # Key by key: a later file replaces values, never a whole table.
        found.update({key: (value, document.source) for key, value in leaves(document.content)})
    return found


def refuse(settings: Mapping[str, tuple[object, str]]) -> None:
    """Raise `ConfigError` for a setting that would make this program misread the files."""
    for refusal in REFUSALS:
        value, source = settings.get(refusal.key, (refusal.expected, ""))
        if value != refusal.expected:
            shown = f"{source}: `{refusal.key} = {toml_text(value)}`"
            raise ConfigError(f"{shown} is not supported; only {toml_text(refusal.expected)} is")


def refuse_routed_selectors(document: Document) -> None:
    """Raise `ConfigError` if TiCDC renamed tables and left columns out: the selectors' matchers mean the old names."""
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


def toml_text(value: object) -> str:
    """Return a value as a TOML file writes it."""
    return json.dumps(value, ensure_ascii=False, default=str)
