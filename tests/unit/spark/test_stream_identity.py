"""Streams of ``format("ticdc")`` know the bucket that they read: on another changefeed's they end with an error, and never lose rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from storage_consumer.changes.record_batches import read_changes
from storage_consumer.errors import ConfigError
from storage_consumer.spark.source.ticdc import MicroBatches, TicdcDataSource, TicdcStreamReader
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.streams import Query

HOUR = 3600


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """d.a, complete up to tick 4."""
    found = SmallBucket(root=tmp_path / "first")
    found.create("d.a")
    found.rows("d.a", 1, row("d.a", 2, "2", '"x"'), row("d.a", 3, "3", '"x"'))
    found.metadata(ts(4))
    return found


@pytest.fixture(params=["d.a", ""])
def read(request: pytest.FixtureRequest, bucket: SmallBucket) -> Query:
    """A query over d.a, and one over all tables, that have read it and are not running now."""
    found = Query(options(bucket, request.param))
    assert found.step()
    found.die()
    return found


def options(bucket: SmallBucket, table: str = "d.a", **more: str) -> dict[str, str]:
    """What a query is loaded with."""
    return {"path": bucket.uri, "tz": "UTC", **({"table": table} if table else {}), **more}


def other(bucket: SmallBucket, begin: int, checkpoint: int) -> SmallBucket:
    """Another changefeed writes here, from one tick on and up to another."""
    bucket.schema("d.a", ts(begin), "", 0)
    bucket.rows("d.a", 1, row("d.a", begin + 1, "9", '"other"'), version=ts(begin))
    bucket.metadata(ts(checkpoint))
    return bucket


def elsewhere(query: Query, bucket: SmallBucket) -> Query:
    """The same query with the path of another bucket."""
    query.options = {**query.options, "path": bucket.uri}
    return query


@pytest.mark.parametrize("begin", [5, HOUR, 90 * HOUR])
@pytest.mark.parametrize("same_place", [True, False])
def test_another_changefeed_that_began_later(
    read: Query, bucket: SmallBucket, tmp_path: Path, begin: int, *, same_place: bool
) -> None:
    """Rows between the two are in neither: the query ends, each time that it is started, and says how to go on."""
    if same_place:
        shutil.rmtree(bucket.root)
    there = other(bucket if same_place else SmallBucket(root=tmp_path / "second"), begin, begin + 9)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"those in between are lost.*new checkpointLocation"):
            elsewhere(read, there).step()
        read.die()
    assert len(read.sink) == 1


def test_another_changefeed_that_began_before(read: Query, tmp_path: Path) -> None:
    """In another place nothing but known files shows that it is the same changefeed."""
    there = other(SmallBucket(root=tmp_path / "second"), 2, 9)
    with pytest.raises(ConfigError, match="This is another changefeed"):
        elsewhere(read, there).step()


def test_a_bucket_that_was_copied(read: Query, bucket: SmallBucket, tmp_path: Path) -> None:
    """The query goes on in a copy, which has the known files, and gives each row once."""
    there = SmallBucket(root=Path(shutil.copytree(bucket.root, tmp_path / "second")))
    there.rows("d.a", 2, row("d.a", 7, "7", '"x"'))
    there.metadata(ts(9))
    before = len(read.rows)
    assert elsewhere(read, there).step()
    assert len(read.rows) == before + 1
    assert json.loads(read.offsets[-1])["feed"]["place"] == f"file://{there.root}"


def test_files_that_expired(read: Query, bucket: SmallBucket) -> None:
    """Data files that are gone, and schema files that are, say nothing while some known one is there."""
    bucket.file("d.a", 1).unlink()
    next((bucket.root / "d" / "meta").iterdir()).unlink()
    bucket.schema("d.a", ts(9), "", 0)
    bucket.rows("d.a", 1, row("d.a", 10, "7", '"x"'), version=ts(9))
    bucket.metadata(ts(11))
    assert read.step()


def test_an_emptied_prefix(read: Query, bucket: SmallBucket, tmp_path: Path) -> None:
    """With a checkpoint alone there is nothing to judge by, and nothing to give; it is judged once there is, also by the same process."""
    shutil.rmtree(bucket.root)
    bucket.metadata(ts(50))
    config = tmp_path / "changefeed.toml"
    config.write_text('[sink]\nprotocol = "csv"\ndate-separator = "day"\n[sink.csv]\ninclude-commit-ts = true\n')
    read.options = {**read.options, "config": str(config)}
    if "table" in read.options:
        with pytest.raises(ConfigError, match="the bucket has no table"):
            read.step()
    else:
        assert not read.step()
    other(bucket, HOUR, HOUR + 9)
    with pytest.raises(ConfigError, match="those in between are lost"):
        read.step()


def test_it_goes_on_in_a_prefix_that_was_cleaned_up(read: Query, bucket: SmallBucket) -> None:
    """TiCDC that is started again there begins at its checkpoint, so no row is missing."""
    shutil.rmtree(bucket.root)
    other(bucket, 4, 9)
    assert read.step()


@pytest.mark.parametrize("begin", [5, HOUR])
def test_a_prefix_that_is_exchanged_while_the_query_runs(bucket: SmallBucket, begin: int) -> None:
    """It is told by the first schema file that is new."""
    running = Query(options(bucket))
    assert running.step()
    shutil.rmtree(bucket.root)
    other(bucket, begin, begin + 9)
    with pytest.raises(ConfigError, match=r"those in between are lost.*new checkpointLocation"):
        running.step()


def test_offsets_of_earlier_versions(read: Query, bucket: SmallBucket) -> None:
    """They say nothing of the bucket, and the query goes on with them; from then on its offsets do."""
    read.offsets = [json.dumps({k: v for k, v in json.loads(each).items() if k != "feed"}) for each in read.offsets]
    bucket.rows("d.a", 2, row("d.a", 7, "7", '"x"'))
    bucket.metadata(ts(9))
    assert read.step()
    assert json.loads(read.offsets[-1])["feed"]["versions"]


def available_now(query: Query) -> dict[str, Any]:
    """Where a query with that trigger plans to go next."""
    reader = query.reader()
    reader.prepareForTriggerAvailableNow()
    found: dict[str, Any] = reader.latestOffset(json.loads(query.offsets[-1]), ReadAllAvailable())
    return found


def test_metadata_behind_the_query(read: Query, bucket: SmallBucket) -> None:
    """A query that reads what is there now ends with an error; any other one waits, and gives each row once."""
    bucket.metadata(ts(3))
    with pytest.raises(ConfigError, match=r"complete up to .* only.*start the query again, as it is"):
        available_now(read)
    read.die()
    before = len(read.rows)
    assert not read.step()
    bucket.rows("d.a", 2, row("d.a", 3, "3", '"x"'), row("d.a", 7, "7", '"x"'))
    bucket.metadata(ts(9))
    assert read.step()
    assert len(read.rows) == before + 1


def as_earlier_spark(reader: MicroBatches) -> TicdcStreamReader:
    """What a process of an earlier Spark reads with."""
    return TicdcStreamReader(reader.options, reader.opened, reader.schema)


def test_metadata_behind_for_sparks_before_limits(read: Query, bucket: SmallBucket) -> None:
    """There a query plans without knowing where it is, and would go back."""
    bucket.metadata(ts(3))
    start = json.loads(read.offsets[-1])
    reader = as_earlier_spark(read.reader())
    end = reader.latestOffset()
    assert end["commit_ts"] < start["commit_ts"]
    with pytest.raises(ConfigError, match="start the query again, as it is"):
        reader.partitions(start, end)


def test_a_query_that_begins_later(bucket: SmallBucket) -> None:
    """It may begin beyond the checkpoint, and waits for that."""
    later = Query(options(bucket, startingVersion=str(ts(6))))
    assert not later.step()
    assert available_now(later) == json.loads(later.offsets[-1])
    later.die()
    bucket.rows("d.a", 2, row("d.a", 5, "5", '"x"'), row("d.a", 7, "7", '"x"'))
    bucket.metadata(ts(9))
    assert later.step()
    assert len(later.rows) == 1


@pytest.mark.parametrize("begin", [6, HOUR])
def test_a_batch_that_begins_later(bucket: SmallBucket, begin: int) -> None:
    """What changed since then is not known: an empty answer would say that nothing did. One right after the checkpoint is empty."""
    source = TicdcDataSource(options(bucket, startingVersion=str(ts(begin))))
    with pytest.raises(ConfigError, match=f"begins at commit-ts {ts(begin)}.*complete up to its checkpoint {ts(4)}"):
        source.reader(source.schema()).partitions()
    with pytest.raises(ConfigError, match=f"begins at commit-ts {ts(begin)}"):
        read_changes(bucket.uri, "d.a", start=ts(begin), tz="UTC")
    source = TicdcDataSource(options(bucket, startingVersion=str(ts(4) + 1)))
    assert len(source.reader(source.schema()).partitions()) == 1
    assert read_changes(bucket.uri, "d.a", start=ts(4) + 1, tz="UTC").read_all().num_rows == 0
