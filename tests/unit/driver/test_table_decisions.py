"""What halts a table, and the documented way on: it gets the table going, and no row is lost or doubled by it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from storage_consumer.config.settings import CsvOptions, Selecting
from storage_consumer.model import TableName
from storage_consumer.plan.steps import key_of
from tests.harness.small_bucket import row, ts
from tests.unit.deciding import NAME, copied, decide, gap, halts, put, start
from tests.unit.driving import World, numbers, of, one_table, running

ALTER, TRUNCATE, RENAME, DROP = 5, 11, 14, 4


def vanished(world: World) -> None:
    """File 2 is listed and gone before it is read; so the last one, with nothing behind it."""
    put(world, 4, 12, "4")
    world.bucket.rows("shop.a", 2, "torn")  # keeps the table from going on
    path = put(world, 3, 6, "3")
    service = world.service()
    world.bucket.metadata(ts(3))
    service.run_once(world.stop)
    world.bucket.storage.delete(path)
    world.bucket.storage.delete(path.replace("3.csv", "2.csv"))
    world.clock.advance(700)
    service.run_once(world.stop)
    service.close()


def refused_statement(world: World) -> None:
    """A statement that no target takes; its rows come behind it."""
    world.bucket.schema("shop.a", ts(5), "ALTER TABLE `a` ADD UNHEARD", ALTER)
    world.bucket.rows("shop.a", 1, row("shop.a", 6, "3", '"file"'), version=ts(5))
    world.bucket.rows("shop.a", 2, row("shop.a", 12, "4", '"file"'), version=ts(5))


def late_statement(world: World) -> None:
    """A statement turns up behind rows that were applied beyond it."""
    world.once(6)
    world.bucket.schema("shop.a", ts(4), "TRUNCATE TABLE `a`", TRUNCATE)
    put(world, 2, 12, "4")


def damaged_row(world: World) -> None:
    """A row that does not parse, in a file whose later rows do."""
    world.bucket.rows("shop.a", 2, "nonsense", row("shop.a", 6, "3", '"file"'))
    put(world, 3, 12, "4")


HALTS: dict[str, Callable[[World], None]] = {
    "a gap": gap,
    "a file that vanished": vanished,
    "a refused statement": refused_statement,
    "a late statement": late_statement,
}


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
@pytest.mark.parametrize("cause", HALTS)
def test_copy_gets_it_going(cause: str, *, stopped: bool) -> None:
    """Whatever halts a table: after a copy it goes on with the rows behind it, in the same process or a new one, and stays so."""
    world = start()
    HALTS[cause](world)
    world.bucket.metadata(ts(13))
    seen: list[list[str | None]] = []

    def act(rounds: int) -> None:
        world.clock.advance(100)
        seen.append(numbers(world, "shop.a"))
        if rounds == 3:
            copied(world, "1", "3", "7")
            decide(world, "reload-done", ts(8))

    if stopped:
        assert halts(world)
        copied(world, "1", "3", "7")
        decide(world, "reload-done", ts(8))
        summary = world.once()
    else:
        summary = running(world, act, rounds=5)
    assert "\n".join(table.error for table in (*summary.halted, *summary.waiting)) == ""
    for _ in range(2):
        assert (numbers(world, "shop.a"), world.rows("shop.a")[0]["name"]) == (["1", "3", "4", "7"], "copy")
        world.clock.advance(700)
        again = world.once()
        assert (again.halted, again.waiting, again.rows, again.checkpoint) == ((), (), 0, ts(13))


def test_damaged_file_with_a_copy() -> None:
    """A file with a damaged row is still read for rows behind the copy, so it halts the table again, and says so: none is lost."""
    world = start()
    damaged_row(world)
    world.bucket.metadata(ts(13))
    assert halts(world)
    decide(world, "reload-done", ts(8))
    assert "nonsense" in of(world.once(), "shop.a").error or world.once().halted


def test_old_copy_is_refused() -> None:
    """A copy from before a file was missed may lack its rows: it is refused with the least TSO, and the table stands still."""
    world = start()
    world.clock.advance((ts(10) >> 18) / 1000 - world.clock.now())
    vanished(world)
    world.bucket.metadata(ts(13))
    halts(world)
    least = world.records.copies[key_of(NAME)].copy_from
    assert least >= ts(10)
    decide(world, "reload-done", ts(8))
    assert f"reload the table as of {least}" in of(world.once(), "shop.a").error
    refused = world.records.obeyed[key_of(NAME)].refusal
    assert f"reload the table as of {least}" in refused
    copied(world, "9")
    decide(world, "reload-done", least)
    world.bucket.metadata(least + (100 << 18))
    assert world.once().halted == ()


def test_vanished_file_is_remembered_over_restarts() -> None:
    """The last file of a sequence vanished before it was read: no restart forgets it, and when it is restored it is read."""
    world = start()
    path = put(world, 2, 6, "2")
    content = world.bucket.storage._objects[path]
    world.bucket.metadata(ts(4))
    world.bucket.rows("shop.a", 2, "x")
    service = world.service()
    service.run_once(world.stop)
    world.bucket.storage.delete(path)
    world.clock.advance(700)
    service.run_once(world.stop)
    service.close()
    world.bucket.metadata(ts(9))
    for _ in range(2):
        assert "file number 2" in of(world.once(), "shop.a").error
    assert "file number 2" in halts(world)
    decide(world, "resume")
    assert [t.table for t in world.once().waiting] == ["shop.a"]
    world.bucket.storage._objects[path] = content
    put(world, 2, 6, "2")
    assert world.once().halted == ()
    assert numbers(world, "shop.a") == ["1", "2"]


def test_copy_beyond_the_bucket() -> None:
    """A copy as of later than the bucket's checkpoint: rows and statements up to it are dropped as they come, later ones not."""
    world = start()
    gap(world)
    world.bucket.metadata(ts(7))
    halts(world)
    copied(world, "1", "3", "4")
    decide(world, "reload-done", ts(20))
    summary = world.once()
    assert (summary.halted, summary.checkpoint, summary.checkpoint_running) == ((), ts(7), ts(7))
    world.bucket.schema("shop.a", ts(15), "TRUNCATE TABLE `a`", TRUNCATE)
    world.bucket.rows("shop.a", 1, row("shop.a", 16, "1", '"old"'), version=ts(15))
    world.bucket.rows("shop.a", 2, row("shop.a", 21, "8", '"new"'), version=ts(15))
    assert world.once(30).halted == ()
    assert numbers(world, "shop.a") == ["1", "3", "4", "8"]
    (note,) = (entry.note for i, entry in world.records.journal.items() if i[1] == ts(15))
    assert f"copy as of {ts(20)}" in note
    assert world.once().rows == 0


def test_filter_that_takes_it_in_again() -> None:
    """A table that was left out goes on behind a copy, with the statements and rows after it."""
    world = one_table()
    world.config = replace(world.config, selecting=Selecting(rules=("*.*", "!shop.a")))
    put(world, 2, 5, "2")
    world.once(6)
    world.config = replace(world.config, selecting=Selecting())
    put(world, 3, 12, "4")
    world.bucket.metadata(ts(13))
    error = halts(world)
    assert "storage-consumer table reload-done --table shop.a --at TSO" in error
    other = World()
    other.bucket.create("shop.a")
    other.once(3)
    world.records.structures |= other.records.structures
    world.records.databases |= other.records.databases
    copied(world, "1", "2")
    decide(world, "reload-done", ts(8))
    assert world.once().halted == ()
    assert numbers(world, "shop.a") == ["1", "2", "4"]
    assert world.once().halted == ()


@pytest.mark.parametrize("stays", [False, True], ids=["gone", "stays"])
def test_rename_that_the_copy_holds(caplog: pytest.LogCaptureFixture, *, stays: bool) -> None:
    """A table halts, is renamed at the source, and is copied under its new name: the new one goes on, and the old one has to go."""
    world = start()
    put(world, 3, 6, "3")
    world.bucket.metadata(ts(7))
    halts(world)
    world.bucket.schema("shop.b", ts(8), "RENAME TABLE `shop`.`a` TO `shop`.`b`", RENAME)
    world.bucket.rows("shop.b", 1, row("shop.b", 12, "4", '"file"'), version=ts(8))
    world.once(13)
    decide(world, "pause", table="b")
    assert "paused by op" in of(world.once(), "shop.b").error
    table = world.records.structures[NAME] if stays else world.records.structures.pop(NAME)
    name = TableName(schema="shop", table="b")
    world.records.structures[name] = replace(table, name=name)
    copied(world, "1", "3", table="b")
    decide(world, "reload-done", ts(10), table="b")
    with caplog.at_level(logging.WARNING):
        summary = world.once()
    assert ("The target still has shop.a" in caplog.text) == stays
    assert "\n".join(t.error for t in (*summary.halted, *summary.waiting)) == ""
    assert (numbers(world, "shop.b"), summary.checkpoint) == (["1", "3", "4"], ts(13))
    assert world.once().halted == ()


@pytest.mark.parametrize("stays", [False, True], ids=["gone", "stays"])
def test_drop_that_the_copy_holds(caplog: pytest.LogCaptureFixture, *, stays: bool) -> None:
    """A table that halted and is gone at the source by the copy's TSO stands still no longer; one that is there is reported."""
    world = start()
    gap(world)
    world.bucket.schema("shop.a", ts(9), "DROP TABLE `a`", DROP)
    world.bucket.metadata(ts(13))
    halts(world)
    if not stays:
        world.records.structures.pop(NAME)
        world.records.rows.pop(NAME)
    decide(world, "reload-done", ts(12))
    with caplog.at_level(logging.WARNING):
        summary = world.once()
    assert ("The target still has shop.a" in caplog.text) == stays
    assert (summary.halted, summary.waiting, summary.checkpoint) == ((), (), ts(13))
    assert world.once().halted == ()


def test_a_name_that_no_file_shows_goes_on_after_a_pause() -> None:
    """A cycle of renames needs it in between; once it is resumed it is not behind what others are told."""
    world = World()
    world.bucket.create("d.a", "d.b")
    world.bucket.schema("d.b", ts(4), "RENAME TABLE `d`.`a` TO `d`.`b`", RENAME)
    world.bucket.schema("d.a", ts(4), "RENAME TABLE `d`.`tmp` TO `d`.`a`", RENAME)
    assert not world.once(6).halted
    decide(world, "pause", table="tmp", schema="d")
    assert of(world.once(9), "d.tmp").state == "paused"
    decide(world, "resume", table="tmp", schema="d")
    assert world.once(12).checkpoint == ts(12)
    stored = world.records.tables["`d`.`tmp`"]
    assert (stored.state, stored.checkpoint, stored.follows) == ("running", ts(12), True)


def test_copy_of_rows_without_time_is_refused() -> None:
    """Where rows carry no commit ts none can be known to be in a copy: it is refused, and the table stands still."""
    world = World()
    world.upstream = replace(world.upstream, csv=CsvOptions(), allow_missing_commit_ts=True)
    world.config = replace(world.config, upstream=world.upstream)
    world.bucket.create("shop.a")
    world.bucket.rows("shop.a", 1, '"I","a","shop",1,"one"')
    world.once(3)
    world.bucket.rows("shop.a", 3, '"U","a","shop",1,"old"')
    world.bucket.metadata(ts(7))
    assert halts(world)
    copied(world, "1")
    decide(world, "reload-done", ts(8))
    assert "carry no commit ts" in of(world.once(), "shop.a").error
    world.bucket.rows("shop.a", 2, '"U","a","shop",1,"older"')
    assert "carry no commit ts" in of(world.once(), "shop.a").error
    assert world.rows("shop.a")[0]["name"] == "copy"
    decide(world, "resume")
    assert world.once().halted == ()
    assert world.rows("shop.a")[0]["name"] == "old"


# files that were listed, and are gone at the next start


def backlog(world: World) -> list[str]:
    """shop.a halts at file 2, with the files 3 and 4 listed behind it; their paths."""
    damaged = str(world.bucket.rows("shop.a", 2, "nonsense").relative_to("/bucket"))
    paths = [put(world, 3, 5, "3"), put(world, 4, 6, "4")]
    assert "nonsense" in of(world.once(13), "shop.a").error
    return [damaged, *paths]


@pytest.mark.parametrize("gone", [slice(0, 3), slice(1, 3), slice(2, 3)], ids=["all", "the last two", "the last"])
def test_files_that_expire_while_it_is_down(gone: slice) -> None:
    """Files that a table had not read when it stood still are missed by a later run, also where nothing is there behind them."""
    world = start()
    world.clock.advance((ts(20) >> 18) / 1000 - world.clock.now())
    paths = backlog(world)
    world.bucket.rows("shop.a", 2, row("shop.a", 5, "2", '"file"'))
    for path in paths[gone]:
        world.bucket.storage.delete(path)
    decide(world, "resume")
    assert "is missing" in halts(world) + of(world.once(), "shop.a").error
    assert world.once().checkpoint < ts(13)
    decide(world, "reload-done", ts(14))
    assert "reload the table as of" in of(world.once(), "shop.a").error


def test_files_that_are_there_again_are_read() -> None:
    """The same files at the next start are no loss: the table goes on where it stood, and forgets what it waited for."""
    world = start()
    paths = backlog(world)
    world.bucket.rows("shop.a", 2, row("shop.a", 5, "2", '"file"'))
    decide(world, "resume")
    for _ in range(2):
        assert world.once().halted == ()
    assert numbers(world, "shop.a") == ["1", "2", "3", "4"]
    for path in paths:
        world.bucket.storage.delete(path)
    assert world.once().waiting == ()


def test_copy_of_after_the_listing_needs_none_of_the_files() -> None:
    """A copy that is younger than the listing holds all rows of the listed files: they may be gone, and later ones are applied."""
    world = start()
    paths = backlog(world)
    for path in paths:
        world.bucket.storage.delete(path)
    world.clock.advance((ts(20) >> 18) / 1000 - world.clock.now())
    copied(world, "1", "2", "3", "4")
    decide(world, "reload-done", ts(20))
    put(world, 5, 21, "5")
    world.bucket.metadata(ts(22))
    for _ in range(2):
        assert world.once().halted == ()
    assert numbers(world, "shop.a") == ["1", "2", "3", "4", "5"]


def test_copy_of_before_the_listing_needs_them() -> None:
    """A copy may be older than files that were listed: those that are gone then are missed."""
    world = start()
    world.clock.advance((ts(20) >> 18) / 1000 - world.clock.now())
    paths = backlog(world)
    world.bucket.storage.delete(paths[2])
    copied(world, "1", "2", "3")
    decide(world, "reload-done", ts(5))
    world.bucket.rows("shop.a", 2, row("shop.a", 5, "2", '"file"'))
    assert "file number 4" in halts(world)
