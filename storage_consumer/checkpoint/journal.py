"""The DDL journal in the state: the state of each statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from sqlalchemy import func, select
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.sql.elements import ColumnElement

from storage_consumer.checkpoint.lease import OwnedState
from storage_consumer.plan.journal import DONE, FAILED, SKIPPED, STARTED, JournalEntry, Outcome, Sent
from storage_consumer.plan.steps import DdlStep
from storage_consumer.ports import Decision, TableProgress

COPIED = "the copy of its table as of {} already has its effect"
_LONGEST = 60_000
"""Characters of a note or an answer that are stored."""


class JournalState(OwnedState):
    """The journal of one feed."""

    def journal_entry(self, step: DdlStep) -> JournalEntry | None:
        """Return the journal's entry of a statement, or None."""
        journal = self._tables.journal
        with self._owned("reading the DDL journal") as connection:
            row = connection.execute(select(journal).where(self._is(step))).one_or_none()
        if row is None:
            return None
        return JournalEntry(
            state=row.state, structure_before=row.structure_before, note=row.note, statement=row.statement
        )

    def journal(
        self,
        step: DdlStep,
        state: str,
        *,
        run: Sent | Outcome | None = None,
        note: str = "",
        tables: Iterable[TableProgress] = (),
    ) -> None:
        """Store a statement's state. With ``done`` or ``skipped``, the tables that it moved are stored in the same transaction.

        Without a `run`, everything else stays as it is. A run that is sent sets the start time.
        """
        values: dict[str, object] = {"state": state, "note": note[:_LONGEST]}
        if run is not None:
            values |= asdict(run)
        if isinstance(run, Outcome):
            values["answer"] = run.answer[:_LONGEST]
        starts = state == STARTED and isinstance(run, Sent)
        finished = state in (DONE, SKIPPED, FAILED)
        times = {"started_at": func.now(6)} if starts else {"finished_at": func.now(6)} if finished else {}
        with self._owned("writing the DDL journal") as connection:
            row = {
                "table_dir": step.table_dir,
                "version": step.version,
                "checksum": step.definition.checksum,
                "schema_name": step.origin.name.schema,
                "table_name": step.origin.name.table,
                "query": step.origin.definition.query,
                "statement": "",
                "structure_before": "",
            }
            connection.execute(
                insert(self._tables.journal).values(row | values | times).on_duplicate_key_update(**values, **times)
            )
            self._put_tables(connection, tables, as_they_were=True)

    def refused(self, step: DdlStep, error: str) -> None:
        """Note why a statement stops its table. A statement that was started, and is not resolved, stays started."""
        entry = self.journal_entry(step)
        unsettled = entry is not None and entry.state == STARTED
        self.journal(step, STARTED if unsettled else FAILED, note=error)

    def copied(self, step: DdlStep, at: int) -> None:
        """Note that a statement is done because a copy of its table as of the TSO `at` contains its effect."""
        self.journal(step, DONE, note=COPIED.format(at))

    def decisions(self) -> Mapping[tuple[str, int, int], Decision]:
        """Return operators' decisions about statements that are neither done nor skipped, by `DdlStep.identity`."""
        made, journal = self._tables.decisions, self._tables.journal
        same = (
            (made.c.table_dir == journal.c.table_dir)
            & (made.c.version == journal.c.version)
            & (made.c.checksum == journal.c.checksum)
        )
        query = select(made).join(journal, same).where(journal.c.state.not_in((DONE, SKIPPED)))
        with self._translated("reading the decisions about DDL"), self._engine.begin() as connection:
            rows = connection.execute(query).all()
        return {
            (row.table_dir, row.version, row.checksum): Decision(
                verb=row.verb, statement=row.statement, decided_at=str(row.decided_at), decided_by=row.decided_by
            )
            for row in rows
        }

    def _is(self, step: DdlStep) -> ColumnElement[bool]:
        """Return the condition that a journal row is this statement's."""
        columns = self._tables.journal.c
        return (
            (columns.table_dir == step.table_dir)
            & (columns.version == step.version)
            & (columns.checksum == step.definition.checksum)
        )
