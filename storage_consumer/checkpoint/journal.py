"""StoredJournal: the state of each statement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from sqlalchemy import func, select
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.progress import put_tables
from storage_consumer.checkpoint.quarantine import close_entries
from storage_consumer.checkpoint.transactions import OwnedTransactions
from storage_consumer.checkpoint.verified import take_along
from storage_consumer.plan.journal import DONE, FAILED, SKIPPED, STARTED, JournalEntry, Outcome, Sent
from storage_consumer.plan.steps import DdlStep
from storage_consumer.ports import TableProgress

_WRITING = "writing the DDL journal"
COPIED = "the copy of its table as of {} already has its effect"
_LONGEST = 60_000
"""Characters of a note or an answer that are stored."""


class StoredJournal:
    """The journal of one feed."""

    def __init__(self, transactions: OwnedTransactions) -> None:
        """Read and write it in `transactions`."""
        self._transactions = transactions
        self._tables = transactions.tables

    def entry(self, step: DdlStep) -> JournalEntry | None:
        """Return the entry of a statement, or None."""
        journal = self._tables.journal
        its = [column == value for column, value in zip(journal.primary_key, step.identity, strict=True)]
        # Under the lease, though it only reads: whoever has lost it must not act on what the next owner may be changing.
        with self._transactions.owned("reading the DDL journal") as connection:
            row = connection.execute(select(journal).where(*its)).one_or_none()
        if row is None:
            return None
        return JournalEntry(
            state=row.state, structure_before=row.structure_before, note=row.note, statement=row.statement
        )

    def record(
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
        with self._transactions.owned(_WRITING) as connection:
            known = self._state(connection, step) if state == DONE else ""
            self._put(connection, step, state, run=run, note=note)
            # In the same transaction, so that a restart never finds the one without the other.
            if state == DONE:
                close_entries(connection, self._tables, step, upto=step.version)
                # Once: a later statement may have given a name to another table since.
                if known != DONE:
                    take_along(connection, self._tables, step)
            put_tables(connection, self._tables, tables, as_they_were=True)

    def refused(self, step: DdlStep, error: str) -> None:
        """Record why a statement stops its table. A statement that was started, and is not resolved, stays started."""
        entry = self.entry(step)
        # A started one may have taken effect: only a look at the target can say that it did not.
        unresolved = entry is not None and entry.state == STARTED
        self.record(step, STARTED if unresolved else FAILED, note=error)

    def copied(self, step: DdlStep, at: int) -> None:
        """Record that a statement is done because a copy of its table as of the TSO `at` contains its effect."""
        with self._transactions.owned(_WRITING) as connection:
            self._put(connection, step, DONE, note=COPIED.format(at))
            # Refused rows of the copy itself have its TSO, and are what the target lacks of the table as it is after the statement.
            close_entries(connection, self._tables, step, upto=min(step.version, at - 1))

    def _state(self, connection: Connection, step: DdlStep) -> str:
        journal = self._tables.journal
        its = [column == value for column, value in zip(journal.primary_key, step.identity, strict=True)]
        return connection.execute(select(journal.c.state).where(*its)).scalar() or ""

    def _put(
        self, connection: Connection, step: DdlStep, state: str, *, run: Sent | Outcome | None = None, note: str
    ) -> None:
        values: dict[str, object] = {"state": state, "note": note[:_LONGEST]}
        if run is not None:
            values |= asdict(run)
        if isinstance(run, Outcome):
            values["answer"] = run.answer[:_LONGEST]
        starts = state == STARTED and isinstance(run, Sent)
        finished = state in (DONE, SKIPPED, FAILED)
        times = {"started_at": func.now(6)} if starts else {"finished_at": func.now(6)} if finished else {}
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
        # What the file says is written once; later records change only state, note, run and times.
        connection.execute(
            insert(self._tables.journal).values(row | values | times).on_duplicate_key_update(**values, **times)
        )
