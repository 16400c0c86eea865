"""Copies of tables whose names change: by renames before and after the copy, in cycles too, and rows that these move."""

from __future__ import annotations

import pytest

from storage_consumer.plan.table_state import TableState
from tests.harness.small_bucket import row, ts
from tests.unit.copying import KEYLESS, MemoryCopy, WithCopies, names_in
from tests.unit.deciding import decide
from tests.unit.driver.test_loads import BAG, ONE, TWO, shop
from tests.unit.driving import killed_at, numbers

CREATE, RENAME = 3, 14
A = "`shop`.`a`"


def swap(world: WithCopies, tick: int) -> None:
    """shop.a and shop.c change their names, by way of depot.b."""
    # The first step lies where the final name's files are, in the database of its own new name.
    world.bucket.schema("depot.c", ts(tick), "RENAME TABLE `shop`.`a` TO `depot`.`b`", RENAME)
    world.bucket.schema("shop.a", ts(tick), "RENAME TABLE `shop`.`c` TO `shop`.`a`", RENAME)
    world.bucket.schema("shop.c", ts(tick), "RENAME TABLE `depot`.`b` TO `shop`.`c`", RENAME)


def swap_and_move(world: WithCopies) -> None:
    """shop.b and shop.c change their names at tick 5, by way of shop.a, and shop.b becomes depot.c at tick 7."""
    # The step from shop.c to shop.a lay in the folder of shop.b, where the last step has replaced it.
    world.bucket.schema("shop.c", ts(5), "RENAME TABLE `shop`.`b` TO `shop`.`c`", RENAME)
    world.bucket.schema("shop.b", ts(5), "RENAME TABLE `shop`.`a` TO `shop`.`b`", RENAME)
    world.bucket.schema("depot.c", ts(7), "RENAME TABLE `shop`.`b` TO `depot`.`c`", RENAME)
    world.bucket.metadata(ts(11))


def test_a_cycle_through_the_name_of_a_loaded_table_is_tried_once() -> None:
    """The loaded table has the name that an older cycle needs in between: it halts, and nothing is sent again before a new start, or a decision."""
    copy = MemoryCopy(snapshot=ts(12))
    copy.add("depot.b", [ONE])
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.a", "shop.c", "depot.d")
    world.once(3)
    swap(world, 8)
    world.bucket.schema("depot.b", ts(9), "CREATE TABLE `b` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE)
    world.request("depot.b")
    world.once()
    world.bucket.metadata(ts(20))
    sent: list[str] = []
    world.tick = sent.append
    service = world.service()
    for _ in range(3):
        assert service._round(world.stop, once=False) is not None
    service.close()
    # The class whose calls are heard is this world's own target.
    assert sent.count("before MemoryTarget.execute_ddl") == 1
    for _ in range(2):
        (halted,) = world.once().halted
        assert (halted.table, "depot.b exists" in halted.error) == ("depot.b", True)
    assert names_in(world, "depot.b") == {"1": "copy"}


def test_a_halt_for_a_cycle_ends_when_copies_hold_all_of_it() -> None:
    """The name in between is no table of the source: once the cycle counts as done, nothing is left of the halt under that name."""
    copy = MemoryCopy(snapshot=ts(6))
    copy.add("shop.c", [ONE])
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.b", "shop.c", "depot.d")
    world.once(3)
    world.request("shop.c", replaces=True)
    world.once()
    swap_and_move(world)
    assert [table.table for table in world.once().halted] == ["shop.a"]
    copy.snapshot, copy.identity = ts(10), "two"
    copy.add("depot.c", [TWO])
    world.request("depot.c")
    for _ in range(2):
        assert not world.once().halted
        assert (world.records.lowest, world.records.tables[A].state) == (ts(11), TableState.DROPPED)
    assert (numbers(world, "shop.c"), numbers(world, "depot.c")) == (["1"], ["2"])


def test_copies_hold_also_what_led_to_a_table_that_was_moved_into_one() -> None:
    """The rename that moved the table is in a copy, and so are the older ones: they are found done at once, not only at the next start."""
    copy = MemoryCopy(snapshot=ts(8))
    copy.add("shop.c", [ONE])
    copy.add("depot.c", [TWO])
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.b", "shop.c", "depot.d")
    world.once(3)
    for table in ("shop.c", "depot.c"):
        world.request(table, replaces=True)
    world.once()
    swap_and_move(world)
    assert not world.once().halted
    assert (numbers(world, "shop.c"), numbers(world, "depot.c")) == (["1"], ["2"])


@pytest.mark.parametrize("snapshot", [4, 5])
def test_rows_that_a_rename_moves_into_a_loaded_table_come_after_its_copy(snapshot: int) -> None:
    """The copy holds them, or shows the RENAME before its version: without a key, rows written beside it would be there twice."""
    copy = MemoryCopy(snapshot=ts(3))
    copy.add("shop.b", [ONE])
    world = WithCopies(copy)
    world.bucket.create("shop.b")
    world.once(3)
    world.bucket.schema("shop.a", ts(1), "", 0, BAG)
    world.bucket.rows("shop.a", 1, *(row("shop.a", tick, str(tick), '"new"') for tick in (4, 5)), version=ts(1))
    world.bucket.schema("shop.c", ts(5), "RENAME TABLE `shop`.`a` TO `shop`.`c`", RENAME, BAG)
    world.bucket.metadata(ts(8))
    copy.snapshot, copy.identity = ts(snapshot), "two"
    copy.add("shop.c", [(str(tick), '"new"') for tick in range(4, snapshot + 1)], columns=KEYLESS)
    world.request("shop.c")
    for _ in range(2):
        assert not world.once().halted
        assert numbers(world, "shop.c") == ["4", "5"]


@pytest.mark.parametrize("snapshot", [4, 5])
def test_rows_before_an_early_rename_go_to_the_copy_of_the_new_name(snapshot: int) -> None:
    """Also where the target still has the table by its former name, which the statement leaves behind."""
    copy = MemoryCopy(snapshot=ts(snapshot))
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.b")
    world.bucket.schema("shop.a", ts(1), "CREATE TABLE a (id INT, name VARCHAR(20))", CREATE, BAG)
    found = [row("shop.a", tick, str(tick), '"new"') for tick in (2, 4, 5)]
    world.bucket.rows("shop.a", 1, *found, version=ts(1))
    world.once(3)
    world.bucket.schema("shop.c", ts(5), "RENAME TABLE `shop`.`a` TO `shop`.`c`", RENAME, BAG)
    world.bucket.metadata(ts(8))
    copy.add("shop.c", [(str(tick), '"new"') for tick in (2, 4, 5) if tick <= snapshot], columns=KEYLESS)
    world.request("shop.c")
    for _ in range(2):
        assert not world.once().halted
        assert numbers(world, "shop.c") == ["2", "4", "5"]


def test_a_step_of_a_cycle_does_not_touch_the_table_under_whose_name_it_lies() -> None:
    """A table of that name that was loaded meanwhile is no reason for the cycle not to run."""
    copy = MemoryCopy(snapshot=ts(7))
    copy.add("depot.c", [ONE])
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.a", "shop.c", "depot.d")
    world.bucket.rows("shop.a", 1, row("shop.a", 2, "5", '"a"'))
    world.once(3)
    swap(world, 5)
    world.bucket.schema("depot.c", ts(6), "CREATE TABLE `c` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE)
    world.request("depot.c")
    world.once()
    assert not world.once(8).halted
    assert (numbers(world, "shop.c"), numbers(world, "shop.a"), numbers(world, "depot.c")) == (["5"], [], ["1"])


def test_a_table_may_be_skipped_whose_name_is_from_a_rename_before_the_copy() -> None:
    """The copy holds what was there under the former name, of which no file of the bucket tells."""
    world = shop(snapshot=8)
    world.copy.add("shop.new", [ONE])
    world.once(4)
    decide(world, "skip", table="new")
    world.bucket.schema("shop.new", ts(5), "RENAME TABLE `shop`.`old` TO `shop`.`new`", RENAME)
    world.bucket.metadata(ts(12))
    for _ in range(2):
        summary = world.once()
        assert [table.table for table in summary.halted] == []
        assert summary.checkpoint == ts(12)


def test_a_statement_waits_for_the_load_of_a_name_that_the_bucket_shows_later() -> None:
    """The copy has shop.c, which a RENAME takes away before the bucket's first file of that name: it does not move half of a copy."""
    copy = MemoryCopy(snapshot=ts(5))
    copy.add("depot.b", [ONE])
    copy.add("shop.c", [ONE], [TWO])
    world = WithCopies(copy)
    world.bucket.schema("depot.c", ts(6), "RENAME TABLE `shop`.`c` TO `depot`.`c`", RENAME)
    world.bucket.schema("shop.c", ts(7), "CREATE TABLE `shop`.`c` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE)
    world.rate = 1.0
    world.bucket.metadata(ts(5))
    killed_at(world, "after MemoryLoads.advance")
    assert not world.once(9).halted
    assert names_in(world, "depot.c") == {"1": "copy", "2": "copy"}
    assert names_in(world, "shop.c") == {}


def test_rows_of_a_table_that_the_copy_lacks_do_not_go_into_its_next_name() -> None:
    """Two tables swap their names after an export that leaves one of them out: the other one's name is not the missing table's early."""
    copy = MemoryCopy(snapshot=ts(5))
    copy.add("shop.a", [TWO])
    world = WithCopies(copy)
    world.bucket.create("shop.a", "shop.c")
    world.bucket.rows("shop.c", 1, row("shop.c", 6, "7", '"of c"'))
    swap(world, 7)
    summary = world.once(10)
    assert "shop.c" in {table.table for table in summary.halted}
    assert [rows for name, rows in world.records.rows.items() if rows] == [[{"id": "2", "name": "copy"}]]


def test_a_step_that_lies_in_the_folder_of_a_loaded_table_is_not_its_own() -> None:
    """A cycle's first step lies under the last name of another table; done meanwhile, it does not make the table's copy too old."""
    copy = MemoryCopy(snapshot=ts(5))
    copy.add("depot.c", [ONE], [TWO])
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.a", "shop.c", "depot.c")
    world.once(4)
    world.request("depot.c", replaces=True)
    world.rate = 1.0
    killed_at(world, "after MemoryLoads.advance")
    swap(world, 7)
    assert not world.once(10).halted
    assert names_in(world, "depot.c") == {"1": "copy", "2": "copy"}


def test_a_statement_that_the_copy_holds_waits_for_the_load_too() -> None:
    """shop.c became shop.a and came back before the copy: the first RENAME, from before the bucket knows shop.c, moves nothing of the load."""
    copy = MemoryCopy(snapshot=ts(8))
    copy.add("shop.c", [ONE], [TWO])
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.b")
    world.once(3)
    world.request("shop.c")
    world.rate = 1.0
    killed_at(world, "after MemoryLoads.advance")
    world.bucket.schema("shop.a", ts(4), "RENAME TABLE `shop`.`c` TO `shop`.`a`", RENAME)
    world.bucket.schema("shop.c", ts(5), "RENAME TABLE `shop`.`a` TO `shop`.`c`", RENAME)
    assert not world.once(10).halted
    assert names_in(world, "shop.c") == {"1": "copy", "2": "copy"}
