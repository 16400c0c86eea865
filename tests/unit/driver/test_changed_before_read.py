"""Files of a table that stands still which are written anew before they were read, and are gone then: a copy from before lacks their rows."""

from __future__ import annotations

import pytest

from tests.harness.small_bucket import row, ts
from tests.unit.deciding import copied, decide, halts, put, start
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
    world.once(later + 10)
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


# finished files that are written anew while their table is paused


def paused() -> World:
    """shop.a is paused with the files 1 to 3 read; then 1 and 2 get later rows, and 4 comes: all are listed by a process."""
    world = start()
    to(world, 20)
    for number in (2, 3):
        put(world, number, number + 2, str(number))
    world.once(9)
    rewritten(world, 10)
    return world


def rewritten(world: World, tick: int) -> None:
    """A process finds that the files 1 and 2 of the paused table have other rows, and that there is another file behind them."""
    decide(world, "pause")
    last = len(list(world.bucket.storage.listing(frozenset(), {}))) - 2
    for number in (1, 2, last):
        put(world, number, tick + number, str(tick + number))
    world.bucket.metadata(ts(tick + 9))
    to(world, tick + 20)
    world.once()


def lose(world: World, *numbers: int) -> None:
    """Files of shop.a are gone."""
    for number in numbers:
        world.bucket.storage.delete(str(world.bucket.file("shop.a", number).relative_to("/bucket")))


@pytest.mark.parametrize("gone", [(1,), (2,), (1, 2), (1, 2, 3), (1, 2, 3, 4)])
def test_unread_files_below_the_last_one_are_missed(gone: tuple[int, ...]) -> None:
    """A table does not go on without a file that was written anew, though its number had been read."""
    world = paused()
    lose(world, *gone)
    decide(world, "resume")
    assert "is missing" in halts(world) + of(world.once(), "shop.a").error
    assert numbers(world, "shop.a") == ["1", "2", "3"]


def test_unread_files_that_stay_are_read() -> None:
    """Where they are there at the next start the table goes on; what is gone after that is missed by nobody."""
    world = paused()
    decide(world, "resume")
    assert world.once().halted == ()
    assert numbers(world, "shop.a") == ["1", "11", "12", "14", "2", "3"]
    lose(world, 1, 2, 3)
    summary = world.once()
    assert (summary.halted, summary.waiting) == ((), ())


def test_copy_holds_the_rows_of_unread_files() -> None:
    """After a copy of later it goes on without them, at each start, also with unread files behind them."""
    world = paused()
    lose(world, 1, 2)
    copied(world, "1", "2", "3", "11", "12", "14")
    decide(world, "reload-done", ts(30))
    assert world.once().halted == ()
    decide(world, "pause")
    put(world, 5, 35, "35")
    world.once(39)
    decide(world, "resume")
    for _ in range(2):
        summary = world.once()
        assert (summary.halted, summary.waiting) == ((), ())
    assert numbers(world, "shop.a") == ["1", "11", "12", "14", "2", "3", "35"]


def test_unread_files_are_missed_after_a_copy_of_before() -> None:
    """A copy holds nothing of a file that is written anew after it: one that is gone then is missed."""
    world = paused()
    copied(world, "1", "2", "3", "11", "12", "14")
    decide(world, "reload-done", ts(30))
    assert world.once().halted == ()
    rewritten(world, 40)
    lose(world, 2)
    decide(world, "resume")
    assert "is missing" in halts(world)
    assert "45" not in numbers(world, "shop.a")
