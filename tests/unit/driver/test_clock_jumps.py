"""A clock that is set, by hours or years, forward or back, in the middle of anything: what waits goes by time that has passed."""

from __future__ import annotations

import pytest

from storage_consumer.errors import LeaseHeld, StorageUnavailable
from tests.harness.small_bucket import row, ts
from tests.harness.twins.state import MemoryState
from tests.unit.driving import _BEGIN, World, numbers, of, one_table

HOUR, YEAR = 3_600.0, 365 * 86_400.0
JUMPS = (HOUR, -HOUR, YEAR, -YEAR)


def jumping(world: World, seconds: float) -> None:
    """Set the clock before each call to the outside, there and back, so that it is never right for long."""
    sign = 1

    def tick(call: str) -> None:
        nonlocal sign
        if call.startswith("before"):
            world.clock.jump(sign * seconds)
            sign = -sign

    world.tick = tick


@pytest.mark.parametrize("seconds", JUMPS)
def test_rounds(seconds: float) -> None:
    """Rounds lose and repeat nothing, whatever the clock says; the clock of the lease is the same one here, as on one machine.

    By a clock that is a year behind no changefeed can have written such metadata: what it covers waits until the clock is right.
    """
    world = one_table()
    service = world.service()
    jumping(world, seconds)
    for number in range(2, 6):
        world.bucket.rows("shop.a", number, row("shop.a", number + 3, str(number), '"more"'))
        world.bucket.metadata(ts(number + 3))
        reached = service.run_once(world.stop).checkpoint
        assert reached == ts(number + 3) or (seconds == -YEAR and reached < ts(number + 3))
    world.tick = str
    world.clock.jump(-min(0.0, world.clock.now() - _BEGIN))
    assert service.run_once(world.stop).checkpoint == ts(8)
    service.close()
    assert numbers(world, "shop.a") == ["1", "2", "3", "4", "5"]
    assert world.records.holder == ""


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_gap_is_waited_for_as_long_as_ever(seconds: float) -> None:
    """A missing file neither halts its table early nor is waited for without end."""
    world = one_table(gap_timeout=60.0)
    service = world.service()
    world.bucket.rows("shop.a", 3, row("shop.a", 5, "3", '"third"'))
    world.bucket.metadata(ts(9))
    jumping(world, seconds)
    for _ in range(5):
        assert of(service.run_once(world.stop), "shop.a").state == "waiting"
        world.clock.advance(10)
    world.clock.advance(20)
    assert of(service.run_once(world.stop), "shop.a").state == "halted"
    service.close()


@pytest.mark.parametrize("seconds", JUMPS)
def test_tries_have_an_end(seconds: float) -> None:
    """A storage that is away is asked for as long as the limit says."""
    world = one_table(retry_limit=100.0)

    def tick(call: str) -> None:
        world.clock.jump(seconds)
        if call == "before MemoryProgress.load":
            raise StorageUnavailable("away")

    world.tick = tick
    with pytest.raises(StorageUnavailable):
        world.once()
    assert 100 <= world.clock.monotonic() < 150


def test_a_lease_under_a_clock_that_is_set() -> None:
    """Set forward, the target's clock lets another process take over, and the former writer ends; set back, `--once` gives up in time."""
    world = one_table()
    MemoryState(world.records, world.clock).lease.acquire("host|other", 30.0)
    world.clock.jump(-YEAR)
    with pytest.raises(LeaseHeld):
        world.once()
    assert world.clock.monotonic() < 60
    world.clock.jump(2 * YEAR)
    assert world.once().checkpoint == ts(3)
