"""Streams of ``format("ticdc")`` in a real Spark session: what ``foreachBatch`` is given before a statement that moves rows, and files that are missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Timer

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from storage_consumer.errors import ConfigError
from storage_consumer.spark import latest, register
from tests.harness.small_bucket import SmallBucket, column, of_two_structures, row, ts

pytestmark = pytest.mark.spark
COLUMNS = (column("id", "INT", key=True), column("name", "VARCHAR"), column("more", "INT"))
Batch = Callable[[DataFrame, int], None]


@pytest.fixture
def bucket(spark: SparkSession, tmp_path: Path) -> SmallBucket:
    """A table with rows of two structures, up to tick 8."""
    register(spark)
    return of_two_structures(tmp_path / "bucket")


def available(spark: SparkSession, bucket: SmallBucket, to: Batch, **options: str) -> StreamingQuery:
    """Read what is there now in micro-batches, as a scheduled job does: each time by a query of its own, with one checkpointLocation."""
    live = spark.readStream.format("ticdc").options(table="d.a", tz="UTC", **options).load(bucket.uri)
    stored = live.writeStream.foreachBatch(to).option("checkpointLocation", str(bucket.root.parent / "checkpoint"))
    query = stored.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


@pytest.mark.parametrize(
    ("text", "kind"),
    [("TRUNCATE TABLE `a`", 11), ("ALTER TABLE `a` TRUNCATE PARTITION `p0`", 17)],
    ids=["table", "partition"],
)
def test_last_states_before_a_statement(spark: SparkSession, bucket: SmallBucket, text: str, kind: int) -> None:
    """`latest` takes each micro-batch, since none goes over the statement; a batch over it is refused there too; nothing is lost behind it."""
    bucket.schema("d.a", ts(9), text, kind, COLUMNS)
    bucket.rows("d.a", 1, row("d.a", 10, "10", '"x"', r"\N"), version=ts(9))
    bucket.metadata(ts(11))
    merged, refused = list[int](), list[str]()

    def merge(batch: DataFrame, _: int) -> None:
        merged.extend(each["id"] for each in latest(batch).collect())
        try:
            latest(spark.read.format("ticdc").options(table="d.a", tz="UTC").load(bucket.uri))
        except ConfigError as fault:
            refused.append(str(fault))

    with pytest.raises(StreamingQueryException, match="and its old checkpointLocation"):
        available(spark, bucket, merge)
    assert sorted(merged) == [2, 3, 4, 5]
    available(spark, bucket, merge, startingVersion=str(ts(9) + 1))
    assert sorted(merged) == [2, 3, 4, 5, 10]
    assert len(refused) == 2, "a batch that goes over the statement, in each of the two micro-batches"


def test_from_now_on_behind_a_statement(spark: SparkSession, bucket: SmallBucket) -> None:
    """`latest` minds no statement from before the query."""
    bucket.schema("d.a", ts(9), "TRUNCATE TABLE `a`", 11, COLUMNS)
    bucket.metadata(ts(11))
    given = list[int]()

    def merge(batch: DataFrame, _: int) -> None:
        given.extend(each["id"] for each in latest(batch).collect())

    available(spark, bucket, merge, startingVersion="latest")
    bucket.rows("d.a", 1, row("d.a", 12, "12", '"x"', r"\N"), version=ts(9))
    bucket.metadata(ts(13))
    available(spark, bucket, merge, startingVersion="latest")
    assert given == [12]


def test_a_missing_file_of_a_scheduled_job(spark: SparkSession, bucket: SmallBucket) -> None:
    """A job that reads what is there now fails with the number of the file, and does not end as if all were read; once it comes all is given."""
    given = list[int]()

    def collect(batch: DataFrame, _: int) -> None:
        given.extend(each["id"] for each in batch.collect())

    available(spark, bucket, collect)
    count = len(given)
    bucket.rows("d.a", 4, row("d.a", 10, "44", '"x"', r"\N"), version=ts(5))
    bucket.metadata(ts(11))
    with pytest.raises(StreamingQueryException, match="is missing"):
        available(spark, bucket, collect, gapTimeout="1s")
    late = [
        Timer(1.0, bucket.rows, ("d.a", number, row("d.a", 10, str(number), '"x"', r"\N")), {"version": ts(5)})
        for number in (2, 3)
        if not bucket.file("d.a", number, version=ts(5)).exists()
    ]
    for each in late:
        each.start()
    available(spark, bucket, collect)
    assert 44 in given
    assert len(given) == count + 1 + len(late)
