"""Which tables a DDL touches, hence for which ones it is a barrier, and in which order statements of one version run.

Naming too many tables costs a little waiting; naming too few would let rows overtake a statement. So where a statement can
touch other tables at all, every known table whose name occurs in its text is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from storage_consumer.model import TableDefinition, TableName
from storage_consumer.planning.steps import DdlStep
from storage_consumer.sql_text import Token, find_words, has_words, names, tokens

CREATE_SCHEMA, DROP_SCHEMA, DROP_TABLE = 1, 2, 4
_MAY_NAME_OTHERS = (
    ("RENAME",),  # RENAME TABLE a TO b, ALTER TABLE a RENAME TO b
    ("EXCHANGE", "PARTITION"),
    ("LIKE",),
    ("REFERENCES",),
    ("VIEW",),
    ("DROP", "TABLE"),
)


def names_others(definition: TableDefinition) -> list[Token]:
    """The tokens of a statement that can touch other tables than its own; empty for all others."""
    found = tokens(definition.query)
    return found if any(has_words(found, *words) for words in _MAY_NAME_OTHERS) else []


def touched_names(definition: TableDefinition) -> set[TableName]:
    """Folded names that the statement touches or may touch; a database statement touches its database."""
    own = definition.name.folded()
    touched = {own}
    for schema, table, _ in names(names_others(definition)):
        touched.add(TableName(schema=(schema or own.schema).casefold(), table=table.casefold()))
    return touched


def mentioned_names(definition: TableDefinition) -> set[TableName]:
    """As `touched_names`, with the statement's own spelling."""
    own = definition.name
    return {own} | {
        TableName(schema=schema or own.schema, table=table) for schema, table, _ in names(names_others(definition))
    }


def touched_dirs(definition: TableDefinition, dirs_by_name: Mapping[TableName, Iterable[str]]) -> set[str]:
    """The known table directories that a DDL is a barrier for.

    `dirs_by_name` maps folded names to directories. A database statement (empty table name) touches every table in it.
    """
    if not definition.name.table:
        schema = definition.name.schema.casefold()
        return {table_dir for name, dirs in dirs_by_name.items() if name.schema == schema for table_dir in dirs}
    return {table_dir for name in touched_names(definition) for table_dir in dirs_by_name.get(name, ())}


def renamed(definition: TableDefinition) -> tuple[TableName, TableName] | None:
    """(old, new) folded names of a statement that renames its table, else None."""
    found = tokens(definition.query)
    at = find_words(found, "RENAME", depth=0)
    while 0 <= at < len(found) - 1 and found[at + 1].upper in ("COLUMN", "INDEX", "KEY"):
        at = find_words(found, "RENAME", depth=0, start=at + 1)
    if at < 0:
        return None
    before, after = _named(found[:at]), _named(found[at:])
    pair = [*before[:1], *after[:1]] if before else after
    if len(pair) < 2:  # noqa: PLR2004 - an old and a new name
        return None
    own = definition.name.folded()
    (old_schema, old), (new_schema, new) = pair[0], pair[-1]
    return (
        TableName(schema=(old_schema or own.schema).casefold(), table=old.casefold()),
        TableName(schema=(new_schema or own.schema).casefold(), table=new.casefold()),
    )


def _named(found: Sequence[Token]) -> list[tuple[str, str]]:
    """(schema, table) of each name in a statement that renames a table."""
    return [(schema, table) for schema, table, _ in names([token for token in found if token.upper not in _NOISE])]


_NOISE = frozenset(("RENAME", "TABLE", "ALTER", "TO", "AS", "IF", "EXISTS", ";", ","))


def in_dependency_order(group: Sequence[DdlStep]) -> tuple[DdlStep, ...]:
    """Statements of one version so that one that frees a name runs before the one that takes it.

    A database statement runs before those of its tables, a table that only has to be there is made before a statement that may
    need it. Renames that form a cycle keep their order by directory.
    """
    waiting = sorted(
        group, key=lambda step: (bool(step.name.table), not step.ensure, step.table_dir, step.definition.checksum)
    )
    pairs = {step.identity: renamed(step.definition) for step in waiting}
    ordered: list[DdlStep] = []
    while waiting:
        sources = {pair[0] for step in waiting if (pair := pairs[step.identity])}
        free = [
            s for s in waiting if (pair := pairs[s.identity]) is None or pair[1] not in sources or pair[0] == pair[1]
        ]
        for step in free or waiting[:1]:
            ordered.append(step)
            waiting.remove(step)
    return tuple(ordered)
