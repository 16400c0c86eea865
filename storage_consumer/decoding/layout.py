"""Which columns the rows of a table version carry."""

from __future__ import annotations

from storage_consumer.decoding.decoder import RowLayout
from storage_consumer.decoding.values import is_known
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn, TableDefinition

_HIDDEN_PREFIX = "_v$_"


def is_hidden(name: str) -> bool:
    """Whether TiDB made this column for an expression index: schema files list it, rows never have it."""
    return name.casefold().startswith(_HIDDEN_PREFIX)


def row_layout(definition: TableDefinition, virtual: frozenset[str]) -> RowLayout:
    """The columns of the definition's rows, in order.

    `virtual` holds the casefolded names of the virtual generated columns as the target reports them: schema files do not
    mark them, and rows never carry them. Raises `NotReplicable` when a column's type has no rule, before any row is read.
    """
    columns = tuple(
        column for column in definition.columns if not is_hidden(column.name) and column.name.casefold() not in virtual
    )
    for column in columns:
        _check_type(definition, column)
    return RowLayout(table=definition.name, columns=columns)


def _check_type(definition: TableDefinition, column: TableColumn) -> None:
    if not is_known(column):
        raise NotReplicable(
            f"{definition.name}: column {column.name} has the type {column.type} ({definition.path}), whose values this "
            "program cannot carry over; leave the table out of the changefeed, or give the column another type at the source"
        )
