"""Tables that somebody changed in the target: loads of them, and what is known of them until they are loaded or compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.model import TableName
from storage_consumer.rows.comparison import VerifyOutcome
from storage_consumer.rows.fitting import UniqueKey
from tests.harness.small_bucket import row, ts
from tests.unit.copying import names_in
from tests.unit.deciding import answer, decide
from tests.unit.driver.test_requested_loads import feed
from tests.unit.driving import World, one_table


@pytest.mark.parametrize("changed", ["order", "key", "unique"])
def test_a_table_that_cannot_take_the_copy_is_created_anew(changed: str) -> None:
    """Somebody gave it other columns or keys in the target: emptying it first would leave it empty and halted."""
    world = feed(snapshot=15)
    world.once()
    name = TableName(schema="shop", table="a")
    there = world.records.structures[name]
    world.records.structures[name] = {
        "order": replace(there, columns=there.columns[::-1]),
        "key": replace(there, unique_keys=(UniqueKey(name="PRIMARY", columns=("id", "name"), prefixes=(None, None)),)),
        "unique": replace(there, key_drift="unique key over `name`"),
    }[changed]
    world.bucket.metadata(ts(20))
    world.request("shop.a", replaces=True)
    assert not world.once().halted
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}
    assert world.records.structures[name] == there


A = TableName(schema="shop", table="a")
KEY = "`shop`.`a`"
TRUNCATE = 11


def begun() -> World:
    """A feed with one table of one row."""
    world = one_table()
    assert not world.once().halted
    return world


def in_doubt(world: World) -> bool:
    """Whether it is told that the table may not be equal."""
    return KEY in world.records.verified and world.records.verified[KEY].outcome is VerifyOutcome.DIFFERENT


def test_a_table_that_somebody_dropped_is_in_doubt_until_it_has_a_copy() -> None:
    """Created again and resumed, it lacks the rows that it had."""
    world = begun()
    there = world.records.structures.pop(A)
    world.records.rows.pop(A)
    world.bucket.rows("shop.a", 2, row("shop.a", 4, "2", '"two"'))
    assert [table.table for table in world.once(5).halted] == ["shop.a"]
    world.records.structures[A] = there
    decide(world, "resume")
    assert not world.once().halted
    assert in_doubt(world)
    decide(world, "pause")
    world.once()
    decide(world, "reload-done", ts(5))
    world.once()
    assert not in_doubt(world)


def test_a_table_with_another_structure_is_in_doubt_whatever_halts_it() -> None:
    """The files before a statement that nobody has read yet can say that a column is missing, too."""
    world = begun()
    there = world.records.structures[A]
    world.records.structures[A] = replace(there, columns=there.columns[:1])
    world.bucket.rows("shop.a", 2, row("shop.a", 4, "2", '"two"'))
    world.bucket.schema("shop.a", ts(5), "TRUNCATE TABLE `a`", TRUNCATE)
    assert [table.table for table in world.once(6).halted] == ["shop.a"]
    assert in_doubt(world)


@pytest.mark.parametrize(
    ("query", "kind", "doubted"),
    [("TRUNCATE TABLE `a`", TRUNCATE, True), ("ALTER TABLE `a` ADD INDEX (`name`)", 7, False)],
)
def test_a_skipped_statement_leaves_its_table_in_doubt(query: str, kind: int, *, doubted: bool) -> None:
    """Unless it leaves rows and columns as they are."""
    world = begun()
    world.bucket.schema("shop.a", ts(4), f"GRANT {query}", kind)
    assert world.once(5).halted
    answer(world, "skip")
    assert not world.once().halted
    assert in_doubt(world) == doubted
