"""The table: a line per result, a breakdown below it where there is one, and what has changed since an earlier run."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks.results import COST, MIB, Result, memory
from tests.benchmarks.watching import ROLES

_CELLS = "{:<32} {:>9} {:>9} {:>5}  {:>11} {:>11} {:<13} {:>9} {:>6} {:>8}  {:>22}  {:>20}"
_STAGES = (
    "list",
    "read",
    "decode",
    "fold",
    "shuffle",
    "shuffle (JVM)",
    "write",
    "write (server)",
    "state",
    "plan",
    "other",
)
"""In the order of a round."""
HEADING = (
    "found: the ratio of program to reference, or where the goal is for one figure, that; medians of all runs\n"
    "us/ev: microseconds of CPU per row change, all processes; CPU in seconds: driver/JVM/workers/server\n"
    "peak memory in MiB: driver/JVM/largest worker/all workers\n"
    + _CELLS.format(
        *(
            "line",
            "goal",
            "found",
            "met",
            "program",
            "reference",
            "unit",
            "events/s",
            "us/ev",
            "seconds",
            "CPU",
            "memory",
        )
    )
)


def line(result: Result) -> str:
    """One line of the table."""
    last = result.runs[-1].usage
    driver = result.more("driver_cpu_seconds")
    cpu = "/".join(f"{last.cpu[role]:.1f}" for role in ROLES) if last else ""
    cpu = cpu if driver is None else f"{driver:.3f} a round"
    sizes = "/".join(str(size // MIB) for size in memory(last).values()) if last else ""
    events, seconds, cost = (result.more(name) for name in ("events_per_second", "seconds", COST))
    return _CELLS.format(
        result.name,
        str(result.goal or ""),
        short(result.judged),
        result.verdict,
        short(result.figure),
        short(result.reference) if result.reference else "-",
        result.unit,
        "" if events is None else short(events),
        "" if cost is None else f"{cost:.1f}",
        "" if seconds is None else f"{seconds:.2f}",
        cpu,
        sizes,
    ).rstrip()


def breakdown(result: Result) -> str:
    """Where the CPU time of the profiled run went; empty if there was none."""
    total = sum(result.stages.values())
    if not total:
        return ""
    shares = (
        f"{stage} {seconds:.2f} s ({seconds / total:.0%})"
        for stage in _STAGES
        if (seconds := result.stages.get(stage, 0.0)) >= total / 1000
    )
    return f"  CPU {total:.1f} s: {', '.join(shares)}"


def short(value: float) -> str:
    """About three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def document(results: Sequence[Result], versions: Mapping[str, str]) -> dict[str, Any]:
    """Everything, for a file."""
    return {"cores": os.cpu_count(), "versions": dict(versions), "results": [result.document() for result in results]}


def compared(results: Sequence[Result], earlier: Mapping[str, Any]) -> str:
    """Per line what an earlier run found and what this one did.

    The change is that of the ratios, since each run has a reference of its own; of the figures where a line has none. Above 1 there is
    more of what the line's unit counts: rows a second, or seconds.
    """
    before = {each["name"]: each for each in earlier["results"]}
    cells = "{:<32} {:>11} {:>11} {:<13} {:>9} {:>9} {:>8}  {:>6} {:>6}"
    heads = ("line", "then", "now", "unit", "ratio then", "now", "change", "us/ev", "now")
    lines = [cells.format(*heads)]
    for result in results:
        if (old := before.get(result.name)) is not None:
            now, then = (result.ratio, old["ratio"]) if old["ratio"] else (result.figure, old["figure"])
            costs = [run[COST] for run in old["runs"] if COST in run]
            cost = result.more(COST)
            lines.append(
                cells.format(
                    *(result.name, short(old["figure"]), short(result.figure), result.unit),
                    *(short(old["ratio"]), short(result.ratio), f"x {now / then:.2f}" if then else "-"),
                    f"{statistics.median(costs):.1f}" if costs else "",
                    "" if cost is None else f"{cost:.1f}",
                ).rstrip()
            )
    return "\n".join(lines)
