"""How far the target is said to be when a table stands still: never further than that table (promise 1 of docs/architecture.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.cli.progress_bar import round_fields
from storage_consumer.config.settings import Route, Selecting
from storage_consumer.model import physical_ms
from tests.harness.small_bucket import ID_NAME, column, row, ts
from tests.unit.driving import World, of, one_table, two_tables

WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))
ALTER = 5


@pytest.fixture
def world() -> World:
    """Two tables up to tick 3; a statement at 4 that no target takes stops one of them, the other goes on to tick 9."""
    found = two_tables()
    found.once()
    found.bucket.schema("shop.a", ts(4), "ALTER TABLE `a` ADD UNHEARD `note`", ALTER, WIDER)
    found.bucket.rows("shop.b", 2, row("shop.b", 8, "2", '"two"'))
    found.bucket.metadata(ts(9))
    return found


def test_halted_table_holds_the_checkpoint(world: World) -> None:
    """The checkpoint that others go by stays with the halted table, in summary, state and lag; the other one goes on."""
    summary = world.once()
    assert (summary.checkpoint, summary.checkpoint_running) == (ts(4), ts(9))
    assert (world.records.lowest, world.records.checkpoint) == (ts(4), ts(9))
    assert summary.halted_tables == ("shop.a",)
    fields = round_fields(summary, physical_ms(ts(9)) / 1000)
    assert (fields["lag_seconds"], fields["halted"], fields["halted_tables"]) == (5.0, 1, ("shop.a",))


def test_the_same_after_restarts(world: World) -> None:
    """New processes tell the same, whether or not the bucket went on meanwhile, and read nothing twice."""
    world.once()
    world.bucket.metadata(ts(12))
    for _ in range(2):
        summary = world.once()
        assert (summary.checkpoint, summary.checkpoint_running, summary.files) == (ts(4), ts(12), 0)
    assert (world.records.lowest, world.records.checkpoint) == (ts(4), ts(12))


def test_both_are_one_when_the_table_goes_on(world: World) -> None:
    """Once what stopped the table is settled, the checkpoint is that of all tables again."""
    world.once()
    path = next(p for p in world.bucket.storage._objects if p.startswith(f"shop/a/meta/schema_{ts(4)}"))
    world.bucket.storage.delete(path)
    world.records.kept.clear()
    summary = world.once()
    assert (summary.halted, summary.checkpoint, summary.checkpoint_running) == ((), ts(9), ts(9))
    assert world.records.lowest == ts(9)


def test_idle_rounds_store_nothing(world: World) -> None:
    """While a table stands still and nothing comes, no round writes into the state beyond opening its window."""
    service = world.service()
    service.run_once(world.stop)
    calls: list[str] = []
    world.tick = calls.append
    service.run_once(world.stop)
    service.close()
    assert [call for call in calls if call.startswith("before") and ".save" in call] == []


def test_table_that_is_left_out_does_not_count(world: World) -> None:
    """A halted table holds up nothing any more when a rule leaves it out."""
    world.once()
    world.config = replace(world.config, selecting=Selecting(rules=("*.*", "!shop.a")))
    summary = world.once()
    assert (summary.halted, summary.checkpoint, summary.checkpoint_running) == ((), ts(9), ts(9))


def test_table_whose_name_is_taken_holds_the_checkpoint() -> None:
    """A table that came later and has another one's name in the target is behind; with a route of its own it lacks nothing."""
    world = one_table()
    together = Route(matcher=("shop.*",), target_schema="all", target_table="x")
    world.config = replace(world.config, selecting=Selecting(routes=(together,)))
    world.once()
    world.bucket.schema("shop.b", ts(4), "CREATE TABLE `b` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    world.bucket.rows("shop.b", 1, row("shop.b", 5, "1", '"one"'), version=ts(4))
    world.bucket.metadata(ts(9))
    summary = world.once()
    assert (summary.halted_tables, summary.checkpoint, summary.checkpoint_running) == (("shop.b",), ts(3), ts(9))
    alone = Route(matcher=("shop.a",), target_schema="all", target_table="x")
    world.config = replace(world.config, selecting=Selecting(routes=(alone,)))
    summary = world.once()
    assert (summary.halted, summary.checkpoint) == ((), ts(9))
    assert [row["id"] for row in world.rows("shop.b")] == ["1"]


def test_table_that_waits_holds_both() -> None:
    """A table that waits for a file may come on at any time, so that idle tables stay with it, and so does what others see."""
    world = one_table()
    world.once()
    world.bucket.rows("shop.a", 3, row("shop.a", 6, "3", '"three"'))
    world.bucket.metadata(ts(9))
    summary = world.once()
    assert of(summary, "shop.a").state == "waiting"
    assert (summary.checkpoint, summary.checkpoint_running, world.records.lowest) == (ts(3), ts(3), ts(3))
