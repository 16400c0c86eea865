"""Faults of Spark: a worker, an executor or a task that is lost; tables whose rows no task can write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from tests.campaigns.faults.processes import kill_workers
from tests.campaigns.faults.target import AT_ROWS, LIMIT, When, at
from tests.campaigns.faults.trial import Fault, World
from tests.campaigns.faults.wire import Verdict
from tests.harness.small_bucket import CREATE_TABLE, row, ts


def workers_killed(_: World) -> Callable[[], None]:
    """All Python workers are killed by -9."""
    assert kill_workers(), "there is no worker"
    return lambda: None


@contextmanager
def killed_each_time(world: World) -> Iterator[None]:
    """Whenever rows are to be written, the workers are killed."""
    watch = When(world, AT_ROWS, lambda: None)

    def again(command: str) -> Verdict:
        watch.fired.clear()
        watch(command)
        if watch.fired.is_set():
            kill_workers()
        return Verdict.PASS

    world.wire.watch = again
    yield


def faults() -> Iterable[Fault]:
    """Those that a session in this process can bear."""
    where = "while rows are written"
    yield Fault(name="Python workers killed", where=where, around=partial(at, pattern=AT_ROWS, trouble=workers_killed))
    yield Fault(
        name="Python workers killed each time",
        where=where,
        around=killed_each_time,
        ends="worker",
        options={"retry_limit": LIMIT},
    )
    for name, text in (("a row that does not parse", '"a"b'), ("a value that the target refuses", '"too long"')):
        yield Fault(name=f"poisoned table: {name}", where="data file", around=partial(poisoned, text=text), halts="bad")


@contextmanager
def poisoned(world: World, text: str) -> Iterator[None]:
    """One more table, with a row that cannot be written."""

    def add() -> None:
        if world.cut == 0:
            query = "CREATE TABLE `bad` (id INT PRIMARY KEY, name VARCHAR(3))"
            world.bucket.schema("d.bad", ts(11), query, CREATE_TABLE)
            rows = [row("d.bad", 12, key, value) for key, value in (("1", '"ok"'), ("2", text), ("3", '"ok"'))]
            world.bucket.rows("d.bad", 1, *rows, version=ts(11))

    world.upload = add
    yield
