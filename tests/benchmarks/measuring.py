"""The measured runs: the limit and the program, one after the other, each checked."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from storage_consumer import Consumer
from storage_consumer.config.settings import Tuning
from storage_consumer.spark.session import open_session
from tests.benchmarks.bucket import Bucket
from tests.benchmarks.limit import WrongResult, check, load_final_state
from tests.benchmarks.watching import Usage, watched
from tests.servers import DatabaseServer

SERVER_OPTIONS = ("--innodb-buffer-pool-size=2G", "--innodb-log-file-size=96M")
"""MariaDB's own settings for safety and the size of its log, with memory for all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run."""

    seconds: float
    """From an empty target to the final state; without `session`."""
    limit: float
    """Seconds in which the server loads the final state, measured right before."""
    usage: Usage
    session: float = 0.0
    """Seconds that the start of Spark took before; 0 in a session that was running."""

    @property
    def ratio(self) -> float:
        """The limit's share of the run: 1 would be as fast as loading the final rows alone."""
        return self.limit / self.seconds


def warm_runs(bucket: Bucket, server: DatabaseServer, runs: int) -> Iterator[Run]:
    """`runs` runs in one session, after one that does not count."""
    session, _ = open_session(Tuning())
    try:
        for number in range(runs + 1):
            run = _warm(bucket, server)
            if number:
                yield run
    finally:
        session.stop()


def _limit(bucket: Bucket, server: DatabaseServer) -> float:
    server.drop_all()
    return load_final_state(bucket, server)


def _warm(bucket: Bucket, server: DatabaseServer) -> Run:
    """The limit, then one round into an empty target in the running session."""
    limit = _limit(bucket, server)
    with watched() as usage:
        began = time.monotonic()
        with Consumer(upstream_uri=bucket.uri, downstream_uri=server.uri, config=bucket.config) as consumer:
            summary = consumer.run_once()
        seconds = time.monotonic() - began
    _check(bucket, server, summary.rows)
    return Run(seconds=seconds, limit=limit, usage=usage)


def cold_run(bucket: Bucket, server: DatabaseServer) -> Run:
    """One run in a fresh process."""
    limit = _limit(bucket, server)
    command = [sys.executable, "-m", "tests.benchmarks.cold", bucket.uri, server.uri, json.dumps(bucket.config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, watched(process.pid) as usage:
        output = process.communicate()[0]
    if process.returncode:
        raise WrongResult(f"the process ended with exit code {process.returncode}")
    times = json.loads(output.splitlines()[-1])
    _check(bucket, server, times["rows"])
    return Run(seconds=times["seconds"], limit=limit, usage=usage, session=times["session"])


def _check(bucket: Bucket, server: DatabaseServer, rows: int) -> None:
    if rows != bucket.order.events:
        raise WrongResult(f"the round took {rows} row changes into account, not {bucket.order.events}")
    check(bucket.final, server)
