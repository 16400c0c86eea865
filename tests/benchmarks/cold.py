"""From the start of the command to the first row in the target."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pymysql.err

from tests.benchmarks.bucket import Bucket, Order
from tests.benchmarks.limit import WrongResult, check
from tests.benchmarks.measuring import Asked, Bench
from tests.benchmarks.results import Goal, Result, Run
from tests.benchmarks.shapes import DATABASE
from tests.benchmarks.watching import watched
from tests.harness.program import program
from tests.harness.servers import DatabaseServer
from tests.harness.waiting import PATIENCE

_EVENTS = 10_000
_PAUSE = 0.02


def measure_cold(name: str, bench: Bench, asked: Asked) -> Sequence[Result]:
    """The real command, each run in a process of its own, over a bucket with a few rows."""
    order = Order(events=min(_EVENTS, asked.events), protocol="csv", profile="mixed", seed=asked.seed)
    bucket, server = bench.bucket(order), bench.server
    return [
        Result(
            name=f"{name}: first row",
            unit="s",
            against="Spark's own start",
            goal=Goal(value=15.0, at_least=False, ratio=False),
            runs=[_run(bucket, server, bench.folder) for _ in range(asked.runs)],
        )
    ]


def _run(bucket: Bucket, server: DatabaseServer, folder: Path) -> Run:
    server.drop_all()
    home = Path(tempfile.mkdtemp(prefix="cold-", dir=folder))
    arguments = ["--upstream-uri", bucket.uri, "--downstream-uri", server.uri, "--once"]
    if bucket.order.protocol == "csv":
        (home / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
        arguments += ["--config", str(home / "changefeed.toml")]
    began = time.monotonic()
    with program(arguments, home / "log") as running, watched(running.process.pid) as usage:
        seconds = _first_row(server, began)
        if code := running.end():
            raise WrongResult(f"the program ended with exit code {code}: {running.text()[-2000:]}")
        whole = time.monotonic() - began
        session = float(running.wait_for("spark_started")["seconds"])
    check(bucket.final, server, bucket.order.shape.checksum)
    return Run(figure=seconds, reference=session, usage=usage, more={"seconds": whole})


def _first_row(server: DatabaseServer, began: float) -> float:
    """When a row is seen, in seconds after `began`."""
    with server.connect() as connection, connection.cursor() as cursor:
        while (now := time.monotonic() - began) < PATIENCE:
            found = 0
            with suppress(pymysql.err.ProgrammingError):  # there is no table yet
                found = cursor.execute(f"SELECT 1 FROM {DATABASE}.t0001 LIMIT 1")
            if found:
                return now
            time.sleep(_PAUSE)
    raise WrongResult(f"no row within {PATIENCE} s")
