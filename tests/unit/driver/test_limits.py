"""Runs that end at a commit-ts, and rounds that end after some files or seconds: what they leave is done by the next run."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from storage_consumer.config.settings import Limits
from storage_consumer.driver import ledger
from storage_consumer.summary import RoundSummary
from tests.harness.small_bucket import ID_NAME, column, row, ts
from tests.unit.driving import World, numbers, of, running, two_tables

WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))


def limited(world: World, **limits: Any) -> World:
    """The same world with other limits."""
    world.config = replace(world.config, limits=Limits(**limits))
    return world


def backlog() -> World:
    """Rows 2 to 5 of shop.a at ticks 5, 6, 8 and 9, two to a file, with a statement at 7; shop.b has one at 9; up to tick 10."""
    world = two_tables()
    world.bucket.rows("shop.a", 2, row("shop.a", 5, "2", '"2"'), row("shop.a", 6, "3", '"3"'))
    world.bucket.schema("shop.a", ts(7), "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20)", 5, WIDER)
    late = [row("shop.a", tick, key, '"x"', r"\N") for tick, key in ((8, "4"), (9, "5"))]
    world.bucket.rows("shop.a", 1, *late, version=ts(7))
    world.bucket.rows("shop.b", 2, row("shop.b", 9, "2", '"2"'))
    world.bucket.metadata(ts(10))
    return world


def followed(world: World, rounds: int = 20) -> RoundSummary:
    """Run without --once; fail unless that ends by itself within some rounds."""

    def act(done: int) -> None:
        world.clock.advance(10)
        assert done < rounds

    return running(world, act)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize(
    ("until", "keys", "has_note"),
    [
        (4, ["1"], False),
        (5, ["1", "2"], False),
        (6, ["1", "2", "3"], False),
        (7, ["1", "2", "3"], True),
        (8, ["1", "2", "3", "4"], True),
        (10, ["1", "2", "3", "4", "5"], True),
    ],
)
def test_until(until: int, keys: list[str], *, has_note: bool, once: bool) -> None:
    """Rows and statements up to the commit-ts, inclusive, are applied; then the run ends, and a later one does the rest."""
    world = limited(backlog(), until=ts(until))
    summary = world.once() if once else followed(world)
    assert (numbers(world, "shop.a"), summary.checkpoint, summary.reached_until) == (keys, ts(until), True)
    assert ("note" in world.rows("shop.a")[0]) == has_note
    assert summary.storage_checkpoint == ts(10)
    again = limited(world).once()
    assert (again.checkpoint, again.halted, again.waiting) == (ts(10), (), ())
    assert (numbers(world, "shop.a"), numbers(world, "shop.b")) == (["1", "2", "3", "4", "5"], ["1", "2"])


def test_until_waits_for_the_bucket() -> None:
    """A run that follows goes on until the bucket's checkpoint is there; one round ends before, and says that it has not arrived."""
    world = limited(two_tables(), until=ts(8))
    assert not world.once().reached_until

    def act(rounds: int) -> None:
        if rounds == 3:
            world.bucket.rows("shop.a", 2, row("shop.a", 8, "2", '"2"'), row("shop.a", 9, "3", '"3"'))
            world.bucket.metadata(ts(10))
        assert rounds < 10

    summary = running(world, act)
    assert (summary.reached_until, numbers(world, "shop.a")) == (True, ["1", "2"])


def test_until_with_the_checkpoint_at_exactly_that_ts() -> None:
    """Statements at exactly the checkpoint may still be missing, so the run waits as it always does before it takes them and ends."""
    world = limited(two_tables(), until=ts(8))
    world.bucket.schema("shop.a", ts(8), "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20)", 5, WIDER)
    world.bucket.metadata(ts(8))
    begun = world.clock.monotonic()
    assert followed(world).reached_until
    assert world.clock.monotonic() - begun >= world.config.tuning.ddl_at_checkpoint_wait
    assert "note" in world.rows("shop.a")[0]


def test_until_with_a_halted_table() -> None:
    """The run ends once the others are there: neither a halted table nor one that waits for a statement with it can arrive."""
    world = limited(backlog(), until=ts(8))
    world.bucket.rows("shop.b", 2, "nonsense")
    world.bucket.schema("shop.c", ts(8), "RENAME TABLE `shop`.`a` TO `shop`.`c`, `shop`.`b` TO `shop`.`a`", 14)
    summary = followed(world, 60)
    assert (summary.reached_until, summary.halted_tables) == (True, ("shop.b",))


def test_until_before_what_was_applied() -> None:
    """Nothing is taken back, not even the checkpoint; the run ends at once."""
    world = backlog()
    world.once()
    summary = followed(limited(world, until=ts(5)))
    assert (summary.checkpoint, summary.reached_until, world.records.checkpoint) == (ts(10), True, ts(10))


def test_rows_beyond_until_are_counted() -> None:
    """Rows that were read and left for a later run are counted under this reason."""
    world = limited(backlog(), until=ts(5))
    assert world.once().skipped["row: beyond --until"] == 2


def test_a_file_that_vanishes_after_a_run_until() -> None:
    """Files that such a run listed and left are remembered: the next run misses one that is gone by then."""
    world = limited(backlog(), until=ts(5))
    world.once()
    world.bucket.storage.delete(world.bucket.file("shop.b", 2).relative_to("/bucket").as_posix())
    assert of(limited(world).once(), "shop.b").state == "waiting"


def test_any_sequence_of_borders() -> None:
    """However a backlog is cut into runs, the last one leaves what one run leaves."""
    whole = backlog()
    whole.once()
    for seed in range(20):
        chance, world = random.Random(seed), backlog()  # noqa: S311 - not for secrets
        for _ in range(6):
            limited(world, until=ts(chance.randint(1, 9)), max_files=chance.randint(0, 2)).once()
        limited(world).once()
        assert (world.rows("shop.a"), world.rows("shop.b")) == (whole.rows("shop.a"), whole.rows("shop.b"))


def test_files_of_a_round() -> None:
    """A round ends after the step that reads the last of so many files, says why, and is no failure; the next one goes on."""
    world = limited(backlog(), max_files=1)
    rounds = []
    while (summary := world.once()).ended_early:
        rounds.append((summary.files, summary.ended_early, bool(summary.pending_files)))
        assert summary.waiting == ()
        assert len(rounds) < 10
    # In the second step shop.a has one file before its statement, and shop.b, which is not as far behind, waits for its turn.
    assert {(why, left) for _, why, left in rounds} == {("max-files", True)}
    assert sum(files for files, _, _ in rounds) >= 3
    assert numbers(world, "shop.a") == ["1", "2", "3", "4", "5"]


def test_files_of_one_table_are_not_divided() -> None:
    """The files of one table up to its next statement go together, whatever the limit."""
    world = limited(two_tables(), max_files=1)
    for number in range(2, 6):
        world.bucket.rows("shop.a", number, row("shop.a", 5, str(number), '"x"'))
    world.bucket.metadata(ts(9))
    files = {world.once().files, world.once().files}
    assert files == {1, 5}


def test_the_table_that_is_furthest_behind_comes_first() -> None:
    """Under a limit no table waits for ever while others get new files."""
    world = two_tables()
    world.once()
    limited(world, max_files=1)
    for number in range(2, 8):
        for table in ("shop.a", "shop.b"):
            world.bucket.rows(table, number, row(table, 2 * number, str(number), '"x"'))
        world.once(2 * number + 1)
    assert min(len(numbers(world, table)) for table in ("shop.a", "shop.b")) >= 5


def test_seconds_of_a_round() -> None:
    """A round ends after the step that runs when its time is over, and says why."""
    world = limited(backlog(), max_seconds=5.0)

    def tick(where: str) -> None:
        if where == "after MemoryPipeline.run":
            world.clock.advance(6)

    world.tick = tick
    summary = world.once()
    assert (summary.ended_early, summary.ddls, summary.pending_files > 0) == ("max-seconds", 3, True)
    world.tick = str
    assert (world.once().ended_early, numbers(world, "shop.a")) == ("", ["1", "2", "3", "4", "5"])


def test_a_round_that_is_done_did_not_end_early() -> None:
    """A limit that is reached together with the end changes nothing."""
    world = limited(two_tables(), max_files=2)
    assert world.once().ended_early == ""


def test_earlier_run_that_may_have_been_interrupted(caplog: pytest.LogCaptureFixture) -> None:
    """Rows that an interrupted run wrote are not taken back: a run that is to end before them says that they may be there."""
    world = limited(backlog(), max_files=1)
    world.once()
    caplog.clear()
    limited(world, until=ts(6)).once()
    assert "an earlier run saw the bucket's checkpoint" in caplog.text
    caplog.clear()
    limited(world).once()
    assert "an earlier run saw the bucket's checkpoint" not in caplog.text


def test_a_pace_keeps_jobs_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a limited pace a job writes about as many rows as it may in a minute, and the checkpoint moves after each; nothing is lost."""
    monkeypatch.setattr(ledger, "JOB_SECONDS", 2)
    world = two_tables()
    world.config = replace(world.config, tuning=replace(world.config.tuning, rows_per_second=10))
    for number in range(4):
        keys = range(10 + number * 100, 110 + number * 100)
        # All of one file at one commit-ts, which no job can divide; the files of the others overlap.
        ticks = {key: 50 if number == 1 else key + number for key in keys}
        rows = [row("shop.a", ticks[key], str(key), '"x"') for key in keys]
        world.bucket.rows("shop.a", 2 + number, *rows)
    world.bucket.rows("shop.b", 2, *[row("shop.b", tick, str(tick), '"y"') for tick in range(5, 15)])
    world.bucket.metadata(ts(1000))
    written = [0]

    def tick(where: str) -> None:
        if where == "after MemoryPipeline.run":
            written.append(len(world.rows("shop.a") + world.rows("shop.b")))

    world.tick = tick
    summary = world.once()
    assert (summary.checkpoint, summary.pending_files, summary.skipped) == (ts(1000), 0, {})
    assert numbers(world, "shop.a") == sorted(map(str, [1, *range(10, 410)]))
    assert len(world.rows("shop.b")) == 11
    jobs = sorted(after - before for before, after in pairwise(written))
    assert jobs[-1] < 150
    assert jobs[-2] <= 30
    # Most are as long as they may be.
    assert len(jobs) < 40
