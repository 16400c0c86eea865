"""Tables that an operator holds, or has tried again; and from when a copy has to be."""

from __future__ import annotations

from storage_consumer.model import TableName
from storage_consumer.plan.steps import key_of
from tests.harness.small_bucket import column, row, ts
from tests.unit.deciding import NAME, answer, decide, put, start
from tests.unit.driving import World, numbers, of, running

KEYLESS = (column("a", "INT"), column("b", "VARCHAR", ColumnPrecision="20"))


def test_hold_keeps_a_table_from_being_written() -> None:
    """Nothing is written to a held table, by this process or the next, and the checkpoint that others see stays with it."""
    world = start()

    def act(rounds: int) -> None:
        if rounds == 1:
            decide(world, "pause")
        if rounds == 2:
            put(world, 2, 6, "2")
            world.bucket.metadata(ts(9))

    summary = running(world, act, rounds=3)
    assert (of(summary, "shop.a").state, summary.halted) == ("paused", ())
    assert "paused by op since" in of(summary, "shop.a").error
    assert "table resume" in of(summary, "shop.a").error
    assert (summary.checkpoint, world.once().checkpoint) == (ts(3), ts(3))
    assert numbers(world, "shop.a") == ["1"]
    decide(world, "resume")
    assert (world.once().checkpoint, numbers(world, "shop.a")) == (ts(9), ["1", "2"])


def test_idle_table_follows_again() -> None:
    """A table that goes on and has nothing to apply is stored with the others, so that nobody sees it behind."""
    world = start()
    decide(world, "pause")
    world.once()
    decide(world, "resume")
    assert world.once(9).checkpoint == ts(9)
    stored = world.records.tables[key_of(NAME)]
    assert (stored.follows, stored.checkpoint) == (True, ts(9))


def test_resume_while_it_runs() -> None:
    """A table whose cause is gone is tried again without a restart."""
    world = start()
    world.bucket.rows("shop.a", 2, "nonsense", row("shop.a", 6, "2", '"two"'))
    world.bucket.metadata(ts(9))

    def act(rounds: int) -> None:
        if rounds == 1:
            assert numbers(world, "shop.a") == ["1"]
            put(world, 2, 6, "2")
            decide(world, "resume")

    assert running(world, act, rounds=3).halted == ()
    assert numbers(world, "shop.a") == ["1", "2"]


def test_keyless_table_is_not_doubled() -> None:
    """Rows of a keyless table that the copy holds are dropped; those behind it are inserted once."""
    world = World()
    world.bucket.schema("shop.k", ts(1), "CREATE TABLE `k` (a INT, b VARCHAR(20))", 3, KEYLESS)
    world.bucket.rows("shop.k", 1, row("shop.k", 2, "1", '"x"'))
    world.once(3)
    world.bucket.rows("shop.k", 2, row("shop.k", 6, "9", '"not there"', operation="D"), row("shop.k", 7, "2", '"y"'))
    world.bucket.rows("shop.k", 3, row("shop.k", 12, "3", '"z"'))
    (table,) = world.once(13).halted
    assert "finds no row" in table.error
    decide(world, "pause", table="k")
    world.once()
    rows: list[dict[str, str | None]] = [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]
    world.records.rows[TableName(schema="shop", table="k")] = rows
    decide(world, "reload-done", ts(8), table="k")
    assert world.once().halted == ()
    assert [r["a"] for r in world.rows("shop.k")] == ["1", "2", "3"]


def test_decision_on_a_late_statement_leaves_a_hold() -> None:
    """A held table stands still although an operator skips a statement that it had stopped at."""
    world = start()
    put(world, 2, 5, "2")
    world.once(6)
    world.bucket.schema("shop.a", ts(4), "TRUNCATE TABLE `a`", 11)
    put(world, 3, 12, "4")
    world.bucket.metadata(ts(13))

    def act(rounds: int) -> None:
        world.clock.advance(5)
        if rounds == 2:
            decide(world, "pause")
        if rounds == 4:
            answer(world, "skip")

    running(world, act, rounds=7)
    assert numbers(world, "shop.a") == ["1", "2"]
    assert "paused by op" in of(world.once(), "shop.a").error
    decide(world, "resume")
    assert (world.once().halted, numbers(world, "shop.a")) == ((), ["1", "2", "4"])
