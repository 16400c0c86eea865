"""What `DdlRunner` asks of the target and of the state."""

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
    """What is asked of the target; see `database.TargetDatabase`."""

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """The tables that exist, by folded name."""
        ...

    def database_collation(self, schema: str) -> str | None:
        """Default collation of a database, None if it does not exist."""
        ...

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames:
        """What a table's parts are called."""
        ...

    def statement_zone(self, version: int) -> str:
        """The time zone of the session in which a statement of this version runs."""
        ...

    def is_running(self, statement: str) -> bool:
        """Whether the server is executing the statement right now."""
        ...

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Tells two structures of these tables apart."""
        ...

    def fence_ddl(self) -> bool:
        """Keep every other owner's connection from beginning a DDL; False while one is running one, which is left alone."""
        ...

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:
        """Who holds locks that a statement on these tables waits for, as far as the server tells."""
        ...

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Run one statement."""
        ...

    def close(self) -> None:
        """Close the connection."""


class Journal(Protocol):
    """What is asked of the state; see `state.StateStore`."""

    def journal_entry(self, step: DdlStep) -> JournalEntry | None:
        """What the journal says of a statement."""
        ...

    def refused(self, step: DdlStep, error: str) -> None:
        """Note why a statement stops its table; one that was started and is not settled stays so."""

    def journal(
        self,
        step: DdlStep,
        state: str,
        *,
        run: Sent | Outcome | None = None,
        note: str = "",
        tables: Iterable[TableProgress] = (),
    ) -> None:
        """Store where a statement stands."""
