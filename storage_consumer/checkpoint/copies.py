"""What copies of tables have to contain, and what they contained: the state table ``table_copies``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.transactions import put_all
from storage_consumer.downstream.state_tables import StateTables
from storage_consumer.plan.copies import Copies


def put_copies(connection: Connection, tables: StateTables, copies: Mapping[str, Copies]) -> None:
    """Store what copies of tables have to contain, and contained, by table key."""
    put_all(connection, tables.copies, ({"table_key": key} | copy_values(each) for key, each in copies.items()))


def copy_values(copies: Copies) -> dict[str, Any]:
    """Return the values of the table's columns."""
    return {
        "copy_from": copies.copy_from,
        "absent": json.dumps(dict(copies.absent)),
        "copied_at": copies.copied_at,
        "passed": json.dumps(dict(copies.passed)),
        "listed": json.dumps(dict(copies.listed)),
        "listed_at": copies.listed_at,
    }


COLUMNS = tuple(copy_values(Copies()))
"""Names of the columns besides the key."""


def copies_in(row: Any) -> Copies:
    """Return what a row with all `COLUMNS` says; columns that an outer join did not find say nothing."""
    # Most tables have no such record; of ten thousand they are read within each look of the status page.
    if row.copy_from is None:
        return Copies()
    return Copies(
        copy_from=row.copy_from,
        absent=json.loads(row.absent or "{}"),
        copied_at=row.copied_at or 0,
        passed=json.loads(row.passed or "{}"),
        listed=json.loads(row.listed or "{}"),
        listed_at=row.listed_at or 0,
    )


def copies_of(connection: Connection, tables: StateTables) -> Mapping[str, Copies]:
    """Return table key → what copies of that table have to contain, or contained."""
    return {row.table_key: copies_in(row) for row in connection.execute(select(tables.copies)).all()}
