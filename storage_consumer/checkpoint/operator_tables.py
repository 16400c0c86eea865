"""Tables as an operator sees them in the state, and the operator's decisions about them.

A decision is a row of its own. The consumer applies it to the stored table at its next round or start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from storage_consumer.checkpoint.copies import COLUMNS, copies_from
from storage_consumer.checkpoint.decisions import begun_statements, last_settled, last_that_may_touch
from storage_consumer.checkpoint.operator import StateInspector
from storage_consumer.checkpoint.tables import StateTables, as_text
from storage_consumer.model import TableName
from storage_consumer.plan.table_decisions import StoredTable, TableDecision, needs_copy


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One table, and the last decision about it."""

    stored: StoredTable
    decision: TableDecision | None = None
    obeyed: bool = False
    """Whether a consumer has seen the decision."""
    refusal: str = ""
    """Why it changed nothing."""


class TableInspector(StateInspector):
    """Reads tables one by one, and stores decisions about them."""

    def now_ms(self) -> int:
        """Return the target's clock in milliseconds since 1970-01-01 UTC."""
        ((now,),) = self.rows("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)")
        return int(now)

    def tables(self) -> list[TableRow]:
        """Return all tables that the state knows, by name."""
        rows = self.rows(
            "SELECT p.table_key, p.schema_name, p.table_name, p.state, p.checkpoint, p.follows, p.error, "
            f"{', '.join(f'c.{name}' for name in COLUMNS)}, "
            "d.verb, d.copy_as_of, d.to_schema, d.to_table, d.decided_at, d.decided_by, d.obeyed_at IS NOT NULL, d.refusal "
            f"FROM {self.table('table_progress')} p LEFT JOIN {self.table('table_copies')} c ON c.table_key = p.table_key "
            f"LEFT JOIN {self.table('table_decision')} d ON d.table_key = p.table_key ORDER BY p.schema_name, p.table_name"
        )
        found = [_row(*row) for row in rows]
        known = {row.stored.table_key for row in found}
        kept = self.rows(f"SELECT DISTINCT table_key, schema_name, table_name FROM {self.table('schema_history')}")
        for key, schema, table in kept:
            if key not in known:
                known.add(key)
                name = TableName(schema=schema, table=table)
                found.append(TableRow(stored=StoredTable(table_key=key, name=name)))
        return found

    def judged(self, table: StoredTable) -> StoredTable:
        """Return the table with what the consumer would look up about its statements before it follows a decision."""
        tables, key = StateTables(self._schema), table.table_key
        ((settled,),) = self.rows(*as_text(last_settled(tables, key)))
        begun = self.rows(*as_text(begun_statements(tables, given_up=needs_copy(table.state))))
        return replace(table, settled=settled or 0, started=last_that_may_touch(begun, key))

    def decide_on(self, row: TableRow, decision: TableDecision) -> str:
        """Store a decision. Return ``stored``, or ``same`` if it was stored before and no consumer has seen it."""
        before = row.decision
        if (
            before is not None
            and not row.obeyed
            and (before.verb, before.at, before.to) == (decision.verb, decision.at, decision.to)
        ):
            return "same"
        place = (decision.to.schema, decision.to.table) if decision.to else ("", "")
        with self.transaction():
            self.rows(
                f"REPLACE INTO {self.table('table_decision')} (table_key, verb, copy_as_of, to_schema, to_table, decided_at, "
                "decided_by) VALUES (%s, %s, %s, %s, %s, UTC_TIMESTAMP(6), %s)",
                (decision.table_key, decision.verb, decision.at, *place, decision.decided_by),
            )
        return "stored"


def _row(*row: Any) -> TableRow:
    key, schema, table, state, checkpoint, follows, error, *more = row
    verb, at, to_schema, to_table, decided_at, decided_by, obeyed, refused = more[len(COLUMNS) :]
    stored = StoredTable(
        table_key=key,
        name=TableName(schema=schema, table=table),
        state=state,
        checkpoint=checkpoint,
        follows=bool(follows),
        error=error,
        copies=copies_from(more[: len(COLUMNS)]),
    )
    if verb is None:
        return TableRow(stored=stored)
    to = TableName(schema=to_schema, table=to_table) if to_schema else None
    decision = TableDecision(table_key=key, verb=verb, at=at, to=to, decided_at=str(decided_at), decided_by=decided_by)
    return TableRow(stored=stored, decision=decision, obeyed=bool(obeyed), refusal=refused or "")
