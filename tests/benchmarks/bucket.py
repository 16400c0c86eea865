"""Writes a complete bucket as TiCDC would, and beside it the final state, for loading and for checking."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from tests.benchmarks.rows import COLUMNS, DATABASE, SQL_COLUMNS, RowFormats, schema_file

PROFILES = ("mixed", "insert", "hot")
LOAD_ROWS = 10_000
"""Final rows in one file for LOAD DATA."""
_START_TS = 470_000_000_000_000_000
_TS_STEP = 1 << 12
"""About 64 changes in a millisecond; each change has a commit ts of its own."""
_SMALLEST_FILE, _LARGEST_FILE = 16 << 20, 64 << 20
_HOT_KEYS = 1_000
_INSERTS, _UPDATES = 0.6, 0.3
"""Of profile mixed; the rest are deletes."""
_SKEW = 4
"""Updates hit the place (age share)**4 from the youngest row."""

Change = tuple[int, int | None, int | None]
"""(primary key, state before, state after); None: no row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to write."""

    events: int
    protocol: str
    profile: str
    tables: int = 1
    seed: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalTable:
    """What a table must hold in the end."""

    name: str
    rows: int
    checksum: int
    """Sum over the rows."""
    chunks: tuple[Path, ...]
    """Files for LOAD DATA, `LOAD_ROWS` rows each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket on disk and what it must lead to."""

    order: Order
    root: Path
    files: int
    size: int
    """Bytes of all data files."""
    final: tuple[FinalTable, ...]

    @property
    def rows(self) -> int:
        """Rows in the end, over all tables."""
        return sum(table.rows for table in self.final)

    @property
    def uri(self) -> str:
        """What ``--upstream-uri`` takes."""
        extension = "&enable-tidb-extension=true" if self.order.protocol == "canal-json" else ""
        return f"{self.root.as_uri()}?protocol={self.order.protocol}{extension}"

    @property
    def config(self) -> dict[str, object]:
        """What ``--config`` takes."""
        return {"sink": {"csv": {"include-commit-ts": True}}} if self.order.protocol == "csv" else {}


@dataclass(slots=True)
class _Table:
    """The source's rows of one table."""

    name: str
    version: int
    born: list[int] = field(default_factory=list)
    """Primary keys by age, deleted ones included."""
    states: dict[int, int] = field(default_factory=dict)

    def insert(self, chance: random.Random) -> Change:
        pk = len(self.born) + 1
        self.born.append(pk)
        state = self.states[pk] = chance.getrandbits(60)
        return pk, None, state

    def update(self, pk: int, chance: random.Random) -> Change:
        before = self.states[pk]
        state = self.states[pk] = chance.getrandbits(60)
        return pk, before, state

    def delete(self, pk: int) -> Change:
        return pk, self.states.pop(pk), None

    def pick(self, chance: random.Random, skew: int) -> int:
        """A living row's key; a higher `skew` prefers the young ones."""
        while True:
            age = chance.random() ** skew
            pk = self.born[-1 - int(age * len(self.born))]
            if pk in self.states:
                return pk


def _changes(profile: str, table: _Table, chance: random.Random) -> Iterator[Change]:
    """A table's changes, without end."""
    while profile == "insert":
        yield table.insert(chance)
    while profile == "hot":
        fresh = len(table.born) < _HOT_KEYS
        yield table.insert(chance) if fresh else table.update(table.pick(chance, 1), chance)
    while True:
        kind = chance.random()
        if kind < _INSERTS or not table.states:
            yield table.insert(chance)
        elif kind < _INSERTS + _UPDATES:
            yield table.update(table.pick(chance, _SKEW), chance)
        else:
            yield table.delete(table.pick(chance, 1))


class _DataFiles:
    """The data files of one version directory, in TiCDC's sizes."""

    def __init__(self, root: Path, table: _Table, extension: str, chance: random.Random) -> None:
        date = datetime.fromtimestamp((_START_TS >> 18) / 1000, UTC).date()
        self._folder = root / DATABASE / table.name / str(table.version) / str(date)
        (self._folder / "meta").mkdir(parents=True)
        self._extension = extension
        self._chance = chance
        self._held: list[str] = []
        self._room = 0
        self.files = 0
        self.size = 0

    def add(self, event: str) -> None:
        self._held.append(event)
        self._room -= len(event)
        if self._room <= 0:
            self.flush()

    def flush(self) -> None:
        """Write what is held, then the index."""
        self._room = self._chance.randint(_SMALLEST_FILE, _LARGEST_FILE)
        if not self._held:
            return
        content = "".join(self._held).encode()
        self._held = []
        self.files += 1
        self.size += len(content)
        name = f"CDC{self.files:020d}.{self._extension}"
        (self._folder / name).write_bytes(content)
        (self._folder / "meta" / "CDC.index").write_text(f"{name}\n", encoding="utf-8")


def write_bucket(order: Order, folder: Path) -> Bucket:
    """Write the bucket of `order` into ``folder/bucket`` and the final state into ``folder/final``."""
    root, formats = folder / "bucket", RowFormats(order.seed)
    chance = random.Random(order.seed)  # noqa: S311 - repeatable, not secret
    version = _START_TS + _TS_STEP
    _write(root, *schema_file(_START_TS, "", f"CREATE DATABASE `{DATABASE}`", ()))
    tables = [_Table(name=f"t{n + 1:04d}", version=version + n * _TS_STEP) for n in range(order.tables)]
    for table in tables:
        query = f"CREATE TABLE `{table.name}` ({SQL_COLUMNS})"
        _write(root, *schema_file(table.version, table.name, query, COLUMNS))
    extension = "csv" if order.protocol == "csv" else "json"
    sizes = random.Random(order.seed)  # noqa: S311 - repeatable, not secret
    outputs = [_DataFiles(root, table, extension, sizes) for table in tables]
    for output in outputs:
        output.flush()
    sources = [_changes(order.profile, table, chance) for table in tables]
    commit_ts = version + order.tables * _TS_STEP
    for _ in range(order.events):
        commit_ts += _TS_STEP
        place = chance.randrange(order.tables)
        change = next(sources[place])
        outputs[place].add(formats.event(order.protocol, tables[place].name, commit_ts, change))
    for output in outputs:
        output.flush()
    _write(root, "metadata", json.dumps({"checkpoint-ts": commit_ts}, separators=(",", ":")))
    return Bucket(
        order=order,
        root=root,
        files=sum(output.files for output in outputs),
        size=sum(output.size for output in outputs),
        final=tuple(_final(table, formats, folder / "final" / table.name) for table in tables),
    )


def _final(table: _Table, formats: RowFormats, folder: Path) -> FinalTable:
    """Write a table's rows for LOAD DATA, in the order of their keys."""
    folder.mkdir(parents=True)
    rows = iter(sorted(table.states.items()))
    chunks: list[Path] = []
    while chunk := list(islice(rows, LOAD_ROWS)):
        chunks.append(folder / f"{len(chunks):05d}")
        chunks[-1].write_bytes(b"".join(formats.line(pk, state) for pk, state in chunk))
    checksum = sum(formats.checksum(pk, state) for pk, state in table.states.items())
    return FinalTable(name=table.name, rows=len(table.states), checksum=checksum, chunks=tuple(chunks))


def _write(root: Path, path: str, content: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content, encoding="utf-8")
