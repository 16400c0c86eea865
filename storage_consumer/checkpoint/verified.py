"""StoredVerified: what is known of tables that may not be equal to the source, as the lease's owner sees it; `verify` stores its results there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Select, and_, delete, func, or_, select
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.transactions import OwnedTransactions
from storage_consumer.downstream.state_tables import StateTables, put, verify_row
from storage_consumer.plan.quarantined import gone_by
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table_state import TableState
from storage_consumer.verifying.healing import renamed
from storage_consumer.verifying.result import result_from, says_more

BEFORE = "before"
"""In the document of a comparison that is not finished: that of what was known to be different before."""


class StoredVerified:
    """The results of one feed."""

    def __init__(self, transactions: OwnedTransactions) -> None:
        """Store them in `transactions`."""
        self._transactions = transactions
        self._kept = transactions.tables.verified

    def doubt(self, table_key: str, document: Mapping[str, object]) -> None:
        """Store that a table may not be equal to the source, which holds until it is compared or has a copy."""
        with self._transactions.owned("storing that a table may not be equal") as connection:
            query = select(self._kept.c.document).where(self._kept.c.table_key == table_key)
            found, result = connection.execute(query.with_for_update()).scalar(), result_from(document)
            known = json.loads(found) if found is not None else {}
            before = result_from(told(known)) if known else None
            if before is None or says_more(result, before):
                connection.execute(put(self._kept, verify_row(table_key, result)))
            elif BEFORE in known:
                # The comparison that goes on began before this, so that it ends nothing.
                connection.execute(put(self._kept, verify_row(table_key, before)))


def told(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document that is told of a table: what was known before a comparison that is not finished, if it counts."""
    return dict(document.get(BEFORE, document))


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
            moved = renamed(result_from(told(json.loads(document))), rename.new)
            connection.execute(put(kept, {**verify_row(key_of(rename.new), moved), "outcome": outcome}))


def standing(tables: StateTables) -> Select[Any]:
    """Return the query for document and outcome of all results, by name; a table that the source dropped has none."""
    kept, progress = tables.verified.c, tables.tables.c
    gone = and_(progress.table_key == kept.table_key, progress.state == TableState.DROPPED)
    query = select(kept.document, kept.outcome).where(~select(progress.table_key).where(gone).exists())
    return query.order_by(kept.schema_name, kept.table_name)
