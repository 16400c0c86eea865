"""When tables and databases begin and end, according to the statements seen."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from storage_consumer.model import DdlKind, TableDefinition, TableName, folded_name
from storage_consumer.plan.in_order import Numbers, Together
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table import TableConsumer
from storage_consumer.plan.table_state import TableState
from storage_consumer.plan.table_words import DROPPED_UNSEEN, WAS_LEFT_OUT
from storage_consumer.sql.parse import parsed


class Lifetimes:
    """The beginnings and ends that the statements of a bucket show."""

    def __init__(self) -> None:
        """Start without any statement."""
        self._ends = defaultdict[str, Numbers](Numbers)
        self._renames = defaultdict[str, dict[int, TableName]](dict)
        self._created: dict[str, int] = {}
        self._databases = defaultdict[str, dict[int, str]](dict)

    def ends(self, key: str, definition: TableDefinition) -> None:
        """Record which table or database a statement ends, or which defaults it sets; `key`: the one that it leads to."""
        if definition.ddl_type in (DdlKind.DROP_TABLE, DdlKind.DROP_SCHEMA):
            self._ends[key].add(definition.version)
        # A change of case alone ends nothing: both names fold to one. Nor is it known what ends where a database is left open.
        rename = parsed(definition).rename
        pair = None if rename is None or rename.from_anywhere else rename.folded
        if pair is not None and pair[0] != pair[1]:
            self._ends[key_of(pair[0])].add(definition.version)
            self._renames[key_of(pair[0])][definition.version] = pair[1]
        if definition.ddl_type in (DdlKind.CREATE_SCHEMA, DdlKind.ALTER_SCHEMA):
            self._databases[folded_name(definition.name.schema)][definition.version] = definition.query

    def creates(self, schema: str, version: int) -> None:
        """Record that a statement creates a database."""
        name = folded_name(schema)
        # The earliest one: whatever came later, the bucket's own statements had made the database by then.
        self._created[name] = min(version, self._created.get(name, version))

    def ends_of(self, table: TableConsumer) -> Together:
        """Return the versions of the statements that ended the table, including those that dropped its database."""
        return Together(self._ends[table.key], self._ends[key_of(replace(table.name, table=""))])

    def renamed_to(self, key: str, version: int) -> TableName | None:
        """Return the folded name that the rename of a version gave to a table; None if it was not renamed by it."""
        return self._renames.get(key, {}).get(version)

    def database_statements(self, schema: str, version: int) -> tuple[str, ...]:
        """Return the statements up to a version (inclusive) that created the database and changed its defaults, in order."""
        known = self._databases.get(folded_name(schema), {})
        return tuple(text for at, text in sorted(known.items()) if at <= version)

    def is_created(self, schema: str, version: int) -> bool:
        """Return whether a statement up to this version (inclusive) creates the database."""
        return self._created.get(folded_name(schema), version + 1) <= version


def dropped_unseen(table: TableConsumer, lifetimes: Lifetimes) -> int:
    """Return the version of the DROP with which all ends that a table lacks since the filter left it out; 0 where there is none.

    Up to the table's checkpoint files and statements were passed over. What comes after it is all in files, such as a table that is created
    again. A table that is halted for another reason, or has a copy to come, is left to that.
    """
    status = table.status
    halts_for_it = status.lacks_past and status.error.startswith((WAS_LEFT_OUT, DROPPED_UNSEEN))
    if not halts_for_it or status.state != TableState.HALTED or status.apart or status.misplaced or status.nowhere:
        return 0
    ends, upto = lifetimes.ends_of(table), table.checkpoint + 1
    version = ends.before(upto) or 0
    # By a rename the rows went to another table.
    is_drop = version and lifetimes.renamed_to(table.key, version) is None
    return version if is_drop and table.timeline.is_free_before(upto, ends) else 0


def is_dropped_after(step: DdlStep, table: TableConsumer, gone: TableName | None) -> bool:
    """Return whether a table that the statement touches no longer exists after it; `gone`: the name that it removes, if any."""
    own = table.key == step.table_key
    if step.definition.ddl_type == DdlKind.DROP_SCHEMA:
        return bool(table.name.table)
    if step.definition.ddl_type == DdlKind.DROP_TABLE:
        return own or table.status.dropped
    # Any other statement leads to a table that is there; a view has no rows, so its DROP need not be noted.
    if own:
        return False
    return table.status.dropped or table.name.folded() == gone
