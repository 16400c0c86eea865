"""StoredReports: what the writer says of itself, for `status` and whoever else looks at the state while it runs.

Nothing that a later start needs is in here. A report is stored without the lease's lock, so that it never waits for a round and no
round for it; the epoch keeps an older writer from replacing the report of a newer one.
"""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import delete, func, insert, select, update

from storage_consumer.checkpoint.transactions import OwnedTransactions
from storage_consumer.checkpoint.verified import standing
from storage_consumer.downstream.state_tables import put
from storage_consumer.monitoring.report import Minute

KEPT_MINUTES = 24 * 60
"""Minutes for which the course of a feed is kept."""
_DOING = "storing a report"


class StoredReports:
    """The reports of one feed."""

    def __init__(self, transactions: OwnedTransactions) -> None:
        """Store them in `transactions`."""
        self._transactions = transactions
        self._tables = transactions.tables

    def save(self, document: str, minute: Minute) -> dict[str, int]:
        """Store the report of the lease's owner, and how far the feed is in this minute; does nothing before there is a lease.

        Return how many tables `verify` has found in each outcome.
        """
        report, epoch = self._tables.report, self._transactions.epoch
        if not epoch:
            return {}
        found = standing(self._tables).order_by(None).subquery().c.outcome
        with self._transactions.shared(_DOING) as connection:
            new = {"epoch": epoch, "written_at": func.utc_timestamp(6), "document": document}
            done = connection.execute(update(report).where(report.c.epoch <= epoch).values(**new))
            if not done.rowcount:
                # The first report of all; or a newer owner's stands there, which IGNORE keeps.
                connection.execute(insert(report).prefix_with("IGNORE").values(id=1, **new))
            connection.execute(put(self._tables.minutes, asdict(minute)))
            connection.execute(
                delete(self._tables.minutes).where(self._tables.minutes.c.minute < minute.minute - KEPT_MINUTES)
            )
            return {
                str(outcome): int(count)
                for outcome, count in connection.execute(select(found, func.count()).group_by(found)).all()
            }
