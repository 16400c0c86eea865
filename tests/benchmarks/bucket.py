"""Writes a complete bucket as TiCDC would, and beside it the final state, for loading and for checking."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from tests.benchmarks.changes import PROFILES, SourceTable
from tests.benchmarks.rows import RowFormats
from tests.benchmarks.shapes import DATABASE, Shape, shape_of
from tests.harness.small_bucket import CREATE_TABLE, SchemaFile, schema_document

LOAD_ROWS = 10_000
"""Final rows in one file for LOAD DATA."""
_CREATE_DATABASE = 1
START_TS = 470_000_000_000_000_000
TS_STEP = 1 << 12
"""About 64 transactions in a millisecond; each has a commit ts of its own."""
_SMALLEST_FILE, _LARGEST_FILE = 16 << 20, 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to write."""

    events: int
    """Row changes; a few more where the last transaction has several."""
    protocol: str
    profile: str
    """One of `PROFILES`."""
    tables: int = 1
    file_events: int = 0
    """Row changes in one file; 0: files of 16 to 64 MiB."""
    seed: int = 7

    @property
    def shape(self) -> Shape:
        """Structure of all its tables."""
        return shape_of(self.profile)


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
    created: int
    """Commit ts of its last statement, before all rows."""
    checkpoint: int
    """Commit ts of its last row."""
    events: int
    """Row changes; in CSV without keys an update is one, though it is written as two rows."""
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
        if self.order.protocol != "csv":
            return {}
        return {"sink": {"csv": {"include-commit-ts": True, "output-old-value": not self.order.shape.keyed}}}


class _DataFiles:
    """The data files of one version directory."""

    def __init__(self, root: Path, table: SourceTable, order: Order, chance: random.Random) -> None:
        date = datetime.fromtimestamp((START_TS >> 18) / 1000, UTC).date()
        self._folder = root / DATABASE / table.name / str(table.version) / str(date)
        (self._folder / "meta").mkdir(parents=True)
        self._extension = "csv" if order.protocol == "csv" else "json"
        self._order = order
        self._chance = chance
        self._held: list[str] = []
        self._room = self._fresh()
        self.files = 0
        self.size = 0

    def _fresh(self) -> int:
        """What a new file has room for: row changes or bytes."""
        return self._order.file_events or self._chance.randint(_SMALLEST_FILE, _LARGEST_FILE)

    def add(self, event: str) -> None:
        self._held.append(event)
        self._room -= 1 if self._order.file_events else len(event)
        if self._room <= 0:
            self.flush()
            self._room = self._fresh()

    def flush(self) -> None:
        """Write what is held, then the index."""
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
    root, formats = folder / "bucket", RowFormats(order.shape, order.seed)
    chance = random.Random(order.seed)  # noqa: S311 - repeatable, not secret
    version = START_TS + TS_STEP
    tables = [SourceTable(name=f"t{n + 1:04d}", version=version + n * TS_STEP) for n in range(order.tables)]
    write_schema_files(root, START_TS, tables, order.shape)
    sizes = random.Random(order.seed)  # noqa: S311 - repeatable, not secret
    outputs = [_DataFiles(root, table, order, sizes) for table in tables]
    sources = [PROFILES[order.profile](table, chance) for table in tables]
    created, events = version + order.tables * TS_STEP, 0
    commit_ts = created
    while events < order.events:
        commit_ts += TS_STEP
        place = chance.randrange(order.tables)
        for change in next(sources[place]):
            outputs[place].add(formats.event(order.protocol, tables[place].name, commit_ts, change))
            events += 1
    for output in outputs:
        output.flush()
    write_metadata(root, commit_ts)
    return Bucket(
        order=order,
        root=root,
        created=created,
        checkpoint=commit_ts,
        events=events,
        files=sum(output.files for output in outputs),
        size=sum(output.size for output in outputs),
        final=tuple(_final(table, formats, folder / "final" / table.name) for table in tables),
    )


def _final(table: SourceTable, formats: RowFormats, folder: Path) -> FinalTable:
    """Write a table's rows for LOAD DATA, in the order of their keys."""
    folder.mkdir(parents=True)
    rows = iter(sorted(table.states.items()))
    chunks: list[Path] = []
    while chunk := list(islice(rows, LOAD_ROWS)):
        chunks.append(folder / f"{len(chunks):05d}")
        chunks[-1].write_bytes(b"".join(formats.line(row, state) for row, state in chunk))
    checksum = sum(formats.checksum(row, state) for row, state in table.states.items())
    return FinalTable(name=table.name, rows=len(table.states), checksum=checksum, chunks=tuple(chunks))


def schema_files(version: int, tables: Iterable[SourceTable], shape: Shape) -> Iterator[tuple[str, bytes]]:
    """Path and content of the statements that create the database, at `version`, and the tables, at theirs."""
    files = [(SchemaFile(name=(DATABASE, ""), query=f"CREATE DATABASE `{DATABASE}`", kind=_CREATE_DATABASE), version)]
    for table in tables:
        query = f"CREATE TABLE `{table.name}` ({shape.sql})"
        columns = shape.schema_columns
        files.append(
            (SchemaFile(name=(DATABASE, table.name), query=query, kind=CREATE_TABLE, columns=columns), table.version)
        )
    for file, at in files:
        text, checksum = schema_document(file, at)
        folder = "/".join((*filter(None, file.name), "meta"))
        yield f"{folder}/schema_{at}_{checksum:010d}.json", text.encode()


def write_schema_files(root: Path, version: int, tables: Iterable[SourceTable], shape: Shape) -> None:
    """Write them into a folder."""
    for path, content in schema_files(version, tables, shape):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


def metadata(checkpoint: int) -> str:
    """The text that says up to which commit ts the bucket is complete."""
    return json.dumps({"checkpoint-ts": checkpoint}, separators=(",", ":"))


def write_metadata(root: Path, checkpoint: int) -> None:
    """Write it into a folder."""
    (root / "metadata").write_text(metadata(checkpoint), encoding="utf-8")
