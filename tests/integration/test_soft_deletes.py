"""Tables whose deleted rows TiDB hides by columns of its own: they halt before such rows are visible, until somebody says that they may be."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from storage_consumer.cli.main import main
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, column, row, ts
from tests.integration.rounds import content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark]
TABLE = "d.t"
HIDDEN = (
    column("_tidb_origin_ts", "BIGINT UNSIGNED", ColumnPrecision="20"),
    column("_tidb_softdelete_time", "TIMESTAMP", ColumnScale="6"),
)
COLUMNS = (column("id", "INT", key=True), *HIDDEN)
NAMES = tuple(each["ColumnName"] for each in COLUMNS)
WRITTEN_OUT = (
    "CREATE TABLE d.t (id INT PRIMARY KEY, _tidb_origin_ts BIGINT UNSIGNED, _tidb_softdelete_time TIMESTAMP(6) NULL)"
)
GONE = '"2026-09-21 00:00:00.000000"'
PROTOCOLS = pytest.mark.parametrize("bucket", ["csv", "canal-json"], indirect=True)


def fill(bucket: SmallBucket, query: str = "", kind: int = 0) -> None:
    """A table with a row that was deleted, and a row that is there; by default no statement shows the table."""
    bucket.schema(TABLE, ts(1), query, kind, COLUMNS)
    rows = [row(TABLE, 5 + n, str(n), r"\N", r"\N", names=NAMES) for n in (1, 2)]
    bucket.rows(TABLE, 1, *rows, row(TABLE, 9, "1", r"\N", GONE, operation="U", names=NAMES))
    bucket.metadata(ts(20))


def why(bucket: SmallBucket, server: DatabaseServer) -> str:
    """Why the table does not run."""
    return of(once(bucket, server, tz="UTC", no_copy=True), TABLE).error or ""


def say(server: DatabaseServer, verb: str, *more: str) -> None:
    """Decide about the statement."""
    asked = ["ddl", verb, "--table", TABLE, "--version", str(ts(1)), "--downstream-uri", server.uri, *more]
    assert main(asked) == 0


@pytest.mark.parametrize(
    ("query", "kind"), [("", 0), ("CREATE TABLE `t` (`id` INT PRIMARY KEY)", 3), ("TRUNCATE TABLE `t`", 11)]
)
@PROTOCOLS
def test_the_way_on(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession, query: str, kind: int) -> None:
    """However the columns show first, the reason is told; with them written out the table is as the files have it, also behind later statements."""
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    fill(bucket, query, kind)
    error = why(bucket, mariadb)
    assert "TiDB's soft delete is on for it" in error
    assert "storage-consumer ddl replace --table d.t" in error
    say(mariadb, "replace", "--sql", WRITTEN_OUT)
    assert why(bucket, mariadb) == ""
    assert [each[0] for each in content(mariadb, TABLE)] == [1, 2]
    assert mariadb.query("SELECT id FROM d.t WHERE _tidb_softdelete_time IS NULL") == ((2,),)
    more = (*COLUMNS, column("x", "INT"))
    bucket.schema(TABLE, ts(30), "ALTER TABLE `t` ADD COLUMN `x` INT", 5, more)
    bucket.rows(TABLE, 1, row(TABLE, 35, "3", r"\N", r"\N", "7", names=(*NAMES, "x")), version=ts(30))
    bucket.schema("d.u", ts(40), "RENAME TABLE `d`.`t` TO `d`.`u`", 14, more)
    bucket.schema("d.u", ts(50), "DROP TABLE `u`", 4, more)
    bucket.metadata(ts(45))
    summary = once(bucket, mariadb, tz="UTC", no_copy=True)
    assert [(each.table, each.error) for each in summary.tables if each.error] == []
    assert len(content(mariadb, "d.u")) == 3
    bucket.metadata(ts(60))
    assert once(bucket, mariadb, tz="UTC", no_copy=True).halted == ()


@PROTOCOLS
def test_a_table_that_the_target_has(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession) -> None:
    """It halts as well, until `ddl done` says that it is meant to be so; one without the columns says which."""
    mariadb.query("CREATE DATABASE d")
    mariadb.query(WRITTEN_OUT)
    fill(bucket)
    assert "say `storage-consumer ddl done` if the target has it so" in why(bucket, mariadb)
    assert content(mariadb, TABLE) == []
    say(mariadb, "done")
    assert why(bucket, mariadb) == ""
    assert len(content(mariadb, TABLE)) == 2
    mariadb.query("ALTER TABLE d.t DROP COLUMN _tidb_softdelete_time")
    bucket.rows(TABLE, 2, row(TABLE, 25, "3", r"\N", r"\N", names=NAMES))
    bucket.metadata(ts(26))
    assert "TiDB's soft delete is on for the table" in why(bucket, mariadb)


@pytest.mark.parametrize("kind", ["DATETIME", "INT"])
def test_columns_of_the_same_name(bucket: SmallBucket, mariadb: DatabaseServer, spark: SparkSession, kind: str) -> None:
    """A column that an application calls so, of another type, is one like any other."""
    columns = (
        column("id", "INT", key=True),
        column("_tidb_origin_ts", "BIGINT"),
        column("_tidb_softdelete_time", kind),
    )
    create = f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `_tidb_origin_ts` BIGINT, `_tidb_softdelete_time` {kind})"
    bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    bucket.schema(TABLE, ts(1), create, 3, columns)
    bucket.rows(TABLE, 1, row(TABLE, 5, "1", r"\N", r"\N", names=NAMES))
    bucket.metadata(ts(20))
    assert why(bucket, mariadb) == ""
    assert content(mariadb, TABLE) == [(1, None, None)]
