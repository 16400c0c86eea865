"""A process of the program on the twins, and what befalls it at its calls: the real service, round, workers and runner."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from storage_consumer.bucket.reader import StorageReader
from storage_consumer.clock import Clock
from storage_consumer.config.settings import Config, CsvOptions, Downstream, Limits, Selecting, Tuning, Upstream
from storage_consumer.config.settings import Loading as LoadSettings
from storage_consumer.config.settings import Protocol as Protocols
from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.driver.lease import Renewal
from storage_consumer.driver.ledger import RoundContext
from storage_consumer.driver.open_copies import FIRST_RATE, LoadingState
from storage_consumer.driver.service import ConsumerService
from storage_consumer.errors import TargetUnavailable
from storage_consumer.plan.journal_entry import DdlAnswer
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import DdlStep
from storage_consumer.ports import Lease
from storage_consumer.rows.halves import RowWriter
from storage_consumer.rows.spec import JobSpec, TablePlan
from storage_consumer.summary import RoundSummary
from storage_consumer.target.ddl.runner import DdlRunner
from storage_consumer.telemetry import listen
from tests.campaigns.simulation.faults import Crash, Fault, fits, no_answer
from tests.campaigns.simulation.judge import Judge
from tests.campaigns.simulation.retries import Retries
from tests.campaigns.simulation.sink import Habits
from tests.campaigns.simulation.twins import (
    Differs,
    FencedWriter,
    LaggingStorage,
    OwnedTarget,
    Records,
    RetryingPipeline,
)
from tests.harness.small_bucket import ts
from tests.harness.twins.state import MemoryState
from tests.harness.twins.storage import FakeClock
from tests.harness.twins.target import FACTS
from tests.unit.driving import Stop, each_watched

UPSTREAMS: Mapping[Protocols, Upstream] = {
    "csv": Upstream(scheme="file", root="/bucket", protocol="csv", csv=CsvOptions(include_commit_ts=True)),
    "canal-json": Upstream(scheme="file", root="/bucket", protocol="canal-json", enable_tidb_extension=True),
}
TTL = 4.0
"""Seconds of a lease."""
_AGES = 1e9
# What takes too long for an operator never does here: what is waited for comes.
_TUNING = Tuning(partitions=2, lease_ttl=TTL, gap_timeout=_AGES, ddl_at_checkpoint_wait=_AGES)
CONFIGS = {
    protocol: Config(upstream=upstream, downstream=Downstream(), tuning=_TUNING)
    for protocol, upstream in UPSTREAMS.items()
}


class World(Protocol):
    """What a process needs of its history."""

    records: Records
    clock: FakeClock
    judge: Judge
    habits: Habits

    @property
    def storage(self) -> LaggingStorage:
        """The bucket."""
        ...

    def meanwhile(self, kind: str, process: Process) -> None:
        """Something happens while the process is at a call."""

    def tell(self, text: str) -> None:
        """One more line of the story."""

    def befalls(self, kind: str, text: str) -> None:
        """A fault is due."""

    def put_off(self, late: Callable[[], object], process: Process, window: tuple[int, int]) -> None:
        """A task of a window goes on though its job has ended."""


class Beat(Renewal):
    """The renewal of a lease without a thread: the calls of its process keep the time."""

    def __init__(self, lease: Lease, ttl: float, clock: Clock) -> None:  # pylint: disable=super-init-not-called
        """The lease was just acquired for so long."""
        self.lost = threading.Event()
        self.fault = None
        self._lease = lease
        self._ttl = ttl
        self._clock = clock
        self._last = clock.monotonic()
        self._failing_since = None

    def beat(self) -> None:
        """Renew if it is time to."""
        now = self._clock.monotonic()
        if now - self._last >= self._ttl / 3 and not self.lost.is_set():
            self._last = now
            if not self._renewed():
                self.lost.set()

    def stop(self) -> None:
        """There is no thread."""


@dataclass(slots=True)
class WorkerClock:
    """The clock by which workers wait: a statement that runs beside its round ends in some wait for it."""

    process: Process

    def monotonic(self) -> float:
        """Seconds that were let pass."""
        return self.process.world.clock.monotonic()

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return self.process.world.clock.now()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Let `seconds` pass, or a statement end."""
        if self.process.deferred and self.process.dice.random() < 0.4:
            self.process.deferred.popleft()()
        return self.process.world.clock.wait(event, seconds)


class WorkerTarget(OwnedTarget):
    """A connection of a DDL worker, which may break while the server executes."""

    def __init__(self, process: Process, worker: int) -> None:
        """Of a process."""
        super().__init__(process.world.records, worker, process.world.judge)
        self._process = process

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Run one statement, or lose the server in the middle of it."""
        process = self._process
        if process.takes("send") and not statement.startswith("CREATE DATABASE"):
            self.send(statement, schema, version, process.dice.randint(1, 3))
            process.world.tell("    the server goes on with a statement alone")
            raise process.dice.choice((Crash(), TargetUnavailable("the connection broke")))
        return super().execute_ddl(statement, schema, version, ignorable)


_AT_WORK: list[Process] = []
"""The process in whose round something happens, after those that are paused in theirs."""
_MOST_CALLS = 20_000
"""Calls in a round, before and after; the longest of a thousand histories has some hundreds."""
LOADER = -1
"""Number of the worker that runs the statements of copies."""


class LoadRunner:
    """Runs the statements of copies, and has the target know of which load each is."""

    def __init__(self, runner: Any, target: WorkerTarget) -> None:
        """On a connection of its own."""
        self._target = target
        self.fence, self.refused, self.close = runner.fence, runner.refused, runner.close
        self._run = runner.run

    def run(self, step: DdlStep, *rest: Any) -> str:
        """Run one statement."""
        self._target.load_id = step.table_dir.split("/")[1]
        found: str = self._run(step, *rest)
        return found


class Watched:
    """Tells of each call of a part, before it begins and after it has ended."""

    def __init__(self, watched: object, tick: Callable[[str, str], None]) -> None:
        """Stand before `watched`; `tick` takes ``before`` or ``after`` and the name of the call."""
        self._watched = watched
        self._tick = tick

    def __getattr__(self, name: str) -> Any:
        """A method that tells, which is made once, or a plain attribute."""
        found = getattr(self._watched, name)
        if not callable(found):
            return found
        tick, place = self._tick, f"{type(self._watched).__name__}.{name}"

        def call(*args: Any, **kwargs: Any) -> Any:
            tick("before", place)
            result = found(*args, **kwargs)
            tick("after", place)
            return result

        self.__dict__[name] = call
        return call


class Task:
    """A writer whose calls may come much later than its job thinks."""

    def __init__(self, writer: RowWriter, process: Process, window: tuple[int, int]) -> None:
        """In a process; `window`: its owner's epoch and its id."""
        self._writer = writer
        self._process = process
        self._window = window

    def __getattr__(self, name: str) -> Any:
        """A method of the writer."""
        write = getattr(self._writer, name)

        def call(work: TablePlan, *batches: Iterable[Any]) -> Any:
            if self._process.takes("late"):
                self._process.world.put_off(lambda: write(work, *batches), self._process, self._window)
                raise TargetUnavailable("the executor was lost")
            return write(work, *batches)

        return call


@dataclass(slots=True, eq=False)
class Process:
    """A process, from its start to whatever ends it."""

    world: World
    number: int
    dice: random.Random
    protocol: Protocols
    slow_workers: bool
    """Statements run beside their round."""
    limits: Limits = field(default_factory=Limits)
    """Where its rounds end before everything is done."""
    dump: str = ""
    """The copy that a new feed begins with."""
    loads: bool = False
    """It can load tables."""
    faults: list[Fault] = field(default_factory=list)
    deferred: deque[Callable[[], None]] = field(default_factory=deque)
    """Statements that run beside the round."""
    notices: bool = True
    """Its renewal runs; a process that wakes up may go on for a while before it does."""
    service: ConsumerService = field(init=False)
    ddl_workers: DdlWorkers = field(init=False)
    _calls: int = 0
    """In this round."""
    _state: MemoryState = field(init=False)
    _pending: list[str] = field(default_factory=list)
    _retries: Retries = field(init=False)

    def __post_init__(self) -> None:
        """A new service with parts of its own."""
        world = self.world
        self._state = MemoryState(world.records, world.clock)
        self._retries = Retries(world.clock)
        state = each_watched(self._state, self._watched)

        def runner(number: int) -> Any:
            database = self._watched(WorkerTarget(self, number))
            return self._watched(DdlRunner(database, state.journal, FACTS.server_type, clock=world.clock))

        self.ddl_workers = DdlWorkers(runner, WorkerClock(self), self._spawn)
        self.service = ConsumerService(self.config, state, lambda manager: self._context(manager, state), world.clock)
        self.service._me = f"process {self.number}"

    @property
    def config(self) -> Config:
        """Its settings."""
        loading = LoadSettings(dump=self.dump, start_ts=ts(0) if self.dump else 0)
        selecting = Selecting(routes=self.world.records.places.routes)
        plain = CONFIGS[self.protocol]
        upstream = self.world.habits.selectors.upstream(plain.upstream)
        return replace(plain, upstream=upstream, limits=self.limits, loading=loading, selecting=selecting)

    @property
    def epoch(self) -> int:
        """Of its lease."""
        return self._state.lease.epoch

    def _context(self, manager: ConsumerManager, state: Any) -> RoundContext:
        world, storage, config = self.world, self._watched(self.world.storage), self.config
        return RoundContext(
            config=config,
            reader=StorageReader(
                storage, config.upstream, world.clock, full_listing_interval=config.tuning.full_listing_interval
            ),
            manager=manager,
            state=state,
            target=self._watched(OwnedTarget(world.records, None, world.judge)),
            ddl_workers=self.ddl_workers,
            pipeline=self._watched(
                RetryingPipeline(storage, config.upstream, self._writer, self.dice, world.records.exports.storage_of)
            ),
            server_info=FACTS,
            progress=self._retries.recorder,
            clock=world.clock,
            secrets_file="",
            loading=self._loading(state) if self.loads else None,
        )

    def _loading(self, state: Any) -> LoadingState:
        """What loads tables, with nothing loaded yet."""
        records, clock = self.world.records, self.world.clock
        target = WorkerTarget(self, LOADER)
        database = self._watched(target)
        runner = self._watched(DdlRunner(database, state.journal, FACTS.server_type, clock=clock))
        return LoadingState(
            open_copy=self._watched(records.exports).open,
            ddl=LoadRunner(runner, target),
            has_rows=lambda name: bool(records.rows.get(records.places.name(name).folded())),
            is_ours=lambda _: True,
            # A part or two at first, or all at once.
            rate=self.dice.choice((1.0, FIRST_RATE)),
        )

    def _writer(self, spec: JobSpec) -> Any:
        return Task(self._watched(FencedWriter(self.world.records, spec)), self, (spec.epoch, spec.window_id))

    def _spawn(self, work: Callable[[], None]) -> None:
        if self.slow_workers and self.dice.random() < 0.5:
            self.deferred.append(work)
        else:
            work()

    def _watched(self, part: object) -> Any:
        return Watched(part, self._tick)

    def round(self, *, once: bool = False) -> RoundSummary | None:
        """One round, tried again where something does not answer."""
        self._calls, end = 0, listen(self._heard)
        _AT_WORK.append(self)
        try:
            return self._rounds(once=once)
        finally:
            end()
            _AT_WORK.pop()

    def _heard(self, event: str, _: int, fields: Mapping[str, object]) -> None:
        """Hear of an event, unless it is one of a process that works while this one is paused."""
        if _AT_WORK[-1] is self:
            self._retries.heard(event, fields)

    def _rounds(self, *, once: bool) -> RoundSummary | None:
        service, stop = self.service, Stop()
        found = service._persistently(lambda: service._round(stop, once=once), stop)
        # As `run_once` does it.
        while once and found is not None and service._goes_on:
            again = service._persistently(lambda: service._round(stop, once=once), stop)
            found = again.following(found) if again is not None else found
        return found

    def end(self) -> None:
        """End as one should."""
        self.spare()
        while self.deferred:
            self.deferred.popleft()()
        self.service.close()

    # what befalls it

    def spare(self) -> None:
        """Nothing befalls it from now on."""
        self.faults, self._pending = [], []

    def takes(self, kind: str) -> bool:
        """Whether a fault of this kind is due now; it is no more afterwards."""
        if kind in self._pending:
            self._pending.remove(kind)
            return True
        return False

    def _tick(self, when: str, call: str) -> None:
        """Told of each call, before it and after it."""
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise Differs("a round does not end")
        self._retries.look()
        if when == "after":
            self.world.judge.called(call, self)
        renewal = self.service._renewal
        if self.notices and isinstance(renewal, Beat):
            renewal.beat()
        for fault in tuple(self.faults) if self.faults else ():
            if fits(fault, when, call):
                fault.left -= 1
                if fault.left <= 0:
                    self.faults.remove(fault)
                    self._befall(fault.kind, when, call)

    def _befall(self, kind: str, when: str, call: str) -> None:
        self.world.befalls(kind, f"    {when} {call} of process {self.number}: {kind}")
        if kind == "crash":
            raise Crash
        if kind in ("lost", "away"):
            raise no_answer(call)
        if kind in ("late", "send"):
            self._pending.append(kind)
        else:
            self.world.meanwhile(kind, self)
