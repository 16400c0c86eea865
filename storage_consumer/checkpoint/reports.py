"""StoredReports: what the writer says of itself, for `status` and whoever else looks at the state while it runs.

Nothing that a later start needs is in here. A report is stored without the lease's lock, so that it never waits for a round and no
round for it; the epoch keeps an older writer from replacing the report of a newer one.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, func, insert, select, text, update

from storage_consumer.checkpoint.transactions import StateTransactions
from storage_consumer.downstream.state_tables import put
from storage_consumer.monitoring.report import Minute, Report

KEPT_MINUTES = 24 * 60
"""Minutes for which the course of a feed is kept."""
_MICROSECOND = 1e-6


class StoredReports:
    """The reports of one feed."""

    def __init__(self, transactions: StateTransactions) -> None:
        """Store them in `transactions`."""
        self._transactions = transactions
        self._tables = transactions.tables

    def save(self, document: str, minute: Minute) -> dict[str, int]:
        """Store the report of the lease's owner, and how far the feed is in this minute; does nothing before there is a lease.

        Return how many tables `verify` has found in each outcome.
        """
        report, epoch, minutes = self._tables.report, self._transactions.epoch, self._tables.minutes
        if not epoch:
            return {}
        found = self._tables.standing().order_by(None).subquery().c.outcome
        with self._transactions.shared("storing a report") as connection:
            new = {"epoch": epoch, "written_at": func.utc_timestamp(6), "document": document}
            done = connection.execute(update(report).where(report.c.epoch <= epoch).values(**new))
            if not done.rowcount:
                # The first report of all; or a newer owner's stands there, which IGNORE keeps.
                connection.execute(insert(report).prefix_with("IGNORE").values(id=1, **new))
            connection.execute(put(minutes, asdict(minute)))
            connection.execute(delete(minutes).where(minutes.c.minute < minute.minute - KEPT_MINUTES))
            counts = connection.execute(select(found, func.count()).group_by(found))
            return {str(outcome): int(count) for outcome, count in counts}

    def last(self) -> tuple[Report | None, float]:
        """Return the last report of a writer, and how many seconds ago it was stored; an older program leaves none."""
        report = self._tables.report
        if not self._transactions.has(report):
            return None, 0.0
        query = select(report.c.document, seconds_between("written_at", "UTC_TIMESTAMP(6)"))
        for row in self._transactions.rows(query.order_by(report.c.epoch.desc())):
            return Report.from_json(row[0]), float(row[1])
        return None, 0.0

    def minutes(self, most: int) -> tuple[Minute, ...]:
        """Return the course of the feed over the last minutes, the oldest first; minutes without a writer have none."""
        kept = self._tables.minutes
        if not self._transactions.has(kept):
            return ()
        rows = self._transactions.rows(select(kept).order_by(kept.c.minute.desc()).limit(most))
        return tuple(Minute(**row._asdict()) for row in reversed(rows))


def seconds_between(column: str, now: str) -> Any:
    """Return the expression for the seconds between a column and now, both by the target's clock."""
    return (func.timestampdiff(text("MICROSECOND"), text(column), text(now)) * _MICROSECOND).label(f"{column}_ago")
