"""What became of one table up to a commit-ts: under which names, through which statements, and where each of its columns came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from storage_consumer.errors import NotReplicable
from storage_consumer.feed.moves import brings_back, is_of_partitions
from storage_consumer.model import DdlKind, TableDefinition, TableName, folded_name
from storage_consumer.sql.parse import parsed


@dataclass(slots=True, kw_only=True)
class TableHistory:
    """A table from where it began, or from where the bucket first shows it."""

    begin: int | None
    """Commit-ts at which (inclusive) it was made, or emptied; None: the bucket does not show it."""
    steps: list[TableDefinition] = field(default_factory=list)
    """Its structures in order, with the statements that led to them."""
    broken: str = ""
    """Why rows cannot be followed through a statement; empty: they can."""
    broken_at: int = 0
    """The last such statement's version."""

    @property
    def last(self) -> TableDefinition:
        """Its structure in the end."""
        return next(step for step in reversed(self.steps) if step.columns)

    @property
    def names(self) -> tuple[TableName, ...]:
        """The names that it had, each once."""
        return tuple(dict.fromkeys(parsed(step).subject for step in self.steps))

    def name_at(self, commit_ts: int) -> TableName:
        """Return the name that it had at a commit-ts."""
        before = [step for step in self.steps if step.version <= commit_ts]
        if before:
            return parsed(before[-1]).subject
        rename = parsed(self.steps[0]).rename
        return parsed(self.steps[0]).subject if rename is None else rename.old

    def after(self, version: int) -> list[TableDefinition]:
        """Return the steps after a version."""
        return [step for step in self.steps if step.version > version]


def history_at(name: TableName, commit_ts: int, known: Sequence[TableDefinition]) -> TableHistory:
    """Return the table that has a name at a commit-ts, after the statements at it. `known`: all definitions, in running order.

    Raises `NotReplicable` if there is none.
    """
    tables: dict[TableName, TableHistory] = {}
    for definition in known:
        if definition.version > commit_ts:
            break
        _take(definition, tables)
    found = tables.get(name.folded())
    if found is None or not any(step.columns for step in found.steps):
        raise NotReplicable(f"{name}: the bucket shows no such table at commit-ts {commit_ts}")
    return found


def _take(definition: TableDefinition, tables: dict[TableName, TableHistory]) -> None:
    """Note what a statement did to the tables, or which structure a file shows."""
    subject = parsed(definition).subject.folded()
    if not subject.table:
        if parsed(definition).head[:1] == ("DROP",):
            for name in [name for name in tables if name.schema == subject.schema]:
                del tables[name]
    elif definition.ddl_type in (DdlKind.DROP_TABLE, DdlKind.DROP_VIEW):
        tables.pop(subject, None)
    else:
        _append(definition, subject, tables)


def _append(definition: TableDefinition, subject: TableName, tables: dict[TableName, TableHistory]) -> None:
    """Add a step to a table, which it may have made, emptied or renamed."""
    ddl, version = parsed(definition), definition.version
    if ddl.rename is not None and ddl.rename.from_anywhere:
        _rename_from_anywhere(definition, subject, tables)
    elif ddl.renamed is not None and ddl.renamed[0] != ddl.renamed[1]:
        tables[subject] = tables.pop(ddl.renamed[0], TableHistory(begin=None))
    elif ddl.creates_table:
        tables[subject] = TableHistory(begin=version)
    table = tables.setdefault(subject, TableHistory(begin=None))
    if definition.ddl_type == DdlKind.TRUNCATE_TABLE:
        table.begin, table.broken = version, ""
    elif why := _loss(definition, table):
        table.broken, table.broken_at = f"{why} ({definition.query.strip()[:200]!r} at {version})", version
    table.steps.append(definition)
    # The table that gives its rows for those of a partition has no file of the statement.
    others = ddl.touched - {subject} if ddl.exchanges_partition else ()
    for name in others:
        if name in tables:
            tables[name].broken, tables[name].broken_at = table.broken, version


def _rename_from_anywhere(
    definition: TableDefinition, subject: TableName, tables: dict[TableName, TableHistory]
) -> None:
    """Note a rename of which nothing tells in which database its old name was; see `with_databases`."""
    ddl = parsed(definition)
    assert ddl.rename is not None
    old = ddl.rename.old.folded().table
    why = f"a statement does not say which database's table it renames ({definition.query.strip()[:200]!r} at {definition.version})"
    for name, table in tables.items():
        if name.table == old and name != subject:
            table.broken, table.broken_at = why, definition.version
    tables[subject] = TableHistory(begin=None, broken=why, broken_at=definition.version)


def _loss(definition: TableDefinition, table: TableHistory) -> str:
    """Return why rows cannot be followed through a statement; empty if they can."""
    if brings_back(parsed(definition)):
        return "a statement brought back rows that the files do not have"
    if is_of_partitions(definition):
        return "a statement took away or put in rows that the files do not show"
    before = next((step for step in reversed(table.steps) if step.columns), None)
    if not definition.is_ddl and before is not None and definition.columns and _differ(before, definition):
        return "the structure changed and no statement shows how"
    return ""


def _differ(before: TableDefinition, after: TableDefinition) -> bool:
    shown = ([(folded_name(c.name), c.type, c.unsigned, c.scale) for c in each.columns] for each in (before, after))
    return next(shown) != next(shown)
