"""A standalone Spark cluster on this machine: a master and two workers of one core, each on a loopback address of its own.

The addresses make two hosts of them: Spark runs the copy of a slow task on another host only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.waiting import wait_until

MASTER_HOST, *WORKER_HOSTS = "127.0.0.1", "127.0.0.2", "127.0.0.3"
_UP = re.compile(r"Starting Spark master at (spark://\S+)")
_JOINED = "Registering worker"


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Run a cluster that keeps its files in `folder`; the URL of its master."""
    folder.mkdir()
    log = folder / "master.log"
    with ExitStack() as stack:
        stack.enter_context(_started("master.Master", ["--host", MASTER_HOST, "--port", "0", "--webui-port", "0"], log))
        wait_until(f"a master in {log}", lambda: _UP.search(log.read_text()))
        found = _UP.search(log.read_text())
        assert found is not None
        for host in WORKER_HOSTS:
            options = ["--host", host, "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            options += ["--work-dir", str(folder / host), found[1]]
            stack.enter_context(_started("worker.Worker", options, folder / f"{host}.log"))
        wait_until(f"workers in {log}", lambda: log.read_text().count(_JOINED) == len(WORKER_HOSTS))
        yield found[1]


@contextmanager
def _started(name: str, options: list[str], log: Path) -> Iterator[None]:
    """One process of the cluster, until the block ends."""
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process:
        try:
            yield
        finally:
            process.terminate()
