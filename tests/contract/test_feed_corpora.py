"""Changes of recorded buckets, folded by a few lines that know nothing of how they were read, against what the source held."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from storage_consumer import StorageConsumerError, read_changes
from storage_consumer.changes.render_sql import statements
from storage_consumer.changes.rendering import debezium_envelopes, flat_messages, json_lines
from storage_consumer.changes.window import Change, Event, FeedStatement
from storage_consumer.decode.kernels.arrays import DELETE, PARTIAL_DELETE, UPDATE
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import qualified
from tests.harness.comparing import base_type, form_of
from tests.harness.corpora import THOROUGH, Corpus, CorpusSource, Cut, GoldenTable, available
from tests.harness.expectations import has_commit_ts, null_like, overwritten
from tests.harness.feeds import feed_of, settings_of
from tests.harness.tables_at import found_at, read_at

_MADE = re.compile(r"CREATE (DATABASE|TABLE)\b", re.IGNORECASE)
_MEMBERS = re.compile(r"'((?:[^']|'')*)'")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
Name = tuple[str, str]
CORPORA = [each for each in available() if not each.variant.startswith(("csv-nots", "json-noext"))]
"""All but those whose rows have no commit-ts."""
FEW = CORPORA if THOROUGH else [each for each in CORPORA if each.variant in ("csv", "json-restart")]
"""One of each kind, and at night all."""


@pytest.mark.parametrize("source", FEW, ids=str)
def test_changes_fold_to_what_the_source_held(source: CorpusSource, tmp_path: Path) -> None:
    """At each cut, for every table that no statement but its CREATE touched: window after window, from processes of their own."""
    corpus = source.open(tmp_path)
    if not has_commit_ts(corpus):
        pytest.fail("a variant without commit-ts is not in the list of those")
    corpus.materialise(corpus.cuts[-1], tmp_path / "bucket")
    loaded = settings_of(corpus, tmp_path, tmp_path / "bucket")
    held = Held(loaded.config.upstream.protocol, corpus.timezone)
    low = 0
    for cut in corpus.cuts:
        for event in feed_of(loaded).events(low, cut.checkpoint_ts):
            held.take(event)
        low = cut.checkpoint_ts
        lost = {each.lower() for each in overwritten(corpus)}
        for table in corpus.golden(cut):
            if _name(table.schema, table.table) in held.judged and table.name.lower() not in lost:
                assert held.rows(table, null_like(corpus)) == golden_rows(table, null_like(corpus)), (
                    cut.number,
                    table.name,
                )


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(each, id=str(each), marks=pytest.mark.slow if at else ())
        for at, each in enumerate([*FEW, *sorted(set(available()) - set(CORPORA), key=str)])
    ],
)
def test_errors_are_ours(source: CorpusSource, tmp_path: Path) -> None:
    """Whatever a tree holds, nothing but errors of this program leaves the functions that read it, for any name that stands in it."""
    corpus = source.open(tmp_path)
    for cut in corpus.cuts if THOROUGH else corpus.cuts[-1:]:
        corpus.materialise(cut, tmp_path / f"bucket{cut.number}")
        _ask_everything(corpus, cut, tmp_path, tmp_path / f"bucket{cut.number}")


def _ask_everything(corpus: Corpus, cut: Cut, folder: Path, bucket: Path) -> None:
    with suppress(StorageConsumerError):
        loaded = settings_of(corpus, folder, bucket)
        protocol = loaded.config.upstream.protocol
        lines = (json_lines(protocol), statements(protocol), flat_messages(protocol, time), debezium_envelopes(protocol, time))  # fmt: skip
        feed = feed_of(loaded)
        with suppress(StorageConsumerError):
            assert all(line(event) for event in feed.events(0) for line in lines)
        # Names that a table had only while others were renamed, too.
        mentioned = (name for each in feed.contents.definitions for name in (each.name, *parsed(each).touched))
        for name in {each.folded(): each for each in mentioned if each.table}.values():
            given = {"config": str(corpus.write_config(folder)), "tz": corpus.timezone}
            with suppress(StorageConsumerError):
                read_changes(corpus.sink_uri(bucket), qualified(name), **given).read_all()
            with suppress(StorageConsumerError):
                read_at(found_at(loaded, name, cut.checkpoint_ts))


def _name(schema: str, table: str) -> tuple[str, str]:
    return schema.lower(), table.lower()


class Held:
    """What the changes so far leave in each table."""

    def __init__(self, protocol: str, zone: str) -> None:
        """`protocol`: of the bucket; `zone`: of the server that told what the source held."""
        self._zone = zone
        self._is_canal = protocol == "canal-json"
        self._keyed: dict[Name, dict[tuple[str | None, ...], dict[str, str | None]]] = {}
        self._bags: dict[Name, Counter[tuple[tuple[str, str | None], ...]]] = {}
        self._made: dict[Name, int] = {}
        self._touched: set[Name] = set()

    @property
    def judged(self) -> set[Name]:
        """Tables whose statements have all been folded: a CREATE alone."""
        return {name for name, count in self._made.items() if count == 1} - self._touched

    def take(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, Change):
            self._row(event)
        else:
            self._statement(event)

    def _statement(self, event: FeedStatement) -> None:
        own, text = event.definition.name, event.definition.query
        name = _name(own.schema, own.table)
        if own.table and _MADE.match(text) and " LIKE " not in text.upper() and " AS SELECT" not in text.upper():
            self._made[name] = self._made.get(name, 0) + 1
            return
        if _MADE.match(text):
            return
        # Whatever it mentions, in whatever database, is left to other tests.
        for other in self._made:
            schema, table = other
            if other == name or table in text.lower() or (not own.table and schema == name[0]):
                self._touched.add(other)

    def _row(self, change: Change) -> None:
        columns = [column.name for column in change.structure.columns]
        name = _name(change.structure.table.schema, change.structure.table.table)
        image = dict(zip(columns, change.values, strict=True))
        old = None if change.old is None else dict(zip(columns, change.old, strict=True))
        is_update, is_delete = change.operation == UPDATE, change.operation in (DELETE, PARTIAL_DELETE)
        if keys := [columns[place] for place in change.structure.key]:
            key = tuple(image[each] for each in keys)
            self._keyed.setdefault(name, {}).pop(key, None)
            if not is_delete:
                self._keyed[name][key] = image
            return
        if change.operation == PARTIAL_DELETE or (is_update and old is None):
            # The files do not say which row is meant, without a look at the unique keys.
            self._touched.add(name)
        bag = self._bags.setdefault(name, Counter())
        if is_update or is_delete:
            bag[tuple((old or image).items())] -= 1
        if not is_delete:
            bag[tuple(image.items())] += 1

    def rows(self, table: GoldenTable, null: str | None) -> Counter[tuple[Any, ...]]:
        """The rows of a table, each value in the form in which it is compared."""
        name = _name(table.schema, table.table)
        rows: Iterable[dict[str, str | None]] = self._keyed.get(name, {}).values()
        bag = (dict(items) for items, count in self._bags.get(name, Counter()).items() for _ in range(count))
        stored = [column for column in table.types if column not in _virtual(table)]
        return Counter(
            tuple(self._form(table.types[column], row[column], null) for column in stored) for row in (*rows, *bag)
        )

    def _form(self, kind: str, text: str | None, null: str | None) -> Any:
        """The value of a wire text: bytes are hexadecimal digits, BIT a number, and canal-json's members numbers."""
        base = base_type(kind)
        found: Any = bytes.fromhex(text) if text is not None and base in _BYTES else text
        if found is None or (null is not None and found in (null, null.encode())):
            return None
        if base == "bit":
            return int(found)
        if base == "timestamp":
            return in_zone(str(found), self._zone)
        members = [member.replace("''", "'") for member in _MEMBERS.findall(kind)]
        if base == "enum" and self._is_canal:
            found = members[int(found) - 1] if int(found) else ""
        if base == "set" and self._is_canal:
            found = ",".join(member for place, member in enumerate(members) if int(found) >> place & 1)
        return form_of(kind)(found)


def in_zone(text: str, zone: str) -> str:
    """A time of UTC as a server in another zone shows it; the zero date is the same everywhere."""
    if zone == "UTC" or text.startswith("0000"):
        return text
    whole, dot, fraction = text.partition(".")
    moment = datetime.fromisoformat(whole).replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
    return moment.strftime("%Y-%m-%d %H:%M:%S") + dot + fraction


def _virtual(table: GoldenTable) -> set[str]:
    return {column.name for column in table.columns if "VIRTUAL" in column.extra.upper()}


def golden_rows(table: GoldenTable, null: str | None) -> Counter[tuple[Any, ...]]:
    """What the source held, in the same form, without virtual columns, which rows do not have."""
    virtual = _virtual(table)
    return Counter(tuple(_golden(table, row, null, virtual)) for row in table.rows())


def _golden(table: GoldenTable, row: list[Any], null: str | None, virtual: set[str]) -> Iterator[Any]:
    for (name, kind), value in zip(table.types.items(), row, strict=True):
        if name in virtual:
            continue
        found = base64.b64decode(value["b64"]) if isinstance(value, dict) else value
        yield None if found is None or (null is not None and found in (null, null.encode())) else form_of(kind)(found)
