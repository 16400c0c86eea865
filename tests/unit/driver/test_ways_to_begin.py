"""Feeds that are begun for the copy alone, with a copy that has no rows, or into tables that somebody else made."""

from __future__ import annotations

import logging

import pytest

from storage_consumer.model import TableName
from tests.harness.small_bucket import row, ts
from tests.unit.copying import MemoryCopy, WithCopies, names_in
from tests.unit.driver.test_limits import limited
from tests.unit.driver.test_loads import shop
from tests.unit.driver.test_requested_loads import feed
from tests.unit.driving import numbers

NO_ROWS = "the copy holds no rows of "


def test_the_copy_alone(caplog: pytest.LogCaptureFixture) -> None:
    """A run up to the copy's TSO loads it and ends, with nothing to warn of; a later one goes on after it."""
    caplog.set_level(logging.WARNING)
    world = shop()
    summary = limited(world, until=ts(5)).once()
    assert (summary.reached_until, summary.checkpoint) == (True, ts(5))
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy", "3": "copy"}
    assert "an earlier run" not in caplog.text
    assert not limited(world).once().halted
    assert "new" in names_in(world, "shop.a").values()


def test_a_feed_that_begins_with_a_copy_without_rows(caplog: pytest.LogCaptureFixture) -> None:
    """The source had an empty table, or the copy was made without rows: nothing tells which, so it is said."""
    world = WithCopies(MemoryCopy(snapshot=ts(5)))
    world.copy.add("shop.a")
    world.copy.add("shop.b")
    world.bucket.create("shop.a", "shop.b")
    world.bucket.rows("shop.a", 1, row("shop.a", 8, "2", '"new"', operation="U"))
    assert not world.once(10).halted
    assert names_in(world, "shop.a") == {"2": "new"}
    assert f"{NO_ROWS}shop.a, shop.b" in caplog.text


def test_one_empty_table_among_others(caplog: pytest.LogCaptureFixture) -> None:
    """It may be empty, or its only file is missing: one line names all such tables, and none where there is none."""
    world = shop()
    assert not world.once().halted
    assert "no data file" not in caplog.text
    world = shop()
    for number in range(7):
        world.copy.add(f"shop.c{number}")
    assert not world.once().halted
    assert NO_ROWS not in caplog.text
    assert "no data file of 7 of its 8 tables: shop.c0, shop.c1, shop.c2, shop.c3, shop.c4 and 2 more." in caplog.text
    assert "empty at the source, or their files are missing" in caplog.text


def test_a_table_that_is_emptied_by_its_load(caplog: pytest.LogCaptureFixture) -> None:
    """Where an operator asks for one table, it is said even of that alone."""
    world = feed()
    world.once()
    world.copy.add("shop.a")
    world.request("shop.a", replaces=True)
    assert not world.once().halted
    assert not names_in(world, "shop.a")
    assert f"{NO_ROWS}shop.a," in caplog.text


@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_table_that_somebody_else_made(*, is_foreign: bool) -> None:
    """It is created anew: nothing is known of what it would do to rows. One that our statements made is only emptied."""
    world = feed(snapshot=15)
    world.once()
    world.bucket.metadata(ts(20))
    if is_foreign:
        world.foreign.add(TableName(schema="shop", table="a"))
    world.request("shop.a", replaces=True)
    assert not world.once().halted
    assert numbers(world, "shop.a") == ["1", "2"]
    emptied = {entry.statement.split(" `")[0] for entry in world.records.journal.values()}
    assert ("DROP TABLE" in emptied, "TRUNCATE TABLE" in emptied) == (is_foreign, not is_foreign)
