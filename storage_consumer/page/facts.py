"""What the page says of a feed, in words: the headline and the list of facts; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from storage_consumer.clock import span
from storage_consumer.monitoring.health import Health
from storage_consumer.monitoring.report import Phase, Report
from storage_consumer.monitoring.snapshot import Snapshot
from storage_consumer.monitoring.status import Status
from storage_consumer.monitoring.wording import pending, skipped

_LOOKS = {Health.UNKNOWN: "unknown", Health.HEALTHY: "good", Health.BEHIND: "warn", Health.RETRYING: "warn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The one word, and why."""

    word: str
    look: str
    """``good``, ``warn``, ``bad`` or ``unknown``: the colour beside the word."""
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """How far the running round is."""

    done: int
    of: int


def headline(status: Status | None, fault: str) -> Headline:
    """Return the headline; `fault`: why there is no status, if there is none."""
    if status is None:
        return Headline(word=Health.UNKNOWN, look=_LOOKS[Health.UNKNOWN], reasons=(fault or "nothing was seen yet",))
    # A healthy feed can have something odd to say too, such as that the source stands still: it is not green then.
    look = "warn" if status.health == Health.HEALTHY and status.reasons else _LOOKS.get(status.health, "bad")
    return Headline(word=status.health, look=look, reasons=status.reasons)


def process_facts(process: Report, snapshot: Snapshot | None, now: float) -> Iterator[tuple[str, str]]:
    """Yield label and text of what the serving process knows of itself; nothing if the state has its report anyway."""
    if snapshot is not None and is_own(process, snapshot):
        return
    retry = f": {process.retry}" if process.phase == Phase.RETRYING else ""
    yield "this process", f"{process.phase} for {span(process.lasted(now))}{retry}"
    yield (
        "its rounds",
        f"{process.totals.rounds:,}, with {process.totals.rows:,} row changes" if process.totals.rounds else "",
    )
    yield "pending", pending(process)
    yield "skipped", skipped(process)


def is_own(process: Report, snapshot: Snapshot) -> bool:
    """Return whether the report in the state is of the serving process."""
    return snapshot.report is not None and snapshot.report.started_at == process.started_at


def progress(status: Status) -> Bar | None:
    """Return how far the running round is; None if none runs, or it has nothing to read."""
    work = status.report.work if status.report and status.is_reported else None
    return Bar(done=work.steps_done, of=work.steps) if work and work.steps else None
