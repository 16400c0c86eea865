"""Copies that cannot be opened while the feed runs: their tables wait or halt, and the others go on."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from storage_consumer.cli.endings import ExitCode
from storage_consumer.cli.main import exit_code
from storage_consumer.driver.open_copies import LOOK_AGAIN, OpenCopy
from storage_consumer.errors import ExportRefused, StorageUnavailable
from storage_consumer.plan.journal_entry import STARTED, JournalEntry
from storage_consumer.plan.loads import LoadPhase
from tests.harness.small_bucket import ID_NAME, column, row, ts
from tests.unit.copying import MemoryCopy, WithCopies, names_in
from tests.unit.driver.test_loads import ONE
from tests.unit.driver.test_requested_loads import A, feed, phase, reloading
from tests.unit.driving import killed_at, numbers, of, running


def lose(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> list[str]:
    """Have the copy not be opened; the URIs that were asked for."""
    asked: list[str] = []

    def fail(_: MemoryCopy, uri: str) -> OpenCopy:
        asked.append(uri)
        raise fault

    monkeypatch.setattr(MemoryCopy, "open", fail)
    return asked


def more_rows(world: WithCopies) -> None:
    """A change of another table."""
    world.bucket.rows("shop.b", 2, row("shop.b", 25, "2", '"two"'))
    world.bucket.metadata(ts(30))


def test_an_export_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load whose export was deleted under it halts its table with the reason; the feed goes on."""
    world = reloading()
    killed_at(world, "before MemoryLoads.finish")
    lose(monkeypatch, ExportRefused("the folder of the export is empty or does not exist"))
    more_rows(world)
    found = of(world.once(), "shop.a")
    assert found.state == "halted"
    assert "cannot be read any more: the folder of the export is empty" in found.error
    steps = [found.error.find(text) for text in ("table resume --table", "load cancel --table", "--dump URI --replace")]
    assert steps == sorted(steps), "while the load is open, no other copy is taken"
    assert -1 not in steps
    assert numbers(world, "shop.b") == ["1", "2"]


def test_a_load_whose_store_does_not_answer(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Its table waits, which the log tells with the way out; the feed goes on, and so does the load once the store answers."""
    caplog.set_level(logging.INFO)
    world = reloading()
    killed_at(world, "before MemoryLoads.finish")
    with monkeypatch.context() as away:
        lose(away, StorageUnavailable("no route to host"))
        more_rows(world)
        summary = world.once()
        assert (summary.halted, summary.loading) == ((), ("shop.a",))
        assert numbers(world, "shop.b") == ["1", "2"]
        assert phase(world) == LoadPhase.LOADING
    assert "no route to host. To give it up: storage-consumer load cancel --table shop.a" in caplog.text
    assert not world.once().halted
    assert phase(world) == LoadPhase.DONE


def test_a_request_whose_store_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays requested and is looked at again after a while, not in each round; the feed goes on meanwhile."""
    world = feed()
    world.once()
    world.request("shop.a", replaces=True)
    with monkeypatch.context() as away:
        asked = lose(away, StorageUnavailable("no route to host"))
        more_rows(world)
        looks: list[int] = []

        def act(number: int) -> None:
            looks.append(len(asked))
            if number == 4:
                world.clock.advance(LOOK_AGAIN)
            if number == 8:
                world.stop.requested.set()

        running(world, act)
        assert numbers(world, "shop.b") == ["1", "2"]
        assert (phase(world), world.records.loads[A].error) == (LoadPhase.REQUESTED, "no route to host")
        assert 1 <= looks[3] < looks[-1] < len(looks)
    world.clock.advance(LOOK_AGAIN)
    assert not world.once().halted
    assert phase(world) == LoadPhase.REFUSED, "by then the table was beyond the copy"


def test_a_request_that_is_looked_at_again_costs_nothing_but_that(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As long as its store does not answer, the state is not read anew, and the log tells it once."""
    caplog.set_level(logging.INFO)
    world = feed()
    world.once()
    asked = lose(monkeypatch, StorageUnavailable("no route to host"))
    reads: list[str] = []

    def act(number: int) -> None:
        if number == 2:
            world.request("shop.a", replaces=True)
            world.tick = reads.append
        world.clock.advance(LOOK_AGAIN)

    running(world, act, rounds=9)
    assert len(asked) >= 5
    assert sum(each == "before MemoryProgress.load" for each in reads) == 1
    assert caplog.text.count("load_waits") == 1


def test_each_load_of_a_copy_that_does_not_answer_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not only the one for which it was asked; and --once does not end as if all were done."""
    caplog.set_level(logging.INFO)
    world = feed()
    world.copy.add("shop.b", [ONE])
    world.once()
    world.request("shop.a", replaces=True)
    world.request("shop.b", replaces=True)
    key = "`shop`.`b`"
    world.records.loads[key] = replace(world.records.loads[key], load_id="another")
    asked = lose(monkeypatch, StorageUnavailable("no route to host"))
    summary = world.once()
    assert len(asked) == 1
    assert caplog.text.count("file:///copy does not answer") == 2
    assert summary.loading == ("shop.a", "shop.b")
    assert exit_code(summary, once=True) == ExitCode.TABLES_STOPPED


def test_a_signal_right_after_a_load() -> None:
    """It has ended, so --once has nothing to say of it."""
    world = reloading()
    world.tick = lambda where: world.stop.requested.set() if where == "after MemoryLoads.finish" else None
    summary = world.once()
    assert exit_code(summary, once=True) == ExitCode.DONE


def test_a_request_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing answered at first: the export turns out to be none while the feed runs."""
    world = feed()
    world.once()
    world.request("shop.a", replaces=True)
    with monkeypatch.context() as away:
        lose(away, StorageUnavailable("no route to host"))
        world.once()
    lose(monkeypatch, ExportRefused("there is no export"))

    running(world, rounds=3)
    assert phase(world) == LoadPhase.REFUSED
    assert numbers(world, "shop.b") == ["1"]


def test_an_attempt_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one comes as long after its end as any other, so the feed is not held up in each round."""
    world = reloading()
    killed_at(world, "before MemoryLoads.finish")
    asked: list[str] = []

    def fail(_: MemoryCopy, uri: str) -> OpenCopy:
        asked.append(uri)
        world.clock.advance(2 * LOOK_AGAIN)
        raise StorageUnavailable("no answer")

    monkeypatch.setattr(MemoryCopy, "open", fail)

    running(world, rounds=4)
    assert len(asked) == 1


def test_a_load_that_waits_for_a_statement(caplog: pytest.LogCaptureFixture) -> None:
    """The state is not read anew in each round while it waits, and the log tells it once."""
    caplog.set_level(logging.INFO)
    copy = MemoryCopy(snapshot=ts(12))
    copy.add("shop.a", [ONE])
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.a", "shop.b")
    world.once(10)
    world.bucket.schema("shop.b", ts(11), "ALTER TABLE `b` ADD COLUMN `a` INT", 5, (*ID_NAME, column("a", "INT")))
    world.bucket.metadata(ts(14))
    reads: list[str] = []

    def act(number: int) -> None:
        if number == 2:
            identity = next(each for each in world.records.kept if each.version == ts(11))
            world.records.journal[identity] = JournalEntry(
                state=STARTED, structure_before="x", note="", statement="ALTER"
            )
            world.request("shop.a", replaces=True)
            world.tick = reads.append

    running(world, act, rounds=12)
    assert sum(each == "before MemoryProgress.load" for each in reads) <= 1
    assert caplog.text.count("load_waits") <= 1
    assert world.records.loads[A].phase == LoadPhase.REQUESTED
    assert names_in(world, "shop.a") == {}
