"""The whole driver where table ids are paths, and where renames are not as their files say; killed on the way too."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from storage_consumer.bucket.schema_file import schema_checksum
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, row, ts
from tests.unit.driving import World, killed_after

RENAME, TRUNCATE, DROP = 14, 11, 4
BODY = "(id INT PRIMARY KEY, name VARCHAR(20))"


class IdBucket:
    """Writes a bucket by table ids; no database has a file."""

    def __init__(self, world: World) -> None:
        """Into the world's bucket."""
        self.bucket = world.bucket

    def schema(self, table_id: int, name: str, tick: int, query: str = "", kind: int = 0) -> None:
        """A schema file of an id."""
        database, _, table = name.partition(".")
        document = {
            "Table": table,
            "Schema": database,
            "Version": 1,
            "TableVersion": ts(tick),
            "Query": query,
            "Type": kind,
            "TableColumns": list(ID_NAME),
            "TableColumnsTotal": len(ID_NAME),
        }
        text = json.dumps(document, indent=4)
        self.bucket.write(f"{table_id}/meta/schema_{ts(tick)}_{schema_checksum(text):010d}.json", text)

    def rows(self, table_id: int, tick: int, *rows: str, number: int = 1) -> None:
        """A data file of an id's version."""
        path = f"{table_id}/{ts(tick)}/2026-11-21/CDC{number:020d}.csv"
        self.bucket.write(path, "".join(f"{one}\r\n" for one in rows))


def by_ids(world: World) -> None:
    """A partitioned table of two partitions, renamed and truncated, whose DDL lie under the logical id."""
    ids = IdBucket(world)
    ids.schema(100, "shop.p", 1, f"CREATE TABLE `p` {BODY}", CREATE_TABLE)
    for partition in (101, 102):
        ids.schema(partition, "shop.p", 1)
    ids.rows(101, 1, row("shop.p", 2, "1", '"one"'), row("shop.p", 4, "1", '"un"', operation="U"))
    ids.rows(102, 1, row("shop.p", 3, "2", '"two"'), row("shop.p", 4, "1", '"one"', operation="D"))
    ids.schema(100, "shop.q", 10, "RENAME TABLE `shop`.`p` TO `shop`.`q`", RENAME)
    ids.schema(101, "shop.q", 10)
    ids.rows(101, 10, row("shop.q", 11, "3", '"three"'))
    ids.schema(200, "shop.q", 20, "TRUNCATE TABLE `q`", TRUNCATE)
    ids.schema(201, "shop.q", 20)
    ids.rows(201, 20, row("shop.q", 21, "4", '"four"'))
    ids.schema(300, "shop.p", 25, f"CREATE TABLE `p` {BODY}", CREATE_TABLE)
    ids.rows(300, 25, row("shop.p", 26, "5", '"five"'))
    world.bucket.metadata(ts(40))


IDS = {"shop.p": ["5"], "shop.q": ["4"]}


def by_names(world: World) -> None:
    """A swap of two tables through a third name in one statement, of which one file is missing as the sink leaves it."""
    bucket = world.bucket
    bucket.create("shop.x", "shop.y")
    bucket.rows("shop.x", 1, row("shop.x", 2, "1", '"x"'))
    bucket.rows("shop.y", 1, row("shop.y", 2, "2", '"y"'))
    bucket.schema("shop.x", ts(10), "RENAME TABLE `shop`.`y` TO `shop`.`x`;", RENAME)
    bucket.schema("shop.y", ts(10), "RENAME TABLE `shop`.`tmp` TO `shop`.`y`;", RENAME)
    bucket.rows("shop.x", 1, row("shop.x", 11, "3", '"x"'), version=ts(10))
    bucket.rows("shop.y", 1, row("shop.y", 11, "4", '"y"'), version=ts(10))
    bucket.metadata(ts(40))


SWAPPED = {"shop.x": ["2", "3"], "shop.y": ["1", "4"]}


def under_another_name(world: World) -> None:
    """A swap through a name in another database: the first step lies under the last name of its table."""
    bucket = world.bucket
    bucket.create("shop.x", "shop.y", "common.z")
    bucket.rows("shop.x", 1, row("shop.x", 2, "1", '"x"'))
    bucket.rows("shop.y", 1, row("shop.y", 2, "2", '"y"'))
    bucket.schema("common.y", ts(10), "RENAME TABLE `shop`.`x` TO `common`.`c`;", RENAME)
    bucket.schema("common.c", ts(10), "", 0)
    bucket.schema("shop.x", ts(10), "RENAME TABLE `shop`.`y` TO `shop`.`x`;", RENAME)
    bucket.schema("shop.y", ts(10), "RENAME TABLE `common`.`c` TO `shop`.`y`;", RENAME)
    bucket.rows("shop.x", 1, row("shop.x", 11, "3", '"x"'), version=ts(10))
    bucket.rows("shop.y", 1, row("shop.y", 11, "4", '"y"'), version=ts(10))
    bucket.metadata(ts(40))


def as_typed(world: World) -> None:
    """A rename into another database that does not say where the table comes from, and a name in another case."""
    bucket = world.bucket
    bucket.create("shop.x", "store.other")
    bucket.rows("shop.x", 1, row("shop.x", 2, "1", '"x"'))
    bucket.schema("store.x", ts(10), "RENAME TABLE `x` TO `store`.`x`", RENAME)
    bucket.rows("store.x", 1, row("store.x", 11, "2", '"x"'), version=ts(10))
    bucket.schema("store.back", ts(12), "RENAME TABLE `STORE`.`X` TO `STORE`.`back`", RENAME)
    bucket.rows("store.back", 1, row("store.back", 13, "3", '"x"'), version=ts(12))
    bucket.metadata(ts(40))


TYPED = {"store.back": ["1", "2", "3"]}
CASES = [(by_ids, IDS), (by_names, SWAPPED), (under_another_name, SWAPPED), (as_typed, TYPED)]


def keys(world: World) -> dict[str, list[str | None]]:
    """The ids of the rows of each table that has any."""
    found = {str(name): [row["id"] for row in world.rows(str(name))] for name in world.records.rows}
    return {name: sorted(ids, key=str) for name, ids in found.items() if ids}


def once(world: World) -> list[str]:
    """The statements that took effect but for TRUNCATE, which may do so twice."""
    return sorted(effect for effect in world.records.effects if "TRUNCATE" not in effect)


@pytest.mark.parametrize(("fill", "expected"), CASES)
def test_equal(fill: Callable[[World], None], expected: dict[str, list[str]]) -> None:
    """The target ends like the source, and a second run has nothing to do (D3)."""
    world = World()
    fill(world)
    summary = world.once()
    assert summary.halted == ()
    assert keys(world) == expected
    assert summary.checkpoint == ts(40)
    effects = list(world.records.effects)
    again = world.once()
    assert (again.written, again.ddls, world.records.effects) == (0, 0, effects)


@pytest.mark.slow
@pytest.mark.parametrize(("fill", "expected"), CASES)
def test_killed_at_every_call(fill: Callable[[World], None], expected: dict[str, list[str]]) -> None:
    """A process that is killed at any call leaves what the next one completes, each statement taking effect once."""
    whole = World()
    fill(whole)
    for point in range(1, killed_after(whole, 0) + 1):
        world = World()
        fill(world)
        assert killed_after(world, point) == point
        assert world.once().halted == (), point
        assert keys(world) == expected, point
        assert once(world) == once(whole), point


@pytest.mark.parametrize("restarted", [False, True])
def test_unreadable_statement(restarted: bool) -> None:  # noqa: FBT001 - a column of the table
    """It halts the table that the other schema files of its directory name, though the path alone names none."""
    world = World()
    world.records.databases.add("shop")
    ids = IdBucket(world)
    ids.schema(100, "shop.a", 1, f"CREATE TABLE `a` {BODY}", CREATE_TABLE)
    ids.rows(100, 1, row("shop.a", 2, "1", '"one"'))
    world.bucket.metadata(ts(2))
    if restarted:
        world.once()
    world.bucket.write(f"100/meta/schema_{ts(5)}_0000000001.json", '{"Table": "a"')
    ids.schema(100, "shop.a", 6, "ALTER TABLE `a` ADD COLUMN `more` VARCHAR(20)", 5)
    summary = world.once(9)
    (table,) = [table for table in summary.tables if table.table == "shop.a"]
    assert table.state == "halted"
    assert f"schema_{ts(5)}_0000000001.json" in table.error
    assert summary.checkpoint < ts(5)
    assert len(world.records.effects) == restarted


def test_statement_that_becomes_readable() -> None:
    """A schema file that was cut short, and is whole at the next look, halts only what its path stood for until then."""
    world = World()
    world.records.databases.add("shop")
    ids = IdBucket(world)
    ids.schema(100, "shop.a", 1, f"CREATE TABLE `a` {BODY}", CREATE_TABLE)
    ids.rows(100, 1, row("shop.a", 2, "1", '"one"'))
    (path,) = (found.path for found in world.bucket.storage.listing(frozenset(), {}) if "schema_" in found.path)
    whole = world.bucket.storage.read(path)
    world.bucket.write(path, whole[:20])
    world.bucket.metadata(ts(9))
    service = world.service()
    (cut_short,) = service.run_once(world.stop).halted
    assert cut_short.table == "100"
    world.bucket.write(path, whole)
    assert service.run_once(world.stop).halted == ()
    service.close()
    assert len(world.records.effects) == 1
