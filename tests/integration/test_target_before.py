"""Databases and tables that the target had before the program came: nothing of theirs gets into the source's."""

from __future__ import annotations

import pytest

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.integration.rounds import content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]

CREATE, ALTER = 1, 26
BY_NAME = (column("name", "VARCHAR", key=True, ColumnPrecision="20"), column("more", "INT"))
OTHER_CASE = [("A", 2), ("a", 1)]


def _table(bucket: SmallBucket, name: str) -> None:
    """A table that names no collation, with two keys that differ in case."""
    bucket.schema(name, ts(2), "CREATE TABLE `t` (`name` VARCHAR(20) PRIMARY KEY,`more` INT)", CREATE_TABLE, BY_NAME)
    bucket.rows(name, 1, row(name, 3, '"a"', "1"), row(name, 3, '"A"', "2"), version=ts(2))


def _collation(server: DatabaseServer, schema: str) -> str:
    sql = f"SELECT table_collation FROM information_schema.tables WHERE table_schema = '{schema}' AND table_name = 't'"
    return str(server.query(sql)[0][0])


def test_database_with_other_defaults(bucket: SmallBucket, server: DatabaseServer) -> None:
    """A new table has the source's collation, and keys that differ in case stay two, in a database that was there before (C19, D17)."""
    server.query("CREATE DATABASE there CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    bucket.schema("there", ts(1), "CREATE DATABASE IF NOT EXISTS `there`", CREATE)
    _table(bucket, "there.t")
    bucket.metadata(ts(9))
    assert once(bucket, server).halted == ()
    assert content(server, "there.t") == OTHER_CASE
    assert _collation(server, "there") == "utf8mb4_bin"


def test_defaults_that_the_source_changed(bucket: SmallBucket, server: DatabaseServer) -> None:
    """ALTER DATABASE decides the collation of the tables after it, also where the bucket or the target has no such database."""
    server.query("CREATE DATABASE there CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    for schema in ("there", "missing"):
        query = f"ALTER DATABASE `{schema}` CHARACTER SET = UTF8MB4 COLLATE = UTF8MB4_GENERAL_CI"
        bucket.schema(schema, ts(1), query, ALTER)
        name = f"{schema}.t"
        bucket.schema(
            name, ts(2), "CREATE TABLE `t` (`name` VARCHAR(20) PRIMARY KEY,`more` INT)", CREATE_TABLE, BY_NAME
        )
    bucket.metadata(ts(9))
    assert once(bucket, server).halted == ()
    assert [_collation(server, schema) for schema in ("there", "missing")] == ["utf8mb4_general_ci"] * 2


def test_table_of_the_same_name(bucket: SmallBucket, server: DatabaseServer) -> None:
    """A table that was there is not taken for the source's, which IF NOT EXISTS would do: it stays as it is, and is told."""
    server.query("CREATE DATABASE there")
    server.query("CREATE TABLE there.t (name VARCHAR(20) PRIMARY KEY, more INT)")
    server.query("INSERT INTO there.t VALUES ('left over', 7)")
    bucket.schema("there", ts(1), "CREATE DATABASE IF NOT EXISTS `there`", CREATE)
    query = "CREATE TABLE IF NOT EXISTS `t` (`name` VARCHAR(20) PRIMARY KEY,`more` INT)"
    bucket.schema("there.t", ts(2), query, CREATE_TABLE, BY_NAME)
    bucket.rows("there.t", 1, row("there.t", 3, '"a"', "1"), version=ts(2))
    bucket.metadata(ts(9))
    assert "error 1050: Table" in of(once(bucket, server), "there.t").error
    assert content(server, "there.t") == [("left over", 7)]
