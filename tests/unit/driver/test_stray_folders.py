"""Folders that the changefeed did not write, beside those that it did: what they are is reported, and nobody else waits for them."""

from __future__ import annotations

import logging

import pytest

from tests.harness.small_bucket import CREATE_TABLE, row, ts
from tests.unit.driving import World, of, one_table, running

ONE = {"id": "1", "name": "one"}


@pytest.fixture
def world() -> World:
    """A table with a row, and a stray folder in its database from before it was made."""
    found = one_table(gap_timeout=60.0)
    found.bucket.write(f"shop/backup/{ts(-9)}/CDC{1:020d}.csv", "what is this\r\n")
    return found


@pytest.mark.parametrize("version", [1, ts(-9), ts(1), ts(2)])
def test_others_go_on(version: int) -> None:
    """Whatever its version seems to be, the tables of its database are made and filled; the folder and the way on are named."""
    world = one_table()
    world.bucket.write(f"shop/backup/{version}/CDC{1:020d}.csv", "what is this\r\n")
    world.bucket.schema("shop", ts(2), "CREATE DATABASE IF NOT EXISTS `shop`", 1)
    summary = world.once()
    assert (summary.ddls, world.rows("shop.a"), of(summary, "shop.a").state) == (3, [ONE], "running")
    (waiting,) = summary.waiting
    assert waiting.table == "shop.backup"
    assert f"the schema file of shop/backup/{version} (" in waiting.error
    assert "if the changefeed did not write that folder, move it out of the bucket" in waiting.error


def test_paths_that_are_none_of_ticdc(world: World) -> None:
    """Files of other names are counted, at any depth."""
    for path in ("foo.csv", "shop/foo.csv", "shop/x/foo.csv", "shop/a/CDC1.txt", f"shop/a/{ts(1)}/notes.md"):
        world.bucket.write(path, "x")
    assert world.once().skipped["object: unknown path"] == 5


def test_it_halts_in_time_and_is_gone_once_it_was_moved_away(world: World) -> None:
    """After the gap timeout it halts by itself; moved away while the program runs it says so, and the next start knows nothing of it."""

    def act(rounds: int) -> None:
        if rounds == 2:
            world.clock.advance(100)
        elif rounds == 4:
            assert world.records.tables["`shop`.`backup`"].state == "halted"
            world.bucket.storage.delete(f"shop/backup/{ts(-9)}/CDC{1:020d}.csv")
            world.clock.advance(700)
        elif rounds == 6:
            world.bucket.rows("shop.a", 2, row("shop.a", 4, "2", '"two"'))
            world.bucket.metadata(ts(5))

    running(world, act, rounds=8)
    stored = world.records.tables["`shop`.`backup`"]
    assert stored.state == "halted"
    assert "If somebody moved them away because the changefeed did not write them, start again" in stored.error
    assert len(world.rows("shop.a")) == 2
    summary = world.once()
    assert (summary.checkpoint, summary.halted, summary.waiting) == (ts(5), (), ())


def test_the_halt_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that is moved away before its time is out halts at once, with an event as any other halt has."""

    def act(rounds: int) -> None:
        world.clock.advance(10)
        if rounds == 2:
            world.bucket.storage.delete(f"shop/backup/{ts(-9)}/CDC{1:020d}.csv")
            world.clock.advance(700)  # a full listing is due

    with caplog.at_level(logging.ERROR):
        running(world, act, rounds=5)
    (event,) = [record.getMessage() for record in caplog.records if "table_halted" in record.getMessage()]
    assert "table=shop.backup" in event
    assert "kind=file" in event


def test_a_schema_file_that_comes_late_loses_nothing() -> None:
    """If it is a table after all, its statement and its rows are applied when its schema file is there, after those of its database."""
    world = one_table()
    world.bucket.rows("shop.b", 1, row("shop.b", 2, "1", '"one"'))
    world.bucket.schema("shop", ts(2), "CREATE DATABASE IF NOT EXISTS `shop`", 1)
    world.once()
    assert world.rows("shop.b") == []
    world.bucket.schema("shop.b", ts(1), "CREATE TABLE `b` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    summary = world.once()
    assert (world.rows("shop.b"), summary.checkpoint, summary.waiting) == ([ONE], ts(3), ())


def test_a_drop_database_waits(world: World) -> None:
    """What would take away rows that nobody could read waits, and says for which folder."""
    world.bucket.schema("shop", ts(2), "DROP DATABASE `shop`", 2)
    summary = world.once()
    assert "held up by shop.backup (" in of(summary, "shop").error
    assert world.rows("shop.a") == [ONE]
