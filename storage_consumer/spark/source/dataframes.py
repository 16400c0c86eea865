"""`storage_consumer.spark`: changes without repeats, last states, tables as of a commit-ts.

A table as of a commit-ts is made of files whose rows become rows of its last structure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import repeat
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F  # noqa: N812 - as all who use Spark call it

from storage_consumer.bucket.table_statements import read_create_table
from storage_consumer.changes.alterations import Origin, TableHistory, history_at, origins
from storage_consumer.changes.reading import Feed, ordered_in
from storage_consumer.changes.record_batches import (
    META,
    Piece,
    WantedColumns,
    array_of,
    arrow_type,
    digits_of,
    pieces,
)
from storage_consumer.changes.window import FeedFile, Structure, Window, structure_under
from storage_consumer.config.load import Loaded
from storage_consumer.config.settings import Upstream
from storage_consumer.config.table_filter import leaving_out
from storage_consumer.decode.decoder import row_layout
from storage_consumer.errors import ConfigError, NotReplicable
from storage_consumer.model import (
    DataFile,
    DdlKind,
    StoredObject,
    TableColumn,
    TableDefinition,
    TableName,
    TableVersion,
    folded_name,
)
from storage_consumer.operating.exporting import opened_export
from storage_consumer.plan.copies import gap_proof
from storage_consumer.plan.steps import key_of
from storage_consumer.spark.executors import ship
from storage_consumer.spark.source.opening import (
    COLUMNS,
    CORES,
    KEYS,
    PARTITION_BYTES,
    RESERVED,
    SEQUENCE,
    at_worker,
    held_for_bucket,
    open_feed,
    sequence,
    source_options,
    spark_schema,
    told,
)
from storage_consumer.spark.source.partitions import null_key, packed, without_repeats
from storage_consumer.spark.source.ticdc import MOVED, TicdcDataSource
from storage_consumer.sql.parse import parsed
from storage_consumer.telemetry import tso_time
from storage_consumer.tso import Instant, may_have_expired, tso_of_instant

_EVERYTHING = Window(low=-1, high=(1 << 63) - 1, files=(), statements=())
_UNSHOWN = pa.field("_ticdc unshown", pa.string())
"""What tells rows without a primary key apart beside the values that are shown: those of columns
that were dropped, and dates that no calendar has.
"""
_FILE_ROWS = 32
"""Bits of the number of a row in a file of an export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPart:
    """What one task reads: files of one origin, and how their rows become rows of the table."""

    upstream: Upstream
    """Where the files are, and how they are written. It holds no secret."""
    window: Window
    mapped: Mapping[int, Mapping[str, Origin]]
    """By version of a file's structure: the origin of each column, by folded name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAt:
    """A table as of a commit-ts, before a row of it is read."""

    name: TableName
    columns: tuple[TableColumn, ...]
    """Those that are wanted, of its last structure."""
    key: tuple[str, ...]
    """Names of its primary key's columns."""
    parts: tuple[ReadPart, ...]
    asked: tuple[str, ...]
    """Names of the columns that are wanted: of a table without a primary key all are read, since
    only all tell its rows apart.
    """
    refuse_dates: bool = False
    """Whether a date that no calendar has is an error."""
    held: tuple[str, ...]
    """Names of the secrets that the driver has for the bucket."""

    @property
    def schema(self) -> pa.Schema:
        """What is read: the table's columns, what else tells its rows apart, then a feed's."""
        return pa.schema([*self.fields, *([] if self.key else [_UNSHOWN]), *META, SEQUENCE])

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The table's own columns."""
        return tuple(pa.field(column.name, arrow_type(column)) for column in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """The rows that a table had at a snapshot."""

    snapshot: int
    origin: Upstream
    definition: TableDefinition
    files: tuple[StoredObject, ...]

    @property
    def shown(self) -> TableDefinition:
        """What the export's file says of the table, generated columns included."""
        columns = read_create_table(self.definition.query).columns
        return replace(self.definition, version=TableVersion(self.snapshot), columns=columns)


def find(
    feed: Feed, loaded: Loaded, name: TableName, high: int | None, base: str, columns: Sequence[str]
) -> TableAt:
    """Return what a table is made of as of a commit-ts (inclusive; None: the checkpoint).

    `base`: URI of an export, or empty. The checkpoint is the bucket's.

    Raises `ConfigError`, `NotReplicable` where the files do not show the table, and what
    `Feed.window` does.
    """
    high = feed.upto(high)
    checkpoint = feed.contents.checkpoint
    history = history_at(name, high, feed.contents.definitions)
    below = _base(base, history, loaded, name) if base else None
    if below is not None and below.snapshot > high:
        raise ConfigError(
            f"the export is of {below.snapshot}, which is after {high}: take an earlier one"
        )
    if below is None and history.begin is None:
        raise NotReplicable(
            f"{name}: {history.broken}. Give a later export as base"
            if history.broken
            else f"{name}: the bucket does not show where the table began, so it has changes of rows that are not in it: give an export of Dumpling or "
            "mydumper as base"
        )
    # The table's rows after it are in the bucket.
    low = max(below.snapshot if below else 0, history.begin or 0)
    if below is not None and history.begin is not None and history.begin >= below.snapshot:
        # Nothing of what the export has is left.
        below = None
    if history.broken_at > low:
        raise NotReplicable(
            f"{name}: {history.broken}. Give a later export as base, or ask for before that statement"
        )
    upstream = loaded.config.upstream
    named = ((each.schema, each.table) for each in (*history.names, name))
    found = (leaving_out(upstream.left_out, each, case=upstream.case_sensitive) for each in named)
    if what := next(filter(None, found), ""):
        raise NotReplicable(
            f"{name}: TiCDC leaves out changes of this table by {what}, so its files do not show which rows it has. If the changefeed never had this "
            "filter, take it out of config; if not, read the table from a changefeed without it"
        )
    around = feed.of_tables(history.names)
    around.contents.base = below.shown if below else None
    window = around.window(low, max(low, high))
    # TiCDC deletes whole days, and nothing shows which files there were.
    days, dates = upstream.file_expiration_days, [each.file.date for each in window.files]
    has_days = not dates or any(len(date) == len("2026-01-01") for date in dates)
    if has_days and may_have_expired(window.low, checkpoint, days):
        raise NotReplicable(
            f"{name}: its rows are made of all changes since {tso_time(window.low)}, and TiCDC deletes files with file-expiration-days = {days}, so some "
            "of these may be gone: give a later export as base"
        )
    last = around.contents.structure_of(replace(history.last, ddl_type=0, query=""))
    if not last.key and upstream.protocol == "csv" and not upstream.csv.output_old_value:
        raise NotReplicable(
            f"{last.table}: the table has no primary key, and its CSV files no old values, without which an update does not show its row: turn on "
            "output-old-value under [sink.csv] in the changefeed"
        )
    wanted = _wanted(last, columns, below, upstream)
    every = wanted
    if not last.key:
        # All columns tell its rows apart; generated ones follow from others, and an export does not
        # have them.
        others = (
            each.name for place, each in enumerate(last.columns) if place not in last.generated
        )
        every = _wanted(
            last, [*columns, *others] if below is not None and columns else (), below, upstream
        )
    _refuse_reserved(last, every)
    rows = _Rows(history=history, key=last.key_names, columns=every, last=last.columns)
    return TableAt(
        name=last.table,
        columns=rows.columns,
        key=rows.key,
        asked=tuple(column.name for column in wanted),
        parts=(*rows.of_bucket(window, upstream), *(rows.of_base(below) if below else ())),
        held=held_for_bucket(loaded),
    )


def _base(uri: str, history: TableHistory, loaded: Loaded, name: TableName) -> _Base:
    upstream = loaded.config.upstream
    try:
        copy, _ = opened_export(uri, upstream, loaded.secrets)
    except ConfigError as fault:
        raise type(fault)(str(fault).replace("--dump ", "base ")) from None
    if missing := gap_proof(copy.snapshot, loaded.config.loading.start_ts, 0):
        raise ConfigError(f"base: {missing}")
    then = history.name_at(copy.snapshot)
    table = copy.tables.get(key_of(then))
    if table is None or table.definition.ddl_type == DdlKind.CREATE_VIEW:
        # What begins later is none of the export's.
        if history.begin is not None and history.begin >= copy.snapshot:
            return _Base(
                snapshot=copy.snapshot, origin=copy.origin, definition=history.last, files=()
            )
        raise ConfigError(
            f"base: the export has no table {then}, which {name} was at its snapshot {copy.snapshot}"
        )
    return _Base(
        snapshot=copy.snapshot, origin=copy.origin, definition=table.definition, files=table.parts
    )


def _refuse_reserved(last: Structure, columns: Sequence[TableColumn]) -> None:
    """Raise `ConfigError` for a column that is read and has the name of one that is added."""
    found = next((column.name for column in columns if folded_name(column.name) in RESERVED), None)
    if found is not None:
        remedy = (
            "leave it out with columns"
            if last.key
            else "without a primary key all columns are needed to tell rows apart, so rename it at the source"
        )
        raise ConfigError(
            f"{last.table} has a column {found}, which is also the name of a column that is added while it is read: {remedy}"
        )


def _wanted(
    last: Structure, names: Sequence[str], below: _Base | None, upstream: Upstream
) -> tuple[TableColumn, ...]:
    """Return the columns that are asked for, and the primary key's."""
    columns = last.columns
    by_name = {folded_name(column.name): place for place, column in enumerate(columns)}
    for name in names:
        if folded_name(name) not in by_name:
            raise ConfigError(
                f"columns: the table has no column {name}; it has: {', '.join(by_name)}"
            )
    places = (
        {by_name[folded_name(name)] for name in names} | set(last.key)
        if names
        else set(range(len(columns)))
    )
    lists = [columns[place] for place in places if columns[place].type in ("ENUM", "SET")]
    # CSV and exports have them by name, canal-json may have numbers.
    if upstream.protocol != "csv" and not all(column.elements for column in lists):
        raise NotReplicable(
            f"{last.table}: nothing in the bucket shows the members of its ENUM and SET columns, which rows may have as numbers: leave these columns "
            "out with columns"
        )
    lacking = [columns[place].name for place in sorted(last.generated & places)]
    if below is not None and lacking:
        raise NotReplicable(
            f"{last.table}: exports do not have the values of generated columns ({', '.join(lacking)}): leave them out with columns"
        )
    return tuple(columns[place] for place in sorted(places))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """How rows of all structures become rows of the last one."""

    history: TableHistory
    key: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    """Those that are wanted."""
    last: tuple[TableColumn, ...]
    """All of the last structure."""

    def of_bucket(self, window: Window, upstream: Upstream) -> list[ReadPart]:
        """Return the parts of a window."""
        own = {
            (int(step.version), name.folded()): step
            for step in self.history.steps
            for name in (parsed(step).subject, step.name)
        }
        mapped: dict[int, Mapping[str, Origin]] = {}
        files = []
        for work in window.files:
            step = own.get((work.structure.version, work.structure.table.folded()))
            if step is None and work.structure.version > window.high:
                # TiCDC noted the structure later than the rows.
                shown = (
                    [(folded_name(each.name), each.type) for each in columns]
                    for columns in (work.structure.columns, self.last)
                )
                if next(shown) != next(shown):
                    raise NotReplicable(
                        f"{work.structure.table}: rows up to {window.high} may lie in the directory of table version {work.structure.version}, whose structure may be a later "
                        f"one: ask for {work.structure.version} or later"
                    )
                mapped[work.structure.version] = self._mapped(
                    work.structure, work.structure.version
                )
                files.append(work)
            # Without a step they are of a table that had one of the names before.
            elif step is not None:
                # The rows of a version end where the next one begins.
                later = self.history.after(step.version)
                if not later or later[0].version > window.low:
                    mapped[work.structure.version] = self._mapped(work.structure, step.version)
                    files.append(work)
        return _parts(upstream, window, files, mapped)

    def of_base(self, below: _Base) -> list[ReadPart]:
        """Return the parts of an export."""
        layout = row_layout(below.definition, frozenset(), below.origin)
        structure = structure_under(layout, below.origin.time_zone, frozenset(), 0)
        mapped = {0: self._mapped(structure, below.snapshot)}
        none = DataFile(
            stored=StoredObject(path="", size=0, tag=""),
            table_dir="",
            version=TableVersion(0),
            partition=None,
            date="",
            dispatcher="",
            number=0,
            width=0,
        )
        listed = [
            replace(none, stored=stored, number=number)
            for number, stored in enumerate(below.files, 1)
        ]
        files = [
            FeedFile(file=file, structure=structure, floor=-1, newest=False, exact=True)
            for file in listed
        ]
        return _parts(below.origin, _EVERYTHING, files, mapped)

    def _mapped(self, structure: Structure, version: int) -> Mapping[str, Origin]:
        """Return the origin of columns in a structure; raise `NotReplicable` for another key."""
        steps, names = (
            self.history.after(version),
            [folded_name(column.name) for column in self.columns],
        )
        found = origins(structure.columns, steps, names)
        if lacking := [name for name in names if name not in found]:
            raise NotReplicable(
                f"{structure.table}: rows of table version {version} have no values of {', '.join(lacking)}, and no statement shows with which ones it was "
                "added: leave it out with columns, or give a later export as base"
            )
        former = {folded_name(name) for name in structure.key_names}
        if {found[folded_name(name)].name for name in self.key} != former:
            raise NotReplicable(
                f"{structure.table}: the primary key was another one at table version {version}, so rows from before and after that cannot be "
                "told apart: give a later export as base"
            )
        return found


def _parts(
    upstream: Upstream,
    window: Window,
    files: Sequence[FeedFile],
    mapped: Mapping[int, Mapping[str, Origin]],
) -> list[ReadPart]:
    return [
        ReadPart(
            upstream=upstream,
            window=replace(window, files=tuple(some), statements=()),
            mapped=mapped,
        )
        for some in packed(files, PARTITION_BYTES, CORES)
    ]


def read_part(found: TableAt, part: ReadPart) -> Iterator[pa.RecordBatch]:
    """Yield a part's changes with the final columns of the table: a Python worker's job."""
    with told(), at_worker(part.upstream, found.held) as storage:
        ordered = ordered_in(part.window, storage, part.upstream)
        for work in ordered.early(part.window.files):
            mapped = part.mapped[work.structure.version]
            origins_of = [mapped[folded_name(column.name)] for column in found.columns]
            read = tuple(
                pa.field(origin.name or "", field.type)
                for origin, field in zip(origins_of, found.fields, strict=True)
            )
            asked = WantedColumns(
                own=read,
                protocol=part.upstream.protocol,
                refuse_dates=found.refuse_dates,
                rescue=not found.key,
            )
            for each in pieces(
                ordered, work, work.between(part.window.low, part.window.high), asked
            ):
                # The rows of an export have their number as commit-ts: none of another file is a
                # repeat of them.
                piece = (
                    replace(each, ts=each.ts + np.uint64(work.file.number << _FILE_ROWS))
                    if work.exact
                    else each
                )
                arrays = piece.arrays(read)
                own, meta = arrays[: len(read)], arrays[len(read) :]
                own = list(map(_converted, found.columns, origins_of, repeat(piece), own))
                unshown = [] if found.key else [piece.unshown()]
                whole = [*own, *unshown, *meta, sequence(meta, piece.operations)]
                yield pa.RecordBatch.from_arrays(whole, schema=found.schema)


def _converted(column: TableColumn, origin: Origin, piece: Piece, values: pa.Array) -> pa.Array:
    """Return a column's values as its last structure has them.

    `values`: as the file has them, but of the right type.
    """
    is_text = column.type == "DECIMAL" and arrow_type(column) == pa.string()
    if origin.name is None:
        if origin.default is None:
            return values
        one = array_of(column, [origin.default], "csv")
        one = digits_of(column, one) if is_text else one
        return one.take(pa.array(np.zeros(len(piece.ts), np.int64)))
    former = next(
        each for each in piece.work.structure.columns if folded_name(each.name) == origin.name
    )
    # Texts of another scale are not equal, and Arrow writes small numbers with an exponent.
    is_other = (former.precision, former.scale) != (column.precision, column.scale)
    return digits_of(column, piece.columns[origin.name]) if is_text and is_other else values


CHECKPOINT = "checkpoint"
_PLACE, _KIND, _UPDATED, _COUNT, _FIRST = (
    f"_ticdc {word}" for word in ("place", "kind", "updated", "count", "first")
)
"""Columns of our own while a query runs: no column of a table is called so."""
_BATCH, _GIVEN = "streaming.sql.batchId", "LogicalRDD"
"""What Spark notes in the thread of a micro-batch, and what it makes the DataFrame of one from."""
_THERE = "DATA_SOURCE_ALREADY_EXISTS"


def register(spark: SparkSession) -> None:
    """Make ``format("ticdc")`` known to a session, and give this package to its executors.

    Where the package is installed, Spark finds the format by itself.
    """
    try:
        spark.dataSource.register(TicdcDataSource)
    except AnalysisException as fault:
        if fault.getCondition() != _THERE:
            raise
    context = spark.sparkContext
    if not str(context.master).startswith("local"):
        ship(context)


def changes(feed: DataFrame, keys: Sequence[str] | None = None) -> DataFrame:
    """Return a table's feed with each change once, by one shuffle, though TiCDC repeats some.

    `feed`: what ``format("ticdc")`` gives, with the columns of the key and those that begin with an
    underscore. `keys`: the columns of the primary key; None: as the bucket says. Without a primary
    key a row comes as often as one delivery of its transaction has it; the rows of one transaction
    are then held in memory at once. Raises `ConfigError`.
    """
    found = [(0, list(keys))] if keys is not None else _keys(feed)
    names = found[0][1]
    if not names or any(each != names for _, each in found):
        # Rows that differ only in other columns are not repeats of each other.
        _require(feed, [*_noted(feed, COLUMNS), *(name for _, each in found for name in each)])
        return without_repeats(feed, found)
    _require(feed, names)
    change = F.col("_change_type")
    row = Over.partitionBy(*map(_column, names), "_commit_version")
    is_update = change.startswith("update")
    once = Over.partitionBy(*map(_column, names), "_commit_version", _KIND).orderBy("_sequence")
    # After a restart TiCDC may write an update as a delete and an insert: where any delivery has
    # the update, these are repeats of it.
    return (
        feed.where(_is_whole(names))
        .withColumn(_UPDATED, F.max(is_update).over(row))
        .withColumn(_KIND, change)
        .withColumn(_PLACE, F.row_number().over(once))
        .where((F.col(_PLACE) == 1) & (is_update | ~F.col(_UPDATED)))
        .drop(_UPDATED, _KIND, _PLACE)
    )


def latest(feed: DataFrame, keys: Sequence[str] | None = None) -> DataFrame:
    """Return each row's last change, its state or delete, by one shuffle; repeats do not matter.

    `feed` and `keys`: see `changes`. Raises `ConfigError` for a table without a primary key, and
    for a feed over a statement after which rows are gone without a change of them.
    """
    found = [(0, list(keys))] if keys is not None else _keys(feed)
    names = found[-1][1]
    if (moved := _noted(feed, MOVED)) and not _is_micro_batch(feed):
        version, what = moved
        raise ConfigError(
            f"the feed goes over {what}, and no change of a row shows that, so last states of rows would be wrong: begin the feed with "
            f"startingVersion = {version + 1}, or see table_at(). With the option statements = ignore such statements are passed over"
        )
    if not names:
        raise ConfigError(
            "the table has no primary key, so none of its rows has a last state: see changes()"
        )
    if any(each != names for _, each in found):
        raise ConfigError(
            f"the table has had other columns as its primary key ({', '.join(found[0][1])}, now {', '.join(names)}), so a row cannot be followed: "
            f"begin the feed with startingVersion = {found[-1][0]}, or see table_at()"
        )
    _require(feed, names)
    newest = Over.partitionBy(*map(_column, names)).orderBy(F.col("_sequence").desc())
    return (
        feed.where(F.col("_change_type") != "update_preimage")
        .where(_is_whole(names))
        .withColumn(_PLACE, F.row_number().over(newest))
        .where(F.col(_PLACE) == 1)
        .drop(_PLACE)
    )


def _is_whole(names: Sequence[str]) -> Column:
    """Return true for rows with their primary key; raise an error for others.

    Those could not be told from each other.
    """
    return _unless(reduce(or_, (_column(name).isNull() for name in names)), null_key(names))


def _unless(refused: Column, message: str) -> Column:
    """Return true for rows that are not refused; raise an error with this message for others."""
    return F.when(refused, F.raise_error(F.lit(message)).cast("boolean")).otherwise(F.lit(True))  # noqa: FBT003 - Spark's own order of arguments


def table_at(  # noqa: PLR0913 - all but the first three have names
    spark: SparkSession,
    uri: str,
    table: str,
    version: Instant = CHECKPOINT,
    *,
    base: str = "",
    columns: Sequence[str] = (),
    start_ts: int | None = None,
    **options: str,
) -> DataFrame:
    """Return a table as it was at a commit-ts, after all changes and statements at it.

    `version`: a TSO, a time with its zone, which includes its whole millisecond, or
    ``"checkpoint"``: the bucket's. `base`: URI of an export of Dumpling or mydumper, for a table
    that is older than the bucket; `start_ts`: that of the changefeed, which shows that no change
    lies between the two. `columns`: which are wanted, beside the primary key's; none: all.
    `options`: those of ``format("ticdc")`` that say what was written to the bucket.

    Raises `ConfigError`, and `NotReplicable` where the files do not show the table: each names the
    statement, and what to do.
    """
    with told():
        given = {"path": uri, "table": table, **options}
        asked = source_options(given)
        if asked.low or asked.high is not None or asked.from_latest or asked.columns:
            raise ConfigError(
                "table_at takes version and columns, and none of startingVersion, endingVersion and the like"
            )
        assert asked.table is not None
        extra = {} if start_ts is None else {"start_ts": str(start_ts)}
        feed, loaded = open_feed(replace(asked, bucket={**asked.bucket, **extra}))
        high = None
        if not isinstance(version, str) or version.lower() != CHECKPOINT:
            try:
                high = tso_of_instant(version, is_end=True)
            except ValueError as fault:
                raise ConfigError(f"version: {fault}, or `checkpoint`") from None
        found = find(feed, loaded, asked.table, high, base, columns)
        found = replace(found, refuse_dates=asked.refuse_dates)
    schema, parts = spark_schema(found.schema), found.parts

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_part(found, parts[number])

    frame = (
        spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, schema)
        if parts
        else spark.createDataFrame([], schema)
    )
    own = [_column(name) for name in found.asked]
    if found.key:
        begun = _begun(frame, found.key, str(found.name))
        return latest(begun, found.key).where("_change_type != 'delete'").select(*own)
    every = [_column(field.name) for field in found.fields]
    return _counted(without_repeats(frame, [(0, [])]), every, str(found.name)).select(*own)


def _begun(frame: DataFrame, key: Sequence[str], name: str) -> DataFrame:
    """Return a keyed table's changes; raise an error for rows that do not begin by insert.

    The order is the one by which `latest` goes on, so it takes no other shuffle or sort.
    """
    newest = Over.partitionBy(*map(_column, key)).orderBy(F.col("_sequence").desc())
    whole = newest.rowsBetween(Over.unboundedPreceding, Over.unboundedFollowing)
    message = (
        f"{name}: changes of a row that nothing inserted: TiCDC deleted the files with the older ones (file-expiration-days), rows came into the "
        "source past TiCDC, or the base is not this table's: give an export as base, a later one if there is one"
    )
    return (
        frame.withColumn(_FIRST, F.last("_change_type").over(whole))
        .where(_unless(F.col(_FIRST) != "insert", message))
        .drop(_FIRST)
    )


def _counted(frame: DataFrame, own: list[Column], name: str) -> DataFrame:
    """Return a keyless table's rows, as often as inserted more than deleted."""
    sign = F.when(F.col("_change_type") == "delete", -1).otherwise(1)
    count = F.col(_COUNT)
    message = F.lit(
        f"{name}: more deletes than inserts of one row: the base is not this table's, or files are missing"
    )
    return (
        frame.groupBy(*own)
        .agg(F.sum(sign).alias(_COUNT))
        .where(F.when(count < 0, F.raise_error(message).cast("boolean")).otherwise(count > 0))
        .withColumn(_PLACE, F.explode(F.sequence(F.lit(1), count.cast("int"))))
        .drop(_COUNT, _PLACE)
    )


def _noted(feed: DataFrame, what: str) -> list[Any]:
    """Return what the source noted of the table."""
    field = next((field for field in feed.schema.fields if field.name == "_table_version"), None)
    found: list[Any] = json.loads((field.metadata.get(what) or "[]") if field is not None else "[]")
    return found


def _is_micro_batch(feed: DataFrame) -> bool:
    """Return whether a DataFrame is a micro-batch of ``foreachBatch``, with the stream's notes.

    Such a one goes over none of the statements.
    """
    running = feed.sparkSession.sparkContext.getLocalProperty(_BATCH) is not None
    plan = feed._jdf.queryExecution().analyzed()  # noqa: SLF001 - PySpark shows a plan in no other way
    leaves = plan.collectLeaves()
    names = {leaves.apply(place).getClass().getSimpleName() for place in range(leaves.size())}
    return running and names == {_GIVEN}


def _keys(feed: DataFrame) -> list[tuple[int, list[str]]]:
    """Return by first table version the columns of the primary key, as the source noted them."""
    noted = _noted(feed, KEYS)
    if not noted:
        raise ConfigError(
            'this DataFrame does not say which columns are the table\'s primary key: take it from format("ticdc") with the option table and with '
            "its column _table_version, or give keys"
        )
    return [(version, names) for version, names in noted]


def _require(feed: DataFrame, names: Sequence[str]) -> None:
    if missing := [name for name in names if name.lower() not in map(str.lower, feed.columns)]:
        raise ConfigError(
            f"the DataFrame lacks {', '.join(missing)}, which tell the table's rows apart: read it without the option columns, or with these among them"
        )


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
