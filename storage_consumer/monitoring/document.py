"""The status of a feed as a document: what ``status --json`` prints and the status page serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from storage_consumer.monitoring.snapshot import Table
from storage_consumer.monitoring.status import Status
from storage_consumer.plan.loads import Load
from storage_consumer.telemetry import tso_time, utc_time


def document(
    status: Status, needed: Sequence[Mapping[str, object]] | None = None, chosen: Table | None = None
) -> dict[str, object]:
    """Return the status as JSON takes it; the keys are part of the program's interface. Lags are seconds.

    `needed`: the first file of each directory that is still needed, if that was asked for; `chosen`: the one table to be shown.
    """
    snapshot, report = status.snapshot, status.report
    shown = [table for table in status.tables if chosen is None or table.name == chosen.name]
    found: dict[str, object] = {
        "health": status.health,
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
        "quarantined": {str(table.name): table.quarantined for table in snapshot.tables if table.quarantined},
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
    loads = [load for load in snapshot.loads if chosen is None or load.name == chosen.name]
    if loads:
        found["loads"] = [load_document(load) for load in loads]
    if snapshot.verified:
        found["verified"] = [
            {
                "table": str(result.table),
                "outcome": result.outcome,
                "how": result.how,
                "checkpoint": {
                    "ts": result.checkpoint,
                    "time": tso_time(result.checkpoint) if result.checkpoint else None,
                },
                "rows": result.rows,
                "different_rows": result.different_rows,
                "structure": list(result.structure),
                "reason": result.reason,
                "heal": result.heal,
            }
            for result in snapshot.verified
            if chosen is None or result.table == chosen.name
        ]
    if needed is not None:
        found["files"] = list(needed)
    return found


def load_document(load: Load) -> dict[str, object]:
    """Return the last load of a table; ``as_of`` is the TSO of its copy, 0 while nobody has looked at it."""
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


def _mark(checkpoint: int, lag: float | None) -> dict[str, object]:
    return {"ts": checkpoint, "time": tso_time(checkpoint) if checkpoint else None, "lag": _rounded(lag)}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
