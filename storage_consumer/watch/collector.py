"""What a running consumer shows: metrics and probes by HTTP, a metrics file for node_exporter.

Metrics are made of what the recorder knows, when they are asked for. The rounds do nothing for it.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nlargest
from http import HTTPStatus
from itertools import accumulate
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, write_to_textfile
from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from storage_consumer.config.settings import Monitoring
from storage_consumer.errors import ConfigError
from storage_consumer.model import physical_ms
from storage_consumer.plan.table_state import TableState
from storage_consumer.summary import RoundSummary, RunningStatement
from storage_consumer.telemetry import Log, escaped, redact
from storage_consumer.watch.http_server import Handler, HttpServer, Request, Response, said
from storage_consumer.watch.recorder import ROUND_BUCKETS, ScrapeFacts, Ticker
from storage_consumer.watch.report import Health, Phase, Work, is_late, lag_of

_log = Log("monitoring")
SILENCE = 180.0
"""Seconds without any wait of the consumer after which it counts as hanging. Each attempt to reach
something ends much sooner.
"""
EVERY = 15.0
"""Seconds between two versions of the file."""
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


PREFIX = "storage_consumer_"
OTHERS = "(other)"
"""The label `table` of all tables that have no series of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric."""

    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()


def _gauge(meaning: str, *labels: str) -> Metric:
    return Metric(kind="gauge", meaning=meaning, labels=labels)


def _counter(meaning: str, *labels: str) -> Metric:
    return Metric(kind="counter", meaning=meaning, labels=labels)


_ABSENT = "Absent before the first round."
METRICS: dict[str, Metric] = {
    "build_info": _gauge("Always 1; the label has the version of the program.", "version"),
    "start_time_seconds": _gauge("When the consumer started, in seconds since 1970-01-01 UTC."),
    "health": _gauge(
        "1 for the word that `status` has for the feed, 0 for all others; what `--max-lag` is there, `--ready-lag` is here. Only the writer has it, after its first round.",
        "health",
    ),
    "phase": _gauge("1 for what the process is doing, 0 for all else.", "phase"),
    "writer": _gauge(
        "1 if this process has the lease, 0 if not, or if it could not renew it in time."
    ),
    "lease_epoch": _gauge(
        "Epoch of the lease that this process has or had; it grows with each take-over. 0 for none."
    ),
    "leases_acquired_total": _counter("How often this process has acquired the lease."),
    "retrying_seconds": _gauge(
        "For how long the round has been retried because something does not answer; 0 if it is not."
    ),
    "retries_total": _counter("Attempts that were made again, by what is tried.", "what"),
    "checkpoint_timestamp_seconds": _gauge(
        f"Time of the commit-ts up to which all tables are applied, halted and paused ones included, since 1970-01-01 UTC. {_ABSENT}"
    ),
    "running_checkpoint_timestamp_seconds": _gauge(
        f"The same for the tables that are neither halted nor paused. {_ABSENT}"
    ),
    "source_checkpoint_timestamp_seconds": _gauge(
        "Time of the bucket's checkpoint-ts as it was last read, since 1970-01-01 UTC. Absent before it is read."
    ),
    "lag_seconds": _gauge(
        f"Time since `checkpoint_timestamp_seconds`, by this machine's clock. {_ABSENT}"
    ),
    "running_lag_seconds": _gauge(f"Time since `running_checkpoint_timestamp_seconds`. {_ABSENT}"),
    "source_lag_seconds": _gauge(
        "How old the bucket's checkpoint-ts was when it was last read, at the beginning of a round: what TiCDC itself is behind. It is "
        "part of the other lags. Absent before it is read."
    ),
    "source_ahead_seconds": _gauge(
        "How far the bucket's checkpoint-ts, be it believed or not, is ahead of this machine's clock; 0 if it is not. Absent before it is read."
    ),
    "source_file_expiration_seconds": _gauge(
        "Age at which TiCDC deletes files, read or not, as the changefeed's file says. Absent where it does not."
    ),
    "rows_read_total": _counter("Row changes read, those of the running round included."),
    "rows_written_total": _counter(
        "Rows written or deleted in the target, after folding; counted at the end of a round."
    ),
    "rows_per_second_limit": _gauge(
        "Most rows to write per second, over all tasks; 0 for any number."
    ),
    "files_read_total": _counter("Data files read, those of the running round included."),
    "read_bytes_total": _counter("Size of the data files read; counted at the end of a round."),
    "ddl_statements_total": _counter("DDL statements executed; counted at the end of a round."),
    "skipped_total": _counter(
        "Rows, statements and objects skipped, by reason; counted at the end of a round.", "reason"
    ),
    "rounds_total": _counter("Rounds that ended."),
    "round_duration_seconds": Metric(
        kind="histogram", meaning="Duration of the rounds that ended."
    ),
    "stage_seconds_total": _counter(
        "Time that rounds spent polling the bucket, planning, on rows, on DDL and storing checkpoints; counted at the end of a round.",
        "stage",
    ),
    "last_round_timestamp_seconds": _gauge(
        "When the last round ended, since 1970-01-01 UTC; 0 before the first."
    ),
    "round_running": _gauge("1 while a round applies changes, else 0."),
    "round_seconds": _gauge("For how long the running round has been applying; 0 between rounds."),
    "round_files": _gauge("Files that the running round has to read; 0 between rounds."),
    "round_files_done": _gauge("Files of these that are read."),
    "round_statements": _gauge(
        "DDL statements that the running round has to run; 0 between rounds."
    ),
    "round_statements_done": _gauge("Statements of these that are done."),
    "pending_files": _gauge(
        "Files with rows beyond the storage checkpoint, or not yet read, at the end of the last round."
    ),
    "pending_bytes": _gauge("Their size, as far as they were listed."),
    "load_files": _gauge(
        "Files of the copies that tables are being loaded from, at the end of the last round; 0 if none is."
    ),
    "load_files_done": _gauge("Files of these that are written."),
    "tables": _gauge(
        "Tables by state at the end of the last round; those that the filter or an operator leaves out do not count.",
        "state",
    ),
    "tables_waiting": _gauge(
        "Waiting tables by what they wait for: `file`, `ddl` (a statement before their rows) or `lock` (of other sessions).",
        "reason",
    ),
    "table_halts_total": _counter(
        "How often tables halted, by kind: `ddl`, `gate`, `file`, `gap`, `row`, `schema` or `name`. A pause is no halt.",
        "kind",
    ),
    "table_halted": _gauge(
        "1 for a halted table; only halted tables have it, at most as many as `--metrics-tables`.",
        "table",
    ),
    "table_quarantined_rows": _gauge(
        f"Rows in the quarantine at the end of the last round, by table; only tables with any have it. All others are `{OTHERS}`.",
        "table",
    ),
    "table_checkpoint_timestamp_seconds": _gauge(
        f"As `checkpoint_timestamp_seconds`, by table. Of `{OTHERS}` the lowest.", "table"
    ),
    "table_lag_seconds": _gauge(f"As `lag_seconds`, by table. Of `{OTHERS}` the highest.", "table"),
    "table_rows_total": _counter(
        f"Row changes applied by table, since the table has a series of its own; all others together are `{OTHERS}`.",
        "table",
    ),
    "verified_tables": _gauge(
        "Tables that `verify` has compared with the source, by the last result: `equal`, `different`, `not-compared` or `unfinished`. "
        "`different` are also those whose rows are in doubt, and that were neither compared nor loaded since. Tables that the source dropped do not count.",
        "outcome",
    ),
    "statements_running": _gauge("DDL statements that run on the target now."),
    "statement_seconds": _gauge(
        "For how long the oldest of them has been running; 0 if there is none."
    ),
    "memory_bytes": _gauge(
        "Resident memory of the `driver` (this process), the `jvm`, Spark's Python `worker` processes and `other` children. "
        "Pages that processes share count in each. Linux only.",
        "process",
    ),
    "processes": _gauge("Number of these processes.", "process"),
    "target_connections": _gauge(
        "TCP connections of these processes to the target's port. Linux only."
    ),
}
"""Name without `PREFIX` → the metric. A test compares it with a scrape."""


_FIRST = {"halted": 2, "waiting": 1}


class TableSeries:
    """The values by table. Not for several threads at once."""

    def __init__(self, most: int) -> None:
        """At most `most` tables get series of their own."""
        self._most = most
        self._seen: dict[str, int] = {}
        """Table → rows that are counted."""
        self._rows = Counter[str]()
        """Label → rows."""
        self._last: RoundSummary | None = None
        self._labels: frozenset[str] = frozenset()
        """Tables with series of their own as of that round."""

    def values(self, facts: ScrapeFacts) -> dict[str, Mapping[str, float]]:
        """Return name of a metric → label → value."""
        last, rows = facts.done, facts.tally.table_rows
        # Nothing of this changes between rounds, and to choose among thousands of tables is most of
        # the work.
        if last is not self._last:
            first = {table.table: _FIRST.get(table.state, 0) for table in last.tables}
            names = nlargest(
                self._most,
                rows.keys() | first.keys(),
                key=lambda name: (first.get(name, 0), rows.get(name, 0), name),
            )
            self._last, self._labels = last, frozenset(names)
            self._rows.update(
                _by_label(
                    {name: count - self._seen.get(name, 0) for name, count in rows.items()},
                    self._labels,
                )
            )
            self._seen = dict(rows)
        named = self._labels
        # A table that did nothing in the last round is as far as the running ones.
        own = {table.table: table.checkpoint for table in last.tables}
        reached = {name: own.get(name, last.checkpoint_running) for name in named}
        checkpoints = {name: physical_ms(tso) / 1000 for name, tso in reached.items() if tso}
        rest = [
            table.checkpoint
            for table in last.tables
            if table.table not in named and table.checkpoint
        ]
        has_others = rest or sum(last.states.values()) > len(named)
        if has_others and (lowest := min(rest, default=last.checkpoint_running)):
            checkpoints[OTHERS] = physical_ms(lowest) / 1000
        halted = (table.table for table in last.halted if table.table in named)
        # Tables that lost their series keep what they had: it is shown again, and goes on from
        # there, once they are back.
        shown = {name: float(self._rows[name]) for name in named if name in rows}
        return {
            "table_halted": dict.fromkeys(halted, 1.0),
            "table_quarantined_rows": _by_label(last.quarantined, named),
            "table_checkpoint_timestamp_seconds": checkpoints,
            "table_lag_seconds": {
                name: max(0.0, facts.now - at) for name, at in checkpoints.items()
            },
            "table_rows_total": shown | {OTHERS: float(self._rows[OTHERS])},
        }


def _by_label(rows: Mapping[str, int], named: frozenset[str]) -> Counter[str]:
    found = Counter[str]()
    for name, count in rows.items():
        found[name if name in named else OTHERS] += count
    return found


_PROC = Path("/proc")
_ESTABLISHED = "01"
_REMOTE, _STATE, _INODE = 2, 3, 9
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PARENT, _RESIDENT = 1, 21
"""Columns of /proc/PID/stat behind the name of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """What was found."""

    memory: dict[str, int]
    """``driver``, ``jvm``, ``worker`` and ``other`` → resident bytes. Pages that processes share
    count in each of them.
    """
    counts: dict[str, int]
    """The same → number of processes."""
    connections: int
    """TCP connections to the target's port."""


def processes(port: int) -> Processes:
    """Return this process and those it started, from Linux's /proc; `port`: the target's."""
    own, children, found = (
        os.getpid(),
        defaultdict[int, list[int]](list),
        dict[int, tuple[str, int]](),
    )
    for file in _PROC.glob("[0-9]*/stat"):
        # A process may end meanwhile.
        with suppress(OSError):
            # The name of a program may hold spaces and brackets; the columns begin behind its last
            # bracket.
            head, _, rest = file.read_text(encoding="utf-8", errors="replace").rpartition(")")
            pid, columns = int(file.parent.name), rest.split()
            children[int(columns[_PARENT])].append(pid)
            found[pid] = head.partition("(")[2], int(columns[_RESIDENT])
    memory, counts, links, waiting = Counter[str](), Counter[str](), set[str](), [own]
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        name, resident = found.get(pid, ("", 0))
        kind = (
            "jvm"
            if name == "java"
            else "worker"
            if name.startswith(("python", "pyspark"))
            else "other"
        )
        kind = "driver" if pid == own else kind
        memory[kind] += resident * _PAGE
        counts[kind] += 1
        links |= _links(pid)
    lines = list[str]()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            lines += (_PROC / "self" / "net" / table).read_text(encoding="ascii").splitlines()[1:]
    # All established TCP connections of this machine to that port of another socket.
    sockets = {
        f"socket:[{columns[_INODE]}]"
        for columns in map(str.split, lines)
        if columns[_STATE] == _ESTABLISHED and int(columns[_REMOTE].rpartition(":")[2], 16) == port
    }
    return Processes(memory=dict(memory), counts=dict(counts), connections=len(links & sockets))


def _links(pid: int) -> set[str]:
    """Return what a process has open, as far as it is still there."""
    found = set[str]()
    with suppress(OSError):
        for file in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                found.add(str(file.readlink()))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """Whom a scrape asks. All of them answer at once, from any thread."""

    facts: Callable[[], ScrapeFacts]
    is_writer: Callable[[], bool]
    statements: Callable[[], Sequence[RunningStatement]]
    processes: Callable[[], Processes]
    silent_seconds: Callable[[], float | None]
    """See `Consumer.silent_seconds`."""
    expiration_days: int = 0
    """Days after which TiCDC deletes files; 0 if that is not known."""


def _with_zeros(counts: Mapping[str, float], names: Iterable[str] = ()) -> dict[str, float]:
    """Return counts with a zero for each known name: a series from 1 shows no increase."""
    return {
        **{str(name): 0.0 for name in names},
        **{str(name): float(count) for name, count in counts.items() if name},
    }


class Showing(Collector):
    """Shows what the settings ask for, from `start` to `close`."""

    def __init__(
        self, wanted: Monitoring, sources: MetricSources, more: Mapping[str, Handler] | None = None
    ) -> None:
        """Touch nothing yet. `more`: further routes of the server."""
        self._wanted = wanted
        self._sources = sources
        self._tables = TableSeries(wanted.metrics_tables)
        self._lock = threading.Lock()
        # In a registry of its own: those of the program around it are left alone.
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        own = {"/metrics": self.metrics, "/healthz": self.health, "/readyz": self.readiness}
        self._routes: dict[str, Handler] = {**(more or {}), **own}
        self._http_server: HttpServer | None = None
        self._ticker: Ticker | None = None
        self._has_failed = False

    def start(self) -> None:
        """Begin once; raise `ConfigError` if the port or the file cannot be had."""
        if self._wanted.metrics_listen and self._http_server is None:
            self._http_server = HttpServer(self._wanted.metrics_listen, self._routes)
        if (path := self._wanted.metrics_textfile) and self._ticker is None:
            try:
                write_to_textfile(path, self._registry)
            except OSError as fault:
                raise ConfigError(
                    f"--metrics-textfile {path}: it cannot be written: {fault.strerror or fault}"
                ) from fault
            self._ticker = Ticker(self._write, EVERY)
            self._ticker.start()

    def close(self) -> None:
        """End; calling it again is safe."""
        if self._ticker is not None:
            self._ticker.stop()
            self._ticker = None
        if self._http_server is not None:
            self._http_server.close()
            self._http_server = None

    def describe(self) -> Iterable[Family]:
        """Return nothing: the registry would else collect all metrics once when it is made."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield all metrics that have a value."""
        facts, is_writer = self._sources.facts(), self._sources.is_writer()
        done, report = facts.done, facts.report
        found = self._values(facts, is_writer=is_writer)
        marks = {
            "": done.checkpoint,
            "running_": done.checkpoint_running,
            "source_": report.source_checkpoint,
        }
        for prefix, tso in marks.items():
            # 0 is no time: a lag of fifty years would wake somebody.
            if tso:
                found[f"{prefix}checkpoint_timestamp_seconds"] = physical_ms(tso) / 1000
                found[f"{prefix}lag_seconds"] = lag_of(tso, facts.now) or 0.0
        if report.source_checkpoint:
            found["source_ahead_seconds"] = max(0.0, facts.ahead)
            found["source_lag_seconds"] = report.source_lag(facts.now) or 0.0
        if is_writer and report.totals.rounds:
            health = facts.health(is_writer=True, max_lag=self._wanted.ready_lag)
            found["health"] = {
                each: float(each == health) for each in Health if each != Health.UNKNOWN
            }
        # Two scrapers at once must not count the same rows twice.
        with self._lock:
            found |= self._tables.values(facts)
        for name, value in found.items():
            metric = METRICS[name]
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(PREFIX + name, metric.meaning, labels=metric.labels)
            # No metric has more than one label.
            for label, number in value.items() if isinstance(value, Mapping) else [(None, value)]:
                # A label may be the name of a table, which is a text from outside: what no UTF-8
                # has would spoil the whole scrape.
                family.add_metric([] if label is None else [escaped(redact(label))], number)
            yield family
        name, counts = "round_duration_seconds", accumulate(facts.tally.rounds_by_bucket)
        buckets = list(zip([*map(str, ROUND_BUCKETS), "+Inf"], counts, strict=True))
        meaning = METRICS[name].meaning
        yield HistogramMetricFamily(PREFIX + name, meaning, buckets=buckets, sum_value=done.seconds)

    def _values(self, facts: ScrapeFacts, *, is_writer: bool) -> dict[str, _Values]:
        report, tally, done = facts.report, facts.tally, facts.done
        work = report.work or Work(seconds=0, files=0, bytes=0)
        running, found, days = (
            self._sources.statements(),
            self._sources.processes(),
            self._sources.expiration_days,
        )
        return {
            "build_info": {report.version: 1},
            "start_time_seconds": report.started_at,
            "phase": {phase: float(phase == report.phase) for phase in Phase},
            "writer": float(is_writer),
            "lease_epoch": tally.epoch,
            "leases_acquired_total": tally.leases,
            "retrying_seconds": report.phase_seconds if report.phase == Phase.RETRYING else 0.0,
            "retries_total": _with_zeros(tally.retries, _RETRIES),
            **({"source_file_expiration_seconds": days * _DAY} if days else {}),
            "rows_read_total": tally.rows,
            "rows_written_total": done.written,
            "rows_per_second_limit": report.rows_per_second_limit,
            "files_read_total": tally.files,
            "read_bytes_total": done.bytes,
            "ddl_statements_total": done.ddls,
            "skipped_total": _with_zeros(done.skipped),
            "pending_files": done.pending_files,
            "pending_bytes": done.pending_bytes,
            "load_files": done.load_files,
            "load_files_done": done.load_files_done,
            "verified_tables": _with_zeros(tally.compared),
            "rounds_total": sum(tally.rounds_by_bucket),
            "stage_seconds_total": _with_zeros(done.stages, _STAGES),
            "last_round_timestamp_seconds": report.last_round_at,
            "round_running": float(report.work is not None),
            "round_seconds": work.seconds,
            "round_files": work.files,
            "round_files_done": work.files_done,
            "round_statements": work.statements,
            "round_statements_done": work.statements_done,
            "tables": _with_zeros(done.states, _STATES),
            "tables_waiting": _with_zeros(
                Counter(table.waits_for for table in done.waiting), _WAITS
            ),
            "table_halts_total": _with_zeros(tally.halts, _HALTS),
            "statements_running": len(running),
            "statement_seconds": max((each.seconds for each in running), default=0.0),
            "memory_bytes": found.memory,
            "processes": found.counts,
            "target_connections": found.connections,
        }

    def metrics(self, request: Request) -> Response:
        """Return all metrics, as OpenMetrics if asked for, else as Prometheus' text."""
        encode, content_type = choose_encoder(request.accept)
        return Response(body=encode(self._registry), content_type=content_type)

    def health(self, _request: Request) -> Response:
        """Return 200 while the consumer works or knowingly waits; 503 once it hangs."""
        silent = self._sources.silent_seconds()
        if silent is not None and silent > SILENCE:
            return said(
                f"the consumer has not moved for {silent:.0f} s", HTTPStatus.SERVICE_UNAVAILABLE
            )
        return said(f"alive: {self._sources.facts().report.phase}")

    def readiness(self, _request: Request) -> Response:
        """Return 200 for a writer past a round, near enough and without retries; else 503.

        The latter has the reason.
        """
        facts = self._sources.facts()
        report, limit, lag = (
            facts.report,
            self._wanted.ready_lag,
            lag_of(facts.done.slowest, facts.now),
        )
        if not self._sources.is_writer():
            if report.phase == Phase.STANDBY:
                reason = "standby: another process is the writer"
            else:
                reason = f"not the writer yet: {report.phase} {report.retry}".strip()
        elif not report.totals.rounds:
            reason = f"no round has ended yet: {report.phase} {report.retry}".strip()
        elif report.phase == Phase.RETRYING:
            reason = f"retrying: {report.retry}"
        elif is_late(facts.done.slowest, facts.now, limit):
            reason = (
                "there is no checkpoint yet"
                if lag is None
                else f"the lag is {lag:.0f} s, more than {limit:g} s"
            )
        else:
            return said("ready")
        return said(reason, HTTPStatus.SERVICE_UNAVAILABLE)

    def _write(self) -> None:
        path = self._wanted.metrics_textfile
        try:
            # Beside the file under another name, then renamed: readers never see half of it.
            write_to_textfile(path, self._registry)
            self._has_failed = False
        except OSError as fault:
            # Once: a full disk stays full for a while.
            if not self._has_failed:
                _log.warning("textfile_failed", path=path, error=str(fault))
            self._has_failed = True
