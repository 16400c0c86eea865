"""Spark's daemon of Python workers, whose workers sample themselves while there is a file ``on`` in a folder.

Spark starts it in place of its own where ``spark.python.daemon.module`` says so. After each task a worker writes what it has
used so far into ``PID.json`` in that folder. A worker waits inside of a call for its next task, so it looks for the file whenever
it is to sample: a few microseconds for every few milliseconds of CPU time.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from types import FrameType

from pyspark import daemon

from tests.benchmarks.sampling import WORKER_STAGES, Sampler

FOLDER = "BENCHMARK_SAMPLES"
"""Environment variable: the folder."""
_original = daemon.worker


class _Switched(Sampler):
    """Samples while the file is there; one that was made anew is another run, which begins at zero."""

    def __init__(self) -> None:
        super().__init__(WORKER_STAGES, "shuffle")
        self.folder = Path(os.environ[FOLDER])
        self.run = 0
        """Time at which the file was made, 0 while there is none."""

    def look(self, interrupted: FrameType | None) -> None:
        try:
            run = (self.folder / "on").stat().st_mtime_ns
        except FileNotFoundError:
            run = 0
        if run != self.run:
            self.run, self.seconds, self.clocks = run, {}, {}
        if run:
            super().look(interrupted)


_samplers: dict[int, _Switched] = {}
"""By process: a worker that was just forked has none yet."""


def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - as Spark calls it
    """One task."""
    sampler = _samplers.get(os.getpid())
    if sampler is None:
        sampler = _samplers[os.getpid()] = _Switched()
        sampler.start()
    try:
        return _original(sock, authenticated)
    finally:
        if sampler.run:
            (sampler.folder / f"{os.getpid()}.json").write_text(json.dumps(sampler.seconds), encoding="utf-8")


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
