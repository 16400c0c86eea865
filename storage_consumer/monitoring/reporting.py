"""Reporting: stores what the recorder knows, every few seconds, from a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from storage_consumer.clock import Clock
from storage_consumer.errors import StorageConsumerError
from storage_consumer.monitoring.recorder import Recorder
from storage_consumer.monitoring.report import Minute, Phase
from storage_consumer.monitoring.ticker import Ticker
from storage_consumer.telemetry import Log

EVERY = 5.0
"""Seconds between two reports."""
_SOON = 1.0
"""Seconds until a report says that something is retried, or no more, and until one that could not be stored is tried again."""
_log = Log("monitoring")


class Reports(Protocol):
    """Where reports are stored; see `checkpoint.reports`."""

    def save(self, document: str, minute: Minute) -> Mapping[str, int]:
        """Store a report and what was done in its minute; does nothing while another process is the writer.

        Return how many tables `verify` has found in each outcome.
        """
        ...


class Reporting:
    """Stores reports until it is stopped. A report that cannot be stored is no reason to stop anything else."""

    def __init__(self, recorder: Recorder, reports: Reports, clock: Clock) -> None:
        """Start the thread."""
        self._recorder = recorder
        self._reports = reports
        self._clock = clock
        self._due = clock.monotonic() + EVERY
        self._was_retrying = self._has_failed = False
        self._ticker = Ticker(self._look, _SOON, clock)
        self._ticker.start()

    def stop(self) -> None:
        """Store a last report, which says that the program has ended, and end the thread."""
        self._ticker.stop()

    def _look(self) -> None:
        report, now, has_ended = self._recorder.report(), self._clock.monotonic(), self._ticker.ends.is_set()
        is_retrying = report.phase == Phase.RETRYING
        if has_ended:
            report = replace(report, phase=Phase.ENDED, since=self._clock.now(), phase_seconds=0.0, work=None)
        elif not self._has_failed and is_retrying == self._was_retrying and now < self._due:
            return
        self._due, self._was_retrying = now + EVERY, is_retrying
        try:
            self._recorder.compared(self._reports.save(report.to_json(), self._recorder.minute()))
            self._has_failed = False
        except StorageConsumerError as fault:
            # Once: what keeps reports from being stored usually keeps the rounds from working, and they say so.
            if not self._has_failed:
                _log.warning("report_failed", error=str(fault))
            self._has_failed = True
