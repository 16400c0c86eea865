"""StoredVerified: what is known of tables that may not be equal to the source, and what a comparison asks of the state."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from sqlalchemy import and_, delete, func, or_, select
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.decisions import begun_statements, last_that_may_touch
from storage_consumer.checkpoint.transactions import StateTransactions, name_in
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
from storage_consumer.plan.quarantined import gone_by
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table_decisions import may_touch
from storage_consumer.plan.table_state import TableState
from storage_consumer.verifying.result import Outcome, TableLook, TableResult, counting, renamed, result_from, says_more

_BEFORE = "before"
"""In the document of a comparison that is not finished: that of what was known to be different before."""


class StoredVerified:
    """The results of one feed."""

    def __init__(self, transactions: StateTransactions) -> None:
        """Store them in `transactions`."""
        self._transactions = transactions
        self._kept = transactions.tables.verified

    def doubt(self, table_key: str, document: Mapping[str, object]) -> None:
        """Store that a table may not be equal to the source, which holds until it is compared or has a copy."""
        with self._transactions.owned("storing that a table may not be equal") as connection:
            query = select(self._kept.c.document).where(self._kept.c.table_key == table_key)
            found, result = connection.execute(query.with_for_update()).scalar(), result_from(document)
            known = json.loads(found) if found is not None else {}
            before = result_from(_told(known)) if known else None
            if before is None or says_more(result, before):
                connection.execute(put(self._kept, verify_row(table_key, result)))
            elif _BEFORE in known:
                # The comparison that goes on began before this, so that it ends nothing.
                connection.execute(put(self._kept, verify_row(table_key, before)))

    # what a comparison asks and finds

    def all(self) -> list[TableResult]:
        """Return the last result of each table, by name."""
        return [result_from(document) for document, _ in self._results()]

    def standing(self) -> list[TableResult]:
        """Return the same, where what a comparison that is not finished found does not count yet, but what was known before it."""
        return [replace(result_from(_told(document)), outcome=outcome) for document, outcome in self._results()]

    def _results(self) -> list[tuple[dict[str, Any], Outcome]]:
        """Return the last result of each table, and the outcome that counts, by name."""
        if not self._transactions.has(self._kept):
            return []
        found = self._transactions.rows(self._transactions.tables.standing())
        return [(json.loads(text), Outcome(outcome)) for text, outcome in found]

    def put(self, table_key: str, result: TableResult) -> None:
        """Store the result of a table, in place of its last one, unless it is no news; see `counting`."""
        kept = self._kept
        query = select(kept.c.outcome, kept.c.document).where(kept.c.table_key == table_key)
        # A consumer may store a doubt at the same time.
        with self._transactions.shared("storing a decision") as connection:
            found = connection.execute(query.with_for_update()).first()
            before, known = (Outcome(found.outcome), json.loads(found.document)) if found else (None, {})
            outcome = counting(result, before, known.get("run", ""))
            if outcome is None:
                return
            row = verify_row(table_key, result)
            if outcome is not result.outcome:
                row |= {"outcome": outcome, "document": json.dumps(result.document() | {_BEFORE: _told(known)})}
            connection.execute(put(kept, row))

    def next_statement(self, table: TableName, low: int, high: int) -> int:
        """Return the version of the first known statement from `low` to `high` (both inclusive) that may touch a table; 0 for none.

        At `low` only one that is neither done nor skipped: the table has not passed it.
        """
        tables = self._transactions.tables
        kept, journal = tables.structures.c, tables.journal.c
        ended = and_(same_statement(tables.structures, tables.journal), journal.state.in_((DONE, SKIPPED)))
        query = (
            select(kept.version, kept.query, kept.schema_name, kept.table_name, journal.state)
            .select_from(tables.structures.outerjoin(tables.journal, ended))
            .where(kept.version.between(low, high), kept.query != "")
            .order_by(kept.version)
        )
        for row in self._transactions.rows(query):
            if (row.version > low or row.state is None) and may_touch(row.query, name_in(row), table):
                return int(row.version)
        return 0

    def now(self, table_key: str) -> TableLook | None:
        """Return what the state says of a table now."""
        return _looked(self._transactions.tables, table_key, self._transactions.rows)


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """The state as a snapshot of the target shows it."""

    reading: Reading
    schema: str

    def look(self, table_key: str) -> TableLook | None:
        """Return what the snapshot says of a table; None if the state does not know it."""
        return _looked(state_tables(self.schema), table_key, self._rows)

    def _rows(self, statement: Any) -> list[Any]:
        names = statement.selected_columns.keys()
        sql, arguments = as_text(statement)
        found = self.reading.rows(sql if arguments else sql.replace("%%", "%"), arguments)
        return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in found]


def _told(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document that is told of a table: what was known before a comparison that is not finished, if it counts."""
    return dict(document.get(_BEFORE, document))


def take_along(connection: Connection, tables: StateTables, step: DdlStep) -> None:
    """Give what comparisons found to the name that a statement has given a table, in its transaction; forget it with a table that is dropped."""
    kept = tables.verified
    table, database = gone_by(step)
    gone = [kept.c.table_key == table] if table else []
    gone += [func.left(kept.c.table_key, len(database)) == database] if database else []
    if not gone:
        return
    known = connection.execute(select(kept.c.document, kept.c.outcome).where(or_(*gone))).all()
    rename = step.origin.ddl.rename
    gone += [kept.c.table_key == key_of(rename.new)] if rename is not None else []
    connection.execute(delete(kept).where(or_(*gone)))
    if rename is not None:
        for document, outcome in known:
            moved = renamed(result_from(_told(json.loads(document))), rename.new)
            connection.execute(put(kept, {**verify_row(key_of(rename.new), moved), "outcome": outcome}))


def _looked(tables: StateTables, table_key: str, rows: Callable[[Any], Sequence[Any]]) -> TableLook | None:
    feed, lease, progress, places = tables.feed.c, tables.lease.c, tables.tables.c, tables.targets.c
    journal, notes, kept, loads = tables.journal.c, tables.writes.c, tables.structures.c, tables.loads.c
    is_loading = (loads.table_key == table_key) & (loads.phase == LoadPhase.LOADING)
    asked = {
        "writer": select((lease.holder != "") & (lease.expires_at >= func.utc_timestamp(6))),
        "noted": select(func.max(notes.upto)).where(notes.table_key.in_((table_key, EVERY_TABLE))),
        "statements": select(func.count()).select_from(tables.journal),
        "started": select(func.max(journal.started_at)),
        "finished": select(func.max(journal.finished_at)),
        "quarantined": select(func.count()).where(tables.quarantine.c.table_key == table_key),
        "loading": select(func.count()).where(is_loading),
    }
    query = select(
        *(progress.schema_name, progress.table_name, progress.state, progress.checkpoint, progress.follows),
        *(progress.error, places.target_schema, places.target_table, feed.checkpoint_running),
        *(each.scalar_subquery().label(name) for name, each in asked.items()),
    ).select_from(
        tables.feed.outerjoin(tables.tables, (progress.table_key == table_key) & (feed.id == 1)).outerjoin(
            tables.targets, places.table_key == progress.table_key
        )
    )
    found = rows(query)
    if not found:
        return None
    row, is_new = found[0], found[0].state is None
    # Nothing has run yet on a table that only a schema file names, and it follows the feed.
    named = (
        rows(select(kept.schema_name, kept.table_name).where(kept.table_key == table_key).limit(1)) if is_new else found
    )
    if not named:
        return None
    name = name_in(named[0])
    target = name if row.target_schema is None else TableName(schema=row.target_schema, table=row.target_table)
    return TableLook(
        table_key=table_key,
        table=name,
        target=target,
        state=TableState.RUNNING if is_new else row.state,
        checkpoint=max(row.checkpoint or 0, row.checkpoint_running) if is_new or row.follows else row.checkpoint,
        noted=row.noted or 0,
        statement=last_that_may_touch(rows(begun_statements(tables, given_up=False)), name),
        statements=f"{row.statements} {row.started} {row.finished}",
        quarantined=row.quarantined,
        is_loaded=not row.loading,
        writer=bool(row.writer),
        error=row.error or "",
    )
