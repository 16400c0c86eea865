"""A program that ends anywhere and starts again: nothing is lost, nothing happens twice, and only one may write."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from storage_consumer.driver.lease import _place
from storage_consumer.driver.ledger import RoundLedger
from storage_consumer.errors import LeaseHeld, LeaseLost, TargetUnavailable
from storage_consumer.model import TableName
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


def test_late_task_cannot_write(
    one_table: SmallBucket, mariadb: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of an older window or an older owner is refused by the first statement of its transaction (O1)."""
    spec = captured_spec(one_table, mariadb, monkeypatch)
    work = spec.tables[0]
    assert work.name == TableName(schema="d", table="t")
    for stale in (replace(spec, window_id=spec.window_id - 1), replace(spec, epoch=spec.epoch - 1)):
        writer = TargetWriter(stale, "", 0)
        with pytest.raises(LeaseLost, match="is closed"):
            writer.write_runs(work, as_runs([b"1"], [b"7\tlate"]))
        writer.close()
    assert content(mariadb, "d.t") == [(1, "one")]


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


def test_second_consumer_waits_for_the_lease_time_only(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """While one consumer holds the target, a single round of another one ends with an error that names the holder."""
    with consumer(one_table, mariadb, lease_ttl="3s") as first:
        first.run_once()
        began = time.monotonic()
        with pytest.raises(LeaseHeld, match=f"host {socket.gethostname()}, pid {os.getpid()}, since "):
            once(one_table, mariadb, lease_ttl="3s")
        assert 3 <= time.monotonic() - began < 15
        assert first.run_once().checkpoint == ts(9)
    assert once(one_table, mariadb).checkpoint == ts(9)


def test_crashed_holder_on_this_machine_is_followed_at_once(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """Where the holder was a process of this machine that is gone, its lease is not waited for."""
    once(one_table, mariadb)
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    holder = f"{socket.gethostname()}|{_place()}|{dead.pid}|0123456789ab"
    mariadb.query(f"UPDATE storage_consumer.lease SET holder = '{holder}', expires_at = NOW(6) + INTERVAL 1 HOUR")
    began = time.monotonic()
    assert once(one_table, mariadb).checkpoint == ts(9)
    assert time.monotonic() - began < 10


def test_holder_that_lost_the_lease_stops(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """A consumer whose lease another one took writes nothing any more and says why."""
    with consumer(one_table, mariadb) as running:
        running.run_once()
        mariadb.query("UPDATE storage_consumer.lease SET holder = 'another', epoch = epoch + 1")
        one_table.rows("d.t", 2, row("d.t", 12, "2", '"two"'))
        one_table.metadata(ts(20))
        with pytest.raises(LeaseLost, match="another process took the lease"):
            running.run_once()
    assert content(mariadb, "d.t") == [(1, "one")]
