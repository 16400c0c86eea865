"""The tally: what a process has done so far, counted for metrics. Nothing in it ever goes back, and nothing waits."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from storage_consumer.monitoring.health import (
    OVERDUE,
    Health,
    Signs,
    beyond_source,
    is_late,
    lag_of,
    seconds_ahead,
    verdict,
)
from storage_consumer.monitoring.report import Phase, Report
from storage_consumer.plan.table_state import STOPPED
from storage_consumer.summary import RoundSummary
from storage_consumer.verifying.result import Outcome

ROUND_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper borders, inclusive, of the buckets in which rounds are counted by their seconds."""


@dataclass(slots=True)
class Tally:
    """Counts since the start of the process."""

    files: int = 0
    """Data files read, those of the running round included."""
    bytes: int = 0
    epoch: int = 0
    """Of the lease; 0 for a process that never had it."""
    leases: int = 0
    """How often the lease was acquired."""
    round_seconds: float = 0.0
    rounds_by_bucket: list[int] = field(default_factory=lambda: [0] * (len(ROUND_BUCKETS) + 1))
    """The last one is for longer rounds."""
    stages: Counter[str] = field(default_factory=Counter)
    """Stage → seconds."""
    retries: Counter[str] = field(default_factory=Counter)
    """What is tried again → how often."""
    halts: Counter[str] = field(default_factory=Counter)
    """Kind → how often a table halted."""
    table_rows: dict[str, int] = field(default_factory=dict)
    """Table → row changes."""

    def copy(self) -> Tally:
        """Return what is counted so far, to be read while counting goes on."""
        return replace(
            self,
            rounds_by_bucket=list(self.rounds_by_bucket),
            stages=Counter(self.stages),
            retries=Counter(self.retries),
            halts=Counter(self.halts),
            table_rows=dict(self.table_rows),
        )

    def round_finished(self, summary: RoundSummary) -> None:
        """Count a round."""
        self.bytes += summary.bytes
        self.round_seconds += summary.seconds
        self.rounds_by_bucket[bisect_left(ROUND_BUCKETS, summary.seconds)] += 1
        self.stages.update(summary.stages)
        rows = self.table_rows
        for table in summary.tables:
            if table.rows:
                rows[table.table] = rows.get(table.table, 0) + table.rows

    def heard(self, event: str, fields: Mapping[str, object]) -> None:
        """Count an event of the log."""
        if event == "lease_acquired":
            epoch = fields.get("epoch")
            self.epoch = epoch if isinstance(epoch, int) else self.epoch
            self.leases += 1
        elif event == "retry":
            self.retries[str(fields.get("what", ""))] += 1
        elif event == "table_halted":
            self.halts[str(fields.get("kind", ""))] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that a scrape shows of the rounds."""

    now: float
    """Seconds since 1970-01-01 UTC."""
    report: Report
    tally: Tally
    """A copy."""
    rows_read: int
    """Row changes read, those of the running round included."""
    last: RoundSummary
    """The last round."""
    source_checkpoint: int
    """The bucket's checkpoint-ts as last read; 0 for none."""
    source_read_at: float
    """When it was read, in seconds since 1970-01-01 UTC."""
    compared: Mapping[str, int] = field(default_factory=dict)
    """Outcome of the last comparison with the source → number of tables."""

    @property
    def ahead(self) -> float:
        """Seconds by which the bucket's checkpoint, be it believed or not, is ahead of the clock; negative behind it."""
        return seconds_ahead(self.report.refused_checkpoint or self.source_checkpoint, self.now)

    @property
    def source_lag(self) -> float | None:
        """How old the bucket's checkpoint was when it was read, in seconds: nobody reads it during a long round, and TiCDC is not behind for that."""
        return lag_of(self.source_checkpoint, self.source_read_at)

    def health(self, *, is_writer: bool, max_lag: float | None) -> Health:
        """Return the word for the feed, as this process knows it. `max_lag`: the most seconds that the checkpoint may lie back."""
        beyond = beyond_source(self.last.checkpoint_running, self.now, self.source_lag)
        return verdict(
            Signs(
                is_alone=not is_writer,
                is_retrying=self.report.phase == Phase.RETRYING,
                has_stopped=any(self.last.states.get(state, 0) for state in STOPPED),
                is_unequal=bool(self.compared.get(Outcome.DIFFERENT, 0) or self.last.quarantined),
                ahead=self.ahead,
                is_late=(beyond or 0.0) > OVERDUE if max_lag is None else is_late(self.last.slowest, self.now, max_lag),
            )
        )
