"""Exports of tables that routes send elsewhere: their rows come to where those of their changes do."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, row, ts
from tests.harness.small_export import HEAD, export
from tests.integration.rounds import once

pytestmark = [pytest.mark.server, pytest.mark.spark]


def test_a_feed_that_begins_with_an_export(server: DatabaseServer, tmp_path: Path, spark: SparkSession) -> None:
    """The database of the route is created, a later start finds the rows there, and nothing comes to the table's own name."""
    bucket, full = SmallBucket(root=tmp_path / "bucket"), export(tmp_path / "full", 10, {"t": ["(1,'copy')"]})
    bucket.create("d.t")

    def changed(number: int, tick: int) -> None:
        bucket.rows("d.t", number, row("d.t", tick, str(number + 1), '"new"'))
        bucket.metadata(ts(tick))
        routes = ['{matcher = ["d.*"], target-schema = "depot"}']
        assert not once(bucket, server, tz="UTC", dump=full.as_uri(), start_ts=ts(1), route=routes).halted

    changed(1, 20)
    assert set(server.query("SELECT id, name FROM depot.t")) == {(1, "copy"), (2, "new")}
    changed(2, 40)
    assert set(server.query("SELECT id, name FROM depot.t")) == {(1, "copy"), (2, "new"), (3, "new")}
    assert server.query("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'd'") == ((0,),)


def test_a_database_without_a_table(server: DatabaseServer, tmp_path: Path, spark: SparkSession) -> None:
    """It is created under the name of its route, with its own defaults, and takes the table that is created later."""
    bucket, full = SmallBucket(root=tmp_path / "bucket"), export(tmp_path / "full", 10, {"t": ["(1,'copy')"]})
    (full / "bare-schema-create.sql").write_text(
        f"{HEAD}CREATE DATABASE `bare` /*!40100 DEFAULT CHARACTER SET latin1 COLLATE latin1_bin */;\n", encoding="utf-8"
    )
    bucket.create("d.t", at=5)
    bucket.schema("bare", ts(4), "CREATE DATABASE `bare` CHARACTER SET latin1 COLLATE latin1_bin", 1)
    bucket.metadata(ts(20))
    routes = ['{matcher = ["bare.*"], target-schema = "kept"}']
    assert not once(bucket, server, tz="UTC", dump=full.as_uri(), start_ts=ts(1), route=routes).halted
    bucket.schema("bare.u", ts(25), "CREATE TABLE `u` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    bucket.rows("bare.u", 1, row("bare.u", 26, "1", '"new"'), version=ts(25))
    bucket.metadata(ts(30))
    assert not once(bucket, server, tz="UTC", dump=full.as_uri(), start_ts=ts(1), route=routes).halted
    assert server.query("SELECT id, name FROM kept.u") == ((1, "new"),)
    schemata = "SELECT schema_name, default_collation_name FROM information_schema.schemata"
    assert dict(server.query(f"{schemata} WHERE schema_name IN ('bare', 'kept')")) == {"kept": "latin1_bin"}
