"""Copies under routes and event filters: databases and tables come to where the routes lead, and what a load runs is no event of the source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import EventFilter, Route, Selecting
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableColumn
from storage_consumer.plan.loads import LoadPhase
from tests.harness.small_bucket import CREATE_TABLE, row, ts
from tests.unit.copying import COLUMNS, KEYLESS, MemoryCopy, WithCopies, names_in
from tests.unit.deciding import decide
from tests.unit.driver.test_loads import ONE, TWO
from tests.unit.driving import numbers

EXCHANGED = (
    Route(matcher=("shop.*",), target_schema="depot"),
    Route(matcher=("depot.*",), target_schema="shop"),
)
AWAY = (Route(matcher=("shop.*",), target_schema="store"),)
SPLIT = (Route(matcher=("shop.a",), target_schema="store"),)
SHARED = (Route(matcher=("shop.*", "depot.*"), target_schema="store"),)
_CREATE = "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))"


def began(*databases: str, routes: tuple[Route, ...]) -> WithCopies:
    """A feed that began with a copy of databases without a table; the bucket has the statements that created them."""
    world = WithCopies(MemoryCopy(snapshot=ts(10), empty=databases))
    world.config = replace(world.config, selecting=Selecting(routes=routes))
    for database in databases:
        world.bucket.schema(database, ts(2), f"CREATE DATABASE `{database}`", 1)
    assert not world.once(20).halted
    return world


@pytest.mark.parametrize(
    ("databases", "routes", "place"),
    [
        (("shop",), AWAY, "store.a"),
        (("shop", "depot"), EXCHANGED, "depot.a"),
        (("shop",), SPLIT, "store.a"),
        (("shop", "depot"), SHARED, "store.a"),
    ],
    ids=["away", "exchanged", "split", "shared"],
)
def test_a_database_of_a_copy_is_there_for_later_tables(
    databases: tuple[str, ...], routes: tuple[Route, ...], place: str
) -> None:
    """The statement that created it is in the copy and will not run; a table that is created later finds its place all the same."""
    world = began(*databases, routes=routes)
    world.bucket.schema("shop.a", ts(25), _CREATE, CREATE_TABLE)
    assert not world.once(30).halted
    assert numbers(world, place) == []


@pytest.mark.parametrize("routes", [AWAY, EXCHANGED], ids=["away", "exchanged"])
def test_a_database_of_a_copy_is_created_with_the_name_of_the_route(routes: tuple[Route, ...]) -> None:
    """Once, and nothing under its own name."""
    world = began("shop", routes=routes)
    assert world.records.databases == {routes[0].target_schema}
    assert world.records.effects == [
        f"CREATE DATABASE `{routes[0].target_schema}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    ]


def test_a_load_leaves_the_database_of_its_route_to_the_statement_that_creates_it() -> None:
    """That another database has the name in the target does not mean that this one is there."""
    copy = MemoryCopy(snapshot=ts(5))
    copy.add("depot.c", [ONE])
    world = WithCopies(copy, initial=False)
    world.config = replace(world.config, selecting=Selecting(routes=EXCHANGED))
    world.bucket.create("shop.a")
    world.bucket.metadata(ts(3))
    world.request("depot.c")
    world.once()
    assert world.records.databases == {"depot"}
    world.bucket.schema("depot", ts(4), "CREATE DATABASE `depot`", 1)
    world.bucket.schema("depot.c", ts(5), _CREATE.replace("`a`", "`c`"), CREATE_TABLE)
    assert not world.once(10).halted
    assert names_in(world, "shop.c") == {"1": "copy"}


FILTERS = [("truncate table",), ("drop table", "truncate table"), ("create table", "create schema"), ("all ddl",)]


@pytest.mark.parametrize("events", FILTERS, ids=", ".join)
@pytest.mark.parametrize("columns", [COLUMNS, KEYLESS], ids=["key", "no key"])
def test_event_filters_leave_the_statements_of_loads_alone(
    events: tuple[str, ...], columns: tuple[TableColumn, ...]
) -> None:
    """They are about what happened at the source: a table that is loaded anew is emptied all the same, and has each row of the copy once."""
    copy = MemoryCopy(snapshot=ts(12))
    copy.add("shop.a", [ONE], [TWO], columns=columns)
    world = WithCopies(copy)
    event_filters = (EventFilter(matcher=("shop.*",), ignore_event=events),)
    world.config = replace(world.config, selecting=Selecting(event_filters=event_filters))
    assert not world.once(20).halted
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}
    copy.snapshot, copy.identity = ts(25), "two"
    copy.add("shop.a", [ONE], columns=columns)
    world.request("shop.a", replaces=True)
    assert not world.once(30).halted
    assert numbers(world, "shop.a") == ["1"]


def test_a_database_that_is_called_like_the_folder_of_loads() -> None:
    """Its statements are the bucket's: event filters count for them."""
    world = WithCopies(MemoryCopy(snapshot=ts(5)), initial=False)
    event_filters = (EventFilter(matcher=("load.*",), ignore_event=("truncate table",)),)
    world.config = replace(world.config, selecting=Selecting(event_filters=event_filters))
    world.bucket.create("load.a")
    world.bucket.rows("load.a", 1, row("load.a", 2, "1", '"one"'))
    world.bucket.schema("load.a", ts(3), "TRUNCATE TABLE `a`", 11)
    assert not world.once(10).halted
    assert numbers(world, "load.a") == ["1"]


# places that two tables would share


def one_copied(*tables: str, initial: bool = False, routes: tuple[Route, ...] = SHARED) -> WithCopies:
    """A feed of shop.a, which is in store.a, beside a copy as of tick 12 of tables with two rows."""
    copy = MemoryCopy(snapshot=ts(12))
    for table in tables:
        copy.add(table, [("1", f'"{table}"'), ("2", f'"{table}"')])
    world = WithCopies(copy, initial=initial)
    world.config = replace(world.config, selecting=Selecting(routes=routes))
    if not initial:
        world.bucket.create("shop.a")
        world.bucket.rows("shop.a", 1, row("shop.a", 2, "7", '"shop.a"'))
        assert not world.once(10).halted
        world.bucket.metadata(ts(20))
    return world


def test_two_tables_of_one_copy_and_one_place() -> None:
    """A feed does not begin with tables whose rows would overwrite each other."""
    world = one_copied("shop.a", "depot.a", initial=True)
    world.bucket.metadata(ts(20))
    with pytest.raises(
        ConfigError, match=r"the routes send depot\.a and shop\.a to store\.a: rows of one would overwrite"
    ):
        world.once()
    assert not world.records.rows


@pytest.mark.parametrize("replaces", [False, True])
def test_a_load_into_the_place_of_another_table(replaces: bool) -> None:  # noqa: FBT001 - pytest
    """It is refused, and does not empty that table; the reason is stored."""
    world = one_copied("depot.a")
    world.request("depot.a", replaces=replaces)
    assert not world.once().halted
    assert names_in(world, "store.a") == {"7": "shop.a"}
    load = world.records.loads["`depot`.`a`"]
    assert load.phase == LoadPhase.REFUSED
    assert "rows of one would overwrite those of the other" in load.error


@pytest.mark.parametrize(
    "query", ["", "CREATE TABLE `a` (id INT PRIMARY KEY, name VARCHAR(20))"], ids=["older", "created"]
)
def test_a_table_that_comes_to_where_a_copy_is(query: str) -> None:
    """It halts, also where the copied table has no file in the bucket."""
    world = one_copied("depot.b")
    world.request("depot.b")
    assert not world.once().halted
    world.bucket.schema("shop.b", ts(25), query, CREATE_TABLE if query else 0)
    world.bucket.rows("shop.b", 1, row("shop.b", 26, "1", '"other"'), version=ts(25))
    (halted,) = world.once(30).halted
    assert halted.table == "shop.b"
    assert "the routes send shop.b and depot.b to store.b at the same time" in halted.error
    assert names_in(world, "store.b") == {"1": "depot.b", "2": "depot.b"}


def test_a_copied_table_whose_place_is_free_again() -> None:
    """A table that was dropped gives its place to another one."""
    world = one_copied("depot.b")
    world.request("depot.b")
    assert not world.once().halted
    world.bucket.schema("depot.b", ts(22), "DROP TABLE `b`", 4)
    world.bucket.schema("shop.b", ts(25), "CREATE TABLE `b` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    world.bucket.rows("shop.b", 1, row("shop.b", 26, "1", '"other"'), version=ts(25))
    assert not world.once(30).halted
    assert names_in(world, "store.b") == {"1": "other"}


def test_a_load_to_a_place_that_the_target_keeps_for_itself() -> None:
    """It is refused, so that another route can lead the table elsewhere later."""
    world = one_copied("depot.z", routes=(Route(matcher=("depot.z",), target_schema="storage_consumer"),))
    world.request("depot.z")
    world.once()
    assert "would go into storage_consumer of the target" in world.records.loads["`depot`.`z`"].error
    world.config = replace(
        world.config, selecting=Selecting(routes=(Route(matcher=("depot.z",), target_schema="store"),))
    )
    world.copy.snapshot, world.copy.identity = ts(25), "two"
    world.copy.add("depot.z", [ONE])
    world.request("depot.z")
    assert not world.once(30).halted
    assert names_in(world, "store.z") == {"1": "copy"}


def test_a_load_into_the_place_of_a_skipped_table() -> None:
    """That table stays as it is, by the word that skips it."""
    world = one_copied("depot.a")
    decide(world, "skip")
    world.once()
    world.request("depot.a", replaces=True)
    world.once()
    assert names_in(world, "store.a") == {"7": "shop.a"}
    assert world.records.loads["`depot`.`a`"].phase == LoadPhase.REFUSED


def test_a_database_that_a_skipped_table_shares() -> None:
    """Dropping it would take that table's rows: the statement is refused, and named."""
    world = one_copied("depot.z")
    world.bucket.schema("depot.b", ts(20) + 1, "CREATE TABLE `b` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    world.bucket.rows("depot.b", 1, row("depot.b", 21, "2", '"two"'), version=ts(20) + 1)
    assert not world.once(22).halted
    decide(world, "skip", table="b", schema="depot")
    world.once()
    world.bucket.schema("shop", ts(25), "DROP DATABASE `shop`", 2)
    (halted,) = world.once(30).halted
    assert "drop the tables that came from it" in halted.error
    assert numbers(world, "store.b") == ["2"]
