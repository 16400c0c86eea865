"""Which statements move a table's rows without a change of any."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_consumer.changes.alterations import moves
from storage_consumer.model import TableName
from tests.harness.small_bucket import SmallBucket, ts
from tests.unit.changes.building import feed_of


@pytest.mark.parametrize(
    ("place", "query", "kind", "effect"),
    [
        ("d.a", "TRUNCATE TABLE `A`", 11, "took all rows away"),
        ("d.a", "DROP TABLE `d`.`a`", 4, "dropped the table"),
        ("d", "DROP DATABASE `d`", 2, "dropped the table with its database"),
        ("d.x", "RENAME TABLE `d`.`a` TO `d`.`x`", 14, "gave the table the name d.x"),
        ("d.a", "RENAME TABLE `d`.`x` TO `d`.`a`", 14, "gave another table's rows this name"),
        ("d.a", "RENAME TABLE `a` TO `d`.`a`", 14, "gave another table's rows this name"),
        ("d.a", "ALTER TABLE `a` DROP PARTITION `p0`", 20, "took rows away"),
        ("d.a", "ALTER TABLE `a` ADD INDEX (id), TRUNCATE PARTITION `p0`", 99, "took rows away"),
        ("d.p", "ALTER TABLE `d`.`p` EXCHANGE PARTITION `p0` WITH TABLE `d`.`a`", 42, "put other rows in the place"),
        ("d.a", "RECOVER TABLE `a`", 25, "brought back rows"),
        ("d.a", "FLASHBACK TABLE `a`", 25, "brought back rows"),
        ("d.a", "ALTER TABLE `a` ADD COLUMN `drop` INT", 5, ""),
        ("d.a", "ALTER TABLE `a` RENAME COLUMN `id` TO `key`", 12, ""),
        ("d.a", "CREATE TABLE `a` (id INT PRIMARY KEY) PARTITION BY HASH (id)", 3, ""),
        ("d", "ALTER DATABASE `d` CHARACTER SET utf8mb4", 26, ""),
        ("d.x", "TRUNCATE TABLE `x`", 11, ""),
        ("d.x", "RENAME TABLE `d`.`y` TO `d`.`x`", 14, ""),
        ("e", "DROP DATABASE `e`", 2, ""),
    ],
)
def test_statements(place: str, query: str, kind: int, effect: str, tmp_path: Path) -> None:
    """Each by what it did, with its text and version; those that leave the rows as they are, or are about other tables, are none."""
    bucket = SmallBucket(root=tmp_path)
    bucket.create("d.a")
    bucket.schema(place, ts(3), query, kind)
    bucket.metadata(ts(9))
    feed = feed_of(bucket, "d.a")
    feed.contents.look()
    name = TableName(schema="d", table="a")
    found = list(moves(name, 0, ts(9), feed.contents.definitions))
    assert [move.version for move in found] == ([ts(3)] if effect else [])
    if effect:
        assert found[0].what.startswith(f"{query!r} (version {ts(3)}, 2026-09-21T14:13:23.000Z) {effect}")
        assert list(moves(name, ts(3), ts(9), feed.contents.definitions)) == []
        assert list(moves(name, ts(2), ts(3) - 1, feed.contents.definitions)) == []


@pytest.mark.parametrize(
    ("others", "effect"),
    [
        ([], "'RENAME TABLE `d`.`a` TO `e`.`a`' gave the table the name e.a"),
        (["f.a"], "'RENAME TABLE `a` TO `e`.`a`' may have given the table another name"),
    ],
)
def test_rename_of_any_database(others: list[str], effect: str, tmp_path: Path) -> None:
    """A rename without the database of its old name is of the only table of that name; where there are several, it may be of each."""
    bucket = SmallBucket(root=tmp_path)
    bucket.create("d.a", *others)
    bucket.schema("e.a", ts(3), "RENAME TABLE `a` TO `e`.`a`", 14)
    bucket.metadata(ts(9))
    feed = feed_of(bucket, "d.a")
    feed.contents.look()
    (move,) = moves(TableName(schema="d", table="a"), 0, ts(9), feed.contents.definitions)
    text, _, what = move.what.partition(" (version ")
    assert f"{text} {what.partition(') ')[2]}".startswith(effect)
