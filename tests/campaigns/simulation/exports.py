"""Copies of the source as of a tick, in parts, as an export of it would be: its rows are CSV with the load's clock as commit-ts."""

from __future__ import annotations

import random
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from storage_consumer.bucket.schema_file import parse_schema_file
from storage_consumer.config.settings import CsvOptions, Upstream
from storage_consumer.driver.open_copies import CopiedTable, OpenCopy
from storage_consumer.errors import ExportUnfinished
from storage_consumer.model import DdlKind, StoredObject, TableDefinition, TableName, TableVersion
from storage_consumer.plan.loads import clock_of
from storage_consumer.plan.steps import key_of
from storage_consumer.sql.tokens import quote
from tests.campaigns.simulation.names import Name, sql
from tests.campaigns.simulation.shapes import EXTRA, Image, create_body, csv_line, schema_columns
from tests.campaigns.simulation.source import DATABASES, Picture, Source
from tests.harness.small_bucket import SchemaFile, schema_document, ts
from tests.harness.twins.storage import MemoryStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTable:
    """One table of an export."""

    uid: int
    """Its number at the source."""
    picture: Picture
    parts: tuple[tuple[Image, ...], ...]
    """The rows of each part."""
    copied: CopiedTable


@dataclass(slots=True, kw_only=True)
class Export:
    """The source as of a tick."""

    identity: str
    tick: int
    databases: Collection[str]
    tables: Mapping[TableName, ExportedTable]
    storage: MemoryStorage
    unfinished: int = 0
    """How often it still looks unfinished."""

    @property
    def origin(self) -> Upstream:
        """Where its files are, and how they are written."""
        return Upstream(scheme="file", root=f"/{self.identity}", protocol="csv", csv=CsvOptions(include_commit_ts=True))


@dataclass(slots=True)
class Exports:
    """The exports that there are, by where they are and by what they are."""

    at: dict[str, Export] = field(default_factory=dict)
    """By URI."""
    known: dict[str, Export] = field(default_factory=dict)
    """By identity, also those that are gone."""

    def put(self, uri: str, export: Export) -> None:
        """Place an export at a URI, in place of what is there."""
        self.at[uri] = self.known[export.identity] = export

    def open(self, uri: str) -> OpenCopy:
        """Open the one at a URI."""
        export = self.at[uri]
        if export.unfinished:
            export.unfinished -= 1
            raise ExportUnfinished("the export has no metadata")
        databases = {name: _database(name, export.tick) for name in export.databases}
        tables = {key_of(name): table.copied for name, table in export.tables.items()}
        return OpenCopy(
            identity=export.identity,
            snapshot=ts(export.tick),
            origin=export.origin,
            databases=databases,
            tables=tables,
        )

    def storage_of(self, origin: Upstream) -> MemoryStorage:
        """The files of an open one; where another one has taken its place, they are gone."""
        there = next((export for export in self.at.values() if export.origin == origin), None)
        return MemoryStorage() if there is None else there.storage


def exported(source: Source, tick: int, identity: str, dice: random.Random, lacks: Collection[Name] = ()) -> Export:
    """The source as of a tick, after everything of this very tick, without some tables."""
    # What nobody has seen yet may still come at this tick, and would not be in it.
    source.resolved = max(source.resolved, tick)
    storage = MemoryStorage()
    tables = {
        TableName(schema=name[0], table=name[1]): _table(source, name, picture, (tick, dice, storage))
        for name, picture in source.at(tick, with_statement=True).items()
        if name not in lacks
    }
    databases = [name for place, name in enumerate(DATABASES, 1) if place <= tick]
    return Export(identity=identity, tick=tick, databases=databases, tables=tables, storage=storage)


def _table(
    source: Source, name: Name, picture: Picture, into: tuple[int, random.Random, MemoryStorage]
) -> ExportedTable:
    tick, dice, storage = into
    rows = dice.sample(picture.rows, len(picture.rows))
    borders = sorted(dice.randint(0, len(rows)) for _ in range(dice.choice((0, 1, 1, 2))))
    cuts = [rows[start:end] for start, end in zip([0, *borders], [*borders, len(rows)], strict=True)]
    parts = tuple(tuple(cut) for cut in cuts if cut or dice.random() < 0.1)
    stored = tuple(_part(storage, name, number, part) for number, part in enumerate(parts, 1))
    return ExportedTable(
        uid=_uid(source, name, tick),
        picture=picture,
        parts=parts,
        copied=CopiedTable(definition=_definition(name, picture, tick), parts=stored),
    )


def _uid(source: Source, name: Name, tick: int) -> int:
    """The number of the table that has a name at a tick."""
    for table in source.known:
        last = next((moment for moment in reversed(table.moments) if moment.tick <= tick), None)
        if last is not None and last.name == name and last.picture is not None:
            return table.uid
    raise KeyError(name)


def _part(storage: MemoryStorage, name: Name, number: int, rows: tuple[Image, ...]) -> StoredObject:
    lines = [csv_line("I", name, clock_of(number, place), row) for place, row in enumerate(rows, 1)]
    path, content = f"{name[0]}.{name[1]}.{number:09d}.csv", "".join(lines).encode()
    storage.put(path, content)
    return next(each for each in storage.listing(frozenset(), {}) if each.path == path)


def _definition(name: Name, picture: Picture, tick: int) -> TableDefinition:
    extras = picture.columns[len(picture.shape.columns) :]
    body = ", ".join([create_body(picture.shape), *(f"{quote(extra)} {EXTRA}" for extra in extras)])
    query = f"CREATE TABLE {sql(name)} ({body})"
    columns = schema_columns(picture.shape, extras, finer=True)
    text, checksum = schema_document(SchemaFile(name=name, query=query, kind=3, columns=columns), ts(tick))
    path = f"{name[0]}.{name[1]}-schema.sql"
    return replace(
        parse_schema_file(text.encode(), path, TableVersion(ts(tick)), checksum, "/".join(name)),
        checksum=zlib.crc32(query.encode()),
    )


def _database(name: str, tick: int) -> TableDefinition:
    return TableDefinition(
        name=TableName(schema=name, table=""),
        version=TableVersion(ts(tick)),
        query=f"CREATE DATABASE {quote(name)}",
        ddl_type=DdlKind.CREATE_SCHEMA,
        columns=(),
        path=f"{name}-schema-create.sql",
        checksum=1,
    )
