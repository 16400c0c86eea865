"""One look for all viewers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from storage_consumer.clock import SystemClock
from storage_consumer.errors import TargetUnavailable
from storage_consumer.watch.page import FIRST_PATIENCE, KEPT, PATIENCE, Shared
from tests.harness.twins.storage import FakeClock


def test_fifty_viewers_cause_one_look() -> None:
    """All who ask while one looks, and in the two seconds after it, get what it saw."""
    looks = []

    def look() -> int:
        time.sleep(0.1)
        looks.append(1)
        return len(looks)

    clock = FakeClock()
    shared = Shared(look, clock)
    with ThreadPoolExecutor(50) as viewers:
        assert {seen.value for seen in viewers.map(lambda _: shared.latest(), range(200))} == {1}
    clock.advance(KEPT - 0.1)
    assert shared.latest().value == 1
    clock.advance(0.2)
    assert [shared.latest().value for _ in range(3)] == [2, 2, 2]


def test_target_that_is_down() -> None:
    """The last look is shown with its age and the reason; it is tried again no faster than before."""
    looks = []

    def look() -> str:
        looks.append(1)
        if len(looks) in (2, 3):
            raise TargetUnavailable("no route")
        return f"look {len(looks)}"

    clock = FakeClock()
    shared = Shared(look, clock)
    seen = [shared.latest()]
    for _ in range(3):
        clock.advance(KEPT)
        seen += [shared.latest(), shared.latest()]
    assert [(each.value, each.age, each.fault) for each in seen] == [
        ("look 1", 0, ""),
        *[("look 1", KEPT, "no route")] * 2,
        *[("look 1", 2 * KEPT, "no route")] * 2,
        *[("look 4", 0, "")] * 2,
    ]


def test_target_that_never_answered() -> None:
    """There is nothing to show but why, also where the look failed in a way that nobody expected."""

    def refuse() -> int:
        raise TargetUnavailable("no route")

    seen = Shared(refuse, FakeClock()).latest()
    assert (seen.value, seen.age, seen.fault) == (None, 0, "no route")


def test_target_that_hangs() -> None:
    """Nobody waits longer than the patience, no second look is begun, and the answer counts once it is there."""
    answers, looks = threading.Semaphore(0), []

    def look() -> int:
        looks.append(1)
        answers.acquire(timeout=60)
        return len(looks)

    def timed() -> tuple[float, int | None, str]:
        began = time.monotonic()
        seen = shared.latest()
        return time.monotonic() - began, seen.value, seen.fault

    shared = Shared(look, SystemClock())
    took, *seen = timed()
    assert (FIRST_PATIENCE <= took < FIRST_PATIENCE + 2, seen) == (True, [None, "no answer for 5 s"])
    answers.release()
    assert timed()[1:] == (1, "")
    time.sleep(KEPT)
    took, *seen = timed()
    assert (PATIENCE <= took < PATIENCE + 2, seen) == (True, [1, "no answer for 2 s"])
    answers.release()
    assert (timed()[1:], len(looks)) == ((2, ""), 2)
