"""What a table's keys were when our last statement left it, so that a change by somebody else is found.

Rows are written by REPLACE, which is right only under the source's unique keys: with one more key, or another collation in a key,
rows push others out. A schema file names the primary key alone. So after each statement the target's keys are noted, and rows are
written only to a table that has no more keys than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from storage_consumer.errors import TableError
from storage_consumer.job.match import refuse_changes
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import TableName
from storage_consumer.plan.barriers import DROPS
from storage_consumer.plan.steps import DdlStep
from storage_consumer.ports import Ddl, DdlContext, TableProgress


class Structure(Protocol):
    """What is read of tables; see `downstream.structure`."""

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the tables that exist, by folded name, compared with their notes."""
        ...

    def read(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the same without comparing."""
        ...


class Notes(Protocol):
    """What is kept of keys; see `downstream.key_notes`."""

    def noted(self, names: Iterable[TableName]) -> Mapping[TableName, Sequence[str]]:
        """Return the notes of those tables that have one, by folded name."""
        ...

    def forget(self, names: Iterable[TableName]) -> None:
        """Delete the notes of these tables."""

    def remember(self, tables: Iterable[TargetTable]) -> None:
        """Note the keys that these tables have."""


class KeyDriftGuard:
    """Runs statements, and notes the keys that they leave. A table that somebody else changed gets no note.

    If the process ends between the statement and the note, there is nothing to compare with until the next statement.
    """

    def __init__(self, ddl: Ddl, structure: Structure, notes: Notes) -> None:
        """Run statements by `ddl`, read keys from `structure`, and keep them in `notes`."""
        self._ddl = ddl
        self._structure = structure
        self._notes = notes

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Run a step; see `ports.Ddl`."""
        names = sorted(step.ddl.mentioned)
        # A table that goes away needs no keys; and an operator who decided has looked at the table.
        if step.definition.ddl_type not in DROPS and context.decision is None and not step.skip:
            self._refuse_changes(step, names)
        # Before the statement: if the process ends after it, a former note would take the statement's own keys for somebody else's.
        self._notes.forget(names)
        note = self._ddl.run(step, context, moved)
        # Whatever they are now is what the source's statement made of them, and what jobs are compared with.
        self._notes.remember(self._structure.read(names).values())
        return note

    def _refuse_changes(self, step: DdlStep, names: Sequence[TableName]) -> None:
        try:
            noted = self._notes.noted(names)  # a new table has none, and searching for it takes a while
            for table in self._structure.describe(name for name in names if name.folded() in noted).values():
                refuse_changes(table.name, table)
        except TableError as fault:
            self._ddl.refused(step, str(fault))
            raise

    def refused(self, step: DdlStep, error: str) -> None:
        """Note a refusal; see `ports.Ddl`."""
        self._ddl.refused(step, error)

    def fence(self) -> None:
        """Fence off former owners; see `ports.Ddl`."""
        self._ddl.fence()

    def close(self) -> None:
        """Close the connection; see `ports.Ddl`."""
        self._ddl.close()
