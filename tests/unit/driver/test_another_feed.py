"""The service where the bucket is not what it was: emptied and given to another changefeed, or given an absurd checkpoint."""

from __future__ import annotations

from typing import Literal

import pytest

from storage_consumer.errors import ConfigError, StorageConsumerError, StorageUnavailable
from storage_consumer.model import CLOCK_MARGIN_MS, MAX_TSO, latest_tso
from tests.harness.small_bucket import CREATE_TABLE, row, ts
from tests.unit.driving import World, one_table, running

HOUR = 3600
ONE = {"id": "1", "name": "one"}


def emptied(world: World) -> None:
    """Delete everything in the bucket."""
    for path in list(world.bucket.storage._objects):
        world.bucket.storage.delete(path)


def another(world: World, begin: int, checkpoint: int) -> None:
    """Another changefeed writes into the prefix: the same table, begun at one tick and complete up to another."""
    world.bucket.schema("shop.a", ts(begin), "", 0)
    world.bucket.rows("shop.a", 1, row("shop.a", begin + 1, "9", '"other"'), version=ts(begin))
    world.bucket.metadata(ts(checkpoint))


@pytest.fixture
def world() -> World:
    """A table that was applied up to an hour and more."""
    found = one_table()
    found.bucket.metadata(ts(3 * HOUR))
    return found


@pytest.mark.parametrize("checkpoint", [2 * HOUR, 9 * HOUR])
def test_another_changefeed_at_a_start(world: World, checkpoint: int) -> None:
    """The start ends with a configuration error, nothing of it is applied or stored, and the next start says so again."""
    world.once()
    before = (dict(world.records.sequences), dict(world.records.kept), world.records.checkpoint)
    emptied(world)
    another(world, HOUR, checkpoint)
    for _ in range(2):
        with pytest.raises(ConfigError, match="This is another changefeed"):
            world.once()
    assert (dict(world.records.sequences), dict(world.records.kept), world.records.checkpoint) == before
    assert world.rows("shop.a") == [ONE]


@pytest.mark.parametrize("sees_it_empty", [True, False])
def test_another_changefeed_while_running(world: World, *, sees_it_empty: bool) -> None:
    """A running program halts likewise, whether it saw the empty prefix or only a metadata that went back."""

    def act(rounds: int) -> None:
        if rounds == 1:
            emptied(world)
            another(world, HOUR, 2 * HOUR)
            if sees_it_empty:
                world.bucket.storage.delete("metadata")
        elif rounds == 2:
            world.bucket.metadata(ts(2 * HOUR))

    with pytest.raises(StorageConsumerError, match="This is another changefeed"):
        running(world, act, rounds=3)
    assert world.rows("shop.a") == [ONE]


@pytest.mark.parametrize("begin", [3 * HOUR + 1, 30 * HOUR])
@pytest.mark.parametrize("while_running", [False, True])
def test_another_changefeed_that_began_later(world: World, begin: int, *, while_running: bool) -> None:
    """Rows between the two are in neither: nothing is applied, at a start and at one that follows a running program's end."""

    def act(rounds: int) -> None:
        if rounds == 1:
            emptied(world)
            another(world, begin, begin + HOUR)

    if while_running:
        with pytest.raises(StorageConsumerError, match="those in between are lost"):
            running(world, act, rounds=4)
    else:
        world.once()
        act(1)
    for _ in range(2):
        with pytest.raises(ConfigError, match="those in between are lost"):
            world.once()
    assert world.rows("shop.a") == [ONE]
    assert world.records.checkpoint == ts(3 * HOUR)


def test_a_table_that_waits_and_whose_rows_are_gone(world: World) -> None:
    """What a table had still to be given was deleted too, though another changefeed begins at the checkpoint that was read."""
    world.bucket.rows("shop.a", 2, row("shop.a", 2 * HOUR, "broken", '"two"'))
    assert world.once().checkpoint < ts(2 * HOUR)
    emptied(world)
    another(world, 3 * HOUR, 4 * HOUR)
    with pytest.raises(ConfigError, match="those in between are lost"):
        world.once()


def test_the_same_changefeed_resumed_from_an_older_checkpoint(world: World) -> None:
    """It writes rows once more beside its files: they pass for the repeats that they are, and what is new is applied."""

    def act(rounds: int) -> None:
        if rounds == 1:
            world.bucket.metadata(ts(HOUR))
            world.bucket.rows("shop.a", 2, row("shop.a", 2, "1", '"one"'))
        elif rounds == 3:
            world.bucket.rows("shop.a", 3, row("shop.a", 4 * HOUR, "2", '"two"'))
            world.bucket.metadata(ts(5 * HOUR))

    running(world, act, rounds=5)
    assert world.rows("shop.a") == [ONE, {"id": "2", "name": "two"}]
    assert world.records.checkpoint == ts(5 * HOUR)


def test_metadata_that_stays_away(world: World) -> None:
    """Without metadata, where there was one, nothing is taken; the program ends at the limit and says why."""
    world.once()
    world.bucket.storage.delete("metadata")
    world.bucket.rows("shop.a", 2, row("shop.a", 4 * HOUR, "2", '"two"'))
    with pytest.raises(StorageUnavailable, match="metadata is gone"):
        world.once()
    world.once(5 * HOUR)
    assert len(world.rows("shop.a")) == 2


@pytest.mark.parametrize("text", ['{"checkpoint-ts":18446744073709551615}', '{"checkpoint-ts":' + "9" * 5000 + "}"])
def test_absurd_metadata_moves_nothing(world: World, text: str) -> None:
    """What no changefeed can say is passed over and counted: rows that come later are no repeats."""
    world.once()
    world.bucket.metadata(text)
    summary = world.once()
    assert (summary.storage_checkpoint, world.records.storage_checkpoint) == (ts(3 * HOUR), ts(3 * HOUR))
    assert summary.skipped["object: metadata without a checkpoint-ts that can be one"] == 1
    world.bucket.rows("shop.a", 2, row("shop.a", 4 * HOUR, "2", '"two"'))
    world.once(5 * HOUR)
    assert len(world.rows("shop.a")) == 2


@pytest.mark.parametrize("where", ["feed", "table"])
def test_a_state_that_believed_it(world: World, where: str) -> None:
    """A state with a checkpoint that can't be is refused at the start, with the way on; a clock that is set right goes on."""
    world.once()
    if where == "feed":
        world.records.storage_checkpoint = (1 << 64) - 1
    else:
        world.bucket.metadata(ts(3 * HOUR))
        world.clock.advance(-1_700_000_000.0)
    with pytest.raises(ConfigError, match="If the clock is wrong, set it and start again"):
        world.once()
    if where == "table":
        world.clock.advance(1_700_000_000.0)
        world.once()


@pytest.mark.parametrize("version", [(1 << 64) - 1, 1 << 63])
def test_an_absurd_version_waits_for_itself(world: World, version: int) -> None:
    """A schema file or directory of a version that can't be holds up nothing else, and is not applied."""
    world.bucket.schema("shop.a", version, "ALTER TABLE `a` ADD COLUMN `x` INT", 5)
    world.bucket.rows("shop.a", 1, row("shop.a", 2 * HOUR, "7", '"lost"'), version=version - 1)
    world.bucket.schema("shop.b", ts(HOUR), "CREATE TABLE `b` (id INT PRIMARY KEY, name VARCHAR(20))", CREATE_TABLE)
    world.bucket.rows("shop.b", 1, row("shop.b", 2 * HOUR, "1", '"one"'), version=ts(HOUR))
    summary = world.once()
    assert (summary.checkpoint, summary.pending_files) == (ts(3 * HOUR), 1)
    assert (world.rows("shop.a"), world.rows("shop.b")) == ([ONE], [ONE])


MANY = 1_000
"""Rows that are read in one batch."""


@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
@pytest.mark.parametrize(
    ("number", "many"),
    [
        (0, False),
        (1 << 63, False),
        (10**20 - 1, False),
        *(pytest.param(number, True, marks=pytest.mark.slow) for number in (0, ts(9999 * HOUR), (1 << 64) - 1)),
    ],
)
def test_a_row_with_an_absurd_commit_ts(number: int, protocol: Literal["csv", "canal-json"], *, many: bool) -> None:
    """It stops its table before anything of that commit range is written, and the error names file and commit ts; others go on."""
    world = World(protocol=protocol)
    world.bucket.create("shop.a", "shop.b")
    rows = [row("shop.a", 2, str(count), '"one"') for count in range(MANY if many else 2)]
    odd = row("shop.a", 2, "-1", '"odd"')
    text = world.bucket.text(odd).replace(str(ts(2)), str(number))
    world.bucket.rows("shop.a", 1, rows[0], text, *rows[1:])
    world.bucket.rows("shop.b", 1, row("shop.b", 2, "1", '"one"'))
    (halted,) = world.once(3).halted
    assert (halted.table, world.rows("shop.a"), world.rows("shop.b")) == ("shop.a", [], [ONE])
    assert "CDC00000000000000000001" in halted.error
    assert "commit" in halted.error
    world.bucket.rows("shop.a", 1, *rows)
    assert not world.once().halted
    assert len(world.rows("shop.a")) == len(rows)


def test_rows_ahead_of_a_clock_that_is_wrong() -> None:
    """Where the checkpoint itself lies beyond the clock no row is judged by it."""
    assert latest_tso(ts(3), 5.0) == MAX_TSO
    assert latest_tso(ts(3), 1_800_000_000.0) == (1_800_000_000_000 + CLOCK_MARGIN_MS + 1) << 18


def test_a_changefeed_that_writes_one_table_after_another_again(world: World) -> None:
    """One that begins at the checkpoint holds what was not due of each table, and for each it comes in its time."""
    world.bucket.create("shop.b")
    for table, number in (("shop.a", 2), ("shop.b", 1)):
        world.bucket.rows(table, number, row(table, 3 * HOUR + 9, "2", '"two"'))
    world.once()
    emptied(world)
    another(world, 3 * HOUR, 3 * HOUR + 5)
    assert world.once().waiting == ()
    world.bucket.schema("shop.b", ts(3 * HOUR), "", 0)
    world.bucket.rows("shop.b", 1, row("shop.b", 3 * HOUR + 9, "2", '"two"'), version=ts(3 * HOUR))
    world.bucket.metadata(ts(4 * HOUR))
    for _ in range(2):
        assert world.once().waiting == ()
    assert world.records.checkpoint == ts(4 * HOUR)
    assert world.rows("shop.b") == [{"id": "2", "name": "two"}]


def test_a_start_before_another_changefeed_has_written(world: World) -> None:
    """While nothing is there a table waits, and halts, for what was not due; a start after the changefeed has come goes on."""
    world.bucket.rows("shop.a", 2, row("shop.a", 3 * HOUR + 9, "2", '"two"'))
    world.once()
    emptied(world)
    world.bucket.metadata(ts(3 * HOUR))

    def act(rounds: int) -> None:
        world.clock.advance(50)

    assert "is missing" in running(world, act, rounds=4).halted[0].error
    another(world, 3 * HOUR, 4 * HOUR)
    assert world.once().halted == ()
    assert world.records.checkpoint == ts(4 * HOUR)
