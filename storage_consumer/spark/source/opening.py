"""Open the bucket that a source's options lead to: on the driver with their files and inference, on workers with what came of that."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from storage_consumer.clock import SystemClock
from storage_consumer.config.load import Loaded
from storage_consumer.config.secrets import names_of, secrets_from
from storage_consumer.config.settings import Upstream
from storage_consumer.errors import ConfigError, StorageConsumerError, UndecodableRow
from storage_consumer.feed.moves import moves
from storage_consumer.feed.reading import Feed
from storage_consumer.feed.records import Structure
from storage_consumer.feed.window import landmarks
from storage_consumer.frames.pieces import RESCUED, fields_of
from storage_consumer.model import TableName, folded_name
from storage_consumer.operating.session import Session
from storage_consumer.redaction import redact
from storage_consumer.spark.executors import at_executor, opened
from storage_consumer.spark.source.options import SourceOptions
from storage_consumer.spark.source.types import DOCUMENTS, RESERVED, whole_schema
from storage_consumer.storage.base import Storage

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A bucket as it was when the source was loaded. It holds no secret."""

    upstream: Upstream
    held: tuple[str, ...]
    """Names of the secrets that the driver has for the bucket."""
    checkpoint: int
    """Commit-ts up to which (inclusive) the bucket was complete."""
    high: int
    """Commit-ts up to which (inclusive) a batch reads."""
    schema: pa.Schema
    """All columns that there are."""
    known: frozenset[str]
    """Folded names of the columns that the table has had."""
    keys: str
    """See `types.KEYS`; empty for all tables."""
    moved: str
    """The last statement that moved the table's rows without a change of any, as JSON: its version, and what it did; empty: there is none."""
    landmarks: tuple[tuple[str, int], ...]
    """See `window.landmarks`."""
    rules: tuple[str, ...]
    """The rules of TiCDC's table filter for what is read; none for every table."""


def open_feed(options: SourceOptions, extra: Mapping[str, str] = NOTHING) -> tuple[Feed, Loaded]:
    """Return the feed of a source, and its settings. `extra`: more of them. Raises `ConfigError` and `StorageUnavailable`."""
    given = {"upstream_uri": options.uri, **options.bucket, **extra}
    loaded, storage = Session(given, os.environ).open_bucket()
    return Feed(storage, loaded.config.upstream, SystemClock(), _rules(options, loaded)), loaded


def _rules(options: SourceOptions, loaded: Loaded) -> tuple[str, ...]:
    return options.rules or tuple(loaded.config.selecting.rules)


def look_at(options: SourceOptions) -> Opened:
    """Return the bucket as it is now. Raises what `Feed.window` does, and `ConfigError` for columns that there are not."""
    feed, loaded = open_feed(options)
    # Whether all files of the window are there is asked where it is read: a stream goes on behind what is gone.
    high = feed.upto(options.high)
    # What a stream begins with that gives what commits from now on is what the table has now.
    low = feed.contents.checkpoint if options.from_latest else options.low
    own, known, keys, moved = tuple[pa.Field, ...](DOCUMENTS), frozenset[str](), "", ""
    if options.table is not None:
        structures = list(feed.contents.in_force(low, max(low, high)))
        if not structures:
            raise ConfigError(
                f"option table: the bucket has no table {options.table}; `storage-consumer inspect` lists its tables"
            )
        every, keys = fields_of(structures), _keys(structures)
        if not options.over_statements:
            moved = _last_move(options.table, low, high, feed)
        known = frozenset(folded_name(field.name) for field in every)
        own = _chosen(every, options.columns)
        if options.evolution == "rescue":
            own = (*own, pa.field(RESCUED, pa.string()))
    return Opened(
        upstream=loaded.config.upstream,
        held=held_for_bucket(loaded),
        checkpoint=feed.contents.checkpoint,
        high=high,
        schema=whole_schema(own),
        known=known,
        keys=keys,
        moved=moved,
        landmarks=landmarks(feed.contents.definitions),
        rules=_rules(options, loaded),
    )


def _keys(structures: Iterable[Structure]) -> str:
    """Return the names of the primary key's columns, from each table version on at which they are others."""
    found: list[tuple[int, list[str]]] = []
    for structure in sorted(structures, key=lambda each: each.version):
        names = list(structure.key_names)
        if not found or list(map(folded_name, found[-1][1])) != list(map(folded_name, names)):
            found.append((structure.version, names))
        # In the newest spelling, as the columns are.
        found[-1] = found[-1][0], names
    return json.dumps(found)


def _last_move(name: TableName, low: int, high: int, feed: Feed) -> str:
    """Return what stands in `Opened.moved`."""
    found = list(moves(name, low, high, feed.contents.definitions))
    return json.dumps(found[-1]) if found else ""


def _chosen(fields: tuple[pa.Field, ...], columns: tuple[str, ...]) -> tuple[pa.Field, ...]:
    """Return the columns that are asked for, all if none are."""
    by_name = {folded_name(field.name): field for field in fields}
    for name in columns:
        if folded_name(name) not in by_name:
            raise ConfigError(f"option columns: the table has no column {name}; it has: {', '.join(by_name)}")
    found = tuple(by_name[folded_name(name)] for name in columns) or fields
    for field in found:
        if folded_name(field.name) in RESERVED:
            raise ConfigError(
                f"the table has a column {field.name}, which is also the name of a column that the source adds: leave it out with the option "
                "columns"
            )
    return found


def held_for_bucket(loaded: Loaded) -> tuple[str, ...]:
    """Return the names of the secrets that the driver has for the bucket."""
    return tuple(name for name in names_of(loaded.secrets) if name != "password")


@contextmanager
def at_worker(upstream: Upstream, held: Sequence[str]) -> Iterator[Storage]:
    """Yield a storage as this worker reaches it, with the secrets of its own environment. `held`: names of those that the driver has."""
    with at_executor("", held):
        yield opened(upstream, secrets_from(""))


@contextmanager
def told() -> Iterator[None]:
    """Hide secrets in the messages of errors on their way to Spark, which shows them to its user and in its logs."""
    try:
        yield
    except UndecodableRow as fault:
        raise UndecodableRow(redact(str(fault)), at_end=fault.at_end, commit_ts=fault.commit_ts) from None
    except StorageConsumerError as fault:
        raise type(fault)(redact(str(fault))) from None
