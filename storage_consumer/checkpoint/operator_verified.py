"""What a comparison with the source asks of the state: whether a table is at rest in a snapshot, and what was found before."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import and_, func, select, true
from sqlalchemy.sql.elements import DQLDMLClauseElement

from storage_consumer.checkpoint.decisions import begun_statements, last_that_may_touch
from storage_consumer.checkpoint.operator_connection import OperatorConnection
from storage_consumer.checkpoint.verified import BEFORE, standing, told
from storage_consumer.downstream.reading import Reading
from storage_consumer.downstream.state_tables import (
    EVERY_TABLE,
    StateTables,
    as_text,
    put,
    same_statement,
    state_tables,
    verify_row,
)
from storage_consumer.model import TableName
from storage_consumer.plan.journal import DONE, SKIPPED
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.table_decisions import may_touch
from storage_consumer.plan.table_state import TableState
from storage_consumer.verifying.cut import TableLook
from storage_consumer.verifying.result import Outcome, TableResult, counting, result_from

Rows = Callable[[DQLDMLClauseElement], list[tuple[Any, ...]]]


class VerifiedInspector:
    """Reads and stores the results of comparisons."""

    def __init__(self, connection: OperatorConnection) -> None:
        """Use `connection`."""
        self._connection = connection
        self._kept = connection.tables.verified

    def all(self) -> list[TableResult]:
        """Return the last result of each table, by name."""
        return [result_from(document) for document, _ in self._results()]

    def standing(self) -> list[TableResult]:
        """Return the same, where what a comparison that is not finished found does not count yet, but what was known before it."""
        return [replace(result_from(told(document)), outcome=outcome) for document, outcome in self._results()]

    def _results(self) -> list[tuple[dict[str, Any], Outcome]]:
        """Return the last result of each table, and the outcome that counts, by name."""
        if not self._connection.has(self._kept):
            return []
        found = self._connection.rows(standing(self._connection.tables))
        return [(json.loads(text), Outcome(outcome)) for text, outcome in found]

    def put(self, table_key: str, result: TableResult) -> None:
        """Store the result of a table, in place of its last one, unless it is no news; see `counting`."""
        kept = self._kept
        query = select(kept.c.outcome, kept.c.document).where(kept.c.table_key == table_key)
        # A consumer may store a doubt at the same time.
        with self._connection.transaction():
            found = self._connection.rows(query.with_for_update())
            before, known = (Outcome(found[0][0]), json.loads(found[0][1])) if found else (None, {})
            outcome = counting(result, before, known.get("run", ""))
            if outcome is None:
                return
            row = verify_row(table_key, result)
            if outcome is not result.outcome:
                row |= {"outcome": outcome, "document": json.dumps(result.document() | {BEFORE: told(known)})}
            self._connection.rows(put(kept, row))

    def next_statement(self, table: TableName, low: int, high: int) -> int:
        """Return the version of the first known statement from `low` to `high` (both inclusive) that may touch a table; 0 for none.

        At `low` only one that is neither done nor skipped: the table has not passed it.
        """
        tables = self._connection.tables
        kept, journal = tables.structures.c, tables.journal.c
        ended = and_(same_statement(tables.structures, tables.journal), journal.state.in_((DONE, SKIPPED)))
        query = (
            select(kept.version, kept.query, kept.schema_name, kept.table_name, journal.state)
            .select_from(tables.structures.outerjoin(tables.journal, ended))
            .where(kept.version.between(low, high), kept.query != "")
            .order_by(kept.version)
        )
        for version, statement, schema, named, state in self._connection.rows(query):
            if (version > low or state is None) and may_touch(statement, TableName(schema=schema, table=named), table):
                return int(version)
        return 0

    def now(self, table_key: str) -> TableLook | None:
        """Return what the state says of a table now."""
        return _looked(self._connection.tables, table_key, self._connection.rows)


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """The state as a snapshot of the target shows it."""

    reading: Reading
    schema: str

    def look(self, table_key: str) -> TableLook | None:
        """Return what the snapshot says of a table; None if the state does not know it."""
        return _looked(state_tables(self.schema), table_key, self._rows)

    def _rows(self, statement: DQLDMLClauseElement) -> list[tuple[Any, ...]]:
        sql, arguments = as_text(statement)
        return self.reading.rows(sql if arguments else sql.replace("%%", "%"), arguments)


def _looked(tables: StateTables, table_key: str, rows: Rows) -> TableLook | None:
    feed, lease = tables.feed.c, tables.lease.c
    found = rows(
        select(
            feed.checkpoint_running,
            (lease.holder != "") & (lease.expires_at >= func.utc_timestamp(6)),
        ).select_from(tables.feed.join(tables.lease, true()))
    )
    if not found:
        return None
    ((running, writer),) = found
    stored = _stored(tables, table_key, rows)
    if stored is None:
        return None
    schema, table, state, checkpoint, follows, error = stored
    name = TableName(schema=schema, table=table)
    places = tables.targets.c
    place = rows(select(places.target_schema, places.target_table).where(places.table_key == table_key))
    notes = tables.writes.c
    noted = rows(select(func.max(notes.upto)).where(notes.table_key.in_((table_key, EVERY_TABLE))))
    journal = tables.journal.c
    (mark,) = rows(
        select(func.count(), func.max(journal.started_at), func.max(journal.finished_at)).select_from(tables.journal)
    )
    entries = tables.quarantine.c
    ((quarantined,),) = rows(select(func.count()).select_from(tables.quarantine).where(entries.table_key == table_key))
    loads = tables.loads.c
    is_loading = (loads.table_key == table_key) & (loads.phase == LoadPhase.LOADING)
    ((loading,),) = rows(select(func.count()).select_from(tables.loads).where(is_loading))
    return TableLook(
        table_key=table_key,
        table=name,
        target=TableName(schema=place[0][0], table=place[0][1]) if place else name,
        state=state,
        checkpoint=max(checkpoint, running) if follows else checkpoint,
        noted=noted[0][0] or 0,
        statement=last_that_may_touch(rows(begun_statements(tables, given_up=False)), name),
        statements=" ".join(map(str, mark)),
        quarantined=quarantined,
        is_loaded=not loading,
        writer=bool(writer),
        error=error or "",
    )


def _stored(tables: StateTables, table_key: str, rows: Rows) -> tuple[Any, ...] | None:
    """Return what is stored of a table's progress: names, state, checkpoint, whether it follows the feed, error; None for nothing."""
    progress, kept = tables.tables.c, tables.structures.c
    names = (progress.schema_name, progress.table_name)
    query = select(*names, progress.state, progress.checkpoint, progress.follows, progress.error)
    if found := rows(query.where(progress.table_key == table_key)):
        return found[0]
    # Nothing has run on it yet, and it follows the feed.
    named = rows(select(kept.schema_name, kept.table_name).where(kept.table_key == table_key).limit(1))
    return (*named[0], TableState.RUNNING, 0, True, "") if named else None
