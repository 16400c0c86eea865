"""Read a partition: the work of a Python worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import pyarrow as pa

from storage_consumer.config.settings import Protocol
from storage_consumer.feed.ordered import Ordered
from storage_consumer.feed.reading import ordered_in
from storage_consumer.feed.records import Change, Statement
from storage_consumer.feed.render_json import Images, dumped
from storage_consumer.feed.window import FeedFile, Window
from storage_consumer.frames.pieces import META, RESCUED, Asked, Piece, pieces
from storage_consumer.kernels.arrays import INSERT, UPDATE
from storage_consumer.model import CommitRange
from storage_consumer.spark.source.opening import Opened, at_worker, told
from storage_consumer.spark.source.options import SourceOptions
from storage_consumer.spark.source.partitions import FilesPartition
from storage_consumer.spark.source.types import SEQUENCE, own_fields, sequence

_ROWS = 10_000
"""Rows of a batch. Spark holds one at a time for each task."""
_STATEMENT = 2
"""The kind of a statement in `SEQUENCE`, after deletes and upserts."""


def read_partition(found: Opened, options: SourceOptions, partition: FilesPartition) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a partition. Raises `UndecodableRow`, `ConfigError`, and what the storage raises."""
    window = Window(low=partition.low, high=partition.high, files=partition.files, statements=partition.statements)
    with told(), at_worker(found.upstream, found.held) as storage:
        ordered = ordered_in(window, storage, found.upstream)
        if options.table is None:
            batches = _documents(ordered, partition, found.upstream.protocol)
        else:
            batches = _rows(ordered, options, found.upstream.protocol, partition)
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS):
                yield batch.slice(start, _ROWS)


def _range(work: FeedFile, partition: FilesPartition) -> CommitRange:
    return CommitRange(low=max(partition.low, work.floor), high=partition.high)


def _rows(
    ordered: Ordered, options: SourceOptions, protocol: Protocol, partition: FilesPartition
) -> Iterator[pa.RecordBatch]:
    """Yield typed rows of one table."""
    own = own_fields(partition.schema)
    asked = Asked(
        own=own,
        protocol=protocol,
        both_images=options.both_images,
        refuse_dates=options.refuse_dates,
        rescue=RESCUED in partition.schema.names,
    )
    for work in partition.files:
        for piece in pieces(ordered, work, _range(work, partition), asked):
            arrays = dict(zip([*(field.name for field in own), *_META_NAMES], piece.arrays(own), strict=True))
            yield _batch(arrays, piece, partition.schema)


_META_NAMES = tuple(field.name for field in META)


def _batch(arrays: dict[str, pa.Array], piece: Piece, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema in its order."""
    arrays[SEQUENCE.name] = sequence([arrays[name] for name in _META_NAMES], piece.operations)
    if RESCUED in schema.names:
        rescued = piece.columns.get(RESCUED)
        arrays[RESCUED] = pa.nulls(len(piece.ts), pa.string()) if rescued is None else rescued
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _documents(ordered: Ordered, partition: FilesPartition, protocol: Protocol) -> Iterator[pa.RecordBatch]:
    """Yield rows of all tables as JSON, and statements."""
    images = Images(protocol)
    held: list[dict[str, object]] = []
    for _, of_one_ts in groupby(partition.statements, key=lambda each: each.commit_ts):
        held += [_statement(each, place) for place, each in enumerate(of_one_ts)]
    for work in partition.files:
        for change in ordered.changes_of(work, _range(work, partition)):
            held.append(_document(change, images))
            if len(held) >= _ROWS:
                yield _of_documents(held, partition.schema)
                held = []
    if held:
        yield _of_documents(held, partition.schema)


_WORDS = {INSERT: "insert", UPDATE: "update"}


def _document(change: Change, images: Images) -> dict[str, object]:
    is_upsert = change.operation in _WORDS
    before, after = (change.old, change.values) if is_upsert else (change.values, None)
    given, structure = change.given(), change.structure
    return {
        "database": structure.table.schema,
        "table": structure.table.table,
        "before": _text(images.of(structure, before, given)),
        "after": _text(images.of(structure, after, given)),
        "statement": None,
        "_change_type": _WORDS.get(change.operation, "delete"),
        "_table_version": structure.version,
        **_place(change.commit_ts, int(is_upsert), change.file, change.row),
    }


def _text(image: Mapping[str, object] | None) -> str | None:
    return None if image is None else dumped(dict(image))


def _statement(statement: Statement, place: int) -> dict[str, object]:
    """Return the row of a statement. `place`: its number in the running order of those of its commit-ts, whatever files have them."""
    definition = statement.definition
    row = _place(statement.commit_ts, _STATEMENT, "", place)
    return {
        "database": definition.name.schema,
        "table": definition.name.table or None,
        "before": None,
        "after": None,
        "statement": definition.query,
        "_change_type": "ddl",
        "_table_version": definition.version,
        **row,
        "_file": definition.path,
    }


def _place(commit_ts: int, kind: int, file: str, row: int) -> dict[str, object]:
    return {
        "_commit_version": commit_ts,
        "_commit_timestamp": (commit_ts >> 18) * 1000,
        "_file": file,
        "_row": row,
        "_sequence": {"version": commit_ts, "kind": kind, "place": file, "row": row},
    }


def _of_documents(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row[field.name] for row in rows], field.type) for field in schema], schema=schema
    )
