"""Reporting: stores what the recorder knows, every few seconds, from a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from storage_consumer.clock import Clock
from storage_consumer.errors import StorageConsumerError
from storage_consumer.monitoring.recorder import Recorder
from storage_consumer.monitoring.report import Minute, Phase
from storage_consumer.telemetry import Log

EVERY = 5.0
"""Seconds between two reports."""
_SOON = 1.0
"""Seconds until a report says that something is retried, or no more, and until one that could not be stored is tried again."""
_LAST_WAIT = 2.0
"""Seconds that the end of the program waits for the last report."""
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
        self._end = threading.Event()
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="reporting", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Store a last report, which says that the program has ended, and end the thread."""
        self._end.set()
        self._thread.join(timeout=_LAST_WAIT)

    def _run(self) -> None:
        due, told = self._clock.monotonic() + EVERY, False
        while not self._clock.wait(self._end, _SOON):
            is_retrying = self._recorder.report().phase == Phase.RETRYING
            if self._has_failed or is_retrying != told or self._clock.monotonic() >= due:
                self._save(ended=False)
                due, told = self._clock.monotonic() + EVERY, is_retrying
        self._save(ended=True)

    def _save(self, *, ended: bool) -> None:
        report = self._recorder.report()
        if ended:
            report = replace(report, phase=Phase.ENDED, since=self._clock.now(), phase_seconds=0.0, work=None)
        try:
            self._recorder.compared(self._reports.save(report.to_json(), self._recorder.minute()))
            self._has_failed = False
        except StorageConsumerError as fault:
            # Once: what keeps reports from being stored usually keeps the rounds from working, and they say so.
            if not self._has_failed:
                _log.warning("report_failed", error=str(fault))
            self._has_failed = True
