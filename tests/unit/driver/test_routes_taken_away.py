"""Routes that are taken away while a table is left out or dropped: later its rows are where its own name says."""

from __future__ import annotations

from dataclasses import replace

from storage_consumer.config.settings import Route, Selecting
from tests.harness.small_bucket import CREATE_TABLE, row, ts
from tests.unit.copying import names_in
from tests.unit.driver.test_requested_loads import DROP, feed
from tests.unit.driving import World, numbers, one_table

ROUTES = (Route(matcher=("shop.a",), target_schema="store"),)


def selecting(world: World, *, routes: tuple[Route, ...] = (), rules: tuple[str, ...] = ()) -> None:
    """Have the next starts take these routes and rules."""
    world.config = replace(world.config, selecting=Selecting(routes=routes, rules=rules))


def test_a_load_after_the_routes_are_taken_away_goes_to_the_own_name() -> None:
    """The former place is forgotten with the load, so that the start after it finds the rows where the table's name says."""
    world = feed()
    selecting(world, routes=ROUTES)
    world.once()
    assert numbers(world, "store.a") == ["8"]
    selecting(world, routes=ROUTES, rules=("shop.*", "!shop.a"))
    world.once()
    selecting(world)
    world.once()
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    assert not world.once().halted
    assert not world.once().halted
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}


def test_a_table_that_is_created_again_after_the_routes_are_taken_away_goes_to_the_own_name() -> None:
    """The former place is forgotten with the first progress of the new table."""
    world = one_table()
    selecting(world, routes=ROUTES)
    world.once()
    world.bucket.schema("shop.a", ts(5), "DROP TABLE `a`", DROP)
    world.once(7)
    selecting(world)
    world.records.databases.add("shop")
    world.once()
    world.bucket.schema("shop.a", ts(8), "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    world.bucket.rows("shop.a", 1, row("shop.a", 9, "4", '"new"'), version=ts(8))
    assert not world.once(10).halted
    assert not world.once(11).halted
    assert numbers(world, "shop.a") == ["4"]
