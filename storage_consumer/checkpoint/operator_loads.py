"""The loads of tables as an operator sees them, and what the operator wants of one.

A wish is a row of the state. A running consumer looks at it before its next round, a stopped one when it starts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import func, select, update

from storage_consumer.checkpoint.decisions import begun_statements, last_that_may_touch
from storage_consumer.checkpoint.loads import load_of
from storage_consumer.checkpoint.operator_connection import OperatorConnection
from storage_consumer.downstream.state_tables import put
from storage_consumer.plan.loads import Load, LoadPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """The last load of one table."""

    load: Load
    requested_at: str
    """By the target's clock, in UTC."""
    requested_by: str
    ended_at: str = ""
    """When it was refused or cancelled, or when all of its copy was written; empty before that."""
    waits_for: int = 0
    """The version of a statement that may touch its table and is not known to have ended: the load waits for it; 0 for none."""


class LoadInspector:
    """Reads loads, and stores what an operator wants."""

    def __init__(self, connection: OperatorConnection) -> None:
        """Use `connection`."""
        self._connection = connection
        self._loads = connection.tables.loads

    def all(self) -> list[LoadRow]:
        """Return the last load of each table that had one, by name; a state of an older version has none."""
        if not self._connection.has(self._loads):
            return []
        loads = self._loads
        rows = self._connection.rows(select(loads).order_by(loads.c.schema_name, loads.c.table_name))
        found = [self._row(row) for row in rows]
        if not any(row.load.is_pending for row in found):
            return found
        begun = self._connection.rows(begun_statements(self._connection.tables, given_up=True))
        return [
            replace(row, waits_for=last_that_may_touch(begun, row.load.name)) if row.load.is_pending else row
            for row in found
        ]

    def request(self, load: Load, by: str) -> LoadRow | None:
        """Store what somebody wants to be loaded, unless the table is being loaded; return that load then."""
        with self._connection.transaction():
            found = self._locked(load.table_key)
            if found is not None and found.load.phase == LoadPhase.LOADING:
                return found
            # What the table has of an earlier copy it keeps, whatever becomes of this one.
            low = found.load.low if found is not None else 0
            values = asdict(load) | {"low": low} | {"schema_name": load.name.schema, "table_name": load.name.table}
            del values["name"]
            wish = {"requested_at": func.utc_timestamp(6), "requested_by": by, "ended_at": None}
            self._connection.rows(put(self._loads, values | wish))
        return None

    def withdraw(self, table_key: str) -> LoadRow | None:
        """Withdraw what nobody has begun; return the load of a table where it has been begun or ended, or where there is none, None."""
        with self._connection.transaction():
            found = self._locked(table_key)
            if found is None or found.load.phase != LoadPhase.REQUESTED:
                return found
            ended = {"phase": LoadPhase.CANCELLED, "ended_at": func.utc_timestamp(6)}
            self._connection.rows(update(self._loads).where(self._loads.c.table_key == table_key).values(ended))
        return found

    def _locked(self, table_key: str) -> LoadRow | None:
        """Return the load of a table, which no consumer changes until the transaction ends."""
        rows = self._connection.rows(select(self._loads).where(self._loads.c.table_key == table_key).with_for_update())
        return self._row(rows[0]) if rows else None

    def _row(self, row: tuple[Any, ...]) -> LoadRow:
        values = dict(zip(self._loads.c.keys(), row, strict=True))
        return LoadRow(
            load=load_of(values),
            requested_at=str(values["requested_at"]),
            requested_by=values["requested_by"],
            ended_at=str(values["ended_at"] or ""),
        )
