"""The schema history as an operator sees it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select

from storage_consumer.checkpoint.operator_connection import OperatorConnection
from storage_consumer.checkpoint.structures import definition_of
from storage_consumer.errors import MalformedSchemaFile
from storage_consumer.model import DdlId, TableDefinition, TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTable:
    """One table (or database) whose structures are kept."""

    key: str
    name: TableName
    versions: int
    first: int
    last: int
    query: str
    """The newest statement; empty for a structure without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersion:
    """One entry of the history. A damaged one has no `definition`, and `damage` says why."""

    table_dir: str
    version: int
    checksum: int
    definition: TableDefinition | None
    damage: str = ""

    @property
    def identity(self) -> DdlId:
        """The identity, as in the journal."""
        return DdlId(self.table_dir, self.version, self.checksum)


class HistoryInspector:
    """Reads structures; one method per question."""

    def __init__(self, connection: OperatorConnection) -> None:
        """Use `connection`."""
        self._connection = connection
        self._structures = connection.tables.structures

    def tables(self) -> list[KeptTable]:
        """Return all tables, by name."""
        kept = self._structures.c
        ends = (func.count().label("n"), func.min(kept.version).label("low"), func.max(kept.version).label("high"))
        all_of = select(kept.table_key, *ends).group_by(kept.table_key).subquery("all_of")
        newest = (kept.table_key == all_of.c.table_key) & (kept.version == all_of.c.high)
        query = (
            select(
                kept.table_key, kept.schema_name, kept.table_name, all_of.c.n, all_of.c.low, all_of.c.high, kept.query
            )
            .join_from(self._structures, all_of, newest)
            # Several entries may have the newest version: one with a statement comes first, and the first one counts.
            .order_by(kept.table_key, kept.query == "")
        )
        found: dict[str, KeptTable] = {}
        for key, schema, table, count, first, last, statement in self._connection.rows(query):
            name = TableName(schema=schema, table=table)
            found.setdefault(
                key, KeptTable(key=key, name=name, versions=int(count), first=first, last=last, query=statement)
            )
        return list(found.values())

    def versions(self, keys: Collection[str]) -> list[KeptVersion]:
        """Return all versions of the tables with these keys, in order."""
        kept = self._structures.c
        query = select(self._structures).where(kept.table_key.in_(keys))
        return self._entries(query.order_by(kept.version, kept.table_dir, kept.checksum))

    def structure_at(self, key: str, ts: int) -> KeptVersion | None:
        """Return a table's structure that is in force at a version or commit-ts (inclusive), or None if none is known."""
        kept = self._structures.c
        query = select(self._structures).where(kept.table_key == key, kept.version <= ts)
        # By digest too, so that of several of one version it is the same one each time.
        found = self._entries(query.order_by(kept.version.desc(), kept.digest).limit(1))
        return found[0] if found else None

    def _entries(self, query: Select[Any]) -> list[KeptVersion]:
        names = self._structures.c.keys()
        return [_entry(dict(zip(names, row, strict=True))) for row in self._connection.rows(query)]


def _entry(record: dict[str, object]) -> KeptVersion:
    definition, damage = None, ""
    try:
        # A damaged row is shown with its damage, so that the others can still be read.
        definition = definition_of(record)
    except MalformedSchemaFile as fault:
        damage = str(fault)
    return KeptVersion(
        table_dir=str(record["table_dir"]),
        version=int(str(record["version"])),
        checksum=int(str(record["checksum"])),
        definition=definition,
        damage=damage,
    )
