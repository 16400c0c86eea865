"""What a process says of itself while something does not answer."""

from __future__ import annotations

from collections.abc import Mapping

from storage_consumer.clock import Clock
from storage_consumer.summary import RoundSummary, Silent
from storage_consumer.watch.recorder import Recorder
from storage_consumer.watch.report import Health
from tests.campaigns.simulation.twins import Differs


class Retries(Silent):
    """Hears what a process does, and holds what its recorder says against it."""

    def __init__(self, clock: Clock) -> None:
        """Of a process that begins."""
        self._clock = clock
        self.recorder = Recorder(clock, "simulated", self)
        self._since: float | None = None
        """When the first of the rounds failed that nothing has come of since."""

    def heard(self, event: str, fields: Mapping[str, object]) -> None:
        """Take note of an event of the log."""
        self.recorder.heard(event, fields)
        if event == "retry" and fields.get("what") == "round" and self._since is None:
            self._since = self._clock.monotonic()
        if event == "lease_waiting":
            # The target answers again: another process is the writer.
            self._since = None

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:  # noqa: ARG002
        """Something was read."""
        self._since = None

    def round_finished(self, summary: RoundSummary) -> None:  # noqa: ARG002 - as `Progress` has it
        """A round has come to its end."""
        self._since = None

    def look(self) -> None:
        """Raise `Differs` where rounds fail, and the process does not say so, or forgets since when."""
        if self._since is None:
            return
        facts, failing = self.recorder.facts(), self._clock.monotonic() - self._since
        health = facts.health(is_writer=True, max_lag=None)
        lasted = facts.report.phase_seconds
        if health is not Health.RETRYING or lasted < failing - 0.001:
            raise Differs(f"rounds have been failing for {failing} s, but it is {health} for {lasted} s")
