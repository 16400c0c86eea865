"""Where the rows of routed tables are: the state table ``table_targets``. It keeps a changed route from passing for another table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection, Row

from storage_consumer.checkpoint.tables import StateTables
from storage_consumer.downstream.batches import batched
from storage_consumer.model import TableName
from storage_consumer.plan.table import DROPPED, EXCLUDED
from storage_consumer.ports import TableProgress

_CHUNK = 1_000
"""Rows per statement."""


def places(
    connection: Connection, tables: StateTables, progress: Sequence[Row[Any]]
) -> Mapping[str, tuple[TableName, TableName]]:
    """Return table key → its names in the bucket and in the target, for those rows of ``table_progress`` whose table exists."""
    rows = connection.execute(select(tables.targets)).all()
    stored = {row.table_key: TableName(schema=row.target_schema, table=row.target_table) for row in rows}
    found = {}
    for row in progress:
        if row.table_name and row.state not in (DROPPED, EXCLUDED):
            name = TableName(schema=row.schema_name, table=row.table_name)
            found[row.table_key] = (name, stored.get(row.table_key, name))
    return found


def put_places(connection: Connection, tables: StateTables, progress: Sequence[TableProgress]) -> None:
    """Store where these tables are; a table without routes needs no row."""
    placed = [
        {"table_key": table.table_key, "target_schema": table.target.schema, "target_table": table.target.table}
        for table in progress
        if table.target is not None
    ]
    for some in batched(placed, _CHUNK):
        statement = insert(tables.targets)
        new = statement.inserted
        connection.execute(
            statement.on_duplicate_key_update(target_schema=new.target_schema, target_table=new.target_table), some
        )
