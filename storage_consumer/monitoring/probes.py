"""The probes: is the process alive, and is it the writer and near enough to the source?"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from storage_consumer.monitoring.health import is_late, lag_of
from storage_consumer.monitoring.http_server import Request, Response, said
from storage_consumer.monitoring.report import Phase
from storage_consumer.monitoring.tally import Facts

SILENCE = 180.0
"""Seconds without any wait of the consumer after which it counts as hanging. Each attempt to reach something ends much sooner."""


class Probes:
    """Answers to probes."""

    def __init__(
        self,
        facts: Callable[[], Facts],
        is_writer: Callable[[], bool],
        silent_seconds: Callable[[], float | None],
        ready_lag: float | None,
    ) -> None:
        """`ready_lag`: most seconds that the checkpoint of all tables may lie back in a process that is ready; None for any."""
        self._facts = facts
        self._is_writer = is_writer
        self._silent_seconds = silent_seconds
        self._ready_lag = ready_lag

    def health(self, _request: Request) -> Response:
        """Return 200 while the consumer works or knowingly waits; 503 once it hangs."""
        silent = self._silent_seconds()
        if silent is not None and silent > SILENCE:
            return said(f"the consumer has not moved for {silent:.0f} s", HTTPStatus.SERVICE_UNAVAILABLE)
        return said(f"alive: {self._facts().report.phase}")

    def readiness(self, _request: Request) -> Response:
        """Return 200 if this process is the writer, has finished a round, retries nothing and is near enough; else 503 with the reason."""
        if reason := self._unready():
            return said(reason, HTTPStatus.SERVICE_UNAVAILABLE)
        return said("ready")

    def _unready(self) -> str:
        facts = self._facts()
        if not self._is_writer():
            if facts.report.phase == Phase.STANDBY:
                return "standby: another process is the writer"
            return f"not the writer yet: {facts.report.phase} {facts.report.retry}".strip()
        if not facts.report.totals.rounds:
            return f"no round has ended yet: {facts.report.phase} {facts.report.retry}".strip()
        if facts.report.phase == Phase.RETRYING:
            return f"retrying: {facts.report.retry}"
        if not is_late(facts.last.slowest, facts.now, self._ready_lag):
            return ""
        lag = lag_of(facts.last.slowest, facts.now)
        return (
            "there is no checkpoint yet" if lag is None else f"the lag is {lag:.0f} s, more than {self._ready_lag:g} s"
        )
