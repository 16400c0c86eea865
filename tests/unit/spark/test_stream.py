"""Streams of ``format("ticdc")``: every row once, whatever comes late, grows, or is written anew, and whenever a process dies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxFiles

from storage_consumer.errors import ConfigError, FilesMissing, NotReplicable
from storage_consumer.spark.source.ticdc import TicdcDataSource
from tests.harness.small_bucket import SmallBucket, column, row, ts
from tests.harness.streams import Query


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """d.a and d.b, complete up to tick 4."""
    found = SmallBucket(root=tmp_path)
    found.create("d.a", "d.b")
    found.rows("d.a", 1, row("d.a", 2, "2", '"x"'), row("d.a", 3, "3", '"x"'), row("d.a", 6, "6", '"early"'))
    found.metadata(ts(4))
    return found


def query(bucket: SmallBucket, **options: str) -> Query:
    """A query over d.a."""
    return Query({"path": bucket.uri, "tz": "UTC", "table": "d.a", **options})


def ticks(rows: list[dict[str, Any]]) -> list[int]:
    """The ticks of rows."""
    return [round((row["_commit_version"] - ts(0)) / (ts(1) - ts(0))) for row in rows]


def test_a_window_after_the_other(bucket: SmallBucket) -> None:
    """Up to the checkpoint; the rest of a file when that has passed it; nothing while no row is new, though the checkpoint grows."""
    running = query(bucket)
    assert running.step()
    assert ticks(running.rows) == [2, 3]
    assert not running.step()
    bucket.metadata(ts(5))
    assert not running.step()
    bucket.metadata(ts(7))
    assert running.step()
    assert ticks(running.rows) == [2, 3, 6]


def test_a_file_that_grows(bucket: SmallBucket) -> None:
    """Only what is new of it is given, also by a process that knows the file only from the offset."""
    running = query(bucket)
    running.step()
    rows = [row("d.a", tick, str(tick), '"x"') for tick in (2, 3, 6, 8)]
    bucket.rows("d.a", 1, *rows)
    bucket.metadata(ts(9))
    running.die()
    assert running.step()
    assert ticks(running.rows) == [2, 3, 6, 8]


def test_a_file_that_was_cut(bucket: SmallBucket) -> None:
    """What the checkpoint covers is stored whole, so a copy of the bucket is still under way: its rows come once they are all there."""
    running, impatient = query(bucket), query(bucket, gapTimeout="0s")
    running.step()
    impatient.step()
    path = bucket.rows("d.a", 2, *(row("d.a", tick, str(tick), '"x"') for tick in (7, 8)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    bucket.metadata(ts(9))
    assert not running.step()
    with pytest.raises(FilesMissing, match="ends inside row 2"):
        impatient.step()
    path.write_bytes(whole)
    assert running.step()
    assert ticks(running.rows) == [2, 3, 6, 7, 8]


@pytest.mark.parametrize("dies", [False, True])
def test_a_finished_file_that_is_written_anew(bucket: SmallBucket, dies: bool) -> None:  # noqa: FBT001 - pytest
    """TiCDC may use a number again after a restart: rows beyond the offset are given, even if the file was done with and left out."""
    running = query(bucket)
    bucket.metadata(ts(7))
    running.step()
    bucket.rows("d.a", 2, row("d.a", 8, "8", '"x"'))
    bucket.metadata(ts(9))
    running.step()
    assert json.loads(running.offsets[-1])["finished"], "the first file is done with"
    bucket.rows("d.a", 1, *(row("d.a", tick, str(tick), '"x"') for tick in (2, 3, 6, 10)))
    bucket.metadata(ts(11))
    if dies:
        running.die()
    assert running.step()
    assert ticks(running.rows) == [2, 3, 6, 8, 10]


def test_finished_files_that_are_removed(bucket: SmallBucket) -> None:
    """Whoever keeps a bucket small removes old files: those that hold nothing beyond the offset are not missed, the next ones are."""
    running = query(bucket)
    paths = [bucket.rows("d.a", number, row("d.a", number + 5, str(number), '"x"')) for number in (2, 3, 4, 5)]
    bucket.metadata(ts(10))
    running.step()
    bucket.rows("d.a", 6, row("d.a", 11, "6", '"x"'))
    bucket.metadata(ts(12))
    running.step()
    finished = json.loads(running.offsets[-1])["finished"]
    assert [upto for upto, *_ in finished.values()] == [5]
    bucket.rows("d.a", 7, row("d.a", 13, "7", '"x"'))
    bucket.metadata(ts(14))
    paths[0].unlink()
    paths[2].unlink()
    running.die()
    assert running.step()
    assert ticks(running.rows) == [2, 3, 6, 7, 8, 9, 10, 11, 13]
    bucket.rows("d.a", 9, row("d.a", 15, "9", '"x"'))
    bucket.metadata(ts(16))
    running.die()
    assert not running.step(), "file 8 may come"


def test_a_file_with_rows_that_were_not_due_goes(bucket: SmallBucket) -> None:
    """What the offset has beyond its end is missed, though no later number shows that it is gone; what was given is not."""
    path, running = bucket.rows("d.a", 2, row("d.a", 8, "8", '"x"')), query(bucket, gapTimeout="0s")
    running.step()
    running.die()
    path.unlink()
    bucket.metadata(ts(9))
    with pytest.raises(FilesMissing, match=f"file number 2 in d/a/{ts(1)}.* is missing"):
        running.step()
    bucket.rows("d.a", 2, row("d.a", 8, "8", '"x"'))
    assert running.step()
    assert ticks(running.rows) == [2, 3, 6, 8]
    running.die()
    path.unlink()
    bucket.metadata(ts(10))
    assert not running.step()


def test_repeats_that_come_late(bucket: SmallBucket) -> None:
    """A file of a restarted changefeed repeats what was given: only what follows is taken from it."""
    running = query(bucket)
    bucket.metadata(ts(7))
    running.step()
    bucket.rows("d.a", 2, row("d.a", 3, "3", '"x"'), row("d.a", 6, "6", '"early"'), row("d.a", 8, "8", '"x"'))
    bucket.metadata(ts(9))
    assert running.step()
    assert ticks(running.rows) == [2, 3, 6, 8]


def test_killed_after_each_plan(bucket: SmallBucket) -> None:
    """A micro-batch that was planned and not written is written by the next process with the same rows, though more has come since."""
    running = query(bucket)
    assert running.step(dies=True)
    bucket.rows("d.a", 2, row("d.a", 8, "8", '"x"'))
    bucket.metadata(ts(9))
    assert running.step(dies=True)
    assert ticks(running.sink[1]) == [2, 3]
    bucket.metadata(ts(12))
    assert not running.step()
    assert ticks(running.sink[2]) == [6, 8]


def test_limits(bucket: SmallBucket) -> None:
    """About so many files or bytes at once, at least one commit-ts; a query that takes what is there ends where the bucket ended then."""
    for number in range(2, 8):
        bucket.rows("d.a", number, row("d.a", 10 + number, str(number), '"x"'), row("d.a", 10 + number, "99", '"x"'))
    bucket.metadata(ts(20))
    by_files = query(bucket)
    while by_files.step(ReadMaxFiles(2)):
        pass
    assert [len(rows) for rows in by_files.sink.values()] == [5, 4, 4, 2]
    by_bytes = query(bucket)
    while by_bytes.step(ReadMaxBytes(1)):
        pass
    assert ticks(by_bytes.rows) == ticks(by_files.rows)
    assert len(by_bytes.sink) == 7
    available = query(bucket)
    reader = available.reader()
    reader.prepareForTriggerAvailableNow()
    bucket.rows("d.a", 8, row("d.a", 30, "30", '"x"'))
    bucket.metadata(ts(40))
    while available.step():
        pass
    assert max(ticks(available.rows)) == 17


def test_a_new_column(bucket: SmallBucket) -> None:
    """The query ends by default, and says how to go on; or leaves the column out; or gives it as JSON. A new start has it."""
    queries = {kind: query(bucket, schemaEvolution=kind) for kind in ("fail", "ignore", "rescue")}
    for one in queries.values():
        one.step()
    columns = (column("id", "INT", key=True), column("name", "VARCHAR"), column("more", "INT"))
    bucket.schema("d.a", ts(6), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, columns)
    bucket.rows("d.a", 1, row("d.a", 8, "8", '"x"', "7"), version=ts(6))
    bucket.metadata(ts(9))
    for one in queries.values():
        assert one.step(), "what came before"
    with pytest.raises(NotReplicable, match="new column more: begin the query again, with its old checkpointLocation"):
        queries["fail"].step()
    queries["fail"].die()
    assert queries["fail"].step()
    assert queries["fail"].rows[-1]["more"] == 7
    queries["ignore"].step()
    assert "more" not in queries["ignore"].rows[-1]
    queries["rescue"].step()
    assert [each["_rescued_data"] for each in queries["rescue"].rows] == [None, None, None, '{"more": 7}']


def test_a_column_of_another_type(bucket: SmallBucket) -> None:
    """Values that the query's columns cannot hold end it, whatever it does with new columns; all rows before them have been given.

    Begun again as the message says it goes on.
    """
    running = query(bucket, schemaEvolution="rescue")
    columns = (column("id", "INT", key=True), column("name", "DATE"))
    bucket.schema("d.a", ts(7), "ALTER TABLE `a` MODIFY COLUMN `name` DATE", 12, columns)
    bucket.rows("d.a", 1, row("d.a", 8, "8", '"2026-01-01"'), version=ts(7))
    running.step()
    assert ticks(running.rows) == [2, 3]
    bucket.metadata(ts(9))
    assert running.step()
    assert ticks(running.rows) == [2, 3, 6]
    with pytest.raises(NotReplicable, match=f"startingVersion = {ts(7) + 1}"):
        running.step()
    running.die()
    running.options = {**running.options, "startingVersion": str(ts(7) + 1)}
    assert running.step()
    assert str(running.rows[-1]["name"]) == "2026-01-01"


def test_another_primary_key(bucket: SmallBucket) -> None:
    """Rows would be told apart by columns that the query does not have: it ends, even where new columns are left out."""
    running = query(bucket, schemaEvolution="ignore")
    running.step()
    columns = (column("pk", "INT", key=True), column("name", "VARCHAR"))
    bucket.schema("d.a", ts(7), "ALTER TABLE `a` RENAME COLUMN `id` TO `pk`", 12, columns)
    bucket.rows("d.a", 1, row("d.a", 8, "8", '"x"'), version=ts(7))
    bucket.metadata(ts(9))
    running.step()
    with pytest.raises(NotReplicable, match=r"the primary key is \(pk\)"):
        running.step()


def test_statements(bucket: SmallBucket) -> None:
    """A stream of all tables has each statement once, when the checkpoint has passed it: one at exactly the checkpoint may still come."""
    running = Query({"path": bucket.uri, "tz": "UTC"})
    bucket.metadata(ts(7))
    running.step()
    bucket.schema("d.a", ts(7), "ALTER TABLE `a` COMMENT = 'x'", 17)
    assert not running.step()
    bucket.metadata(ts(8))
    assert running.step()
    assert not running.step()
    shown = [(each["_change_type"], each["statement"]) for each in running.rows]
    assert [kind for kind, _ in shown].count("insert") == 3
    assert [text[:12] for kind, text in shown if kind == "ddl"] == [
        "CREATE DATAB",
        "CREATE TABLE",
        "CREATE TABLE",
        "ALTER TABLE ",
    ]


def test_from_now_on(bucket: SmallBucket) -> None:
    """With startingVersion = latest the query begins at the checkpoint."""
    running = query(bucket, startingVersion="latest")
    assert not running.step()
    bucket.metadata(ts(7))
    running.step()
    assert ticks(running.rows) == [6]


def test_another_bucket(bucket: SmallBucket) -> None:
    """A bucket that is complete up to less than the query has read, and an offset of another kind, end it with an error."""
    running = query(bucket)
    bucket.metadata(ts(7))
    assert running.step(dies=True)
    bucket.metadata(ts(3))
    with pytest.raises(
        ConfigError, match=r"complete up to .* only\. If the changefeed was resumed from an older checkpoint, start"
    ):
        running.step()
    other = query(bucket)
    other.offsets = ['{"index": 1}']
    with pytest.raises(ConfigError, match="not one of this version"):
        other.step()


def test_another_table(bucket: SmallBucket) -> None:
    """A query that goes on where one of another table ended would lack the changes of its own before that."""
    bucket.rows("d.b", 1, row("d.b", 2, "2", '"x"'))
    running = query(bucket)
    running.step()
    other = query(bucket, table="d.b")
    other.offsets = running.offsets
    other.sink = running.sink
    with pytest.raises(ConfigError, match=r"is one of `d`\.`a`, and the query reads `d`\.`b`: .*startingVersion"):
        other.step()
    every = Query({"path": bucket.uri, "tz": "UTC"}, offsets=running.offsets, sink=running.sink)
    with pytest.raises(ConfigError, match="and the query reads every table"):
        every.step()


def test_an_end(bucket: SmallBucket) -> None:
    """A stream takes no end."""
    source = TicdcDataSource({"path": bucket.uri, "tz": "UTC", "table": "d.a", "endingVersion": str(ts(3))})
    with pytest.raises(ConfigError, match="a stream has no end"):
        source.streamReader(source.schema())
