"""The service over twins and a clock that stands still: faults that pass, stop, and when the last DDL is due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from storage_consumer.errors import ConfigError, StorageConsumerError, StorageUnavailable, TargetUnavailable
from storage_consumer.model import StoredObject
from storage_consumer.summary import RoundSummary
from tests.harness.small_bucket import row, ts
from tests.unit.driving import World, of, one_table, running

LIMIT, WAIT = 300.0, 30.0


@pytest.fixture
def world() -> World:
    """One table with one row up to tick 3."""
    return one_table()


def failing(world: World, where: str, times: int) -> list[str]:
    """Have the next calls with this name fail; all calls are noted in the list that is returned."""
    seen: list[str] = []

    def tick(call: str) -> None:
        seen.append(call)
        if call == where and seen.count(where) <= times:
            raise TargetUnavailable("nobody answers")

    world.tick = tick
    return seen


# faults that pass

SETTLED_AT_ONCE = ("after MemoryLease.open_window", "after MemoryTarget.execute_ddl")
"""Without a round that starts over."""


@pytest.mark.parametrize(
    "where",
    [
        "before MemoryProgress.load",
        "after MemoryLease.open_window",
        "before MemoryPipeline.run",
        "after FencedWriter.write_runs",
        "before MemoryProgress.save",
        "after MemoryProgress.save",
        "before DdlRunner.run",
        "after MemoryTarget.execute_ddl",
    ],
)
def test_fault_that_passes(world: World, where: str) -> None:
    """A fault anywhere is tried again from the stored state, and the result is the same."""
    calls = failing(world, where, 1)
    world.once()
    assert world.rows("shop.a") == [{"id": "1", "name": "one"}]
    assert calls.count("before MemoryProgress.load") == (1 if where in SETTLED_AT_ONCE else 2)
    assert calls.count("after MemoryLease.acquire") == 1
    assert calls.count("before MemoryTarget.close") >= 1
    assert len(world.records.effects) == 2


def test_pauses_grow_up_to_the_limit(world: World) -> None:
    """A target that never answers is asked in growing pauses of at most half a minute, for as long as the limit says."""
    failing(world, "before MemoryProgress.load", 10_000)
    with pytest.raises(TargetUnavailable, match="nobody answers"):
        world.once()
    pauses = world.clock.waits
    assert 0.3 <= pauses[0] <= 0.5
    assert max(pauses) <= 30
    assert [p <= q * 1.45 for p, q in pairwise(pauses)] == [True] * (len(pauses) - 1)
    assert LIMIT < sum(pauses) <= LIMIT + 30


def test_limit_counts_from_the_first_fault(world: World) -> None:
    """A fault after a long time of good work is tried again."""
    calls = failing(world, "before MemoryProgress.save", 1)
    tick = world.tick

    def slow(call: str) -> None:
        if call == "before MemoryPipeline.run":
            world.clock.advance(10_000)
        tick(call)

    world.tick = slow
    assert world.once().checkpoint == ts(3)
    assert calls.count("before MemoryProgress.load") == 2


def test_retries_say_since_when(caplog: pytest.LogCaptureFixture) -> None:
    """Each line about one trouble has the time of its first fault; after a step that took effect the next trouble has its own."""
    world = World(retry_limit=100.0)
    world.bucket.create("shop.a", "shop.b")
    world.bucket.metadata(ts(3))
    tries = dict.fromkeys(range(9), 0)

    def tick(call: str) -> None:
        step = len(world.records.effects)
        if call == "before MemoryTarget.execute_ddl" and tries[step] < 9:  # the runner itself tries three times
            tries[step] += 1
            world.clock.advance(8)
            raise TargetUnavailable("nobody answers")

    world.tick = tick
    world.once()
    said = [message.split(" since=")[1].split()[0] for message in caplog.messages if message.startswith("retry ")]
    assert len(said) == 3 * len(set(said))
    assert len(set(said)) >= 2
    assert said == sorted(said)


def test_limit_counts_anew_after_a_finished_step() -> None:
    """Faults between which steps are finished may go on for longer than the limit in all."""
    world = World(retry_limit=10.0)
    world.bucket.create("shop.a", "shop.b", "shop.c", "shop.d")
    world.bucket.metadata(ts(3))
    done: set[int] = set()

    def tick(call: str) -> None:
        step = len(world.records.effects)
        if call == "before MemoryTarget.execute_ddl" and step not in done:
            done.add(step)
            world.clock.advance(8)
            raise TargetUnavailable("nobody answers")

    world.tick = tick
    assert world.once().checkpoint == ts(3)
    assert len(done) == 5


@pytest.mark.parametrize("halted", [False, True], ids=["all else is done", "a table halts each time"])
def test_statement_that_never_goes_through_ends_at_the_limit(*, halted: bool) -> None:
    """A target that takes no statement is tried again in growing pauses up to the limit, whatever else the round does each time."""
    world = one_table()
    world.once()
    world.bucket.create("crm.b", at=4)
    if halted:
        world.bucket.rows("shop.a", 2, "no row at all\r\n", row("shop.a", 5, "2", '"two"'))
    world.bucket.metadata(ts(6))
    tries = 0

    def tick(call: str) -> None:
        nonlocal tries
        if call == "before MemoryTarget.execute_ddl":
            tries += 1
            assert tries < 1_000
            raise TargetUnavailable("the disk is full")

    world.tick = tick
    with pytest.raises(TargetUnavailable, match="disk is full"):
        world.once()
    assert max(world.clock.waits) > 10


def test_storage_that_does_not_answer(world: World) -> None:
    """The storage is asked again too; after the limit the run ends with its error."""
    world.bucket.storage.available = False
    with pytest.raises(StorageUnavailable):
        world.once()
    world.bucket.storage.available = True
    assert world.once().checkpoint == ts(3)


def test_configuration_is_not_tried_again(world: World) -> None:
    """Another bucket's state ends the run immediately."""
    world.records.upstream = "file:///other"
    with pytest.raises(ConfigError, match="file:///other"):
        world.once()
    assert world.clock.waits == []


def test_settings_that_turn_bad_later(world: World) -> None:
    """What is refused after something was applied is a failure of a running program, not a wrong setting before anything was touched."""

    def tick(call: str) -> None:
        if call == "before MemoryProgress.save" and world.records.effects:
            raise ConfigError("access denied")

    world.tick = tick
    with pytest.raises(StorageConsumerError, match="access denied") as raised:
        world.once()
    assert type(raised.value) is StorageConsumerError


# stop


def test_stop_before_the_start(world: World) -> None:
    """A stop that was requested before gives an empty round and takes no lease."""
    world.stop.requested.set()
    assert world.once() == RoundSummary()
    assert world.records.epoch == 0


def test_stop_at_every_call(world: World) -> None:
    """A stop requested at any call ends the round after the running step; the next process completes it."""
    calls: list[str] = []
    world.tick = calls.append
    world.once()
    for point in range(1, len(calls) + 1):
        other = World()
        other.bucket = world.bucket
        seen: list[str] = []

        def tick(call: str, *, at: int = point, stopped: World = other, seen: list[str] = seen) -> None:
            seen.append(call)
            if len(seen) == at:
                stopped.stop.requested.set()

        other.tick = tick
        stopped = other.once()
        assert stopped.waiting == (), point
        assert "before DdlRunner.run" not in seen[point:], point
        assert stopped.checkpoint == other.records.checkpoint <= ts(3), point
        other.stop.requested.clear()
        assert other.once().checkpoint == ts(3), point
        assert (other.rows("shop.a"), other.records.effects) == (world.rows("shop.a"), world.records.effects), point


# when the last DDL is due


def _with_last_ddl(world: World) -> None:
    """A statement at exactly the storage checkpoint."""
    world.bucket.schema("shop.a", ts(3), "TRUNCATE TABLE `a`", 11)


def test_once_takes_the_last_ddl(world: World) -> None:
    """One round runs the DDL at exactly the storage checkpoint."""
    _with_last_ddl(world)
    summary = world.once()
    assert (summary.ddls, world.rows("shop.a")) == (3, [])
    assert of(summary, "shop.a").rows == 1


# over a restart


def test_file_written_anew_unseen() -> None:
    """A file written anew where listings left it out halts its table, for good, and the message names file and setting."""
    world = one_table()
    for number in range(2, 31):
        world.bucket.rows("shop.a", number, row("shop.a", 3, str(number), '"more"'))

    def act(rounds: int) -> None:
        if rounds == 1:
            world.bucket.rows("shop.a", 2, row("shop.a", 4, "77", '"unseen"'))
            world.bucket.metadata(ts(5))
            world.clock.advance(300)
        elif rounds == 2:
            assert world.records.checkpoint == ts(5)
            world.clock.advance(300)

    running(world, act, rounds=3)
    (halted,) = world.once().halted
    assert "overwritten" in halted.error
    assert world.records.tables["`shop`.`a`"].state == "lost"
    error = world.records.tables["`shop`.`a`"].error
    assert "CDC" in error
    assert "enable-partition-separator" in error


def test_warnings_come_before_a_schema_file_that_reads_short(caplog: pytest.LogCaptureFixture) -> None:
    """What is odd about a bucket is said even if no round gets beyond reading its schema files."""
    world = one_table(retry_limit=1.0)
    world.bucket.metadata('{"checkpoint-ts": 1e999}')
    listing = world.bucket.storage.listing

    def longer(closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        for stored in listing(closed, after):
            yield replace(stored, size=stored.size + 9) if "/meta/" in stored.path else stored

    world.bucket.storage.listing = longer  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailable, match="ended after"):
        world.once()
    assert {"storage_warning", "checkpoint_missing"} <= {text.split()[0] for text in caplog.messages}
