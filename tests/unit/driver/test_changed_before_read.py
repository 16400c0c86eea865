"""Files of a table that stands still which are written anew before they were read, and are gone then: a copy from before lacks their rows."""

from __future__ import annotations

from tests.harness.small_bucket import row, ts
from tests.unit.deciding import copied, decide, put, start
from tests.unit.driving import World, numbers, of


def standing(*numbers: int) -> World:
    """shop.a halts at the file 2, with the files of these numbers behind it, at tick 20."""
    world = start()
    to(world, 20)
    world.bucket.rows("shop.a", 2, "nonsense")
    for number in numbers:
        put(world, number, number + 2, str(number))
    world.bucket.metadata(ts(13))
    return world


def to(world: World, tick: int) -> None:
    """It is `tick` now."""
    world.clock.advance((ts(tick) >> 18) / 1000 - world.clock.now())


def acts(world: World, *ticks: int) -> None:
    """A process with a round at each of these ticks; right before the last one the file 4 gets other rows."""
    service = world.service()
    for tick in ticks:
        to(world, tick)
        if tick == ticks[-1]:
            put(world, 4, tick - 2, "9")
        assert of(service.run_once(world.stop), "shop.a").error
    service.close()


def goes_on_without(world: World, copy: int, later: int) -> list[str]:
    """Which tables stand still once the file 4 is gone and the operator says that the copy as of a tick is there."""
    copied(world, "1", "2", "3", "4")
    decide(world, "reload-done", ts(copy))
    put(world, 5, later, "5")
    world.bucket.metadata(ts(later + 10))
    world.once()
    world.clock.advance(100)
    summary = world.once()
    return [table.table for table in (*summary.halted, *summary.waiting)]


def test_rows_of_a_file_that_changed_and_went_are_missed() -> None:
    """The copy was made before the file got later rows, which nothing holds any more: the table does not go on without them."""
    world = standing(3, 4)
    acts(world, 20, 30)
    world.bucket.storage.delete(str(world.bucket.file("shop.a", 4).relative_to("/bucket")))
    world.bucket.rows("shop.a", 2, row("shop.a", 5, "2", '"file"'))
    assert goes_on_without(world, copy=25, later=31) == ["shop.a"]
    assert "5" not in numbers(world, "shop.a")


def test_rows_of_a_file_that_changed_and_went_behind_a_gap_are_missed() -> None:
    """So also where the file lay behind one that was missed, and a process saw it go."""
    world = standing(4)
    world.bucket.storage.delete(str(world.bucket.file("shop.a", 2).relative_to("/bucket")))
    acts(world, 20, 300, 600)
    service = world.service()
    service.run_once(world.stop)
    world.bucket.storage.delete(str(world.bucket.file("shop.a", 4).relative_to("/bucket")))
    world.clock.advance(700)
    service.run_once(world.stop)
    service.close()
    assert goes_on_without(world, copy=400, later=601) == ["shop.a"]
    assert "5" not in numbers(world, "shop.a")


def test_file_that_changed_and_stays_needs_no_other_copy() -> None:
    """A file that changed and is there is read: a copy from before does."""
    world = standing(3, 4)
    acts(world, 20, 30)
    world.bucket.rows("shop.a", 2, row("shop.a", 5, "2", '"file"'))
    assert goes_on_without(world, copy=25, later=31) == []
    assert numbers(world, "shop.a") == ["1", "2", "3", "4", "5", "9"]
