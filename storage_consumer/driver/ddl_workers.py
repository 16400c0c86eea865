"""DdlWorkers: statements in the background, so that a long one holds up only its tables.

Each worker has its own connection and, at the target, its own lock (see
`TargetDatabase.fence_ddl`). Before the first statement of an owner all idle workers are fenced, so
that no former owner's statement can still start. Every decision about a statement, before and after
it, is made by the round, in one thread; a worker only runs it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from storage_consumer.clock import Clock
from storage_consumer.model import DdlId
from storage_consumer.plan.steps import DdlStep
from storage_consumer.ports import Ddl, DdlContext, TableProgress

WORKERS = 4
"""Most parallel statements. Later versions must not have fewer, or some workers stay unfenced."""

_LAST_WAIT = 3.0
"""Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementOutcome:
    """How a statement ended."""

    step: DdlStep
    note: str = ""
    """What was changed in it or found out about it."""
    seconds: float = 0.0
    fault: BaseException | None = None
    """Why it did not take effect, or why that is not known; None if it did."""


@dataclass(frozen=True, slots=True)
class _Job:
    step: DdlStep
    worker: int
    began: float
    moved: frozenset[str]


class DdlWorkers:
    """Runs statements in parallel, beyond a fault of the round, so that none starts twice."""

    def __init__(
        self,
        open_runner: Callable[[int], Ddl],
        clock: Clock,
        spawn: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """Prepare the workers.

        `open_runner` opens the runner of the worker with a number. `spawn` runs a function in the
        background (default: in a new thread).
        """
        self._clock = clock
        self._spawn = spawn or _in_a_thread
        self._runners = [open_runner(number) for number in range(WORKERS)]
        self._jobs: dict[DdlId, _Job] = {}
        # Lock-free hand-over: workers only append here and then set the event; the round's thread
        # alone pops. Appends and pops of a deque are atomic.
        self._ended: deque[StatementOutcome] = deque()
        self._any = threading.Event()
        self._asked: dict[DdlId, float] = {}
        self._fenced_for = -1
        self._fenced = set[int]()
        self._closed = threading.Event()

    def should_continue(self) -> bool:
        """Return whether a worker that waits for something may go on waiting."""
        return not self._closed.is_set()

    @property
    def running(self) -> list[tuple[DdlStep, float]]:
        """Started statements whose end was not collected, each with the seconds since its start."""
        now = self._clock.monotonic()
        # A copy, safe from other threads while it is read: whoever watches the program asks too.
        return [(job.step, now - job.began) for job in list(self._jobs.values())]

    @property
    def moved(self) -> frozenset[str]:
        """Keys of the tables that the `running` statements store at their end, or stored by now."""
        return frozenset[str]().union(*(job.moved for job in self._jobs.values()))

    def overdue(self, seconds: float, every: float) -> list[tuple[DdlStep, float]]:
        """Return statements `running` for `seconds` or more, each once in `every` seconds."""
        now = self._clock.monotonic()
        # Forget those that have ended, or a long-running program would remember each statement that
        # ever took long.
        self._asked = {
            identity: asked for identity, asked in self._asked.items() if identity in self._jobs
        }
        found = [
            (step, since)
            for step, since in self.running
            if since >= seconds and now - self._asked.get(step.identity, now - every) >= every
        ]
        self._asked |= {step.identity: now for step, _ in found}
        return found

    @property
    def is_free(self) -> bool:
        """Whether one more statement may start."""
        return len(self._jobs) < WORKERS

    def fence(self, epoch: int) -> None:
        """End what a former owner may still run; `epoch`: ours; raise `TargetUnavailable`."""
        # A new lease: another process may have been the owner meanwhile, and hold the locks.
        if self._fenced_for != epoch:
            self._fenced_for, self._fenced = epoch, set()
        # A busy one is fenced once it is idle: what it runs may hold no lock, such as a statement
        # that is only recorded.
        for number in self._idle():
            if number not in self._fenced:
                self._runners[number].fence()
                self._fenced.add(number)

    def _idle(self) -> list[int]:
        busy = {job.worker for job in self._jobs.values()}
        return [number for number in range(WORKERS) if number not in busy]

    def start(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> None:
        """Run a statement in the background; record it as done and store `moved` at once."""
        job = _Job(
            step,
            self._idle()[0],
            self._clock.monotonic(),
            frozenset(table.table_key for table in moved),
        )
        self._jobs[step.identity] = job
        self._spawn(lambda: self._run(job, context, moved))

    def _run(self, job: _Job, context: DdlContext, moved: Sequence[TableProgress]) -> None:
        """Run one statement to its end, whatever that is."""
        try:
            note = self._runners[job.worker].run(job.step, context, moved)
        except Exception as fault:  # noqa: BLE001 - the thread that collects it judges it
            self._end(StatementOutcome(step=job.step, fault=fault))
        # The round has to hear of the end even if this thread dies of it.
        except BaseException as end:
            self._end(StatementOutcome(step=job.step, fault=end))
            raise
        else:
            self._end(
                StatementOutcome(
                    step=job.step, note=note, seconds=self._clock.monotonic() - job.began
                )
            )

    def _end(self, outcome: StatementOutcome) -> None:
        self._ended.append(outcome)
        self._any.set()

    def collect(self, seconds: float) -> list[StatementOutcome]:
        """Return what has ended; wait up to `seconds` for the first if something is running."""
        if self._jobs and seconds and not self._ended:
            self._clock.wait(self._any, seconds)
        # Cleared before the queue is read: an outcome that arrives in between sets the event again
        # and is not missed.
        self._any.clear()
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        for outcome in ended:
            del self._jobs[outcome.step.identity]
        return ended

    def close(self) -> None:
        """Close idle connections after a short wait; the next start resolves what still runs."""
        self._closed.set()
        deadline = self._clock.monotonic() + _LAST_WAIT
        # Collected only to wait: nobody applies outcomes now, but each worker journaled its own.
        while self._jobs and (left := deadline - self._clock.monotonic()) > 0:
            self.collect(left)
        for number in self._idle():
            self._runners[number].close()


def _in_a_thread(work: Callable[[], None]) -> None:
    """Run `work` in a daemon thread; what it raises is in its outcome already."""

    def run() -> None:
        with suppress(BaseException):
            work()

    threading.Thread(target=run, name="ddl", daemon=True).start()
