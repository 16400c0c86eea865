"""How the facts of a status are put into words, on a terminal and on the status page."""

from __future__ import annotations

from storage_consumer.amounts import data_size
from storage_consumer.clock import span
from storage_consumer.monitoring.report import Phase, Report
from storage_consumer.monitoring.status import Status
from storage_consumer.telemetry import tso_time


def doing(status: Status) -> str:
    """Return what the writer is doing, by its own word."""
    report, snapshot = status.report, status.snapshot
    if report is None:
        return ""
    if not status.is_reported:
        ended = "ended" if report.phase == Phase.ENDED else f"last heard of while {report.phase}"
        return f"{ended} {span(snapshot.report_age)} ago"
    words = f"{report.phase} for {span(report.lasted(snapshot.now, snapshot.report_age))}"
    if (work := report.work) is not None and work.files:
        left = f", {span(status.seconds_left)} left" if status.seconds_left is not None else ""
        words += (
            f": {work.files_done:,} of {work.files:,} files ({data_size(work.bytes)}), {work.rows:,} rows, "
            f"{report.rows_per_second:,.0f} rows/s{left}"
        )
    return words


def pending(report: Report | None) -> str:
    """Return what the last round left in the bucket; empty before the first."""
    if report is None or not report.last_round_at:
        return ""
    files = "1 file" if report.pending_files == 1 else f"{report.pending_files:,} files"
    return f"{files}, {data_size(report.pending_bytes)}, at the end of the last round"


def skipped(report: Report | None) -> str:
    """Return how much was skipped, by reason; empty for nothing."""
    if report is None or not report.skipped:
        return ""
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(report.skipped.items()))


def moment(checkpoint: int, lag: float | None) -> str:
    """Return a TSO with its time, and how long ago that is."""
    if not checkpoint:
        return "none yet"
    ago = f", {span(lag)} ago" if lag is not None else ""
    return f"{checkpoint} ({tso_time(checkpoint)}){ago}"
