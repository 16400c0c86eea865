"""Clocks."""

from __future__ import annotations

import threading
import time

import pytest

from storage_consumer.clock import Clock, SystemClock
from tests.harness.twins.storage import FakeClock


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()])
def test_waiting(clock: Clock) -> None:
    """Waiting lets time pass unless the event is set, and says whether it is."""
    event = threading.Event()
    began, now = clock.monotonic(), clock.now()
    assert not clock.wait(event, 0.02)
    assert clock.monotonic() - began >= 0.02
    assert clock.now() >= now
    event.set()
    assert clock.wait(event, 60)


def test_system_clock_tells_the_time() -> None:
    """The wall clock is in seconds since 1970."""
    assert abs(SystemClock().now() - time.time()) < 60


def test_fake_clock_stands_still() -> None:
    """A fake clock moves only when told."""
    clock = FakeClock(now=100.0)
    assert (clock.now(), clock.monotonic()) == (100.0, 0.0)
    clock.advance(5)
    assert (clock.now(), clock.monotonic()) == (105.0, 5.0)
