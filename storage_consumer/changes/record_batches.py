"""The changes of one table of a bucket, as Arrow record batches in order and each once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage_consumer.changes.pieces import META, Piece, WantedColumns, fields_of, pieces
from storage_consumer.changes.reading import Feed, Ordered, once
from storage_consumer.changes.window import Change, Structure, beyond, refuse_none
from storage_consumer.clock import SystemClock
from storage_consumer.config.settings import Protocol
from storage_consumer.decode.kernels.arrays import DELETE, Flags, Offsets, Places, Stamps
from storage_consumer.errors import ConfigError
from storage_consumer.instants import Instant, tso_of_instant
from storage_consumer.model import CommitRange, folded_name
from storage_consumer.plan.table_words import named
from storage_consumer.session import Session

_ROWS = 65_536
"""Most rows of a batch."""
_Ranked = tuple[int, Piece]
"""Rank of the file among those of its table, and some of its changes."""


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
    name = named("table", table, whole=True)
    clock = SystemClock()
    loaded, storage = Session({"upstream_uri": upstream_uri, **options}, os.environ).open_bucket()
    rules = loaded.config.selecting.rules
    feed = Feed(storage, loaded.config.upstream, clock, rules, name)
    low = max(0, (_tso("start", start) or 1) - 1)
    high = _tso("end", end, is_end=True)
    if high is not None and high < low:
        raise ConfigError(f"end {end} is before start {start}")
    window = feed.window(low, high)
    if low > feed.contents.checkpoint:
        raise ConfigError(beyond(low, feed.contents.checkpoint))
    refuse_none(feed.contents, table, rules)
    schema = schema_of(feed.contents.in_force(window.low, max(window.low, window.high)))
    return pa.RecordBatchReader.from_batches(schema, _lazily(feed, window, schema))


def _lazily(feed: Feed, window: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    yield from record_batches(feed.ordered(window), schema, feed.protocol)


def _tso(name: str, instant: Instant | None, *, is_end: bool = False) -> int | None:
    """Return the TSO of an instant; raise `ConfigError` for one that may mean several."""
    if instant is None:
        return None
    try:
        return tso_of_instant(instant, is_end=is_end)
    except ValueError as fault:
        raise ConfigError(f"{name}: {fault}") from None


def schema_of(structures: Iterable[Structure]) -> pa.Schema:
    """Return the columns of all of a table's structures, the newest ones first, and what is known of each change.

    Raises `ConfigError` where a column has changed its type so that no one type holds all of its values, or has a name of `META`.
    """
    known = list(structures)
    own = fields_of(known)
    reserved = {field.name for field in META}
    for field in own:
        if folded_name(field.name) in reserved:
            raise ConfigError(
                f"{known[-1].table} has a column {field.name}, which is also the name of a column that is added here: read it with Spark's "
                'format("ticdc"), whose option columns leaves it out, or with `storage-consumer changes`'
            )
    return pa.schema([*own, *META])


def record_batches(ordered: Ordered, schema: pa.Schema, protocol: Protocol) -> Iterator[pa.RecordBatch]:
    """Yield all changes in order, each once. Raises `UndecodableRow`, which names file and row, and what the storage raises."""
    asked = WantedColumns(own=tuple(schema)[: -len(META)], protocol=protocol)
    for low, high, spans in ordered.parts():
        found = [
            (span.rank, piece)
            for span in spans
            # The rows of a file that belong to this slice.
            for piece in pieces(ordered, span.work, CommitRange(low=max(low, span.work.floor), high=high), asked)
        ]
        if found:
            tables = [pa.Table.from_arrays(piece.arrays(asked.own), schema=schema) for _, piece in found]
            table = pa.concat_tables(tables).take(pa.array(_in_order(found)))
            yield from table.combine_chunks().to_batches(max_chunksize=_ROWS)


def _in_order(found: Sequence[_Ranked]) -> Places:
    """Return the places of the changes in their order; repeated deliveries have one place."""
    ts = np.concatenate([piece.ts for _, piece in found])
    upserts = np.concatenate([piece.operations for _, piece in found]) > DELETE
    ranks = np.concatenate([np.full(len(piece.ts), rank) for rank, piece in found])
    numbers = np.concatenate([piece.numbers for _, piece in found])
    order = np.lexsort((numbers, ranks, upserts, ts))
    several = _in_several(ts[order], ranks[order])
    if not several.any():
        return order
    kept = ~several
    doubtful = order[several]
    changes = {int(place): _change(found, int(place)) for place in doubtful}
    chosen = set[int]()
    for group in _runs(ts[doubtful], doubtful):
        # `once` does not ask for the file, so that field tells which change it is.
        ranked = [(int(ranks[place]), changes[place]._replace(file=str(place))) for place in group]
        chosen |= {int(change.file) for change in once(ranked)}
    kept[several] = [int(place) in chosen for place in doubtful]
    return order[kept]


def _in_several(ts: Stamps, ranks: Offsets) -> Flags:
    """Return which of the sorted changes have a commit-ts that is in several files."""
    starts = np.flatnonzero(np.append(True, ts[1:] != ts[:-1]))
    low, high = np.minimum.reduceat(ranks, starts), np.maximum.reduceat(ranks, starts)
    lengths = np.diff(np.append(starts, len(ts)))
    return np.repeat(low != high, lengths)


def _runs(ts: Stamps, places: Places) -> Iterator[list[int]]:
    starts = np.flatnonzero(np.append(True, ts[1:] != ts[:-1]))
    for part in np.split(places, starts[1:]):
        yield [int(place) for place in part]


def _change(found: Sequence[_Ranked], place: int) -> Change:
    """Return one change, with its values as texts that are equal exactly if the values are."""
    for _, piece in found:
        if place < len(piece.ts):
            break
        place -= len(piece.ts)
    structure = piece.work.structure
    names = [folded_name(column.name) for column in structure.columns]
    cells = (piece.columns[name][place].as_py() for name in names)
    # Dates that no calendar has are all null as values.
    odd = (piece.odd[name][place].as_py() if name in piece.odd else None for name in names)
    values = tuple(text if cell is None else repr(cell) for cell, text in zip(cells, odd, strict=True))
    operation = int(piece.operations[place])
    return Change(int(piece.ts[place]), operation, values, None, structure, "", int(piece.numbers[place]))
