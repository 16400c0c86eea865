"""The collector: makes metrics of what the recorder knows, when they are asked for. The rounds do nothing for it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from storage_consumer.model import physical_ms
from storage_consumer.monitoring.health import Health
from storage_consumer.monitoring.metric_table import METRICS, PREFIX
from storage_consumer.monitoring.processes import Processes
from storage_consumer.monitoring.report import Phase
from storage_consumer.monitoring.table_series import TableSeries
from storage_consumer.monitoring.tally import ROUND_BUCKETS, Facts
from storage_consumer.plan.table_state import TableState
from storage_consumer.redaction import escaped, redact
from storage_consumer.summary import RunningStatement

_STATES = (
    *(TableState.RUNNING, TableState.WAITING, TableState.LOADING),
    *(TableState.HALTED, TableState.PAUSED, TableState.DROPPED),
)
_WAITS = ("file", "ddl", "lock")
_STAGES = ("poll", "plan", "rows", "ddl", "checkpoint")
_HALTS = ("ddl", "gate", "file", "gap", "row", "schema", "name")
_RETRIES = ("round", "lease renewal")
_DAY = 86400.0
_Values = float | Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """Whom a scrape asks. All of them answer at once, from any thread."""

    facts: Callable[[], Facts]
    is_writer: Callable[[], bool]
    statements: Callable[[], Sequence[RunningStatement]]
    processes: Callable[[], Processes]
    max_lag: float | None = None
    """The most seconds that the checkpoint of all tables may lie back; None for any number."""
    expiration_days: int = 0
    """Days after which TiCDC deletes files; 0 if that is not known."""


class ConsumerCollector(Collector):
    """Everything in `METRICS`."""

    def __init__(self, sources: MetricSources, most_tables: int) -> None:
        """At most `most_tables` tables get series of their own."""
        self._sources = sources
        self._tables = TableSeries(most_tables)
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Family]:
        """Return nothing: the registry would else collect all metrics once when it is made."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield all metrics that have a value."""
        facts, is_writer = self._sources.facts(), self._sources.is_writer()
        values: dict[str, _Values] = {
            **_process(facts, is_writer=is_writer),
            **(_health(facts, self._sources.max_lag) if is_writer and facts.report.totals.rounds else {}),
            **_checkpoints(facts, self._sources.expiration_days),
            **_work(facts),
            **_rounds(facts),
            **_states(facts),
            **self._statements(),
            **self._processes(),
        }
        # Two scrapers at once must not count the same rows twice.
        with self._lock:
            values |= self._tables.values(facts)
        for name, value in values.items():
            yield _family(name, value)
        yield _durations(facts)

    def _statements(self) -> dict[str, _Values]:
        running = self._sources.statements()
        return {
            "statements_running": len(running),
            "statement_seconds": max((each.seconds for each in running), default=0.0),
        }

    def _processes(self) -> dict[str, _Values]:
        found = self._sources.processes()
        return {"memory_bytes": found.memory, "processes": found.counts, "target_connections": found.connections}


def _process(facts: Facts, *, is_writer: bool) -> dict[str, _Values]:
    report, tally = facts.report, facts.tally
    retrying = report.lasted(facts.now) if report.phase == Phase.RETRYING else 0.0
    return {
        "build_info": {report.version: 1},
        "start_time_seconds": report.started_at,
        "phase": {phase: float(phase == report.phase) for phase in Phase},
        "writer": float(is_writer),
        "lease_epoch": tally.epoch,
        "leases_acquired_total": tally.leases,
        "retrying_seconds": retrying,
        "retries_total": _with_zeros(tally.retries, _RETRIES),
    }


def _health(facts: Facts, max_lag: float | None) -> dict[str, _Values]:
    found = facts.health(is_writer=True, max_lag=max_lag)
    return {"health": {health: float(health == found) for health in Health if health != Health.UNKNOWN}}


def _checkpoints(facts: Facts, expiration_days: int) -> dict[str, _Values]:
    last = facts.last
    found: dict[str, _Values] = {"source_file_expiration_seconds": expiration_days * _DAY} if expiration_days else {}
    for prefix, tso in (("", last.checkpoint), ("running_", last.checkpoint_running)):
        # 0 is no time: a lag of fifty years would wake somebody.
        if tso:
            at = physical_ms(tso) / 1000
            found[f"{prefix}checkpoint_timestamp_seconds"] = at
            found[f"{prefix}lag_seconds"] = max(0.0, facts.now - at)
    if facts.source_checkpoint:
        at = physical_ms(facts.source_checkpoint) / 1000
        found["source_checkpoint_timestamp_seconds"] = at
        found["source_ahead_seconds"] = max(0.0, facts.ahead)
        found["source_lag_seconds"] = facts.source_lag or 0.0
    return found


def _work(facts: Facts) -> dict[str, _Values]:
    report, tally = facts.report, facts.tally
    return {
        "rows_read_total": facts.rows_read,
        "rows_written_total": report.totals.written,
        "files_read_total": tally.files,
        "read_bytes_total": tally.bytes,
        "ddl_statements_total": report.totals.ddls,
        "skipped_total": {reason: float(count) for reason, count in report.skipped.items()},
        "pending_files": report.pending_files,
        "pending_bytes": report.pending_bytes,
        "load_files": facts.last.load_files,
        "load_files_done": facts.last.load_files_done,
        "verified_tables": {outcome: float(count) for outcome, count in facts.compared.items()},
    }


def _rounds(facts: Facts) -> dict[str, _Values]:
    report, work = facts.report, facts.report.work
    return {
        "rounds_total": report.totals.rounds,
        "stage_seconds_total": _with_zeros(facts.tally.stages, _STAGES),
        "last_round_timestamp_seconds": report.last_round_at,
        "round_running": float(work is not None),
        "round_seconds": work.seconds if work else 0.0,
        "round_files": work.files if work else 0,
        "round_files_done": work.files_done if work else 0,
        "round_statements": work.statements if work else 0,
        "round_statements_done": work.statements_done if work else 0,
    }


def _states(facts: Facts) -> dict[str, _Values]:
    waiting = Counter(table.waits_for for table in facts.last.waiting)
    return {
        "tables": _with_zeros(facts.last.states, _STATES),
        "tables_waiting": _with_zeros(waiting, _WAITS),
        "table_halts_total": _with_zeros(facts.tally.halts, _HALTS),
    }


def _with_zeros(counts: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    """Return counts with a zero for each known name: a series that begins with 1 shows no increase."""
    return {**{str(name): 0.0 for name in names}, **{str(name): count for name, count in counts.items() if name}}


def _family(name: str, value: _Values) -> Family:
    """Return a metric as it is exported."""
    metric = METRICS[name]
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(PREFIX + name, metric.meaning, labels=metric.labels)
    # No metric has more than one label.
    for label, number in value.items() if isinstance(value, Mapping) else [(None, value)]:
        # A label may be the name of a table, which is a text from outside: what no UTF-8 has would spoil the whole scrape.
        family.add_metric([] if label is None else [escaped(redact(label))], number)
    return family


def _durations(facts: Facts) -> Family:
    name = "round_duration_seconds"
    counts = list(accumulate(facts.tally.rounds_by_bucket))
    borders = [*map(str, ROUND_BUCKETS), "+Inf"]
    return HistogramMetricFamily(
        PREFIX + name,
        METRICS[name].meaning,
        buckets=list(zip(borders, counts, strict=True)),
        sum_value=facts.tally.round_seconds,
    )
