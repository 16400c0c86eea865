"""Which tables have rows in the quarantine, and which statements may run on such a table. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from storage_consumer.model import DdlKind, TableColumn, TableDefinition, folded_name
from storage_consumer.plan.steps import DdlStep, key_of

_EMPTYING = frozenset((DdlKind.DROP_TABLE, DdlKind.TRUNCATE_TABLE))
_HARMLESS = frozenset(
    (
        *(DdlKind.ADD_COLUMN, DdlKind.ADD_COLUMNS, DdlKind.DROP_COLUMN, DdlKind.DROP_COLUMNS, DdlKind.MODIFY_COLUMN),
        *(DdlKind.SET_DEFAULT_VALUE, DdlKind.REBASE_AUTO_ID, DdlKind.MODIFY_TABLE_COMMENT, DdlKind.MULTI_SCHEMA_CHANGE),
        *(DdlKind.ADD_INDEX, DdlKind.DROP_INDEX, DdlKind.RENAME_INDEX, DdlKind.ALTER_INDEX_VISIBILITY),
        *(DdlKind.ADD_FOREIGN_KEY, DdlKind.DROP_FOREIGN_KEY, DdlKind.ADD_FULLTEXT_INDEX, DdlKind.CREATE_HYBRID_INDEX),
        *(DdlKind.ADD_PARTITION, DdlKind.ALTER_TTL, DdlKind.REMOVE_TTL, DdlKind.ALTER_SCHEMA, DdlKind.CREATE_SCHEMA),
        *(DdlKind.CREATE_TABLE, DdlKind.CREATE_TABLES, DdlKind.CREATE_VIEW, DdlKind.DROP_VIEW),
    )
)
"""Statements that move no row from one table to another, and remove none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntries:
    """The quarantined rows of one table."""

    count: int
    signatures: frozenset[str]
    """How their keys are compared; see `order.keys.key_signature`."""


class QuarantinedTables:
    """The tables that may have rows in the quarantine, by key."""

    def __init__(self) -> None:
        """Begin without any."""
        self._tables: dict[str, TableEntries] = {}

    def __bool__(self) -> bool:
        """Return whether there may be any."""
        return bool(self._tables)

    def of(self, key: str) -> TableEntries | None:
        """Return what is known of a table's entries; None if it has none."""
        return self._tables.get(key)

    def replace(self, found: Mapping[str, TableEntries]) -> None:
        """Take what the state holds now."""
        self._tables = dict(found)

    def note(self, key: str, count: int, signature: str) -> None:
        """Note that a table may have entries from now on, up to `count` more."""
        old = self._tables.get(key, TableEntries(count=0, signatures=frozenset()))
        self._tables[key] = TableEntries(count=old.count + count, signatures=old.signatures | {signature})

    @property
    def counts(self) -> Mapping[str, int]:
        """Key → number of rows, for tables that have any."""
        return {key: table.count for key, table in self._tables.items() if table.count}


def closed_by(step: DdlStep) -> tuple[str, str]:
    """Return whose entries a statement removes with the rows: the key of one table, and how keys of a database's tables begin; or empty."""
    kind = step.origin.definition.ddl_type
    if kind in _EMPTYING:
        return step.table_key, ""
    return ("", f"{step.table_key}.") if kind == DdlKind.DROP_SCHEMA else ("", "")


def gone_by(step: DdlStep) -> tuple[str, str]:
    """Return which names are no table's after a statement: the key of one, and how keys of a database's tables begin; or empty."""
    kind, rename = step.origin.definition.ddl_type, step.origin.ddl.rename
    if rename is not None:
        return key_of(rename.old), ""
    return ("", "") if kind == DdlKind.TRUNCATE_TABLE else closed_by(step)


def changes_nothing_to_compare(definition: TableDefinition, before: TableDefinition | None) -> bool:
    """Return whether a statement leaves the rows and columns of its table as they were `before`."""
    return definition.ddl_type in _HARMLESS and before is not None and before.columns == definition.columns


def may_run(step: DdlStep, before: TableDefinition | None, entries: TableEntries) -> bool:
    """Return whether a statement may run while a table that it touches has entries. `before`: the structure of its own table."""
    definition = step.origin.definition
    if any(closed_by(step)):
        return True
    if definition.ddl_type not in _HARMLESS:
        return False
    return before is None or not definition.columns or _key(before, entries) == _key(definition, entries)


def _key(definition: TableDefinition, entries: TableEntries) -> list[TableColumn]:
    """Return the columns by which rows are found."""
    names = {part[0] for signature in entries.signatures for part in json.loads(signature)[1:]}
    return [column for column in definition.columns if column.is_pk or folded_name(column.name) in names]
