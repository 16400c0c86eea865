"""The one word for a feed: status, page, JSON, metrics and probes have it from here. Pure."""

from __future__ import annotations

from enum import StrEnum

from storage_consumer.model import physical_ms

AHEAD = 60.0
"""Seconds that the bucket's checkpoint may lie ahead of the clock."""

OVERDUE = 600.0
"""Seconds that the tables which are not stopped may lie back further than the bucket's checkpoint did when it was read, unless a limit is given."""


class Health(StrEnum):
    """The one word for a feed. Where several hold, the first of these counts."""

    UNKNOWN = "unknown"
    """The state does not answer, so that only an older look at it is known; `verdict` never says so."""
    NO_WRITER = "no-writer"
    """Nobody writes: no process has the lease."""
    RETRYING = "retrying"
    """The bucket, the target or Spark does not answer; the last round failed and is tried again."""
    STOPPED = "stopped"
    """One or more tables are halted or paused; the others go on."""
    UNEQUAL = "unequal"
    """One or more tables are not equal to the source: the quarantine holds rows of them, or a comparison found differences."""
    CLOCK_SKEW = "clock-skew"
    """The bucket's checkpoint lies ahead of the clock: one of the two is wrong, so no lag means anything."""
    BEHIND = "behind"
    """The checkpoint is older than it may be."""
    HEALTHY = "healthy"


def verdict(
    *, is_alone: bool, is_retrying: bool, has_stopped: bool, is_unequal: bool, ahead: float, is_late: bool
) -> Health:
    """Return the word.

    `is_alone`: nobody writes, and somebody should; `has_stopped`: a table is halted or paused; `is_unequal`: a comparison found a
    difference, or the quarantine holds rows; `ahead`: seconds by which the bucket's checkpoint is ahead of the clock.
    """
    holding = (
        (Health.NO_WRITER, is_alone),
        (Health.RETRYING, is_retrying),
        (Health.STOPPED, has_stopped),
        (Health.UNEQUAL, is_unequal),
        (Health.CLOCK_SKEW, ahead > AHEAD),
        (Health.BEHIND, is_late),
    )
    return next((health for health, holds in holding if holds), Health.HEALTHY)


def seconds_ahead(checkpoint: int, now: float) -> float:
    """Return how far a TSO is ahead of `now`, in seconds; negative if it is behind."""
    return physical_ms(checkpoint) / 1000 - now


def lag_of(checkpoint: int, now: float) -> float | None:
    """Return the seconds from the time of a TSO until `now`, at least 0; None for TSO 0, which means that there is none."""
    return max(0.0, -seconds_ahead(checkpoint, now)) if checkpoint else None


def is_late(checkpoint: int, now: float, limit: float | None) -> bool:
    """Return whether a checkpoint is older than `limit` seconds, or not there yet; without a limit it never is."""
    lag = lag_of(checkpoint, now)
    return limit is not None and (lag is None or lag > limit)


def beyond_source(running: int, now: float, source_lag: float | None) -> float | None:
    """Return the seconds by which the tables that are not stopped lie back further than the bucket's checkpoint when it was read.

    More than `OVERDUE` is late where no limit is given, and what the alert ``StorageConsumerLag`` fires at. None: not known.
    """
    lag = lag_of(running, now)
    return None if lag is None or source_lag is None else lag - source_lag
