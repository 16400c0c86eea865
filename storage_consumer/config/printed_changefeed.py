"""What ``cdc cli changefeed create`` and ``query`` print: a changefeed as JSON, with its sink URI, start-ts and whole configuration.

The API of both architectures writes the keys of the TOML file with ``_`` for ``-``, and a few under another name; TiCDC's own records in
etcd have ``-``. ``create`` has lines of text around the object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from storage_consumer.config import stores
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.errors import ConfigError

_BEGIN = re.compile(r'^\ufeff?(?:Info:[ \t]*)?(?=\{\s*["}])', re.MULTILINE)
"""Before the object; warnings of ``create`` hold braces too, but no line of them begins with one."""
_ABOUT = frozenset(
    {
        *("upstream-id", "namespace", "keyspace", "id", "changefeed-id", "gid", "epoch", "creator-version"),
        *("create-time", "target-ts", "resolved-ts", "checkpoint-ts", "checkpoint-tso", "checkpoint-time"),
        *("admin-job-type", "sort-engine", "engine", "sort-dir", "state", "error", "warning", "error-history"),
        *("task-status", "maintainer-addr"),
    }
)
"""What else is said of a changefeed; it does not matter here."""
_TAKEN = frozenset(("sink-uri", "start-ts", "config"))
_OTHER_NAMES = {
    "file-index-width": "file-index-digit",
    "advance-timeout": "advance-timeout-in-sec",
    "database-name": "db-name",
    "table-name": "tbl-name",
}
_EMPTY_IS_UNSET = frozenset({"protocol", "date-separator", "binary-encoding-method"})
"""Settings for which TiCDC takes an empty text as none; early releases print one."""


def is_printed(content: Mapping[str, object]) -> bool:
    """Return whether a mapping is a changefeed as TiCDC prints it; no TOML file has these tables."""
    return any(isinstance(content.get(key), Mapping) for key in ("config", "info"))


def printed_object(source: str, text: str) -> Mapping[str, object] | None:
    """Return the JSON object in what TiCDC printed, None if there is none. Raise `ConfigError` if it is damaged or not the only one."""
    begin = _BEGIN.search(text)
    if begin is None:
        return None
    try:
        content, end = json.JSONDecoder().raw_decode(text, begin.end())
    except ValueError as error:
        raise ConfigError(f"--config {source}: this is not the whole JSON of a changefeed: {error}") from error
    if _BEGIN.search(text, end):
        raise ConfigError(
            f"--config {source}: this holds several JSON objects; keep the one of this bucket's changefeed"
        )
    return dict(content)


def settings_of(
    source: str, content: Mapping[str, object], known: Mapping[str, object]
) -> tuple[dict[str, Any], str, object]:
    """Return the configuration in a printed object by the keys of the TOML file, its sink URI and its start-ts (0: not printed).

    `known`: those keys; any other keeps its printed name. What is null is left out. Raises `ConfigError` for anything but a changefeed to a bucket.
    """
    inner = content.get("info")
    fields = {key.replace("_", "-"): value for key, value in (inner if isinstance(inner, Mapping) else content).items()}
    for key in sorted(fields.keys() - _ABOUT - _TAKEN):
        raise ConfigError(f"{source}: a changefeed has no key `{key}`{did_you_mean(key, sorted(_ABOUT | _TAKEN))}")
    uri, config = fields.get("sink-uri"), fields.get("config")
    if not isinstance(uri, str) or not uri or not isinstance(config, Mapping):
        raise ConfigError(
            f"{source}: this JSON lacks `sink_uri` or `config`: give what `cdc cli changefeed query` prints without --simple"
        )
    scheme = urlsplit(uri).scheme.lower()
    if scheme not in stores.SCHEMES:
        raise ConfigError(
            f"{source}: this changefeed writes to {scheme}://, not to a bucket, so it says nothing of one"
        )
    return _respelled(config, known), uri, fields.get("start-ts") or 0


def _respelled(value: Any, known: object) -> Any:
    if isinstance(value, list):
        return [_respelled(item, known) for item in value]
    if not isinstance(value, Mapping):
        return value
    below = known if isinstance(known, Mapping) else {}
    # The tables of other kinds of sinks may have any key.
    anything = "*" in below
    renamed: dict[str, object] = {}
    for key, item in value.items():
        plain = key.replace("_", "-")
        name = _OTHER_NAMES.get(plain, plain)
        if item is None or (item == "" and name in _EMPTY_IS_UNSET):
            continue
        # A key that nobody knows keeps its name, since an error will quote it.
        renamed[name if anything or name in below else key] = _respelled(item, below if anything else below.get(name))
    return renamed


def put(content: dict[str, Any], dotted: str, value: object) -> None:
    """Set the value of a dotted key, and make the tables around it."""
    table, _, rest = dotted.partition(".")
    if not rest:
        content[table] = value
        return
    inner = content.get(table)
    content[table] = inner = {**inner} if isinstance(inner, Mapping) else {}
    put(inner, rest, value)
