"""Where the CPU time of a Python process goes: every few milliseconds of it, each thread's time is put down to what it is doing.

What it is doing is the innermost function that belongs to the package: of a module that decodes, say, with everything that it
calls elsewhere. The package knows nothing of this; `sampled_workers` brings it into Spark's workers.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import storage_consumer
from tests.benchmarks.watching import THREAD

Stages = dict[str, float]
"""Seconds of CPU time by stage."""
INTERVAL = 0.004
"""Seconds of CPU time between two looks."""
WORKER_STAGES = {"bucket": "read", "decode": "decode", "rows": "fold", "spark": "fold", "target": "write"}
"""Room of the package → stage of a worker; the rest is Spark's: it hands items on, through the shuffle."""
DRIVER_STAGES = {
    "bucket": "list",
    "checkpoint": "state",
    "target": "state",
    "plan": "plan",
    "sql": "plan",
    "rows": "plan",
    "driver": "plan",
}
"""The same for the driver."""
_PACKAGE = str(Path(storage_consumer.__file__).parent)


def add(stages: Stages, more: Mapping[str, float]) -> None:
    """Add to what is there."""
    for stage, seconds in more.items():
        stages[stage] = stages.get(stage, 0.0) + seconds


class Sampler:
    """Adds up seconds by stage while it runs; only the main thread may start and stop it."""

    def __init__(self, stages: Mapping[str, str], rest: str) -> None:
        """`stages`: by room; `rest`: where time outside of them is put down."""
        self.seconds: Stages = {}
        self._stages = stages
        self._rest = rest
        self._known: dict[CodeType, str] = {}
        self.clocks: dict[int, float] = {}

    def start(self) -> None:
        """Begin, or go on."""
        self.look(None)
        signal.signal(signal.SIGPROF, lambda _, frame: self.look(frame))
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def stop(self) -> None:
        """Look no more."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)

    def look(self, interrupted: FrameType | None) -> None:
        """Put down what each thread has used since the last look; `interrupted`: what the main thread does."""
        frames = sys._current_frames()
        main = threading.main_thread().ident
        for thread in threading.enumerate():
            number = thread.ident
            if number is None or number not in frames or thread.name == THREAD:
                continue
            try:
                now = time.clock_gettime(time.pthread_getcpuclockid(number))
            except OSError:  # it has just ended
                continue
            frame = interrupted if number == main else frames[number]
            if frame is not None and (spent := now - self.clocks.get(number, now)) > 0:
                add(self.seconds, {self._stage(frame): spent})
            self.clocks[number] = now

    def _stage(self, frame: FrameType | None) -> str:
        while frame is not None:
            code = frame.f_code
            stage = self._known.get(code)
            if stage is None:
                stage = self._known[code] = self._stage_of(code.co_filename)
            if stage:
                return stage
            frame = frame.f_back
        return self._rest

    def _stage_of(self, file: str) -> str:
        """Empty for code outside of the stages."""
        if not file.startswith(_PACKAGE):
            return ""
        part = Path(file).relative_to(_PACKAGE).parts[0].removesuffix(".py")
        return self._stages.get(part, "")


@contextmanager
def sampled(folder: Path) -> Iterator[Stages]:
    """Sample this process as driver, and the workers (see `sampled_workers`) that watch `folder`; seconds by stage.

    Complete behind the block. A process that does nothing is not looked at, so a thread's last few milliseconds are missing.
    """
    for old in folder.glob("*.json"):
        old.unlink()
    switch = folder / "on"
    switch.touch()
    sampler = Sampler(DRIVER_STAGES, "plan")
    sampler.start()
    try:
        yield sampler.seconds
    finally:
        sampler.stop()
        switch.unlink()
        for part in folder.glob("*.json"):
            add(sampler.seconds, json.loads(part.read_text(encoding="utf-8")))
