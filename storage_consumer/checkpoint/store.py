"""StateStore: everything that the program keeps in the target, apart from rows.

Every transaction of the lease's owner first locks the lease row and checks that it is still ours.
Write transactions of tasks do not touch that row: each locks its own *slot*, which carries the
epoch and the open window. Opening a window updates all slots, and so waits for every transaction
that is still running. A later transaction of an older window or owner finds the slot changed.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select, text, true

from storage_consumer.checkpoint.findings import StoredQuarantine, StoredReports, StoredVerified
from storage_consumer.checkpoint.journal import StoredHistory, StoredJournal
from storage_consumer.checkpoint.progress import StoredFeed, StoredProgress
from storage_consumer.checkpoint.tables import StoredDecisions, StoredLoads
from storage_consumer.checkpoint.transactions import (
    Role,
    StateSchema,
    StateTransactions,
    StoredLease,
    seconds_between,
)
from storage_consumer.config.settings import Downstream
from storage_consumer.driver.lease import readable
from storage_consumer.target.session_settings import kind_of
from storage_consumer.target.state_tables import MIGRATED, STATE_VERSION
from storage_consumer.watch.report import Snapshot, Table

OLDER_TOO = (STATE_VERSION, *MIGRATED)
"""Versions of a state whose `StateStore.feed` can be read."""
_OFF = ("0", "OFF", "NONE")
"""Values of ``read_only`` with which a target takes writes; newer versions of MariaDB have words.
"""


class StateStore:
    """A feed's state in a target; raises `TargetUnavailable`, `LeaseLost` and `ConfigError`."""

    def __init__(self, downstream: Downstream, password: str, role: Role = "owner") -> None:
        """Prepare; nothing connects yet."""
        self.downstream = downstream
        self.transactions = StateTransactions(downstream, password, role)
        self.schema = StateSchema(self.transactions)
        self.lease = StoredLease(self.transactions)
        self.progress = StoredProgress(self.transactions)
        self.journal = StoredJournal(self.transactions)
        self.history = StoredHistory(self.transactions)
        self.reports = StoredReports(self.transactions)
        self.decisions = StoredDecisions(self.transactions)
        self.loads = StoredLoads(self.transactions)
        self.quarantine = StoredQuarantine(self.transactions)
        self.verified = StoredVerified(self.transactions)
        self.feed = StoredFeed(self.transactions)

    def open(self, upstream: str) -> None:
        """Create a missing state schema; `lease.acquire` migrates one of an older version.

        Raise `ConfigError` for another bucket's state, or one of a version that cannot be migrated.
        """
        self.schema.create(upstream)

    def close(self) -> None:
        """Close all connections."""
        self.transactions.close()

    def snapshot(self) -> Snapshot:
        """Return the state now, as `status` judges it; raise `ConfigError` without a bucket."""
        tables = self.transactions.tables
        feed, lease = tables.feed.c, tables.lease.c
        query = select(
            *(
                feed.upstream,
                feed.checkpoint,
                feed.checkpoint_running,
                feed.storage_checkpoint,
                lease.holder,
            ),
            seconds_between("expires_at", "UTC_TIMESTAMP(6)"),
            text("UNIX_TIMESTAMP(NOW(6))"),
            text("@@GLOBAL.read_only"),
            text("VERSION()"),
        ).join_from(tables.feed, tables.lease, true())
        upstream, checkpoint, running, storage, holder, expired, now, read_only, version = (
            self.feed.one(query)
        )
        counts = self.quarantine.counts()
        report, age = self.reports.last()
        return Snapshot(
            now=float(now),
            state_schema=self.downstream.state_schema,
            upstream=upstream,
            checkpoint=checkpoint,
            checkpoint_running=running,
            storage_checkpoint=storage,
            writer=readable(holder) if holder and expired <= 0 else "",
            last_writer=readable(holder) if holder else "",
            read_only=str(read_only).upper() not in _OFF,
            tables=tuple(
                Table(
                    name=stored.name,
                    state=stored.state,
                    checkpoint=stored.checkpoint,
                    follows=stored.follows,
                    error=stored.error,
                    decision=decision.verb if decision else "",
                    decided_by=decision.decided_by if decision else "",
                    decided_at=decision.decided_at if decision else "",
                    obeyed=row.obeyed,
                    refusal=row.refusal,
                    quarantined=counts.get(stored.table_key, 0),
                )
                for row in self.decisions.tables()
                for stored, decision in ((row.stored, row.decision),)
            ),
            statements=self.journal.waiting(),
            loads=tuple(row.load for row in self.loads.all()),
            skipped=tuple(self.progress.skipped()),
            verified=tuple(self.verified.standing()),
            target=self.downstream.address,
            server=f"{kind_of(version)} {version}",
            report=report,
            report_age=age,
        )


def operated(
    downstream: Downstream, password: str, readable: Collection[int] = (STATE_VERSION,)
) -> StateStore:
    """Return an operator's view of a state, without lease; raise `ConfigError` without one.

    It has to be of a `readable` version.
    """
    state = StateStore(downstream, password, "operator")
    try:
        state.schema.refuse_unreadable(readable)
    except BaseException:
        state.close()
        raise
    return state
