"""Which database a name without one belongs to, where the statement and the bucket's history show it.

TiDB stores a statement as it was typed, without the session's database. A statement whose own table has no database was typed in
the database of its schema file, so that all its names without one belong to that database. Only if its own table is named with a
database can another name belong to any: what the statement reads, and the old name of a rename.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage_consumer.errors import NotReplicable
from storage_consumer.model import NameAt, Rename, TableColumn, TableDefinition, TableName, folded_name
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.real_names import Existing


def of_any_database(definition: TableDefinition) -> list[NameAt]:
    """Return the names in a statement that may belong to another database than the definition's, though they give none."""
    ddl = parsed(definition)
    found = [name for name in ddl.names if name.table]
    if ddl.rename is not None:
        # Of a rename only the old name can be elsewhere, and only if the new one was typed with its database.
        return [name for name in found if not name.schema and not name.new] if ddl.rename.from_anywhere else []
    # What is created or changed without a database lies in the session's, and that is the one of the schema file.
    if any(not name.schema and not name.reads for name in found):
        return []  # the session was in the definition's own database
    return [name for name in found if not name.schema]


@dataclass(frozen=True, slots=True, kw_only=True)
class Namesake:
    """A table that a name without a database may mean."""

    name: TableName
    columns: tuple[TableColumn, ...]
    """As of the statement's version; empty if they are not known."""
    stays: bool = False
    """Whether later files show that it was there under this name all the time."""


def home_of(
    name: NameAt, definition: TableDefinition, existing: Existing, namesakes: Sequence[Namesake]
) -> TableName | None:
    """Return the table of another database that a name of `of_any_database` means; None for one of the definition's own.

    `namesakes`: the tables of that name in the bucket's history. What is read is looked up in the own database first and is
    taken from another only if exactly one has it. A rename takes the one table that has the columns of the renamed one and that
    no later file shows to have stayed. Raises `NotReplicable` where this leaves several tables, or none but the wrong ones.
    """
    own = TableName(schema=definition.name.schema, table=name.table).folded()
    # A table of the bucket's history that the target lacks cannot be what the statement finds.
    there = [n for n in namesakes if n.name.folded() in existing]
    rename = parsed(definition).rename
    if rename is not None and rename.old.table == name.table:
        return _renamed_home(rename, definition, own, _with_unknown(own, existing, there))
    if own in existing:
        return None
    # What was made LIKE a table has its columns, so one that is known to have others cannot be meant.
    if _copies(definition):
        there = [n for n in there if n.columns in ((), definition.columns)]
    return there[0].name if len(there) == 1 else None


def former_home(
    name: NameAt, definition: TableDefinition, existing: Existing, namesakes: Sequence[Namesake]
) -> TableName | None:
    """Return what `home_of` does, once the statement has taken effect: a rename has removed the one that is no longer there."""
    rename = parsed(definition).rename
    if rename is None or rename.old.table != name.table:
        return home_of(name, definition, existing, namesakes)
    return next((n.name for n in namesakes if n.name.folded() not in existing), None)


def _with_unknown(own: TableName, existing: Existing, there: Sequence[Namesake]) -> list[Namesake]:
    """Return `there` with the definition's own table, if the target has one that no file shows."""
    if own not in existing or any(n.name.folded() == own for n in there):
        return list(there)
    return [Namesake(name=existing[own], columns=()), *there]


def _renamed_home(
    rename: Rename, definition: TableDefinition, own: TableName, there: Sequence[Namesake]
) -> TableName | None:
    """Return what `home_of` does, for the old name of a rename; `there`: the tables of that name that the target has."""
    if rename.new.folded() == own and any(n.name.folded() == own for n in there):
        return None  # only the case of the name changes
    # What stays under its name is not what was renamed.
    moved = [n for n in there if not n.stays]
    alike = [n for n in moved if n.columns in ((), definition.columns)]
    fitting = alike or [n for n in moved if _column_names(n.columns) == _column_names(definition.columns)]
    if len(fitting) == 1:
        return None if fitting[0].name.folded() == own else fitting[0].name
    if not there:
        return None
    names = ", ".join(str(n.name) for n in fitting or there)
    which = f"it could be any of {names}" if fitting else f"none of the known tables fits ({names})"
    message = (
        f"the DDL of {definition.path} renames {rename.old.table} without naming its database, and {which}. Rename "
        "the right table manually"
    )
    raise NotReplicable(message)


def _column_names(columns: Sequence[TableColumn]) -> list[str]:
    return [folded_name(column.name) for column in columns]


def _copies(definition: TableDefinition) -> bool:
    """Return whether the statement creates a table like the one that it reads."""
    ddl = parsed(definition)
    return ddl.creates_table and not ddl.has_references
