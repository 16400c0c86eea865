"""`read_changes`: the changes of one table of a bucket, as Arrow record batches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from storage_consumer.clock import Clock, SystemClock
from storage_consumer.errors import ConfigError
from storage_consumer.feed.reading import Feed
from storage_consumer.feed.window import beyond, refuse_none
from storage_consumer.frames.batches import record_batches, schema_of
from storage_consumer.instants import Instant, tso_of_instant
from storage_consumer.operating.session import Session
from storage_consumer.plan.table_words import parsed
from storage_consumer.sql.tokens import quote


def read_changes(
    upstream_uri: str, table: str, *, start: Instant | None = None, end: Instant | None = None, **options: Any
) -> pa.RecordBatchReader:
    """Return the row changes of a table, in commit order, each once, up to the bucket's checkpoint.

    `table`: as ``database.table``, in backquotes where a name holds a dot. `start` and `end` are inclusive, a time with its whole millisecond;
    without them from the beginning, and up to the checkpoint. `options`: those of the bucket, as `Consumer` takes them, such as ``config`` and ``tz``; what is missing
    is inferred. Columns: those of the table, of all structures that it had in the window; ``_change_type`` (``insert``,
    ``update_postimage``, ``delete``), ``_commit_version`` (TSO), ``_commit_timestamp``, ``_table_version``, ``_file`` and ``_row``.

    Raises `ConfigError`, `NoMetadata`, `StorageUnavailable`, `FilesMissing` and `NotReplicable`; so does the reader, and `UndecodableRow`.
    """
    name = parsed(table)
    if name is None or not name.table:
        raise ConfigError(
            f"table {table!r}: database.table is expected, and `database`.`table` where a name holds a dot"
        )
    feed = _feed(upstream_uri, (f"{quote(name.schema)}.{quote(name.table)}",), options, SystemClock())
    low = max(0, (_tso("start", start) or 1) - 1)
    high = _tso("end", end, is_end=True)
    if high is not None and high < low:
        raise ConfigError(f"end {end} is before start {start}")
    window = feed.window(low, high)
    if low > feed.contents.checkpoint:
        raise ConfigError(beyond(low, feed.contents.checkpoint))
    refuse_none(feed.contents, table)
    schema = schema_of(feed.contents.in_force(window.low, max(window.low, window.high)))
    return pa.RecordBatchReader.from_batches(schema, _batches(feed, window, schema))


def _batches(feed: Feed, window: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    yield from record_batches(feed.ordered(window), schema, feed.protocol)


def _feed(upstream_uri: str, rules: tuple[str, ...], options: dict[str, Any], clock: Clock) -> Feed:
    given = {"upstream_uri": upstream_uri, **options}
    loaded, storage = Session(given, os.environ).open_bucket()
    return Feed(storage, loaded.config.upstream, clock, rules)


def _tso(name: str, instant: Instant | None, *, is_end: bool = False) -> int | None:
    """Return the TSO of an instant; raise `ConfigError` for one that may mean several."""
    if instant is None:
        return None
    try:
        return tso_of_instant(instant, is_end=is_end)
    except ValueError as fault:
        raise ConfigError(f"{name}: {fault}") from None
