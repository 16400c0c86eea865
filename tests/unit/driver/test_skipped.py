"""Transactions that --skip-commit-ts leaves out: what comes after them, what is stored of them, and when it is too late."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from storage_consumer.config.table_filter import skipped
from storage_consumer.driver.row_jobs import SKIPPED
from storage_consumer.errors import ConfigError
from storage_consumer.model import SkippedRows, TableName
from tests.harness.small_bucket import column, row, ts
from tests.unit.driving import World, numbers, two_tables

A, B = (TableName(schema="shop", table=name) for name in "ab")


def skipping(world: World, *given: str) -> World:
    """The same world with this option; without one nothing is left out."""
    world.upstream = replace(world.upstream, skip_commit_ts=skipped(given))
    world.config = replace(world.config, upstream=world.upstream)
    return world


def accident(protocol: Literal["csv", "canal-json"] = "csv") -> World:
    """shop.a and shop.b with rows at tick 2; at tick 5 row 1 of both is gone, 2 is changed and 3 is new; up to tick 9."""
    world = World(protocol)
    world.bucket.create("shop.a", "shop.b")
    for table in ("shop.a", "shop.b"):
        world.bucket.rows(table, 1, *(row(table, 2, key, f'"{key}"') for key in "12"))
        world.bucket.rows(
            table,
            2,
            row(table, 5, "1", '"1"', operation="D"),
            row(table, 5, "2", '"wrong"', operation="U", old=("2", '"2"')),
            row(table, 5, "3", '"wrong"'),
            row(table, 6, "4", '"4"'),
        )
    world.bucket.metadata(ts(9))
    return world


def shown(world: World, table: str) -> list[tuple[str | None, str | None]]:
    """The rows of a table."""
    return [(each["id"], each["name"]) for each in world.rows(table)]


RIGHT = [("1", "1"), ("2", "2"), ("4", "4")]
WRONG = [("2", "wrong"), ("3", "wrong"), ("4", "4")]


@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
def test_rows_of_a_transaction(protocol: Literal["csv", "canal-json"]) -> None:
    """They are left out of every table or of one, counted, and stored by table; later runs without the option change nothing of it."""
    world = skipping(accident(protocol), str(ts(5)))
    assert world.once().skipped == {SKIPPED: 6}
    assert shown(world, "shop.a") == shown(world, "shop.b") == RIGHT
    stored = [SkippedRows(A, ts(5), 3), SkippedRows(B, ts(5), 3)]
    assert [each for each in world.records.skipped.values() if each.table.table] == stored
    again = skipping(world).once()
    assert (again.skipped, shown(world, "shop.a")) == ({}, RIGHT)
    assert [*world.records.skipped.values()] == stored
    world = skipping(accident(protocol), f"shop.[b]:{ts(4)},{ts(5)}")
    assert world.once().skipped == {SKIPPED: 3}
    assert (shown(world, "shop.a"), shown(world, "shop.b")) == (WRONG, RIGHT)
    nobody = [SkippedRows(TableName(schema="", table=""), ts(tick), 0) for tick in (4, 5)]
    assert sorted(world.records.skipped.values()) == sorted([*nobody, SkippedRows(B, ts(5), 3)])


def test_what_comes_after_a_transaction() -> None:
    """Later changes of its rows find the rows as they would be without it: a row that should be gone is replaced, one that is not there is made."""
    world = skipping(accident(), str(ts(5)))
    world.once()
    rows = [row("shop.a", 12, "1", '"again"'), row("shop.a", 12, "3", '"new"', operation="U")]
    world.bucket.rows("shop.a", 3, *rows, row("shop.a", 13, "2", '"wrong"', operation="D"))
    world.bucket.metadata(ts(20))
    assert world.once().halted == ()
    assert shown(world, "shop.a") == [("1", "again"), ("3", "new"), ("4", "4")]


@pytest.mark.parametrize("call", range(0, 60, 2))
def test_killed(call: int) -> None:
    """Whenever the program is killed, the next one leaves the same rows out and stores the same numbers."""
    world = skipping(accident(), str(ts(5)))
    calls = [0]

    def tick(_: str) -> None:
        calls[0] += 1
        if calls[0] > call:
            raise KeyboardInterrupt

    world.tick = tick
    with pytest.raises(KeyboardInterrupt):
        world.killed(lambda service: service.run_once(world.stop))
    world.tick = str
    world.clock.advance(100)
    world.once()
    assert shown(world, "shop.a") == shown(world, "shop.b") == RIGHT
    stored = [each for each in world.records.skipped.values() if each.table.table]
    assert sorted(stored) == [SkippedRows(A, ts(5), 3), SkippedRows(B, ts(5), 3)]


def keyless() -> World:
    """shop.k without a key: a row at tick 2, another one at tick 5 that is left out, and a third at tick 6; up to tick 9."""
    world = World()
    columns = (column("id", "INT"), column("name", "VARCHAR", ColumnPrecision="20"))
    world.bucket.schema("shop", ts(0), "CREATE DATABASE `shop`", 1)
    world.bucket.schema("shop.k", ts(1), "CREATE TABLE `k` (id INT, name VARCHAR(20))", 3, columns)
    world.bucket.rows("shop.k", 1, *(row("shop.k", tick, str(tick), '"x"') for tick in (2, 5, 6)))
    world.bucket.metadata(ts(9))
    return skipping(world, str(ts(5)))


def _killed_behind_its_job(world: World) -> None:
    """End a process that has written rows, before it stores how far it is; its lease runs out."""

    def tick(where: str) -> None:
        if where == "after MemoryPipeline.run":
            raise KeyboardInterrupt

    world.tick = tick
    with pytest.raises(KeyboardInterrupt):
        world.killed(lambda service: service.run_once(world.stop))
    world.tick = str
    world.clock.advance(100)


def test_table_without_a_key() -> None:
    """A later delete of a row that was left out halts the table, and says what may be the reason."""
    world = keyless()
    world.once()
    assert numbers(world, "shop.k") == ["2", "6"]
    world.bucket.rows("shop.k", 2, row("shop.k", 12, "5", '"x"', operation="D"))
    world.bucket.metadata(ts(20))
    assert world.once().halted_tables == ("shop.k",)
    # The rows of it alone move its checkpoint: what is not known any more is told as such.
    world = keyless()
    _killed_behind_its_job(world)
    world.once()
    assert numbers(world, "shop.k") == ["2", "6"]
    (stored,) = (each for each in world.records.skipped.values() if each.table.table)
    assert stored == SkippedRows(TableName(schema="shop", table="k"), ts(5), None)


def test_too_late(caplog: pytest.LogCaptureFixture) -> None:
    """A transaction that all tables have is refused; where some have it, that is told. One that was left out, or begun with, is neither."""
    world = accident()
    world.once()
    with pytest.raises(ConfigError, match=r"too late to leave it out of shop\.a, shop\.b, .*verify --repair"):
        skipping(world, str(ts(5))).once()
    with pytest.raises(ConfigError, match="too late"):
        skipping(world, f"other.*:{ts(5)}").once()
    # Rows of a job that was killed may be there.
    world = accident()
    _killed_behind_its_job(world)
    with pytest.raises(ConfigError, match="too late"):
        skipping(world, str(ts(5))).once()
    # What was to be left out is no longer once it was not asked for.
    world = skipping(two_tables(), str(ts(5)))
    world.once()
    skipping(world).once()
    world.bucket.rows("shop.a", 2, row("shop.a", 5, "2", '"x"'))
    world.bucket.metadata(ts(7))
    world.once()
    world.bucket.create("shop.c", at=8)
    with pytest.raises(ConfigError, match="too late"):
        skipping(world, str(ts(5))).once()
    world.bucket.metadata(ts(9))
    skipping(world).once()
    assert "too late" not in caplog.text


def test_some_tables_have_it(caplog: pytest.LogCaptureFixture) -> None:
    """Where a table is behind, its rows are left out, and it is told which tables have theirs."""
    world = accident()
    world.bucket.rows("shop.b", 1, "nonsense")
    assert world.once().halted_tables == ("shop.b",)
    world.bucket.rows("shop.b", 1, *(row("shop.b", 2, key, f'"{key}"') for key in "12"))
    world.records.writes.clear()
    skipping(world, str(ts(5))).once()
    assert "too late to leave it out of shop.a, which" in caplog.text
    assert (shown(world, "shop.a"), shown(world, "shop.b")) == (WRONG, RIGHT)
