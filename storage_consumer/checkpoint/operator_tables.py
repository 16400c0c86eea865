"""Tables as an operator sees them in the state, and the operator's decisions about them.

A decision is a row of its own. The consumer applies it to the stored table at its next round or start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import func, select, text

from storage_consumer.checkpoint.copies import COLUMNS, copies_from
from storage_consumer.checkpoint.decisions import (
    begun_statements,
    last_that_led_to,
    last_that_may_touch,
    resolved_statements,
    stored_verb,
    verb_of,
)
from storage_consumer.checkpoint.operator_connection import OperatorConnection
from storage_consumer.downstream.state_tables import put
from storage_consumer.model import TableName
from storage_consumer.monitoring.report import Report
from storage_consumer.plan.table_decisions import StoredTable, TableDecision, needs_copy, shown_state
from storage_consumer.plan.table_state import TableState

_MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One table, and the last decision about it."""

    stored: StoredTable
    decision: TableDecision | None = None
    obeyed: bool = False
    """Whether a consumer has seen the decision."""
    refusal: str = ""
    """Why it changed nothing."""
    waits: str = ""
    """What it waits for, by the last report of a writer."""
    reached: int = 0
    """Commit ts up to which the table is applied, inclusive; of one that is not stopped, its own row may hold an older one."""

    @property
    def shown(self) -> str:
        """The word for its state."""
        return shown_state(self.stored.state, self.stored.error, waits=bool(self.waits))


class TableInspector:
    """Reads tables one by one, and stores decisions about them."""

    def __init__(self, connection: OperatorConnection) -> None:
        """Use `connection`."""
        self._connection = connection
        self._tables = connection.tables

    def now_ms(self) -> int:
        """Return the target's clock in milliseconds since 1970-01-01 UTC."""
        ((now,),) = self._connection.rows(text("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)"))
        return int(now)

    def all(self) -> list[TableRow]:
        """Return all tables that the state knows, by name."""
        progress, copies, made, kept = (
            each.c
            for each in (
                self._tables.tables,
                self._tables.copies,
                self._tables.table_decisions,
                self._tables.structures,
            )
        )
        names = ("table_key", "schema_name", "table_name", "state", "checkpoint", "follows", "error")
        said = ("verb", "copy_as_of", "to_schema", "to_table", "decided_at", "decided_by")
        query = (
            select(
                *(progress[name] for name in names),
                *(copies[name] for name in COLUMNS),
                *(made[name] for name in said),
                made.obeyed_at.is_not(None),
                made.refusal,
            )
            .outerjoin_from(self._tables.tables, self._tables.copies, copies.table_key == progress.table_key)
            .outerjoin(self._tables.table_decisions, made.table_key == progress.table_key)
            .order_by(progress.schema_name, progress.table_name)
        )
        found = [_row(*row) for row in self._connection.rows(query)]
        known = {row.stored.table_key for row in found}
        named = select(kept.table_key, kept.schema_name, kept.table_name).distinct()
        # Tables on which nothing has run yet: only schema files name them.
        for key, schema, table in self._connection.rows(named):
            if key not in known:
                known.add(key)
                name = TableName(schema=schema, table=table)
                found.append(TableRow(stored=StoredTable(table_key=key, name=name)))
        running = max(
            (feed[0] for feed in self._connection.rows(select(self._tables.feed.c.checkpoint_running))), default=0
        )
        report, _ = last_report(self._connection)
        waiting = report.waiting if report else {}
        return [
            replace(row, reached=_reached(row.stored, running), waits=waiting.get(str(row.stored.name), ""))
            for row in found
        ]

    def judged(self, table: StoredTable) -> StoredTable:
        """Return the table with what the consumer would look up about its statements before it follows a decision."""
        key = table.table_key
        resolved = last_that_led_to(self._connection.rows(resolved_statements(self._tables, key)))
        begun = self._connection.rows(begun_statements(self._tables, given_up=needs_copy(table.state)))
        return replace(table, last_resolved=resolved, started=last_that_may_touch(begun, table.name))

    def decide_on(self, row: TableRow, decision: TableDecision) -> str:
        """Store a decision. Return ``stored``, or ``same`` if it was stored before and no consumer has seen it."""
        before = row.decision
        # No consumer has seen the same decision yet, so there is nothing new to store.
        if (
            before is not None
            and not row.obeyed
            and (before.verb, before.at, before.to) == (decision.verb, decision.at, decision.to)
        ):
            return "same"
        place = decision.to or TableName(schema="", table="")
        new = {
            "table_key": decision.table_key,
            "verb": stored_verb(decision.verb),
            "copy_as_of": decision.at,
            "to_schema": place.schema,
            "to_table": place.table,
            "decided_at": func.utc_timestamp(6),
            "decided_by": decision.decided_by,
        }
        # What became of an earlier decision about the table says nothing of this one.
        unseen = {"obeyed_at": None, "refusal": None}
        with self._connection.transaction():
            self._connection.rows(put(self._tables.table_decisions, {**new, **unseen}))
        return "stored"


def last_report(connection: OperatorConnection) -> tuple[Report | None, float]:
    """Return the last report of a writer, and how many seconds ago it was stored; an older program leaves none."""
    report = connection.tables.report
    if not connection.has(report):
        return None, 0.0
    rows = connection.rows(
        select(report.c.document, seconds_between("written_at", "UTC_TIMESTAMP(6)")).order_by(report.c.epoch.desc())
    )
    return (Report.from_json(rows[0][0]), float(rows[0][1])) if rows else (None, 0.0)


def seconds_between(column: str, now: str) -> Any:
    """Return the expression for the seconds between a column and now, both by the target's clock."""
    return (func.timestampdiff(text("MICROSECOND"), text(column), text(now)) * _MICROSECOND).label(f"{column}_ago")


def _reached(stored: StoredTable, running: int) -> int:
    return (
        max(stored.checkpoint, running) if stored.follows and stored.state == TableState.RUNNING else stored.checkpoint
    )


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
    # Both names are empty for every verb but `moved`.
    to = TableName(schema=to_schema, table=to_table) if to_schema else None
    decision = TableDecision(
        table_key=key, verb=verb_of(verb), at=at, to=to, decided_at=str(decided_at), decided_by=decided_by
    )
    return TableRow(stored=stored, decision=decision, obeyed=bool(obeyed), refusal=refused or "")
