"""What a halted table costs the others: who waits, who goes on, where the checkpoint stays, and which table is named as the cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storage_consumer.model import TableName
from tests.harness.small_bucket import CREATE_TABLE, row, ts
from tests.unit.deciding import decide
from tests.unit.driving import World, of

ALTER, DROP, RENAME, ALTER_DATABASE, DROP_DATABASE = 5, 4, 14, 26, 2


def refused(world: World) -> None:
    """Its statement is refused by the target."""
    world.bucket.schema("shop.a", ts(5), "ALTER TABLE `a` ADD COLUMN `name` INT", ALTER)


def not_run(world: World) -> None:
    """Its statement is none that may run."""
    world.bucket.schema("shop.a", ts(5), "GRANT ALL ON *.* TO `a`", ALTER)


def unreadable(world: World) -> None:
    """A row of it cannot be read."""
    world.bucket.rows("shop.a", 2, "no row of TiCDC")


def missing(world: World) -> None:
    """A file before the last one is not there."""
    world.bucket.rows("shop.a", 3, row("shop.a", 4, "3", '"three"'))


def no_schema(world: World) -> None:
    """Its schema file is damaged."""
    world.bucket.write(f"shop/a/meta/schema_{ts(5)}_{7:010d}.json", "{")


def changed(world: World) -> None:
    """Somebody took a column of it in the target away."""
    name = TableName(schema="shop", table="a")
    structure = world.records.structures[name]
    world.records.structures[name] = replace(structure, columns=structure.columns[:1])
    world.bucket.rows("shop.a", 2, row("shop.a", 4, "2", '"two"'))


def others(world: World) -> None:
    """Statements that tie tables to shop.a, straight and by another one; and rows of one that has nothing to do with it."""
    world.bucket.schema("shop.b", ts(6), "DROP TABLE `b`", DROP)
    world.bucket.schema("shop.b", ts(7), "RENAME TABLE `shop`.`a` TO `shop`.`b`", RENAME)
    world.bucket.schema("shop.d", ts(8), "CREATE TABLE `d` LIKE `shop`.`b`", CREATE_TABLE)
    world.bucket.rows("shop.c", 2, row("shop.c", 9, "2", '"two"'))
    world.bucket.rows("other.z", 1, row("other.z", 9, "1", '"one"'))
    world.bucket.metadata(ts(10))


def shop() -> World:
    """Three tables with a row each, and one of another database, applied up to tick 3."""
    world = World(gap_timeout=0.0)
    world.bucket.create("shop.a", "shop.b", "shop.c", "other.z")
    for table in ("shop.a", "shop.b", "shop.c"):
        world.bucket.rows(table, 1, row(table, 2, "1", '"one"'))
    world.once(3)
    return world


@pytest.mark.parametrize("halts", [refused, not_run, unreadable, missing, no_schema, changed])
def test_a_table_that_halts(halts: Callable[[World], None]) -> None:
    """Only tables that a later statement ties to it wait, at that statement, and name the halted one; the feed's checkpoint stays."""
    world = shop()
    halts(world)
    others(world)
    summary = world.once()
    assert [table.table for table in summary.halted] == ["shop.a"]
    assert {table.table: table.error for table in summary.waiting} == {
        "shop.b": f"waits for the DDL of shop.b with version {ts(7)}, held up by shop.a (halted)",
        "shop.d": f"waits for the DDL of shop.d with version {ts(8)}, held up by shop.a (halted)",
    }
    assert [of(summary, name).checkpoint for name in ("shop.b", "shop.c", "other.z")] == [ts(7), ts(10), ts(10)]
    assert [len(world.rows(name)) for name in ("shop.c", "other.z")] == [2, 1]
    assert summary.checkpoint == of(summary, "shop.a").checkpoint < summary.checkpoint_running <= ts(8)


def test_a_table_that_an_operator_pauses() -> None:
    """It costs the others the same."""
    world = shop()
    decide(world, "pause")
    others(world)
    summary = world.once()
    assert ([table.table for table in summary.paused], summary.halted) == (["shop.a"], ())
    assert {table.table: table.error.partition("held up by ")[2] for table in summary.waiting} == {
        "shop.b": "shop.a (paused)",
        "shop.d": "shop.a (paused)",
    }
    assert [of(summary, name).checkpoint for name in ("shop.b", "shop.c", "other.z")] == [ts(7), ts(10), ts(10)]
    assert summary.checkpoint == ts(3)


def test_a_statement_about_a_database() -> None:
    """One that is refused holds up the statements of its database, whose tables name it; rows and the others go on."""
    world = shop()
    world.bucket.schema("shop", ts(5), "ALTER DATABASE `shop` NONSENSE", ALTER_DATABASE)
    others(world)
    summary = world.once()
    assert [table.table for table in summary.halted] == ["shop"]
    assert {table.table for table in summary.waiting} == {"shop.a", "shop.b", "shop.d"}
    assert {table.error for table in summary.waiting} == {
        f"waits for the DDL of shop with version {ts(5)}, held up by shop (halted)"
    }
    for name, rows in (("shop.c", 2), ("other.z", 1)):
        assert (of(summary, name).checkpoint, len(world.rows(name))) == (ts(10), rows)


def test_a_database_that_goes() -> None:
    """It is dropped once the halted table in it goes on; its other tables wait then, with all their rows, and name that table."""
    world = shop()
    refused(world)
    world.bucket.rows("shop.c", 2, row("shop.c", 6, "2", '"two"'))
    world.bucket.schema("shop", ts(7), "DROP DATABASE `shop`", DROP_DATABASE)
    summary = world.once(9)
    assert [table.table for table in summary.halted] == ["shop.a"]
    why = f"waits for the DDL of shop with version {ts(7)}, held up by shop.a (halted)"
    assert {table.table: table.error for table in summary.waiting} == dict.fromkeys(("shop", "shop.b", "shop.c"), why)
    assert (len(world.rows("shop.c")), of(summary, "shop.c").checkpoint) == (2, ts(7))
