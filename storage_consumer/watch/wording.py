"""A status in words, for the terminal and the page, and as ``status --json`` prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from storage_consumer.clock import counted, data_size, span
from storage_consumer.model import SkippedRows
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.rows.comparison import TableResult, VerifyOutcome
from storage_consumer.telemetry import tso_time, utc_time
from storage_consumer.tso import is_applied
from storage_consumer.watch.report import Phase, Report, Snapshot, Table
from storage_consumer.watch.status import Status

_NAMED = 5
"""Most tables that a line names."""


def facts(status: Status) -> dict[str, str]:
    """Return label → text of a feed's facts; an empty label continues the fact before it.

    An empty text says nothing.
    """
    snapshot, report = status.snapshot, status.report
    running = moment(snapshot.checkpoint_running, status.lag_running)
    return {
        "bucket": snapshot.upstream,
        "target": f"{snapshot.target} ({snapshot.server})",
        "writer": snapshot.writer or "nobody",
        "version": report.version if report is not None else "",
        "doing": doing(status),
        "checkpoint": moment(snapshot.checkpoint, status.lag),
        "": f"{running} without stopped tables"
        if snapshot.checkpoint_running != snapshot.checkpoint
        else "",
        "at source": moment(snapshot.storage_checkpoint, status.source_lag),
        "tables": ", ".join(f"{count:,} {state}" for state, count in status.counts.items())
        or "none yet",
        "loading": loading(snapshot.loads),
        "assumed": report.assumed if report is not None else "",
        "pending": pending(report),
        "limit": f"{report.rows_per_second_limit:,} rows/s"
        if report and report.rows_per_second_limit
        else "",
        "skipped": skipped(report),
        "rows left out": left_out(snapshot),
        "verified": verified(snapshot.verified),
    }


def doing(status: Status) -> str:
    """Return what the writer is doing, by its own word."""
    report, snapshot = status.report, status.snapshot
    if report is None:
        return ""
    if not status.is_reported:
        ended = "ended" if report.phase == Phase.ENDED else f"last heard of while {report.phase}"
        return f"{ended} {span(snapshot.report_age)} ago"
    words = f"{report.phase} for {span(report.phase_seconds + snapshot.report_age)}"
    # A statement that waits is in each round anew; how long it has been running is said beside it.
    runs = sum(each.seconds is not None for each in status.statements)
    if (work := report.work) is not None and (
        work.files or work.statements_done or work.statements > runs
    ):
        done = [work.counted]
        if work.files:
            done = [
                f"{work.counted} ({data_size(work.bytes)})",
                f"{work.rows:,} rows, {report.rows_per_second:,.0f} rows/s",
            ]
        left = [f"{span(status.seconds_left)} left"] if status.seconds_left is not None else []
        words += f": {', '.join(done + left)}"
    return words


def pending(report: Report | None) -> str:
    """Return what the last round left in the bucket; empty before the first."""
    if report is None or not report.last_round_at:
        return ""
    return f"{counted(report.pending_files, 'file')}, {data_size(report.pending_bytes)}, at the end of the last round"


def skipped(report: Report | None) -> str:
    """Return how much was skipped, by reason; empty for nothing."""
    if report is None or not report.skipped:
        return ""
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(report.skipped.items()))


def left_out(snapshot: Snapshot) -> str:
    """Return what --skip-commit-ts left out, or of what there were no rows; empty for nothing."""
    shown = [each for each in snapshot.skipped if each.rows != 0]
    found = {each.commit_ts for each in shown}
    # Those that all tables are beyond.
    shown += (
        each
        for each in snapshot.skipped
        if not each.table.schema and each.commit_ts not in found
        if is_applied(each.commit_ts, snapshot.checkpoint_running)
    )
    return "; ".join(
        f"{moment(each.commit_ts, None)}: {_rows(each)}{f' of {each.table}' if each.rows != 0 else ''}"
        for each in shown
    )


def _rows(skipped: SkippedRows) -> str:
    known = counted(skipped.rows, "row") if skipped.rows else "no rows"
    return "no one knows how many rows" if skipped.rows is None else known


def verified(results: Sequence[TableResult]) -> str:
    """Return what comparisons with the source found, and as of when; empty if there were none."""
    # The others were never compared: see `Status.reasons`.
    results = [
        result
        for result in results
        if result.checkpoint or result.outcome is not VerifyOutcome.DIFFERENT
    ]
    if not results:
        return ""
    counts = Counter(str(result.outcome) for result in results)
    oldest = min((result.checkpoint for result in results if result.checkpoint), default=0)
    different = [
        str(result.table) for result in results if result.outcome is VerifyOutcome.DIFFERENT
    ]
    named = (
        f" ({', '.join(different[:_NAMED])}{', …' if len(different) > _NAMED else ''})"
        if different
        else ""
    )
    words = ", ".join(
        f"{count:,} {outcome}{named if outcome == VerifyOutcome.DIFFERENT else ''}"
        for outcome, count in counts.items()
    )
    return f"{words}; the oldest as of {moment(oldest, None)}"


def loading(loads: Sequence[Load]) -> str:
    """Return how far all loads together are; empty if there are none."""
    running = [load for load in loads if load.phase == LoadPhase.LOADING]
    if not running:
        return ""
    done, parts = sum(load.parts_done for load in running), sum(load.parts for load in running)
    return f"{counted(len(running), 'table')}, {done:,} of {parts:,} files ({data_size(sum(load.size for load in running))})"


def moment(checkpoint: int, lag: float | None) -> str:
    """Return a TSO with its time, and how long ago that is."""
    if not checkpoint:
        return "none yet"
    ago = f", {span(lag)} ago" if lag is not None else ""
    return f"{checkpoint} ({tso_time(checkpoint)}){ago}"


def document(
    status: Status,
    needed: Sequence[Mapping[str, object]] | None = None,
    chosen: Table | None = None,
) -> dict[str, object]:
    """Return the status as JSON with stable keys; lags are in seconds.

    `needed`: the first file of each directory that is still needed, if that was asked for;
    `chosen`: the one table to be shown.
    """
    snapshot, report = status.snapshot, status.report
    shown = [table for table in status.tables if chosen is None or table.name == chosen.name]
    found: dict[str, object] = {
        "health": status.health,
        "text": status.text,
        "reasons": list(status.reasons),
        "time": utc_time(snapshot.now),
        "state_schema": snapshot.state_schema,
        "bucket": snapshot.upstream,
        "target": {"address": snapshot.target, "server": snapshot.server},
        "writer": snapshot.writer,
        "last_writer": snapshot.last_writer,
        "checkpoint": _mark(snapshot.checkpoint, status.lag),
        "checkpoint_running": _mark(snapshot.checkpoint_running, status.lag_running),
        "storage_checkpoint": _mark(snapshot.storage_checkpoint, status.source_lag),
        "tables_by_state": status.counts,
        "quarantined": {
            str(table.name): table.quarantined for table in snapshot.tables if table.quarantined
        },
        "tables": [
            {
                "table": str(table.name),
                "state": table.state,
                "checkpoint": _mark(table.checkpoint, table.lag),
                "reason": table.reason,
                "decision": table.decision,
                "next": list(table.next_steps),
            }
            for table in shown
        ],
        "statements": [
            {
                "table": str(each.name),
                "version": each.identity.version,
                "checksum": each.identity.checksum,
                "state": each.state,
                "seconds": _rounded(each.seconds),
                "query": each.query,
                "note": each.note,
            }
            for each in status.statements
        ],
        "seconds_left": _rounded(status.seconds_left),
        "report": report and msgspec.to_builtins(report) | {"age": _rounded(snapshot.report_age)},
        "needed": {"checkpoint": snapshot.needed, "time": tso_time(snapshot.needed)},
    }
    if chosen is not None:
        # What an operator should know of it, if anything, says more than what is stored.
        told = [(table.state, table.checkpoint) for table in shown]
        state, checkpoint = told[0] if told else (snapshot.shown(chosen), snapshot.reached(chosen))
        found["table"] = {"name": str(chosen.name), "state": state, "checkpoint": checkpoint}
    if loads := [
        load_document(each) for each in snapshot.loads if chosen is None or each.name == chosen.name
    ]:
        found["loads"] = loads
    if snapshot.skipped:
        found["rows_left_out"] = [
            _skipped(each) for each in snapshot.skipped if _is_shown(each, chosen)
        ]
    if snapshot.verified:
        meant = [each for each in snapshot.verified if chosen is None or each.table == chosen.name]
        found["verified"] = [verified_document(each) for each in meant]
    if needed is not None:
        found["files"] = list(needed)
    return found


def verified_document(result: TableResult) -> dict[str, object]:
    """Return what is known of a table that `verify` has compared."""
    return {
        "table": str(result.table),
        "outcome": result.outcome,
        "how": result.how,
        "checkpoint": _ts(result.checkpoint),
        "rows": result.rows,
        "different_rows": result.different_rows,
        "structure": list(result.structure),
        "reason": result.reason,
        "heal": result.heal,
    }


def load_document(load: Load) -> dict[str, object]:
    """Return a table's last load; ``as_of``: its copy's TSO, 0 while that is unread."""
    return {
        "table": str(load.name),
        "phase": str(load.phase),
        "source": load.source,
        "as_of": load.as_of,
        "parts": load.parts,
        "parts_done": load.parts_done,
        "bytes": load.size,
        "error": load.error,
    }


def _is_shown(skipped: SkippedRows, chosen: Table | None) -> bool:
    return bool(skipped.table.schema) and (chosen is None or skipped.table == chosen.name)


def _skipped(each: SkippedRows) -> dict[str, object]:
    return {"table": str(each.table), "commit_ts": _ts(each.commit_ts), "rows": each.rows}


def _mark(checkpoint: int, lag: float | None) -> dict[str, object]:
    return {**_ts(checkpoint), "lag": _rounded(lag)}


def _ts(checkpoint: int) -> dict[str, object]:
    return {"ts": checkpoint, "time": tso_time(checkpoint) if checkpoint else None}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
