"""Determine which columns the rows of a table version have."""

from __future__ import annotations

from collections.abc import Iterable

from storage_consumer.config.settings import Upstream
from storage_consumer.config.table_filter import unselected, vouching
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.time_zone import UTC, converted_zone, session_zone
from storage_consumer.decode.values import is_known
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn, TableDefinition, folded_name

_HIDDEN_PREFIX = "_v$_"
_SOFT_DELETES = frozenset((("_tidb_origin_ts", "BIGINT", True), ("_tidb_softdelete_time", "TIMESTAMP", False)))
"""Name, type, and whether that is unsigned: a column of another type is an application's own."""


def is_hidden(name: str) -> bool:
    """Return whether TiDB created this column for an expression index: schema files list it, rows never have it."""
    return folded_name(name).startswith(_HIDDEN_PREFIX)


def hidden_columns(columns: Iterable[TableColumn]) -> tuple[str, ...]:
    """Return the columns that rows have and the source's queries do not: where they are, TiDB hides deleted rows by them."""
    named = ((folded_name(column.name), column) for column in columns)
    return tuple(name for name, column in named if (name, column.type, column.unsigned) in _SOFT_DELETES)


def row_layout(definition: TableDefinition, virtual: frozenset[str], upstream: Upstream) -> RowLayout:
    """Return the columns of the definition's rows, in order.

    `virtual`: the folded names of the virtual generated columns as the target reports them. Schema files do not
    mark them, and rows never have them. Raises `NotReplicable`, before any row is read, if a column's type has no rule,
    or if it is TIMESTAMP and no time zone for its values is configured. A column that the changefeed's selectors leave out
    is no reason for that; without a rule for its values no row may have it.
    """
    real = [c for c in definition.columns if not is_hidden(c.name) and folded_name(c.name) not in virtual]
    names = [column.name for column in real]
    table = (definition.name.schema, definition.name.table)
    lacking = unselected(upstream.column_selectors, table, names, case=upstream.case_sensitive)
    zoned = upstream.time_zone != ""
    columns = tuple(c for c in real if c.name not in lacking or (is_known(c) and (zoned or c.type != "TIMESTAMP")))
    for column in columns:
        _check_type(definition, column)
        _check_zone(definition, column, upstream.time_zone)
    zone, session = zones(upstream)
    has_key = frozenset(folded_name(column.name) for column in columns if column.is_pk)
    return RowLayout(
        table=definition.name,
        columns=columns,
        unselected=frozenset(folded_name(name) for name in lacking),
        # Earlier or later selectors may have left out others, as TiCDC's own check has it: never a part of the key.
        may_lack=frozenset(folded_name(name) for name in names) - has_key if lacking else frozenset(),
        vouching=vouching(upstream) if lacking else "",
        listed=tuple(column.name for column in definition.columns),
        zone=zone,
        session=session,
    )


def zones(upstream: Upstream) -> tuple[str, str]:
    """Return `RowLayout.zone` and `RowLayout.session`: the session is in the bucket's zone, which an export need not be in."""
    if upstream.protocol not in ("dump-sql", "dump-csv"):
        return converted_zone(upstream.time_zone), UTC
    session = session_zone(upstream.dump.bucket_time_zone)
    is_same = session_zone(upstream.time_zone) == session and not converted_zone(upstream.time_zone)
    return ("" if is_same else upstream.time_zone), session


def _check_type(definition: TableDefinition, column: TableColumn) -> None:
    if not is_known(column):
        raise NotReplicable(
            f"{definition.name}: column {column.name} has the type {column.type} ({definition.path}), whose values "
            "this program cannot replicate; leave the table out of the changefeed, or give the column another type "
            "at the source"
        )


def _check_zone(definition: TableDefinition, column: TableColumn, zone: str) -> None:
    if column.type == "TIMESTAMP" and not zone:
        raise NotReplicable(
            f"{definition.name}: column {column.name} is a TIMESTAMP ({definition.path}), whose values TiCDC writes "
            "in the time zone of its servers, which the files do not contain: give it with --tz, for example --tz "
            "UTC or --tz Asia/Shanghai",
            ways=(("with the time zone of the TiCDC servers as ZONE", "run --tz ZONE"),),
        )
