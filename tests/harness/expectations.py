"""What can't be expected of any consumer for a recording, and what the program must say where it can't.

Everything else must be equal. A table may stop only where it is listed here, and only with an error that gives the reason.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.harness.corpora import METADATA, Corpus

KEYLESS = frozenset({"keyless.nk", "keyless.nkf", "keyless.nklate", "keysdb.uknull", "gen.ukg"})
"""Tables of the recordings whose rows nothing but all their columns tells apart."""
KEY_DROPPED = frozenset({"keysdb.nonclu", "storm.gone"})
"""Tables of which the recordings drop the key before they delete rows."""
NO_OLD_IMAGE = r"output-old-value"
"""A CSV row of an UPDATE does not say which row it changes."""
NO_WHOLE_IMAGE = r"delete-only-output-handle-key-columns"
"""A delete names no column of a table without a key."""
NO_COMMIT_TS = r"has no key: without commit ts"
"""Nothing tells an equal row from a repeated delivery."""
NO_SUCH_NAME = r"beyond U\+FFFF"
"""MySQL and MariaDB know no names with characters beyond U+FFFF."""
FAR_CHARACTER = re.compile("[\U00010000-\U0010ffff]")
CHANGED_CONTENT = "content changed under a known name"
"""Part of the reason under which a summary counts such files."""

IRREPRODUCIBLE: Mapping[str, Mapping[str, frozenset[str]]] = {"x_defaults": {"pr.d": frozenset({"u"})}}
"""Workload → table → columns that a UUID() filled at the source and fills anew at the target."""


def stated_halts(corpus: Corpus, kind: str) -> dict[str, str]:
    """Table → pattern of the error with which it may stop on a server of this kind."""
    stated: dict[str, str] = {}
    if not has_commit_ts(corpus):
        stated = dict.fromkeys(KEYLESS | KEY_DROPPED, NO_COMMIT_TS)
    elif _protocol(corpus) == "csv" and not _says(corpus, "output-old-value"):
        stated = dict.fromkeys(KEYLESS, NO_OLD_IMAGE)
    elif _says(corpus, "delete-only-output-handle-key-columns"):
        stated = dict.fromkeys(KEYLESS | KEY_DROPPED, NO_WHOLE_IMAGE)
    if kind != "tidb":
        names = {f"{table.schema}.{table.table}" for cut in corpus.cuts for table in corpus.golden(cut)}
        stated |= {name: NO_SUCH_NAME for name in names if FAR_CHARACTER.search(name)}
    return stated


def null_like(corpus: Corpus) -> str | None:
    """A text that can't be told from NULL: without quotes a marker such as ``NULL`` stands there as the text does."""
    csv = tomllib.loads(corpus.changefeed_toml).get("sink", {}).get("csv", {})
    marker: str = csv.get("null", "\\N")
    return marker if csv.get("quote") == "" and marker != "\\N" else None


def stays_though_dropped(corpus: Corpus, table: str) -> bool:
    """Whether a table of a dropped database stays: with table ids as path TiCDC writes no statement about databases."""
    by_id = "use-table-id-as-path=true" in corpus.sink_uri(Path("/"))
    workload = (corpus.folder / "workload.sql").read_text(encoding="utf-8")
    dropped = re.findall(r"^drop database (?:if exists )?`?([^;`]+)`?;", workload, re.MULTILINE | re.IGNORECASE)
    return by_id and any(table.startswith(f"{database}.") for database in dropped)


def has_commit_ts(corpus: Corpus) -> bool:
    """Whether its rows say when they were committed."""
    if _protocol(corpus) == "csv":
        return _says(corpus, "include-commit-ts")
    return parse_qs(urlsplit(str(corpus.sink_uri(Path("/")))).query).get("enable-tidb-extension") == ["true"]


def can_be_equal(corpus: Corpus, *, rows_beyond: bool) -> bool:
    """Whether the target can be held against a cut; `rows_beyond`: the bucket holds rows of later cuts already.

    Without commit ts canal-json still says the millisecond, CSV nothing.
    """
    return has_commit_ts(corpus) or _protocol(corpus) != "csv" or not rows_beyond


def overwritten(corpus: Corpus) -> frozenset[str]:
    """Tables of which rows are missing, since the source overwrote its own files: partitioned ones, and what became of them."""
    if not corpus.expected_loss:
        return frozenset()
    lost: set[str] = set()
    known: set[str] = set()
    for schema in sorted(_schemas(corpus), key=lambda schema: int(schema["TableVersion"])):
        own, query = f"{schema['Schema']}.{schema['Table']}", schema["Query"].upper()
        known.add(own)
        named = {name for name in known if f"`{name.rpartition('.')[2].upper()}`" in query}
        if "PARTITION" in query:
            lost |= {own} | (named if "EXCHANGE" in query else set())
        elif "RENAME" in query and named & lost:
            lost.add(own)
    return frozenset(lost)


def overwritten_files(corpus: Corpus) -> tuple[str, ...]:
    """Data files whose content was another one at an earlier cut, and so must be noticed by who saw that cut."""
    sizes: dict[str, set[int]] = {}
    for cut in corpus.cuts:
        for path, size in cut.files.items():
            sizes.setdefault(path, set()).add(size)
    return tuple(sorted(p for p, seen in sizes.items() if len(seen) > 1 and not p.endswith((".index", METADATA))))


def replicated(corpus: Corpus) -> frozenset[str]:
    """Folded ``schema.table`` of everything that a schema file speaks of; ``schema.`` of the databases."""
    schemas = tuple(_schemas(corpus))
    tables = {f"{schema['Schema']}.{schema['Table']}".casefold() for schema in schemas}
    return frozenset(tables | {f"{schema['Schema']}.".casefold() for schema in schemas})


def _schemas(corpus: Corpus) -> Iterator[Mapping[str, Any]]:
    """The content of every schema file."""
    for path in corpus.cuts[-1].files:
        if re.search(r"/(meta/schema_\d+_\d+|\d+/schema)\.json$", path):
            yield json.loads((corpus.folder / "tree" / path).read_text(encoding="utf-8"))


def _protocol(corpus: Corpus) -> str:
    """``csv`` or ``canal-json``."""
    return parse_qs(urlsplit(str(corpus.sink_uri(Path("/")))).query).get("protocol", ["canal-json"])[0]


def _says(corpus: Corpus, option: str) -> bool:
    """Whether the changefeed's configuration turns an option on."""
    return re.search(rf"^{re.escape(option)} = true$", corpus.changefeed_toml, re.MULTILINE) is not None
