"""The table of metrics: every name with its type, unit, labels and meaning. The reference page and what is exported come from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    "writer": _gauge("1 if this process has the lease, 0 if not, or if it could not renew it in time."),
    "lease_epoch": _gauge("Epoch of the lease that this process has or had; it grows with each take-over. 0 for none."),
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
    "lag_seconds": _gauge(f"Time since `checkpoint_timestamp_seconds`, by this machine's clock. {_ABSENT}"),
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
    "files_read_total": _counter("Data files read, those of the running round included."),
    "read_bytes_total": _counter("Size of the data files read; counted at the end of a round."),
    "ddl_statements_total": _counter("DDL statements executed; counted at the end of a round."),
    "skipped_total": _counter(
        "Rows, statements and objects skipped, by reason; counted at the end of a round.", "reason"
    ),
    "rounds_total": _counter("Rounds that ended."),
    "round_duration_seconds": Metric(kind="histogram", meaning="Duration of the rounds that ended."),
    "stage_seconds_total": _counter(
        "Time that rounds spent polling the bucket, planning, on rows, on DDL and storing checkpoints; counted at the end of a round.",
        "stage",
    ),
    "last_round_timestamp_seconds": _gauge("When the last round ended, since 1970-01-01 UTC; 0 before the first."),
    "round_running": _gauge("1 while a round applies changes, else 0."),
    "round_seconds": _gauge("For how long the running round has been applying; 0 between rounds."),
    "round_files": _gauge("Files that the running round has to read; 0 between rounds."),
    "round_files_done": _gauge("Files of these that are read."),
    "round_statements": _gauge("DDL statements that the running round has to run; 0 between rounds."),
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
        "1 for a halted table; only halted tables have it, at most as many as `--metrics-tables`.", "table"
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
        "`different` are also those that were changed in the target, and neither compared nor loaded since. Tables that the source dropped do not count.",
        "outcome",
    ),
    "statements_running": _gauge("DDL statements that run on the target now."),
    "statement_seconds": _gauge("For how long the oldest of them has been running; 0 if there is none."),
    "memory_bytes": _gauge(
        "Resident memory of the `driver` (this process), the `jvm`, Spark's Python `worker` processes and `other` children, as of at "
        "most 5 s ago. Pages that processes share count in each. Linux only.",
        "process",
    ),
    "processes": _gauge("Number of these processes.", "process"),
    "target_connections": _gauge("TCP connections of these processes to the target's port. Linux only."),
}
"""Name without `PREFIX` → the metric. A test compares it with a scrape."""
