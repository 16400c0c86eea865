"""The files that both architectures' storage sinks make of a source's log, by their habits.

Where a schema file lies and what it says, which directory rows go to, what is lost, what a restart writes again and where.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.harness.small_bucket import SchemaFile, row, schema_document, ts
from tests.property.renaming_source import Change, Name, Source, Statement


class Sink:
    """Writes the files of a source's log, and writes what is not confirmed once more after a restart."""

    def __init__(self, source: Source) -> None:
        """From the beginning of the log."""
        self._source = source
        self._new = source.arch == "new"
        self.writes: list[tuple[str, str]] = []
        """Path and content of every object, in order."""
        self.marks: list[tuple[int, int, bool]] = []
        """Number of writes, and the checkpoint (a tick) that may be told from then on; True where a statement may be missing."""
        self._at = 0
        self._waiting: list[Change] = []
        self.start = 0
        """Checkpoint (a tick) from which it was started last."""
        self._lowered: set[int] = set()
        self._hashes = defaultdict[str, dict[int, set[int]]](lambda: defaultdict(set))
        self._numbers = defaultdict[str, int](int)
        self._written = set[tuple[int, str]]()

    def follow(self, dice: random.Random) -> None:
        """Write the statements of the log that were not written yet, and some or all rows."""
        log = self._source.log
        while self._at < len(log):
            entry = log[self._at]
            self._at += 1
            if isinstance(entry, Change):
                self._waiting.append(entry)
                continue
            some = {change.table for change in self._waiting if dice.random() < 0.6}
            self._flush(some | entry.tables, dice)
            if not self._new:
                self._mark(entry.tick, early=True)
            self._lowered -= entry.tables
            self._lowered |= {entry.lowers} - {0}
            for file in entry.files:
                self._schema(file.name, entry.tick, file.columns, file.query, file.kind)
            self._mark(entry.tick)
        self._flush({change.table for change in self._waiting if dice.random() < 0.7}, dice)

    def restart(self, dice: random.Random, told: int) -> None:
        """End and begin again from a checkpoint that is not before the one that was `told`.

        The new architecture stores a checkpoint before it tells it (format sheet 2.3), so that it begins again at one that is not
        before any that was told: what a path of a cycle of renames holds for a moment is then beyond every checkpoint.
        """
        marks = [tick for _, tick, early in self.marks if tick >= told and not early]
        if not marks:
            return
        self.start = dice.choice(marks)
        if self._new:
            self.marks = [mark for mark in self.marks if mark[1] <= self.start]
        self._waiting, self._lowered = [], set()
        self._at = next((n for n, e in enumerate(self._source.log) if e.tick > self.start), len(self._source.log))

    def finish(self, dice: random.Random) -> None:
        """Write everything."""
        self.follow(dice)
        self._flush({change.table for change in self._waiting}, dice)
        self._mark(self._source.tick + 1)

    def _mark(self, tick: int, *, early: bool = False) -> None:
        if self._waiting:
            tick = min(tick, min(change.tick for change in self._waiting) - 1)
        self.marks.append((len(self.writes), tick, early))

    def _flush(self, tables: set[int], dice: random.Random) -> None:
        """Write the rows of these tables: per directory a file or two."""
        groups = defaultdict[tuple[str, Name], list[Change]](list)
        for change in (c for c in self._waiting if c.table in tables):
            name = (change.name[0].lower(), change.name[1]) if change.table in self._lowered else change.name
            if (version := self._directory(name, change)) is not None:
                part = "" if change.part is None else f"/{change.part}"
                groups[f"{name[0]}/{name[1]}/{ts(version)}{part}/2026-11-21", name].append(change)
        self._written |= {(c.tick, c.values[0]) for c in self._waiting if c.table in tables}
        self._waiting = [c for c in self._waiting if c.table not in tables]
        for folder, name in dice.sample(sorted(groups), len(groups)):
            changes = groups[folder, name]
            cut = dice.randint(0, len(changes))
            for some in filter(None, (changes[:cut], changes[cut:])):
                self._numbers[folder] += 1
                lines = (row(".".join(name), c.tick, *_wire(c.values), operation=c.operation) for c in some)
                self.writes.append(
                    (f"{folder}/CDC{self._numbers[folder]:020d}.csv", "".join(f"{x}\r\n" for x in lines))
                )
        if self._at == len(self._source.log) or groups:
            last = self._source.log[self._at - 1]
            self._mark(last.tick - isinstance(last, Statement))

    def _directory(self, name: Name, change: Change) -> int | None:
        """The version of the directory that a row goes to; None for a row that is left out as stale."""
        candidate = max(change.version, self.start)
        _, checksum = _document(name, candidate, change.columns, "", 0)
        known = self._hashes["/".join(name)]
        if checksum in known.get(candidate, ()):
            return candidate
        if same := [version for version, hashes in known.items() if checksum in hashes]:
            # What was not written before would be lost at the source: that is not what is tried here.
            return (
                None
                if self._new and max(same) > candidate and (change.tick, change.values[0]) in self._written
                else max(same)
            )
        self._schema(name, candidate, change.columns, "", 0)
        return candidate

    def _schema(self, name: Name, tick: int, columns: Sequence[Mapping[str, Any]], query: str, kind: int) -> None:
        text, checksum = _document(name, tick, columns, query, kind)
        folder = "/".join(filter(None, name))
        self._hashes[folder][tick].add(checksum)
        self.writes.append((f"{folder}/meta/schema_{ts(tick)}_{checksum:010d}.json", text))


def _document(name: Name, tick: int, columns: Sequence[Mapping[str, Any]], query: str, kind: int) -> tuple[str, int]:
    """The text of a schema file, and its checksum."""
    return schema_document(SchemaFile(name=name, query=query, kind=kind, columns=columns), ts(tick))


def _wire(values: Sequence[str]) -> Iterator[str]:
    """As CSV has them."""
    for place, value in enumerate(values):
        yield value if place == 0 or value == "\\N" else f'"{value}"'
