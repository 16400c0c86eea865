"""Feeds that begin with a copy which lacks tables that were there when it was made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import Selecting
from storage_consumer.model import TableName
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_decisions import shown_state
from storage_consumer.plan.table_state import TableState
from storage_consumer.rows.fitting import TargetColumn, TargetTable, UniqueKey
from tests.harness.small_bucket import row, ts
from tests.unit.copying import WithCopies, names_in
from tests.unit.deciding import decide
from tests.unit.driver.test_loads import DROP_TABLE, ONE, shop
from tests.unit.driving import numbers, of

NAME = TableName(schema="shop", table="lacking")


def make(world: WithCopies) -> None:
    """Have the target have the table."""
    columns = (
        TargetColumn(name="id", data_type="int", nullable=False),
        TargetColumn(name="name", data_type="varchar", nullable=True),
    )
    key = UniqueKey(name="PRIMARY", columns=("id",), prefixes=(None,))
    world.records.structures[NAME] = TargetTable(name=NAME, columns=columns, unique_keys=(key,))


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_table_that_a_statement_made_before_the_copy_that_lacks_it_halts(*, again: bool, there: bool) -> None:
    """The statement does not run, since the copy holds what came of it; whatever the target has of that name lacks the rows."""
    world = shop()
    world.bucket.create("shop.lacking", at=1)
    if again:
        world.bucket.schema("shop.lacking", ts(2), "DROP TABLE `lacking`", DROP_TABLE)
        world.bucket.schema("shop.lacking", ts(3), "CREATE TABLE `lacking` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    version = ts(3 if again else 1)
    rows = [row("shop.lacking", 4, "1", '"old"'), row("shop.lacking", 8, "2", '"new"')]
    world.bucket.rows("shop.lacking", 1, *rows, version=version)
    if there:
        make(world)
    for _ in range(2):
        assert "does not hold the table" in of(world.once(), "shop.lacking").error
    assert names_in(world, "shop.a")["4"] == "new"
    assert not world.records.rows.get(NAME)
    world.request("shop.lacking", replaces=True)
    world.copy.snapshot = ts(7)
    world.copy.add("shop.lacking", [ONE])
    world.once()
    assert not world.once().halted
    assert names_in(world, "shop.lacking") == {"1": "copy", "2": "new"}
    assert not world.once().halted


def test_a_table_that_the_filter_takes_only_later_and_that_the_first_copy_lacks() -> None:
    """It halts for what the copy lacks, and what is stored of it says so too, until it is left out again."""
    world = shop()
    taking = world.config
    world.bucket.create("shop.lacking", at=1)
    world.config = replace(taking, selecting=Selecting(rules=("shop.a",)))
    assert not world.once().halted
    world.bucket.rows("shop.lacking", 1, row("shop.lacking", 12, "1", '"new"'), version=ts(1))
    world.bucket.metadata(ts(20))
    narrow, world.config = world.config, taking
    for _ in range(2):
        assert "does not hold the table" in of(world.once(), "shop.lacking").error
        stored = world.records.tables[key_of(NAME)]
        assert (stored.state, stored.follows) == (TableState.EXCLUDED, False)
        assert shown_state(stored.state, stored.error) == TableState.HALTED
    world.config = narrow
    assert not world.once().halted
    stored = world.records.tables[key_of(NAME)]
    assert shown_state(stored.state, stored.error) == TableState.EXCLUDED


def test_a_name_that_a_swap_before_the_copy_needed() -> None:
    """Two tables swapped their names by one statement, over a third name that no table has: it is not missed."""
    world = shop()
    world.copy.add("shop.b", [ONE])
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        world.bucket.schema(f"shop.{new}", ts(4), f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`", 14)
    world.bucket.rows("shop.b", 1, row("shop.b", 8, "7", '"new"'), version=ts(4))
    assert not world.once().halted
    assert not world.once().halted
    assert numbers(world, "shop.b") == ["1", "7"]


def test_a_name_that_a_swap_needed_after_a_step_of_another_lay_under_it() -> None:
    """The new architecture stores a swap's first step under its table's last name, also in a database that has no table of that name."""
    world = shop()
    world.copy.add("shop.b", [ONE])
    for version, between in ((3, "d"), (4, "b")):
        world.bucket.schema("other.b", ts(version), f"RENAME TABLE `shop`.`a` TO `other`.`{between}`", 14)
        world.bucket.schema("shop.a", ts(version), "RENAME TABLE `shop`.`b` TO `shop`.`a`", 14)
        world.bucket.schema("shop.b", ts(version), f"RENAME TABLE `other`.`{between}` TO `shop`.`b`", 14)
    world.bucket.rows("shop.b", 1, row("shop.b", 8, "7", '"new"'), version=ts(4))
    assert not world.once().halted
    assert not world.once().halted
    assert numbers(world, "shop.b") == ["1", "7"]


def test_a_table_that_got_a_copy_by_hand_goes_on() -> None:
    """Also after the next start, which reads the statement from before the feed's copy again."""
    world = shop()
    world.bucket.create("shop.lacking", at=1)
    world.bucket.rows("shop.lacking", 1, row("shop.lacking", 8, "2", '"new"'))
    assert world.once().halted
    decide(world, "reload-done", ts(7), table="lacking")
    make(world)
    for _ in range(2):
        assert not world.once().halted
    assert numbers(world, "shop.lacking") == ["2"]


@pytest.mark.parametrize("new", ["moved", "lacking"])
@pytest.mark.parametrize("other", ["none", "in the copy", "dropped"])
def test_a_table_that_was_renamed_from_another_database_before_the_copy(new: str, other: str) -> None:
    """Classic TiCDC does not store the old name's database: what the copy no longer has under that name is what was renamed."""
    world = shop()
    world.bucket.create("shop.lacking", at=2)
    world.bucket.schema("crm", ts(2), "CREATE DATABASE `crm`", 1)
    if other != "none":
        world.bucket.create("other.lacking", at=2)
    if other == "dropped":
        world.bucket.schema("other.lacking", ts(3), "DROP TABLE `other`.`lacking`", DROP_TABLE)
    if other == "in the copy":
        world.copy.add("other.lacking", [ONE])
    world.copy.add(f"crm.{new}", [ONE])
    world.bucket.schema(f"crm.{new}", ts(4), f"RENAME TABLE `lacking` TO `crm`.`{new}`", 14)
    world.bucket.rows(f"crm.{new}", 1, row(f"crm.{new}", 8, "7", '"new"'), version=ts(4))
    for _ in range(3):
        summary = world.once()
        assert (summary.halted, summary.waiting) == ((), ())
    assert summary.checkpoint == summary.storage_checkpoint
    assert numbers(world, f"crm.{new}") == ["1", "7"]
    assert not [effect for effect in world.records.effects if "RENAME" in effect]
