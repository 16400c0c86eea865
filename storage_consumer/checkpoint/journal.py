"""StoredJournal: the state of each statement, and the operators' decisions about them.

A decision is a row of its own, which the consumer follows at its next round or start. It counts only while the journal says that
the statement is neither done nor skipped. Both are read under a lock on the journal's row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.progress import put_tables
from storage_consumer.checkpoint.quarantine import close_entries
from storage_consumer.checkpoint.reports import seconds_between
from storage_consumer.checkpoint.transactions import StateTransactions, name_in
from storage_consumer.checkpoint.verified import take_along
from storage_consumer.downstream.state_tables import put, same_statement
from storage_consumer.model import DdlId, TableName
from storage_consumer.monitoring.snapshot import SHOWN_CHARACTERS, Statement
from storage_consumer.monitoring.snapshot import JournalEntry as Shown
from storage_consumer.plan.journal import DONE, FAILED, SKIPPED, STARTED, JournalEntry, Outcome, Sent
from storage_consumer.plan.steps import DdlStep
from storage_consumer.ports import Decision, TableProgress

_WRITING = "writing the DDL journal"
COPIED = "the copy of its table as of {} already has its effect"
_LONGEST = 60_000
"""Characters of a note or an answer that are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRow:
    """One statement of the journal, and the decision about it."""

    identity: DdlId
    name: TableName
    state: str
    query: str
    statement: str
    """What ran last, or was to run."""
    note: str
    answer: str
    seconds: float | None
    started_at: str
    """By the target's clock, in the time zone of this session; empty if it never started."""
    finished_at: str
    decision: Decision | None

    @property
    def version(self) -> int:
        """The statement's TSO."""
        return self.identity.version

    @property
    def resolved(self) -> bool:
        """Whether nothing is left to decide."""
        return self.state in (DONE, SKIPPED)


class StoredJournal:
    """The journal of one feed."""

    def __init__(self, transactions: StateTransactions) -> None:
        """Read and write it in `transactions`."""
        self._transactions = transactions
        self._journal = transactions.tables.journal
        self._decisions = transactions.tables.decisions

    def entry(self, step: DdlStep) -> JournalEntry | None:
        """Return the entry of a statement, or None."""
        # Under the lease, though it only reads: whoever has lost it must not act on what the next owner may be changing.
        with self._transactions.owned("reading the DDL journal") as connection:
            row = connection.execute(select(self._journal).where(*self._is(step.identity))).one_or_none()
        if row is None:
            return None
        return JournalEntry(
            state=row.state, structure_before=row.structure_before, note=row.note, statement=row.statement
        )

    def _is(self, identity: DdlId) -> list[ColumnElement[bool]]:
        return [column == value for column, value in zip(self._journal.primary_key, identity, strict=True)]

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
            known = select(self._journal.c.state).where(*self._is(step.identity))
            before = connection.execute(known).scalar() if state == DONE else ""
            self._put(connection, step, state, run=run, note=note)
            # In the same transaction, so that a restart never finds the one without the other.
            if state == DONE:
                close_entries(connection, self._transactions.tables, step, upto=step.version)
                # Once: a later statement may have given a name to another table since.
                if before != DONE:
                    take_along(connection, self._transactions.tables, step)
            put_tables(connection, self._transactions.tables, tables, as_they_were=True)

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
            close_entries(connection, self._transactions.tables, step, upto=min(step.version, at - 1))

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
            insert(self._journal).values(row | values | times).on_duplicate_key_update(**values, **times)
        )

    # what an operator sees and decides

    def unresolved(self) -> list[JournalRow]:
        """Return the statements that are neither done nor skipped, in order."""
        return self._rows(self._journal.c.state.not_in((DONE, SKIPPED)))

    def of_version(self, version: int) -> list[JournalRow]:
        """Return the statements of one version."""
        return self._rows(self._journal.c.version == version)

    def of_directories(self, directories: Collection[str]) -> list[JournalRow]:
        """Return the statements whose schema files are in these table directories."""
        return self._rows(self._journal.c.table_dir.in_(directories)) if directories else []

    def _rows(self, where: ColumnElement[bool]) -> list[JournalRow]:
        journal, decided = self._journal, self._decisions.c
        query = (
            select(journal, decided.verb, decided.statement.label("instead"), decided.decided_at, decided.decided_by)
            # Outer: most statements are never decided about.
            .outerjoin_from(journal, self._decisions, same_statement(self._decisions, journal))
            .where(where)
            .order_by(journal.c.version, journal.c.table_dir, journal.c.checksum)
        )
        return [_journal_row(row) for row in self._transactions.rows(query)]

    def newest_of(self, table: TableName, most: int) -> tuple[Shown, ...]:
        """Return the newest statements of a table, the newest first."""
        journal = self._journal.c
        query = (
            select(
                journal.version,
                journal.state,
                *(func.left(journal[name], SHOWN_CHARACTERS).label(name) for name in ("query", "statement", "note")),
                journal.seconds,
                seconds_between("started_at", "NOW(6)"),
                seconds_between("finished_at", "NOW(6)"),
            )
            .where(journal.schema_name == table.schema, journal.table_name == table.table)
            .order_by(journal.version.desc(), journal.table_dir, journal.checksum)
            .limit(most)
        )
        return tuple(
            Shown(
                version=row.version,
                state=row.state,
                query=row.query,
                statement=row.statement,
                note=row.note,
                seconds=_float(row.started_at_ago if row.state == STARTED else row.seconds),
                ended_ago=_float(row.finished_at_ago),
            )
            for row in self._transactions.rows(query)
        )

    def waiting(self) -> tuple[Statement, ...]:
        """Return the statements that are neither done nor skipped, in order, and how long each has been running."""
        journal = self._journal.c
        names = ("schema_name", "table_name", "state", "query", "note")
        query = (
            select(
                *self._journal.primary_key, *(journal[name] for name in names), seconds_between("started_at", "NOW(6)")
            )
            .where(journal.state.not_in((DONE, SKIPPED)))
            .order_by(journal.version, journal.table_dir, journal.checksum)
        )
        return tuple(
            Statement(
                identity=DdlId(row.table_dir, row.version, row.checksum),
                name=name_in(row),
                state=row.state,
                query=row.query,
                note=row.note,
                seconds=_float(row.started_at_ago) if row.state == STARTED else None,
            )
            for row in self._transactions.rows(query)
        )

    def decide(self, row: JournalRow, decision: Decision) -> str:
        """Store a decision. Return ``stored``, ``same`` if it was stored before, or ``resolved`` if it comes too late."""
        journal, decided = self._journal, self._decisions
        of_it = dict(zip(journal.primary_key.columns.keys(), row.identity, strict=True))
        with self._transactions.shared("storing a decision") as connection:
            # This lock keeps the consumer from recording an outcome until the decision is stored.
            state = connection.execute(select(journal.c.state).filter_by(**of_it).with_for_update()).scalar_one()
            if state in (DONE, SKIPPED):
                return "resolved"
            # Read before it is overwritten, to say whether this changes anything.
            query = select(decided.c.verb, decided.c.statement).filter_by(**of_it).with_for_update()
            before = connection.execute(query).all()
            new = {"verb": decision.verb, "statement": decision.statement, "decided_by": decision.decided_by}
            connection.execute(put(decided, {**of_it, **new, "decided_at": func.utc_timestamp(6)}))
        return "same" if before == [(decision.verb, decision.statement)] else "stored"


def _float(seconds: Any) -> float | None:
    return None if seconds is None else float(seconds)


def _journal_row(row: Any) -> JournalRow:
    return JournalRow(
        identity=DdlId(row.table_dir, row.version, row.checksum),
        name=name_in(row),
        state=row.state,
        query=row.query,
        statement=row.statement,
        note=row.note,
        answer=row.answer or "",
        seconds=row.seconds,
        started_at=str(row.started_at or ""),
        finished_at=str(row.finished_at or ""),
        # without a verb the outer join found no decision
        decision=row.verb
        and Decision(verb=row.verb, statement=row.instead, decided_at=str(row.decided_at), decided_by=row.decided_by),
    )
