"""How files come: before they are whole, twice, under a used name, with dates that run back, swapped or gone. Nothing is lost or doubled."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from storage_consumer.config.settings import Selecting
from storage_consumer.summary import RoundSummary
from storage_consumer.telemetry import tso_time
from tests.harness.small_bucket import CREATE_TABLE, ID_NAME, column, row, ts
from tests.unit.driving import World, killed_at, numbers, one_table, running

PLAIN = tuple(one | {"ColumnIsPk": "false"} for one in ID_NAME)
TABLES = ("shop.a", "shop.k")
"""With a key, and without one."""
TRUNCATE = 11


def index(world: World, number: int) -> None:
    """The index file of shop.a's one directory, which names a file as the last one."""
    folder = world.bucket.file("shop.a", number).parent
    world.bucket.write(f"{folder.relative_to(world.bucket.root)}/meta/CDC.index", f"CDC{number:020d}.csv\n")


def names(world: World, table: str) -> list[str]:
    """The second column of a table, in order."""
    return sorted(str(values["name"]) for values in world.rows(table))


@pytest.fixture
def world() -> World:
    """A table with a key and one without, both empty, up to tick 1."""
    found = World()
    found.bucket.create("shop.a")
    found.bucket.schema("shop.k", ts(1), "CREATE TABLE `k` (id INT, name VARCHAR(20))", CREATE_TABLE, PLAIN)
    found.bucket.metadata(ts(1))
    return found


# the index file


def test_index_ahead_of_its_file() -> None:
    """An index that names a file before that one is there and whole costs no row: only what is read counts (C1)."""
    world = one_table()
    index(world, 2)
    whole = "".join(
        f"{row('shop.a', tick, key, text)}\r\n" for tick, key, text in ((4, "2", '"two"'), (5, "3", '"three"'))
    )
    path = world.bucket.file("shop.a", 2).relative_to(world.bucket.root).as_posix()
    seen: list[list[str | None]] = []

    def act(rounds: int) -> None:
        seen.append(numbers(world, "shop.a"))
        if rounds == 3:
            world.bucket.write(path, whole[:-9])
            world.bucket.metadata(ts(9))
        elif rounds == 6:
            world.bucket.write(path, whole)

    assert running(world, act, rounds=7).checkpoint == ts(9)
    assert seen == [["1"]] * 6 + [["1", "2", "3"]]


def test_index_that_lags() -> None:
    """An index that stays behind the files for ever holds none of them up (O8)."""
    world = one_table()
    index(world, 1)
    for number in (2, 3, 4):
        world.bucket.rows("shop.a", number, row("shop.a", 2 + number, str(number), '"more"'))
    assert (world.once(9).checkpoint, numbers(world, "shop.a")) == (ts(9), ["1", "2", "3", "4"])


# files that are written again


@pytest.mark.parametrize("kept", [True, False], ids=["old and new rows", "new rows only"])
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("table", TABLES)
def test_content_under_a_used_name(world: World, table: str, *, applied: bool, kept: bool) -> None:
    """A file that TiCDC writes anew counts by what is in it now; what was applied of it before stays, once (C2, C3)."""
    old, new = row(table, 2, "1", '"one"'), row(table, 5, "2", '"two"')
    world.bucket.rows(table, 1, old)
    world.once(3) if applied else ts(1)
    world.bucket.rows(table, 1, *([old] if kept else []), new)
    world.bucket.metadata(ts(9))
    assert [(summary.halted, summary.checkpoint) for summary in (world.once(), world.once())] == [((), ts(9))] * 2
    assert names(world, table) == (["one", "two"] if applied or kept else ["two"])


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("table", TABLES)
def test_rows_again_in_the_next_file(world: World, table: str, *, applied: bool) -> None:
    """What a TiCDC that crashed writes once more into its next file counts once, equal rows without a key too (C3)."""
    first = [row(table, 2, "1", '"one"'), row(table, 3, "2", '"two"')]
    world.bucket.rows(table, 1, *first)
    world.once(3) if applied else ts(1)
    world.bucket.rows(table, 2, *first, row(table, 5, "3", '"three"'))
    assert world.once(9).halted == ()
    assert names(world, table) == ["one", "three", "two"]


def test_new_changefeed_under_a_used_prefix(world: World) -> None:
    """A changefeed that starts anew from an earlier point brings rows and ``metadata`` again: nothing goes back or doubles (O7)."""
    for table in TABLES:
        world.bucket.rows(table, 1, row(table, 2, "1", '"one"'), row(table, 4, "1", '"uno"', operation="I"))
    world.once(6)
    before = {table: names(world, table) for table in TABLES}
    for table in TABLES:
        world.bucket.rows(table, 1, row(table, 2, "1", '"one"'))
        world.bucket.rows(table, 2, row(table, 4, "1", '"uno"', operation="I"))
    summary = world.once(3)
    assert (summary.halted, summary.checkpoint) == ((), ts(6))
    assert {table: names(world, table) for table in TABLES} == before
    for table in TABLES:
        world.bucket.rows(table, 3, row(table, 8, "2", '"two"'))
    assert (world.once(9).checkpoint, names(world, "shop.k")) == (ts(9), ["one", "two", "uno"])


@pytest.mark.parametrize("restarted", [True, False])
def test_file_that_is_swapped_before_it_is_read(world: World, *, restarted: bool) -> None:
    """A file that is another one when it is read than when it was listed is read again, and no row counts twice (C9)."""
    old, new = row("shop.k", 2, "1", '"one"'), row("shop.k", 3, "1", '"one"')
    world.bucket.rows("shop.k", 1, old)
    world.bucket.metadata(ts(9))

    def tick(where: str) -> None:
        if where == "before MemoryPipeline.run":
            world.bucket.rows("shop.k", 1, old, new)

    world.tick = tick
    service = world.service()
    service.run_once(world.stop)
    world.tick = str
    world.bucket.metadata(ts(10))
    if restarted:
        service.close()
        service = world.service()
    summary = service.run_once(world.stop)
    service.close()
    assert (summary.halted, summary.skipped["row: repeated delivery"]) == ((), 2)
    assert names(world, "shop.k") == ["one", "one"]


# what stands in which folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A data file."""

    folder: str
    rows: tuple[str, ...]
    version: int = 1
    number: int = 1


def put(world: World, table: str, *pieces: Piece) -> None:
    """Write data files into folders below a version's directory."""
    for piece in pieces:
        path = f"{table.replace('.', '/')}/{ts(piece.version)}/{piece.folder}/CDC{piece.number:020d}.csv"
        world.bucket.write(path, "".join(f"{one}\r\n" for one in piece.rows))


@pytest.mark.parametrize(
    "dates",
    [("2026-11-23", "2026-11-22", "2026-11-21"), ("2026-12", "2026-11", "2026-10"), ("2027", "2026", "2025")],
    ids=["day", "month", "year"],
)
@pytest.mark.parametrize("table", TABLES)
def test_dates_that_run_back(world: World, table: str, dates: tuple[str, ...]) -> None:
    """Later rows in folders of earlier dates, as nodes with skewed clocks write them, are later rows: names are no order (C8, O17)."""
    changes = (
        (row(table, 2, "1", '"one"'),),
        (row(table, 4, "1", '"one"', operation="D"), row(table, 4, "1", '"two"')),
        (row(table, 6, "1", '"two"', operation="D"), row(table, 6, "1", '"three"')),
    )
    put(world, table, *(Piece(folder=date, rows=rows) for date, rows in zip(dates, changes, strict=True)))
    assert world.once(9).halted == ()
    assert names(world, table) == ["three"]


def test_earlier_rows_in_a_later_file(world: World) -> None:
    """Of each partition the second file may hold earlier commits than the first; none is taken for old, around a TRUNCATE too (C7)."""
    world.bucket.schema("shop.a", ts(8), "TRUNCATE TABLE `a`", TRUNCATE)
    for version, tick in ((1, 2), (8, 9)):
        for partition in ("101", "102"):
            key = f"{version}{partition}"
            later, earlier = row("shop.a", tick + 2, key, '"second"'), row("shop.a", tick, key, '"first"')
            other = row("shop.a", tick + 1, f"{key}9", '"alone"')
            put(
                world,
                "shop.a",
                Piece(folder=f"{partition}/2026-11-21", rows=(later,), version=version, number=1),
                Piece(folder=f"{partition}/2026-11-21", rows=(earlier, other), version=version, number=2),
            )
    world.once(6)
    assert names(world, "shop.a") == ["alone", "alone", "second", "second"]
    assert world.once(20).halted == ()
    assert {values["id"]: values["name"] for values in world.rows("shop.a")} == {
        **{f"8{partition}": "second" for partition in ("101", "102")},
        **{f"8{partition}9": "alone" for partition in ("101", "102")},
    }


def test_rows_of_a_structure_that_was_never_stored(world: World) -> None:
    """Rows that do not fit their folder's schema file stop the table with the file's name; no row is dropped for its folder (C4)."""
    world.bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'))
    wider = (row("shop.a", tick, str(tick), '"two"', "7") for tick in (5, 6))
    late = world.bucket.rows("shop.a", 2, *wider)
    world.bucket.rows("shop.k", 1, row("shop.k", 5, "1", '"fine"'))
    world.bucket.metadata(ts(9))
    for _ in range(2):
        (halted,) = world.once().halted
        assert (halted.table, late.name in halted.error) == ("shop.a", True)
        assert (numbers(world, "shop.a"), names(world, "shop.k")) == ([], ["fine"])


# files that are gone


def without(world: World, *paths: Path) -> RoundSummary:
    """A new process after these files expired."""
    for path in paths:
        world.bucket.storage.delete(path.relative_to(world.bucket.root).as_posix())
    return world.once()


def test_files_that_expired_after_they_were_applied() -> None:
    """A new process misses no file that was applied before it was deleted, and goes on with the next one (O6)."""
    world = one_table()
    second = world.bucket.rows("shop.a", 2, row("shop.a", 3, "2", '"two"'))
    world.once()
    world.bucket.metadata(ts(9))
    third = world.bucket.rows("shop.a", 3, row("shop.a", 5, "3", '"three"'))
    assert without(world, world.bucket.file("shop.a", 1), second).checkpoint == ts(9)
    assert without(world, third).halted == ()
    assert numbers(world, "shop.a") == ["1", "2", "3"]


@pytest.mark.parametrize("days", [0, 1, 3])
def test_pause_longer_than_files_are_kept(caplog: pytest.LogCaptureFixture, days: int) -> None:
    """Days that expired as a whole leave no gap: a start that is further behind than files are kept says what may be lost (O6)."""
    world = one_table()
    world.once()
    world.config = replace(world.config, upstream=replace(world.config.upstream, file_expiration_days=days))
    world.bucket.metadata(ts(2 * 24 * 3600))
    world.clock.advance(2 * 24 * 3600)
    with caplog.at_level(logging.WARNING):
        assert world.once().halted == ()
        world.once()
    assert caplog.text.count("TiCDC deletes files after 1 day") == (days == 1)
    assert caplog.text.count(f"behind the bucket than that, at {tso_time(ts(3))}: rows") == (days == 1)


def test_file_that_expired_before_it_was_applied() -> None:
    """Where a file was deleted before it was read nothing beyond it is applied, and the table halts as one that lost data (O6)."""
    world = one_table()
    world.once()
    second = world.bucket.rows("shop.a", 2, row("shop.a", 5, "2", '"two"'))
    world.bucket.rows("shop.a", 3, row("shop.a", 6, "3", '"three"'))
    world.bucket.metadata(ts(9))
    assert [table.table for table in without(world, second).waiting] == ["shop.a"]

    def act(rounds: int) -> None:
        world.clock.advance(50)

    (halted,) = running(world, act, rounds=3).halted
    assert "file number 2" in halted.error
    assert "data was lost at the source" in halted.error
    assert numbers(world, "shop.a") == ["1"]


def ahead(world: World) -> Path:
    """A running table has read a file whose row is beyond the checkpoint; its path."""
    second = world.bucket.rows("shop.a", 2, row("shop.a", 8, "2", '"two"'))
    assert world.once().checkpoint == ts(3)
    return second


@pytest.mark.parametrize("later", [0, 9], ids=["at the same checkpoint", "at a later one"])
@pytest.mark.parametrize("follows", [False, True], ids=["the last one", "before another"])
def test_a_file_that_was_read_and_went_with_rows_that_were_not_due(*, later: int, follows: bool) -> None:
    """Rows beyond the checkpoint are still in a file only: if it is gone at the next start, its running table waits, then halts (O6)."""
    world = one_table()
    second = ahead(world)
    if later:
        world.bucket.metadata(ts(later))
    if follows:
        path = second.relative_to(world.bucket.root).parent.parent / "2026-09-22" / "CDC00000000000000000001.csv"
        world.bucket.write(path.as_posix(), world.bucket.text(row("shop.a", 9, "3", '"three"')) + "\r\n")
    (waits,) = without(world, second).waiting
    assert "waits for file number 2 in shop/a/" in waits.error
    (waits,) = world.once(9).waiting
    assert (waits.checkpoint, numbers(world, "shop.a")) == (ts(3), ["1"])
    assert world.records.storage_checkpoint == ts(9)
    world.bucket.rows("shop.a", 2, row("shop.a", 8, "2", '"two"'))
    assert world.once().checkpoint == ts(9)
    assert numbers(world, "shop.a") == ["1", "2", "3"][: 3 if follows else 2]


def test_a_file_that_went_after_a_process_that_was_killed() -> None:
    """What is listed is remembered before any row is applied."""
    world = one_table()
    second = world.bucket.rows("shop.a", 2, row("shop.a", 8, "2", '"two"'))
    killed_at(world, "before MemoryPipeline.run")
    world.bucket.metadata(ts(9))
    assert "shop.a" in [table.table for table in without(world, second).waiting]


@pytest.mark.parametrize("follows", [False, True])
def test_a_finished_file_that_was_written_anew_and_went(*, follows: bool) -> None:
    """Rows that TiCDC added to it are in no other file, so it is missed, whatever comes after it."""
    world = one_table()
    world.once()
    first = world.bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'), row("shop.a", 8, "2", '"two"'))
    world.once()
    if follows:
        world.bucket.rows("shop.a", 2, row("shop.a", 9, "3", '"three"'))
    world.bucket.metadata(ts(9))
    (waits,) = without(world, first).waiting
    assert (waits.checkpoint, numbers(world, "shop.a")) == (ts(3), ["1"])


@pytest.mark.parametrize("kept", [(), (3,)], ids=["all", "those of the former width"])
def test_applied_files_of_another_index_width_expire(kept: Sequence[int]) -> None:
    """Numbers go on in another width, so files that were applied count under whatever name they had."""
    world = World()
    world.bucket.create("shop.a")
    folder = world.bucket.file("shop.a", 1).relative_to(world.bucket.root).parent.as_posix()
    for number in (1, 2):
        text = world.bucket.text(row("shop.a", number + 1, str(number), '"x"'))
        world.bucket.write(f"{folder}/CDC{number:06d}.csv", f"{text}\r\n")
    world.once(4)
    world.bucket.rows("shop.a", 3, row("shop.a", 8, "3", '"x"'))
    world.once()
    world.once(9)
    for path in list(world.bucket.storage._objects):
        if path.startswith(f"{folder}/CDC") and int(path[-8:-4]) not in kept:
            world.bucket.storage.delete(path)
    assert world.once(12).checkpoint == ts(12)
    assert numbers(world, "shop.a") == ["1", "2", "3"]


def test_a_folder_without_a_schema_file_that_is_moved_away() -> None:
    """Nothing shows that the changefeed wrote it, so the next start does not miss its files."""
    world = one_table()
    stray = world.bucket.rows("shop.a", 1, row("shop.a", 4, "9", '"odd"'), version=ts(4))
    (waits,) = world.once(9).waiting
    assert "move it out of the bucket" in waits.error
    assert without(world, stray).checkpoint == ts(9)


def test_a_table_that_is_left_out_from_now_on_and_removed() -> None:
    """Nobody waits for its files."""
    world = one_table()
    ahead(world)
    for path in list(world.bucket.storage._objects):
        if path.startswith("shop/a/"):
            world.bucket.storage.delete(path)
    world.config = replace(world.config, selecting=Selecting(rules=("shop.*", "!shop.a")))
    assert world.once(9).checkpoint == ts(9)


def test_a_file_that_comes_again_after_a_statement_that_ended_with_its_process(world: World) -> None:
    """The target has the new column already, and the journal knows the statement as sent: the repeated rows of before it fit all the same."""
    world.bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'), row("shop.a", 3, "2", '"two"'))
    world.once(5)
    columns = (*ID_NAME, column("more", "INT"))
    world.bucket.schema("shop.a", ts(6), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, columns)
    world.bucket.metadata(ts(8))
    killed_at(world, "after MemoryTarget.execute_ddl")
    world.bucket.rows("shop.a", 2, row("shop.a", 3, "2", '"two"'))
    world.bucket.rows("shop.a", 1, row("shop.a", 7, "4", '"new"', "4"), version=ts(6))
    summary = world.once()
    assert not summary.halted
    assert [one["id"] for one in world.rows("shop.a")] == ["1", "2", "4"]
    assert sum("ADD COLUMN" in effect for effect in world.records.effects) == 1
