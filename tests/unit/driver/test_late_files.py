"""Files that a listing shows only after later ones: what they hold of before the checkpoint was promised, and not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.harness.small_bucket import row, ts
from tests.unit.copying import names_in
from tests.unit.deciding import decide
from tests.unit.driver.test_changed_tables import in_doubt
from tests.unit.driving import World, one_table, running

Acts = Mapping[int, Callable[[World], object]]
"""Number of rounds that were run → what happens then."""
DROP = 4


def acted(world: World, acts: Acts) -> World:
    """One process that runs a round before, between and after these acts."""

    def act(rounds: int) -> None:
        acts.get(rounds, bool)(world)
        if rounds > max(acts):
            world.stop.requested.set()

    running(world, act)
    return world


def put(number: int, *ticks: int, upto: int = 0) -> Callable[[World], None]:
    """A file with a row of each tick; then ``metadata`` says `upto`."""

    def write(world: World) -> None:
        world.bucket.rows("shop.a", number, *(row("shop.a", t, str(t), '"row"') for t in ticks))
        if upto:
            world.bucket.metadata(ts(upto))

    return write


def said(upto: int) -> Callable[[World], None]:
    """Only ``metadata`` moves on."""
    return lambda world: world.bucket.metadata(ts(upto))


def test_a_file_that_the_checkpoint_passed_unseen_leaves_a_doubt() -> None:
    """File 2 was moved away before any listing, and is back after file 3: rows of it count as delivered."""
    world = acted(one_table(), {1: said(8), 2: put(3, 9, upto=10), 3: put(2, 6)})
    assert names_in(world, "shop.a").keys() == {"1", "9"}
    assert in_doubt(world)
    (found,) = world.records.verified.values()
    assert "CDC00000000000000000002.csv" in found.reason
    assert "load --table shop.a" in found.heal
    assert "structure" not in found.heal


@pytest.mark.parametrize("cured", ["at once", "later"])
def test_a_halt_by_the_gap_and_its_cure_do_not_hide_it(cured: str) -> None:
    """What operators decide has everything read anew, which forgets no missing file."""
    back = put(2, 6)

    def resumed(world: World) -> None:
        if cured == "at once":
            back(world)
        decide(world, "resume")

    acts = {1: said(8), 2: put(3, 9, upto=10), 3: lambda world: world.clock.advance(100), 7: resumed}
    world = acted(one_table(), acts if cured == "at once" else {**acts, 5: back})
    assert names_in(world, "shop.a").keys() == {"1", "9"}
    assert in_doubt(world)


def test_a_start_before_the_gap_does_not_hide_it() -> None:
    """Nothing is known of what another process read; but the table has halted since."""
    world = one_table()
    world.once()
    said(8)(world)
    world.once()
    put(3, 9, upto=10)(world)
    acted(world, {2: lambda world: world.clock.advance(100), 4: put(2, 6), 5: lambda world: decide(world, "resume")})
    assert names_in(world, "shop.a").keys() == {"1", "9"}
    assert in_doubt(world)


def test_one_that_comes_before_the_checkpoint_passed_it_leaves_none() -> None:
    """The table stood still at the gap, and reads the file."""
    world = acted(one_table(), {1: put(3, 9, upto=10), 2: put(2, 6)})
    assert names_in(world, "shop.a").keys() == {"1", "6", "9"}
    assert not in_doubt(world)


def test_a_repeated_delivery_in_a_file_that_a_listing_lacked_leaves_none() -> None:
    """TiCDC has started again, and a listing shows the second of its new files first: its rows have been read in others."""
    world = acted(one_table(), {1: put(2, 5, 6, upto=8), 2: put(4, 9, upto=10), 3: put(3, 5, 6)})
    assert names_in(world, "shop.a").keys() == {"1", "5", "6", "9"}
    assert not in_doubt(world)


def test_a_start_does_not_take_all_files_for_late_ones() -> None:
    """Of the first listing of a process nothing is known."""
    world = one_table()
    world.once()
    world.bucket.metadata(ts(8))
    world.once()
    put(2, 6)(world)
    put(3, 9, upto=10)(world)
    world.once()
    assert not in_doubt(world)


def test_rows_of_a_table_that_was_dropped_since_leave_none() -> None:
    """The one that has its name now never had them."""

    def made_anew(world: World) -> None:
        world.bucket.schema("shop.a", ts(6), "DROP TABLE `a`", DROP, ())
        world.bucket.create("shop.a", at=7)
        world.bucket.metadata(ts(8))

    world = acted(one_table(), {1: made_anew, 2: put(3, 5), 3: put(2, 4), 4: put(4, 5, upto=9)})
    assert not world.records.verified


def test_a_copy_of_later_leaves_none() -> None:
    """It holds the rows of the file."""

    def copied(world: World) -> None:
        decide(world, "pause")

    def taken(world: World) -> None:
        decide(world, "reload-done", ts(9))

    acts = {1: said(8), 2: copied, 3: taken, 4: put(3, 10, upto=11), 5: put(2, 6), 6: said(12)}
    assert not in_doubt(acted(one_table(), acts))
