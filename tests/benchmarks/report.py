"""What the runs say, as text and as JSON."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.benchmarks.bucket import Bucket
from tests.benchmarks.measuring import Run
from tests.benchmarks.watching import ROLES

_MIB = 1 << 20
_CELLS = "{:>7} {:>10} {:>8} {:>10} {:>12} {:>8} {:>8} {:>6}  {:>22}  {:>29}"


def figures(bucket: Bucket, run: Run) -> dict[str, Any]:
    """All figures of one run; sizes in bytes, times in seconds."""
    return {
        "session_seconds": round(run.session, 2),
        "seconds": round(run.seconds, 3),
        "events_per_second": round(bucket.order.events / run.seconds),
        "final_rows_per_second": round(bucket.rows / run.seconds),
        "limit_seconds": round(run.limit, 3),
        "limit_rows_per_second": round(bucket.rows / run.limit),
        "events_to_limit": round(bucket.order.events / run.seconds / (bucket.rows / run.limit), 3),
        "ratio_to_limit": round(run.ratio, 3),
        "peak_memory": {
            "jvm": run.usage.jvm,
            "driver": run.usage.driver,
            "largest_worker": run.usage.worker,
            "all_workers": run.usage.workers,
        },
        "cpu_seconds": run.usage.cpu,
    }


def summary(found: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median, lowest and highest of what is compared between runs."""
    names = (
        *("seconds", "events_per_second", "final_rows_per_second", "limit_rows_per_second"),
        *("events_to_limit", "ratio_to_limit"),
    )
    values = {name: [run[name] for run in found] for name in names}
    return {
        "median": {name: statistics.median(values[name]) for name in names},
        "min": {name: min(values[name]) for name in names},
        "max": {name: max(values[name]) for name in names},
    }


def document(bucket: Bucket, server_version: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Everything, for a file."""
    return {
        "order": asdict(bucket.order),
        "files": bucket.files,
        "bytes": bucket.size,
        "final_rows": bucket.rows,
        "server": server_version,
        "cores": os.cpu_count(),
        "runs": list(found),
        "summary": summary(found),
    }


def heading(bucket: Bucket, server_version: str) -> str:
    """What is measured, and the names of the columns."""
    order = bucket.order
    return (
        f"{order.events} events {order.profile} {order.protocol}, {order.tables} tables, {bucket.files} files, "
        f"{bucket.size / _MIB:.0f} MiB, {bucket.rows} final rows; {server_version}, {os.cpu_count()} cores\n"
        "CPU in seconds: driver/JVM/workers/server; peak memory in MiB: driver/JVM/largest worker/all workers\n"
        "ev/limit: events a second by the rows a second of the limit; ratio: final rows a second by the same\n"
        + _CELLS.format(
            *(
                "run",
                "session s",
                "seconds",
                "events/s",
                "final rows/s",
                "limit/s",
                "ev/limit",
                "ratio",
                "CPU",
                "memory",
            )
        )
    )


def line(name: str, run: dict[str, Any]) -> str:
    """One run in the table."""
    cpu, memory = run["cpu_seconds"], run["peak_memory"]
    sizes = (memory[key] // _MIB for key in ("driver", "jvm", "largest_worker", "all_workers"))
    return _CELLS.format(
        name,
        run["session_seconds"] or "-",
        f"{run['seconds']:.2f}",
        run["events_per_second"],
        run["final_rows_per_second"],
        run["limit_rows_per_second"],
        f"{run['events_to_limit']:.2f}",
        f"{run['ratio_to_limit']:.2f}",
        "/".join(f"{cpu[role]:.1f}" for role in ROLES),
        "/".join(str(size) for size in sizes),
    )


def ending(found: Sequence[dict[str, Any]]) -> str:
    """Median, lowest and highest, one line each."""
    return "\n".join(
        _CELLS.format(
            name,
            "",
            f"{values['seconds']:.2f}",
            round(values["events_per_second"]),
            round(values["final_rows_per_second"]),
            round(values["limit_rows_per_second"]),
            f"{values['events_to_limit']:.2f}",
            f"{values['ratio_to_limit']:.2f}",
            "",
            "",
        ).rstrip()
        for name, values in summary(found).items()
    )
