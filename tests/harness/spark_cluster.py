"""A standalone Spark cluster on this machine: a master and two workers, each on a loopback address of its own.

The addresses make two hosts of them: Spark runs the copy of a slow task on another host only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.harness.waiting import wait_until

MASTER_HOST, *WORKER_HOSTS = "127.0.0.1", "127.0.0.2", "127.0.0.3"
_UP = re.compile(r"Starting Spark master at (spark://\S+)")
_JOINED = "Registering worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """What the workers run on."""

    cores: int = 1
    """Of each worker."""
    within: Sequence[str] = ()
    """A command that starts each of the cluster's processes."""
    spark: Path = Path(pyspark.__file__).parent
    """Spark's home, as it is seen there."""
    environment: Mapping[str, str] = field(default_factory=lambda: {**os.environ, "PYSPARK_PYTHON": sys.executable})

    @contextmanager
    def started(self, name: str, options: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """One process of the cluster, until the block ends."""
        environment = {**self.environment, "SPARK_HOME": str(self.spark), "SPARK_NO_DAEMONIZE": "1"}
        command = [*self.within, str(self.spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
        with (
            log.open("w") as output,
            subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process,
        ):
            try:
                yield process
            finally:
                process.terminate()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster that runs."""

    master: str
    """What ``--spark-master`` takes."""
    workers: Sequence[int]
    """Their processes; executors are below them."""


@contextmanager
def spark_cluster(folder: Path, machines: Machines | None = None) -> Iterator[Cluster]:
    """Run a cluster that keeps its files in `folder`."""
    machines = machines or Machines()
    folder.mkdir()
    log = folder / "master.log"
    with ExitStack() as stack:
        options = ["--host", MASTER_HOST, "--port", "0", "--webui-port", "0"]
        stack.enter_context(machines.started("master.Master", options, log))
        wait_until(f"a master in {log}", lambda: _UP.search(log.read_text()))
        found = _UP.search(log.read_text())
        assert found is not None
        workers = []
        for host in WORKER_HOSTS:
            options = ["--host", host, "--port", "0", "--webui-port", "0", "--memory", "1g"]
            options += ["--cores", str(machines.cores), "--work-dir", str(folder / host), found[1]]
            workers.append(stack.enter_context(machines.started("worker.Worker", options, folder / f"{host}.log")).pid)
        wait_until(f"workers in {log}", lambda: log.read_text().count(_JOINED) == len(WORKER_HOSTS))
        yield Cluster(master=found[1], workers=workers)
