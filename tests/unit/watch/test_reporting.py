"""When the writer stores what it says of itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from storage_consumer.errors import TargetUnavailable
from storage_consumer.summary import RoundSummary
from storage_consumer.watch.recorder import EVERY, Recorder, Reporting
from storage_consumer.watch.report import Minute, Phase, Report
from tests.harness.twins.storage import FakeClock

SECONDS = 40


class Seconds(FakeClock):
    """A clock whose waits are over immediately, with something that happens at each second, until the test's end."""

    def __init__(self, happens: Callable[[int], None]) -> None:
        """Begin at second 0."""
        super().__init__(1_700_000_000)
        self.over = threading.Event()
        self._happens = happens

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Let the seconds pass."""
        self.advance(seconds)
        if self.monotonic() >= SECONDS:
            self.over.set()
            return event.wait()
        self._happens(round(self.monotonic()))
        return event.is_set()


class Kept:
    """Where reports are stored, unless the target is away."""

    def __init__(self) -> None:
        """Store from now on."""
        self.is_away = False
        self.tried = 0
        self.phases: list[Phase] = []

    def save(self, document: str, _: Minute) -> Mapping[str, int]:
        """Store one."""
        self.tried += 1
        if self.is_away:
            raise TargetUnavailable("away")
        report = Report.from_json(document)
        assert report is not None
        self.phases.append(report.phase)
        return {}


def test_a_retry_is_said_soon() -> None:
    """A report is stored every five seconds; that something is retried within one, also where the target was away, and so is its end."""
    kept, said = Kept(), dict[int, list[Phase]]()
    recorder: Recorder

    def happens(second: int) -> None:
        if second == 12:
            kept.is_away = True
            recorder.heard("retry", {"what": "round", "error": "away"})
        if second == 20:
            kept.is_away = False
        if second == 27:
            recorder.round_finished(RoundSummary())
        said[second] = list(kept.phases)

    clock = Seconds(happens)
    recorder = Recorder(clock, "1.2")
    recorder.round_finished(RoundSummary())
    reporting = Reporting(recorder, kept, clock)
    assert clock.over.wait(10)
    assert len(said[11]) == 11 // EVERY
    assert kept.tried >= len(kept.phases) + 7
    assert (said[21][-1], said[28][-1]) == (Phase.RETRYING, Phase.IDLE)
    reporting.stop()
    assert kept.phases[-1] is Phase.ENDED
