"""Statements in and behind a window that is to be taken back: those that change what the script would mean are refused, others named in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.errors import NotReplicable
from tests.harness.small_bucket import ID_NAME, SmallBucket, column, row, ts
from tests.unit.changes.building import undone_of

ID, NAME = ID_NAME
MORE = column("more", "INT")
BAG = (column("id", "INT"), column("name", "VARCHAR"))
Columns = Sequence[dict[str, Any]]


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """d.a, to which a row came at tick 3; complete up to tick 20."""
    found = SmallBucket(root=tmp_path)
    found.create("d.a", "d.b")
    found.rows("d.a", 1, row("d.a", 3, "1", '"one"'))
    found.metadata(ts(20))
    return found


def narrow(**attributes: str) -> Columns:
    """The columns of d.a, with other attributes of `name`."""
    return (ID, {**NAME, **attributes})


HARMFUL = [
    ("d.a", "ALTER TABLE `a` DROP COLUMN `name`", 6, (ID,), "dropped column name"),
    ("d.a", "ALTER TABLE `a` ADD INDEX `i` (`name`), DROP COLUMN `name`", 61, (ID,), "dropped column name"),
    ("d.a", "ALTER TABLE `a` RENAME COLUMN `name` TO `title`", 12, (ID, column("title", "VARCHAR")), "gave column name the name title"),
    ("d.a", "ALTER TABLE `d`.`a` CHANGE COLUMN `name` `title` VARCHAR(20)", 12, (ID, column("title", "VARCHAR")), "gave column name the name title"),
    ("d.a", "ALTER TABLE `a` ADD COLUMN `more` INT NOT NULL", 5, (*ID_NAME, {**MORE, "ColumnNullable": "false"}), "added column more, which is NOT NULL"),
    ("d.a", "ALTER TABLE `a` ADD COLUMN (`x` INT, `more` INT NOT NULL)", 5, (*ID_NAME, column("x", "INT"), {**MORE, "ColumnNullable": "false"}), "added column more, which is NOT NULL"),
    ("d.a", "ALTER TABLE `a` ADD COLUMN `at` DATETIME DEFAULT CURRENT_TIMESTAMP", 5, (*ID_NAME, column("at", "DATETIME", ColumnDefault="CURRENT_TIMESTAMP")), "added column at, whose default"),
    ("d.a", "ALTER TABLE `a` ADD COLUMN `at` DATETIME NULL ON UPDATE CURRENT_TIMESTAMP", 5, (*ID_NAME, column("at", "DATETIME")), "added column at, which any update"),
    ("d.a", "ALTER TABLE `a` MODIFY COLUMN `name` VARCHAR(5)", 12, narrow(ColumnPrecision="5"), "gave column name another type"),
    ("d.a", "ALTER TABLE `a` MODIFY COLUMN `name` INT", 12, narrow(ColumnType="INT", ColumnPrecision="11"), "gave column name another type"),
    ("d.a", "ALTER TABLE `a` MODIFY COLUMN `name` VARCHAR(20) NOT NULL", 12, narrow(ColumnNullable="false"), "made column name NOT NULL"),
    ("d.a", "ALTER TABLE `a` MODIFY `name` VARCHAR(20) CHARACTER SET latin1", 12, ID_NAME, "may have given column name another collation"),
    ("d.a", "ALTER TABLE `a` CONVERT TO CHARACTER SET latin1", 22, ID_NAME, "may have changed"),
    ("d.a", "ALTER TABLE `a` DROP PRIMARY KEY", 33, (column("id", "INT"), NAME), "changed the primary key"),
    ("d.a", "ALTER TABLE `a` SOMETHING NEW", 99, ID_NAME, "may have changed"),
    ("d.a", "TRUNCATE TABLE `a`", 11, ID_NAME, "took all rows away"),
    ("d.a", "ALTER TABLE `a` TRUNCATE PARTITION `p0`", 23, ID_NAME, "took rows away"),
    ("d.a", "DROP TABLE `a`", 4, ID_NAME, "dropped the table"),
    ("d", "DROP DATABASE `d`", 2, (), "dropped the table with its database"),
    ("d.z", "RENAME TABLE `d`.`a` TO `d`.`z`", 14, ID_NAME, "gave the table the name d.z"),
    ("d.z", "ALTER TABLE `d`.`a` RENAME TO `d`.`z`", 14, ID_NAME, "gave the table the name d.z"),
    ("d.p", "ALTER TABLE `d`.`p` EXCHANGE PARTITION `p0` WITH TABLE `d`.`a`", 42, ID_NAME, "put other rows in the place"),
    ("d.a", "", 0, (ID, column("title", "VARCHAR")), "shows another structure"),
]  # fmt: skip
HARMLESS = [
    ("ALTER TABLE `a` ADD COLUMN `more` INT", 5, (*ID_NAME, MORE)),
    ("ALTER TABLE `a` ADD COLUMN `more` INT FIRST, ADD INDEX `i` (`more`)", 61, (MORE, *ID_NAME)),
    ("ALTER TABLE `a` ADD COLUMN `more` INT NOT NULL DEFAULT 7", 5, (*ID_NAME, {**MORE, "ColumnNullable": "false", "ColumnDefault": "7"})),
    ("ALTER TABLE `a` ADD COLUMN `more` INT AS (`id` + 1) STORED", 5, (*ID_NAME, MORE)),
    ("ALTER TABLE `a` MODIFY COLUMN `name` VARCHAR(200)", 12, narrow(ColumnPrecision="200")),
    ("ALTER TABLE `a` MODIFY COLUMN `id` BIGINT", 12, ({**ID, "ColumnType": "BIGINT"}, NAME)),
    ("ALTER TABLE `a` ALTER COLUMN `name` SET DEFAULT 'x'", 15, narrow(ColumnDefault="x")),
    ("ALTER TABLE `a` ADD UNIQUE INDEX `u` (`name`)", 7, ID_NAME),
    ("ALTER TABLE `a` DROP INDEX `u`", 8, ID_NAME),
    ("ALTER TABLE `a` ADD CONSTRAINT `c` CHECK (`id` > 0)", 99, ID_NAME),
    ("ALTER TABLE `a` RENAME INDEX `u` TO `v`", 18, ID_NAME),
    ("CREATE INDEX `i` ON `a` (`name`)", 7, ID_NAME),
    ("CREATE UNIQUE INDEX `i` ON `a` (`name`)", 7, ID_NAME),
    ("DROP INDEX `i` ON `a`", 8, ID_NAME),
    ("ALTER TABLE `a` COMMENT = 'it''s, so'", 17, ID_NAME),
    ("ALTER TABLE `a` ADD PARTITION (PARTITION `p1` VALUES LESS THAN (9))", 19, ID_NAME),
]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "query", "kind", "columns", "told"), HARMFUL, ids=[f"{one[1] or 'none'}" for one in HARMFUL]
)
def test_a_statement_behind_the_window(
    bucket: SmallBucket, table: str, query: str, kind: int, columns: Columns, told: str
) -> None:
    """It is refused with the table, its text, its version and what to do, whether the window ends before it or has no table of the filter but that."""
    bucket.schema(table, ts(9), query, kind, columns)
    for rules in ((), ("d.a",)):
        with pytest.raises(NotReplicable, match=told) as refused:
            undone_of(bucket, *rules, low=ts(2), high=ts(4))
        text = str(refused.value)
        assert text.startswith("d.a: ")
        assert query[:200] in text
        assert f"version {ts(9)}" in text
        assert "--format json" in text


@pytest.mark.parametrize(
    ("table", "query", "kind", "columns", "told"), HARMFUL, ids=[f"{one[1] or 'none'}" for one in HARMFUL]
)
def test_a_statement_in_the_window(
    bucket: SmallBucket, table: str, query: str, kind: int, columns: Columns, told: str
) -> None:
    """It is refused, with a window that has none of it."""
    bucket.schema(table, ts(9), query, kind, columns)
    with pytest.raises(NotReplicable) as refused:
        undone_of(bucket, low=ts(2), high=ts(15))
    assert query[:200] in str(refused.value)
    assert told in str(refused.value) or table in ("d", "d.p")
    assert f"--from {ts(9) + 1}" in str(refused.value) or not query
    assert undone_of(bucket, low=ts(9)) == []


@pytest.mark.parametrize(("query", "kind", "columns"), HARMLESS, ids=[one[0] for one in HARMLESS])
def test_a_statement_that_changes_nothing(bucket: SmallBucket, query: str, kind: int, columns: Columns) -> None:
    """The script names it in a comment: before all statements if it came after the window, else in its place."""
    bucket.schema("d.a", ts(9), query, kind, columns)
    values = ('"7"' if each["ColumnType"] == "VARCHAR" else "7" for each in columns)
    bucket.rows("d.a", 1, row("d.a", 12, *values), version=ts(9))
    note, delete = undone_of(bucket, low=ts(2), high=ts(4))
    assert (note.startswith(f"-- d.a: {query!r} (version {ts(9)}"), delete[:6]) == (True, "DELETE")
    kinds = [line[:6] for line in undone_of(bucket, low=ts(2), high=ts(13))]
    assert kinds == ["DELETE", note[:6], "DELETE"]


def test_a_name_with_a_line_break(bucket: SmallBucket) -> None:
    """The comment stays one line: a server would run what stands behind the break."""
    bucket.create("d.a\nb")
    bucket.rows("d.a\nb", 1, row("d.a\nb", 3, "1", '"one"'))
    bucket.schema("d.a\nb", ts(9), "ALTER TABLE `a\nb` ADD INDEX `i` (`name`)", 7, ID_NAME)
    notes = [line for line in undone_of(bucket, low=ts(2), high=ts(4)) if line.startswith("--")]
    assert len(notes) == 1
    assert "\n" not in notes[0]


def test_a_column_that_came_and_was_changed(bucket: SmallBucket) -> None:
    """A row that comes back would get the default of now, not the one that its like got when the column was added."""
    columns = (*ID_NAME, {**MORE, "ColumnDefault": "1"})
    bucket.schema("d.a", ts(8), "ALTER TABLE `a` ADD COLUMN `more` INT DEFAULT 1", 5, columns)
    assert len(undone_of(bucket, low=ts(2), high=ts(4))) == 2
    columns = (*ID_NAME, {**MORE, "ColumnDefault": "2"})
    bucket.schema("d.a", ts(9), "ALTER TABLE `a` ALTER COLUMN `more` SET DEFAULT 2", 15, columns)
    with pytest.raises(NotReplicable, match="changed column more, which was added before"):
        undone_of(bucket, low=ts(2), high=ts(4))


def test_a_table_without_a_key(bucket: SmallBucket) -> None:
    """A new column makes rows that were alike two kinds; an index does not."""
    bucket.schema("d.bag", ts(1), "CREATE TABLE `bag` (id INT, name VARCHAR(20))", 3, BAG)
    bucket.rows("d.bag", 1, row("d.bag", 3, "1", '"one"'))
    bucket.schema("d.bag", ts(8), "CREATE INDEX `i` ON `bag` (`id`)", 7, BAG)
    assert len(undone_of(bucket, "d.bag", low=ts(2), high=ts(4))) == 2
    bucket.schema("d.bag", ts(9), "ALTER TABLE `bag` ADD COLUMN `more` INT", 5, (*BAG, MORE))
    with pytest.raises(NotReplicable, match="without a primary key"):
        undone_of(bucket, "d.bag", low=ts(2), high=ts(4))


def test_other_tables_do_not_matter(bucket: SmallBucket) -> None:
    """A statement on a table without changes in the window is of no concern behind it, nor is a structure that TiCDC only writes again."""
    bucket.schema("d.b", ts(9), "DROP TABLE `b`", 4)
    bucket.schema("d.a", ts(10), "", 0)
    bucket.schema("d", ts(11), "ALTER DATABASE `d` CHARACTER SET utf8mb4", 26)
    assert [line[:6] for line in undone_of(bucket, low=ts(2), high=ts(4))] == ["DELETE"]


def test_views_and_databases_in_the_window(bucket: SmallBucket) -> None:
    """What has no rows is named in a comment, by its own name; a database that comes or goes is refused."""
    bucket.schema("d.v", ts(9), "CREATE VIEW `v` AS SELECT 1", 21, (column("1", "INT"),))
    bucket.schema("d", ts(10), "ALTER DATABASE `d` CHARACTER SET utf8mb4", 26)
    bucket.schema("d.v", ts(11), "DROP VIEW `d`.`v`", 24, ())
    drop, alter, create, delete = undone_of(bucket, low=ts(2))
    assert (drop[:8], alter[:6], create[:8], delete[:6]) == ("-- d.v: ", "-- d: ", "-- d.v: ", "DELETE")
    bucket.schema("e", ts(12), "CREATE DATABASE `e`", 1)
    with pytest.raises(NotReplicable, match=r"e: the statement 'CREATE DATABASE `e`' .* made or dropped the database"):
        undone_of(bucket, low=ts(2))


def test_a_value_that_is_no_member(tmp_path: Path) -> None:
    """Only a session that is not strict writes it, so its row alone is written in one."""
    found = SmallBucket(root=tmp_path, protocol="canal-json")
    found.schema("d.e", ts(1), "CREATE TABLE `e` (id INT PRIMARY KEY, e ENUM('a'))", 3, (ID, column("e", "ENUM")))
    names = ("id", "e")
    gone = (row("d.e", tick, "1", member, operation="D", names=names) for tick, member in ((3, "0"), (4, "1")))
    found.rows("d.e", 1, *gone)
    found.metadata(ts(9))
    plain, loose = undone_of(found, low=ts(2))
    assert plain.startswith("INSERT INTO `d`.`e` (`id`, `e`) VALUES (1, 'a'); --")
    assert loose.startswith(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'; INSERT INTO `d`.`e` (`id`, `e`) VALUES (1, ''); "
    )
    assert "; SET SESSION sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'; --" in loose
