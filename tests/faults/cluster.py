"""Faults that need a Spark of several processes: the real command on a cluster, of which an executor is killed or is slow."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyspark

from tests.faults import workload
from tests.faults.processes import EXECUTORS, below, kill_executor
from tests.faults.target import AT_ROWS
from tests.faults.trial import Line, World
from tests.faults.wire import Verdict
from tests.program import Program, program

MASTER = "local-cluster[2,1,1024]"
"""Two executors of one core and a gigabyte each, as processes of their own."""


def cluster_lines(world: World) -> Iterable[tuple[str, Callable[[], Line]]]:
    """Name of a fault → what tries it."""
    yield "executor lost", partial(lost_executor, world)


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
    folder.mkdir(exist_ok=True)
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part)
    return folder


def lost_executor(world: World) -> Line:
    """One of two executors is killed while rows are written."""
    found = list[Program]()
    return _followed(world, "executor lost", _Once(world, lambda: kill_executor(found[0].process.pid)), found)


def _followed(world: World, name: str, watch: _Once, found: list[Program]) -> Line:
    """The command follows the bucket on a cluster, cut by cut."""
    world.empty()
    world.wire.watch = watch
    bucket, config = world.bucket, world.folder / "changefeed.toml"
    config.write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    arguments = ["--upstream-uri", bucket.uri, "--downstream-uri", world.downstream, "--config", str(config)]
    arguments += ["--spark-master", MASTER, "--flush-interval", "200ms", "--partitions", "4"]
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(_home(world.folder / "spark"))}
    with program(arguments, world.folder / "log", environment=environment) as running:
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
    told = f"tried again {again} times, went on; {executors} executors at the end, exit code {code}"
    kept = watch.fired.is_set() and code == 0 and not wrong
    return Line(
        fault=name, where="while rows are written", outcome="; ".join([told, *wrong]), equal=not wrong, kept=kept
    )
