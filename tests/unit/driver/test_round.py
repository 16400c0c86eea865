"""One round after another over twins: what is applied, what stands still, what is counted, and what a killed process leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from storage_consumer.errors import DdlFailed
from storage_consumer.plan import steps
from tests.harness.small_bucket import ID_NAME, column, row, ts
from tests.unit.driving import Killed, KilledAt, World, killed_after, of, two_tables

KEYLESS = (column("a", "INT"), column("b", "VARCHAR", ColumnPrecision="20"))
WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))
ALTER, DROP, TRUNCATE, RENAME = 5, 4, 11, 14


def history(world: World) -> None:
    """The whole history of a small bucket: all kinds of statements, keyed and keyless rows, two checkpoints on the way."""
    bucket = world.bucket
    bucket.create("shop.a", "shop.b")
    bucket.schema("shop.k", ts(1), "CREATE TABLE `k` (a INT, b VARCHAR(20))", 3, KEYLESS)
    bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'), row("shop.a", 3, "2", '"two"'))
    bucket.rows("shop.b", 1, row("shop.b", 2, "1", '"gone"'))
    bucket.rows("shop.k", 1, row("shop.k", 2, "1", '"x"'), row("shop.k", 3, "1", '"x"'))
    bucket.schema("shop.a", ts(4), "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20)", ALTER, WIDER)
    bucket.rows("shop.a", 1, row("shop.a", 6, "1", '"uno"', '"n"'), version=ts(4))
    bucket.schema("shop.b", ts(5), "TRUNCATE TABLE `b`", TRUNCATE)
    bucket.rows("shop.b", 1, row("shop.b", 6, "7", '"seven"'), version=ts(5))
    bucket.rows("shop.k", 2, row("shop.k", 6, "1", '"x"', operation="D"), row("shop.k", 7, "3", "\\N"))
    bucket.schema("shop.c", ts(8), "RENAME TABLE `shop`.`b` TO `shop`.`c`", RENAME)
    bucket.rows("shop.c", 1, row("shop.c", 9, "8", '"eight"'), version=ts(8))
    bucket.schema("shop.d", ts(9), "CREATE TABLE `d` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    bucket.schema("shop.d", ts(10), "DROP TABLE `d`", DROP)


CHECKPOINTS = (ts(3), ts(7), ts(10))


def state_of(world: World) -> dict[str, Any]:
    """All that a target holds in the end, but for who was there and how often."""
    records = world.records
    return {
        "structures": dict(records.structures),
        "rows": {table: world.rows(table) for table in ("shop.a", "shop.b", "shop.c", "shop.d", "shop.k")},
        "tables": {d: (max(t.checkpoint, records.checkpoint), t.state, t.follows) for d, t in records.tables.items()},
        "sequences": dict(records.sequences),
        "journal": {identity: entry.state for identity, entry in records.journal.items()},
        "checkpoint": (records.checkpoint, records.storage_checkpoint),
    }


def replayed(kill_at: int = -1) -> tuple[World, int]:
    """The history, checkpoint by checkpoint, with one process that is killed at a call; and how many calls there were."""
    world = World()
    history(world)
    world.tick = ends = KilledAt(kill_at)
    for checkpoint in CHECKPOINTS:
        world.bucket.metadata(checkpoint)
        try:
            world.killed(lambda service: service.run_once(world.stop))
        except Killed:
            world.once()
    return world, ends.met


@pytest.mark.slow
def test_killed_at_every_call() -> None:
    """A process that ends at any call to the outside leaves what the next one completes, no DDL twice (C6, U8)."""
    whole, calls = replayed()
    wanted = state_of(whole)
    assert [(r["id"], r["name"], r["note"]) for r in wanted["rows"]["shop.a"]] == [
        ("1", "uno", "n"),
        ("2", "two", None),
    ]
    assert [tuple(r.values()) for r in wanted["rows"]["shop.c"]] == [("7", "seven"), ("8", "eight")]
    assert [tuple(r.values()) for r in wanted["rows"]["shop.k"]] == [("1", "x"), ("3", None)]
    for point in range(1, calls + 1):
        world, _ = replayed(point)
        assert state_of(world) == wanted, point
        once = [s for s in world.records.effects if not s.startswith("TRUNCATE")]
        assert once == [s for s in whole.records.effects if not s.startswith("TRUNCATE")], point
    assert calls > 100


# what stands still


@pytest.fixture
def world() -> World:
    """Two tables with a row each, up to tick 3."""
    return two_tables()


def test_refused_ddl_halts_its_table_only(world: World) -> None:
    """A DDL that the target refuses halts its table with the statement; the others go on, and what others see does not."""
    world.bucket.schema("shop.a", ts(4), "ALTER TABLE `a` NONSENSE", ALTER)
    world.bucket.rows("shop.a", 1, row("shop.a", 5, "2", '"two"'), version=ts(4))
    world.bucket.rows("shop.b", 2, row("shop.b", 5, "2", '"two"'))
    summary = world.once(6)
    assert [(t.table, t.checkpoint) for t in summary.halted] == [("shop.a", ts(4))]
    assert "ALTER TABLE `a` NONSENSE" in summary.halted[0].error
    assert (summary.checkpoint, summary.checkpoint_running) == (ts(4), ts(6))
    assert (len(world.rows("shop.a")), len(world.rows("shop.b"))) == (1, 2)
    assert world.records.tables["`shop`.`a`"].state == "halted"
    assert "NONSENSE" in world.records.tables["`shop`.`a`"].error


def test_halted_table_is_tried_again_and_follows_nothing(world: World) -> None:
    """A halted table goes on from where it stood, whatever the others reached and however often the program starts."""
    world.bucket.schema("shop.a", ts(4), "ALTER TABLE `a` ADD COLUMN `name` VARCHAR(20)", ALTER)
    world.bucket.rows("shop.a", 1, row("shop.a", 5, "2", '"two"'), version=ts(4))
    world.bucket.rows("shop.b", 2, row("shop.b", 7, "2", '"two"'))
    world.bucket.metadata(ts(8))
    for _ in range(3):
        assert [t.table for t in world.once().halted] == ["shop.a"]
    assert world.records.checkpoint == ts(8)
    table = next(t for n, t in world.records.structures.items() if n.table == "a")
    world.records.structures[table.name.folded()] = replace(table, columns=table.columns[:1])
    for kept in world.records.rows[table.name.folded()]:
        del kept["name"]
    summary = world.once()
    assert (summary.halted, summary.checkpoint) == ((), ts(8))
    assert [r["name"] for r in world.rows("shop.a")] == [None, "two"]


@pytest.mark.slow
def test_repaired_table_is_killed_before_it_caught_up(world: World) -> None:
    """A halted table that was repaired and ended again at any call loses nothing of what lies behind the whole."""
    refused = "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20)"
    world.bucket.schema("shop.a", ts(4), refused, ALTER, WIDER)
    world.bucket.rows("shop.a", 1, row("shop.a", 5, "2", '"two"', '"n"'), version=ts(4))
    world.bucket.schema("shop.a", ts(6), "ALTER TABLE `a` ADD COLUMN `more` VARCHAR(20)", ALTER, MORE)
    world.bucket.rows("shop.a", 1, row("shop.a", 7, "3", '"three"', '"n"', '"m"'), version=ts(6))
    world.bucket.metadata(ts(9))
    point, calls = 0, 0
    while point <= calls:
        point += 1
        other = World()
        other.bucket = world.bucket
        _halt_at(other, refused)
        assert [t.table for t in other.once().halted] == ["shop.a"]
        assert other.records.checkpoint == ts(9)
        calls = killed_after(other, point)
        summary = other.once()
        assert (summary.halted, summary.checkpoint) == ((), ts(9)), point
        assert [r["id"] for r in other.rows("shop.a")] == ["1", "2", "3"], point
    assert calls > 20


MORE = (*WIDER, column("more", "VARCHAR", ColumnPrecision="20"))


def _halt_at(world: World, statement: str) -> None:
    """Have the target refuse a statement once."""
    refusals = 0

    def tick(call: str) -> None:
        nonlocal refusals
        if call == "before MemoryTarget.execute_ddl" and not refusals and len(world.records.effects) == 3:
            refusals += 1
            raise DdlFailed(f"error 1: not now: {statement}")

    world.tick = tick


# what is counted


def test_counts(world: World) -> None:
    """The summary has rows, written rows, files and statements of the round, in all and per table."""
    world.bucket.rows("shop.a", 2, row("shop.a", 3, "1", '"uno"'), row("shop.a", 9, "2", '"later"'))
    summary = world.once()
    assert (summary.rows, summary.written, summary.files, summary.ddls) == (3, 2, 3, 3)
    assert (summary.checkpoint, summary.storage_checkpoint) == (ts(3), ts(3))
    assert (summary.finished_files, summary.pending_files) == (0, 1)
    assert summary.skipped == {"row: beyond the storage checkpoint": 1}
    assert [(t.table, t.rows, t.files, t.ddls, t.checkpoint) for t in summary.tables] == [
        ("shop", 0, 0, 1, ts(3)),
        ("shop.a", 2, 2, 1, ts(3)),
        ("shop.b", 1, 1, 1, ts(3)),
    ]


def test_finished_files_are_not_read_again(world: World) -> None:
    """A new start counts what was finished, reads and writes nothing, and asks the storage for no data file."""
    world.once()
    requests = world.bucket.storage.requests
    summary = world.once()
    assert (summary.files, summary.written, summary.ddls, summary.rows) == (0, 0, 0, 0)
    assert (summary.finished_files, summary.pending_files, summary.tables) == (2, 0, ())
    assert world.bucket.storage.requests - requests == 5  # metadata, the listing, three schema files


def test_rows_beyond_the_checkpoint_are_kept_for_later(world: World) -> None:
    """A file with later rows stays pending over a restart, and its earlier rows count as repeats then."""
    world.bucket.rows("shop.a", 2, row("shop.a", 3, "2", '"two"'), row("shop.a", 9, "3", '"three"'))
    assert world.once().pending_files == 1
    summary = world.once(10)
    assert (summary.rows, summary.pending_files, summary.finished_files) == (1, 0, 2)
    assert summary.skipped == {"row: repeated delivery": 1}


def test_a_backlog_of_very_many_files_takes_several_jobs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one job has to describe and report is bounded: tables beyond so many files come in the next job of the round."""
    monkeypatch.setattr(steps, "MOST_FILES", 3)
    tables = [f"many.t{number}" for number in range(4)]
    world.bucket.create(*tables, at=10)
    for table in tables:
        world.bucket.rows(table, 1, row(table, 12, "1", '"one"'), version=ts(10))
        world.bucket.rows(table, 2, row(table, 13, "2", '"two"'), version=ts(10))
    world.bucket.metadata(ts(20))
    jobs: list[str] = []
    world.tick = lambda call: jobs.append(call) if call == "before MemoryPipeline.run" else None

    summary = world.once()

    assert summary.checkpoint == ts(20)
    assert len(jobs) >= 4
    assert all(len(world.rows(table)) == 2 for table in tables)


def test_nothing_without_metadata() -> None:
    """Without ``metadata`` everything is discovered and nothing applied."""
    world = World()
    world.bucket.create("shop.a")
    world.bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'))
    summary = world.once()
    assert (summary.checkpoint, summary.pending_files, summary.ddls) == (0, 1, 0)
    assert world.records.effects == []


def test_table_that_turns_up_later_follows_the_whole(world: World) -> None:
    """A table that is created after others have come far starts where the whole stands."""
    world.once()
    world.bucket.schema("shop.c", ts(4), "CREATE TABLE `c` (id INT PRIMARY KEY, name VARCHAR(20))", 3)
    world.bucket.rows("shop.c", 1, row("shop.c", 4, "0", '"old"'), row("shop.c", 5, "1", '"one"'), version=ts(4))
    summary = world.once(6)
    assert (of(summary, "shop.c").rows, summary.ddls, summary.checkpoint) == (1, 1, ts(6))
    assert [r["id"] for r in world.rows("shop.c")] == ["1"]
