"""Partitions and how Python workers read them; repeated changes once, by `feed`'s rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.datasource import InputPartition

from storage_consumer.changes.reading import Ordered, once, ordered_in
from storage_consumer.changes.record_batches import META, RESCUED, WantedColumns, pieces, runs_of
from storage_consumer.changes.rendering import WORDS, Images, dumped
from storage_consumer.changes.window import Change, FeedFile, Structure, Window
from storage_consumer.config.settings import Protocol
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, UPDATE
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn, TableName, folded_name
from storage_consumer.spark.source.opening import (
    SEQUENCE,
    Opened,
    SourceOptions,
    at_worker,
    own_columns,
    own_fields,
    sequence,
    told,
)

_OF_A_FILE = 256 << 10
"""As many bytes as are read in the time in which a file is opened."""
_LEAST = 4 << 20
"""Bytes for which a task of its own is worth its start."""


@dataclass(frozen=True)
class FilesPartition(InputPartition):
    """Files of a window, and the columns that are wanted of them."""

    window: Window
    schema: pa.Schema


def packed(files: Sequence[FeedFile], most: int, cores: int) -> Iterator[list[FeedFile]]:
    """Yield adjacent files per task: at most about `most` bytes, shared by `cores` tasks.

    Small files take longer than their bytes: each is a request of its own.
    """
    share = max(_LEAST, sum(map(_cost, files)) / cores)
    held: list[FeedFile] = []
    size, cost = 0, 0.0
    for work in files:
        if held and (size + work.file.stored.size > most or cost >= share):
            yield held
            held, size, cost = [], 0, 0.0
        held.append(work)
        size += work.file.stored.size
        cost += _cost(work)
    if held:
        yield held


def _cost(work: FeedFile) -> int:
    return work.file.stored.size + _OF_A_FILE


_ROWS = 10_000
"""Rows of a batch. Spark holds one at a time for each task."""
_STATEMENT = 2
"""The kind of a statement in `SEQUENCE`, after deletes and upserts."""


class Tasks:
    """The tasks of a batch, or of a stream's micro-batches."""

    def __init__(self, options: SourceOptions, opened: Opened, schema: pa.Schema) -> None:
        """Read columns of what was complete when the bucket was `opened`, or of a stream."""
        self.options = options
        self.opened = opened
        self.schema = schema

    def tasks(self, window: Window) -> list[InputPartition]:
        """Return a window in partitions; see `packed`."""
        groups = packed(window.files, self.options.partition_bytes, self.options.cores)
        windows = [replace(window, files=tuple(files), statements=()) for files in groups]
        if window.statements:
            windows.append(replace(window, files=()))
        return [FilesPartition(each, self.schema) for each in windows]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's changes; raise `UndecodableRow`, `ConfigError`, or as the storage."""
        assert isinstance(partition, FilesPartition)
        upstream = self.opened.upstream
        with told(), at_worker(upstream, self.opened.held) as storage:
            ordered = ordered_in(partition.window, storage, upstream)
            if self.options.table is None:
                batches = _documents(ordered, partition, upstream.protocol)
            else:
                batches = _rows(ordered, self.options, upstream.protocol, partition)
            for batch in batches:
                for start in range(0, batch.num_rows, _ROWS):
                    yield batch.slice(start, _ROWS)


def _rows(
    ordered: Ordered, options: SourceOptions, protocol: Protocol, partition: FilesPartition
) -> Iterator[pa.RecordBatch]:
    """Yield typed rows of one table."""
    window, schema = partition.window, partition.schema
    own = own_fields(schema)
    asked = WantedColumns(
        own=own,
        protocol=protocol,
        both_images=options.both_images,
        refuse_dates=options.refuse_dates,
        rescue=RESCUED in schema.names,
    )
    names, meta = [*(field.name for field in own), *_META_NAMES], len(own)
    for work in ordered.early(window.files):
        for piece in pieces(ordered, work, work.between(window.low, window.high), asked):
            found = piece.arrays(own)
            arrays = dict(zip(names, found, strict=True))
            arrays[SEQUENCE.name] = sequence(found[meta:], piece.operations)
            if RESCUED in schema.names:
                rescued = piece.columns.get(RESCUED)
                arrays[RESCUED] = (
                    pa.nulls(len(piece.ts), pa.string()) if rescued is None else rescued
                )
            yield pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


_META_NAMES = tuple(field.name for field in META)


def _documents(
    ordered: Ordered, partition: FilesPartition, protocol: Protocol
) -> Iterator[pa.RecordBatch]:
    """Yield rows of all tables as JSON, and statements; what a row does not have is null."""
    images = Images(protocol)
    held: list[dict[str, object]] = []
    for _, of_one_ts in groupby(partition.window.statements, key=lambda each: each.commit_ts):
        # By their running order, whatever files have them.
        for number, each in enumerate(of_one_ts):
            definition = each.definition
            row = _row(definition.name, each.commit_ts, _STATEMENT, "", number)
            row |= {
                "statement": definition.query,
                "_change_type": "ddl",
                "_table_version": definition.version,
            }
            held.append(row | {"_file": definition.path})
    for work in ordered.early(partition.window.files):
        for change in ordered.changes_of(
            work, work.between(partition.window.low, partition.window.high)
        ):
            before, after = (
                None if image is None else dumped(image) for image in images.of(change)
            )
            word, structure = WORDS.get(change.operation), change.structure
            row = _row(
                structure.table, change.commit_ts, int(word is not None), change.file, change.row
            )
            row |= {"before": before, "after": after}
            held.append(
                row | {"_change_type": word or "delete", "_table_version": structure.version}
            )
            if len(held) >= _ROWS:
                yield pa.RecordBatch.from_pylist(held, schema=partition.schema)
                held = []
    if held:
        yield pa.RecordBatch.from_pylist(held, schema=partition.schema)


def _row(name: TableName, commit_ts: int, kind: int, file: str, row: int) -> dict[str, object]:
    return {
        "database": name.schema,
        "table": name.table or None,
        "_commit_version": commit_ts,
        "_commit_timestamp": (commit_ts >> 18) * 1000,
        "_file": file,
        "_row": row,
        "_sequence": {"version": commit_ts, "kind": kind, "place": file, "row": row},
    }


_OPERATIONS = {"delete": DELETE, "insert": INSERT, "update_postimage": UPDATE}
_NUMBER = re.compile(r"(\d+)\.\w+$")
_PREIMAGE = "update_preimage"
Keys = Sequence[tuple[int, Sequence[str]]]
"""By first table version, the columns of the primary key."""


def without_repeats(feed: DataFrame, keys: Keys) -> DataFrame:
    """Return a feed with each change once."""
    schema = feed.schema

    def kept(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in transactions_once(batches, keys):
            yield from table.to_batches()

    return (
        feed.repartition("_commit_version")
        .sortWithinPartitions("_commit_version", "_sequence")
        .mapInArrow(kept, schema)
    )


def transactions_once(batches: Iterator[pa.RecordBatch], keys: Keys) -> Iterator[pa.Table]:
    """Yield changes, sorted by `_sequence`, each once; those of one commit-ts together."""
    for table in _transactions(batches):
        versions = table.column("_commit_version").to_numpy()
        files = np.unique(
            table.column("_file").to_numpy(zero_copy_only=False), return_inverse=True
        )[1]
        starts, ends, is_several = runs_of(versions, files)
        kept = np.ones(len(versions), np.bool_)
        for start, end in zip(starts[is_several], ends[is_several], strict=True):
            kept[start:end] = _of_one(table.slice(start, end - start), files[start:end], keys)
        yield table.take(pa.array(np.flatnonzero(kept)))


def _transactions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield sorted changes so that those of one commit-ts come together."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        versions = batch.column("_commit_version").to_numpy()
        # The last transaction may go on in the next batch.
        rest = int(np.searchsorted(versions, versions[-1]))
        if rest:
            yield pa.Table.from_batches([*held, batch.slice(0, rest)])
            held = []
        held.append(batch.slice(rest))
    if held:
        yield pa.Table.from_batches(held)


def _of_one(table: pa.Table, files: NDArray[np.int64], keys: Keys) -> list[bool]:
    """Return which changes of one commit-ts are no repeats."""
    names, ranks = own_columns(table.schema.names), _ranks(table, files)
    layout = RowLayout(
        table=TableName(schema="", table=""),
        columns=tuple(TableColumn(name=name, type="TEXT") for name in names),
    )
    by_name = {folded_name(name): place for place, name in enumerate(names)}
    structures = {
        version: Structure(
            layout=layout, version=0, key=tuple(by_name[folded_name(name)] for name in columns)
        )
        for version, columns in keys
    }
    texts = (
        [None if value is None else repr(value) for value in table.column(name).to_pylist()]
        for name in names
    )
    rows = zip(*texts, strict=True)
    kinds = table.column("_change_type").to_pylist()
    versions, numbers = table.column("_table_version").to_pylist(), table.column("_row").to_pylist()
    ranked = []
    for place, (kind, values) in enumerate(zip(kinds, rows, strict=True)):
        structure = structures[
            max((v for v in structures if v <= versions[place]), default=min(structures))
        ]
        if kind != _PREIMAGE:
            if any(values[at] is None for at in structure.key):
                raise NotReplicable(null_key(structure.key_names))
            # `once` does not ask for the file, so that field tells which change it is.
            change = Change(
                0, _OPERATIONS[kind], values, None, structure, str(place), numbers[place]
            )
            ranked.append((int(ranks[files[place]]), change))
    chosen = {int(change.file) for change in once(ranked)}
    # An old row goes with its new one.
    updated = {(files[place], numbers[place]) for place in chosen}
    return [
        (files[place], numbers[place]) in updated if kind == _PREIMAGE else place in chosen
        for place, kind in enumerate(kinds)
    ]


def _ranks(table: pa.Table, files: NDArray[np.int64]) -> dict[int, int]:
    """Return a rank per file, by its number: one more for the next file, else a higher one."""
    paths = {
        int(number): str(path)
        for number, path in zip(files, table.column("_file").to_pylist(), strict=True)
    }
    ranks: dict[int, int] = {}
    rank, before = 0, ("", "", 0)
    for number in sorted(paths, key=lambda number: paths[number]):
        # The folder of the file, its name without its number, and the number.
        folder, _, name = paths[number].rpartition("/")
        match = _NUMBER.search(name)
        found = (
            (folder, name, 0) if match is None else (folder, name[: match.start()], int(match[1]))
        )
        is_next = found[:2] == before[:2] and found[2] == before[2] + 1
        # The first file of a day follows the last one of the day before.
        begins = found[0] != before[0] and found[2] == 1
        rank += 1 if is_next or begins else 2
        ranks[number], before = rank, found
    return ranks


def null_key(names: Sequence[str]) -> str:
    """Return why rows with null in their primary key are an error: nothing tells them apart."""
    return f"a row has null in its primary key ({', '.join(names)}): a date that no calendar has, or a column that was renamed or left out"
