"""What all lines of the table are measured with: a server, a warm session, and one checked run of the program."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from storage_consumer import Consumer
from storage_consumer.config.settings import Tuning
from storage_consumer.spark.spark_session import open_session
from tests.benchmarks.bucket import Bucket, Order, write_bucket, write_metadata
from tests.benchmarks.limit import WrongResult, check
from tests.benchmarks.sampled_workers import FOLDER
from tests.benchmarks.sampling import Stages, sampled
from tests.benchmarks.scraping import scraped
from tests.benchmarks.watching import Usage, watched
from tests.harness import servers
from tests.harness.servers import DatabaseServer

SERVER_OPTIONS = ("--innodb-buffer-pool-size=2G", "--innodb-log-file-size=96M")
"""MariaDB's own settings for safety and the size of its log, with memory for all rows."""
WARM_UP = 50_000
"""Row changes after which a session is warm."""
_SUBMIT = "--conf spark.python.daemon.module=tests.benchmarks.sampled_workers pyspark-shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks for."""

    events: int
    runs: int
    tables: int
    """Of line tables, and of the rounds that touch many."""
    files: int
    """Of line tiny."""
    stored: tuple[int, ...]
    """Of line idle: numbers of files in a local folder."""
    stored_remote: tuple[int, ...]
    """The same in S3, where each takes milliseconds to fetch."""
    cycles: int
    """Of line rounds: how often each kind of round is measured."""
    seed: int
    profiled: bool
    """Whether each backlog is applied once more to see where the CPU time goes."""

    def order(self, protocol: str, profile: str) -> Order:
        """A backlog of all events."""
        return Order(events=self.events, protocol=protocol, profile=profile, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """One run of the program, checked."""

    seconds: float
    """To the final state."""
    usage: Usage
    """Of the same time."""
    statements: float = 0.0
    """Seconds before that in which the tables were made; 0 where that is part of `seconds`."""
    stages: Stages = field(default_factory=dict)
    """CPU seconds of Python by stage, where it was asked for."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """What is started when it is first needed, and kept for all lines that are asked for."""

    folder: Path
    """For buckets and other files; emptied by its owner."""
    stack: ExitStack
    """Ends what was started."""
    warm_up: int
    """Row changes that a fresh session applies before anything is measured."""
    scraped: bool = False
    """Whether consumers show metrics and page, and somebody asks for them all the time."""
    _buckets: dict[Order, Bucket] = field(default_factory=dict)
    _started: dict[str, Any] = field(default_factory=dict)

    def started(self, name: str, start: Callable[[], AbstractContextManager[Any]]) -> Any:
        """Something that ends with the bench, started once."""
        if name not in self._started:
            self._started[name] = self.stack.enter_context(start())
        return self._started[name]

    @property
    def server(self) -> DatabaseServer:
        """MariaDB."""
        server: DatabaseServer = self.started("mariadb", lambda: servers.mariadb(innodb=SERVER_OPTIONS))
        return server

    @property
    def session(self) -> SparkSession:
        """A session of the program's own making that has done some work."""
        if "session" not in self._started:
            self.started("session", lambda: _session(self.folder))
            self.apply(self.bucket(Order(events=self.warm_up, protocol="csv", profile="mixed", tables=2)))
        session: SparkSession = self._started["session"]
        return session

    @property
    def listen(self) -> str:
        """Where consumers show metrics and page; empty if they don't."""
        return self.started("scraper", lambda: _scraped(self.folder)) if self.scraped else ""

    def versions(self) -> dict[str, str]:
        """Of the servers that were started."""
        started = {name: each for name, each in self._started.items() if isinstance(each, DatabaseServer)}
        return {name: server.version for name, server in started.items()}

    def bucket(self, order: Order) -> Bucket:
        """The bucket of an order, written once; in another process, so that its memory is not counted as the driver's."""
        if order not in self._buckets:
            folder = Path(tempfile.mkdtemp(prefix=f"{order.profile}-", dir=self.folder))
            writer = self.started("writer", lambda: ProcessPoolExecutor(1, mp_context=get_context("spawn")))
            self._buckets[order] = writer.submit(write_bucket, order, folder).result()
        return self._buckets[order]

    def apply(self, bucket: Bucket, *, profiled: bool = False, apart: bool = False) -> Applied:
        """One round from an empty target to the final state, in the session.

        `profiled`: see where the CPU time goes; `apart`: an earlier round makes the tables.
        """
        self.session  # noqa: B018 - started before the clock
        server = self.server
        server.drop_all()
        stages: Stages = {}
        with Consumer(
            upstream_uri=bucket.uri, downstream_uri=server.uri, config=bucket.config, metrics_listen=self.listen
        ) as consumer:
            statements = _made(bucket, consumer) if apart else 0.0
            with watched() as usage, ExitStack() as stack:
                if profiled:
                    stages = stack.enter_context(sampled(self.folder))
                began = time.monotonic()
                rows = consumer.run_once().rows
                seconds = time.monotonic() - began
        if rows != bucket.events:
            raise WrongResult(f"the round took {rows} row changes into account, not {bucket.events}")
        check(bucket.final, server, bucket.order.shape.checksum)
        return Applied(seconds=seconds, usage=usage, statements=statements, stages=stages)


def _made(bucket: Bucket, consumer: Consumer) -> float:
    """Have the tables made, with no row to be applied yet; the seconds."""
    write_metadata(bucket.root, bucket.created)
    began = time.monotonic()
    consumer.run_once()
    seconds = time.monotonic() - began
    write_metadata(bucket.root, bucket.checkpoint)
    return seconds


@contextmanager
def bench(folder: Path, warm_up: int, *, scraped: bool = False) -> Iterator[Bench]:
    """A bench that ends with the block."""
    with ExitStack() as stack:
        yield Bench(folder=folder, stack=stack, warm_up=warm_up, scraped=scraped)


@contextmanager
def _scraped(folder: Path) -> Iterator[str]:
    """An address at which somebody asks."""
    address = f"127.0.0.1:{servers.free_port()}"
    with scraped(address, folder / "answers"):
        yield address


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    """The program's own local session, whose workers look into `folder` whether they are to be sampled."""
    os.environ[FOLDER] = str(folder)
    os.environ["PYSPARK_SUBMIT_ARGS"] = _SUBMIT
    session, owned = open_session(Tuning())
    try:
        yield session
    finally:
        if owned:
            session.stop()
        del os.environ["PYSPARK_SUBMIT_ARGS"], os.environ[FOLDER]
