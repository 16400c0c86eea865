"""A table's changes as Arrow record batches: in order and once, or a file's rows as pieces.

A piece has its rows in the order of the file and with whatever TiCDC delivered twice.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from storage_consumer.changes.reading import Feed, Ordered, in_parts, once
from storage_consumer.changes.rendering import json_reader, reader
from storage_consumer.changes.window import Change, FeedFile, Structure, beyond, refuse_none
from storage_consumer.clock import SystemClock
from storage_consumer.config.settings import Protocol
from storage_consumer.decode.decoder import ABSENT, Batch, RowChange, Tally
from storage_consumer.decode.kernels.arrays import (
    DELETE,
    INSERT,
    PARTIAL_DELETE,
    UPDATE,
    Flags,
    Offsets,
    Operations,
    Packed,
    Places,
    Stamps,
)
from storage_consumer.decode.values import BINARY_TYPES, INTEGER_TYPES
from storage_consumer.errors import ConfigError, UndecodableRow
from storage_consumer.model import CommitRange, TableColumn, folded_name
from storage_consumer.plan.table_words import named
from storage_consumer.session import Session
from storage_consumer.tso import Instant, tso_of_instant

_MOST_DIGITS = 38
"""Of a decimal of 128 bits."""
_INTEGERS = {
    "TINYINT": pa.int16(),
    "SMALLINT": pa.int32(),
    "MEDIUMINT": pa.int32(),
    "INT": pa.int64(),
}
"""Wide enough for unsigned ones."""
_TYPES: dict[str, pa.DataType] = {
    "YEAR": pa.int32(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "DATETIME": pa.timestamp("us"),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "BIT": pa.binary(),
    **dict.fromkeys(BINARY_TYPES, pa.binary()),
}
_MOMENTS = ("DATE", "DATETIME", "TIMESTAMP")
_MOMENT = re.compile(r"\d{4}-[01]\d-[0-3]\d(?: (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?)?")
_WITH_ZERO = r"^0000|-00-|-00( |$)"
"""Dates with a zero, which TiDB allows and no calendar has."""


def arrow_type(column: TableColumn) -> pa.DataType:
    """Return the type of a column's values.

    Whole numbers are as wide as unsigned ones need; BIGINT UNSIGNED is a decimal of 20 digits, as
    in Spark. BIT is bytes. TIME, JSON, VECTOR, ENUM, SET and decimals of more than 38 digits are
    texts.
    """
    if column.type == "BIGINT":
        return pa.decimal128(20, 0) if column.unsigned else pa.int64()
    if column.type == "DECIMAL":
        digits, scale = column.precision or 10, column.scale or 0
        return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else pa.string()
    return _INTEGERS.get(column.type) or _TYPES.get(column.type) or pa.string()


def packed_array(packed: Packed) -> pa.Array:
    """Return packed values as an array, without a copy."""
    bits = np.packbits(packed.valid, bitorder="little")
    buffers = [pa.py_buffer(bits), pa.py_buffer(packed.offsets), pa.py_buffer(packed.bytes)]
    kind = pa.binary() if packed.is_binary else pa.string()
    return pa.Array.from_buffers(kind, len(packed.valid), buffers)


def array_of(
    column: TableColumn, texts: Sequence[str | None] | pa.Array, protocol: Protocol
) -> pa.Array:
    """Return the array of a column's wire texts, or of what `packed_array` made of them.

    A date that no calendar has becomes null. Raises `ValueError` for a text of another type.
    """
    kind = arrow_type(column)
    if isinstance(texts, pa.Array) and texts.type == kind:
        return texts
    if column.type == "BIT":
        size = -(-(column.precision or 1) // 8)
        return pa.array(
            [None if text is None else int(text).to_bytes(size, "big") for text in texts], kind
        )
    if column.type in BINARY_TYPES or column.type in ("ENUM", "SET"):
        read = reader(column, protocol)
        values = [None if text is None else read(text) for text in texts]
        return pa.array(
            [v if v is None or isinstance(v, (str, bytes)) else str(v) for v in values], kind
        )
    found = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    if column.type in _MOMENTS:
        plain = pa.date32() if column.type == "DATE" else pa.timestamp("us")
        odd = pc.match_substring_regex(found, _WITH_ZERO)
        found = pc.if_else(pc.fill_null(odd, False), pa.scalar(None, pa.string()), found)  # noqa: FBT003 - Arrow's own order of arguments
        try:
            dates = found.cast(plain)
        except pa.ArrowInvalid:
            # TiDB stores the 31st of any month, if it is told to.
            known = [text if text is None or _exists(text) else None for text in found.to_pylist()]
            dates = pa.array(known).cast(plain)
        return dates.cast(kind)
    return found if kind == pa.string() else found.cast(kind)


def digits_of(column: TableColumn, values: pa.Array) -> pa.Array:
    """Return decimals as texts with all digits of the column's scale.

    They are given as decimals or texts, of this scale or a smaller one.
    """
    form = f".{column.scale or 0}f"
    texts = [
        None if value is None else format(Decimal(value), form) for value in values.to_pylist()
    ]
    return pa.array(texts, pa.string())


def _exists(text: str) -> bool:
    """Return whether a calendar has a date, maybe with time; raise `ValueError` for no date."""
    if _MOMENT.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no date")
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def integers(column: TableColumn, values: Any) -> pa.Array:
    """Return the array of a column of whole numbers."""
    return pa.array(values, pa.int64()).cast(arrow_type(column))


_KINDS = pa.array(["delete", "delete", "insert", "update_postimage", "update_preimage"])
"""By the operation, from PARTIAL_DELETE on."""
RESCUED = "_rescued_data"
"""Name of the column with what no other column holds."""
_WHOLE = INTEGER_TYPES | {"YEAR"}
_LONGEST_INTEGER = 19
"""Digits of the largest number of 64 bits."""
_ROWS_AT_ONCE = 20_000
"""Most changes that are decoded one by one before they become columns."""
_COLUMN_KINDS = (np.int64, np.uint64, np.int8)
META = (
    pa.field("_change_type", pa.string(), nullable=False),
    pa.field("_commit_version", pa.int64(), nullable=False),
    pa.field("_commit_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("_table_version", pa.int64(), nullable=False),
    pa.field("_file", pa.string(), nullable=False),
    pa.field("_row", pa.int64(), nullable=False),
)
"""What is known of each change, named as in Spark's and Delta's change feeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedColumns:
    """Which columns are wanted, and of which changes."""

    own: tuple[pa.Field, ...]
    """The table's columns; one that a file lacks is null there."""
    protocol: Protocol
    both_images: bool = False
    """Whether an update's old row is wanted too, where the files have it."""
    refuse_dates: bool = False
    """Whether a date that no calendar has is an error; else it is null."""
    rescue: bool = False
    """Whether the columns that are none of `own` are wanted as JSON, in the column `RESCUED`."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Piece:
    """Changes that were decoded together: every array has one entry for each."""

    work: FeedFile
    ts: Stamps
    operations: Operations
    numbers: Offsets
    """Row numbers in the file, from 1. The two parts of an update have the same."""
    columns: Mapping[str, pa.Array]
    """By folded name."""
    odd: Mapping[str, pa.Array]
    """By folded name, of columns that are null for a date that no calendar has: its wire text, and
    null where the value is what it seems.
    """

    def arrays(self, own: Sequence[pa.Field]) -> list[pa.Array]:
        """Return the values of some columns, then those of `META`."""
        count = len(self.ts)
        arrays = []
        for field in own:
            found = self.columns.get(folded_name(field.name))
            arrays.append(pa.nulls(count, field.type) if found is None else found.cast(field.type))
        versions = self.ts.astype(np.int64)
        return [
            *arrays,
            _KINDS.take(pa.array(self.operations - PARTIAL_DELETE)),
            pa.array(versions),
            pa.array((versions >> 18) * 1000).cast(pa.timestamp("us", tz="UTC")),
            pa.array(np.full(count, self.work.structure.version, np.int64)),
            pa.repeat(self.work.file.stored.path, count),
            pa.array(self.numbers),
        ]

    def unshown(self) -> pa.Array:
        """Return what each change has beside its columns, as text, or null.

        That is what was rescued, and dates that no calendar has.
        """
        parts = {name: array.to_pylist() for name, array in self.odd.items()}
        if RESCUED in self.columns:
            parts[RESCUED] = self.columns[RESCUED].to_pylist()
        rows = (dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True))
        texts = ({name: text for name, text in row.items() if text is not None} for row in rows)
        return pa.array(
            [json.dumps(row) if row else None for row in texts] or [None] * len(self.ts),
            pa.string(),
        )


def fields_of(structures: Iterable[Structure]) -> tuple[pa.Field, ...]:
    """Return the columns of all of a table's structures, the newest ones first.

    Raises `ConfigError` where a column has changed its type so that no one type holds all of its
    values.
    """
    found: dict[str, pa.Field] = {}
    since = 0
    for structure in sorted(structures, key=lambda each: -each.version):
        for column in structure.columns:
            name, kind = folded_name(column.name), arrow_type(column)
            known = found.setdefault(name, pa.field(column.name, kind))
            if not holds(known.type, kind):
                raise ConfigError(
                    f"{structure.table}: column {column.name} is {known.type} now, and was {kind} before table version {since}: read the changes up "
                    f"to {since} and those behind it in two windows, or begin a stream with startingVersion = {since + 1}"
                )
        since = structure.version
    return tuple(found.values())


def holds(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether a type holds all values of another one, each as it is written."""
    if kind == other or (kind == pa.string() and pa.types.is_integer(other)):
        return True
    if pa.types.is_integer(other) and pa.types.is_integer(kind):
        return bool(kind.bit_width >= other.bit_width)
    if pa.types.is_floating(other) and pa.types.is_floating(kind):
        return bool(kind.bit_width >= other.bit_width)
    if not pa.types.is_decimal(kind):
        return False
    if pa.types.is_integer(other):
        return bool(kind.precision - kind.scale >= _LONGEST_INTEGER)
    whole = (
        pa.types.is_decimal(other) and kind.precision - kind.scale >= other.precision - other.scale
    )
    return bool(whole and kind.scale >= other.scale)


def pieces(
    ordered: Ordered, work: FeedFile, commit_range: CommitRange, asked: WantedColumns
) -> Iterator[Piece]:
    """Yield a file's changes in any order; raise `UndecodableRow`, or as the storage does."""
    tally, single = Tally(), list[RowChange]()
    read = ordered.read(work, commit_range, tally)
    # Only row by row the old images are there.
    found = ordered.decoder.rows(read) if asked.both_images else ordered.decoder.changes(read)
    with ordered.whole_rows(work, tally):
        for each in found:
            if isinstance(each, tuple):
                single += in_parts(each, work.structure.key, both=asked.both_images)
            elif len(each.ts):
                yield _of_batch(each, work, asked)
            if len(single) >= _ROWS_AT_ONCE:
                yield _of_rows(single, work, asked)
                single = []
    if single:
        yield _of_rows(single, work, asked)


def _of_batch(batch: Batch, work: FeedFile, asked: WantedColumns) -> Piece:
    # Where the old rows are of updates that keep their row's key; each has its new row behind it.
    all_numbers, all_operations = batch.numbers, batch.operations
    is_pair = (all_operations[:-1] == DELETE) & (all_operations[1:] == INSERT)
    joined = np.flatnonzero((all_numbers[1:] == all_numbers[:-1]) & is_pair)
    key = work.structure.key
    joined = joined if key else joined[:0]
    for place in key:
        pairs = zip(batch.texts(place, joined), batch.texts(place, joined + 1), strict=True)
        joined = joined[np.array([old == new for old, new in pairs], np.bool_)]
    operations = batch.operations.copy()
    operations[joined + 1] = UPDATE
    chosen = np.delete(np.arange(len(batch.ts)), joined)

    def whole(place: int) -> Offsets | None:
        numbers = batch.integers(place)
        return None if numbers is None else numbers[chosen]

    def values(place: int) -> Sequence[str | None] | pa.Array:
        kind = work.structure.columns[place].type
        # Values of all others are their packed texts or bytes, or what Arrow makes of the texts.
        is_other = kind == "BIT" or (asked.protocol == "canal-json" and kind in ("ENUM", "SET"))
        packed = None if is_other else batch.packed(place, chosen)
        return batch.texts(place, chosen) if packed is None else packed_array(packed)

    numbers = batch.numbers[chosen]
    return _Columns(work, numbers, asked).piece(batch.ts[chosen], operations[chosen], values, whole)


def _of_rows(changes: Sequence[RowChange], work: FeedFile, asked: WantedColumns) -> Piece:
    numbers, ts, operations = (
        np.array([c[n] for c in changes], kind) for n, kind in enumerate(_COLUMN_KINDS)
    )
    columns = _Columns(work, numbers, asked)
    return columns.piece(
        ts, operations, lambda place: [change[3][place] for change in changes], lambda _: None
    )


@dataclass(slots=True)
class _Columns:
    """Makes the columns of changes that were decoded together."""

    work: FeedFile
    numbers: Offsets
    asked: WantedColumns

    def piece(
        self,
        ts: Stamps,
        operations: Operations,
        values: Callable[[int], Sequence[str | None] | pa.Array],
        whole: Callable[[int], Offsets | None],
    ) -> Piece:
        """Return changes with the wanted columns, given by their indexes in the layout.

        `values`: its wire texts, or what `packed_array` makes of them; `whole`: its whole numbers,
        which may be None. Raises `UndecodableRow` for a text of another type.
        """
        names = {folded_name(field.name) for field in self.asked.own}
        found, odd, others = {}, {}, {}
        for place, column in enumerate(self.work.structure.columns):
            name = folded_name(column.name)
            if name not in names and not self.asked.rescue:
                continue
            integral = whole(place) if name in names and column.type in _WHOLE else None
            if integral is not None:
                found[name] = integers(column, integral)
                continue
            given = values(place)
            # Rows do not have all values.
            if self.work.structure.layout.may_lack and not isinstance(given, pa.Array):
                given = [None if text is ABSENT else text for text in given]
            if name not in names:
                read = json_reader(column, self.asked.protocol)
                cells = given.to_pylist() if isinstance(given, pa.Array) else given
                others[column.name] = [
                    base64.b64encode(cell).decode()
                    if isinstance(cell, bytes)
                    else None
                    if cell is None
                    else read(cell)
                    for cell in cells
                ]
                continue
            try:
                found[name] = array_of(column, given, self.asked.protocol)
            except (pa.ArrowInvalid, ValueError, OverflowError) as fault:
                first, last = self.numbers[0], self.numbers[-1]
                rows = f"rows {first} to {last}" if len(self.numbers) > 1 else f"row {first}"
                raise UndecodableRow(
                    f"{self.work.file.stored.path}: {rows}: a value of column {column.name} is not of its type: {fault}"
                ) from fault
            if (texts := _odd_dates(given, found[name])) is not None:
                if self.asked.refuse_dates:
                    odd_one = next(n for n in range(len(texts)) if texts[n].is_valid)
                    raise UndecodableRow(
                        f"{self.work.file.stored.path}: row {self.numbers[odd_one]}: column {column.name}: {texts[odd_one].as_py()!r} is a date that no calendar has; the "
                        "option invalidDates = null makes it null"
                    )
                odd[name] = texts
        if others:
            documents = (
                dict(zip(others, row, strict=True)) for row in zip(*others.values(), strict=True)
            )
            found[RESCUED] = pa.array(
                [json.dumps(each, ensure_ascii=False) for each in documents], pa.string()
            )
        return Piece(
            work=self.work,
            ts=ts,
            operations=operations,
            numbers=self.numbers,
            columns=found,
            odd=odd,
        )


def _odd_dates(values: Sequence[str | None] | pa.Array, found: pa.Array) -> pa.Array | None:
    """Return the texts that became null, and null for all others; None if there are none."""
    # Nothing but a date becomes null.
    if not pa.types.is_temporal(found.type) or not found.null_count:
        return None
    given = values if isinstance(values, pa.Array) else pa.array(values, pa.string())
    if found.null_count == given.null_count:
        return None
    return pc.if_else(pc.is_null(found), given, pa.scalar(None, given.type))


_ROWS = 65_536
"""Most rows of a batch."""
_Ranked = tuple[int, Piece]
"""Rank of the file among those of its table, and some of its changes."""


def read_changes(
    upstream_uri: str,
    table: str,
    *,
    start: Instant | None = None,
    end: Instant | None = None,
    **options: Any,
) -> pa.RecordBatchReader:
    """Return the row changes of a table, in commit order, each once, up to the bucket's checkpoint.

    `table`: as ``database.table``, in backquotes where a name holds a dot. `start` and `end` are
    inclusive, a time with its whole millisecond; without them from the beginning, and up to the
    checkpoint. `options`: those of the bucket, as `Consumer` takes them, such as ``config`` and
    ``tz``; what is missing is inferred. Columns: those of the table, of all structures that it had
    in the window; ``_change_type`` (``insert``, ``update_postimage``, ``delete``),
    ``_commit_version`` (TSO), ``_commit_timestamp``, ``_table_version``, ``_file`` and ``_row``.

    Raises `ConfigError`, `NoMetadata`, `StorageUnavailable`, `FilesMissing` and `NotReplicable`; so
    does the reader, and `UndecodableRow`.
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
    return pa.RecordBatchReader.from_batches(
        schema, record_batches(feed.ordered(window), schema, feed.protocol)
    )


def _tso(name: str, instant: Instant | None, *, is_end: bool = False) -> int | None:
    """Return the TSO of an instant; raise `ConfigError` for one that may mean several."""
    if instant is None:
        return None
    try:
        return tso_of_instant(instant, is_end=is_end)
    except ValueError as fault:
        raise ConfigError(f"{name}: {fault}") from None


def schema_of(structures: Iterable[Structure]) -> pa.Schema:
    """Return the columns of all structures, newest first, and what each change says of itself.

    Raises `ConfigError` where a column has changed its type so that no one type holds all of its
    values, or has a name of `META`.
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


def record_batches(
    ordered: Ordered, schema: pa.Schema, protocol: Protocol
) -> Iterator[pa.RecordBatch]:
    """Yield all changes in order, once; raise `UndecodableRow`, or as the storage does."""
    asked = WantedColumns(own=tuple(schema)[: -len(META)], protocol=protocol)
    for low, high, spans in ordered.parts():
        found = [
            (span.rank, piece)
            for span, work in zip(spans, ordered.early([s.work for s in spans]), strict=True)
            for piece in pieces(ordered, work, work.between(low, high), asked)
        ]
        if found:
            tables = [
                pa.Table.from_arrays(piece.arrays(asked.own), schema=schema) for _, piece in found
            ]
            table = pa.concat_tables(tables).take(pa.array(_in_order(found)))
            yield from table.combine_chunks().to_batches(max_chunksize=_ROWS)


def runs_of(ts: NDArray[Any], files: NDArray[Any]) -> tuple[Places, Places, Flags]:
    """Return begin and end of each commit-ts in sorted changes, and if several files share it."""
    starts = np.flatnonzero(np.append(True, ts[1:] != ts[:-1]))
    is_several = np.minimum.reduceat(files, starts) != np.maximum.reduceat(files, starts)
    return starts, np.append(starts[1:], len(ts)), is_several


def _in_order(found: Sequence[_Ranked]) -> Places:
    """Return the places of the changes in their order; repeated deliveries have one place."""
    ts = np.concatenate([piece.ts for _, piece in found])
    upserts = np.concatenate([piece.operations for _, piece in found]) > DELETE
    ranks = np.concatenate([np.full(len(piece.ts), rank) for rank, piece in found])
    numbers = np.concatenate([piece.numbers for _, piece in found])
    order: Places = np.lexsort((numbers, ranks, upserts, ts))
    starts, ends, is_several = runs_of(ts[order], ranks[order])
    several: Flags = np.repeat(is_several, ends - starts)
    if not several.any():
        return order
    kept = ~several
    doubtful = order[several]
    changes = {int(place): _change(found, int(place)) for place in doubtful}
    chosen = set[int]()
    doubtful_ts = ts[doubtful]
    for group in np.split(doubtful, np.flatnonzero(doubtful_ts[1:] != doubtful_ts[:-1]) + 1):
        # `once` does not ask for the file, so that field tells which change it is.
        ranked = [
            (int(ranks[place]), changes[place]._replace(file=str(place)))
            for place in group.tolist()
        ]
        chosen |= {int(change.file) for change in once(ranked)}
    kept[several] = [int(place) in chosen for place in doubtful]
    return order[kept]


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
    values = tuple(
        text if cell is None else repr(cell) for cell, text in zip(cells, odd, strict=True)
    )
    operation = int(piece.operations[place])
    return Change(
        int(piece.ts[place]), operation, values, None, structure, "", int(piece.numbers[place])
    )
