"""In-memory twins of the clock, the storage, the row writer and the job."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain

from storage_consumer.bucket.paths import left_out
from storage_consumer.bucket.storage import Storage
from storage_consumer.config.settings import Upstream
from storage_consumer.decode import decoder_for
from storage_consumer.decode.wire_format import decode_line
from storage_consumer.errors import RowRefused, StorageUnavailable
from storage_consumer.model import StoredObject, TableName
from storage_consumer.rows.halves import PlaceOf, RowWriter, file_blocks, read_files, write_bucket
from storage_consumer.rows.row_keys import Run
from storage_consumer.rows.row_order import Changes
from storage_consumer.rows.spec import (
    FileReport,
    JobFile,
    JobSpec,
    TablePlan,
    WriteReport,
    Written,
)
from storage_consumer.summary import Progress
from tests.harness.twins.writer import by_commit_ts, write_blocks

Row = dict[str, str | None]
"""A row of `MemoryWriter`: column name → wire text."""


class FakeClock:
    """A clock that stands still until it is moved; waiting advances it immediately."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        """Start at `now` seconds since 1970-01-01 UTC."""
        self._now = now
        self._passed = 0.0

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self._passed

    def now(self) -> float:
        """Return the seconds since 1970-01-01 UTC."""
        return self._now + self._passed

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Let `seconds` pass unless `event` is set; return whether it is set."""
        # Nothing waits for real, so that tests of hours take no time.
        if not event.is_set():
            self.advance(seconds)
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self._passed += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock forward or back without letting time pass."""
        self._now += seconds


def in_place(work: Callable[[], None]) -> None:
    """Run `work` immediately in this thread: DDL workers without concurrency."""
    work()


class MemoryStorage:
    """A `Storage` in memory. Its listings leave out everything that may be left out, and nothing else."""

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        """Start with these objects: path → content."""
        self._objects: dict[str, tuple[bytes, str]] = {}
        self.modified: dict[str, float] = {}
        """Path → when it was written; see `StoredObject.modified`. Not there: that is not known."""
        self._puts = 0
        self.requests = 0
        """Number of listings and reads so far."""
        self.available = True
        """Set to False to make every call raise `StorageUnavailable`."""
        for path, content in (objects or {}).items():
            self.put(path, content)

    def any_object(self) -> StoredObject | None:
        """Return an object, None if there is none."""
        return next(self.listing(frozenset(), {}), None)

    def put(self, path: str, content: bytes) -> None:
        """Write an object; even the same content gets a new tag."""
        # The tag is the number of the write, so a rewritten file is another one even with the same content.
        self._puts += 1
        self._objects[path] = (content, str(self._puts))

    def delete(self, path: str) -> None:
        """Remove an object, which must exist."""
        del self._objects[path]

    def check(self) -> None:
        """Answer, unless the storage was made unavailable."""
        self._answer()

    def listing(self, closed: frozenset[str], after: Mapping[str, str]) -> Iterator[StoredObject]:
        """Yield all objects in path order, except those below `closed` and those up to the names in `after`."""
        self._answer()
        for path, (content, tag) in sorted(self._objects.items()):
            if not (left_out(path, after) or _is_below(path, closed)):
                yield StoredObject(path=path, size=len(content), tag=tag, modified=self.modified.get(path, 0.0))

    def read(self, path: str, most: int = 0) -> bytes:  # noqa: ARG002 - it is all there anyway
        """Return the content of an object."""
        self._answer()
        if path not in self._objects:
            raise FileNotFoundError(f"{path} does not exist")
        return self._objects[path][0]

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """Yield the content of an object in pieces of `size` bytes; see `Storage.blocks`."""
        content = self.read(path)
        # As the stores do it: whoever listed one content must not read another.
        if tag not in {"", self._objects[path][1]}:
            raise FileNotFoundError(f"{path} is not what was listed")
        for place in range(start, len(content), size):
            yield content[place : place + size]

    def _answer(self) -> None:
        self.requests += 1
        if not self.available:
            raise StorageUnavailable("the storage was made unavailable")


def _is_below(path: str, folders: AbstractSet[str]) -> bool:
    """Return whether a path lies below one of some folders."""
    # Each folder above it is looked up, so that a listing costs no more where many are left out.
    return any(path[:at] in folders for at, letter in enumerate(path) if letter == "/")


class MemoryWriter:
    """A `pipeline.RowWriter` that keeps rows as wire text, with a server's rules for keys and nothing else of a server.

    A row is never written in the place of another one; see `apply.rows`. A key that contains a NULL matches no other. The values
    of all columns are kept as they came: no type changes them, and generated columns do not exist.
    """

    def __init__(
        self,
        unique_keys: Mapping[TableName, Sequence[tuple[str, ...]]] | None = None,
        *,
        same: Callable[[str], str] = str,
    ) -> None:
        """Start empty. `unique_keys`: column names of each unique key of a table. `same` maps key texts that are equal to one text."""
        self._unique_keys = dict(unique_keys or {})
        self._same = same
        self._rows: dict[TableName, list[Row]] = {}
        self.checkpoints: dict[str, int] = {}
        """Table directory → commit-ts (inclusive) up to which the events of a keyless table are written."""

    def rows(self, name: TableName) -> Counter[tuple[str | None, ...]]:
        """Return the rows of a table, each with its number of occurrences."""
        return Counter(tuple(row.values()) for row in self._rows.get(name, ()))

    def write_together(self, states: Sequence[tuple[TablePlan, Sequence[Run]]]) -> list[int]:
        """Write one table after another."""
        return [self.write_runs(work, runs).rows for work, runs in states]

    def write_runs(self, work: TablePlan, ordered: Sequence[Run], place_of: PlaceOf | None = None) -> Written:
        """Apply the runs one after another."""
        del place_of  # a twin quarantines nothing

        def row_of(names: Sequence[str], line: bytes) -> Row:
            return dict(zip(names, decode_line(line), strict=True))

        unique = self._unique_keys.get(work.name, ())
        return write_blocks(self._table(work), work, ordered, unique, row_of, lambda _, text: self._same(text))

    def write_events(self, work: TablePlan, parts: Iterable[Changes]) -> int:
        """Apply events in sequence; events already written change nothing. Raise `RowRefused` for a delete that finds no row."""
        written = 0
        stored = self.checkpoints.get(work.table_key, 0)
        for commit_ts, events in chain.from_iterable(by_commit_ts(part.after(stored)) for part in parts):
            for upsert, line in events:
                row = self._row(work, line)
                if upsert:
                    self._replace(work, line)
                elif row in self._table(work):
                    self._table(work).remove(row)
                else:
                    raise RowRefused(f"{work.name}: the delete with commit ts {commit_ts} finds no row {row}")
                written += 1
            self.checkpoints[work.table_key] = commit_ts
        return written

    def _table(self, work: TablePlan) -> list[Row]:
        return self._rows.setdefault(work.name, [])

    def _row(self, work: TablePlan, line: bytes) -> Row:
        return {column.name: text for column, text in zip(work.written, decode_line(line), strict=True)}

    def _replace(self, work: TablePlan, line: bytes) -> int:
        """Add a row in place of all rows that share a unique key with it; return 1."""
        row = self._row(work, line)
        keys = self._unique_keys.get(work.name, ())
        # REPLACE takes away every row that shares a unique key with the new one, by any of the keys.
        self._remove(work, {columns: self._key(row, columns) for columns in keys})
        self._table(work).append(row)
        return 1

    def _remove(self, work: TablePlan, keys: Mapping[tuple[str, ...], tuple[str | None, ...]]) -> int:
        """Remove the rows that have one of these keys; return their number."""
        table = self._table(work)
        # NULL equals nothing in a unique key.
        kept = [row for row in table if not any(None not in k and self._key(row, c) == k for c, k in keys.items())]
        removed = len(table) - len(kept)
        table[:] = kept
        return removed

    def _key(self, row: Row, columns: tuple[str, ...]) -> tuple[str | None, ...]:
        texts = (row[name] for name in columns)
        return tuple(None if text is None else self._same(text) for text in texts)


class MemoryPipeline:
    """The twin of `spark.pipeline.SparkPipeline`: both halves of a job in this process."""

    cores = 2

    def __init__(
        self,
        storage: Storage,
        upstream: Upstream,
        writer: Callable[[JobSpec], RowWriter],
        others: Callable[[Upstream], Storage] | None = None,
    ) -> None:
        """Read from `storage`; `writer` builds the writer of one job. `others` opens the copies that tables are loaded from."""
        self._storage = storage
        self._decoder = decoder_for(upstream)
        self._writer = writer
        self._others = others

    def run(self, spec: JobSpec, files: Sequence[JobFile], progress: Progress) -> list[FileReport | WriteReport]:
        """Read all files, then write bucket by bucket; return the reports."""
        tables = {table.index: table for table in spec.tables}
        of_bucket = [work for work in files if not tables[work.table].origin]
        read = list(read_files(of_bucket, tables, spec.partitions, partial(file_blocks, self._storage), self._decoder))
        for number, origin in enumerate(spec.origins[1:], 1):
            assert self._others is not None
            copied = [work for work in files if tables[work.table].origin == number]
            blocks = partial(file_blocks, self._others(origin))
            read += read_files(copied, tables, spec.partitions, blocks, decoder_for(origin))
        # As Spark's shuffle would bring them together: by bucket, whatever the order of the files.
        items = sorted(read, key=lambda item: item[0])
        writer = self._writer(spec)
        reports: list[FileReport | WriteReport] = []
        for bucket in range(spec.partitions):
            mine = (item for item in items if item[0][0] == bucket)
            reports += write_bucket(mine, tables, writer)
        progress.advanced(files=len(files), rows=sum(r.applied for r in reports if isinstance(r, FileReport)))
        return reports
