"""Which tables a DDL touches, hence for which ones it is a barrier, and in which order statements of one version run.

Naming too many tables costs a little waiting; naming too few would let rows overtake a statement. So where a statement can
touch other tables at all, every known table whose name occurs in its text counts as touched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from storage_consumer.model import DdlKind, TableDefinition, TableName, folded_name
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.unqualified_names import of_any_database
from storage_consumer.sql.parse import parsed

DROPS = frozenset((DdlKind.DROP_SCHEMA, DdlKind.DROP_TABLE, DdlKind.DROP_VIEW))
"""Kinds that remove the object that they are about."""
MAKES_TABLE = frozenset(
    (
        DdlKind.CREATE_TABLE,
        DdlKind.RENAME_TABLE,
        DdlKind.RENAME_TABLES,
        DdlKind.CREATE_VIEW,
        DdlKind.RECOVER_TABLE,
        DdlKind.CREATE_TABLES,
    )
)
"""Kinds that give a name a table, a view, or the table's former rows."""


@dataclass(frozen=True, slots=True)
class KnownTables:
    """The known tables (and databases), by their folded names."""

    keys: frozenset[str]
    by_schema: Mapping[str, frozenset[str]]
    """Folded database → keys of its tables, and its own."""
    by_table: Mapping[str, frozenset[str]]
    """Folded table name → keys of the tables of that name, whatever their database."""
    stand_ins: frozenset[str] = frozenset()
    """Keys of those without a schema file: only data files lie in a folder of that name."""

    @classmethod
    def of(cls, names: Iterable[TableName], stand_ins: frozenset[str] = frozenset()) -> KnownTables:
        """Build from names in any spelling."""
        by_schema, by_table = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for name in names:
            folded, key = name.folded(), key_of(name)
            by_schema[folded.schema].add(key)
            if folded.table:
                by_table[folded.table].add(key)
        return cls(
            keys=frozenset(key for keys in by_schema.values() for key in keys),
            by_schema={schema: frozenset(keys) for schema, keys in by_schema.items()},
            by_table={table: frozenset(keys) for table, keys in by_table.items()},
            stand_ins=stand_ins,
        )


def touched_keys(definition: TableDefinition, known: KnownTables) -> set[str]:
    """Return the known tables that a DDL is a barrier for. A database statement (empty table name) touches every table in it.

    A name that may belong to any database touches all tables of that name. A folder without a schema file may be one that
    somebody left there: it holds up only a DROP DATABASE, which would remove its rows.
    """
    if not definition.name.table:
        inside = set(known.by_schema.get(folded_name(definition.name.schema), ()))
        return inside if definition.ddl_type == DdlKind.DROP_SCHEMA else inside - known.stand_ins
    ddl = parsed(definition)
    # The names may be any words of the statement; those that no table has fall out here.
    touched = {key_of(name) for name in (ddl.subject, *ddl.mentioned)} & known.keys
    for name in of_any_database(definition):
        touched |= known.by_table.get(folded_name(name.table), frozenset())
    return touched


def renamed_keys(definition: TableDefinition) -> frozenset[str]:
    """Return the old and new name of a rename as keys, known or not: renames of one cycle may meet in a name that no file shows."""
    return frozenset(map(key_of, parsed(definition).renamed or ()))


def in_dependency_order(group: Sequence[DdlStep]) -> tuple[DdlStep, ...]:
    """Return statements of one version so that one that frees a name runs before the one that takes it.

    A database statement runs before those of its tables. A table that only has to exist is created before a statement that may
    need it. Renames that form a cycle keep their order by directory.
    """
    waiting = sorted(
        group,
        # Databases first, then what only has to exist. Directory and checksum make the order the same in every run.
        key=lambda step: (bool(step.name.table), not step.ensure, step.table_dir, step.definition.checksum),
    )
    pairs = {step.identity: step.ddl.renamed for step in waiting}
    ordered: list[DdlStep] = []
    while waiting:
        sources = {pair[0] for step in waiting if (pair := pairs[step.identity])}
        # A rename that changes only the case has one folded name for both, and waits for nobody.
        free = [
            s for s in waiting if (pair := pairs[s.identity]) is None or pair[1] not in sources or pair[0] == pair[1]
        ]
        # Nothing is free in a cycle of renames: take one anyway, and let the driver find the order that can run.
        taken = free or waiting[:1]
        ordered += taken
        gone = {step.identity for step in taken}
        waiting = [step for step in waiting if step.identity not in gone]
    return tuple(ordered)
