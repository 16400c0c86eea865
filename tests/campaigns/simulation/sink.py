"""The sink: what TiCDC writes of a source's log, in which order, and what it writes again after a failover."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from typing import Any

from storage_consumer.config.settings import Protocol
from tests.campaigns.simulation.names import Name
from tests.campaigns.simulation.selectors import Selectors
from tests.campaigns.simulation.shapes import canal_line, csv_line, half_of, header_line
from tests.campaigns.simulation.source import Change, Source, Statement
from tests.harness.small_bucket import SchemaFile, schema_document, ts

Columns = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How a changefeed is set up."""

    new: bool
    """The new architecture, else the classic one."""
    dates: bool
    """A directory for each day."""
    dispatchers: bool
    """A table's rows come from several dispatchers."""
    raw: bool
    """Updates of keys are not split, as far as the protocol tells what they are of."""
    protocol: Protocol = "csv"
    lagging: bool = False
    """The classic one's index files are behind when it starts again, so that it writes its last files anew, with other rows."""
    selectors: Selectors = field(default_factory=Selectors)
    """Which columns its rows have."""
    shared: bool = False
    """The classic one's partitions share a directory: each counts for itself, and a slow one writes the others' files anew."""
    views: bool = False
    """There are views at the source."""


@dataclass(frozen=True, slots=True)
class RowBoundary:
    """A checkpoint that may be told."""

    writes: int
    """How many objects must have been written."""
    tick: int
    early: bool
    """A statement of this very tick may be missing."""


_RELISTED = 8
"""No file is written anew that is further below its directory's highest number: what listings leave out halts its table."""


class Sink:
    """Writes the files of a source's log."""

    def __init__(self, source: Source, habits: Habits, applied: Callable[[], tuple[int, int]]) -> None:
        """From the beginning of the log. `applied`: up to which tick the target has all rows, and the highest checkpoint told."""
        self._source = source
        self._applied = applied
        self._habits = habits
        self.writes: list[tuple[str, str]] = []
        """Path and content of every object, in order."""
        self.marks: list[RowBoundary] = []
        self._at = 0
        self._waiting: list[Change] = []
        self.start = 0
        """Checkpoint (a tick) from which it was started last."""
        self._generation = 1
        self._hashes = defaultdict[str, dict[int, set[int]]](lambda: defaultdict(set))
        self._numbers = defaultdict[str, int](int)
        self._highest = defaultdict[str, int](int)
        self._contents: dict[str, tuple[int, Sequence[Change]]] = {}
        self.rewritten = 0
        """How many data files were written anew."""
        self._written = set[tuple[int, int]]()

    def begin(self, tick: int) -> None:
        """Begin a changefeed at a tick: it writes what comes after that, and nothing of before."""
        self.start = tick
        self._at = next((n for n, entry in enumerate(self._source.log) if entry.tick > tick), len(self._source.log))

    def begin_anew(self, tick: int) -> None:
        """Begin another changefeed at a tick, in an emptied prefix: nothing is there, and its numbers begin again."""
        self._generation += 1
        for written in (
            self.writes,
            self.marks,
            self._waiting,
            self._hashes,
            self._numbers,
            self._highest,
            self._contents,
            self._written,
        ):
            written.clear()
        self.begin(tick)

    def follow(self, dice: random.Random) -> None:
        """Take some more of the log, and write some or all rows of it."""
        log = self._source.log
        until = len(log) if dice.random() < 0.8 else dice.randint(self._at, len(log))
        while self._at < until or self._is_inside(self._at):
            entry = log[self._at]
            self._at += 1
            self._source.resolved = max(self._source.resolved, entry.tick)
            if isinstance(entry, Change):
                self._waiting.append(entry)
            else:
                self._barrier(entry, dice)
        self._flush({change.uid for change in self._waiting if dice.random() < 0.7}, dice)

    def _is_inside(self, at: int) -> bool:
        """Whether a place in the log is within one commit ts: the resolved ts covers all of it."""
        log = self._source.log
        return 0 < at < len(log) and log[at - 1].tick == log[at].tick

    def _barrier(self, entry: Statement, dice: random.Random) -> None:
        """All rows of the tables of a statement are written before it."""
        some = {change.uid for change in self._waiting if dice.random() < 0.5}
        self._flush(some | entry.uids, dice)
        if not self._habits.new:
            self._mark(entry.tick, early=True)
        for file in entry.files:
            self._schema(file.name, entry.tick, tuple(file.columns), file.query, file.kind)
        self._mark(entry.tick)

    def restart(self, dice: random.Random, told: int) -> None:
        """End and begin again, from a checkpoint that is about the one that was `told`: also before it after a failover.

        No checkpoint beyond that one is told before everything is there again: a path of a cycle of renames has another content
        for a moment.
        """
        marks = [mark.tick for mark in self.marks if not mark.early]
        later = [tick for tick in marks if tick >= told]
        earlier = [tick for tick in marks if tick < told][-3:]
        candidates = earlier if earlier and dice.random() < 0.4 else later
        if not candidates:
            return
        self.start = dice.choice(candidates)
        self.marks = [mark for mark in self.marks if mark.tick <= self.start]
        self._generation += 1
        self._waiting = []
        for counter in self._numbers if self._habits.lagging else ():
            self._numbers[counter] = max(0, self._numbers[counter] - dice.choice((0, 1, 2, 4, _RELISTED)))
        log = self._source.log
        self._at = next((n for n, entry in enumerate(log) if entry.tick > self.start), len(log))

    def finish(self, dice: random.Random) -> None:
        """Write everything."""
        while self._at < len(self._source.log):
            self.follow(dice)
        self._flush({change.uid for change in self._waiting}, dice)
        self.marks.append(RowBoundary(len(self.writes), self._source.tick + 1, early=False))

    def _mark(self, tick: int, *, early: bool = False) -> None:
        if self._waiting:
            tick = min(tick, self._waiting[0].tick - 1)
        self.marks.append(RowBoundary(len(self.writes), tick, early))

    def _flush(self, uids: set[int], dice: random.Random) -> None:
        """Write the rows of these tables: per directory a file or two."""
        groups = defaultdict[tuple[str, str, str], list[Change]](list)
        for change in (c for c in self._waiting if c.uid in uids):
            if (version := self._directory(change)) is not None:
                folder = f"{change.name[0]}/{change.name[1]}/{ts(version)}{self._below(change)}"
                counter = str(change.part) if self._habits.shared else ""
                groups[folder, self._dispatcher(change), counter].append(change)
        self._written |= {(c.tick, c.uid) for c in self._waiting if c.uid in uids}
        self._waiting = [c for c in self._waiting if c.uid not in uids]
        for group in dice.sample(sorted(groups), len(groups)):
            # The rows of a file have the same columns.
            for _, some in groupby(groups[group], key=lambda change: change.lacks):
                changes = list(some)
                for _ in range(3 if self._habits.lagging else 1):  # what is written anew takes files that are there
                    cut = _cut(changes, dice)
                    self._store(*group, changes[:cut])
                    changes = changes[cut:]
                self._store(*group, changes)
        if not self._at:
            return
        last = self._source.log[self._at - 1]
        self._mark(last.tick - isinstance(last, Statement))

    def _below(self, change: Change) -> str:
        """The directories below a version's."""
        part = "" if change.part is None or self._habits.shared else f"/{change.part}"
        day = datetime.fromtimestamp((ts(self._source.tick) >> 18) / 1000, UTC).date()
        return f"{part}/{day.isoformat()}" if self._habits.dates else part

    def _dispatcher(self, change: Change) -> str:
        """Who writes a row: by its key; a table without one is not split. After a failover there are others."""
        if not self._habits.dispatchers:
            return ""
        half = half_of(change.values) if change.shape.keys else 0
        return str((self._generation * 7919 + half * 104_729) % 1_000_003)

    def _store(self, folder: str, dispatcher: str, counter: str, changes: Sequence[Change]) -> None:
        """Write one data file, if there is anything for it, and the index before it (classic) or after it."""
        if not changes:
            return
        name = self._next_name(folder, dispatcher, counter)
        path = f"{folder}/{name}"
        self.rewritten += path in self._contents
        self._contents[path] = self._generation, changes
        header = header_line(_names(changes[0])) if self._habits.selectors.header else ""
        content = header + "".join(map(self._line, changes))
        index = (f"{folder}/meta/{name[: name.rindex('_')] if dispatcher else 'CDC'}.index", f"{name}\n")
        data = (path, content)
        self.writes += (data, index) if self._habits.new else (index, data)

    def _next_name(self, folder: str, dispatcher: str, counter: str) -> str:
        """The next name by a counter, unless it is that of a file with rows that would be lost: what comes after is not about these."""
        sequence = f"{folder}|{dispatcher}"
        stem = f"CDC_{dispatcher}_" if dispatcher else "CDC"
        while True:
            self._numbers[f"{sequence}|{counter}"] += 1
            number = self._numbers[f"{sequence}|{counter}"]
            name = f"{stem}{number:020d}.{'csv' if self._habits.protocol == 'csv' else 'json'}"
            near = number > self._highest[sequence] - _RELISTED
            if near and self._may_be_written(f"{folder}/{name}"):
                self._highest[sequence] = max(number, self._highest[sequence])
                return name

    def _may_be_written(self, path: str) -> bool:
        """Whether there is no such file, or the target has all rows of it that do not come again, as new ones, before they are needed."""
        if path not in self._contents:
            return True
        generation, changes = self._contents[path]
        applied, told = self._applied()
        again = max(self.start, told) if generation < self._generation else self._source.tick
        return all(c.tick <= applied or (c.tick > again and not self._may_pass_for_repeat(c)) for c in changes)

    def _may_pass_for_repeat(self, change: Change) -> bool:
        """Whether a row that comes again may go to the directory of a statement that follows it, if the structures are the same.

        Every row there that precedes the statement is a repeat of one in an older directory (format sheet 2.6). Once that one is
        gone the row is lost at the source, and nothing in the files shows it.
        """
        _, checksum = _document(change.name, change.version, tuple(change.columns), "", 0)
        return any(
            version >= change.tick and version in self._source.statements and checksum in hashes
            for version, hashes in self._hashes["/".join(change.name)].items()
        )

    def _line(self, change: Change) -> str:
        if self._habits.protocol == "csv":
            return csv_line(change.operation, change.name, ts(change.tick), change.of_file(change.values))
        images = change.of_file(change.values), change.old and change.of_file(change.old)
        return canal_line(change.operation, change.name, ts(change.tick), _names(change), images)

    def _directory(self, change: Change) -> int | None:
        """The version of the directory that a row goes to; None for a row that is left out as stale."""
        candidate = max(change.version, self.start)
        _, checksum = _document(change.name, candidate, tuple(change.columns), "", 0)
        known = self._hashes["/".join(change.name)]
        if checksum in known.get(candidate, ()):
            return candidate
        if same := [version for version, hashes in known.items() if checksum in hashes]:
            # What was not written before would be lost at the source: that is not what is tried here.
            stale = self._habits.new and max(same) > candidate and (change.tick, change.uid) in self._written
            return None if stale else max(same)
        self._schema(change.name, candidate, tuple(change.columns), "", 0)
        return candidate

    def _schema(self, name: Name, tick: int, columns: Columns, query: str, kind: int) -> None:
        text, checksum = _document(name, tick, columns, query, kind)
        folder = "/".join(filter(None, name))
        self._hashes[folder][tick].add(checksum)
        self.writes.append((f"{folder}/meta/schema_{ts(tick)}_{checksum:010d}.json", text))


def _names(change: Change) -> tuple[str, ...]:
    """The columns that a row has in its file."""
    return change.of_file([column["ColumnName"] for column in change.columns])


def _cut(changes: Sequence[Change], dice: random.Random) -> int:
    """Where a file ends early. A transaction on a table without a key stays whole: format sheet 9.6, equal rows are told by pass."""
    cut = dice.randint(0, len(changes))
    if not changes or changes[0].shape.keys or not 0 < cut < len(changes) or changes[cut - 1].tick != changes[cut].tick:
        return cut
    return 0


class _Columns:
    """Columns that a cache can look up: a table has few of them, and each is one object all the time."""

    __slots__ = ("columns", "key")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.key = tuple(column["ColumnName"] for column in columns), tuple(c["ColumnType"] for c in columns)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Columns) and self.columns == other.columns


def _document(name: Name, tick: int, columns: Columns, query: str, kind: int) -> tuple[str, int]:
    """The text of a schema file, and its checksum."""
    return _cached_document(name, tick, _Columns(columns), query, kind)


@lru_cache(maxsize=20_000)
def _cached_document(name: Name, tick: int, columns: _Columns, query: str, kind: int) -> tuple[str, int]:
    return schema_document(SchemaFile(name=name, query=query, kind=kind, columns=columns.columns), ts(tick))


def table_of(path: str) -> str:
    """The directory within which objects are written one after another."""
    return "/".join(path.split("/")[:2])


def in_sequence(writes: Sequence[tuple[str, str]]) -> Iterator[tuple[str, list[int]]]:
    """Table directory and the places of its objects."""
    places = defaultdict[str, list[int]](list)
    for place, (path, _) in enumerate(writes):
        places[table_of(path)].append(place)
    yield from places.items()
