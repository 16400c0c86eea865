"""What bad rows, values and statements get: their table halts with a message that says where and what to do; others go on."""

from __future__ import annotations

import re
import time

import pytest

from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CREATE_TABLE, SmallBucket, column, row, ts
from tests.integration.rounds import consumer, content, of, once

pytestmark = [
    *(pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")),
    pytest.mark.parametrize("bucket", ["csv", "canal-json"], indirect=True),
]

ADD_COLUMN = 5


@pytest.fixture
def two_tables(bucket: SmallBucket) -> SmallBucket:
    """Tables d.good and d.bad; d.good has one row at tick 5; ``metadata`` says tick 9."""
    bucket.create("d.good", "d.bad")
    bucket.rows("d.good", 1, row("d.good", 5, "1", '"good"'))
    bucket.metadata(ts(9))
    return bucket


# rows


def test_unparsable_row_halts_its_table(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """Nothing of the table's commit range is written, the message says where; after a repair the next start completes it (U9)."""
    first, last = row("d.bad", 5, "1", '"one"'), row("d.bad", 7, "3", '"three"')
    broken = two_tables.text(row("d.bad", 6, "2", '"two words"')).replace('"2"', '"x"').replace(',2,"two', ',x,"two')
    two_tables.rows("d.bad", 1, first, broken, last)
    two_tables.rows("d.bad", 2, row("d.bad", 8, "4", '"four"'))
    summary = once(two_tables, mariadb)
    error = of(summary, "d.bad").error
    assert of(summary, "d.bad").state == "halted"
    assert two_tables.file("d.bad", 1).name in error
    assert f"row 2 at byte {len(two_tables.text(first)) + 2}" in error
    assert f"commit ts {ts(6)}" in error
    assert "column id (INT): 'x'" in error
    assert "epair" in error
    assert content(mariadb, "d.bad") == []
    assert content(mariadb, "d.good") == [(1, "good")]
    assert summary.checkpoint_running == ts(9)
    two_tables.rows("d.bad", 1, first, row("d.bad", 6, "2", '"two words"'), last)
    assert not once(two_tables, mariadb).halted
    assert content(mariadb, "d.bad") == [(1, "one"), (2, "two words"), (3, "three"), (4, "four")]


def test_torn_last_row_of_the_newest_file_is_waited_for(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """A file that is still being written makes its table wait with nothing applied; whole, it is applied (C1)."""
    path = two_tables.rows("d.bad", 1, row("d.bad", 5, "1", '"one"'), row("d.bad", 6, "2", '"two"'))
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    summary = once(two_tables, mariadb)
    assert of(summary, "d.bad").state == "waiting"
    assert "row 2" in of(summary, "d.bad").error
    assert content(mariadb, "d.bad") == []
    assert summary.checkpoint < ts(5)
    path.write_bytes(whole)
    assert once(two_tables, mariadb).checkpoint == ts(9)
    assert content(mariadb, "d.bad") == [(1, "one"), (2, "two")]


def test_torn_last_row_that_stays_halts_the_table(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """A last row that never becomes readable, whole as it may look, halts its table once the file stood still for long."""
    path = two_tables.rows("d.bad", 1, row("d.bad", 5, "1", '"one"'), row("d.bad", 6, "2", '"two"'))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"two", b'two"x'))
    with consumer(two_tables, mariadb, gap_timeout="1s") as running:
        assert of(running.run_once(), "d.bad").state == "waiting"
        time.sleep(1)
        halted = of(running.run_once(), "d.bad")
    assert halted.state == "halted"
    assert "row 2" in halted.error
    assert "has not changed" in halted.error
    path.write_bytes(whole)
    assert once(two_tables, mariadb).checkpoint == ts(9)


def test_torn_row_in_an_older_file_halts(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """A file that others follow is not being written any more."""
    path = two_tables.rows("d.bad", 1, row("d.bad", 5, "1", '"one"'), row("d.bad", 6, "2", '"two"'))
    two_tables.rows("d.bad", 2, row("d.bad", 8, "4", '"four"'))
    path.write_bytes(path.read_bytes()[:-7])
    assert of(once(two_tables, mariadb), "d.bad").state == "halted"
    assert content(mariadb, "d.bad") == []


def test_rows_without_commit_ts_are_told(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """Where the setting says that rows have their commit ts and they have none, the error names the setting."""
    told = [row("d.bad", 5, str(number), '"one"') for number in (1, 2, 3)]
    without = [re.sub(rf',{ts(5)}|,"_tidb":{{.*}}(?=}})', "", two_tables.text(one)) for one in told]
    two_tables.rows("d.bad", 1, *without)
    summary = once(two_tables, mariadb)
    assert of(summary, "d.bad").state == "halted"
    option = "include-commit-ts" if two_tables.protocol == "csv" else "enable-tidb-extension"
    assert option in of(summary, "d.bad").error
    assert content(mariadb, "d.bad") == []


def test_row_of_a_keyless_table_that_the_target_refuses(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """A row without a key is named by its values, and nothing of its transaction is written."""
    columns = (column("a", "INT"), column("v", "VARCHAR", ColumnPrecision="5"))
    two_tables.schema("d.heap", ts(1), "CREATE TABLE `heap` (a INT, v VARCHAR(5))", CREATE_TABLE, columns)
    values = ((5, "1", '"a"'), (6, "2", '"longer than five"'))
    two_tables.rows("d.heap", 1, *(row("d.heap", *one, names=("a", "v")) for one in values))
    error = of(once(two_tables, mariadb), "d.heap").error
    assert "d.heap: the target refused the row with a = 2, v = 'longer than five'" in error
    assert content(mariadb, "d.heap") == []


def test_rows_that_do_not_fit_the_table(two_tables: SmallBucket, mariadb: DatabaseServer) -> None:
    """Columns that only one side has, or a table that is missing, halt the table, and the error says which (D17)."""
    once(two_tables, mariadb)
    mariadb.query("ALTER TABLE d.bad ADD COLUMN ours INT")
    mariadb.query("DROP TABLE d.good")
    two_tables.rows("d.bad", 1, row("d.bad", 12, "2", '"two"'))
    two_tables.rows("d.good", 2, row("d.good", 12, "2", '"two"'))
    two_tables.metadata(ts(20))
    summary = once(two_tables, mariadb)
    assert {table.table: table.state for table in summary.tables} == {"d.bad": "halted", "d.good": "halted"}
    assert "columns that the rows do not carry: ours" in of(summary, "d.bad").error
    assert "the table d.good does not exist in the target" in of(summary, "d.good").error
    mariadb.query("ALTER TABLE d.bad DROP COLUMN ours, DROP COLUMN name")
    mariadb.query("CREATE TABLE d.good (id INT PRIMARY KEY, name VARCHAR(20))")
    summary = once(two_tables, mariadb)
    assert "columns that the target's table lacks: name" in of(summary, "d.bad").error
    assert content(mariadb, "d.good") == [(2, "two")]


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("TRUNCATE TABLE `orders`", 11),
        ("ALTER TABLE `orders` DROP COLUMN `name`", 6),
        ("CREATE UNIQUE INDEX `i` ON `orders` (`name`)", 7),
        ("DROP TABLE `orders`", 4),
    ],
)
def test_statement_of_one_tenant_spares_the_other(
    query: str, kind: int, bucket: SmallBucket, mariadb: DatabaseServer
) -> None:
    """A statement never reaches a table of another database, though its own is absent and that one has the same name."""
    bucket.create("tenant2.orders")
    bucket.rows("tenant2.orders", 1, row("tenant2.orders", 2, "1", '"one"'))
    bucket.schema("tenant1", ts(1), "CREATE DATABASE `tenant1`", 1)
    bucket.schema("tenant1.orders", ts(5), query, kind)
    bucket.metadata(ts(9))
    assert [t.table for t in once(bucket, mariadb).halted] == (["tenant1.orders"] if "DROP TABLE" not in query else [])
    assert content(mariadb, "tenant2.orders") == [(1, "one")]
