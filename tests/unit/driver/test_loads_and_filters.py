"""Loads of tables that the filter leaves out, for ever or for a while."""

from __future__ import annotations

from dataclasses import replace

from storage_consumer.config.settings import Selecting
from storage_consumer.plan.loads import LoadPhase
from tests.harness.small_bucket import ts
from tests.unit.driver.test_requested_loads import A, feed, killed_at, phase, refused, reloading
from tests.unit.driving import of


def test_a_table_that_the_filter_leaves_out_is_not_loaded() -> None:
    """It is the filter that keeps it from being loaded, whatever the copy holds."""
    world = feed()
    world.config = replace(world.config, selecting=Selecting(rules=("*.*", "!shop.a")))
    world.once()
    world.copy.tables.clear()
    assert "the filter leaves out shop.a" in refused(world)


def test_a_filter_that_leaves_out_a_table_for_a_while_ends_its_load() -> None:
    """What the bucket had meanwhile has been passed over, so the load cannot go on; another copy can be requested at once."""
    world = reloading()
    killed_at(world, "before MemoryLoads.finish")
    assert phase(world) == LoadPhase.LOADING
    taking = world.config
    world.config = replace(taking, selecting=Selecting(rules=("*.*", "!shop.a")))
    world.once()
    world.config = taking
    found = of(world.once(), "shop.a")
    assert phase(world) == LoadPhase.REFUSED
    assert "has left out shop.a since its load began" in world.records.loads[A].error
    assert found.state == "halted"
    world.copy.snapshot = ts(20)
    world.request("shop.a", replaces=True)
    assert not world.once().halted
    assert phase(world) == LoadPhase.DONE
