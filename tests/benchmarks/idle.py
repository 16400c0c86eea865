"""What an idle round costs while more and more files lie in the bucket, all of them done: requests to the store, CPU of the driver."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from storage_consumer import Consumer
from storage_consumer.bucket.stores.local import LocalStorage
from tests.benchmarks.bucket import START_TS, write_metadata, write_schema_files
from tests.benchmarks.counting_store import CountingStore, counting_store
from tests.benchmarks.limit import WrongResult
from tests.benchmarks.measuring import Asked, Bench
from tests.benchmarks.results import Goal, Result, Run
from tests.benchmarks.shapes import DATABASE, PLAIN
from tests.benchmarks.stored_days import TABLES, StoredDays
from tests.harness.servers import DatabaseServer

_CONFIG = {"sink": {"csv": {"include-commit-ts": True}}}
_WARM_UP = 3
"""Idle rounds that do not count."""
_PER_DAY = 100
"""Files of a table on one day, or fewer where the smallest number asked for is small."""


class _Store(Protocol):
    """A place that holds the files."""

    @property
    def uri(self) -> str: ...

    def set_days(self, days: int) -> None: ...

    def tick(self) -> None: ...

    def lists(self, consumer: Consumer) -> int:
        """Calls that list, since the last time."""
        ...


class _Folder:
    """A local folder; what lists are scans of folders, which its adapter counts."""

    def __init__(self, root: Path, stored: StoredDays) -> None:
        self._root, self._stored = root, stored
        self._days = self._ticks = self._seen = 0
        write_schema_files(root, START_TS, stored.tables, PLAIN)

    @property
    def uri(self) -> str:
        return f"{self._root.as_uri()}?protocol=csv"

    def set_days(self, days: int) -> None:
        for path in (path for day in range(self._days, days) for path in self._stored.paths(day)):
            (self._root / path).parent.mkdir(parents=True, exist_ok=True)
            (self._root / path).write_bytes(self._stored.content(path))
        self._days = days
        self.tick()

    def tick(self) -> None:
        self._ticks += 1
        write_metadata(self._root, self._stored.checkpoint(self._days, self._ticks))

    def lists(self, consumer: Consumer) -> int:
        service = consumer._service
        assert service is not None
        assert service._context is not None
        storage = service._context.reader._storage
        assert isinstance(storage, LocalStorage)
        now = storage.requests
        found, self._seen = now - self._seen, now
        return found


class _Bucket:
    """A bucket of an S3 server, which counts for itself."""

    def __init__(self, store: CountingStore) -> None:
        self._store = store
        self.uri = store.uri
        self.set_days, self.tick = store.set_days, store.tick

    def lists(self, _: Consumer) -> int:
        return self._store.counts()["list"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Of one round; the median of many."""

    lists: float
    cpu: float
    seconds: float


def measure_idle(name: str, bench: Bench, asked: Asked) -> Sequence[Result]:
    """A local folder and an S3 bucket that grow under a running consumer."""
    stored = StoredDays(per_day=max(1, min(_PER_DAY, min(asked.stored) // TABLES)), seed=asked.seed)
    found: list[Result] = []
    with ExitStack() as stack:
        folder = _Folder(Path(tempfile.mkdtemp(prefix="idle-", dir=bench.folder)), stored)
        bucket = _Bucket(stack.enter_context(counting_store(stored)))
        for place, store, numbers in (("local", folder, asked.stored), ("S3", bucket, asked.stored_remote)):
            costs = dict(_grown(store, stored, numbers, bench, asked.cycles))
            found += _results(f"{name}: {place}", costs)
    return found


def _grown(
    store: _Store, stored: StoredDays, numbers: Sequence[int], bench: Bench, cycles: int
) -> Iterator[tuple[int, _Cost]]:
    """Number of files → cost of an idle round then."""
    server, _ = bench.server, bench.session
    server.drop_all()
    with Consumer(upstream_uri=store.uri, downstream_uri=server.uri, config=_CONFIG) as consumer:
        for number in sorted(numbers):
            days = stored.days(number)
            store.set_days(days)
            consumer.run_once()
            _check(server, days * stored.per_day)
            rounds = [_idle(store, consumer) for _ in range(_WARM_UP + cycles)][_WARM_UP:]
            yield (
                number,
                _Cost(
                    lists=statistics.median(each.lists for each in rounds),
                    cpu=statistics.median(each.cpu for each in rounds),
                    seconds=statistics.median(each.seconds for each in rounds),
                ),
            )


def _idle(store: _Store, consumer: Consumer) -> _Cost:
    store.tick()
    store.lists(consumer)
    cpu, began = time.process_time(), time.monotonic()
    summary = consumer.run_once()
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    if summary.rows or summary.halted or summary.waiting:
        raise WrongResult(f"an idle round found something to do: {summary}")
    return _Cost(lists=store.lists(consumer), cpu=cpu, seconds=seconds)


def _check(server: DatabaseServer, rows: int) -> None:
    for n in range(1, TABLES + 1):
        found = server.query(f"SELECT COUNT(*) FROM {DATABASE}.t{n:04d}")[0][0]
        if found != rows:
            raise WrongResult(f"t{n:04d} has {found} rows, not {rows}")


def _results(name: str, costs: dict[int, _Cost]) -> Iterator[Result]:
    """Calls and CPU at each number of files, against the smallest number."""
    least = costs[min(costs)]
    for number, cost in costs.items():
        yield Result(
            name=f"{name}, {number:,} files: lists",
            unit="calls",
            against=f"{min(costs):,} files",
            goal=Goal(value=1.0, at_least=False),
            runs=[
                Run(
                    figure=cost.lists,
                    reference=least.lists,
                    more={"driver_cpu_seconds": cost.cpu, "seconds": cost.seconds},
                )
            ],
        )
        yield Result(
            name=f"{name}, {number:,} files: CPU",
            unit="s",
            against=f"{min(costs):,} files",
            goal=Goal(value=1.5, at_least=False),
            runs=[Run(figure=cost.cpu, reference=least.cpu)],
        )
