"""Copies that are loaded into tables which somebody has made before, with unique keys that the source lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.harness.small_export import BODY, export
from tests.integration.rounds import once

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
    """The table is created as the copy has it, where rows of the source could be alike in the key; else it stays, with the key."""
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
    kept = bool(server.query("SHOW INDEX FROM d.t WHERE Key_name = 'more'"))
    assert kept == ("`id`" in key)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_the_target_would_take_for_one(
    kind: str, tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    """A key over a collation that does not tell case is not the source's, so the table is created as the copy has it."""
    server: DatabaseServer = request.getfixturevalue(kind)
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
