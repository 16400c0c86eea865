"""What `DdlRunner` needs from the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from storage_consumer.downstream.existing_names import ForeignKey, PartNames
from storage_consumer.model import TableName
from storage_consumer.plan.journal import DdlAnswer
from storage_consumer.ports import Target
from storage_consumer.sql.tokens import Token


class Structure(Target, Protocol):
    """What the runner reads of the target; see `downstream.structure`."""

    def database_collation(self, schema: str) -> str | None:
        """Return the default collation of a database: "" if it is the source's, None if it does not exist."""
        ...

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames | None:
        """Return the names of a table's parts; None if nobody knows them before the statement runs."""
        ...

    def foreign_keys(self, names: Sequence[TableName]) -> tuple[list[ForeignKey], dict[str, list[str]]]:
        """Return the foreign keys of these tables and those that refer to them; and the first table's indexes with their columns, folded."""
        ...

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Return a digest that differs for two different structures of these tables."""
        ...


class Execution(Protocol):
    """What the runner has the target do; see `downstream.ddl_execution`."""

    @property
    def zone(self) -> str:
        """The time zone of the feed, in which statements run if the server knows it."""
        ...

    def statement_zone(self, version: int) -> str:
        """Return the time zone of the session in which a statement of this version runs."""
        ...

    def is_running(self, statement: str) -> bool:
        """Return whether the server is executing the statement right now."""
        ...

    def fence_ddl(self) -> bool:
        """Stop every other owner's connection from beginning a DDL. Return False while one is running a DDL, which is left alone."""
        ...

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Run one statement."""
        ...

    def close(self) -> None:
        """Close the connection."""
