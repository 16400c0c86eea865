"""Cycles of renames while TiCDC, started again, writes their schema files anew: for a moment each path has its first content."""

from __future__ import annotations

import pytest

from tests.harness.small_bucket import row, ts
from tests.unit.driving import Killed, World, of, running

RENAME = 14
CALLS_OF_STATE = tuple(f"before Memory{part}." for part in ("Lease", "Progress", "Journal", "History", "Decisions"))


@pytest.fixture
def world() -> World:
    """A swap by way of `tmp`, as far as there is before its last step is written over its first, in the directory of `y`."""
    world = World()
    bucket = world.bucket
    bucket.create("shop.x", "shop.y", "shop.z")
    bucket.rows("shop.x", 1, row("shop.x", 2, "1", '"was x"'))
    bucket.rows("shop.y", 1, row("shop.y", 2, "2", '"was y"'))
    bucket.rows("shop.z", 1, row("shop.z", 5, "3", '"other"'))
    bucket.schema("shop.x", ts(4), "RENAME TABLE `shop`.`y` TO `shop`.`x`;", RENAME)
    bucket.schema("shop.y", ts(4), "RENAME TABLE `shop`.`x` TO `shop`.`tmp`;", RENAME)
    bucket.metadata(ts(6))
    return world


def names(world: World, table: str) -> list[str | None]:
    """The texts in a table."""
    return [row["name"] for row in world.rows(table)]


def test_nothing_runs_before_the_last_step_is_there(world: World) -> None:
    """The tables wait and say for what, others go on; once the last step can be read, all three take place (D3)."""

    def act(rounds: int) -> None:
        if rounds == 1:
            assert (names(world, "shop.x"), names(world, "shop.y")) == (["was x"], ["was y"])
            assert names(world, "shop.z") == ["other"]
            assert world.records.checkpoint == ts(4)
            world.bucket.schema("shop.y", ts(4), "RENAME TABLE `shop`.`tmp` TO `shop`.`y`", RENAME)

    summary = running(world, act, rounds=2)
    assert summary.checkpoint == ts(6)
    assert (names(world, "shop.x"), names(world, "shop.y")) == (["was y"], ["was x"])


def test_half_done_at_the_checkpoint(world: World) -> None:
    """Renames of which one ran at exactly the checkpoint are ended at once, though it has not moved: all are stored."""
    world.bucket.schema("shop.y", ts(4), "RENAME TABLE `shop`.`tmp` TO `shop`.`y`", RENAME)
    world.bucket.metadata(ts(4))

    def tick(where: str) -> None:
        if where.startswith(CALLS_OF_STATE) and world.rows("shop.tmp"):
            raise Killed

    world.tick = tick
    with pytest.raises(Killed):
        world.killed(lambda service: service.run_once(world.stop))
    world.tick = str
    world.clock.advance(1_000)
    assert names(world, "shop.tmp") == ["was x"]
    summary = running(world, rounds=1)
    assert (names(world, "shop.x"), names(world, "shop.y")) == (["was y"], ["was x"])
    assert summary.checkpoint == ts(4)


def test_cycle_that_follows_one_that_is_half_done(world: World) -> None:
    """A name that is a table's for a moment only is a barrier too: the next cycle by way of it is planned when it is free again."""
    bucket = world.bucket
    bucket.schema("shop.y", ts(4), "RENAME TABLE `shop`.`tmp` TO `shop`.`y`", RENAME)
    bucket.schema("shop.z", ts(8), "RENAME TABLE `shop`.`x` TO `shop`.`z`", RENAME)
    bucket.schema("shop.x", ts(8), "RENAME TABLE `shop`.`tmp` TO `shop`.`x`", RENAME)  # in the place of: z TO tmp
    bucket.metadata(ts(9))

    def tick(where: str) -> None:
        if where == "before DdlRunner.run" and world.rows("shop.tmp") and names(world, "shop.x") == ["was y"]:
            raise Killed

    world.tick = tick
    with pytest.raises(Killed):
        world.killed(lambda service: service.run_once(world.stop))
    world.tick = str
    assert world.once().checkpoint == ts(9)
    assert [names(world, f"shop.{table}") for table in "xyz"] == [["other"], ["was x"], ["was y"]]


def test_cycle_that_waits_for_a_file(world: World) -> None:
    """Tables that stand still before a cycle say what for, though one of its names is no table's."""
    bucket = world.bucket
    bucket.schema("shop.y", ts(4), "RENAME TABLE `shop`.`tmp` TO `shop`.`y`", RENAME)
    bucket.rows("shop.y", 3, row("shop.y", 3, "7", '"behind a gap"'))
    summary = world.once()
    assert of(summary, "shop.x").state == "waiting"
    assert "waits for the DDL of shop.x with version" in of(summary, "shop.x").error


def test_last_step_that_never_comes(world: World) -> None:
    """After the time for missing files the table halts, with the file's name and the way on."""

    def act(rounds: int) -> None:
        if rounds == 1:
            world.clock.advance(50)
        elif rounds == 2:
            assert world.records.tables["`shop`.`tmp`"].state != "halted"
            world.clock.advance(10)

    summary = running(world, act, rounds=3)
    halted = of(summary, "shop.tmp")
    assert halted.state == "halted"
    assert f"shop/y/meta/schema_{ts(4)}_" in halted.error
    assert "ddl done --table shop.y" in halted.error
    assert names(world, "shop.x") == ["was x"]
