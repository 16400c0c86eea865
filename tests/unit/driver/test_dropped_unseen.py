"""Tables that the source drops while the filter leaves them out, and that the filter takes again later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import Selecting
from tests.harness.small_bucket import CREATE_TABLE, row, ts
from tests.harness.twins.target import MemoryTarget
from tests.unit.driver.test_requested_loads import DROP
from tests.unit.driving import World, numbers, of, two_tables

RULES = ("shop.*", "!shop.a")
_CREATE = "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))"


def take(world: World, *rules: str) -> None:
    """Have the next starts take what these rules say."""
    world.config = replace(world.config, selecting=Selecting(rules=rules))


def dropped(*, applied: bool) -> World:
    """A feed at tick 8 whose shop.a was dropped at tick 7 while it was left out; `applied`: whether the target has rows of before that."""
    world = two_tables()
    if applied:
        world.once()
    take(world, *RULES)
    world.bucket.rows("shop.a", 2, row("shop.a", 5, "2", '"two"'))
    world.once(6)
    world.bucket.schema("shop.a", ts(7), "DROP TABLE `a`", DROP)
    world.once(8)
    return world


def created_again(world: World, version: int) -> None:
    """Have the source create shop.a again, and write a row."""
    world.bucket.schema("shop.a", ts(version), _CREATE, CREATE_TABLE)
    world.bucket.rows("shop.a", 1, row("shop.a", version + 1, "5", '"five"'), version=ts(version))
    world.bucket.metadata(ts(version + 2))


@pytest.mark.parametrize("gone", [(), (1,), (1, 2)])
def test_a_table_of_which_the_target_has_nothing_goes_on(gone: tuple[int, ...]) -> None:
    """Nothing of it is missing, whichever of its files are gone by then; it holds up no checkpoint, and may be created again."""
    world = dropped(applied=False)
    for number in gone:
        world.bucket.storage.delete(world.bucket.file("shop.a", number).relative_to("/bucket").as_posix())
    take(world)
    summary = world.once(10)
    assert (summary.halted, summary.checkpoint) == ((), ts(10))
    assert world.records.tables["`shop`.`a`"].state == "dropped"
    created_again(world, 12)
    summary = world.once()
    assert (summary.halted, summary.checkpoint, numbers(world, "shop.a")) == ((), ts(14), ["5"])


@pytest.mark.parametrize("again", [False, True])
def test_old_rows_have_to_go_first(*, again: bool) -> None:
    """While the target has the former table it halts and says so, since those rows must not pass for a later table's; then it goes on."""
    world = dropped(applied=True)
    take(world)
    if again:
        created_again(world, 12)
    for _ in range(2):
        error = of(world.once(), "shop.a").error
        assert "(version" in error
        assert "shop.a in the target" in error
        assert "storage-consumer table skip --table shop.a" in error
        assert numbers(world, "shop.a") == ["1"]
    MemoryTarget(world.records).execute_ddl("DROP TABLE `shop`.`a`", "", 0)
    summary = world.once()
    assert summary.halted == ()
    assert numbers(world, "shop.a") == (["5"] if again else [])
    assert not world.once().halted


def test_a_table_that_was_created_again_while_it_was_left_out_lacks_rows() -> None:
    """Its rows were passed over, so it needs a copy, whatever was dropped before."""
    world = dropped(applied=False)
    created_again(world, 9)
    world.once()
    take(world)
    assert "its earlier rows are missing" in of(world.once(15), "shop.a").error
    assert numbers(world, "shop.a") == []


def test_a_table_whose_name_was_given_to_another_lacks_rows() -> None:
    """A rename that gave the name back after the DROP was passed over too."""
    world = dropped(applied=False)
    world.bucket.schema("shop.a", ts(9), "RENAME TABLE `shop`.`b` TO `shop`.`a`", 14)
    world.once(10)
    take(world)
    assert "its earlier rows are missing" in of(world.once(15), "shop.a").error
