"""The functions of `storage_consumer.spark`: changes without repeats, last states, and tables as of a commit-ts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as all who use Spark call it

from storage_consumer.errors import ConfigError
from storage_consumer.instants import Instant, tso_of_instant
from storage_consumer.spark.executors import ship
from storage_consumer.spark.source import as_of
from storage_consumer.spark.source.opening import open_feed, told
from storage_consumer.spark.source.options import source_options
from storage_consumer.spark.source.repeats import null_key, without_repeats
from storage_consumer.spark.source.ticdc import MOVED, TicdcDataSource
from storage_consumer.spark.source.types import COLUMNS, KEYS, spark_schema

CHECKPOINT = "checkpoint"
_PLACE, _KIND, _UPDATED, _COUNT, _FIRST = (f"_ticdc {word}" for word in ("place", "kind", "updated", "count", "first"))
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
    """Return a feed of one table with each change once, where TiCDC delivered some repeatedly. It takes one shuffle.

    `feed`: what ``format("ticdc")`` gives, with the columns of the key and those that begin with an underscore. `keys`: the columns of the
    primary key; None: as the bucket says. Without a primary key a row comes as often as one delivery of its transaction has it; the rows
    of one transaction are then held in memory at once. Raises `ConfigError`.
    """
    found = [(0, list(keys))] if keys is not None else _keys(feed)
    names = found[0][1]
    if not names or any(each != names for _, each in found):
        # Rows that differ only in other columns are not repeats of each other.
        _require(feed, [*_noted(feed, COLUMNS), *(name for _, each in found for name in each)])
        return without_repeats(feed, found)
    _require(feed, names)
    change = F.col("_change_type")
    row = Window.partitionBy(*map(_column, names), "_commit_version")
    is_update = change.startswith("update")
    once = Window.partitionBy(*map(_column, names), "_commit_version", _KIND).orderBy("_sequence")
    # After a restart TiCDC may write an update as a delete and an insert: where any delivery has the update, these are repeats of it.
    return (
        feed.where(_is_whole(names))
        .withColumn(_UPDATED, F.max(is_update).over(row))
        .withColumn(_KIND, change)
        .withColumn(_PLACE, F.row_number().over(once))
        .where((F.col(_PLACE) == 1) & (is_update | ~F.col(_UPDATED)))
        .drop(_UPDATED, _KIND, _PLACE)
    )


def latest(feed: DataFrame, keys: Sequence[str] | None = None) -> DataFrame:
    """Return the last change of each row: its newest state, or its delete. It takes one shuffle, and repeats do not matter.

    `feed` and `keys`: see `changes`. Raises `ConfigError` for a table without a primary key, and for a feed over a statement after which rows
    are gone without a change of them.
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
        raise ConfigError("the table has no primary key, so none of its rows has a last state: see changes()")
    if any(each != names for _, each in found):
        raise ConfigError(
            f"the table has had other columns as its primary key ({', '.join(found[0][1])}, now {', '.join(names)}), so a row cannot be followed: "
            f"begin the feed with startingVersion = {found[-1][0]}, or see table_at()"
        )
    _require(feed, names)
    newest = Window.partitionBy(*map(_column, names)).orderBy(F.col("_sequence").desc())
    return (
        feed.where(F.col("_change_type") != "update_preimage")
        .where(_is_whole(names))
        .withColumn(_PLACE, F.row_number().over(newest))
        .where(F.col(_PLACE) == 1)
        .drop(_PLACE)
    )


def _is_whole(names: Sequence[str]) -> Column:
    """Return true for rows that have their primary key; it raises an error for others, which could not be told from each other."""
    message = F.lit(null_key(names))
    missing = reduce(or_, (_column(name).isNull() for name in names))
    return F.when(missing, F.raise_error(message).cast("boolean")).otherwise(F.lit(True))  # noqa: FBT003 - Spark's own order of arguments


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

    `version`: a TSO, a time with its zone, which includes its whole millisecond, or ``"checkpoint"``: the bucket's. `base`: URI of an export of Dumpling or mydumper, for a table that is
    older than the bucket; `start_ts`: that of the changefeed, which shows that no change lies between the two. `columns`: which are wanted,
    beside the primary key's; none: all. `options`: those of ``format("ticdc")`` that say what was written to the bucket.

    Raises `ConfigError`, and `NotReplicable` where the files do not show the table: each names the statement, and what to do.
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
        feed, loaded = open_feed(asked, extra)
        found = as_of.find(feed, loaded, asked.table, _instant(version), base, columns)
        found = replace(found, refuse_dates=asked.refuse_dates)
    frame = _read(spark, found)
    own = [_column(name) for name in found.asked]
    if found.key:
        begun = _begun(frame, found.key, str(found.name))
        return latest(begun, found.key).where("_change_type != 'delete'").select(*own)
    every = [_column(field.name) for field in found.fields]
    return _counted(without_repeats(frame, [(0, [])]), every, str(found.name)).select(*own)


def _begun(frame: DataFrame, key: Sequence[str], name: str) -> DataFrame:
    """Return the changes of a table that has a primary key; it raises an error for those of a row whose first change is not its insert.

    The order is the one by which `latest` goes on, so it takes no other shuffle or sort.
    """
    newest = Window.partitionBy(*map(_column, key)).orderBy(F.col("_sequence").desc())
    whole = newest.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    message = F.lit(
        f"{name}: changes of a row that nothing inserted: TiCDC deleted the files with the older ones (file-expiration-days), rows came into the "
        "source past TiCDC, or the base is not this table's: give an export as base, a later one if there is one"
    )
    is_begun = F.when(F.col(_FIRST) != "insert", F.raise_error(message).cast("boolean")).otherwise(F.lit(True))  # noqa: FBT003 - Spark's own order of arguments
    return frame.withColumn(_FIRST, F.last("_change_type").over(whole)).where(is_begun).drop(_FIRST)


def _counted(frame: DataFrame, own: list[Column], name: str) -> DataFrame:
    """Return the rows of a table without a primary key, as often as they were inserted more than deleted."""
    sign = F.when(F.col("_change_type") == "delete", -1).otherwise(1)
    count = F.col(_COUNT)
    message = F.lit(f"{name}: more deletes than inserts of one row: the base is not this table's, or files are missing")
    return (
        frame.groupBy(*own)
        .agg(F.sum(sign).alias(_COUNT))
        .where(F.when(count < 0, F.raise_error(message).cast("boolean")).otherwise(count > 0))
        .withColumn(_PLACE, F.explode(F.sequence(F.lit(1), count.cast("int"))))
        .drop(_COUNT, _PLACE)
    )


def _read(spark: SparkSession, found: as_of.TableAt) -> DataFrame:
    """Return the changes that a table is made of."""
    schema, parts = spark_schema(found.schema), found.parts

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from as_of.read_part(found, parts[number])

    if not parts:
        return spark.createDataFrame([], schema)
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, schema)


def _instant(version: Instant) -> int | None:
    if isinstance(version, str) and version.lower() == CHECKPOINT:
        return None
    try:
        return tso_of_instant(version, is_end=True)
    except ValueError as fault:
        raise ConfigError(f"version: {fault}, or `checkpoint`") from None


def _noted(feed: DataFrame, what: str) -> list[Any]:
    """Return what the source noted of the table."""
    field = next((field for field in feed.schema.fields if field.name == "_table_version"), None)
    found: list[Any] = json.loads((field.metadata.get(what) or "[]") if field is not None else "[]")
    return found


def _is_micro_batch(feed: DataFrame) -> bool:
    """Return whether a DataFrame is what a stream gives to ``foreachBatch``: it has the stream's notes, and goes over none of the statements."""
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
