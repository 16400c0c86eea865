"""The lines that apply a backlog: an empty target, one round, the final state; each beside its reference, in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from tests.benchmarks.bucket import Bucket, Order
from tests.benchmarks.limit import load_final_state, make_tables
from tests.benchmarks.measuring import Applied, Asked, Bench
from tests.benchmarks.results import COST, Goal, Result, Run
from tests.benchmarks.sampling import Stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """One line."""

    bucket: Bucket
    unit: str
    against: str
    goal: Goal
    units: float
    """What one run of the program gets done, in `unit`, the seconds left out."""
    reference: Callable[[], float]
    """Measures the reference: in `unit` a second."""
    run: Callable[[bool], Applied]
    """Runs the program; whether profiled."""


def measured(name: str, backlog: Backlog, asked: Asked) -> Result:
    """Reference and program in turns, then perhaps one profiled run."""
    bucket, runs = backlog.bucket, []
    for _ in range(asked.runs):
        reference = backlog.reference()
        applied = backlog.run(False)  # noqa: FBT003 - not profiled
        runs.append(
            Run(
                figure=backlog.units / applied.seconds,
                reference=reference,
                usage=applied.usage,
                more={
                    "seconds": applied.seconds,
                    "events_per_second": bucket.events / applied.seconds,
                    "final_rows_per_second": bucket.rows / applied.seconds,
                    "seconds_per_1000_files": 1000 * applied.seconds / bucket.files,
                    "events_over_reference": bucket.events / applied.seconds / reference,
                    "statements_seconds": applied.statements,
                    COST: 1e6 * sum(applied.usage.cpu.values()) / bucket.events,
                },
            )
        )
    return Result(
        name=name,
        unit=backlog.unit,
        against=backlog.against,
        goal=backlog.goal,
        runs=runs,
        order={**asdict(bucket.order), "files": bucket.files, "bytes": bucket.size, "final_rows": bucket.rows},
        stages=_stages(backlog.run(True)) if asked.profiled else {},  # noqa: FBT003 - profiled
    )


def _stages(applied: Applied) -> Stages:
    """CPU seconds by stage of all processes: Python's as sampled, the JVM's for the shuffle, the server's for writing."""
    stages, cpu = dict(applied.stages), applied.usage.cpu
    python = sum(stages.values())
    stages["write (server)"] = cpu["server"]
    stages["shuffle (JVM)"] = cpu["jvm"]
    stages["other"] = max(0.0, cpu["driver"] + cpu["workers"] - python)
    return stages


def against_load_data(bench: Bench, order: Order, goal: float) -> Backlog:
    """Final rows a second, against LOAD DATA of the same rows over two connections."""
    bucket, server = bench.bucket(order), bench.server
    return Backlog(
        bucket=bucket,
        unit="final rows/s",
        against="LOAD DATA, 2 connections",
        goal=Goal(value=goal),
        units=bucket.rows,
        reference=lambda: bucket.rows / load_final_state(bucket, server),
        run=lambda profiled: bench.apply(bucket, profiled=profiled),
    )


def against_mixed(bench: Bench, order: Order, goal: float, *, apart: bool = False) -> Backlog:
    """Values (events times columns) a second, against those of the mixed case in CSV with about as many.

    `apart`: the statements that make the tables do not count.
    """
    bucket = bench.bucket(order)
    columns = len(order.shape.columns)
    mixed = Order(events=order.events, protocol="csv", profile="mixed", seed=order.seed)
    usual = len(mixed.shape.columns)
    plain = bench.bucket(replace(mixed, events=order.events * columns // usual))

    def reference() -> float:
        return plain.events * usual / bench.apply(plain, apart=apart).seconds

    return Backlog(
        bucket=bucket,
        unit="values/s",
        against="mixed CSV",
        goal=Goal(value=goal),
        units=bucket.events * columns,
        reference=reference,
        run=lambda profiled: bench.apply(bucket, profiled=profiled, apart=apart),
    )


def many_tables(name: str, bench: Bench, asked: Asked) -> Sequence[Result]:
    """Rows of many tables against those of one; and apart from them the statements, against the same without the program."""
    order = replace(asked.order("csv", "mixed"), tables=asked.tables)
    backlog = against_mixed(bench, order, 0.5, apart=True)
    rows = measured(name, backlog, asked)
    statements = [
        Run(
            figure=asked.tables / run.more["statements_seconds"],
            reference=asked.tables / make_tables(backlog.bucket, bench.server),
        )
        for run in rows.runs
    ]
    return [rows, Result(name=f"{name}: CREATE TABLE", unit="tables/s", against="one connection", runs=statements)]
