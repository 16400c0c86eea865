"""A bucket whose tables are older than its changefeed, and a target that holds rows of which no state tells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import servers
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, SmallBucket, column, row, ts
from tests.integration.rounds import content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]

ADD_COLUMN, RENAME = 5, 14
WIDER = (*ID_NAME, column("more", "INT"))
BODY = "id INT PRIMARY KEY, name VARCHAR(20)"


@pytest.fixture
def copied(server: DatabaseServer) -> DatabaseServer:
    """The same with a database of the source's defaults, as a copy has made it."""
    server.query("CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    return server


THERE = {
    "same": (BODY, ""),
    "absent": ("", "error 1146"),
    "ahead": (f"{BODY}, more INT", "error 1060"),
    "other": ("id INT PRIMARY KEY, title VARCHAR(20)", "columns that the target's table lacks: name"),
}
"""Table → what it is in the target before the first start, and what stops it."""


def test_first_event_is_an_alter(bucket: SmallBucket, copied: DatabaseServer) -> None:
    """Where the bucket tells no first structure the target's table counts: it has to be there and to fit, else its table halts (D11)."""
    for name, (body, _) in THERE.items():
        if body:
            copied.query(f"CREATE TABLE d.{name} ({body})")
        bucket.schema(f"d.{name}", ts(4), f"ALTER TABLE `{name}` ADD COLUMN `more` INT", ADD_COLUMN, WIDER)
        bucket.rows(f"d.{name}", 1, row(f"d.{name}", 5, "1", '"one"', "7"), version=ts(4))
    bucket.metadata(ts(9))
    summary = once(bucket, copied)
    for name, (_, error) in THERE.items():
        found = of(summary, f"d.{name}")
        assert (found.state, error in found.error) == ("halted" if error else "running", True), found
    assert content(copied, "d.same") == [(1, "one", 7)]


def test_copy_and_changefeed_of_one_moment(bucket: SmallBucket, copied: DatabaseServer) -> None:
    """Of a copy at T and a changefeed from T on, what committed at exactly T counts once, and a DDL of T that the copy has is told (O15)."""
    for name in ("rows", "ddl"):
        copied.query(f"CREATE TABLE d.`{name}` ({BODY}, more INT)")
        copied.query(f"INSERT INTO d.`{name}` VALUES (1, 'at T', 5), (2, 'before', NULL)")
    bucket.schema("d.rows", ts(5), "", 0, WIDER)
    bucket.rows(
        "d.rows",
        1,
        row("d.rows", 5, "1", '"at T"', "5"),
        row("d.rows", 6, "2", '"after"', "6", operation="U"),
        row("d.rows", 7, "3", '"new"', "7"),
        version=ts(5),
    )
    bucket.schema("d.ddl", ts(5), "ALTER TABLE `ddl` ADD COLUMN `more` INT", ADD_COLUMN, WIDER)
    bucket.rows("d.ddl", 1, row("d.ddl", 6, "3", '"new"', "7"), version=ts(5))
    bucket.metadata(ts(9))
    summary = once(bucket, copied)
    assert content(copied, "d.`rows`") == [(1, "at T", 5), (2, "after", 6), (3, "new", 7)]
    assert [table.table for table in summary.halted] == ["d.ddl"]
    assert f"storage-consumer ddl done --table d.ddl --version {ts(5)}" in summary.halted[0].error
    assert len(content(copied, "d.`ddl`")) == 2


def test_state_that_is_lost(bucket: SmallBucket, server: DatabaseServer) -> None:
    """Where the state is gone and the tables are there, nothing is applied a second time: each table that the bucket makes halts (O11)."""
    bucket.create("d.t")
    columns = tuple(one | {"ColumnIsPk": "false"} for one in ID_NAME)
    bucket.schema("d.heap", ts(1), "CREATE TABLE `heap` (id INT, name VARCHAR(20))", CREATE_TABLE, columns)
    for table in ("d.t", "d.heap"):
        bucket.rows(table, 1, row(table, 5, "1", '"one"'))
    bucket.metadata(ts(9))
    assert not once(bucket, server).halted
    server.query("DROP DATABASE storage_consumer")
    summary = once(bucket, server)
    assert (summary.rows, all("CREATE" in table.error for table in summary.halted)) == (0, True)
    assert summary.halted
    assert [content(server, table) for table in ("d.t", "d.heap")] == [[(1, "one")]] * 2


@pytest.fixture(scope="module")
def folding() -> Iterator[DatabaseServer]:
    """A server that keeps all names in lower case."""
    with servers.mariadb(options=["--lower-case-table-names=1"]) as found:
        yield found


@pytest.mark.parametrize("kind", ["folding", *KINDS])
def test_names_of_mixed_case(kind: str, bucket: SmallBucket, request: pytest.FixtureRequest) -> None:
    """Names of mixed case lead to one table on servers that tell case apart (lower_case_table_names 0), fold it (1), or keep it (2) (D19)."""
    server: DatabaseServer = request.getfixturevalue(kind)
    assert int(server.query("SELECT @@lower_case_table_names")[0][0]) == {"folding": 1, "tidb": 2}.get(kind, 0)
    bucket.create("Shop.Orders", "Shop.Other")
    bucket.rows("Shop.Orders", 1, row("Shop.Orders", 2, "1", '"one"'))
    bucket.schema("Shop.Orders", ts(3), "ALTER TABLE `SHOP`.`ORDERS` ADD COLUMN `more` INT", ADD_COLUMN, WIDER)
    bucket.rows("Shop.Orders", 1, row("shop.ORDERS", 4, "2", '"two"', "2"), version=ts(3))
    bucket.schema("Shop.Later", ts(5), "RENAME TABLE `shop`.`orders` TO `shop`.`Later`", RENAME, WIDER)
    bucket.rows("Shop.Later", 1, row("Shop.Later", 6, "3", '"three"', "3"), version=ts(5))
    bucket.schema("Shop.ORDERS", ts(7), f"CREATE TABLE `ORDERS` ({BODY})", CREATE_TABLE)
    bucket.rows("Shop.ORDERS", 1, row("Shop.ORDERS", 8, "9", '"new"'), version=ts(7))
    bucket.metadata(ts(9))
    for _ in range(2):
        summary = once(bucket, server)
        assert (summary.halted, summary.waiting, summary.checkpoint) == ((), (), ts(9))
    assert content(server, "Shop.Later") == [(1, "one", None), (2, "two", 2), (3, "three", 3)]
    assert content(server, "Shop.ORDERS") == [(9, "new")]
