"""Entries of canal's protocol: each value as in TiCDC's own FlatMessages, and each field as canal's own server sends it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pytest

from storage_consumer.changes.rendering import flat_messages
from storage_consumer.changes.window import Change, Event, FeedStatement
from storage_consumer.config.settings import Protocol
from storage_consumer.model import physical_ms
from storage_consumer.subscribe.entries import Entry
from storage_consumer.subscribe.entry_packets import EntryPackets
from storage_consumer.subscribe.wire import MESSAGES, Kind
from tests.contract.test_feed_corpora import CORPORA
from tests.harness.canal_wire import conversations
from tests.harness.corpora import CorpusSource
from tests.harness.feeds import feed_of, settings_of

SOURCES = [
    each for each in CORPORA if each.workload in ("types", "shop", "keyless") and each.variant in ("json", "csv")
]
DIFFERENCES = {
    ("Header", "gtid"): "the commit-ts; MariaDB has no such thing for canal",
    ("Header", "serverId"): "the changefeed's servers have no number",
}
"""Message and field that only one side has, and why."""


def _events(source: CorpusSource, folder: Path) -> tuple[list[Event], Protocol]:
    corpus = source.open(folder)
    corpus.materialise(corpus.cuts[-1], folder / "bucket")
    loaded = settings_of(corpus, folder, folder / "bucket")
    return list(feed_of(loaded).events(0, corpus.cuts[-1].checkpoint_ts)), loaded.config.upstream.protocol


def _decoded(entry: bytes) -> tuple[Any, Any, list[Any]]:
    """Return header, change and rows of an entry."""
    found = MESSAGES["Entry"].FromString(entry)
    change = MESSAGES["RowChange"].FromString(found.storeValue)
    return found.header, change, [MESSAGES["RowData"].FromString(row) for row in change.rowDatas]


def _image(columns: Any) -> dict[str, str | None] | None:
    return {each.name: None if each.isNull else each.value.decode() for each in columns} or None


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_values_are_those_of_flat_messages(source: CorpusSource, tmp_path: Path) -> None:
    """Of each change the images, codes of types, key and what changed are as its FlatMessage has them."""
    events, protocol = _events(source, tmp_path)
    line, packets = flat_messages(protocol, lambda: 0), EntryPackets()
    rows = 0
    for event in events:
        told = json.loads(line(event))
        if isinstance(event, FeedStatement):
            header, change, _ = _decoded(packets(Entry("ddl", event.commit_ts, (), event, protocol))[0])
            assert (change.isDdl, change.sql) == (True, told["sql"])
            assert (header.schemaName, header.tableName) == (told["database"], told["table"])
            continue
        rows += 1
        header, change, [row] = _decoded(packets(Entry("rows", event.commit_ts, (event,), None, protocol))[0])
        before, after = _image(row.beforeColumns), _image(row.afterColumns)
        assert (header.schemaName, header.tableName) == (told["database"], told["table"])
        assert (header.executeTime, header.logfileOffset) == (told["es"], event.commit_ts)
        assert {"INSERT": 1, "UPDATE": 2, "DELETE": 3}[told["type"]] == change.eventType == header.eventType
        assert (before if after is None else after) == told["data"][0]
        assert before == (told["old"][0] if told["old"] else told["data"][0] if after is None else None)
        given = row.afterColumns or row.beforeColumns
        assert {each.name: each.sqlType for each in given} == told["sqlType"]
        assert {each.name for each in given if each.isKey} == set(told["pkNames"])
        assert all(each.mysqlType.startswith(told["mysqlType"][each.name].partition(" ")[0]) for each in given)
        if told["old"]:
            changed = {name for name, value in told["old"][0].items() if told["data"][0][name] != value}
            assert {each.name for each in row.afterColumns if each.updated} == changed
        else:
            assert all(each.updated for each in row.afterColumns)
    assert rows


def _commits(events: list[Event], protocol: Protocol) -> Iterator[bytes]:
    packets = EntryPackets()
    for event in events:
        if isinstance(event, Change):
            kinds: tuple[Literal["begin", "rows", "end"], ...] = ("begin", "rows", "end")
            for kind in kinds:
                yield packets(Entry(kind, event.commit_ts, (event,) if kind == "rows" else (), None, protocol))[0]
        else:
            yield packets(Entry("ddl", event.commit_ts, (), event, protocol))[0]


def _fields(message: Any) -> set[str]:
    return {field.name for field, _ in message.ListFields()}


def _shapes(entries: Iterator[bytes]) -> dict[tuple[str, str], list[set[str]]]:
    """Return the fields that are set, by kind of entry and message."""
    found: dict[tuple[str, str], list[set[str]]] = {}
    for entry in entries:
        whole = MESSAGES["Entry"].FromString(entry)
        header, change, rows = _decoded(entry) if whole.entryType == 2 else (whole.header, None, [])
        if change is not None and not change.isDdl and not rows:
            continue  # the text of a statement that changed rows, which MariaDB gives canal and we do not have
        kind = f"{whole.entryType} {'ddl' if change is not None and change.isDdl else header.eventType}"
        found.setdefault((kind, "Entry"), []).append(_fields(whole))
        found.setdefault((kind, "Header"), []).append(_fields(header))
        if change is not None:
            found.setdefault((kind, "RowChange"), []).append(_fields(change))
        columns = [each for row in rows for each in (*row.beforeColumns, *row.afterColumns)]
        for column in columns:
            words = "null" if column.isNull else "value"
            found.setdefault((f"{kind} {words}", "Column"), []).append(_fields(column))
    return found


def test_fields_are_those_of_canal(tmp_path: Path) -> None:
    """For each kind of entry the same fields are set as canal's server sets; what only one side has is in `DIFFERENCES`."""
    theirs: list[bytes] = []
    for client in ("java-client-1.1.8", "canal-python-0.4"):
        for packets in conversations(client):
            told = [MESSAGES["Packet"].FromString(each.data) for each in packets if not each.from_client]
            bodies = [MESSAGES["Messages"].FromString(each.body) for each in told if each.type == Kind.MESSAGES]
            theirs += chain.from_iterable(each.messages for each in bodies)
    [source] = [each for each in SOURCES if str(each) == "classic/shop__json"]
    events, protocol = _events(source, tmp_path)
    ours = _shapes(_commits(events, protocol))
    canal = _shapes(iter(theirs))
    # MariaDB's binlog has no event that canal takes for a begin; ours are as it sends them for MySQL.
    assert set(ours) - set(canal) == {("1 0", "Entry"), ("1 0", "Header")}
    assert set(canal) - set(ours) == set()
    odd = {
        (message, field)
        for kind, message in set(ours) & set(canal)
        for field in set.union(*ours[kind, message]) ^ set.union(*canal[kind, message])
    }
    assert odd == set(DIFFERENCES)


def test_rows_of_an_entry(tmp_path: Path) -> None:
    """An entry of several rows says how many they are."""
    [source] = [each for each in SOURCES if str(each) == "classic/shop__csv"]
    events, protocol = _events(source, tmp_path)
    changes = [each for each in events if isinstance(each, Change)]
    first = [
        each for each in changes if (each.structure, each.operation) == (changes[0].structure, changes[0].operation)
    ]
    header, _, rows = _decoded(EntryPackets()(Entry("rows", first[0].commit_ts, tuple(first), None, protocol))[0])
    assert header.props[0].value == str(len(rows)) == str(len(first))
    assert header.executeTime == physical_ms(first[0].commit_ts)
