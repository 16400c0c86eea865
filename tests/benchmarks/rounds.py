"""What a running consumer's small rounds cost, beyond a round in which nothing but the checkpoint has moved."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

from pyspark.sql import SparkSession

from storage_consumer import Consumer
from tests.benchmarks.growing import GrowingBucket
from tests.benchmarks.limit import WrongResult
from tests.benchmarks.measuring import Asked, Bench
from tests.benchmarks.results import Goal, Result, Run
from tests.benchmarks.watching import Usage, watched

_ROWS_OF_MANY = 5
_WARM_UP = 3
"""Cycles that do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A sort of round."""

    name: str
    tables: int
    """How many tables get a file; 0: nothing but the checkpoint moves."""
    rows: int
    """In each of these files."""
    goal: Goal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """One measured round."""

    kind: _Kind
    seconds: float
    cpu: float
    """Of the driver, seconds."""


def _at_most(seconds: float) -> Goal:
    return Goal(value=seconds, at_least=False, ratio=False)


def measure_rounds(name: str, bench: Bench, asked: Asked) -> Sequence[Result]:
    """Kinds of rounds in turns, each right after an idle one; a consumer that keeps running."""
    many = min(200, asked.tables)
    idle = _Kind(name="idle", tables=0, rows=0)
    kinds = (
        _Kind(name="10 rows", tables=1, rows=10, goal=_at_most(0.3)),
        _Kind(name="200 rows", tables=1, rows=200),
        _Kind(name=f"{many} tables", tables=many, rows=_ROWS_OF_MANY, goal=_at_most(1.5)),
    )
    server, session = bench.server, bench.session
    server.drop_all()
    bucket = GrowingBucket(Path(tempfile.mkdtemp(prefix="rounds-", dir=bench.folder)), many, asked.seed)
    in_turns = [*chain.from_iterable(zip(repeat(idle), kinds))]
    jobs: list[float] = []
    rounds: list[_Round] = []
    with (
        Consumer(
            upstream_uri=bucket.uri, downstream_uri=server.uri, config=bucket.config, metrics_listen=bench.listen
        ) as consumer,
        watched() as usage,
    ):
        consumer.run_once()
        for _ in range(_WARM_UP + asked.cycles):
            rounds += [_round(bucket, consumer, kind) for kind in in_turns]
            jobs.append(_seconds(lambda: _bare_job(session)))
        last = consumer.run_once()
    if last.halted:
        raise WrongResult(f"{last.halted[0].table} halted: {last.halted[0].error}")
    bucket.check(server)
    rounds = rounds[_WARM_UP * len(in_turns) :]
    still = [each for each in rounds if each.kind is idle]
    usual, job = (statistics.median(s) for s in ([each.seconds for each in still], jobs[_WARM_UP:]))
    return [
        _result(f"{name}: idle", still, usage=usage),
        *(
            _result(
                f"{name}: {kind.name} over idle", [each for each in rounds if each.kind is kind], idle=usual, job=job
            )
            for kind in kinds
        ),
    ]


def _round(bucket: GrowingBucket, consumer: Consumer, kind: _Kind) -> _Round:
    """Grow the bucket, then one round; only that is measured."""
    bucket.grow(bucket.tables[: kind.tables], kind.rows)
    cpu = time.process_time()
    seconds = _seconds(lambda: _expect(consumer.run_once().rows, kind.tables * kind.rows))
    return _Round(kind=kind, seconds=seconds, cpu=time.process_time() - cpu)


def _expect(rows: int, expected: int) -> None:
    if rows != expected:
        raise WrongResult(f"a round took {rows} row changes into account, not {expected}")


def _seconds(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def _bare_job(session: SparkSession) -> None:
    """The smallest job that runs Python in two tasks with a shuffle between: what Spark itself costs."""
    context = session.sparkContext
    found = context.parallelize([(n, n) for n in range(4)], 2).repartitionAndSortWithinPartitions(2).collect()
    assert len(found) == 4


def _result(
    name: str, rounds: Sequence[_Round], *, idle: float = 0.0, job: float = 0.0, usage: Usage | None = None
) -> Result:
    """Each round less the usual idle one, beside Spark's own job; `usage`: of all rounds together."""
    kind = rounds[0].kind
    return Result(
        name=name,
        unit="s",
        against="a bare Spark job" if job else "-",
        goal=kind.goal,
        runs=[
            Run(
                figure=each.seconds - idle,
                reference=job,
                usage=usage if each is rounds[-1] else None,
                more={"seconds": each.seconds, "driver_cpu_seconds": each.cpu},
            )
            for each in rounds
        ],
        order={"tables": kind.tables, "rows": kind.rows},
    )
