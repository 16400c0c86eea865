"""Filter and routes on real servers: what stands under which name, what is left out, what the state remembers."""

from __future__ import annotations

from typing import Any

import pytest

from storage_consumer.cli.endings import answered
from storage_consumer.errors import ConfigError
from tests.harness import servers
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CONFIG, CREATE_TABLE, ID_NAME, SmallBucket, column, row, ts
from tests.integration.rounds import content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]

ID = (column("id", "INT", key=True),)
CHILD = (*ID, column("parent", "INT"))
COPY = {
    "consumer": {
        "routes": [
            {"matcher": ["shop.*"], "target-schema": "copy", "target-table": "{table}_old"},
            {"matcher": ["extra.*"], "target-schema": "copy_{schema}"},
        ]
    }
}


def given(**consumer: Any) -> dict[str, Any]:
    """The settings of the bucket and these of ours."""
    return {"config": [CONFIG, {"consumer": consumer}]}


@pytest.fixture(params=servers.KINDS)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    """Each kind of server."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    return found


def every_statement(bucket: SmallBucket) -> None:
    """Two databases with statements that name other tables: foreign keys, copies, views, renames, exchanges, drops."""
    bucket.create("shop.a", "extra.b")
    bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'))
    bucket.schema("shop.like", ts(2), "CREATE TABLE `like` LIKE `a`", CREATE_TABLE)
    bucket.schema("extra.far", ts(2), "CREATE TABLE `extra`.`far` LIKE `shop`.`a`", CREATE_TABLE)
    body = "`id` INT PRIMARY KEY,`parent` INT,CONSTRAINT `fk` FOREIGN KEY (`parent`) REFERENCES `a`(`id`)"
    bucket.schema("shop.child", ts(3), f"CREATE TABLE `child` ({body})", CREATE_TABLE, CHILD)
    bucket.schema("shop.grown", ts(4), "RENAME TABLE `shop`.`child` TO `shop`.`grown`", 14, CHILD)
    bucket.rows("shop.grown", 1, row("shop.grown", 5, "7", "1", names=("id", "parent")), version=ts(4))
    parts = "PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10),PARTITION `p1` VALUES LESS THAN (20))"
    bucket.schema("shop.p", ts(4), f"CREATE TABLE `p` (`id` INT PRIMARY KEY) {parts}", CREATE_TABLE, ID)
    bucket.schema("extra.q", ts(4), "CREATE TABLE `q` (`id` INT PRIMARY KEY)", CREATE_TABLE, ID)
    bucket.rows("extra.q", 1, row("extra.q", 5, "3", names=("id",)), version=ts(4))
    exchange = "ALTER TABLE `shop`.`p` EXCHANGE PARTITION `p0` WITH TABLE `extra`.`q`"
    bucket.schema("shop.p", ts(6), exchange, 42, ID)
    bucket.schema("extra.q", ts(6), "", 0, ID)
    select = "SELECT `a`.`id` AS `id`,`shop`.`grown`.`parent` AS `grown` FROM (`shop`.`a` JOIN `shop`.`grown` ON `a`.`id`=`grown`.`parent`)"
    bucket.schema("extra.v", ts(7), f"CREATE VIEW `extra`.`v` (`x`,`y`) AS {select}", 21, ())
    bucket.schema("shop.moved", ts(8), "RENAME TABLE `extra`.`b` TO `shop`.`moved`", 14)
    bucket.rows("shop.moved", 1, row("shop.moved", 9, "4", '"four"'), version=ts(8))
    bucket.schema("shop.like", ts(9), "DROP TABLE `shop`.`like`", 4)
    bucket.schema("extra.far", ts(9), "TRUNCATE TABLE `far`", 11)
    wider = (*ID_NAME, column("note", "INT"))
    bucket.schema(
        "shop.a", ts(10), "ALTER TABLE `a` ADD COLUMN `note` INT DEFAULT 5, ADD INDEX `a` (`name`)", 61, wider
    )
    bucket.metadata(ts(12))


def test_everything_under_other_names(bucket: SmallBucket, server: DatabaseServer) -> None:
    """Every statement that names tables runs on their routed names, and no name of the bucket is made; a restart goes on (U2)."""
    every_statement(bucket)
    options = given(**COPY["consumer"])
    assert not once(bucket, server, **options).halted
    tables = {
        (schema, table)
        for schema, table in server.query("SELECT table_schema, table_name FROM information_schema.tables")
        if schema in ("copy", "copy_extra", "shop", "extra")
    }
    assert tables == {
        *(("copy", f"{name}_old") for name in ("a", "grown", "p", "moved")),
        *(("copy_extra", name) for name in ("far", "q", "v")),
    }
    assert content(server, "copy.a_old") == [(1, "one", 5)]
    assert content(server, "copy.p_old") == [(3,)]
    assert content(server, "copy_extra.q") == []
    assert content(server, "copy.moved_old") == [(4, "four")]
    assert content(server, "copy_extra.v") == [(1, 1)]
    ((parent,),) = server.query(
        "SELECT referenced_table_name FROM information_schema.key_column_usage "
        "WHERE table_schema = 'copy' AND table_name = 'grown_old' AND referenced_table_name IS NOT NULL"
    )
    assert parent == "a_old"
    bucket.rows("shop.a", 1, row("shop.a", 13, "2", '"two"', "6"), version=ts(10))
    bucket.metadata(ts(14))
    assert not once(bucket, server, **options).halted
    assert content(server, "copy.a_old") == [(1, "one", 5), (2, "two", 6)]


def decided(server: DatabaseServer, **options: str) -> str:
    """What the command `table` says."""
    return answered("table", {"downstream_uri": server.uri} | options, {}).text


def test_another_route_is_refused(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """The state remembers where rows are; moved by hand and noted, the table goes on under its new name."""
    bucket.create("shop.a")
    bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'))
    bucket.metadata(ts(3))
    once(bucket, mariadb, **given(**COPY["consumer"]))
    with pytest.raises(ConfigError, match=r"the rows of shop.a are in copy.a_old of the target"):
        once(bucket, mariadb, **given())
    mariadb.query("CREATE DATABASE shop")
    mariadb.query("RENAME TABLE copy.a_old TO shop.a")
    decided(mariadb, action="moved", table="shop.a", to="shop.a")
    bucket.rows("shop.a", 2, row("shop.a", 4, "2", '"two"'))
    bucket.metadata(ts(5))
    assert not once(bucket, mariadb, **given()).halted
    assert content(mariadb, "shop.a") == [(1, "one"), (2, "two")]


def test_what_the_filter_leaves_out(bucket: SmallBucket, server: DatabaseServer) -> None:
    """Tables, statements and views by their rules; what would need rows that were not read halts alone."""
    bucket.create("shop.a", "shop.out", "other.t")
    for table in ("shop.a", "shop.out", "other.t"):
        bucket.rows(table, 1, row(table, 2, "1", '"one"'))
    bucket.schema("shop.copied", ts(3), "CREATE TABLE `copied` LIKE `out`", CREATE_TABLE)
    bucket.rows("shop.copied", 1, row("shop.copied", 4, "1", '"x"'), version=ts(3))
    bucket.schema("shop.view", ts(4), "CREATE VIEW `view` AS SELECT `id` FROM `shop`.`out`", 21, ())
    body = "`id` INT PRIMARY KEY,`parent` INT,CONSTRAINT `fk` FOREIGN KEY (`parent`) REFERENCES `out`(`id`)"
    bucket.schema("shop.child", ts(4), f"CREATE TABLE `child` ({body})", CREATE_TABLE, CHILD)
    bucket.rows("shop.child", 1, row("shop.child", 5, "7", "1", names=("id", "parent")), version=ts(4))
    bucket.schema("shop.in", ts(5), "RENAME TABLE `other`.`t` TO `shop`.`in`", 14)
    bucket.schema("shop.a", ts(6), "DROP TABLE `shop`.`a`", 4)
    bucket.metadata(ts(9))
    rules = ["shop.*", "!shop.out"]
    events = [{"matcher": ["shop.a"], "ignore-event": ["drop table"]}]
    options = given(filter={"rules": rules, "event-filters": events})
    summary = once(bucket, server, **options)
    assert [one.table for one in summary.halted] == ["shop.in"]
    assert "brings rows of other.t, which the filter leaves out, into shop.in" in of(summary, "shop.in").error
    assert content(server, "shop.a") == [(1, "one")]
    assert content(server, "shop.copied") == [(1, "x")]
    assert content(server, "shop.child") == [(7, 1)]
    assert {table for (table,) in server.query("SHOW TABLES FROM shop")} == {"a", "copied", "child"}
    assert "other" not in server.databases()
    noted = dict(server.query("SELECT note, state FROM storage_consumer.ddl_journal WHERE state = 'skipped'"))
    assert set(noted) == {
        "the filter leaves out shop.out",
        "the filter leaves out other.t",
        "the filter leaves out every table of other",
        "it reads shop.out, which the filter leaves out and the target does not have",
        "ignore-event 'drop table' of an event filter",
    }


def test_a_table_that_is_taken_in_later(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """It halts over restarts; with a copy, and told what that is as of, it goes on from there, and doubles nothing."""
    bucket.create("shop.a", "shop.b")
    for table in ("shop.a", "shop.b"):
        bucket.rows(table, 1, row(table, 2, "1", '"one"'))
    bucket.metadata(ts(3))
    once(bucket, mariadb, **given(filter={"rules": ["shop.a"]}))
    bucket.rows("shop.b", 2, row("shop.b", 4, "2", '"two"'), row("shop.b", 6, "3", '"three"'))
    bucket.metadata(ts(7))
    for _ in range(2):
        summary = once(bucket, mariadb, **given(filter={"rules": ["shop.*"]}))
        assert "this table was left out until now" in of(summary, "shop.b").error
    mariadb.query("CREATE TABLE shop.b LIKE shop.a")
    mariadb.query("INSERT INTO shop.b VALUES (1, 'one'), (2, 'from the copy')")
    decided(mariadb, action="reload-done", table="shop.b", at=str(ts(5)))
    assert not once(bucket, mariadb, **given(filter={"rules": ["shop.*"]})).halted
    assert content(mariadb, "shop.b") == [(1, "one"), (2, "from the copy"), (3, "three")]
