"""Copies in memory, for tests of the driver: their rows are CSV as TiCDC writes it, with the load's clock as commit-ts."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from storage_consumer.config.settings import Loading as LoadSettings
from storage_consumer.config.settings import Upstream
from storage_consumer.driver.ledger import RoundContext
from storage_consumer.driver.open_copies import FIRST_RATE, CopiedTable, LoadingState, OpenCopy
from storage_consumer.errors import ExportUnfinished
from storage_consumer.model import (
    DdlKind,
    StoredObject,
    TableColumn,
    TableDefinition,
    TableName,
    TableVersion,
)
from storage_consumer.plan.loads import Load, clock_of
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import key_of
from storage_consumer.target.ddl.runner import DdlRunner
from tests.harness.small_bucket import ts
from tests.harness.twins.storage import MemoryPipeline, MemoryStorage
from tests.harness.twins.target import FACTS
from tests.harness.twins.writer import FencedWriter
from tests.unit.driving import UPSTREAM, World

URI = "file:///copy"
COLUMNS = (
    TableColumn(name="id", type="INT", nullable=False, is_pk=True),
    TableColumn(name="name", type="VARCHAR", precision=20),
)
KEYLESS = tuple(replace(column, is_pk=False, nullable=True) for column in COLUMNS)
Rows = Sequence[tuple[str, str]]


@dataclass(slots=True)
class MemoryCopy:
    """A copy that a test fills, at `URI`."""

    snapshot: int
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    tables: dict[str, CopiedTable] = field(default_factory=dict)
    identity: str = "one"
    empty: Sequence[str] = ()
    """Databases without a table."""
    opened: int = 0
    """How often it was opened."""
    is_finished: bool = True
    """Whether it can be opened."""
    read: list[str] = field(default_factory=list)
    """Paths of the parts in the order in which they were read."""

    def add(self, table: str, *parts: Rows, columns: Sequence[TableColumn] = COLUMNS, body: str = "") -> None:
        """Add ``schema.table`` with these parts, each some rows of id and name."""
        schema, _, name = table.partition(".")
        body = body or f"id INT{' PRIMARY KEY' if any(c.is_pk for c in columns) else ''}, name VARCHAR(20)"
        query = f"CREATE TABLE `{name}` ({body})"
        stored = tuple(self._part(table, number, rows) for number, rows in enumerate(parts, 1))
        definition = TableDefinition(
            name=TableName(schema=schema, table=name),
            version=TableVersion(self.snapshot),
            query=query,
            ddl_type=DdlKind.CREATE_TABLE,
            columns=tuple(columns),
            path=f"{table}-schema.sql",
            checksum=zlib.crc32(query.encode()),
        )
        self.tables[key_of(definition.name)] = CopiedTable(definition=definition, parts=stored)

    def _part(self, table: str, number: int, rows: Rows) -> StoredObject:
        schema, _, name = table.partition(".")
        lines = [
            f'"I","{name}","{schema}",{clock_of(number, place)},{key},{text}\r\n'
            for place, (key, text) in enumerate(rows, 1)
        ]
        path, content = f"{table}.{number:09d}.csv", "".join(lines).encode()
        self.storage.put(path, content)
        return next(stored for stored in self.storage.listing(frozenset(), {}) if stored.path == path)

    def open(self, uri: str) -> OpenCopy:
        """Open it."""
        assert uri == URI
        self.opened += 1
        if not self.is_finished:
            raise ExportUnfinished("the export has no metadata")
        databases = {
            schema: TableDefinition(
                name=TableName(schema=schema, table=""),
                version=TableVersion(self.snapshot),
                query=f"CREATE DATABASE `{schema}`",
                ddl_type=DdlKind.CREATE_SCHEMA,
                columns=(),
                path=f"{schema}-schema-create.sql",
                checksum=1,
            )
            for schema in (*(table.definition.name.schema for table in self.tables.values()), *self.empty)
        }
        return OpenCopy(
            identity=self.identity,
            snapshot=self.snapshot,
            origin=replace(UPSTREAM, root="/copy"),
            databases=databases,
            tables=dict(self.tables),
        )


class WithCopies(World):
    """A world whose processes may load tables from one copy."""

    def __init__(self, copy: MemoryCopy, *, initial: bool = True, start_ts: int = 1, **tuning: Any) -> None:
        """`initial`: whether a new feed begins with it; else loads have to be requested. `start_ts`: the changefeed's, 0 if not given."""
        super().__init__(**tuning)
        self.copy = copy
        self.foreign: set[TableName] = set()
        """Tables that somebody else made, by folded name."""
        self.rate: float = FIRST_RATE
        """Bytes that a second of a job is taken to write, at the start of a process."""
        self.config = replace(self.config, loading=LoadSettings(dump=URI if initial else "", start_ts=start_ts))

    def _context(self, manager: ConsumerManager, state: Any) -> RoundContext:
        target = self.watched(self.target(self.records))
        loading = LoadingState(
            open_copy=self.copy.open,
            ddl=self.watched(DdlRunner(target, state.journal, FACTS.server_type)),
            has_rows=lambda name: bool(self.records.rows.get(name.folded())),
            is_ours=lambda name: name.folded() not in self.foreign,
            rate=self.rate,
        )
        self.pipeline = MemoryPipeline(
            self.bucket.storage,
            self.upstream,
            lambda spec: self.watched(FencedWriter(self.records, spec)),
            self._opened,
        )
        return replace(super()._context(manager, state), loading=loading)

    def _opened(self, origin: Upstream) -> MemoryStorage:
        assert origin.root == "/copy"
        return self.copy.storage

    def request(self, table: str, *, replaces: bool = False, low: int = 0) -> None:
        """Request that a table is loaded from the copy; `low`: what the state knows of an earlier copy."""
        schema, _, name = table.partition(".")
        key = key_of(TableName(schema=schema, table=name))
        self.records.loads[key] = Load(
            table_key=key,
            name=TableName(schema=schema, table=name),
            load_id=f"request-{len(self.records.journal)}-{ts(0)}",
            source=URI,
            replaces=replaces,
            low=low,
        )


def names_in(world: World, table: str) -> Mapping[str | None, str | None]:
    """The rows of a table: id → name."""
    return {row["id"]: row["name"] for row in world.rows(table)}
