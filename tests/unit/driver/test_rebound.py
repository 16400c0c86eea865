"""A run after its bucket was copied or restored: every tag is another one; files with another size were written anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.cli.rebind_command import PlaceComparison, compared
from storage_consumer.config.settings import CsvOptions, Upstream
from storage_consumer.plan.finished_files import REWRITTEN, Digests
from tests.harness.small_bucket import row, ts
from tests.unit.deciding import decide
from tests.unit.driving import World, numbers, of, one_table

LAST = 30
"""The highest number of a file: far more than are listed again each time."""
AN_HOUR = 3600


@pytest.fixture
def world() -> World:
    """A table with many files, which was applied up to tick 40; by the clock it is later."""
    return filled(one_table())


def filled(world: World) -> World:
    """Write files 2 to `LAST`, let a process apply all of them, and list once more."""
    for number in range(2, LAST + 1):
        world.bucket.rows("shop.a", number, row("shop.a", number + 2, str(number), '"file"'))
    world.bucket.metadata(ts(40))
    world.clock.advance(10_000 + AN_HOUR)
    for _ in range(2):
        world.once()
    return world


def anew(world: World, number: int, tick: int, name: str = "a new row") -> None:
    """Write one file anew with another row."""
    world.bucket.rows("shop.a", number, row("shop.a", tick, "100", f'"{name}"'))


def unseen(world: World) -> None:
    """Write a file far below the last one anew while a process runs that does not look there and applies rows beyond it."""
    service = world.service()
    for _ in range(2):
        service.run_once(world.stop)
    anew(world, 3, 45)
    world.bucket.metadata(ts(50))
    service.run_once(world.stop)
    service.close()
    assert "100" not in numbers(world, "shop.a")


def retag(world: World) -> None:
    """Write every object once more as it is."""
    storage = world.bucket.storage
    for stored in list(storage.listing(frozenset(), {})):
        storage.put(stored.path, storage.read(stored.path))


def rebound(world: World) -> PlaceComparison:
    """Copy the bucket elsewhere, and bind the state to that place as the command does."""
    retag(world)
    found = compared(world.bucket.storage, [], world.records.sequences)
    for name, finished in world.records.sequences.items():
        digests = Digests(finished.digests)
        digests.forget(but=found.sizes.other.get(name, ()))
        world.records.sequences[name] = replace(finished, digests=digests.moved()[0])
    return found


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    """All that was logged."""
    return "\n".join(str(record.__dict__) for record in caplog.records)


def test_the_same_files(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A copy goes on without a word of warning: nothing was late, nothing stands still, no row is doubled."""
    caplog.clear()
    found = rebound(world)
    before = world.rows("shop.a")
    world.bucket.rows("shop.a", LAST + 1, row("shop.a", 45, "31", '"file"'))
    summary = world.once(50)
    assert (found.sizes.count, found.sizes.there, found.sizes.gone) == (0, 1, 0)
    assert not summary.halted
    assert world.rows("shop.a") == sorted([*before, {"id": "31", "name": "file"}], key=str)
    assert "appeared where TiCDC" not in warnings(caplog)


def test_written_anew_before_the_copy(world: World) -> None:
    """A file that was written anew after the last run is named by its size, and its later rows are read."""
    anew(world, 3, 45)
    world.bucket.metadata(ts(50))
    found = rebound(world)
    assert (found.sizes.count, len(found.sizes.shown)) == (1, 1)
    world.once()
    assert [table.table for table in world.once().halted] == ["shop.a"] or "100" in numbers(world, "shop.a")


def test_written_anew_unseen_before_the_copy(world: World) -> None:
    """One that was written anew where no listing looked, while the checkpoint went on, stops its table as without a copy."""
    unseen(world)
    found = rebound(world)
    assert (found.sizes.count, found.sizes.unseen) == (1, 1)
    assert "its table would halt" in found.sizes.shown[0]
    error = of(world.once(), "shop.a").error
    assert "was overwritten after the files that follow it" in error
    assert f"--at {ts(50)}" not in error


def test_without_commit_ts_what_was_written_anew_is_not_passed_over() -> None:
    """Where rows do not tell when they committed, files of which nothing is known count as read: one that is other must not."""
    world = World()
    world.upstream = Upstream(
        scheme="file", root="/bucket", protocol="csv", csv=CsvOptions(), allow_missing_commit_ts=True
    )
    world.config = replace(world.config, upstream=world.upstream)
    world.bucket.create("shop.a")
    folder = f"shop/a/{ts(1)}/2026-11-21"
    for number in (1, 2, 3):
        world.bucket.write(f"{folder}/CDC{number:020d}.csv", f'"I","a","shop",{number},"old"\r\n')
    world.once(20)
    world.bucket.write(f"{folder}/CDC{3:020d}.csv", '"I","a","shop",100,"new row"\r\n')
    rebound(world)
    summary = world.once(30)
    assert [table.table for table in summary.halted] == ["shop.a"] or "100" in numbers(world, "shop.a")


def test_a_state_without_digests(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A state of an older version knows no sizes: nothing is compared, and files that may be other are read, without a warning."""
    caplog.clear()
    anew(world, 3, 45)
    world.bucket.metadata(ts(50))
    for name, finished in world.records.sequences.items():
        world.records.sequences[name] = replace(finished, digests={}, left_out=0)
    assert rebound(world).sizes.count == 0
    assert not world.once().halted
    assert "100" in numbers(world, "shop.a")
    assert "appeared where TiCDC" not in warnings(caplog)


def test_what_is_written_anew_while_a_table_was_stopped_stays_so(world: World) -> None:
    """A file that is to be read again has no size to compare, and stays to be read."""
    ((name, finished),) = world.records.sequences.items()
    digests = Digests(finished.digests)
    digests[3] = REWRITTEN
    world.records.sequences[name] = replace(finished, digests=dict(finished.digests) | dict(digests.moved()[0]))
    anew(world, 3, 45)
    assert rebound(world).sizes.count == 0
    assert Digests(world.records.sequences[name].digests)[3] == REWRITTEN


def halted(world: World) -> str:
    """Restore the bucket in place, without a word to the state; the error of the table."""
    retag(world)
    return of(world.once(), "shop.a").error


def test_restored_in_place_unannounced(world: World) -> None:
    """The table halts, since nothing tells this from loss; the error names both ways on, and the table goes on as it is."""
    error = halted(world)
    assert "storage-consumer rebind --restored" in error
    assert f"table reload-done --table shop.a --at {ts(40)}" in error
    assert of(world.once(), "shop.a").error == error
    before = world.rows("shop.a")
    decide(world, "reload-done", ts(40))
    world.bucket.rows("shop.a", LAST + 1, row("shop.a", 45, "31", '"file"'))
    summary = world.once(50)
    assert not summary.halted, summary.halted
    assert [obeyed.refusal for obeyed in world.records.obeyed.values()] == [""]
    assert world.rows("shop.a") == sorted([*before, {"id": "31", "name": "file"}], key=str)


def test_restored_under_a_running_process(world: World) -> None:
    """One that sees all tags change while it runs halts the table likewise, and obeys when an operator lets it go on as it is."""
    service = world.service()
    for _ in range(2):
        service.run_once(world.stop)
    retag(world)
    world.clock.advance(700)
    error = of(service.run_once(world.stop), "shop.a").error
    assert f"table reload-done --table shop.a --at {ts(40)}" in error
    decide(world, "reload-done", ts(40))
    world.bucket.rows("shop.a", LAST + 1, row("shop.a", 45, "31", '"file"'))
    world.bucket.metadata(ts(50))
    assert not service.run_once(world.stop).halted
    service.close()
    assert len(numbers(world, "shop.a")) == LAST + 1


def test_a_table_that_lost_rows_does_not_go_on_as_it_is(world: World) -> None:
    """Where one of the files has another size only a copy from after that does."""
    anew(world, 3, 30)
    assert f"--at {ts(40)}" not in halted(world)
    decide(world, "reload-done", ts(40))
    assert [table.table for table in world.once().halted] == ["shop.a"]
    (obeyed,) = world.records.obeyed.values()
    assert "may lack rows that no file holds any more" in obeyed.refusal


@pytest.mark.parametrize("same", [True, False])
def test_files_that_change_once_more_while_the_table_stands(world: World, *, same: bool) -> None:
    """A second restore changes nothing; a file of another size has taken the place of rows that nobody read, so it takes a copy."""
    service = world.service()
    for _ in range(2):
        service.run_once(world.stop)
    retag(world)
    world.clock.advance(700)
    assert of(service.run_once(world.stop), "shop.a").error
    if same:
        retag(world)
    else:
        anew(world, 3, 30)
    world.clock.advance(700)
    service.run_once(world.stop)
    service.close()
    decide(world, "reload-done", ts(40))
    assert [table.table for table in world.once().halted] == ([] if same else ["shop.a"])
    (obeyed,) = world.records.obeyed.values()
    assert ("may lack rows that no file holds any more" in obeyed.refusal) is not same


def test_restored_in_place_with_a_word_to_the_state(world: World) -> None:
    """After `rebind --restored` the table goes on, and a file that is written anew unseen from then on is found as ever."""
    rebound(world)
    assert not world.once(42).halted
    unseen(world)
    assert of(world.once(), "shop.a").error


def test_sequences_by_any_width() -> None:
    """A number that fills its width is of the wider sequence that is known; files out of turn count, unknown ones do not."""
    world = one_table()
    world.once()
    ((name, finished),) = world.records.sequences.items()
    folder = name.partition("|")[0]
    storage = world.bucket.storage
    storage.put(f"{folder}/CDC1000000.csv", b"12345")
    storage.put(f"{folder}/CDC2000000.csv", b"12345")
    storage.put(f"{folder}/CDC_7_000002.csv", b"12345")
    digests = Digests({})
    digests[1_000_000] = digests[7] = 99 << 24
    sequences = {f"{folder}||7": replace(finished, upto=0, digests=digests.moved()[0])}
    found = compared(storage, [], sequences).sizes
    assert {key: list(value) for key, value in found.other.items()} == {f"{folder}||7": [1_000_000]}
    assert (found.there, found.gone, found.unseen) == (0, 0, 0)


def test_many_files_of_another_size(world: World) -> None:
    """Of many that differ a message names the first ones; each is kept by its number."""
    for number in range(1, LAST + 1):
        anew(world, number, 45, "a longer name than it was")
    found = compared(world.bucket.storage, [], world.records.sequences).sizes
    assert (found.count, len(found.shown)) == (LAST, 10)
    assert [sorted(some) for some in found.other.values()] == [list(range(1, LAST + 1))]
