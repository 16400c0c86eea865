"""A program that ends anywhere and starts again: nothing is lost, nothing happens twice, and only one may write."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_consumer.driver.ledger import RoundLedger
from storage_consumer.errors import StateGone, TargetUnavailable
from storage_consumer.rows.spec import JobSpec
from storage_consumer.spark.pipeline import SparkPipeline
from storage_consumer.target.bucket_writer import TargetWriter
from tests.harness.corpora import FIXTURES, Corpus
from tests.harness.replay import Replay
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.integration.rounds import consumer, content, of, once
from tests.unit.halves import as_runs

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
SHOP = Corpus(FIXTURES / "shop" / "new" / "shop__csv")


def test_finished_bucket_is_not_read_again(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A second run over a finished bucket reads no data file, writes nothing, and counts what was finished."""
    replay = Replay(corpus=SHOP, server=mariadb, folder=tmp_path)
    last = SHOP.cuts[-1]
    SHOP.materialise(last, replay.bucket)
    with replay.consumer() as running:
        first = replay.round_to(last, running)
    with replay.consumer() as running:
        second = replay.round_to(last, running)
        third = running.run_once()
    data_files = sum(path.endswith(".csv") for path in last.files)
    assert (first.files, first.finished_files) == (data_files, 0)
    assert (second.files, second.written, second.ddls, second.finished_files) == (0, 0, 0, data_files)
    assert (third.files, third.written, third.ddls) == (0, 0, 0)


def test_table_that_was_halted_catches_up_over_restarts(
    bucket: SmallBucket, mariadb: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repaired table that stops on its way to the others' checkpoint goes on from where it stands, not from theirs."""
    bucket.create("d.good", "d.bad")
    bucket.schema("d.bad", ts(6), "ALTER TABLE `bad` COMMENT = 'six'", 17)
    bucket.schema("d.bad", ts(8), "ALTER TABLE `bad` COMMENT = 'eight'", 17)
    first = bucket.rows("d.bad", 1, row("d.bad", 5, "1", "broken"), row("d.bad", 5, "10", '"ten"'))
    second = bucket.rows("d.bad", 1, row("d.bad", 7, "2", "broken"), row("d.bad", 7, "20", '"twenty"'), version=ts(6))
    bucket.rows("d.bad", 1, row("d.bad", 9, "3", '"three"'), version=ts(8))
    bucket.metadata(ts(20))
    assert (found := once(bucket, mariadb)).checkpoint_running == ts(20)
    assert found.checkpoint < ts(5)  # that of the halted table
    first.write_bytes(first.read_bytes().replace(b"broken", b'"one"'))
    halted = of(once(bucket, mariadb), "d.bad")
    assert (halted.state, halted.checkpoint) == ("halted", ts(6))
    assert content(mariadb, "d.bad") == [(1, "one"), (10, "ten")]
    second.write_bytes(second.read_bytes().replace(b"broken", b'"two"'))
    with consumer(bucket, mariadb) as running, monkeypatch.context() as ending:
        calls = iter([True, True, True])  # the rows up to tick 8 and their DDL, then the process ends
        ending.setattr(RoundLedger, "should_continue", lambda _: next(calls, False))
        running.run_once()
    assert content(mariadb, "d.bad") == [(1, "one"), (2, "two"), (10, "ten"), (20, "twenty")]
    once(bucket, mariadb)
    assert content(mariadb, "d.bad") == [(1, "one"), (2, "two"), (3, "three"), (10, "ten"), (20, "twenty")]


# one writer


@pytest.fixture
def one_table(bucket: SmallBucket) -> SmallBucket:
    """Table d.t with one row."""
    bucket.create("d.t")
    bucket.rows("d.t", 1, row("d.t", 5, "1", '"one"'))
    bucket.metadata(ts(9))
    return bucket


def captured_spec(bucket: SmallBucket, server: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> JobSpec:
    """The job of a round that has just been applied."""
    specs: list[JobSpec] = []
    original = SparkPipeline.run

    def noted(self: SparkPipeline, spec: JobSpec, *arguments: object) -> object:
        specs.append(spec)
        return original(self, spec, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(SparkPipeline, "run", noted)
        once(bucket, server)
    return specs[-1]


def test_attempts_of_one_task(one_table: SmallBucket, mariadb: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second attempt takes the first one's place; after one has finished, no other one writes in this window (O1)."""
    spec = captured_spec(one_table, mariadb, monkeypatch)
    mariadb.query("UPDATE storage_consumer.slots SET attempt = '', finished = 0")
    first, second, third = (TargetWriter(spec, "", 0) for _ in range(3))
    assert first.write_runs(spec.tables[0], as_runs([], [b"7\tfirst"])).rows == 1
    assert second.write_runs(spec.tables[0], as_runs([], [b"7\tsecond"])).rows == 1
    with pytest.raises(TargetUnavailable, match="taken over"):
        first.write_runs(spec.tables[0], as_runs([b"7"], []))
    second.finish()
    with pytest.raises(TargetUnavailable, match="has finished"):
        third.write_runs(spec.tables[0], as_runs([b"7"], []))
    for writer in (first, second, third):
        writer.close()
    assert content(mariadb, "d.t") == [(1, "one"), (7, "second")]


def test_a_target_that_is_put_back_under_a_running_consumer(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """It says so instead of going on from memory, also where nothing but the checkpoint moves; the next start brings back what is lacking."""
    with consumer(one_table, mariadb) as running:
        running.run_once()
        there = [f"{d}.{name}" for d in ("d", "storage_consumer") for (name,) in mariadb.query(f"SHOW TABLES FROM {d}")]
        saved = {table: f"saved.{table.replace('.', '_')}" for table in there}
        mariadb.query("CREATE DATABASE saved")
        for table, copy in saved.items():
            mariadb.query(f"CREATE TABLE {copy} AS SELECT * FROM {table}")
        one_table.rows("d.t", 2, row("d.t", 12, "2", '"two"'))
        one_table.metadata(ts(20))
        running.run_once()
        with mariadb.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for table, copy in saved.items():
                cursor.execute(f"DELETE FROM {table}")
                cursor.execute(f"INSERT INTO {table} SELECT * FROM {copy}")
            connection.commit()
        one_table.metadata(ts(21))
        with pytest.raises(StateGone, match="went back while this program ran"):
            running.run_once()
    assert content(mariadb, "d.t") == [(1, "one")]
    assert once(one_table, mariadb).checkpoint == ts(21)
    assert content(mariadb, "d.t") == [(1, "one"), (2, "two")]
