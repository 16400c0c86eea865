"""Changes that TiCDC delivered more than once, each once: by the rules of `feed`, transaction by transaction."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from storage_consumer.decode.decoder import RowLayout
from storage_consumer.errors import NotReplicable
from storage_consumer.feed.records import Change, Structure
from storage_consumer.feed.repeats import once
from storage_consumer.kernels.arrays import DELETE, INSERT, UPDATE
from storage_consumer.model import TableColumn, TableName, folded_name
from storage_consumer.spark.source.types import own_columns

_WORDS = {"delete": DELETE, "insert": INSERT, "update_postimage": UPDATE}
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
    """Yield changes, which are sorted by `_sequence`, each once; those of one commit-ts come together."""
    for table in _transactions(batches):
        yield table.take(pa.array(_once(table, keys)))


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


def _once(table: pa.Table, keys: Keys) -> NDArray[np.intp]:
    """Return the places of the changes that are no repeats."""
    versions = table.column("_commit_version").to_numpy()
    files = np.unique(table.column("_file").to_numpy(zero_copy_only=False), return_inverse=True)[1]
    starts = np.flatnonzero(np.append(True, versions[1:] != versions[:-1]))
    is_several = np.minimum.reduceat(files, starts) != np.maximum.reduceat(files, starts)
    kept = np.ones(len(versions), np.bool_)
    ends = np.append(starts[1:], len(versions))
    for start, end in zip(starts[is_several], ends[is_several], strict=True):
        kept[start:end] = _of_one(table.slice(start, end - start), files[start:end], keys)
    return np.flatnonzero(kept)


def _of_one(table: pa.Table, files: NDArray[np.int64], keys: Keys) -> list[bool]:
    """Return which changes of one commit-ts are no repeats."""
    names, ranks = own_columns(table.schema.names), _ranks(table, files)
    structures = {version: _structure(names, columns) for version, columns in keys}
    rows = zip(*(map(_text, table.column(name).to_pylist()) for name in names), strict=True)
    kinds = table.column("_change_type").to_pylist()
    versions, numbers = table.column("_table_version").to_pylist(), table.column("_row").to_pylist()
    ranked = []
    for place, (kind, values) in enumerate(zip(kinds, rows, strict=True)):
        structure = structures[max((v for v in structures if v <= versions[place]), default=min(structures))]
        if kind != _PREIMAGE:
            if any(values[at] is None for at in structure.key):
                raise NotReplicable(null_key(structure.key_names))
            # `once` does not ask for the file, so that field tells which change it is.
            change = Change(0, _WORDS[kind], values, None, structure, str(place), numbers[place])
            ranked.append((int(ranks[files[place]]), change))
    chosen = {int(change.file) for change in once(ranked)}
    # An old row goes with its new one.
    updated = {(files[place], numbers[place]) for place in chosen}
    return [
        (files[place], numbers[place]) in updated if kind == _PREIMAGE else place in chosen
        for place, kind in enumerate(kinds)
    ]


def _ranks(table: pa.Table, files: NDArray[np.int64]) -> dict[int, int]:
    """Return a rank for each file, by its number in the batch: that after another one's if it is the next file, and a higher one if not."""
    paths = {int(number): str(path) for number, path in zip(files, table.column("_file").to_pylist(), strict=True)}
    ranks: dict[int, int] = {}
    rank, before = 0, ("", "", 0)
    for number in sorted(paths, key=lambda number: paths[number]):
        found = _numbered(paths[number])
        is_next = found[:2] == before[:2] and found[2] == before[2] + 1
        # The first file of a day follows the last one of the day before.
        begins = found[0] != before[0] and found[2] == 1
        rank += 1 if is_next or begins else 2
        ranks[number], before = rank, found
    return ranks


def _numbered(path: str) -> tuple[str, str, int]:
    """Return the folder of a file, its name without its number, and the number."""
    folder, _, name = path.rpartition("/")
    found = _NUMBER.search(name)
    return (folder, name, 0) if found is None else (folder, name[: found.start()], int(found[1]))


def null_key(names: Sequence[str]) -> str:
    """Return why rows with null in their primary key are an error: they could not be told from each other."""
    return f"a row has null in its primary key ({', '.join(names)}): a date that no calendar has, or a column that was renamed or left out"


def _text(value: object) -> str | None:
    return None if value is None else repr(value)


def _structure(names: Sequence[str], key: Sequence[str]) -> Structure:
    columns = tuple(TableColumn(name=name, type="TEXT") for name in names)
    by_name = {folded_name(name): place for place, name in enumerate(names)}
    return Structure(
        layout=RowLayout(table=TableName(schema="", table=""), columns=columns),
        version=0,
        key=tuple(by_name[folded_name(name)] for name in key),
    )
