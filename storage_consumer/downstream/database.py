"""The target as the driver uses it: one connection, and what reads and changes the target over it."""

from __future__ import annotations

from storage_consumer.config.settings import Downstream
from storage_consumer.downstream.ddl_execution import DdlExecution
from storage_consumer.downstream.driver_session import DriverSession
from storage_consumer.downstream.key_notes import KeyNotes
from storage_consumer.downstream.structure import TargetStructure


class TargetDatabase:
    """A connection of the driver, with the roles that share it."""

    def __init__(self, downstream: Downstream, password: str, worker: int = 0) -> None:
        """Take the settings; nothing connects yet. `worker` is the number of the DDL worker that uses the connection."""
        self.session = DriverSession(downstream, password)
        self.key_notes = KeyNotes(self.session.rows, downstream.state_schema)
        self.structure = TargetStructure(self.session, self.key_notes)
        self.ddl = DdlExecution(self.session, downstream, worker)

    def close(self) -> None:
        """Close the connection; whatever uses it next opens another one."""
        self.session.close()
