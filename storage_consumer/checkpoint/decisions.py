"""StoredDecisions: what operators decide about statements and about tables, and the tables as they see them.

A decision about a statement is read by whoever runs it. One about a table is a row of its own, which the consumer applies to what is stored
of that table at its next round or start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from sqlalchemy import ColumnElement, Select, delete, exists, func, select, text, update
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.copies import COLUMNS, copies_in, copy_values
from storage_consumer.checkpoint.quarantine import close_copied
from storage_consumer.checkpoint.reports import StoredReports
from storage_consumer.checkpoint.transactions import StateTransactions, name_in
from storage_consumer.downstream.state_tables import StateTables, put, same_statement
from storage_consumer.model import DdlId, TableName
from storage_consumer.plan.journal import DONE, SKIPPED, STARTED
from storage_consumer.plan.loads import OPEN, LoadPhase
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_decisions import (
    Foreseen,
    Obeyed,
    StoredTable,
    TableDecision,
    Verb,
    held,
    leads_to,
    may_touch,
    needs_copy,
    obeyed,
    refusal,
    shown_state,
)
from storage_consumer.plan.table_state import TableState
from storage_consumer.ports import Decision

_STORED_PAUSE = "hold"
"""What the state calls a pause: earlier programs wrote this word, and still obey it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One table, and the last decision about it."""

    stored: StoredTable
    decision: TableDecision | None = None
    obeyed: bool = False
    """Whether a consumer has seen the decision."""
    refusal: str = ""
    """Why it changed nothing."""
    waits: str = ""
    """What it waits for, by the last report of a writer."""
    reached: int = 0
    """Commit ts up to which the table is applied, inclusive; of one that is not stopped, its own row may hold an older one."""

    @property
    def shown(self) -> str:
        """The word for its state."""
        return shown_state(self.stored.state, self.stored.error, waits=bool(self.waits))


class StoredDecisions:
    """The operators' decisions about one feed."""

    def __init__(self, transactions: StateTransactions, reports: StoredReports) -> None:
        """Read and apply them in `transactions`; what a table waits for is in the last of the `reports`."""
        self._transactions = transactions
        self._reports = reports
        self._tables = transactions.tables

    def on_statements(self) -> Mapping[DdlId, Decision]:
        """Return decisions about statements that are neither done nor skipped, by `DdlStep.identity`."""
        made, journal = self._tables.decisions, self._tables.journal
        query = select(made).join(journal, same_statement(made, journal))
        query = query.where(journal.c.state.not_in((DONE, SKIPPED)))
        return {
            DdlId(row.table_dir, row.version, row.checksum): Decision(
                verb=row.verb, statement=row.statement, decided_at=str(row.decided_at), decided_by=row.decided_by
            )
            for row in self._transactions.rows(query, "reading the decisions about DDL")
        }

    def foreseen(self, *, tells_time: bool = True) -> list[Foreseen]:
        """Return what `apply_to_tables` would make now of the decisions that nobody has obeyed yet, and change nothing."""
        waits = select(self._tables.table_decisions).where(self._tables.table_decisions.c.obeyed_at.is_(None))
        with self._transactions.shared("reading the decisions about tables") as connection:
            made = map(_decision, connection.execute(waits).all())
            return [self._judged(connection, each, tells_time=tells_time, locks=False) for each in made]

    def waiting(self) -> tuple[bool, bool]:
        """Return whether decisions about tables wait, and whether loads are requested; without the lease, so that an idle round takes no lock."""
        made, loads = self._tables.table_decisions, self._tables.loads
        decided = exists().where(made.c.obeyed_at.is_(None))
        requested = exists().where(loads.c.phase == LoadPhase.REQUESTED)
        (row,) = self._transactions.rows(select(decided, requested), "looking for decisions about tables")
        return bool(row[0]), bool(row[1])

    def apply_to_tables(self, busy: Collection[str] = (), *, tells_time: bool = True) -> list[Obeyed]:
        """Apply decisions to what is stored, each once. One that cannot be followed is noted and changes nothing.

        Decisions about tables that are `busy` wait. `tells_time` says whether rows carry their commit-ts.
        """
        waits = select(self._tables.table_decisions).where(self._tables.table_decisions.c.obeyed_at.is_(None))
        if not self.waiting()[0]:
            return []
        with self._transactions.owned("applying a decision about a table") as connection:
            # Read again, under a lock: an operator may have replaced a decision since the first look.
            made = map(_decision, connection.execute(waits.with_for_update()).all())
            return [
                self._obeyed(connection, each, tells_time=tells_time) for each in made if each.table_key not in busy
            ]

    def _obeyed(self, connection: Connection, decision: TableDecision, *, tells_time: bool) -> Obeyed:
        tables, of = self._tables, decision.table_key
        found = self._judged(connection, decision, tells_time=tells_time, locks=True)
        name = found.table.name
        if not found.refusal:
            # A copy too may have keys that are new: those of the statements that it contains. So the note of what our last statement left goes.
            if decision.verb in ("accept-keys", "reload-done"):
                there = key_of(self._place(connection, found.table))
                connection.execute(delete(tables.keys).where(tables.keys.c.table_key == there))
            self._put(connection, found)
            if decision.verb == "reload-done":
                close_copied(connection, tables, of, decision.at)
        made = tables.table_decisions
        connection.execute(
            # In the transaction that changes the table: after a crash both are there, or the decision still waits.
            update(made)
            .where(made.c.table_key == of)
            .values(obeyed_at=func.utc_timestamp(6), refusal=found.refusal or None)
        )
        return Obeyed(table=str(name), decision=decision, refusal=found.refusal)

    def follow(self, connection: Connection, decision: TableDecision) -> str:
        """Apply a decision that nobody has stored, within a transaction of the lease's owner; return why it cannot be followed, or "".

        The statements of a load have noted the table's keys, so the notes stay.
        """
        found = self._judged(connection, decision, tells_time=True, locks=True)
        if not found.refusal:
            self._put(connection, found)
        return found.refusal

    def end_pause(self, connection: Connection, table_key: str) -> None:
        """Forget what keeps a table halted until it has a copy, which is to come now; a decision that nobody has obeyed yet stays."""
        made = self._tables.table_decisions
        refused = (made.c.verb == "reload-done") & made.c.refusal.is_not(None)
        ends = (made.c.table_key == table_key) & (_is_paused(self._tables) | refused)
        connection.execute(delete(made).where(ends))

    def _judged(self, connection: Connection, decision: TableDecision, *, tells_time: bool, locks: bool) -> Foreseen:
        """Return what a decision makes of its table. `locks`: whether to keep the table's row as it is until the transaction ends."""
        tables, of = self._tables, decision.table_key
        query = _stored_tables(tables).where(tables.tables.c.table_key == of)
        row = connection.execute(query.with_for_update() if locks else query).first()
        if row is None:
            # Nothing has run on it yet: only a schema file names it.
            kept = tables.structures.c
            named = select(kept.schema_name, kept.table_name).where(kept.table_key == of).limit(1)
            stored = StoredTable(table_key=of, name=name_in(connection.execute(named).one()))
        else:
            stored = _stored_table(row)
        # What the verdict needs of the journal is read in the same transaction, so that no statement moves in between.
        stored = self._with_statements(connection, stored)
        loads = tables.loads.c
        phase = connection.execute(select(loads.phase).where(loads.table_key == of)).scalar_one_or_none()
        stored = replace(stored, loading=phase == LoadPhase.LOADING, joining=phase == LoadPhase.JOINING)
        place = self._place(connection, stored)
        if why := refusal(stored, decision, tells_time=tells_time):
            return Foreseen(decision=decision, table=stored, place=place, refusal=why)
        # A table that follows has reached this, though its own row may be older.
        running = connection.execute(select(tables.feed.c.checkpoint_running)).scalar_one()
        return Foreseen(decision=decision, table=obeyed(stored, decision, running), place=decision.to or place)

    def _with_statements(self, connection: Connection, table: StoredTable) -> StoredTable:
        """Return the table with what the journal says of its statements."""
        tables = self._tables
        journal, kept = tables.journal.c, tables.structures.c
        same = same_statement(tables.structures, tables.journal)
        query = select(journal.version, journal.query, kept.schema_name, kept.table_name)
        # A structure without a statement is journaled too, but it is no change that a copy has to hold.
        ended = (kept.table_key == table.table_key) & (kept.query != "") & journal.state.in_((DONE, SKIPPED))
        query = query.join_from(tables.structures, tables.journal, same).where(ended)
        resolved = connection.execute(query.order_by(journal.version.desc()).limit(_STRAYS))
        begun = connection.execute(begun_statements(tables, given_up=needs_copy(table.state)))
        return replace(
            table,
            last_resolved=next((row.version for row in resolved if leads_to(row.query, name_in(row))), 0),
            started=last_that_may_touch(begun, table.name),
        )

    def _place(self, connection: Connection, table: StoredTable) -> TableName:
        """Return a table's name in the target."""
        targets = self._tables.targets.c
        of = targets.table_key == table.table_key
        row = connection.execute(select(targets.target_schema, targets.target_table).where(of)).first()
        return table.name if row is None else TableName(schema=row.target_schema, table=row.target_table)

    def _put(self, connection: Connection, found: Foreseen) -> None:
        """Store what a decision makes of a table."""
        table, verb, of, to = found.table, found.decision.verb, found.decision.table_key, found.decision.to
        names = {"table_key": of, "schema_name": table.name.schema, "table_name": table.name.table}
        new = {"checkpoint": table.checkpoint, "state": table.state, "follows": table.follows, "error": table.error}
        progress = insert(self._tables.tables).values(names | new)
        connection.execute(progress.on_duplicate_key_update(**new))
        connection.execute(put(self._tables.copies, {"table_key": of} | copy_values(table.copies)))
        if verb == "moved" and to is not None:
            place = {"table_key": of, "target_schema": to.schema, "target_table": to.table}
            connection.execute(put(self._tables.targets, place))
        # Whatever was being loaded is no longer what the table goes on with.
        if verb in ("reload-done", "skip"):
            loads = self._tables.loads
            open_loads = update(loads).where(loads.c.table_key == of, loads.c.phase.in_(OPEN))
            connection.execute(open_loads.values(phase=LoadPhase.CANCELLED, ended_at=func.utc_timestamp(6)))

    # what an operator sees and decides

    def tables(self) -> list[TableRow]:
        """Return all tables that the state knows, by name."""
        tables, kept = self._tables, self._tables.structures.c
        progress, made = tables.tables.c, tables.table_decisions
        said = [column for name, column in made.c.items() if name != "table_key"]
        query = _stored_tables(tables).add_columns(*said).outerjoin(made, made.c.table_key == progress.table_key)
        found = [
            _table_row(row)
            for row in self._transactions.rows(query.order_by(progress.schema_name, progress.table_name))
        ]
        known = {row.stored.table_key for row in found}
        # Tables on which nothing has run yet: only schema files name them.
        named = select(kept.table_key, kept.schema_name, kept.table_name).distinct()
        for row in self._transactions.rows(named):
            if row.table_key not in known:
                known.add(row.table_key)
                found.append(TableRow(stored=StoredTable(table_key=row.table_key, name=name_in(row))))
        running = max(
            (each for (each,) in self._transactions.rows(select(tables.feed.c.checkpoint_running))), default=0
        )
        report, _ = self._reports.last()
        waiting = report.waiting if report else {}
        return [
            replace(row, reached=_reached(row.stored, running), waits=waiting.get(str(row.stored.name), ""))
            for row in found
        ]

    def judged(self, table: StoredTable) -> StoredTable:
        """Return the table with what the consumer would look up about its statements before it follows a decision."""
        with self._transactions.shared("reading the state") as connection:
            return self._with_statements(connection, table)

    def now_ms(self) -> int:
        """Return the target's clock in milliseconds since 1970-01-01 UTC."""
        ((now,),) = self._transactions.rows(text("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)"))
        return int(now)

    def decide_on(self, row: TableRow, decision: TableDecision) -> str:
        """Store a decision. Return ``stored``, or ``same`` if it was stored before and no consumer has seen it."""
        before = row.decision
        # No consumer has seen the same decision yet, so there is nothing new to store.
        if (
            before is not None
            and not row.obeyed
            and (before.verb, before.at, before.to) == (decision.verb, decision.at, decision.to)
        ):
            return "same"
        place = decision.to or TableName(schema="", table="")
        new = {
            "table_key": decision.table_key,
            "verb": _STORED_PAUSE if decision.verb == "pause" else decision.verb,
            "copy_as_of": decision.at,
            "to_schema": place.schema,
            "to_table": place.table,
            "decided_at": func.utc_timestamp(6),
            "decided_by": decision.decided_by,
            # What became of an earlier decision about the table says nothing of this one.
            "obeyed_at": None,
            "refusal": None,
        }
        with self._transactions.shared("storing a decision") as connection:
            connection.execute(put(self._tables.table_decisions, new))
        return "stored"


_STRAYS = 100
"""More statements than other tables' steps of a cycle of renames ever lie in one table's folder, one after the other."""


def _stored_tables(tables: StateTables) -> Select[Any]:
    """Return the query for stored tables, one row each; see `_stored_table`."""
    progress, copies = tables.tables, tables.copies
    found = select(progress, *(copies.c[name] for name in COLUMNS))
    return found.outerjoin_from(progress, copies, progress.c.table_key == copies.c.table_key)


def _stored_table(row: Any) -> StoredTable:
    return StoredTable(
        table_key=row.table_key,
        name=name_in(row),
        state=row.state,
        checkpoint=row.checkpoint,
        follows=bool(row.follows),
        error=row.error,
        copies=copies_in(row),
    )


def _table_row(row: Any) -> TableRow:
    if row.verb is None:
        return TableRow(stored=_stored_table(row))
    return TableRow(
        stored=_stored_table(row),
        decision=_decision(row),
        obeyed=row.obeyed_at is not None,
        refusal=row.refusal or "",
    )


def _reached(stored: StoredTable, running: int) -> int:
    return (
        max(stored.checkpoint, running) if stored.follows and stored.state == TableState.RUNNING else stored.checkpoint
    )


def begun_statements(tables: StateTables, *, given_up: bool) -> Select[Any]:
    """Return the query for statements that were started and are not known to have ended; see `last_that_may_touch`.

    With `given_up`, leave out those whose outcome an operator has stated.
    """
    journal, said = tables.journal.c, tables.decisions.c
    begun = select(journal.version, journal.query, journal.schema_name, journal.table_name).where(
        journal.state == STARTED
    )
    if given_up:
        same = same_statement(tables.decisions, tables.journal)
        begun = begun.where(~exists().where(same, said.verb.in_(("done", "skip"))))
    return begun


def last_that_may_touch(begun: Iterable[Any], table: TableName) -> int:
    """Return the highest version of those statements that may touch a table, 0 for none."""
    return max((row.version for row in begun if may_touch(row.query, name_in(row), table)), default=0)


def _decision(row: Any) -> TableDecision:
    return TableDecision(
        table_key=row.table_key,
        verb="pause" if row.verb == _STORED_PAUSE else cast("Verb", row.verb),
        at=row.copy_as_of,
        decided_at=str(row.decided_at),
        decided_by=row.decided_by,
        # Both names are empty for every verb but `moved`.
        to=TableName(schema=row.to_schema, table=row.to_table) if row.to_schema else None,
    )


def paused_tables(connection: Connection, tables: StateTables) -> frozenset[str]:
    """Return the keys of the tables that an operator paused."""
    made = tables.table_decisions
    return frozenset(connection.execute(select(made.c.table_key).where(_is_paused(tables))).scalars())


def _is_paused(tables: StateTables) -> ColumnElement[bool]:
    # A pause that waits for a statement to end is not stored with its table yet: the table would stand still in memory, and by its
    # row follow the feed's checkpoint beyond rows that nobody has read.
    made = tables.table_decisions.c
    return (made.verb == _STORED_PAUSE) & made.obeyed_at.is_not(None)


def held_tables(connection: Connection, tables: StateTables) -> Mapping[str, str]:
    """Return table key → why an operator's decision keeps the table from running. A copy that was refused does so as well."""
    made = tables.table_decisions
    stays = _is_paused(tables) | ((made.c.verb == "reload-done") & made.c.refusal.is_not(None))
    holds = connection.execute(select(made).where(stays)).all()
    return {row.table_key: held(_decision(row), row.refusal or "") for row in holds}
