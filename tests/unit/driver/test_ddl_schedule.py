"""Statements side by side: what one that takes long holds up, and what it does not."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import pytest

from storage_consumer.config.settings import CsvOptions
from storage_consumer.driver.ddl_workers import WORKERS
from storage_consumer.errors import DdlFailed, TargetBusy, TargetUnavailable
from storage_consumer.model import TableName
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, column, row, ts
from tests.harness.twins.storage import in_place
from tests.harness.twins.target import MemoryTarget
from tests.unit.deciding import answer
from tests.unit.driving import World, held, numbers, of, running

WIDER = (*ID_NAME, column("more", "INT"))
ALTER, RENAME = 5, 14


@pytest.fixture
def world() -> World:
    """Two tables with a row each; one of them gets a column at tick 4, and both have a row after it."""
    world = World()
    bucket = world.bucket
    bucket.create("shop.a", "shop.b")
    for name in ("shop.a", "shop.b"):
        bucket.rows(name, 1, row(name, 2, "1", '"one"'))
    bucket.metadata(ts(3))
    world.once()
    bucket.schema("shop.a", ts(4), "ALTER TABLE `a` ADD COLUMN `more` INT", ALTER, WIDER)
    bucket.rows("shop.a", 1, row("shop.a", 6, "2", '"two"', "2"), version=ts(4))
    bucket.rows("shop.b", 2, row("shop.b", 6, "2", '"two"'))
    bucket.metadata(ts(7))
    return world


def test_other_tables_go_on_beside_a_long_statement(world: World) -> None:
    """While one table's statement runs, rounds end, and rows of other tables of this and later rounds are applied (D7, D9)."""
    works = held(world)

    def act(rounds: int) -> None:
        if rounds == 1:
            assert (numbers(world, "shop.a"), numbers(world, "shop.b")) == (["1"], ["1", "2"])
            world.bucket.rows("shop.b", 3, row("shop.b", 8, "3", '"three"'))
            world.bucket.metadata(ts(9))
        elif rounds == 2:
            assert numbers(world, "shop.b") == ["1", "2", "3"]
            assert len(works) == 1, "it was begun once"
            assert world.records.checkpoint == ts(4), "the whole's checkpoint waits for it"
            works.popleft()()

    summary = running(world, act, rounds=3)
    assert numbers(world, "shop.a") == ["1", "2"]
    assert (summary.checkpoint, works) == (ts(9), deque())


def test_a_round_tells_what_it_stands_still_for(world: World) -> None:
    """The table of a running statement waits, and the summary says for what and since when."""
    held(world)
    summary = running(world, rounds=1)
    assert of(summary, "shop.a").state == "waiting"
    assert "shop.a with version" in of(summary, "shop.a").error
    assert "running for" in of(summary, "shop.a").error


@pytest.mark.parametrize(("server_type", "logged"), [("tidb", 3), ("mysql", 0)])
def test_whom_a_statement_waits_for_is_logged(
    world: World, server_type: str, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    """TiDB's DDL waits for transactions without an end: after the time for locks it is logged whose, every half a minute."""

    class Blocked(MemoryTarget):
        """Somebody has used ``shop.a`` and not ended their transaction."""

        def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:
            return ("connection 7 of root",) if TableName(schema="shop", table="a") in names else ()

    world.target, world.server_info = Blocked, replace(world.server_info, server_type=server_type)
    works = held(world)

    def act(rounds: int) -> None:
        world.clock.advance(5)
        if rounds == 14:
            works.popleft()()

    with caplog.at_level(logging.WARNING):
        assert running(world, act, rounds=16).checkpoint == ts(7)
    lines = [text for text in caplog.messages if "ddl_blocked" in text and "connection 7 of root" in text]
    assert len(lines) == logged


def test_a_single_round_waits_for_its_statements(world: World) -> None:
    """`run_once` promises the bucket's checkpoint, so it waits however long a statement takes."""
    works = held(world)
    clock, looks = world.clock, []
    monotonic = clock.monotonic

    def look() -> float:
        looks.append(1)
        if works and len(looks) > 20:
            works.popleft()()
        return monotonic()

    clock.monotonic = look  # type: ignore[method-assign] # time passes, and the statement ends
    summary = world.once()
    assert (summary.checkpoint, numbers(world, "shop.a")) == (ts(7), ["1", "2"])


def test_a_statement_survives_a_fault_of_the_round(world: World) -> None:
    """After a fault everything is read anew from the state; what is running then is not begun a second time."""
    works = held(world)
    failed: list[str] = []

    def tick(where: str) -> None:
        if works and where == "before MemoryProgress.save" and not failed:
            failed.append(where)
            message = "the target went away"
            raise TargetUnavailable(message)

    def act(rounds: int) -> None:
        if rounds == 1:
            world.bucket.rows("shop.b", 3, row("shop.b", 8, "3", '"three"'))
            world.bucket.metadata(ts(9))
            world.tick = tick
        elif rounds == 3:
            assert failed
            assert len(works) == 1
            works.popleft()()

    summary = running(world, act, rounds=5)
    assert (summary.checkpoint, works) == (ts(9), deque())
    assert [entry.state for entry in world.records.journal.values()].count("done") == 4


def test_a_lock_held_by_others_stops_only_that_table(world: World) -> None:
    """A statement that could not get its lock is tried again in the next round; the other tables reach the checkpoint."""
    busy = [True] * 3  # as often as it is tried in one round

    def tick(where: str) -> None:
        if where == "before MemoryTarget.execute_ddl" and busy and busy.pop():
            message = "somebody holds a lock"
            raise TargetBusy(message)

    world.tick = tick

    def act(rounds: int) -> None:
        if rounds == 1:
            assert numbers(world, "shop.b") == ["1", "2"]
            assert world.records.checkpoint < ts(7)

    summary = running(world, act, rounds=2)
    assert (summary.checkpoint, numbers(world, "shop.a")) == (ts(7), ["1", "2"])


@pytest.mark.parametrize(("fault", "tries"), [(DdlFailed, 1), (TargetBusy, 3)])
def test_what_needs_a_failed_statement_is_not_begun(fault: type[Exception], tries: int) -> None:
    """Renames of one statement: where the first one fails the next ones, which need its name, do not run."""
    world = World()
    world.bucket.create("shop.a", "shop.b")
    world.bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'))
    world.bucket.rows("shop.b", 1, row("shop.b", 2, "2", '"two"'))
    for old, new in (("a", "tmp"), ("b", "a"), ("tmp", "b")):
        world.bucket.schema(f"shop.{new}", ts(4), f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`", RENAME)
    world.once(3)
    world.bucket.metadata(ts(5))
    sent: list[str] = []

    def tick(where: str) -> None:
        if where == "before MemoryTarget.execute_ddl":
            sent.append(where)
            message = "no"
            raise fault(message)

    world.tick = tick
    assert world.once().checkpoint <= ts(4)
    assert len(sent) == tries
    world.tick = str
    world.once()
    assert (numbers(world, "shop.a"), numbers(world, "shop.b")) == (["2"], ["1"])


def test_no_more_statements_in_parallel_than_workers() -> None:
    """What is ready beyond that begins when one of those that run has ended."""
    world = World()
    names = [f"shop.t{number}" for number in range(WORKERS + 2)]
    world.bucket.create(*names)
    world.once(3)
    for tick, name in enumerate(names, start=4):
        world.bucket.schema(name, ts(tick), f"ALTER TABLE `{name[5:]}` ADD COLUMN `more` INT", ALTER, WIDER)
    world.bucket.metadata(ts(20))
    works = held(world)
    most: list[int] = []

    def act(rounds: int) -> None:
        most.append(len(works))
        for work in list(works):
            works.remove(work)
            work()

    summary = running(world, act, rounds=4)
    assert (most[:2], summary.checkpoint) == ([WORKERS, 2], ts(20))


def test_what_came_late_and_was_decided_about_runs_with_its_table_standing_still(world: World) -> None:
    """A decided late statement has no place on the line: its table stands still until it has ended, over rounds."""
    world.once()
    world.bucket.schema("shop.b", ts(5), "ALTER TABLE `b` COMMENT = 'late'", ALTER)
    late = world.once()
    assert (of(late, "shop.b").state, "arrived after later rows" in of(late, "shop.b").error) == ("halted", True)
    works = held(world)

    def act(rounds: int) -> None:
        if rounds == 1:
            world.bucket.rows("shop.b", 1, row("shop.b", 8, "3", '"three"'), version=ts(5))
            world.bucket.metadata(ts(9))
            answer(world, "done")
        elif rounds == 3:
            assert (len(works), numbers(world, "shop.b")) == (1, ["1", "2"]), "begun, and no row beside it"
            works.popleft()()

    assert running(world, act, rounds=5).checkpoint == ts(9)
    assert numbers(world, "shop.b") == ["1", "2", "3"]


def test_a_late_statement_that_waits_for_a_lock_is_tried_again(world: World) -> None:
    """Its table stands still until it ran, however often others hold a lock that it needs; rows do not overtake it."""
    world.once()
    world.bucket.schema("shop.b", ts(5), "TRUNCATE TABLE `b`", 11)
    world.once()
    busy = [True] * 5  # three times in the first round, two in the next

    def tick(where: str) -> None:
        if where == "before MemoryTarget.execute_ddl" and busy and busy.pop():
            message = "somebody holds a lock"
            raise TargetBusy(message)

    def act(rounds: int) -> None:
        if rounds == 1:
            world.bucket.rows("shop.b", 1, row("shop.b", 8, "3", '"three"'), version=ts(5))
            world.bucket.metadata(ts(9))
            answer(world, "replace", "TRUNCATE TABLE `b`")
            world.tick = tick
        elif rounds == 2:
            assert (len(busy), numbers(world, "shop.b")) == (2, ["1", "2"])

    assert running(world, act, rounds=4).checkpoint == ts(9)
    assert (busy, numbers(world, "shop.b")) == ([], ["3"])


def test_a_statement_whose_file_vanished_before_it_ran(world: World) -> None:
    """What was read once is kept: a later process runs the statement though its schema file is gone, and says so once."""
    world.once()
    written = world.bucket.schema("shop.b", ts(8), "TRUNCATE TABLE `b`", 11)
    world.once()
    world.bucket.storage.delete(str(written.relative_to(world.bucket.root)))
    assert (world.once(9).checkpoint, numbers(world, "shop.b")) == (ts(9), [])
    assert (world.once(10).ddls, world.records.effects.count("TRUNCATE TABLE `b`")) == (0, 1)


def test_a_halt_beside_a_running_statement_is_not_forgotten(world: World) -> None:
    """A table that stops while its statement runs is stopped after a restart too, and follows nobody's checkpoint."""
    works = held(world)

    def act(rounds: int) -> None:
        if rounds == 1:
            world.bucket.rows("shop.a", 3, row("shop.a", 8, "4", '"four"', "4"), version=ts(4))
            world.bucket.rows("shop.b", 3, row("shop.b", 8, "3", '"three"'))
            world.bucket.metadata(ts(9))
            world.clock.advance(10_000)
        elif rounds == 3:
            world.clock.advance(10_000)
        elif rounds == 5:
            works.popleft()()

    assert "is missing" in of(running(world, act, rounds=7), "shop.a").error
    assert world.records.tables["`shop`.`a`"].follows is False
    world.bucket.rows("shop.a", 2, row("shop.a", 7, "3", '"three"', "3"), version=ts(4))
    world.spawn = in_place
    assert world.once().checkpoint == ts(9)
    assert numbers(world, "shop.a") == ["1", "2", "3", "4"]


@pytest.mark.parametrize("timed", [True, False])
def test_what_a_statement_stored_outlives_what_its_round_knows(timed: bool) -> None:  # noqa: FBT001 - a case
    """A CREATE ends right before its round stores the table as it was, dropped; a fault follows. The table gets its rows all the same.

    Without commit-ts (not `timed`) the rows of a dropped table would pass for repeats, and nothing would halt.
    """
    world = World()
    csv = CsvOptions(include_commit_ts=timed)
    world.upstream = replace(world.upstream, csv=csv, allow_missing_commit_ts=not timed)
    world.config = replace(world.config, upstream=world.upstream)
    world.bucket.create("shop.a")
    world.bucket.schema("shop.a", ts(4), "DROP TABLE `a`", 4)
    world.once(5)
    world.bucket.schema("shop.a", ts(6), "CREATE TABLE `a` (`id` INT PRIMARY KEY, `name` VARCHAR(20))", CREATE_TABLE)
    two = row("shop.a", 7, "2", '"two"') if timed else '"I","a","shop",2,"two"'
    world.bucket.rows("shop.a", 1, two, version=ts(6))
    world.bucket.metadata(ts(8))
    works, faults = held(world), [TargetUnavailable("the target went away")]

    def end_before_a_save(where: str) -> None:
        if where == "before MemoryProgress.save" and works:
            works.popleft()()

    def fail_once(where: str) -> None:
        if where == "before MemoryHistory.keep" and faults:
            raise faults.pop()

    def act(rounds: int) -> None:
        if rounds == 1:
            assert not works
            world.tick = fail_once

    world.tick = end_before_a_save
    summary = running(world, act, rounds=4)
    assert (faults, summary.halted, summary.checkpoint) == ([], (), ts(8))
    assert numbers(world, "shop.a") == ["2"]


def test_many_statements_cost_few_transactions() -> None:
    """Each is journalled before and after it; what they say of their tables besides is stored a hundred at a time, before any rows."""
    world, names, calls = World(), [f"shop.t{number:03}" for number in range(250)], list[str]()
    world.bucket.create(*names)
    world.bucket.rows(names[0], 1, row(names[0], 2, "1", '"one"'))
    world.bucket.metadata(ts(3))
    world.tick = calls.append
    assert world.once().checkpoint == ts(3)
    begun = calls.index("before MemoryPipeline.run")
    statements = [
        call for call in calls[:begun] if call in ("before MemoryJournal.record", "before MemoryProgress.save")
    ]
    assert statements.count("before MemoryJournal.record") == 2 * (len(names) + 1)
    assert statements.count("before MemoryProgress.save") <= len(names) / 50
    assert {world.records.tables[f"`shop`.`{name[5:]}`"].checkpoint for name in names} == {ts(1), ts(3)}
