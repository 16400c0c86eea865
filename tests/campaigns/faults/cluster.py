"""Faults that need a Spark of several processes: the real command on a cluster, of which an executor is killed or is slow."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyspark

from tests.campaigns.faults import workload
from tests.campaigns.faults.processes import EXECUTORS, below, kill_executor
from tests.campaigns.faults.target import AT_ROWS
from tests.campaigns.faults.trial import Line, World
from tests.campaigns.faults.wire import Verdict
from tests.harness.program import Program, program
from tests.harness.spark_cluster import spark_cluster

_SLOW = 8.0
"""Seconds."""
MASTER = "local-cluster[2,1,1024]"
"""Two executors of one core and a gigabyte each, as processes of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """Where the command's tasks run."""

    master: str = MASTER
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of Spark."""


def cluster_lines(world: World) -> Iterable[tuple[str, Callable[[], Line]]]:
    """Name of a fault → what tries it."""
    yield "executor lost", partial(lost_executor, world)
    yield "a task so slow that Spark starts a copy of it", partial(slow_task, world)


@dataclass(slots=True)
class _Once:
    """A watch that does something at the first writing of the second round, and then keeps out of the way."""

    world: World
    act: Callable[[], object]
    fired: threading.Event = field(default_factory=threading.Event)

    def __call__(self, command: str) -> Verdict:
        if self.world.cut == 1 and re.match(AT_ROWS, command) and not self.fired.is_set():
            self.fired.set()
            self.act()
        return Verdict.PASS


def _home(folder: Path) -> Path:
    """A Spark of this trial's own, since executors write beside the programs that they come from."""
    if not folder.exists():
        folder.mkdir()
        for part in Path(pyspark.__file__).parent.iterdir():
            if part.name != "work":
                (folder / part.name).symlink_to(part)
    return folder


def lost_executor(world: World) -> Line:
    """One of two executors is killed while rows are written."""
    found = list[Program]()
    return _followed(world, "executor lost", _Once(world, lambda: kill_executor(found[0].process.pid)), found)


def slow_task(world: World) -> Line:
    """One writing task stands still within a transaction, for so long that Spark runs a copy of it on another host."""
    name, history = "a task so slow that Spark starts a copy of it", world.folder / "history"
    history.mkdir()
    copies = {"spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.1"}
    copies |= {"spark.speculation.multiplier": "1.1", "spark.speculation.minTaskRuntime": "200ms"}
    told = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": history.as_uri(),
        "spark.eventLog.compress": "false",
    }
    watch = _Once(world, lambda: time.sleep(_SLOW))
    with spark_cluster(world.folder / "cluster") as cluster:
        line = _followed(world, name, watch, [], _Cluster(master=cluster.master, settings=copies | told))
    events = [file.read_text() for file in history.rglob("*") if file.is_file() and not file.name.endswith(".crc")]
    copied = sum(text.count('"Speculative":true') for text in events)
    outcome = f"{line.outcome}; {copied} events of copies in Spark's log"
    return replace(line, outcome=outcome, kept=line.kept and copied > 0)


def _followed(world: World, name: str, watch: _Once, found: list[Program], cluster: _Cluster | None = None) -> Line:
    """The command follows the bucket on a cluster, cut by cut."""
    cluster = cluster or _Cluster()
    world.empty()
    world.wire.watch = watch
    bucket, config = world.bucket, world.folder / "changefeed.toml"
    config.write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    arguments = ["--upstream-uri", bucket.uri, "--downstream-uri", world.downstream, "--config", str(config)]
    arguments += ["--spark-master", cluster.master, "--flush-interval", "200ms", "--partitions", "4"]
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(_home(world.folder / "spark"))}
    if cluster.settings:
        (conf := world.folder / "conf").mkdir()
        lines = [f"{setting} {value}\n" for setting, value in cluster.settings.items()]
        (conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
        environment["SPARK_CONF_DIR"] = str(conf)
    with program(arguments, world.folder / f"log-{name}".replace(" ", "-"), environment=environment) as running:
        found.append(running)
        for cut in range(workload.CUTS):
            world.cut = cut
            workload.show(bucket, cut)
            running.wait_for("round_finished", checkpoint=workload.CHECKPOINTS[cut])
        executors = len(below(running.process.pid, EXECUTORS))
        running.signal(signal.SIGTERM)
        code = running.end()
    wrong = workload.differences(world.server)
    again = len(running.events("retry"))
    told = f"tried again {again} times, went on, exit code {code}"
    if cluster.master == MASTER:  # their executors are below the program
        told += f"; {executors} executors at the end"
    kept = watch.fired.is_set() and code == 0 and not wrong
    return Line(
        fault=name, where="while rows are written", outcome="; ".join([told, *wrong]), equal=not wrong, kept=kept
    )
