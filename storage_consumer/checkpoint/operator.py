"""StateInspector: a target's state as an operator sees it, without the lease. It writes nothing but decisions, and the bucket's place."""

from __future__ import annotations

from collections.abc import Collection

from storage_consumer.checkpoint.operator_connection import OperatorConnection
from storage_consumer.checkpoint.operator_feed import FeedInspector
from storage_consumer.checkpoint.operator_history import HistoryInspector
from storage_consumer.checkpoint.operator_journal import JournalInspector
from storage_consumer.checkpoint.operator_loads import LoadInspector
from storage_consumer.checkpoint.operator_quarantine import QuarantineInspector
from storage_consumer.checkpoint.operator_status import StatusInspector
from storage_consumer.checkpoint.operator_tables import TableInspector
from storage_consumer.checkpoint.operator_verified import VerifiedInspector
from storage_consumer.config.settings import Downstream
from storage_consumer.downstream.state_tables import MIGRATED, STATE_VERSION

OLDER_TOO = (STATE_VERSION, *MIGRATED)
"""Versions of the state that `StateInspector.feed` can read."""


class StateInspector:
    """The state, on one short-lived connection. Its parts raise `TargetUnavailable` and `ConfigError`."""

    def __init__(self, downstream: Downstream, password: str, readable: Collection[int] = (STATE_VERSION,)) -> None:
        """Connect; raise `ConfigError` if there is no state of a `readable` version."""
        self.downstream = downstream
        self._connection = OperatorConnection(downstream, password, readable)
        self.journal = JournalInspector(self._connection)
        self.history = HistoryInspector(self._connection)
        self.tables = TableInspector(self._connection)
        self.loads = LoadInspector(self._connection)
        self.feed = FeedInspector(self._connection)
        self.status = StatusInspector(self._connection)
        self.quarantine = QuarantineInspector(self._connection)
        self.verified = VerifiedInspector(self._connection)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
