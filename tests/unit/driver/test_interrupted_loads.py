"""Loads beside ends of processes, routes, and what operators decide in between: nothing is lost, and nothing that was told to others falls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import Route, Selecting
from storage_consumer.errors import ConfigError
from storage_consumer.plan.journal_entry import STARTED
from storage_consumer.plan.loads import LoadPhase
from tests.harness.small_bucket import ts
from tests.unit.copying import MemoryCopy, WithCopies, names_in
from tests.unit.deciding import decide
from tests.unit.driver.test_loads import ONE, TWO
from tests.unit.driver.test_requested_loads import RENAME, A, catching_up, feed, phase
from tests.unit.driving import World, killed_at, numbers

TO_DEPOT = Selecting(routes=(Route(matcher=("shop.*",), target_schema="depot", target_table="{table}"),))
WITHOUT_A = Selecting(rules=("*.*", "!shop.a"))


def routed() -> WithCopies:
    """A new feed that begins with a copy of shop.a, which a route sends to another database."""
    copy = MemoryCopy(snapshot=ts(10), empty=("shop",))
    copy.add("shop.a", [ONE, TWO])
    world = WithCopies(copy)
    world.config = replace(world.config, selecting=TO_DEPOT)
    world.bucket.create("shop.a")
    world.bucket.metadata(ts(20))
    return world


def stopped(world: World) -> None:
    """A process that is asked to end as soon as it has read the state."""

    def asked(call: str) -> None:
        if call == "after MemoryProgress.load":
            world.stop.requested.set()

    world.tick = asked
    world.once()
    world.tick = str
    world.stop.requested.clear()


@pytest.mark.parametrize("where", ["", "after MemoryLoads.begin"])
def test_a_copy_goes_where_the_routes_say(where: str) -> None:
    """Also after a process that ended when the load had just begun; the database there is created."""
    world = routed()
    if where:
        killed_at(world, where)
    assert not world.once().halted
    assert names_in(world, "depot.a") == {"1": "copy", "2": "copy"}


def test_routes_that_change_while_a_copy_is_loaded_are_refused() -> None:
    """Its rows are in the earlier place, and the rest would come into another one."""
    world = routed()
    killed_at(world, "after MemoryLoads.begin")
    world.config = replace(world.config, selecting=Selecting())
    with pytest.raises(ConfigError, match=r"the rows of shop\.a are in depot\.a"):
        world.once()


def test_a_drop_whose_end_nobody_recorded_is_settled() -> None:
    """A load that creates its table anew comes to its end, though a process was lost right after it dropped the former one."""
    world = feed()
    world.once()
    world.records.rows[next(name for name in world.records.structures if name.table == "a")] = []
    world.copy.tables.clear()
    world.copy.add("shop.a", [("1", '"copy"')], body="id INT PRIMARY KEY, name VARCHAR(20)")
    world.bucket.metadata(ts(11))
    world.request("shop.a", replaces=True)
    killed_at(world, "after MemoryTarget.execute_ddl")
    assert STARTED in {entry.state for entry in world.records.journal.values()}
    assert not world.once(20).halted
    assert STARTED not in {entry.state for entry in world.records.journal.values()}
    assert phase(world) == LoadPhase.DONE


def test_a_request_that_was_withdrawn_meanwhile_does_not_begin() -> None:
    """The copy may take long to open, and by then the operator was told that the table stays as it is."""
    world = feed()
    world.once()
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)

    def withdrawn(call: str) -> None:
        if call == "before MemoryLoads.begin":
            world.records.loads[A] = replace(world.records.loads[A], phase=LoadPhase.CANCELLED)

    world.tick = withdrawn
    world.once()
    assert phase(world) == LoadPhase.CANCELLED
    assert names_in(world, "shop.a") == {"8": "wrong"}


def test_what_was_told_does_not_fall_with_a_filter_that_leaves_out_a_loaded_table() -> None:
    """It has not caught up, and nothing of it will be read: what others were told counts it as they do."""
    world = catching_up()
    world.config = replace(world.config, selecting=WITHOUT_A)
    stopped(world)
    assert world.records.lowest == ts(20)


def test_what_was_told_does_not_fall_with_a_filter_that_leaves_out_a_table_in_its_load() -> None:
    """What is stored of it is from before the load."""
    world = feed()
    world.once()
    world.once(20)
    world.bucket.metadata(ts(30))
    world.copy = MemoryCopy(snapshot=ts(25))
    world.copy.add("shop.a", [ONE], [TWO])
    world.request("shop.a", replaces=True)
    killed_at(world, "before MemoryLoads.finish")
    assert world.records.lowest == ts(20)
    world.config = replace(world.config, selecting=WITHOUT_A)
    stopped(world)
    assert world.records.lowest >= ts(20)


def test_what_was_told_does_not_fall_with_a_skip_while_another_load_is_requested() -> None:
    """The request takes the place of the load that the table has not caught up with."""
    world = catching_up()
    world.copy.tables.clear()
    world.request("shop.a", replaces=True)
    decide(world, "skip")
    stopped(world)
    assert world.records.lowest == ts(20)


def test_a_pause_outlasts_a_rename_that_the_copy_holds() -> None:
    """The bucket shows so far only that the name went to another table; the copy has a table of that name, and that is the one that is paused."""
    copy = MemoryCopy(snapshot=ts(6))
    copy.add("shop.a", [ONE], [TWO])
    world = WithCopies(copy)
    world.bucket.create("shop.a")
    world.bucket.metadata(ts(2))
    killed_at(world, "before MemoryPipeline.run")
    decide(world, "pause")
    world.bucket.schema("shop.b", ts(4), "RENAME TABLE `shop`.`a` TO `shop`.`b`", RENAME)
    world.bucket.metadata(ts(4))
    for _ in range(2):
        assert [each.table for each in world.once().paused] == ["shop.a"]
        assert phase(world) == LoadPhase.LOADING
    world.bucket.schema("shop.a", ts(5), "RENAME TABLE `shop`.`b` TO `shop`.`a`", RENAME)
    assert [each.table for each in world.once(7).paused] == ["shop.a"]
    decide(world, "resume")
    assert not world.once().halted
    assert numbers(world, "shop.a") == ["1", "2"]
