"""StateStore: everything that the program keeps in the target, apart from rows.

Every transaction of the lease's owner first locks the lease row and checks that it is still ours. Write transactions of tasks do not
touch that row: each locks its own *slot*, which carries the epoch and the open window. Opening a window updates all slots, and so waits
for every transaction that is still running. A later transaction of an older window or owner finds the slot changed.
"""

from __future__ import annotations

from storage_consumer.checkpoint.decisions import StoredDecisions
from storage_consumer.checkpoint.journal import StoredJournal
from storage_consumer.checkpoint.lease import StoredLease
from storage_consumer.checkpoint.loads import StoredLoads
from storage_consumer.checkpoint.progress import StoredProgress
from storage_consumer.checkpoint.quarantine import StoredQuarantine
from storage_consumer.checkpoint.reports import StoredReports
from storage_consumer.checkpoint.schema_history import StoredHistory
from storage_consumer.checkpoint.state_schema import StateSchema
from storage_consumer.checkpoint.transactions import OwnedTransactions
from storage_consumer.checkpoint.verified import StoredVerified
from storage_consumer.config.settings import Downstream


class StateStore:
    """The state of one feed in one target. Its parts raise `TargetUnavailable`, `LeaseLost` and `ConfigError`."""

    def __init__(self, downstream: Downstream, password: str) -> None:
        """Prepare; nothing connects before `open`."""
        self.transactions = OwnedTransactions(downstream, password)
        self._schema = StateSchema(self.transactions)
        self.lease = StoredLease(self.transactions, self._schema)
        self.progress = StoredProgress(self.transactions)
        self.journal = StoredJournal(self.transactions)
        self.history = StoredHistory(self.transactions)
        self.decisions = StoredDecisions(self.transactions)
        self.loads = StoredLoads(self.transactions, self.decisions)
        self.reports = StoredReports(self.transactions)
        self.quarantine = StoredQuarantine(self.transactions)
        self.verified = StoredVerified(self.transactions)

    def open(self, upstream: str) -> None:
        """Create the state schema if it does not exist; `lease.acquire` migrates one of an older version.

        Raise `ConfigError` for another bucket's state, or one of a version that cannot be migrated.
        """
        self._schema.create(upstream)

    def close(self) -> None:
        """Close all connections."""
        self.transactions.close()
