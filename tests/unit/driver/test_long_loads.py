"""A load that takes many rounds, while other tables go on."""

from __future__ import annotations

import logging
import threading

import pytest

from tests.harness.small_bucket import row, ts
from tests.unit.copying import MemoryCopy, WithCopies, names_in
from tests.unit.driver.test_loads import shop
from tests.unit.driving import numbers

PARTS = 9
"""Files of a copy that takes several rounds."""


def test_a_long_load_polls_the_bucket_and_does_not_pause() -> None:
    """Rounds end for the sake of the other tables, and the next one begins at once: a pause would double how far these are behind."""
    copy = MemoryCopy(snapshot=ts(12))
    copy.add("shop.a", *([(str(number), '"copy"')] for number in range(PARTS)))
    world = WithCopies(copy, initial=False)
    world.bucket.create("shop.a", "shop.b")
    world.bucket.rows("shop.b", 1, row("shop.b", 2, "1", '"one"'))
    world.once(10)
    world.request("shop.a", replaces=True)
    world.rate = 1.0
    tick, wait = world.tick, world.clock.wait
    jobs: list[str] = []
    pauses: list[int] = []

    def slow(call: str) -> None:
        if call == "before MemoryPipeline.run":
            jobs.append(call)
            world.clock.advance(3)
            world.bucket.rows("shop.b", len(jobs) + 1, row("shop.b", 12 + len(jobs), f"{len(jobs) + 1}", '"more"'))
            world.bucket.metadata(ts(12 + len(jobs)))
        tick(call)

    def passing(event: threading.Event, seconds: float) -> bool:
        if threading.current_thread() is threading.main_thread():
            pauses.append(len(names_in(world, "shop.a")))
            if pauses[-1] == PARTS or len(pauses) > PARTS:
                world.stop.requested.set()
        return wait(event, seconds)

    world.tick, world.clock.wait = slow, passing  # type: ignore[method-assign]  # counts jobs and pauses
    service = world.service()
    try:
        service.run(world.stop)
    finally:
        service.close()
    assert pauses == [PARTS]
    assert len(jobs) > PARTS
    assert len(numbers(world, "shop.b")) > PARTS // 2


def test_tables_that_end_one_by_one_cost_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """What is stored is read again after each that ends; the copy stays open, and what was created for the others is not begun again."""
    caplog.set_level(logging.DEBUG, "storage_consumer")
    tables = [f"shop.t{number}" for number in range(PARTS)]
    copy = MemoryCopy(snapshot=ts(1))
    for table in tables:
        copy.add(table, [("1", '"copy"')])
    world = WithCopies(copy)
    world.rate = 1.0
    world.bucket.metadata(ts(10))
    tick, wait = world.tick, world.clock.wait

    def slow(call: str) -> None:
        if call == "before MemoryPipeline.run":
            world.clock.advance(3_000)
        tick(call)

    def passing(event: threading.Event, seconds: float) -> bool:
        if threading.current_thread() is threading.main_thread():
            world.stop.requested.set()
        return wait(event, seconds)

    world.tick, world.clock.wait = slow, passing  # type: ignore[method-assign]  # a job takes long, and the first pause ends it
    service = world.service()
    try:
        service.run(world.stop)
    finally:
        service.close()
    assert [names_in(world, table) for table in tables] == [{"1": "copy"}] * PARTS
    ended = [message for message in caplog.messages if message.startswith("load_finished")]
    begun = [message for message in caplog.messages if message.startswith("ddl_started")]
    assert (len(ended), len(begun), copy.opened) == (PARTS, PARTS, 2)
    # Of a copy of many tables the log has one line for each at most.
    told = [
        each.getMessage() for each in caplog.records if each.levelno >= logging.INFO and "shop.t" in each.getMessage()
    ]
    assert sorted(message.partition(" ")[0] for message in told) == ["load_finished"] * PARTS + ["load_started"]
    (started,) = (message for message in told if message.startswith("load_started"))
    assert f"tables={PARTS} " in started


def test_a_copy_that_is_exchanged_while_it_is_loaded() -> None:
    """Files of the other one are not taken for its own, though they have the same names and sizes: the table halts, and names the way on."""
    world = shop()
    world.rate = 1e-9

    def exchanged(where: str) -> None:
        if where == "after MemoryLoads.advance":
            world.copy.add("shop.a", [("1", '"pest"'), ("2", '"pest"')], [("3", '"pest"')])

    world.tick = exchanged
    (halted,) = world.once().halted
    assert "shop.a.000000002.csv was exchanged or removed" in halted.error
    assert "begin again with a copy as of now or later. From an export: " in halted.error
    assert "storage-consumer load --table shop.a --dump URI --replace" in halted.error
    assert names_in(world, "shop.a") == {"1": "copy", "2": "copy"}
