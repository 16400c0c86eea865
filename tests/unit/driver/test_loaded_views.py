"""Views of a copy, where the target has a view or a table of that name already."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import Selecting
from storage_consumer.driver.open_copies import CopiedTable
from storage_consumer.errors import ConfigError
from storage_consumer.model import DdlKind, TableName
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.steps import key_of
from storage_consumer.rows.fitting import TargetTable
from tests.harness.small_bucket import ts
from tests.unit.copying import MemoryCopy, WithCopies
from tests.unit.driver.test_loads import ONE
from tests.unit.driver.test_requested_loads import A, feed, phase
from tests.unit.driving import killed_at

NAME = TableName(schema="shop", table="a")
VIEW = "CREATE ALGORITHM=UNDEFINED VIEW `shop`.`a` AS SELECT `id` FROM `shop`.`b`"


def put_view(copy: MemoryCopy) -> None:
    """Make the copy's shop.a a view."""
    found = copy.tables[key_of(NAME)].definition
    view = replace(found, query=VIEW, ddl_type=DdlKind.CREATE_VIEW, columns=(), checksum=7)
    copy.tables[key_of(NAME)] = CopiedTable(definition=view)


def with_view(*, replaces: bool, copied_as_view: bool) -> WithCopies:
    """A target in which shop.a is a view, and a request to load the source's."""
    world = feed()
    world.once()
    world.records.structures[NAME] = TargetTable(name=NAME, columns=(), unique_keys=(), is_view=True)
    world.records.rows.pop(NAME, None)
    if copied_as_view:
        put_view(world.copy)
    world.request("shop.a", replaces=replaces)
    return world


def effects(world: WithCopies) -> list[str]:
    """The statements on shop.a that had an effect, by their first words."""
    return [" ".join(each.split()[:2]) for each in world.records.effects if "`a`" in each][1:]


@pytest.mark.parametrize("copied_as_view", [True, False])
def test_a_view_that_is_replaced(*, copied_as_view: bool) -> None:
    """It is dropped, and what the copy has of that name is created."""
    world = with_view(replaces=True, copied_as_view=copied_as_view)
    assert not world.once().halted
    assert phase(world) == LoadPhase.DONE
    assert effects(world) == ["DROP VIEW", "CREATE ALGORITHM=UNDEFINED" if copied_as_view else "CREATE TABLE"]
    assert world.records.structures[NAME].is_view == copied_as_view


@pytest.mark.parametrize("ends_at", ["before MemoryJournal.record", "after MemoryJournal.record"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_process_that_ends_while_a_view_is_replaced(ends_at: str, number: int) -> None:
    """The next one goes on: the view is dropped once and created once."""
    world = with_view(replaces=True, copied_as_view=True)
    killed_at(world, ends_at, number)
    assert not world.once().halted
    assert phase(world) == LoadPhase.DONE
    assert effects(world) == ["DROP VIEW", "CREATE ALGORITHM=UNDEFINED"]


def test_a_view_is_not_replaced_unasked() -> None:
    """The request is refused, with the way to it."""
    world = with_view(replaces=False, copied_as_view=True)
    world.once()
    refused = world.records.loads[A]
    assert refused.phase == LoadPhase.REFUSED
    assert "already has shop.a, where the copy has to create it" in refused.error
    assert "--replace" in refused.error


@pytest.mark.parametrize("was", ["view", "table"])
def test_what_would_not_be_created_is_not_dropped(was: str) -> None:
    """A view that reads a table which the filter leaves out is not created, so nothing has to make room for it."""
    world = feed()
    world.once()
    if was == "view":
        world.records.structures[NAME] = TargetTable(name=NAME, columns=(), unique_keys=(), is_view=True)
    put_view(world.copy)
    made = world.copy.tables[key_of(NAME)].definition
    query = made.query.replace("`b`", "`gone`")
    world.copy.tables[key_of(NAME)] = CopiedTable(definition=replace(made, query=query))
    world.config = replace(world.config, selecting=Selecting(rules=("*.*", "!shop.gone")))
    world.request("shop.a", replaces=True)
    assert not world.once().halted
    assert "would not be created: it reads shop.gone" in world.records.loads[A].error
    assert effects(world) == []
    assert world.records.structures[NAME].is_view == (was == "view")


def test_a_table_where_the_copy_has_a_view() -> None:
    """With --replace the table is dropped for it."""
    world = feed()
    world.once()
    put_view(world.copy)
    world.request("shop.a", replaces=True)
    assert not world.once().halted
    assert effects(world) == ["DROP TABLE", "CREATE ALGORITHM=UNDEFINED"]


def test_a_new_feed_whose_view_is_there() -> None:
    """It does not begin: whose view that is nobody knows."""
    copy = MemoryCopy(snapshot=ts(5))
    copy.add("shop.a", [ONE])
    put_view(copy)
    world = WithCopies(copy)
    world.bucket.create("shop.b")
    world.bucket.metadata(ts(8))
    world.records.databases.add("shop")
    world.records.structures[NAME] = TargetTable(name=NAME, columns=(), unique_keys=(), is_view=True)
    with pytest.raises(
        ConfigError, match=r"already has shop\.a, where the copy has to create it\. .* drop these views"
    ):
        world.once()
    assert not world.records.loads
