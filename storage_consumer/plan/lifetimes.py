"""When tables and databases begin and end, by the statements that were seen."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from storage_consumer.model import TableDefinition, TableName, folded_name
from storage_consumer.plan.barriers import ALTER_SCHEMA, CREATE_SCHEMA, DROP_SCHEMA, DROP_TABLE
from storage_consumer.plan.renames import renamed
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table import TableConsumer


class Lifetimes:
    """What the statements of a bucket say of beginnings and ends."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self._ends = defaultdict[str, set[int]](set)
        self._created: dict[str, int] = {}
        self._databases = defaultdict[str, dict[int, str]](dict)

    def ends(self, key: str, definition: TableDefinition) -> None:
        """Remember which table or database a statement takes away, or which defaults it gives; `key` of the one that it leads to."""
        if definition.ddl_type in (DROP_TABLE, DROP_SCHEMA):
            self._ends[key].add(definition.version)
        pair = renamed(definition)
        if pair is not None and pair[0] != pair[1]:
            self._ends[key_of(pair[0])].add(definition.version)
        if definition.ddl_type in (CREATE_SCHEMA, ALTER_SCHEMA):
            self._databases[folded_name(definition.name.schema)][definition.version] = definition.query

    def creates(self, schema: str, version: int) -> None:
        """Remember that a statement makes a database."""
        name = folded_name(schema)
        self._created[name] = min(version, self._created.get(name, version))

    def ends_of(self, table: TableConsumer) -> set[int]:
        """Versions of the statements that took the table away, its database's among them."""
        return self._ends[table.key] | self._ends[key_of(replace(table.name, table=""))]

    def database_statements(self, schema: str, version: int) -> tuple[str, ...]:
        """The statements up to a version that made the database and changed its defaults, in order."""
        known = self._databases.get(folded_name(schema), {})
        return tuple(text for at, text in sorted(known.items()) if at <= version)

    def is_created(self, schema: str, version: int) -> bool:
        """Whether a statement up to this version makes the database."""
        return self._created.get(folded_name(schema), version + 1) <= version


def is_dropped_after(step: DdlStep, table: TableConsumer, gone: TableName | None) -> bool:
    """Whether a table that the statement touches does not exist after it; `gone`: the name that it takes away, if any."""
    own = table.key == step.table_key
    if step.definition.ddl_type == DROP_SCHEMA:
        return bool(table.name.table)
    if step.definition.ddl_type == DROP_TABLE:
        return own or table.dropped
    if own:
        return False
    return table.dropped or table.name.folded() == gone
