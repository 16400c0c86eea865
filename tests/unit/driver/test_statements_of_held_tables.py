"""What is decided about a table while a statement of it runs, or may run: a copy must not be changed by it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from storage_consumer.plan.steps import key_of
from tests.harness.small_bucket import row, ts
from tests.harness.twins.target import MemoryTarget
from tests.unit.deciding import NAME, copied, decide, start
from tests.unit.driving import Killed, numbers, of, running

TRUNCATE = 11


class Lost(MemoryTarget):
    """The process ends when it has sent a TRUNCATE."""

    def execute_ddl(self, statement: str, *rest: Any, **more: Any) -> Any:
        """Run any other statement."""
        if statement.startswith("TRUNCATE"):
            raise Killed
        return super().execute_ddl(statement, *rest, **more)


def test_hold_is_obeyed_when_the_statement_has_ended() -> None:
    """While a statement of a table runs, a hold of it is not reported as obeyed; right after it, it is."""
    world = start()
    work: list[Callable[[], None]] = []
    world.spawn = work.append
    world.bucket.schema("shop.a", ts(5), "TRUNCATE TABLE `a`", TRUNCATE)
    world.bucket.metadata(ts(9))
    seen: list[bool] = []

    def act(rounds: int) -> None:
        world.clock.advance(5)
        seen.append(bool(world.records.obeyed))
        if rounds == 1:
            decide(world, "pause")
        if rounds == 4:
            ended = threading.Thread(target=work.pop())
            ended.start()
            ended.join()

    summary = running(world, act, rounds=7)
    assert (seen[:4], seen[-1]) == ([False] * 4, True)
    assert "paused by op" in of(summary, "shop.a").error


def test_pause_that_waits_loses_no_rows() -> None:
    """A pause waits for the end of a statement; if the state is read anew meanwhile, the table's row does not follow the feed."""
    world = start()
    world.bucket.schema("shop.b", ts(3), "CREATE TABLE `b` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    world.once(4)
    work: list[Callable[[], None]] = []
    world.spawn = work.append
    world.bucket.schema("shop.a", ts(5), "TRUNCATE TABLE `a`", TRUNCATE)
    world.bucket.rows("shop.a", 1, row("shop.a", 8, "2", '"two"'), version=ts(5))
    world.bucket.metadata(ts(9))

    def act(rounds: int) -> None:
        world.clock.advance(5)
        if rounds == 1:
            decide(world, "pause")
            decide(world, "pause", table="b")  # obeyed at once, so that everything is read anew
        if rounds == 3:
            world.bucket.metadata(ts(12))

    running(world, act, rounds=5)
    stored = world.records.tables[key_of(NAME)]
    assert not stored.follows or max(stored.checkpoint, world.records.checkpoint) < ts(8)


def test_copy_under_a_statement_that_may_run_is_refused() -> None:
    """What a process had sent to the server when it ended may change a copy, so none is taken until that is resolved."""
    world = start()
    usual, world.target = world.target, Lost
    world.bucket.schema("shop.a", ts(5), "TRUNCATE TABLE `a`", TRUNCATE)
    world.bucket.metadata(ts(9))
    with pytest.raises(Killed):
        world.killed(lambda service: service.run_once(world.stop))
    world.target = usual
    world.clock.advance(100)
    decide(world, "pause")
    world.once()
    copied(world, "2", "7")
    decide(world, "reload-done", ts(8))
    assert "may still change a copy" in of(world.once(), "shop.a").error
    decide(world, "resume")
    assert world.once().halted == ()
    decide(world, "pause")
    world.once()
    copied(world, "2", "7")
    decide(world, "reload-done", ts(9))
    assert world.once().halted == ()
    assert numbers(world, "shop.a") == ["2", "7"]
