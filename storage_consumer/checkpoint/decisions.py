"""StoredDecisions: what operators decide about statements and about tables.

A decision about a statement is read by whoever runs it. One about a table is applied to what is stored of that table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from sqlalchemy import ColumnElement, Select, delete, exists, func, select, update
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection, Row

from storage_consumer.checkpoint.copies import COLUMNS, copies_in, copy_values
from storage_consumer.checkpoint.quarantine import close_copied
from storage_consumer.checkpoint.transactions import OwnedTransactions
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
)
from storage_consumer.ports import Decision

_STORED_PAUSE = "hold"
"""What the state calls a pause: earlier programs wrote this word, and still obey it."""


class StoredDecisions:
    """The operators' decisions about one feed."""

    def __init__(self, transactions: OwnedTransactions) -> None:
        """Read and apply them in `transactions`."""
        self._transactions = transactions
        self._tables = transactions.tables

    def on_statements(self) -> Mapping[DdlId, Decision]:
        """Return decisions about statements that are neither done nor skipped, by `DdlStep.identity`."""
        made, journal = self._tables.decisions, self._tables.journal
        query = select(made).join(journal, same_statement(made, journal))
        with self._transactions.shared("reading the decisions about DDL") as connection:
            rows = connection.execute(query.where(journal.c.state.not_in((DONE, SKIPPED)))).all()
        return {
            DdlId(row.table_dir, row.version, row.checksum): Decision(
                verb=row.verb, statement=row.statement, decided_at=str(row.decided_at), decided_by=row.decided_by
            )
            for row in rows
        }

    def foreseen(self, *, tells_time: bool = True) -> list[Foreseen]:
        """Return what `apply_to_tables` would make now of the decisions that nobody has obeyed yet, and change nothing."""
        waits = select(self._tables.table_decisions).where(self._tables.table_decisions.c.obeyed_at.is_(None))
        with self._transactions.shared("reading the decisions about tables") as connection:
            made = map(_decision, connection.execute(waits).all())
            return [self._judged(connection, each, tells_time=tells_time, locks=False)[1] for each in made]

    def waiting(self) -> tuple[bool, bool]:
        """Return whether decisions about tables wait, and whether loads are requested; without the lease, so that an idle round takes no lock."""
        made, loads = self._tables.table_decisions, self._tables.loads
        decided = exists().where(made.c.obeyed_at.is_(None))
        requested = exists().where(loads.c.phase == LoadPhase.REQUESTED)
        with self._transactions.shared("looking for decisions about tables") as connection:
            row = connection.execute(select(decided, requested)).one()
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
        tables = self._tables
        stored, found = self._judged(connection, decision, tells_time=tells_time, locks=True)
        if not found.refusal:
            self._put(connection, found.table)
            self._put_also(connection, stored, decision)
            # A copy too may have keys that are new: those of the statements that it contains.
            if decision.verb in ("accept-keys", "reload-done"):
                self._forget_keys(connection, stored)
            if decision.verb == "reload-done":
                close_copied(connection, tables, decision.table_key, decision.at)
        made = tables.table_decisions
        connection.execute(
            # In the transaction that changes the table: after a crash both are there, or the decision still waits.
            update(made)
            .where(made.c.table_key == decision.table_key)
            .values(obeyed_at=func.utc_timestamp(6), refusal=found.refusal or None)
        )
        return Obeyed(table=str(stored.name), decision=decision, refusal=found.refusal)

    def follow(self, connection: Connection, decision: TableDecision) -> str:
        """Apply a decision that nobody has stored, within a transaction of the lease's owner; return why it cannot be followed, or "".

        The statements of a load have noted the table's keys, so the notes stay.
        """
        stored, found = self._judged(connection, decision, tells_time=True, locks=True)
        if not found.refusal:
            self._put(connection, found.table)
            self._put_also(connection, stored, decision)
        return found.refusal

    def end_pause(self, connection: Connection, table_key: str) -> None:
        """Forget what keeps a table halted until it has a copy, which is to come now; a decision that nobody has obeyed yet stays."""
        made = self._tables.table_decisions
        refused = (made.c.verb == "reload-done") & made.c.refusal.is_not(None)
        ends = (made.c.table_key == table_key) & (_is_paused(self._tables) | refused)
        connection.execute(delete(made).where(ends))

    def _judged(
        self, connection: Connection, decision: TableDecision, *, tells_time: bool, locks: bool
    ) -> tuple[StoredTable, Foreseen]:
        """Return what is stored of the decision's table, and what the decision makes of it. `locks`: whether to keep its row as it is."""
        tables, of = self._tables, decision.table_key
        query = stored_tables(tables).where(tables.tables.c.table_key == of)
        row = connection.execute(query.with_for_update() if locks else query).first()
        stored = self._kept_only(connection, of) if row is None else stored_table(row)
        # What the verdict needs of the journal is read in the same transaction, so that no statement moves in between.
        stored = replace(stored, last_resolved=last_that_led_to(connection.execute(resolved_statements(tables, of))))
        loads = tables.loads.c
        phase = connection.execute(select(loads.phase).where(loads.table_key == of)).scalar_one_or_none()
        stored = replace(stored, loading=phase == LoadPhase.LOADING, joining=phase == LoadPhase.JOINING)
        begun = connection.execute(begun_statements(tables, given_up=needs_copy(stored.state))).all()
        stored = replace(stored, started=last_that_may_touch(begun, stored.name))
        if why := refusal(stored, decision, tells_time=tells_time):
            return stored, Foreseen(decision=decision, table=stored, place=self._place(connection, stored), refusal=why)
        # A table that follows has reached this, though its own row may be older.
        running = connection.execute(select(tables.feed.c.checkpoint_running)).scalar_one()
        place = decision.to or self._place(connection, stored)
        return stored, Foreseen(decision=decision, table=obeyed(stored, decision, running), place=place)

    def _place(self, connection: Connection, table: StoredTable) -> TableName:
        """Return a table's name in the target."""
        targets = self._tables.targets.c
        of = targets.table_key == table.table_key
        row = connection.execute(select(targets.target_schema, targets.target_table).where(of)).first()
        return table.name if row is None else TableName(schema=row[0], table=row[1])

    def _put_also(self, connection: Connection, table: StoredTable, decision: TableDecision) -> None:
        """Store what a decision changes besides the table's progress."""
        targets = self._tables.targets
        if decision.verb == "moved" and decision.to is not None:
            place = {"target_schema": decision.to.schema, "target_table": decision.to.table}
            connection.execute(put(targets, {"table_key": table.table_key} | place))
        # Whatever was being loaded is no longer what the table goes on with.
        if decision.verb in ("reload-done", "skip"):
            loads = self._tables.loads
            open_loads = update(loads).where(loads.c.table_key == table.table_key, loads.c.phase.in_(OPEN))
            connection.execute(open_loads.values(phase=LoadPhase.CANCELLED, ended_at=func.utc_timestamp(6)))

    def _forget_keys(self, connection: Connection, table: StoredTable) -> None:
        """Take a table's keys as they are: delete the note of what our last statement left."""
        keys, there = self._tables.keys, self._place(connection, table)
        connection.execute(delete(keys).where(keys.c.table_key == key_of(there)))

    def _kept_only(self, connection: Connection, table_key: str) -> StoredTable:
        """Return a table on which nothing has run yet: only a schema file names it."""
        kept = self._tables.structures.c
        named = select(kept.schema_name, kept.table_name).where(kept.table_key == table_key).limit(1)
        row = connection.execute(named).one()
        return StoredTable(table_key=table_key, name=TableName(schema=row.schema_name, table=row.table_name))

    def _put(self, connection: Connection, table: StoredTable) -> None:
        names = {"table_key": table.table_key, "schema_name": table.name.schema, "table_name": table.name.table}
        new = {"checkpoint": table.checkpoint, "state": table.state, "follows": table.follows, "error": table.error}
        progress = insert(self._tables.tables).values(names | new)
        connection.execute(progress.on_duplicate_key_update(**new))
        connection.execute(put(self._tables.copies, {"table_key": table.table_key} | copy_values(table.copies)))


_STRAYS = 100
"""More statements than other tables' steps of a cycle of renames ever lie in one table's folder, one after the other."""


def stored_tables(tables: StateTables) -> Select[Any]:
    """Return the query for stored tables, one row each; see `stored_table`."""
    progress, copies = tables.tables, tables.copies
    found = select(progress, *(copies.c[name] for name in COLUMNS))
    return found.outerjoin_from(progress, copies, progress.c.table_key == copies.c.table_key)


def stored_table(row: Row[Any]) -> StoredTable:
    """Return a row of `stored_tables` as a record."""
    return StoredTable(
        table_key=row.table_key,
        name=TableName(schema=row.schema_name, table=row.table_name),
        state=row.state,
        checkpoint=row.checkpoint,
        follows=bool(row.follows),
        error=row.error,
        copies=copies_in(row),
    )


def resolved_statements(tables: StateTables, table_key: str) -> Select[Any]:
    """Return the query for the last statements in a table's folder that are done or skipped; see `last_that_led_to`."""
    journal, kept = tables.journal.c, tables.structures.c
    same = same_statement(tables.structures, tables.journal)
    found = select(journal.version, journal.query, kept.schema_name, kept.table_name).join_from(
        tables.structures, tables.journal, same
    )
    # A structure without a statement is journaled too, but it is no change that a copy has to hold.
    found = found.where(kept.table_key == table_key, kept.query != "", journal.state.in_((DONE, SKIPPED)))
    return found.order_by(journal.version.desc()).limit(_STRAYS)


def last_that_led_to(resolved: Iterable[Sequence[Any]]) -> int:
    """Return the highest version of those statements that is one of the table itself, 0 for none."""
    named = ((version, query, TableName(schema=schema, table=table)) for version, query, schema, table in resolved)
    return next((version for version, query, name in named if leads_to(query, name)), 0)


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


def last_that_may_touch(begun: Iterable[Sequence[Any]], table: TableName) -> int:
    """Return the highest version of those statements that may touch a table, 0 for none."""
    named = ((version, query, TableName(schema=schema, table=table)) for version, query, schema, table in begun)
    return max((version for version, query, name in named if may_touch(query, name, table)), default=0)


def _decision(row: Row[Any]) -> TableDecision:
    return TableDecision(
        table_key=row.table_key,
        verb=verb_of(row.verb),
        at=row.copy_as_of,
        decided_at=str(row.decided_at),
        decided_by=row.decided_by,
        to=TableName(schema=row.to_schema, table=row.to_table) if row.to_schema else None,
    )


def verb_of(stored: str) -> Verb:
    """Return the verb that the state names so."""
    return "pause" if stored == _STORED_PAUSE else cast("Verb", stored)


def stored_verb(verb: Verb) -> str:
    """Return a verb as the state names it."""
    return _STORED_PAUSE if verb == "pause" else verb


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
