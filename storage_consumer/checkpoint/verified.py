"""StoredVerified: what is known of tables that may not be equal to the source, as the lease's owner sees it; `verify` stores its results there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Select, and_, select

from storage_consumer.checkpoint.transactions import OwnedTransactions
from storage_consumer.downstream.state_tables import StateTables, put, verify_row
from storage_consumer.plan.table_state import TableState
from storage_consumer.verifying.result import Outcome, result_from


class StoredVerified:
    """The results of one feed."""

    def __init__(self, transactions: OwnedTransactions) -> None:
        """Store them in `transactions`."""
        self._transactions = transactions
        self._kept = transactions.tables.verified

    def doubt(self, table_key: str, document: Mapping[str, object]) -> None:
        """Store that a table may not be equal to the source, which holds until it is compared or has a copy."""
        with self._transactions.owned("storing that a table may not be equal") as connection:
            known = connection.execute(select(self._kept.c.outcome).where(self._kept.c.table_key == table_key)).scalar()
            # What a comparison found says more.
            if known != Outcome.DIFFERENT:
                connection.execute(put(self._kept, verify_row(table_key, result_from(document))))


def standing(tables: StateTables) -> Select[Any]:
    """Return the query for document and outcome of all results, by name; a table that the source dropped has none."""
    kept, progress = tables.verified.c, tables.tables.c
    gone = and_(progress.table_key == kept.table_key, progress.state == TableState.DROPPED)
    query = select(kept.document, kept.outcome).where(~select(progress.table_key).where(gone).exists())
    return query.order_by(kept.schema_name, kept.table_name)
