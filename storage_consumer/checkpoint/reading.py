"""StateReader: the state as whoever only looks reads it, beside its owner: without the lease, over connections that write nothing."""

from __future__ import annotations

from sqlalchemy import func, select

from storage_consumer.checkpoint.decisions import StoredDecisions
from storage_consumer.checkpoint.journal import StoredJournal
from storage_consumer.checkpoint.progress import StoredProgress
from storage_consumer.checkpoint.quarantine import StoredQuarantine
from storage_consumer.checkpoint.schema_history import StoredHistory
from storage_consumer.checkpoint.state_schema import StateSchema
from storage_consumer.checkpoint.transactions import OwnedTransactions
from storage_consumer.config.settings import Downstream


class StateReader:
    """The parts of `StateStore` that can be read. They raise `TargetUnavailable` and `ConfigError`."""

    def __init__(self, downstream: Downstream, password: str) -> None:
        """Prepare; nothing connects before the first look."""
        self._transactions = OwnedTransactions(downstream, password, reads_only=True)
        self._schema = StateSchema(self._transactions)
        self.progress = StoredProgress(self._transactions)
        self.journal = StoredJournal(self._transactions)
        self.history = StoredHistory(self._transactions)
        self.decisions = StoredDecisions(self._transactions)
        self.quarantine = StoredQuarantine(self._transactions)

    def exists(self, upstream: str) -> bool:
        """Return whether there is a state of this bucket; raise `ConfigError` for one of another bucket or version."""
        return self._schema.look(upstream)

    def version(self) -> int | None:
        """Return the version of the state, whether or not it can be read; None if there is no state."""
        return self._schema.stored_version()

    def holder(self) -> str:
        """Return who holds the lease now, or ""."""
        lease = self._transactions.tables.lease.c
        valid = select(lease.holder).where(lease.expires_at >= func.utc_timestamp(6))
        with self._transactions.shared("reading the lease") as connection:
            return str(connection.execute(valid).scalar() or "")

    def close(self) -> None:
        """Close all connections."""
        self._transactions.close()
