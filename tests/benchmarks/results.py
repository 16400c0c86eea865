"""What a line of the table says: a figure of the program beside a reference from the same run, and whether that reaches the goal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.sampling import Stages
from tests.benchmarks.watching import Usage

MIB = 1 << 20
COST = "cpu_microseconds_per_event"
"""Name of a figure of a run: all processes' CPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run."""

    figure: float
    reference: float
    """Measured right before, in the same unit; 0 where there is none."""
    more: Mapping[str, float] = field(default_factory=dict)
    """Whatever else is worth keeping, by a name that ends in its unit."""
    usage: Usage | None = None

    @property
    def ratio(self) -> float:
        """Figure over reference; 0 where there is none."""
        return self.figure / self.reference if self.reference else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What the figure, or its ratio to the reference, has to reach."""

    value: float
    at_least: bool = True
    ratio: bool = True
    """Whether the ratio is judged, not the figure."""

    def is_met(self, found: float) -> bool:
        """Whether it is reached; the border counts."""
        return found >= self.value if self.at_least else found <= self.value

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of the table."""

    name: str
    unit: str
    """Of figure and reference."""
    against: str
    """What the reference is."""
    runs: Sequence[Run]
    goal: Goal | None = None
    order: Mapping[str, Any] = field(default_factory=dict)
    """What was measured."""
    stages: Stages = field(default_factory=dict)
    """CPU seconds by stage, of one more run."""

    @property
    def figure(self) -> float:
        """Median."""
        return statistics.median(run.figure for run in self.runs)

    @property
    def reference(self) -> float:
        """Median."""
        return statistics.median(run.reference for run in self.runs)

    @property
    def ratio(self) -> float:
        """Median of the runs' ratios."""
        return statistics.median(run.ratio for run in self.runs)

    @property
    def judged(self) -> float:
        """What is compared with the goal."""
        return self.ratio if self.goal is None or self.goal.ratio else self.figure

    @property
    def verdict(self) -> str:
        """Whether the goal is reached; empty without one."""
        return "" if self.goal is None else "yes" if self.goal.is_met(self.judged) else "no"

    def more(self, name: str) -> float | None:
        """Median of one of the other figures; None where runs have none."""
        values = [run.more[name] for run in self.runs if name in run.more]
        return statistics.median(values) if values else None

    def document(self) -> dict[str, Any]:
        """Everything, for a file; sizes in bytes, times in seconds."""
        return {
            "name": self.name,
            "unit": self.unit,
            "against": self.against,
            "goal": None if self.goal is None else str(self.goal),
            "judged": None if self.goal is None else "ratio" if self.goal.ratio else "figure",
            "reached": self.verdict,
            "figure": self.figure,
            "reference": self.reference,
            "ratio": self.ratio,
            "order": dict(self.order),
            "runs": [_run_document(run) for run in self.runs],
            "cpu_seconds_by_stage": {stage: round(seconds, 3) for stage, seconds in self.stages.items()},
        }


def _run_document(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {"figure": run.figure, "reference": run.reference, "ratio": run.ratio, **run.more}
    if run.usage:
        found["cpu_seconds"] = run.usage.cpu
        found["peak_memory"] = memory(run.usage)
    return found


def memory(usage: Usage) -> dict[str, int]:
    """Peaks in bytes."""
    return {
        "driver": usage.driver,
        "jvm": usage.jvm,
        "largest_worker": usage.worker,
        "all_workers": usage.workers,
    }


def memory_lines(results: Sequence[Result]) -> list[Result]:
    """The highest peaks over all lines, against their goals."""
    usages = [run.usage for result in results for run in result.runs if run.usage]
    if not usages:
        return []
    both = max(usage.driver + usage.jvm for usage in usages) / MIB
    worker = max(usage.worker for usage in usages) / MIB
    return [
        Result(
            name=name,
            unit="MiB",
            against="-",
            runs=[Run(figure=size, reference=0.0)],
            goal=Goal(value=goal, at_least=False, ratio=False),
        )
        for name, size, goal in (("memory: driver + JVM", both, 1536), ("memory: largest worker", worker, 512))
    ]
