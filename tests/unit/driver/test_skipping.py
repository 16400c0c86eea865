"""Tables that an operator leaves out for good: nothing of them is applied, all of it is counted, and a copy brings them back."""

from __future__ import annotations

import pytest

from storage_consumer.model import TableName
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_decisions import is_skipped
from tests.harness.small_bucket import ID_NAME, column, row, ts
from tests.unit.deciding import NAME, copied, decide, gap, halts, put, start
from tests.unit.driving import World, numbers, of, running, two_tables

REASON = "object: data file of a table that is skipped by an operator"
WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))


def skipped(world: World, table: str = "a") -> bool:
    """Whether the state says that an operator leaves the table out."""
    stored = world.records.tables[key_of(TableName(schema="shop", table=table))]
    return is_skipped(stored.state, stored.error)


def test_a_running_table() -> None:
    """A running consumer obeys in its next round: no row and no statement is applied, the checkpoint goes on, also after a restart."""
    world = two_tables()

    def act(rounds: int) -> None:
        if rounds == 1:
            decide(world, "skip")
        if rounds == 2:
            put(world, 2, 6, "2")
            world.bucket.schema("shop.a", ts(7), "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20)", 5, WIDER)
            world.bucket.rows("shop.b", 2, row("shop.b", 6, "2", '"two"'))
            world.bucket.metadata(ts(9))
        if rounds == 3:
            world.stop.requested.set()

    summary = running(world, act)
    world.stop.requested.clear()
    assert (summary.tables[0].table, summary.checkpoint) == ("shop.b", ts(9))
    assert summary.skipped["ddl: shop.a is skipped by an operator"] == 1
    assert (numbers(world, "shop.a"), numbers(world, "shop.b")) == (["1"], ["1", "2"])
    put(world, 3, 11, "3")
    world.bucket.metadata(ts(12))
    later = world.once()
    assert (later.tables, later.checkpoint, later.skipped[REASON]) == ((), ts(12), 3)
    assert (numbers(world, "shop.a"), skipped(world)) == (["1"], True)


def test_a_halted_table() -> None:
    """It holds up nothing any more, not even the checkpoint that others see."""
    world = two_tables()
    world.bucket.rows("shop.a", 2, "nonsense")
    world.bucket.metadata(ts(9))
    halts(world)
    assert world.records.tables[key_of(NAME)].state == "halted"
    decide(world, "skip")
    summary = world.once()
    assert (summary.halted, summary.checkpoint) == ((), ts(9))


def test_a_waiting_table() -> None:
    """A table that waits for a missing file waits no longer, and none of its files is missed later."""
    world = start()
    gap(world)
    world.bucket.metadata(ts(13))
    assert of(world.once(), "shop.a").state == "waiting"
    decide(world, "skip")
    assert (world.once().checkpoint, world.once().tables) == (ts(13), ())
    world.clock.advance(100)
    assert world.once().checkpoint == ts(13)


def test_files_without_a_schema_file() -> None:
    """A table of which only the path is known is left out by that name; once a schema file gives the files to another, that one lacks rows."""
    world = start()
    world.bucket.rows("shop.z", 1, row("shop.z", 6, "1", '"one"'))
    world.bucket.metadata(ts(9))
    halts(world, "shop.z")
    decide(world, "skip", table="z")
    summary = world.once()
    assert (summary.checkpoint, summary.tables, summary.skipped[REASON]) == (ts(9), (), 1)


def test_what_brings_it_back() -> None:
    """A fresh copy does, and nothing else: the rows after it come from the files."""
    world = start()
    decide(world, "skip")
    world.once()
    put(world, 2, 6, "2")
    world.bucket.metadata(ts(7))
    world.once()
    for verb in ("resume", "pause"):
        decide(world, verb)
        world.once()
        assert skipped(world)
    put(world, 3, 12, "3")
    world.bucket.metadata(ts(13))
    world.once()
    copied(world, "1", "2")
    decide(world, "reload-done", ts(8))
    assert (world.once().halted, numbers(world, "shop.a"), skipped(world)) == ((), ["1", "2", "3"], False)


@pytest.mark.parametrize("at", [5, 9])
def test_a_copy_that_is_too_old(at: int) -> None:
    """A copy has to be as of the last statement that was skipped, and of the checkpoint that was stored with it, since that one is not run again."""
    world = start()
    decide(world, "skip")
    world.bucket.schema("shop.a", ts(7), "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20)", 5, WIDER)
    world.bucket.metadata(ts(9))
    world.once()
    copied(world, "1", note="new")
    decide(world, "reload-done", ts(at))
    world.once()
    assert skipped(world) == (at == 5)


def test_rows_that_a_rename_would_bring_in() -> None:
    """A skipped table that gets another name would bring rows that were never read: its new name halts, and says how to go on."""
    world = start()
    decide(world, "skip")
    world.bucket.schema("shop.c", ts(7), "RENAME TABLE `shop`.`a` TO `shop`.`c`", 14)
    world.bucket.metadata(ts(9))
    (table,) = world.once().halted
    assert "brings rows of shop.a, which an operator leaves out, into shop.c" in table.error
    assert "Reload shop.c" in table.error
