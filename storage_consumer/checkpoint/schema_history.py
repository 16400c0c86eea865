"""StoredHistory: what every schema file that was ever read says of its table at its version."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, or_, select

from storage_consumer.checkpoint.structures import definition_of, record_of
from storage_consumer.checkpoint.transactions import StateTransactions, name_in, put_all
from storage_consumer.downstream.state_tables import IDENTITY, same_statement
from storage_consumer.errors import MalformedSchemaFile
from storage_consumer.model import DdlId, TableDefinition, TableName
from storage_consumer.plan.journal import DONE, SKIPPED

_BATCH = 20
"""Structures per statement: their sizes differ much, and a packet is limited."""


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


class StoredHistory:
    """The schema history of one feed. Each entry is complete: no other is needed to read it."""

    def __init__(self, transactions: StateTransactions) -> None:
        """Read and write it in `transactions`."""
        self._transactions = transactions
        self._tables = transactions.tables
        self._kept: dict[tuple[object, ...], object] | None = None
        """What is known to be stored: identity → digest. Keys only, never structures; None until first needed."""

    def keep(self, read: Iterable[tuple[str, TableDefinition]]) -> None:
        """Store the structures that were read, each with its table directory. A structure that is stored already costs nothing."""
        records = [record_of(table_dir, definition) for table_dir, definition in read]
        if not records:
            return
        table = self._tables.structures
        with self._transactions.owned("storing structures") as connection:
            # Once for each process: from then on the owner alone adds to it.
            if self._kept is None:
                rows = connection.execute(select(*(table.c[name] for name in IDENTITY), table.c.digest)).all()
                self._kept = {tuple(row[:3]): row.digest for row in rows}
            known = self._kept
            new = [r for r in records if known.get(tuple(r[name] for name in IDENTITY)) != r["digest"]]
            # A file that was rewritten under its name replaces what was read of it.
            put_all(connection, table, new, _BATCH)
        # Only after the commit: a transaction that failed has stored nothing.
        known.update({tuple(r[name] for name in IDENTITY): r["digest"] for r in new})

    def known_versions(self) -> frozenset[tuple[str, int]]:
        """Return table directory and version of all schema files that were ever read."""
        table = self._tables.structures.c
        with self._transactions.owned("reading the known versions") as connection:
            rows = connection.execute(select(table.table_dir, table.version)).all()
        return frozenset((row.table_dir, row.version) for row in rows)

    def unresolved(self) -> list[tuple[str, int]]:
        """Return table directory and version of the kept statements that the journal has as neither done nor skipped."""
        kept, journal = self._tables.structures.c, self._tables.journal.c
        same = same_statement(self._tables.structures, self._tables.journal)
        query = (
            select(kept.table_dir, kept.version)
            .join_from(self._tables.structures, self._tables.journal, same, isouter=True)
            # No entry in the journal counts as unresolved: the process may have ended right after the file was kept.
            .where(kept.query != "", or_(journal.state.is_(None), journal.state.not_in((DONE, SKIPPED))))
        )
        with self._transactions.owned("reading the unresolved statements") as connection:
            return sorted({(row.table_dir, row.version) for row in connection.execute(query)})

    def kept(self, table_dir: str, version: int) -> list[TableDefinition]:
        """Return what the schema files of one version directory said, whether or not they still exist.

        Raise `MalformedSchemaFile` if an entry is damaged.
        """
        table = self._tables.structures
        query = select(table).where(table.c.table_dir == table_dir, table.c.version == version)
        with self._transactions.owned("reading a structure") as connection:
            return [definition_of(row._asdict()) for row in connection.execute(query.order_by(table.c.checksum))]

    # what an operator sees

    def tables(self) -> list[KeptTable]:
        """Return all tables, by name."""
        kept = self._tables.structures.c
        ends = (
            func.count().label("versions"),
            func.min(kept.version).label("first"),
            func.max(kept.version).label("last"),
        )
        all_of = select(kept.table_key, *ends).group_by(kept.table_key).subquery("all_of")
        newest = (kept.table_key == all_of.c.table_key) & (kept.version == all_of.c.last)
        query = (
            select(kept.schema_name, kept.table_name, kept.query, all_of)
            .join_from(self._tables.structures, all_of, newest)
            # Several entries may have the newest version: one with a statement comes first, and the first one counts.
            .order_by(kept.table_key, kept.query == "")
        )
        found: dict[str, KeptTable] = {}
        for row in self._transactions.rows(query):
            table = KeptTable(
                key=row.table_key,
                name=name_in(row),
                versions=int(row.versions),
                first=row.first,
                last=row.last,
                query=row.query,
            )
            found.setdefault(table.key, table)
        return list(found.values())

    def versions(self, keys: Collection[str]) -> list[KeptVersion]:
        """Return all versions of the tables with these keys, in order."""
        kept = self._tables.structures
        query = select(kept).where(kept.c.table_key.in_(keys))
        return self._entries(query.order_by(kept.c.version, kept.c.table_dir, kept.c.checksum))

    def structure_at(self, key: str, ts: int) -> KeptVersion | None:
        """Return a table's structure that is in force at a version or commit-ts (inclusive), or None if none is known."""
        kept = self._tables.structures
        query = select(kept).where(kept.c.table_key == key, kept.c.version <= ts)
        # By digest too, so that of several of one version it is the same one each time.
        found = self._entries(query.order_by(kept.c.version.desc(), kept.c.digest).limit(1))
        return found[0] if found else None

    def _entries(self, query: Select[Any]) -> list[KeptVersion]:
        found = []
        for row in self._transactions.rows(query):
            definition, damage = None, ""
            try:
                # A damaged row is shown with its damage, so that the others can still be read.
                definition = definition_of(row._asdict())
            except MalformedSchemaFile as fault:
                damage = str(fault)
            found.append(
                KeptVersion(
                    table_dir=row.table_dir,
                    version=row.version,
                    checksum=row.checksum,
                    definition=definition,
                    damage=damage,
                )
            )
        return found
