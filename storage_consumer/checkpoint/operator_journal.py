"""The DDL journal as an operator sees it, and the operator's decisions about statements.

A decision is a row of its own, which the consumer follows at its next round or start. It counts only while the journal says that
the statement is neither done nor skipped. Both are read under a lock on the journal's row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select

from storage_consumer.checkpoint.operator_connection import OperatorConnection
from storage_consumer.downstream.state_tables import put, same_statement
from storage_consumer.model import DdlId, TableName
from storage_consumer.plan.journal import DONE, SKIPPED
from storage_consumer.ports import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRow:
    """One statement of the journal, and the decision about it."""

    identity: DdlId
    name: TableName
    state: str
    query: str
    statement: str
    """What ran last, or was to run."""
    note: str
    answer: str
    seconds: float | None
    started_at: str
    """By the target's clock, in the time zone of this session; empty if it never started."""
    finished_at: str
    decision: Decision | None

    @property
    def version(self) -> int:
        """The statement's TSO."""
        return self.identity.version

    @property
    def resolved(self) -> bool:
        """Whether nothing is left to decide."""
        return self.state in (DONE, SKIPPED)


class JournalInspector:
    """Reads statements, and stores decisions about them."""

    def __init__(self, connection: OperatorConnection) -> None:
        """Use `connection`."""
        self._connection = connection
        self._journal = connection.tables.journal
        self._decisions = connection.tables.decisions

    def unresolved(self) -> list[JournalRow]:
        """Return the statements that are neither done nor skipped, in order."""
        return self._rows(self._journal.c.state.not_in((DONE, SKIPPED)))

    def of_version(self, version: int) -> list[JournalRow]:
        """Return the statements of one version."""
        return self._rows(self._journal.c.version == version)

    def of_directories(self, directories: Collection[str]) -> list[JournalRow]:
        """Return the statements whose schema files are in these table directories."""
        return self._rows(self._journal.c.table_dir.in_(directories)) if directories else []

    def _rows(self, where: ColumnElement[bool]) -> list[JournalRow]:
        journal, decided = self._journal.c, self._decisions.c
        names = "schema_name table_name state query statement note answer seconds started_at finished_at"
        query = (
            select(
                *self._journal.primary_key,
                *(journal[name] for name in names.split()),
                *(decided[name] for name in ("verb", "statement", "decided_at", "decided_by")),
            )
            # Outer: most statements are never decided about.
            .join_from(self._journal, self._decisions, same_statement(self._decisions, self._journal), isouter=True)
            .where(where)
            .order_by(journal.version, journal.table_dir, journal.checksum)
        )
        return [_row(*row) for row in self._connection.rows(query)]

    def decide(self, row: JournalRow, decision: Decision) -> str:
        """Store a decision. Return ``stored``, ``same`` if it was stored before, or ``resolved`` if it comes too late."""
        journal, decided, rows = self._journal, self._decisions, self._connection.rows
        of_it = dict(zip(journal.primary_key.columns.keys(), row.identity, strict=True))
        with self._connection.transaction():
            # This lock keeps the consumer from recording an outcome until the decision is stored.
            (state,) = rows(select(journal.c.state).filter_by(**of_it).with_for_update())
            if state[0] in (DONE, SKIPPED):
                return "resolved"
            # Read before it is overwritten, to say whether this changes anything.
            before = rows(select(decided.c.verb, decided.c.statement).filter_by(**of_it).with_for_update())
            new = {"verb": decision.verb, "statement": decision.statement, "decided_by": decision.decided_by}
            rows(put(decided, {**of_it, **new, "decided_at": func.utc_timestamp(6)}))
        return "same" if before == [(decision.verb, decision.statement)] else "stored"


def _row(table_dir: str, version: int, checksum: int, schema: str, table: str, state: str, *rest: Any) -> JournalRow:
    query, statement, note, answer, seconds, started, finished, verb, text, decided_at, decided_by = rest
    return JournalRow(
        identity=DdlId(table_dir, version, checksum),
        name=TableName(schema=schema, table=table),
        state=state,
        query=query,
        statement=statement,
        note=note,
        answer=answer or "",
        seconds=seconds,
        started_at=str(started or ""),
        finished_at=str(finished or ""),
        # without a verb the outer join found no decision
        decision=verb and Decision(verb=verb, statement=text, decided_at=str(decided_at), decided_by=str(decided_by)),
    )
