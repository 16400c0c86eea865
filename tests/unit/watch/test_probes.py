"""The probes: what they answer in each phase of a process."""

from __future__ import annotations

from functools import partial

import pytest

from storage_consumer.config.settings import Monitoring
from storage_consumer.summary import RoundSummary
from storage_consumer.watch.collector import SILENCE, MetricSources, Showing, processes
from storage_consumer.watch.http_server import Request
from storage_consumer.watch.recorder import Recorder
from tests.harness.twins.storage import FakeClock

_AT = 1_700_000_000
_TSO = _AT * 1000 << 18
_REQUEST = Request(query={})


class Rig:
    """Probes of a process whose state the test sets."""

    def __init__(self, ready_lag: float | None) -> None:
        """A process that has just started, 100 s after `_AT`."""
        self.recorder = Recorder(FakeClock(_AT + 100), "")
        self.is_writer = False
        self.silent: float | None = None
        sources = MetricSources(
            facts=self.recorder.facts,
            is_writer=lambda: self.is_writer,
            statements=tuple,
            processes=partial(processes, 1),
            silent_seconds=lambda: self.silent,
        )
        self.probes = Showing(Monitoring(ready_lag=ready_lag), sources)

    def finish_round(self, checkpoint: int) -> None:
        """End a round of the writer."""
        self.is_writer = True
        self.recorder.heard("lease_acquired", {"epoch": 1})
        self.recorder.round_started(files=0, size=0, storage_checkpoint=checkpoint)
        self.recorder.round_finished(RoundSummary(checkpoint=checkpoint, checkpoint_running=checkpoint))

    def health(self) -> tuple[int, str]:
        """Answer of /healthz."""
        found = self.probes.health(_REQUEST)
        return found.status, found.body.decode().strip()

    def readiness(self) -> tuple[int, str]:
        """Answer of /readyz."""
        found = self.probes.readiness(_REQUEST)
        return found.status, found.body.decode().strip()


def test_ready_from_the_first_round_on() -> None:
    """Starting, standing by and loading are alive and not ready; after a round as the writer it is ready."""
    rig = Rig(None)
    assert (rig.health(), rig.readiness()) == ((200, "alive: starting"), (503, "not the writer yet: starting"))
    rig.recorder.heard("lease_waiting", {})
    assert (rig.health(), rig.readiness()) == ((200, "alive: standby"), (503, "standby: another process is the writer"))
    rig.is_writer = True
    rig.recorder.heard("lease_acquired", {"epoch": 1})
    assert rig.readiness() == (503, "no round has ended yet: loading")
    rig.finish_round(_TSO)
    assert (rig.health(), rig.readiness()) == ((200, "alive: idle"), (200, "ready"))


@pytest.mark.parametrize(
    ("ready_lag", "expected"),
    [(None, (200, "ready")), (100.0, (200, "ready")), (99.0, (503, "the lag is 100 s, more than 99 s"))],
)
def test_the_limit_of_the_lag_is_inclusive(ready_lag: float | None, expected: tuple[int, str]) -> None:
    """The checkpoint may be exactly as old as the limit says."""
    rig = Rig(ready_lag)
    rig.finish_round(_TSO)
    assert rig.readiness() == expected


def test_a_writer_that_retries_is_not_ready() -> None:
    """While the target or the bucket does not answer, nothing is written, however short the lag was; the next round is ready again."""
    rig = Rig(None)
    rig.finish_round(_TSO)
    rig.recorder.heard("retry", {"what": "round", "error": "the target does not answer"})
    assert (rig.health(), rig.readiness()) == ((200, "alive: retrying"), (503, "retrying: the target does not answer"))
    rig.finish_round(_TSO)
    assert rig.readiness() == (200, "ready")


def test_without_a_checkpoint_no_lag_is_small_enough() -> None:
    """A bucket that has no checkpoint yet makes nobody ready, if there is a limit."""
    rig = Rig(1e9)
    rig.finish_round(0)
    assert rig.readiness() == (503, "there is no checkpoint yet")


def test_a_consumer_that_hangs_is_not_alive() -> None:
    """Once it has not gone to wait for longer than anything may take, /healthz says so."""
    rig = Rig(None)
    rig.silent = SILENCE
    assert rig.health()[0] == 200
    rig.silent = SILENCE + 1
    assert rig.health() == (503, f"the consumer has not moved for {SILENCE + 1:.0f} s")
