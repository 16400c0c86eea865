"""Plays the changes of a corpus, as a feed gives them, into the kind of server that they came from: SQL text by SQL text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql

from storage_consumer.bucket.inspector import completed, inspect
from storage_consumer.bucket.stores import open_storage
from storage_consumer.changes.reading import Feed
from storage_consumer.changes.render_sql import HEAD, statements
from storage_consumer.changes.window import Event, FeedStatement
from storage_consumer.clock import SystemClock
from storage_consumer.config.load import Loaded, load
from storage_consumer.model import physical_ms
from tests.harness.corpora import Corpus
from tests.harness.servers import DatabaseServer

_UNKNOWN_TABLE = 1051


def settings_of(corpus: Corpus, folder: Path, bucket: Path) -> Loaded:
    """The settings of a corpus's bucket, completed by what it shows."""
    given = {
        "upstream_uri": corpus.sink_uri(bucket),
        "config": str(corpus.write_config(folder)),
        "tz": corpus.timezone,
    }
    loaded = load(given, {}, target=False)
    if not loaded.unset:
        return loaded
    storage = open_storage(loaded.config.upstream, loaded.secrets)
    return completed(loaded, inspect(storage, loaded.config.upstream, loaded.origins, SystemClock().now()))


def feed_of(loaded: Loaded, rules: tuple[str, ...] = ()) -> Feed:
    """A feed of a bucket, as new as a process that was just started."""
    return Feed(open_storage(loaded.config.upstream, loaded.secrets), loaded.config.upstream, SystemClock(), rules)


def play(events: Iterator[Event], loaded: Loaded, server: DatabaseServer) -> list[str]:
    """Run each event on the server; return what it refused."""
    line = statements(loaded.config.upstream.protocol)
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for one in HEAD.splitlines():
            cursor.execute(one)
        tried = ((_refused(event, line(event), connection, cursor), line(event)) for event in events)
        return [f"{why}: {text[:300]}" for why, text in tried if why]


def _refused(event: Event, text: str, connection: Any, cursor: Any) -> str:
    """Run one event; return why the server did not take it, or that it changed another number of rows than one."""
    try:
        if not isinstance(event, FeedStatement):
            cursor.execute(text)
            return "" if cursor.rowcount == 1 or _is_same(event) else f"{cursor.rowcount} rows"
        if event.definition.name.table:
            connection.select_db(event.definition.name.schema)
        cursor.execute(f"SET timestamp = {physical_ms(event.commit_ts) / 1000:.3f}")
        cursor.execute(event.definition.query)
        cursor.execute("SET timestamp = DEFAULT")
    except pymysql.err.MySQLError as fault:
        # A table that the changefeed did not replicate is dropped by a statement all the same.
        return "" if fault.args[0] == _UNKNOWN_TABLE and "DROP" in text else str(fault)
    return ""


def _is_same(event: Event) -> bool:
    """Whether an update leaves the row as it is, so that the server counts none."""
    return not isinstance(event, FeedStatement) and event.operation == 2 and event.old in (None, event.values)
