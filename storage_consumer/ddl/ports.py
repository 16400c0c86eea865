"""What `DdlRunner` needs from the target and from the state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from storage_consumer.downstream.existing_names import PartNames
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import TableName
from storage_consumer.plan.journal import DdlAnswer, JournalEntry, Outcome, Sent
from storage_consumer.plan.steps import DdlStep
from storage_consumer.ports import TableProgress
from storage_consumer.sql.tokens import Token


class Structure(Protocol):
    """What the runner asks of the target; see `database.TargetDatabase`."""

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the tables that exist, by folded name."""
        ...

    def database_collation(self, schema: str) -> str | None:
        """Return the default collation of a database, or None if it does not exist."""
        ...

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames:
        """Return the names of a table's parts."""
        ...

    def statement_zone(self, version: int) -> str:
        """Return the time zone of the session in which a statement of this version runs."""
        ...

    def is_running(self, statement: str) -> bool:
        """Return whether the server is executing the statement right now."""
        ...

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Return a digest that differs for two different structures of these tables."""
        ...

    def fence_ddl(self) -> bool:
        """Stop every other owner's connection from beginning a DDL. Return False while one is running a DDL, which is left alone."""
        ...

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:
        """Return who holds locks that a statement on these tables waits for, as far as the server tells."""
        ...

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Run one statement."""
        ...

    def close(self) -> None:
        """Close the connection."""


class Journal(Protocol):
    """What the runner asks of the state; see `store.StateStore`."""

    def journal_entry(self, step: DdlStep) -> JournalEntry | None:
        """Return the journal's entry of a statement."""
        ...

    def refused(self, step: DdlStep, error: str) -> None:
        """Note why a statement stops its table. A statement that was started, and is not resolved, stays started."""

    def journal(
        self,
        step: DdlStep,
        state: str,
        *,
        run: Sent | Outcome | None = None,
        note: str = "",
        tables: Iterable[TableProgress] = (),
    ) -> None:
        """Store a statement's state."""
