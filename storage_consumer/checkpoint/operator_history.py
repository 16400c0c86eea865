"""The schema history as an operator sees it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from storage_consumer.checkpoint.operator import StateInspector
from storage_consumer.checkpoint.structures import KEPT, definition_of
from storage_consumer.errors import MalformedSchemaFile
from storage_consumer.model import TableDefinition, TableName

_NAMES = tuple(KEPT.split(", "))


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
    def identity(self) -> tuple[str, int, int]:
        """The identity, as in the journal."""
        return self.table_dir, self.version, self.checksum


class SchemaHistoryReader(StateInspector):
    """Reads structures; one method per question."""

    def tables(self) -> list[KeptTable]:
        """Return all tables, by name."""
        history = self.table("schema_history")
        rows = self.rows(
            f"SELECT h.table_key, h.schema_name, h.table_name, g.n, g.low, g.high, h.query FROM {history} h JOIN (SELECT "
            f"table_key, COUNT(*) AS n, MIN(version) AS low, MAX(version) AS high FROM {history} GROUP BY table_key) g "
            "ON h.table_key = g.table_key AND h.version = g.high ORDER BY h.table_key, h.query = ''"
        )
        found: dict[str, KeptTable] = {}
        for key, schema, table, count, first, last, query in rows:
            name = TableName(schema=schema, table=table)
            found.setdefault(
                key, KeptTable(key=key, name=name, versions=int(count), first=first, last=last, query=query)
            )
        return list(found.values())

    def versions(self, keys: Collection[str]) -> list[KeptVersion]:
        """Return all versions of the tables with these keys, in order."""
        return self._entries(
            f"table_key IN ({', '.join(['%s'] * len(keys))}) ORDER BY version, table_dir, checksum", tuple(keys)
        )

    def structure_at(self, key: str, ts: int) -> KeptVersion | None:
        """Return a table's structure that is in force at a version or commit-ts (inclusive), or None if none is known."""
        found = self._entries("table_key = %s AND version <= %s ORDER BY version DESC, digest LIMIT 1", (key, ts))
        return found[0] if found else None

    def _entries(self, where: str, arguments: Collection[object]) -> list[KeptVersion]:
        rows = self.rows(
            f"SELECT {KEPT.replace('columns', '`columns`')} FROM {self.table('schema_history')} WHERE {where}",
            arguments,
        )
        return [_entry(dict(zip(_NAMES, row, strict=True))) for row in rows]


def _entry(record: dict[str, object]) -> KeptVersion:
    definition, damage = None, ""
    try:
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
