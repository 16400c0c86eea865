"""A source and its changefeed that go on in real time, in a thread of their own; what the source was is known at every tick."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Self

from tests.campaigns.simulation.names import Name
from tests.campaigns.simulation.shapes import NULL, Image
from tests.campaigns.simulation.sink import Habits, Sink
from tests.campaigns.simulation.source import Source, Statement
from tests.harness.small_bucket import CREATE_TABLE, SchemaFile, column, schema_document, tell_time, ts

Put = Callable[[str, bytes], None]
"""Stores an object; raises whatever its store raises."""
TICK_MS = 100
_STATEMENTS = ("create", "change_columns", "truncate", "rename", "drop")
_AGAIN = 1.0
"""Seconds until an object is tried again that could not be stored."""
ODD: Name = ("odd", "t")
"""A table beside the source's, with a row now and then that the target refuses."""
_ODD_COLUMNS = (column("id", "INT", key=True), column("v", "VARCHAR", ColumnPrecision="20"))


class Feed:
    """Writes what TiCDC would, as time passes."""

    def __init__(self, put: Put, seed: int, ddl_every: float) -> None:
        """Store objects with `put`; a statement every `ddl_every` seconds."""
        tell_time(int(time.time() * 1000), TICK_MS)
        self._put = put
        self._dice = random.Random(seed)  # noqa: S311 - not for secrets
        self._ddl_every = ddl_every
        habits = Habits(new=True, dates=True, dispatchers=False, raw=False)
        self.source = Source(new=True, raw=False, tells_old=False)
        self._sink = Sink(self.source, habits, lambda: (-1, 0))
        self._began = time.monotonic()
        self._next_ddl = ddl_every
        self._stored = 0
        self._lock = threading.Lock()
        self._ends, self._stands = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed")
        self.told = 0
        """Tick of the last checkpoint in ``metadata``."""
        self._odd_rows: list[str] = []
        self._odd_files = self._odd_version = 0

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, wherever it stands."""
        self._ends.set()
        self._thread.join()

    # what happens

    @property
    def _now(self) -> int:
        return int((time.monotonic() - self._began) * 1000 / TICK_MS)

    def _run(self) -> None:
        while not self._ends.wait(TICK_MS / 1000):
            if not self._stands.is_set():
                with self._lock:
                    self._go_on()

    def _go_on(self) -> None:
        """Let the source come to the present, and store what the changefeed makes of it."""
        while self.source.tick < self._now and not self._ends.is_set():
            if self._now * TICK_MS / 1000 >= self._next_ddl:
                self._next_ddl += self._ddl_every
                self._statement()
            else:
                self.source.change_rows(self._dice)
        self._sink.follow(self._dice)
        self._store()

    def _statement(self) -> None:
        """One statement of any kind that fits."""
        for name in self._dice.sample(_STATEMENTS, len(_STATEMENTS)):
            before = len(self.source.log)
            getattr(self.source, name)(self._dice)
            if len(self.source.log) > before:
                return

    def _store(self) -> None:
        """Store what was written, then tell a checkpoint that covers no more than that."""
        writes = self._sink.writes
        while self._stored < len(writes):
            path, content = writes[self._stored]
            self._persist(path, content.encode())
            self._stored += 1
        told = max((mark.tick for mark in self._sink.marks if not mark.early), default=0)
        self._sink.marks = self._sink.marks[-8:]
        self._tell(told)

    def _tell(self, tick: int) -> None:
        if tick > self.told:
            self._persist("metadata", f'{{"checkpoint-ts":{ts(tick)}}}'.encode())
            self.told = tick

    def _persist(self, path: str, content: bytes) -> None:
        """Store an object, for as long as it takes."""
        while True:
            try:
                self._put(path, content)
            except Exception:  # noqa: BLE001 - whatever the store's trouble is, TiCDC waits as well
                if self._ends.wait(_AGAIN):
                    return
            else:
                return

    # from outside

    def stand(self) -> None:
        """The changefeed stands still, and so does the source."""
        self._stands.set()

    def go(self) -> None:
        """It goes on."""
        self._stands.clear()

    def odd_row(self, value: str) -> None:
        """A row in the table `ODD`, which is made with the first."""
        with self._lock:
            self._odd_row(value)

    def _odd_row(self, value: str) -> None:
        database, table = ODD
        folder, version = f"{database}/{table}", self.source.tick + 1
        if not self._odd_files:
            create = SchemaFile(name=(database, ""), query=f"CREATE DATABASE `{database}`", kind=1)
            text, checksum = schema_document(create, ts(version))
            self._persist(f"{database}/meta/schema_{ts(version)}_{checksum:010d}.json", text.encode())
            query = f"CREATE TABLE `{table}` (id INT PRIMARY KEY, v VARCHAR(20))"
            made = SchemaFile(name=ODD, query=query, kind=CREATE_TABLE, columns=_ODD_COLUMNS)
            text, checksum = schema_document(made, ts(version + 1))
            self._persist(f"{folder}/meta/schema_{ts(version + 1)}_{checksum:010d}.json", text.encode())
            self.source.tick += 2
            self._odd_version = ts(version + 1)
        self.source.tick += 1
        self._odd_files += 1
        self._odd_rows.append(value)
        line = f'"I","{table}","{database}",{ts(self.source.tick)},{len(self._odd_rows)},"{value}"\r\n'
        day = time.strftime("%Y-%m-%d", time.gmtime())
        self._persist(f"{folder}/{self._odd_version}/{day}/CDC{self._odd_files:020d}.csv", line.encode())

    def finish(self) -> int:
        """Write all that there is, and tell a checkpoint behind it; return it as a TSO."""
        self._ends.set()
        self._thread.join()
        self._ends.clear()
        self._sink.finish(self._dice)
        self._store()
        self._tell(self.source.tick + 1)
        return ts(self.source.tick + 1)

    # what must be in the target

    @property
    def odd_rows(self) -> int:
        """Number of rows in `ODD`."""
        return len(self._odd_rows)

    def tables(self) -> dict[Name, tuple[tuple[str, ...], list[tuple[str | None, ...]]]]:
        """All tables at the end: their columns and rows, sorted."""
        pictures = self.source.at(self.source.tick + 1, with_statement=True)
        found = {
            name: (picture.columns, sorted(map(_values, picture.rows), key=repr)) for name, picture in pictures.items()
        }
        if self._odd_rows:
            rows = [(str(number), value) for number, value in enumerate(self._odd_rows, 1)]
            found[ODD] = (("id", "v"), sorted(rows, key=repr))
        return found

    @property
    def counts(self) -> dict[str, int]:
        """What there was."""
        statements = sum(isinstance(entry, Statement) for entry in self.source.log)
        return {"row changes": len(self.source.log) - statements, "statements": statements, "objects": self._stored}


def _values(image: Image) -> tuple[str | None, ...]:
    return tuple(None if text == NULL else text for text in image)
