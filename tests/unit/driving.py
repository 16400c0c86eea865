"""The whole driver over twins: a bucket, a target and a clock in memory, and processes that can be ended at any call."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from storage_consumer.bucket.reader import StorageReader
from storage_consumer.config.settings import Config, CsvOptions, Downstream, Tuning, Upstream
from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.driver.ledger import RoundContext
from storage_consumer.driver.service import ConsumerService
from storage_consumer.model import TableName
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.summary import RoundSummary, Silent, TableSummary
from storage_consumer.target.ddl.runner import DdlRunner
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.twins.records import Row, TargetRecords
from tests.harness.twins.state import MemoryState
from tests.harness.twins.storage import FakeClock, MemoryPipeline, MemoryStorage, in_place
from tests.harness.twins.target import FACTS, MemoryTarget
from tests.harness.twins.writer import FencedWriter

UPSTREAM = Upstream(scheme="file", root="/bucket", protocol="csv", csv=CsvOptions(include_commit_ts=True))
CANAL_UPSTREAM = Upstream(scheme="file", root="/bucket", protocol="canal-json", enable_tidb_extension=True)


_BEGIN = 1_789_990_000.0
"""Seconds of the epoch, less than a day before the first `ts`: so a copy can be as of later than when something was missed."""


class PatientClock(FakeClock):
    """A clock for one thread: the others wait until they are asked to end."""

    def __init__(self) -> None:
        """The thread that makes it is the one."""
        super().__init__(_BEGIN)
        self._owner = threading.current_thread()
        self.waits: list[float] = []
        """How long the one thread waited, each time."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Let `seconds` pass in the one thread; elsewhere wait for `event`."""
        if threading.current_thread() is not self._owner:
            return event.wait()
        self.waits.append(seconds)
        return super().wait(event, seconds)


class Stop:
    """A stop signal for tests."""

    def __init__(self) -> None:
        """Not requested."""
        self.requested = threading.Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBucket(SmallBucket):
    """A `SmallBucket` in memory."""

    root: Path = Path("/bucket")
    storage: MemoryStorage = field(default_factory=MemoryStorage)

    def write(self, path: str, content: str | bytes) -> Path:
        """Write an object."""
        self.storage.put(path, content.encode() if isinstance(content, str) else content)
        return self.root / path


class Watched:
    """Calls `tick` with the name of each call, before it begins and after it has ended."""

    def __init__(self, watched: object, tick: Callable[[str], None]) -> None:
        """Stand before `watched`."""
        object.__setattr__(self, "_watched", watched)
        object.__setattr__(self, "_tick", tick)

    def __getattr__(self, name: str) -> Any:
        """A method that ticks, or a plain attribute."""
        found = getattr(self._watched, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            where = f"{type(self._watched).__name__}.{name}"
            self._tick(f"before {where}")
            result = found(*args, **kwargs)
            self._tick(f"after {where}")
            return result

        return call


def each_watched(state: MemoryState, watched: Callable[[object], Any]) -> Any:
    """A state of which each part is made to tell by `watched`."""
    for part in ("lease", "progress", "journal", "history", "decisions", "loads"):
        setattr(state, part, watched(getattr(state, part)))
    return watched(state)


class World:
    """A bucket and a target, which processes come to and leave."""

    def __init__(self, protocol: Literal["csv", "canal-json"] = "csv", **tuning: Any) -> None:
        """`tuning`: as in the settings."""
        self.bucket = MemoryBucket(protocol=protocol)
        self.upstream = UPSTREAM if protocol == "csv" else CANAL_UPSTREAM
        self.records = TargetRecords()
        self.clock = PatientClock()
        self.config = Config(upstream=self.upstream, downstream=Downstream(), tuning=Tuning(partitions=2, **tuning))
        self.stop = Stop()
        self.tick: Callable[[str], object] = str
        """Hears of each call of a part; may raise."""
        self.spawn: Callable[[Callable[[], None]], None] = in_place
        """Runs a statement: in place, unless a test says otherwise."""
        self.ddl_workers: DdlWorkers | None = None
        self.server_info = FACTS
        self.target: Callable[[TargetRecords], MemoryTarget] = MemoryTarget
        self.pipeline: MemoryPipeline | None = None
        """What runs jobs, where it is another than usual."""

    def watched(self, part: object) -> Any:
        """A part whose calls tick."""
        return Watched(part, self._called)

    def _called(self, where: str) -> None:
        self.tick(where)

    def _begin(self, work: Callable[[], None]) -> None:
        self.spawn(work)

    def service(self) -> ConsumerService:
        """A process: a new service with parts of its own."""
        state = each_watched(MemoryState(self.records, self.clock), self.watched)

        def runner(_: int) -> Any:
            target = self.watched(self.target(self.records))
            return self.watched(DdlRunner(target, state.journal, FACTS.server_type))

        self.ddl_workers = DdlWorkers(runner, self.clock, self._begin)
        return ConsumerService(self.config, state, lambda manager: self._context(manager, state), self.clock)

    def _context(self, manager: ConsumerManager, state: Any) -> RoundContext:
        assert self.ddl_workers is not None
        target = self.watched(self.target(self.records))
        storage = self.bucket.storage
        pipeline = self.pipeline or MemoryPipeline(
            storage, self.upstream, lambda spec: self.watched(FencedWriter(self.records, spec))
        )
        return RoundContext(
            config=self.config,
            reader=StorageReader(storage, self.upstream, self.clock, full_listing_interval=600.0),
            manager=manager,
            state=state,
            target=target,
            ddl_workers=self.ddl_workers,
            pipeline=self.watched(pipeline),
            server_info=self.server_info,
            progress=Silent(),
            clock=self.clock,
            secrets_file="",
        )

    def once(self, upto: int = 0) -> RoundSummary:
        """A new process, one round, a clean end; `upto`: the tick up to which the bucket is complete by then."""
        if upto:
            self.bucket.metadata(ts(upto))
        service = self.service()
        try:
            return service.run_once(self.stop)
        finally:
            service.close()

    def killed(self, work: Callable[[ConsumerService], object]) -> None:
        """A new process that ends without any cleaning up."""
        service = self.service()
        try:
            work(service)
        finally:
            if service._renewal is not None:
                service._renewal.stop()

    def rows(self, table: str) -> list[Row]:
        """The rows of ``schema.table``, sorted."""
        schema, _, name = table.partition(".")
        found = self.records.rows.get(TableName(schema=schema, table=name), [])
        return sorted(found, key=lambda row: [(v is not None, v or "") for v in row.values()])


def two_tables() -> World:
    """shop.a and shop.b with a row each, up to tick 3."""
    found = World()
    found.bucket.create("shop.a", "shop.b")
    for table in ("shop.a", "shop.b"):
        found.bucket.rows(table, 1, row(table, 2, "1", '"one"'))
    found.bucket.metadata(ts(3))
    return found


Works = deque[Callable[[], None]]


def held(world: World, count: int = 1_000) -> Works:
    """Hold the next `count` statements back until they are taken out and called; later ones run in place."""
    works: Works = deque()
    left = [count]

    def spawn(work: Callable[[], None]) -> None:
        left[0] -= 1
        if left[0] >= 0:
            works.append(work)
        else:
            work()

    world.spawn = spawn
    return works


def numbers(world: World, table: str) -> list[str | None]:
    """The keys in a table, in order."""
    return [row["id"] for row in world.rows(table)]


def of(summary: RoundSummary, table: str) -> TableSummary:
    """One table's share of a round."""
    return next(one for one in summary.tables if one.table == table)


def one_table(**tuning: Any) -> World:
    """One table with one row up to tick 3; `tuning`: as in the settings."""
    found = World(**tuning)
    found.bucket.create("shop.a")
    found.bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'))
    found.bucket.metadata(ts(3))
    return found


def running(world: World, act: Callable[[int], object] = int, *, rounds: int = 0) -> RoundSummary:
    """Run for some rounds, or until stop is requested; `act` hears before each pause between rounds how many there were."""
    done = 0
    wait = world.clock.wait

    def between(event: threading.Event, seconds: float) -> bool:
        nonlocal done
        if event is world.stop.requested and threading.current_thread() is threading.main_thread():
            done += 1
            act(done)
            if done == rounds:
                world.stop.requested.set()
        return wait(event, seconds)

    world.clock.wait = between  # type: ignore[method-assign] # the test looks in between
    service = world.service()
    try:
        return service.run(world.stop)
    finally:
        service.close()
        world.stop.requested.clear()
        world.clock.wait = wait  # type: ignore[method-assign] # as it was


class Killed(BaseException):
    """The end of a process, which nothing catches."""


class KilledAt:
    """Ends a process at the n-th call whose name begins so."""

    def __init__(self, number: int = 1, where: str = "before") -> None:
        """`number`: from 1; with 0 the process goes on. What is left after a call is what there is before the next one."""
        self._where, self._number = where, number
        self.met = 0
        """How many such calls there were until the end."""
        self._has_ended = False

    def __call__(self, where: str) -> None:
        """Hear of a call."""
        if not self._has_ended and where.startswith(self._where):
            self.met += 1
            self._has_ended = self.met == self._number
            if self._has_ended:
                raise Killed


def killed_at(world: World, where: str, number: int = 1) -> None:
    """Run a process until it ends at a call; its lease has run out after that."""
    assert killed_after(world, number, where) == number


def killed_after(world: World, number: int, where: str = "before") -> int:
    """Run a process that ends at a call, if it makes so many; how many it made. Its lease has run out after that."""
    world.tick = ends = KilledAt(number, where)
    with suppress(Killed):
        world.killed(lambda service: service.run_once(world.stop))
    world.tick = str
    world.clock.advance(100)
    return ends.met
