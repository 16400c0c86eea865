"""Renames of one version that hand names on, or use one for a moment, when copies hold what they did."""

from __future__ import annotations

from tests.harness.small_bucket import row, ts
from tests.harness.twins.target import MemoryTarget
from tests.unit.deciding import copied, decide
from tests.unit.driving import World, numbers, two_tables

RENAME = 14


def rename(world: World, tick: int, *pairs: tuple[str, str]) -> None:
    """One statement, a schema file for each of its pairs."""
    for old, new in pairs:
        world.bucket.schema(f"shop.{new}", ts(tick), f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`", RENAME)


def copy(world: World, table: str, tick: int, *keys: str) -> None:
    """Hold a table, make a copy of it and say so."""
    decide(world, "pause", table=table)
    world.once()
    copied(world, *keys, table=table)
    decide(world, "reload-done", ts(tick), table=table)


def test_name_that_is_handed_on_needs_a_copy_too() -> None:
    """A name that one table gives up and another gets is not for a moment, also where no file tells of it before: it needs a copy."""
    world = two_tables()
    world.once()
    MemoryTarget(world.records).execute_ddl("CREATE TABLE c (id INT PRIMARY KEY, name VARCHAR(20))", "shop", 0)
    copied(world, "70", table="c")  # the initial copy of a table that never changed since
    decide(world, "pause", table="b")
    rename(world, 8, ("c", "old"), ("b", "c"))
    world.once(13)
    MemoryTarget(world.records).execute_ddl("CREATE TABLE old (id INT PRIMARY KEY, name VARCHAR(20))", "shop", 0)
    copy(world, "old", 10, "70")
    summary = world.once()
    held = [table.table for table in (*summary.halted, *summary.waiting)]
    assert (held != [], summary.checkpoint <= ts(8)) == (True, True)
    assert numbers(world, "shop.b") == ["1"]
    assert numbers(world, "shop.c") == ["70"]


def test_name_that_is_used_for_a_moment_again_and_again() -> None:
    """Two swaps by the same passing name: copies of both tables hold all that they did, and the passing name needs none."""
    world = two_tables()
    world.once()
    decide(world, "pause", table="a")
    for tick in (8, 10):
        rename(world, tick, ("b", "a"), ("tmp", "b"), ("a", "tmp"))
    for number, table in enumerate(("a", "b")):
        world.bucket.rows(f"shop.{table}", 1, row(f"shop.{table}", 13, f"5{number}", '"later"'), version=ts(10))
    world.once(14)
    copy(world, "a", 12, "1")
    copy(world, "b", 12, "2")
    for _ in range(3):
        summary = world.once()
        assert (summary.halted, summary.waiting, summary.checkpoint) == ((), (), ts(14))
        assert (numbers(world, "shop.a"), numbers(world, "shop.b")) == (["1", "50"], ["2", "51"])
