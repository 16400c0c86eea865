"""A copy that holds a statement which gave a table's name away, where the name is another table's again."""

from __future__ import annotations

import pytest

from storage_consumer.plan.journal_entry import DONE
from storage_consumer.plan.steps import key_of
from tests.harness.small_bucket import row, ts
from tests.unit.deciding import NAME, copied, decide, halts
from tests.unit.driving import World, numbers, of, two_tables

CREATE, DROP, RENAME = 3, 4, 14


def renamed_and_made_anew(*, complete: bool) -> World:
    """shop.a became shop.b, which is held, and another shop.a was made: with all its files, or without the first one."""
    world = two_tables()
    world.once()
    decide(world, "pause", table="b")
    world.once()
    world.bucket.schema("shop.b", ts(7), "DROP TABLE `b`", DROP)
    world.bucket.schema("shop.b", ts(8), "RENAME TABLE `shop`.`a` TO `shop`.`b`", RENAME)
    world.bucket.schema("shop.a", ts(9), "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE)
    for number, tick in ((1, 10), (2, 11))[not complete :]:
        world.bucket.rows("shop.a", number, row("shop.a", tick, str(tick), '"new"'), version=ts(9))
    world.bucket.metadata(ts(13))
    return world


def copy_of_b(world: World) -> None:
    """The operator makes a copy of shop.b, and takes the old shop.a away."""
    copied(world, "1", table="b")
    world.records.structures.pop(NAME, None)
    world.records.rows.pop(NAME, None)
    decide(world, "reload-done", ts(12), table="b")


def test_loss_of_the_table_made_anew_is_not_forgotten() -> None:
    """What the new table of the name lacks is remembered, over restarts, until there is a copy of that one too."""
    world = renamed_and_made_anew(complete=False)
    assert "file number 1 in shop/a" in halts(world)
    first = world.records.copies[key_of(NAME)]
    assert first.copy_from
    copy_of_b(world)
    for _ in range(3):
        summary = world.once()
        assert "file number 1 in shop/a" in of(summary, "shop.a").error
        assert (summary.checkpoint, numbers(world, "shop.b")) == (ts(8), ["1"])
    kept = world.records.copies[key_of(NAME)]
    assert (kept.copy_from, kept.absent, kept.passed) == (first.copy_from, first.absent, {})


def test_hold_of_the_table_made_anew_stays() -> None:
    """The new table of a name that is held stands still until it is resumed, and then nothing of it is missing."""
    world = renamed_and_made_anew(complete=True)
    decide(world, "pause", table="a")
    world.once()
    copy_of_b(world)
    for _ in range(2):
        assert "paused by op" in of(world.once(), "shop.a").error
        assert numbers(world, "shop.a") == []
    decide(world, "resume", table="a")
    assert world.once().halted == ()
    assert (numbers(world, "shop.a"), numbers(world, "shop.b")) == (["10", "11"], ["1"])


def test_hold_of_a_table_that_is_gone_ends_with_it() -> None:
    """A name that was held and is no table's any more holds nothing up, over restarts: what others see goes on."""
    world = two_tables()
    world.once()
    decide(world, "pause", table="a")
    world.bucket.schema("shop.c", ts(8), "RENAME TABLE `shop`.`a` TO `shop`.`c`", RENAME)
    world.once(13)
    decide(world, "pause", table="c")
    world.once()
    copied(world, "1", table="c")
    decide(world, "reload-done", ts(12), table="c")
    for _ in range(3):
        summary = world.once()
        assert (summary.halted, summary.checkpoint) == ((), ts(13))


def swapped() -> World:
    """shop.a, which is held, and shop.b were swapped at the source by one statement; both have rows behind it."""
    world = two_tables()
    world.once()
    decide(world, "pause")
    world.once(7)
    for table, old, new in (("shop.a", "b", "a"), ("shop.b", "tmp", "b"), ("shop.tmp", "a", "tmp")):
        world.bucket.schema(table, ts(8), f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`", RENAME)
    for table, key in (("shop.a", "51"), ("shop.b", "52")):
        world.bucket.rows(table, 1, row(table, 12, key, '"later"'), version=ts(8))
    world.once(13)
    return world


@pytest.mark.parametrize("at", [8, 10])
def test_swap_is_covered_by_copies_of_both_tables_only(at: int) -> None:
    """With a copy of one of two swapped tables nothing of the swap is taken for done, nor run, over restarts; with both it goes on."""
    world = swapped()
    before = world.rows("shop.b")
    copied(world, "50")
    decide(world, "reload-done", ts(at))
    for _ in range(4):
        summary = world.once()
        assert any("shop.a" in table.error for table in summary.halted)
        assert summary.checkpoint <= ts(8)
        assert world.rows("shop.b") == before
        assert "50" in numbers(world, "shop.a")
        assert not any(entry.state == DONE for i, entry in world.records.journal.items() if i[1] == ts(8))
    decide(world, "pause", table="b")
    world.once()
    copied(world, "1", table="b")
    decide(world, "reload-done", ts(10), table="b")
    for _ in range(2):
        summary = world.once()
        assert (summary.halted, summary.waiting, summary.checkpoint) == ((), (), ts(13))
        assert (numbers(world, "shop.a"), numbers(world, "shop.b")) == (["50", "51"], ["1", "52"])
