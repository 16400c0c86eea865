"""Copies that are loaded into tables which somebody has made before, with unique keys that the source lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from storage_consumer.checkpoint.tables import StoredLoads
from storage_consumer.plan.loads import Load
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.harness.small_export import BODY, export
from tests.integration.rounds import consumer, once

pytestmark = [pytest.mark.server, pytest.mark.spark]
COLUMNS = (
    column("id", "INT", ColumnIsPk="true", ColumnNullable="false"),
    column("name", "VARCHAR", ColumnPrecision="20"),
)
KEYS = [
    *((kind, key) for kind in KINDS for key in ("`name`", "`name`(3)", "`name`,`id`")),
    *((kind, "(lower(`name`))") for kind in KINDS if kind != "mariadb"),
]


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_no_row_pushes_out_another(
    kind: str, key: str, tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    """The table is created as the copy has it, whatever it is like."""
    server: DatabaseServer = request.getfixturevalue(kind)
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.t ({BODY}, UNIQUE KEY more ({key})) COLLATE utf8mb4_bin")
    bucket = SmallBucket(root=tmp_path / "bucket")
    full = export(tmp_path / "full", 10, {"t": ["(1,'copy'),\n(2,'copy')", "(3,'copy')"]})
    bucket.schema("d.t", ts(1), f"CREATE TABLE `t` (\n{BODY}\n)", CREATE_TABLE, COLUMNS)
    bucket.rows("d.t", 1, row("d.t", 15, "4", '"copy"'), version=ts(1))
    bucket.metadata(ts(20))
    for _ in range(2):
        assert not once(bucket, server, tz="UTC", dump=full.as_uri(), start_ts=ts(1)).halted
        assert sorted(server.query("SELECT id FROM d.t")) == [(1,), (2,), (3,), (4,)]
    assert not server.query("SHOW INDEX FROM d.t WHERE Key_name = 'more'")


def test_a_key_that_is_added_after_a_load(server: DatabaseServer, tmp_path: Path, spark: SparkSession) -> None:
    """The table halts, as one does that no copy was loaded into; and a load that replaces its rows creates it as the source has it."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    full = export(tmp_path / "full", 10, {"t": ["(1,'copy')"]})
    bucket.schema("d.t", ts(1), f"CREATE TABLE `t` (\n{BODY}\n)", CREATE_TABLE, COLUMNS)
    bucket.metadata(ts(20))
    assert not once(bucket, server, tz="UTC", dump=full.as_uri(), start_ts=ts(1)).halted
    for number, tick in enumerate((30, 50), 1):
        server.query("ALTER TABLE d.t ADD UNIQUE KEY more (name)")
        bucket.rows("d.t", number, row("d.t", tick - 1, str(tick), '"copy"'), version=ts(1))
        bucket.metadata(ts(tick))
        (halted,) = once(bucket, server, tz="UTC").halted
        assert "unique key over `name`" in halted.error
        later = export(tmp_path / f"later{tick}", tick, {"t": [f"(1,'copy'),\n({tick},'other')"]})
        with consumer(bucket, server, tz="UTC") as asking:
            asking.load("d.t", later.as_uri(), replace=True)
        bucket.metadata(ts(tick + 5))
        assert not once(bucket, server, tz="UTC").halted
        assert sorted(server.query("SELECT id FROM d.t")) == [(1,), (tick,)]


def test_texts_that_the_target_would_take_for_one(server: DatabaseServer, tmp_path: Path, spark: SparkSession) -> None:
    """A key over a collation that does not tell case is not the source's, so the table is created as the copy has it."""
    body = "  `id` int NOT NULL,\n  `name` varchar(20) NOT NULL,\n  PRIMARY KEY (`name`)"
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.t ({body}) DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_general_ci")
    bucket = SmallBucket(root=tmp_path / "bucket")
    full = export(tmp_path / "full", 10, {"t": ["(1,'a'),\n(2,'A')"]}, body=body)
    columns = (
        column("id", "INT", ColumnNullable="false"),
        column("name", "VARCHAR", ColumnPrecision="20", ColumnIsPk="true", ColumnNullable="false"),
    )
    bucket.schema("d.t", ts(1), f"CREATE TABLE `t` (\n{body}\n)", CREATE_TABLE, columns)
    bucket.rows("d.t", 1, row("d.t", 15, "3", '"ä"'), row("d.t", 15, "4", '"Ä"'), version=ts(1))
    bucket.metadata(ts(20))
    for _ in range(2):
        assert not once(bucket, server, tz="UTC", dump=full.as_uri(), start_ts=ts(1)).halted
        assert sorted(server.query("SELECT id FROM d.t")) == [(1,), (2,), (3,), (4,)]


def test_rows_that_come_before_the_load_begins(
    server: DatabaseServer, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that was empty when the feed began is not dropped with what somebody has written into it since: it halts."""
    server.query("CREATE DATABASE d")
    server.query(f"CREATE TABLE d.t ({BODY})")
    begin = StoredLoads.begin

    def begun(loads: StoredLoads, *given: Any, **more: Any) -> list[Load]:
        found = begin(loads, *given, **more)
        server.query("INSERT INTO d.t VALUES (77, 'mine')")
        return found

    monkeypatch.setattr(StoredLoads, "begin", begun)
    bucket = SmallBucket(root=tmp_path / "bucket")
    full = export(tmp_path / "full", 10, {"t": ["(1,'copy')"]})
    bucket.schema("d.t", ts(1), f"CREATE TABLE `t` (\n{BODY}\n)", CREATE_TABLE, COLUMNS)
    bucket.metadata(ts(20))
    (halted,) = once(bucket, server, tz="UTC", dump=full.as_uri(), start_ts=ts(1)).halted
    assert "somebody has written rows into d.t since" in halted.error
    assert server.query("SELECT id FROM d.t") == ((77,),)
