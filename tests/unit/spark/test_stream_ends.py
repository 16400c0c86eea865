"""Where a stream of one table ends: before what its rows would not show, or its columns could not hold."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxFiles

from storage_consumer.errors import ConfigError, FilesMissing, NotReplicable
from storage_consumer.spark.source.ticdc import MOVED, MicroBatches, Offset, TicdcDataSource, TicdcStreamReader
from tests.harness.small_bucket import SmallBucket, column, row, ts
from tests.harness.streams import Query
from tests.unit.spark.test_stream import query, ticks

MORE = (column("id", "INT", key=True), column("name", "VARCHAR"), column("more", "INT"))


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """d.a with rows of ticks 2 and 3, complete up to tick 4."""
    found = SmallBucket(root=tmp_path)
    found.create("d.a", "d.b")
    found.rows("d.a", 1, row("d.a", 2, "2", '"x"'), row("d.a", 3, "3", '"x"'))
    found.metadata(ts(4))
    return found


def truncate(bucket: SmallBucket, tick: int) -> None:
    """Empty d.a, and have a row in it at the next tick."""
    bucket.schema("d.a", ts(tick), "TRUNCATE TABLE `a`", 11)
    bucket.rows("d.a", 1, row("d.a", tick + 1, str(tick + 1), '"x"'), version=ts(tick))


@pytest.mark.parametrize("dies", [False, True])
def test_a_table_that_was_emptied(bucket: SmallBucket, dies: bool) -> None:  # noqa: FBT001 - pytest
    """All rows before the statement are given; then the query ends, names it and says how to go on; begun again like that it does."""
    running, over = query(bucket), query(bucket, statements="ignore")
    running.step()
    over.step()
    bucket.rows("d.a", 2, row("d.a", 5, "5", '"x"'), row("d.a", 6, "6", '"x"'))
    truncate(bucket, 6)
    bucket.metadata(ts(8))
    assert running.step(dies=dies)
    assert over.step()
    for _ in range(2):
        with pytest.raises(NotReplicable, match=r"d\.a: 'TRUNCATE TABLE `a`' \(version .* took all rows away") as ended:
            running.step()
        running.die()
    assert ticks(running.rows) == [2, 3, 5, 6]
    assert f"startingVersion = {ts(6) + 1} and its old checkpointLocation" in str(ended.value)
    running.options = {**running.options, "startingVersion": str(ts(6) + 1)}
    assert running.step()
    assert ticks(running.rows) == ticks(over.rows) == [2, 3, 5, 6, 7]
    truncate(bucket, 9)
    bucket.metadata(ts(11))
    with pytest.raises(NotReplicable, match=f"version {ts(9)}"):
        running.step()


def test_a_statement_and_nothing_before(bucket: SmallBucket) -> None:
    """The query ends also where no row was written since the last micro-batch, and where none follows."""
    running = query(bucket)
    running.step()
    bucket.schema("d.a", ts(5), "TRUNCATE TABLE `a`", 11)
    bucket.metadata(ts(5))
    assert not running.step(), "another statement may come at the checkpoint"
    bucket.metadata(ts(7))
    with pytest.raises(NotReplicable, match="took all rows away"):
        running.step()


def test_a_new_column_and_nothing_before(bucket: SmallBucket) -> None:
    """A query whose next row has a column that it does not know ends at once, instead of waiting for ever."""
    running = query(bucket)
    running.step()
    bucket.schema("d.a", ts(5), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, MORE)
    bucket.rows("d.a", 1, row("d.a", 6, "6", '"x"', "7"), version=ts(5))
    bucket.metadata(ts(7))
    with pytest.raises(NotReplicable, match="new column more"):
        running.step()


def test_a_new_column_just_below_the_checkpoint(bucket: SmallBucket) -> None:
    """The one row that it has is at the checkpoint, and is not given without it."""
    running = query(bucket)
    running.step()
    bucket.schema("d.a", ts(6) - 1, "ALTER TABLE `a` ADD COLUMN `more` INT", 5, MORE)
    bucket.rows("d.a", 1, row("d.a", 6, "6", '"x"', "7"), version=ts(6) - 1)
    bucket.metadata(ts(6))
    with pytest.raises(NotReplicable, match="new column more"):
        running.step()


@pytest.mark.parametrize(
    ("place", "text", "kind", "told"),
    [
        ("d.c", "RENAME TABLE `d`.`a` TO `d`.`c`", 14, "gave the table the name d.c"),
        ("d.a", "DROP TABLE `a`", 4, "dropped the table"),
        ("d", "DROP DATABASE `d`", 2, "dropped the table with its database"),
    ],
)
def test_a_table_that_is_no_longer_there(bucket: SmallBucket, place: str, text: str, kind: int, told: str) -> None:
    """The rows of another table that gets the name are not taken for its own."""
    running = query(bucket)
    running.step()
    bucket.schema(place, ts(5), text, kind)
    bucket.schema("d.a", ts(6), "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    bucket.rows("d.a", 1, row("d.a", 7, "2", '"other"'), version=ts(6))
    bucket.metadata(ts(8))
    with pytest.raises(NotReplicable, match=told):
        running.step()


def test_a_statement_at_the_checkpoint(bucket: SmallBucket) -> None:
    """It may come after the rows up to there were given: the query ends before those that follow."""
    running = query(bucket)
    bucket.rows("d.a", 2, row("d.a", 5, "5", '"x"'))
    bucket.metadata(ts(5))
    running.step()
    truncate(bucket, 5)
    bucket.metadata(ts(7))
    running.die()
    with pytest.raises(NotReplicable, match="took all rows away"):
        running.step()
    assert ticks(running.rows) == [2, 3, 5]


def test_statements_and_limits(bucket: SmallBucket) -> None:
    """A micro-batch that ends earlier for its limit ends there; the next one has the rest before the statement."""
    bucket.rows("d.a", 2, row("d.a", 5, "5", '"x"'))
    truncate(bucket, 6)
    bucket.metadata(ts(8))
    running = query(bucket)
    assert running.step(ReadMaxFiles(1))
    assert running.step(ReadMaxFiles(1))
    assert ticks(running.rows) == [2, 3, 5]
    with pytest.raises(NotReplicable, match="took all rows away"):
        running.step(ReadMaxFiles(1))


def test_statements_before_the_query(bucket: SmallBucket) -> None:
    """A query that begins after a statement is not ended by it, nor is one of all tables."""
    truncate(bucket, 5)
    bucket.metadata(ts(8))
    running = query(bucket, startingVersion=str(ts(5) + 1))
    assert running.step()
    assert ticks(running.rows) == [6]
    every = Query({"path": bucket.uri, "tz": "UTC"})
    assert every.step()
    assert {each["_change_type"] for each in every.rows} == {"ddl", "insert"}


def changed_while_away(bucket: SmallBucket, text: str, kind: int, *more: Any) -> Query:
    """A query that gave all up to tick 4 and died; then came a row at tick 5, a statement at 6, and a row at 7."""
    running = query(bucket)
    running.step()
    running.die()
    bucket.rows("d.a", 2, row("d.a", 5, "5", '"x"'))
    bucket.schema("d.a", ts(6), text, kind, *more)
    bucket.rows("d.a", 1, row("d.a", 7, "7", '"2026-01-01"'), version=ts(6))
    bucket.metadata(ts(8))
    return running


def test_a_micro_batch_goes_over_no_statement(bucket: SmallBucket) -> None:
    """A query that is begun again behind a statement which its checkpointLocation has not reached gives the rows from before it apart."""
    running = changed_while_away(bucket, "ALTER TABLE `a` TRUNCATE PARTITION `p0`", 17)
    running.options = {**running.options, "startingVersion": str(ts(6) + 1)}
    assert running.step()
    assert ticks(running.rows) == [2, 3, 5]
    assert running.step()
    assert ticks(running.rows) == [2, 3, 5, 7]


def test_another_type_while_no_process_ran(bucket: SmallBucket) -> None:
    """Each message says how to go on, and whoever does so has every row once: those of the former type come as a batch."""
    columns = (column("id", "INT", key=True), column("name", "DATE"))
    running = changed_while_away(bucket, "ALTER TABLE `a` MODIFY COLUMN `name` DATE", 12, columns)
    with pytest.raises(ConfigError, match=f"in two windows, or begin a stream with startingVersion = {ts(6) + 1}"):
        running.step()
    running.die()
    running.options = {**running.options, "startingVersion": str(ts(6) + 1)}
    first = f"startingVersion = {ts(4) + 1} and endingVersion = {ts(6)}"
    with pytest.raises(
        NotReplicable,
        match=f"{first}, and then begin it again with a new checkpointLocation and startingVersion = {ts(6) + 1}",
    ):
        running.step()
    batch = {"startingVersion": str(ts(4) + 1), "endingVersion": str(ts(6))}
    anew = query(bucket, startingVersion=str(ts(6) + 1))
    anew.step()
    assert ticks([*running.rows, *in_batch(bucket, **batch), *anew.rows]) == [2, 3, 5, 7]


def in_batch(bucket: SmallBucket, **options: str) -> list[dict[str, Any]]:
    """What a batch gives of d.a."""
    source = TicdcDataSource({"path": bucket.uri, "tz": "UTC", "table": "d.a", **options})
    reader = source.reader(source.schema())
    found: list[dict[str, Any]] = []
    for part in reader.partitions():
        for batch in reader.read(part):
            assert isinstance(batch, pa.RecordBatch)
            found += batch.to_pylist()
    return found


def test_columns_that_were_chosen(bucket: SmallBucket) -> None:
    """A query of chosen columns does not end for one that it did not choose."""
    running = query(bucket, columns="id")
    running.step()
    bucket.schema("d.a", ts(6), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, MORE)
    bucket.rows("d.a", 1, row("d.a", 7, "7", '"x"', "7"), version=ts(6))
    bucket.metadata(ts(8))
    assert running.step()
    assert ticks(running.rows) == [2, 3, 7]


def test_values_that_a_new_column_gave(bucket: SmallBucket) -> None:
    """The end says that rows which were there have got a value of which no change tells."""
    running = query(bucket)
    running.step()
    bucket.schema("d.a", ts(6), "ALTER TABLE `a` ADD COLUMN `more` INT DEFAULT 7", 5, MORE)
    bucket.rows("d.a", 1, row("d.a", 7, "7", '"x"', "7"), version=ts(6))
    bucket.metadata(ts(8))
    with pytest.raises(NotReplicable, match="such as the column's default, no change of a row shows"):
        running.step()


def test_from_now_on_behind_what_was(bucket: SmallBucket) -> None:
    """A query of what commits from now on has the table's columns of now, and minds no statement of the past; a batch has no now."""
    columns = (column("id", "INT", key=True), column("name", "DATE"))
    bucket.schema("d.a", ts(5), "ALTER TABLE `a` MODIFY COLUMN `name` DATE", 12, columns)
    bucket.schema("d.a", ts(6), "TRUNCATE TABLE `a`", 11, columns)
    bucket.metadata(ts(8))
    source = TicdcDataSource({"path": bucket.uri, "tz": "UTC", "table": "d.a", "startingVersion": "latest"})
    schema = source.schema()
    assert (schema["name"].dataType.simpleString(), MOVED in schema["_table_version"].metadata) == ("date", False)
    with pytest.raises(ConfigError, match="only a stream begins with `latest`"):
        source.reader(schema)
    running = query(bucket, startingVersion="latest")
    running.step()
    bucket.rows("d.a", 1, row("d.a", 9, "9", '"2026-01-01"'), version=ts(6))
    bucket.metadata(ts(10))
    running.step()
    assert ticks(running.rows) == [9]


# files that are missing


def test_what_is_there_now_and_a_missing_file(bucket: SmallBucket) -> None:
    """A query that reads what is there now waits for the file, and then fails: an empty micro-batch would end it as if all were read."""
    source = TicdcDataSource({"path": bucket.uri, "tz": "UTC", "table": "d.a", "gapTimeout": "1s"})
    batches = _batches(source)
    start = batches.initialOffset()
    bucket.rows("d.a", 3, row("d.a", 5, "5", '"x"'))
    bucket.metadata(ts(6))
    _read_no_further(batches)
    with pytest.raises(FilesMissing, match="file number 2"):
        batches.next_offset(start, 0, 0)
    patient = _batches(TicdcDataSource({"path": bucket.uri, "tz": "UTC", "table": "d.a", "gapTimeout": "20s"}))
    _read_no_further(patient)
    late = threading.Timer(0.5, bucket.rows, ("d.a", 2, row("d.a", 4, "4", '"x"')))
    late.start()
    end = patient.next_offset(start, 0, 0)
    late.join()
    assert end["commit_ts"] == ts(6)


def test_a_first_micro_batch_and_a_missing_file(bucket: SmallBucket) -> None:
    """Spark plans an empty one first, which needs no file; one that has rows waits for them also with an earlier Spark."""
    bucket.rows("d.a", 3, row("d.a", 5, "5", '"x"'))
    bucket.metadata(ts(6))
    reader = earlier(bucket, gapTimeout="1s")
    start = reader.initialOffset()
    assert list(reader.partitions(start, start)) == []
    end = reader.latestOffset()
    with pytest.raises(FilesMissing, match="file number 2"):
        reader.partitions(start, end)
    late = threading.Timer(0.5, bucket.rows, ("d.a", 2, row("d.a", 4, "4", '"x"')))
    late.start()
    assert ticks(read(earlier(bucket, gapTimeout="20s"), start, end)) == [2, 3, 4, 5]
    late.join()


# Spark before 4.2


def earlier(bucket: SmallBucket, **options: str) -> TicdcStreamReader:
    """What a process of an earlier Spark reads with."""
    source = TicdcDataSource({"path": bucket.uri, "tz": "UTC", "table": "d.a", **options})
    found = _batches(source)
    reader = TicdcStreamReader(found.options, found.opened, found.schema)
    assert reader.initialOffset()
    return reader


def _batches(source: TicdcDataSource) -> MicroBatches:
    found = source.streamReader(source.schema())
    assert isinstance(found, MicroBatches)
    return found


def _read_no_further(batches: MicroBatches) -> None:
    getattr(batches, "prepareForTriggerAvailableNow")()  # noqa: B009 - Spark's own, since 4.2


def read(reader: TicdcStreamReader, start: Offset, end: Offset) -> list[dict[str, Any]]:
    """The rows of a micro-batch."""
    return [each for part in reader.partitions(start, end) for batch in reader.read(part) for each in batch.to_pylist()]


@pytest.mark.parametrize("what", ["column", "statement"])
def test_what_came_since_it_was_loaded(bucket: SmallBucket, what: str) -> None:
    """The first micro-batch of an earlier Spark, which does not say where it begins, reaches up to there; the next one is refused."""
    reader = earlier(bucket)
    bucket.rows("d.a", 2, row("d.a", 5, "5", '"x"'))
    if what == "column":
        bucket.schema("d.a", ts(6), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, MORE)
        bucket.rows("d.a", 1, row("d.a", 7, "7", '"x"', "7"), version=ts(6))
    else:
        truncate(bucket, 6)
    bucket.metadata(ts(9))
    start, end = reader.initialOffset(), reader.latestOffset()
    assert ticks(read(reader, start, end)) == [2, 3, 5]
    with pytest.raises(NotReplicable, match="new column more" if what == "column" else "took all rows away"):
        reader.latestOffset()


def test_a_first_micro_batch_over_a_statement(bucket: SmallBucket) -> None:
    """Where it lies before the load, an earlier Spark has planned over it: that is refused, with how to begin again."""
    truncate(bucket, 5)
    bucket.metadata(ts(8))
    reader = earlier(bucket)
    with pytest.raises(NotReplicable, match=f"new checkpointLocation and startingVersion = {ts(5) + 1}"):
        reader.partitions(reader.initialOffset(), reader.latestOffset())
    for options in ({"statements": "ignore"}, {"startingVersion": str(ts(5) + 1)}):
        reader = earlier(bucket, **options)
        assert ticks(read(reader, reader.initialOffset(), reader.latestOffset()))[-1] == 6


def test_rows_before_a_statement_of_a_query_that_was_away(bucket: SmallBucket) -> None:
    """An earlier Spark has planned over the statement: whoever does as the message says has the rows before it too."""
    first = earlier(bucket)
    start = first.latestOffset()
    given = read(first, first.initialOffset(), start)
    bucket.rows("d.a", 2, row("d.a", 5, "5", '"x"'))
    truncate(bucket, 6)
    bucket.metadata(ts(8))
    second = earlier(bucket)
    with pytest.raises(NotReplicable, match=f"startingVersion = {ts(4) + 1} and endingVersion = {ts(6)}"):
        second.partitions(start, second.latestOffset())
    given += in_batch(bucket, startingVersion=str(ts(4) + 1), endingVersion=str(ts(6)))
    third = earlier(bucket, startingVersion=str(ts(6) + 1))
    given += read(third, third.initialOffset(), third.latestOffset())
    assert ticks(given) == [2, 3, 5, 7]


def test_begun_again_as_the_message_says(bucket: SmallBucket) -> None:
    """A query of an earlier Spark that gave all rows before a statement goes on behind it with its old checkpointLocation."""
    reader = earlier(bucket)
    start = reader.latestOffset()
    bucket.rows("d.a", 2, row("d.a", 5, "5", '"x"'))
    truncate(bucket, 6)
    bucket.metadata(ts(8))
    end = reader.latestOffset()
    assert ticks(read(reader, start, end)) == [5]
    with pytest.raises(NotReplicable, match="its old checkpointLocation"):
        reader.latestOffset()
    again = earlier(bucket, startingVersion=str(ts(6) + 1))
    assert ticks(read(again, end, again.latestOffset())) == [7]


def test_an_old_load_of_a_query_that_has_gone_on(bucket: SmallBucket) -> None:
    """A DataFrame that was loaded before a column came, and whose checkpointLocation is beyond that, is refused."""
    reader = earlier(bucket)
    bucket.schema("d.a", ts(6), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, MORE)
    bucket.rows("d.a", 1, row("d.a", 7, "7", '"x"', "7"), version=ts(6))
    bucket.metadata(ts(9))
    ahead = earlier(bucket).latestOffset()
    with pytest.raises(NotReplicable, match="new column more"):
        reader.partitions(ahead, reader.latestOffset())
