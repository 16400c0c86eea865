"""Loads of tables that the filter leaves out or that an operator skips, for ever or for a while."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import Selecting
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.table_decisions import shown_state
from storage_consumer.plan.table_state import TableState
from storage_consumer.summary import RoundSummary
from tests.harness.small_bucket import row, ts
from tests.unit.copying import MemoryCopy, WithCopies, names_in
from tests.unit.deciding import decide
from tests.unit.driver.test_loads import ONE, TWO
from tests.unit.driver.test_requested_loads import A, catching_up, feed, phase, refused, reloading
from tests.unit.driving import killed_at, numbers, of

NARROW = Selecting(rules=("*.*", "!shop.a"))


def half_loaded(world: WithCopies) -> WithCopies:
    """The world after a process that ended when one of two parts was written."""
    world.rate = 1e-3
    killed_at(world, "after MemoryLoads.advance")
    assert phase(world) == LoadPhase.LOADING
    return world


def pass_over(world: WithCopies, tick: int) -> None:
    """Run once with a filter that leaves out shop.a, up to a later tick; the next runs have the former filter."""
    taking = world.config
    world.config = replace(taking, selecting=NARROW)
    assert not world.once(tick).loading
    world.config = taking


def narrowed(world: WithCopies) -> RoundSummary:
    """Pass over what shop.a has up to tick 30; the summary of the run after that."""
    pass_over(world, 30)
    return world.once()


def newer_copy(world: WithCopies, tick: int) -> None:
    """Request a load of another copy."""
    world.copy.snapshot, world.copy.identity = ts(tick), "newer"
    world.copy.add("shop.a", [ONE], [TWO])
    world.request("shop.a", replaces=True)


def lose_files(world: WithCopies) -> None:
    """Have the bucket show nothing of shop.a any more."""
    for stored in list(world.bucket.storage.listing(frozenset(), {})):
        if stored.path.startswith("shop/a/"):
            world.bucket.storage.delete(stored.path)


def test_a_table_that_the_filter_leaves_out_is_not_loaded() -> None:
    """It is the filter that keeps it from being loaded, whatever the copy holds."""
    world = feed()
    world.config = replace(world.config, selecting=Selecting(rules=("*.*", "!shop.a")))
    world.once()
    world.copy.tables.clear()
    assert "the filter leaves out shop.a" in refused(world)


@pytest.mark.parametrize("begin", ["half", "written", "joining"])
def test_a_filter_that_leaves_out_a_table_for_a_while_ends_its_load(begin: str) -> None:
    """What the bucket had meanwhile has been passed over, so the load cannot go on; another copy can be requested at once."""
    if begin == "joining":
        world = catching_up()
    else:
        world = reloading()
        killed_at(world, "before MemoryLoads.finish") if begin == "written" else half_loaded(world)
    found = of(narrowed(world), "shop.a")
    assert phase(world) == LoadPhase.CANCELLED
    assert "has left out shop.a since its load began" in world.records.loads[A].error
    assert found.state == "halted"
    newer_copy(world, 30)
    assert not world.once().halted
    assert phase(world) == LoadPhase.DONE
    assert numbers(world, "shop.a") == ["1", "2"]


def test_a_half_loaded_table_that_the_bucket_no_longer_shows() -> None:
    """It is known by what is stored of it, and halts."""
    world = half_loaded(reloading())
    pass_over(world, 30)
    lose_files(world)
    for _ in range(2):
        assert "its earlier rows are missing" in of(world.once(), "shop.a").error


def left_out_for_a_while() -> WithCopies:
    """A feed at tick 20 that left out shop.a from tick 10 on, whose files are gone, and that takes the table again from now on."""
    world = feed()
    world.once()
    world.bucket.rows("shop.a", 2, row("shop.a", 15, "3", '"new"'))
    pass_over(world, 20)
    lose_files(world)
    return world


def test_a_table_that_was_left_out_and_that_the_bucket_no_longer_shows() -> None:
    """The same without a load: the target lacks what was passed over. It stands still, so an export may take a while, and its state says so."""
    world = left_out_for_a_while()
    for tick in (20, 30):
        assert "its earlier rows are missing" in of(world.once(tick), "shop.a").error
    stored = world.records.tables[A]
    assert (shown_state(stored.state, stored.error), stored.follows) == (TableState.HALTED, False)
    newer_copy(world, 25)
    assert not world.once().halted
    assert phase(world) == LoadPhase.DONE


def test_a_pause_of_a_table_that_was_left_out() -> None:
    """It changes nothing, and what is told to others does not fall."""
    world = left_out_for_a_while()
    decide(world, "pause")
    told = world.records.lowest
    for tick in (30, 40):
        assert "its earlier rows are missing" in of(world.once(tick), "shop.a").error
        assert world.records.lowest >= told


def test_a_half_loaded_table_that_only_the_copy_shows() -> None:
    """A table of the first copy without a change has no file in the bucket. Left out for a while, it halts until it has another copy."""
    copy = MemoryCopy(snapshot=ts(5))
    copy.add("shop.a", [ONE], [TWO])
    copy.add("shop.b")
    world = WithCopies(copy)
    world.bucket.create("shop.b")
    world.bucket.metadata(ts(10))
    found = of(narrowed(half_loaded(world)), "shop.a")
    assert "its earlier rows are missing" in found.error
    assert phase(world) == LoadPhase.CANCELLED
    newer_copy(world, 30)
    assert not world.once().halted
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}


@pytest.mark.parametrize("pauses", [True, False])
def test_an_export_of_a_skipped_table_that_takes_a_while(*, pauses: bool) -> None:
    """More of the table is passed over meanwhile, until it is paused: then it stands still, and takes the copy."""
    world = feed()
    world.once()
    decide(world, "skip")
    world.once(20)
    if pauses:
        decide(world, "pause")
        world.once()
        stored = world.records.tables[A]
        assert shown_state(stored.state, stored.error) == TableState.HALTED
    world.bucket.rows("shop.a", 2, row("shop.a", 25, "3", '"new"'))
    world.once(30)
    newer_copy(world, 22)
    if pauses:
        assert not world.once().halted
        assert names_in(world, "shop.a") == {"1": "copy", "2": "copy", "3": "new"}
    else:
        assert "pause the table, and export it after that" in refused(world)
