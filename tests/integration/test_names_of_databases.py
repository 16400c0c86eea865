"""Names without a database, tables LIKE another, and views that cannot be made, on real servers."""

from __future__ import annotations

import pytest

from tests.harness.program import command
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, SmallBucket, column, row, ts
from tests.integration.rounds import content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]

CREATE_VIEW = 21
HEAD = "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW"
WIDER = (*ID_NAME, column("note", "INT"))


def test_names_that_were_typed_in_another_database(bucket: SmallBucket, server: DatabaseServer) -> None:
    """A view and a copy of what only another database has are of that one; where both have it, the plan and the run say so."""
    bucket.create("a.t", "b.t")
    bucket.rows("a.t", 1, row("a.t", 2, "1", '"of a"'))
    bucket.rows("b.t", 1, row("b.t", 2, "2", '"of b"'))
    bucket.schema(
        "a.w", ts(2), "CREATE TABLE `w` (id INT PRIMARY KEY, name VARCHAR(20), note INT)", CREATE_TABLE, WIDER
    )
    bucket.schema("b.w", ts(2), "CREATE TABLE `w` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    bucket.schema("b.v", ts(4), f"{HEAD} `b`.`v` AS SELECT `id` FROM `t`", CREATE_VIEW, (column("id", "UNSPECIFIED"),))
    bucket.schema(
        "b.x", ts(5), f"{HEAD} `b`.`x` AS SELECT `note` FROM `w`", CREATE_VIEW, (column("note", "UNSPECIFIED"),)
    )
    bucket.schema("b.like", ts(6), "CREATE TABLE `b`.`like` LIKE `w`", CREATE_TABLE, WIDER)
    bucket.rows("b.like", 1, row("b.like", 7, "3", '"x"', "9"), version=ts(6))
    bucket.metadata(ts(9))
    planned = command("plan", "--upstream-uri", bucket.uri, "--include-commit-ts", "true", "--tz", "UTC", server=server)
    assert "all of these can be meant: a.t, b.t" in " ".join(planned.stdout.split())
    summary = once(bucket, server, tz="UTC")
    assert (summary.halted, summary.waiting, summary.checkpoint) == ((), (), ts(9))
    assert "all of these can be meant: a.t, b.t" in of(summary, "b.v").error
    assert content(server, "b.x") == []
    assert content(server, "b.like") == [(3, "x", 9)]
    server.query("INSERT INTO a.w VALUES (7, 'w', 8)")
    assert content(server, "b.x") == [(8,)]
    flag = ("--table", "b.v", "--version", str(ts(4)))
    decided = command("ddl", "replace", *flag, "--sql", "CREATE VIEW b.v AS SELECT id FROM a.t", server=server)
    assert decided.returncode == 0, decided.stderr
    assert not [table for table in once(bucket, server, tz="UTC").tables if table.error]
    assert content(server, "b.v") == [(1,)]


def test_tables_like_what_the_feed_leaves_out(bucket: SmallBucket, server: DatabaseServer) -> None:
    """A table LIKE one that the target lacks, or has with other columns, is made from the schema file; one that fits is copied."""
    server.query("CREATE DATABASE other")
    server.query("CREATE TABLE other.fits (id INT PRIMARY KEY, name VARCHAR(20), UNIQUE (name))")
    server.query("CREATE TABLE other.differs (id INT PRIMARY KEY)")
    bucket.create("s.t")
    for name in ("lacking", "fits", "differs"):
        bucket.schema(f"s.{name}", ts(3), f"CREATE TABLE `s`.`{name}` LIKE `other`.`{name}`", CREATE_TABLE)
        bucket.rows(f"s.{name}", 1, row(f"s.{name}", 4, "1", '"x"'), version=ts(3))
    bucket.metadata(ts(9))
    assert not once(bucket, server, tz="UTC").halted
    for name in ("lacking", "fits", "differs"):
        assert content(server, f"s.{name}") == [(1, "x")]
        keys = server.query(
            f"SELECT COUNT(DISTINCT index_name) FROM information_schema.statistics WHERE table_schema = 's' AND table_name = '{name}'"
        )
        assert [*keys] == [(2 if name == "fits" else 1,)]
    history = " ".join(command("history", "--table", "s.lacking", server=server).stdout.split())
    assert "since it is a copy of other.lacking, and in the target it does not exist" in history


def test_views_that_cannot_be_made(bucket: SmallBucket, server: DatabaseServer) -> None:
    """Over a table that is gone, over such a view, with a function that the target lacks, with a column that is gone: nothing waits."""
    bucket.create("d.t")
    shown = (column("id", "UNSPECIFIED"),)
    bodies = {
        "gone": "SELECT `id` FROM `d`.`never`",
        "over": "SELECT `id` FROM `d`.`gone`",
        "function": "SELECT TIDB_SHARD(`id`) AS `id` FROM `d`.`t`",
        "column": "SELECT `old` AS `id` FROM `d`.`t`",
    }
    for tick, (name, body) in enumerate(bodies.items(), 2):
        bucket.schema(f"d.{name}", ts(tick), f"{HEAD} `d`.`{name}` AS {body}", CREATE_VIEW, shown)
    bucket.rows("d.t", 1, row("d.t", 7, "1", '"one"'))
    bucket.metadata(ts(9))
    for _ in range(2):
        summary = once(bucket, server, tz="UTC")
        assert (summary.halted, summary.waiting, summary.checkpoint) == ((), (), ts(9))
        left_out = {table.table for table in summary.tables if table.error}
        assert left_out | {"d.function"} == {f"d.{name}" for name in bodies}
    assert content(server, "d.t") == [(1, "one")]
    told = command("status", server=server)
    assert "d.gone" in told.stdout
    bucket.schema("d.never", ts(10), "CREATE TABLE `never` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    bucket.rows("d.never", 1, row("d.never", 11, "5", '"five"'), version=ts(10))
    bucket.metadata(ts(12))
    assert not of(once(bucket, server, tz="UTC"), "d.over").error
    assert content(server, "d.over") == [(5,)]
