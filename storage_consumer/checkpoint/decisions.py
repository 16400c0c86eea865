"""Operators' decisions about tables, applied to what is stored of them: the state tables ``table_decision`` and ``table_copies``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Select, and_, delete, exists, func, select, update
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection, Row

from storage_consumer.checkpoint.copies import COLUMNS, copies_in, copy_values
from storage_consumer.checkpoint.schema_history import HistoryState
from storage_consumer.checkpoint.tables import StateTables
from storage_consumer.model import TableName
from storage_consumer.plan.journal import DONE, SKIPPED, STARTED
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_decisions import (
    Obeyed,
    StoredTable,
    TableDecision,
    held,
    may_touch,
    needs_copy,
    obeyed,
    refusal,
)


class OperatedState(HistoryState):
    """The state of one feed, as far as operators decide about its tables."""

    def apply_decisions(self, busy: Collection[str] = (), *, timed: bool = True) -> list[Obeyed]:
        """Apply decisions to what is stored, each once. One that cannot be followed is noted and changes nothing.

        Decisions about tables that are `busy` wait. `timed` says whether rows carry their commit-ts.
        """
        waits = select(self._tables.table_decisions).where(self._tables.table_decisions.c.obeyed_at.is_(None))
        # Look without the lease first: a round without new decisions takes no lock.
        with self._translated("reading the decisions about tables"), self._engine.begin() as connection:
            if connection.execute(waits).first() is None:
                return []
        with self._owned("applying a decision about a table") as connection:
            made = map(_decision, connection.execute(waits.with_for_update()).all())
            return [self._obeyed(connection, each, timed=timed) for each in made if each.table_key not in busy]

    def _obeyed(self, connection: Connection, decision: TableDecision, *, timed: bool) -> Obeyed:
        tables, of = self._tables, decision.table_key
        row = connection.execute(stored_tables(tables).where(tables.tables.c.table_key == of).with_for_update()).first()
        stored = self._kept_only(connection, of) if row is None else stored_table(row)
        stored = replace(stored, settled=connection.execute(last_settled(tables, of)).scalar_one() or 0)
        begun = connection.execute(begun_statements(tables, given_up=needs_copy(stored.state))).all()
        stored = replace(stored, started=last_that_may_touch(begun, of))
        if not (why := refusal(stored, decision, timed=timed)):
            running = connection.execute(select(tables.feed.c.checkpoint_running)).scalar_one()
            self._put(connection, obeyed(stored, decision, running))
            self._put_also(connection, stored, decision)
        made = tables.table_decisions
        connection.execute(
            update(made).where(made.c.table_key == of).values(obeyed_at=func.utc_timestamp(6), refusal=why or None)
        )
        return Obeyed(table=str(stored.name), decision=decision, refusal=why)

    def _put_also(self, connection: Connection, table: StoredTable, decision: TableDecision) -> None:
        """Store what a decision changes besides the table's progress."""
        targets, keys = self._tables.targets, self._tables.keys
        of = targets.c.table_key == table.table_key
        if decision.verb == "moved" and decision.to is not None:
            place = {"target_schema": decision.to.schema, "target_table": decision.to.table}
            row = insert(targets).values({"table_key": table.table_key} | place)
            connection.execute(row.on_duplicate_key_update(**place))
        if decision.verb in (
            "accept-keys",
            "reload-done",
        ):  # a copy may have keys that came from statements which it contains
            place_of = connection.execute(select(targets.c.target_schema, targets.c.target_table).where(of)).first()
            there = table.name if place_of is None else TableName(schema=place_of[0], table=place_of[1])
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
        values = copy_values(table.copies)
        row = insert(self._tables.copies).values({"table_key": table.table_key} | values)
        connection.execute(row.on_duplicate_key_update(**values))


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


def last_settled(tables: StateTables, table_key: str) -> Select[Any]:
    """Return the query for the version of a table's last statement that is done or skipped."""
    journal, kept = tables.journal.c, tables.structures.c
    same = and_(*(kept[name] == journal[name] for name in ("table_dir", "version", "checksum")))
    found = select(func.max(journal.version)).join_from(tables.structures, tables.journal, same)
    return found.where(kept.table_key == table_key, kept.query != "", journal.state.in_((DONE, SKIPPED)))


def begun_statements(tables: StateTables, *, given_up: bool) -> Select[Any]:
    """Return the query for statements that were started and are not known to have ended; see `last_that_may_touch`.

    With `given_up`, leave out those whose outcome an operator has stated.
    """
    journal, said = tables.journal.c, tables.decisions.c
    begun = select(journal.version, journal.query, journal.schema_name, journal.table_name).where(
        journal.state == STARTED
    )
    if given_up:
        same = and_(*(said[name] == journal[name] for name in ("table_dir", "version", "checksum")))
        begun = begun.where(~exists().where(same, said.verb.in_(("done", "skip"))))
    return begun


def last_that_may_touch(begun: Iterable[Sequence[Any]], table_key: str) -> int:
    """Return the highest version of those statements that may touch a table, 0 for none."""
    named = ((version, query, TableName(schema=schema, table=table)) for version, query, schema, table in begun)
    return max((version for version, query, name in named if may_touch(query, name, table_key)), default=0)


def _decision(row: Row[Any]) -> TableDecision:
    return TableDecision(
        table_key=row.table_key,
        verb=row.verb,
        at=row.copy_as_of,
        decided_at=str(row.decided_at),
        decided_by=row.decided_by,
        to=TableName(schema=row.to_schema, table=row.to_table) if row.to_schema else None,
    )


def held_tables(connection: Connection, tables: StateTables) -> Mapping[str, str]:
    """Return table key → why an operator's decision keeps the table from running. A copy that was refused does so as well."""
    made = tables.table_decisions
    stays = (made.c.verb == "hold") | ((made.c.verb == "reload-done") & made.c.refusal.is_not(None))
    holds = connection.execute(select(made).where(stays)).all()
    return {row.table_key: held(_decision(row), row.refusal or "") for row in holds}
