"""Tables for operators: decisions on them and on statements, copies, and loads.

A decision about a statement is read by whoever runs it. One about a table is a row of its own,
which the consumer applies to what is stored of that table at its next round or start.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from sqlalchemy import ColumnElement, Select, delete, exists, select, text, update
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.findings import (
    StoredReports,
    begun_statements,
    close_copied,
    last_that_may_touch,
)
from storage_consumer.checkpoint.transactions import (
    StateTransactions,
    Stored,
    larger,
    name_in,
    put_all,
    record,
)
from storage_consumer.model import DdlId, TableName
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.journal_entry import DONE, SKIPPED
from storage_consumer.plan.loads import OPEN, Load, LoadPhase
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_decisions import (
    Foreseen,
    Obeyed,
    StoredTable,
    TableDecision,
    Verb,
    held,
    leads_to,
    needs_copy,
    obeyed,
    refusal,
    shown_state,
)
from storage_consumer.plan.table_state import TableState
from storage_consumer.ports import Decision
from storage_consumer.target.state_tables import NOW, StateTables, put, same_statement


def put_copies(connection: Connection, tables: StateTables, copies: Mapping[str, Copies]) -> None:
    """Store what copies of tables have to contain, and contained, by table key."""
    put_all(
        connection,
        tables.copies,
        ({"table_key": key} | copy_values(each) for key, each in copies.items()),
    )


def copy_values(copies: Copies) -> dict[str, Any]:
    """Return the values of the table's columns."""
    return {
        "copy_from": copies.copy_from,
        "absent": json.dumps(dict(copies.absent)),
        "copied_at": copies.copied_at,
        "passed": json.dumps(dict(copies.passed)),
        "listed": json.dumps(dict(copies.listed)),
        "listed_at": copies.listed_at,
    }


COLUMNS = tuple(copy_values(Copies()))
"""Names of the columns besides the key."""


def copies_in(row: Any) -> Copies:
    """Return what a row with all `COLUMNS` says; columns missing in an outer join are silent."""
    # Most tables have no such record; of ten thousand they are read within each look of the status
    # page.
    if row.copy_from is None:
        return Copies()
    return Copies(
        copy_from=row.copy_from,
        absent=json.loads(row.absent or "{}"),
        copied_at=row.copied_at or 0,
        passed=json.loads(row.passed or "{}"),
        listed=json.loads(row.listed or "{}"),
        listed_at=row.listed_at or 0,
    )


def copies_of(connection: Connection, tables: StateTables) -> Mapping[str, Copies]:
    """Return table key → what copies of that table have to contain, or contained."""
    return {
        row.table_key: copies_in(row) for row in connection.execute(select(tables.copies)).all()
    }


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
    """Commit ts up to which the table is applied, inclusive; of one that is not stopped, its own
    row may hold an older one.
    """

    @property
    def shown(self) -> str:
        """The word for its state."""
        return shown_state(self.stored.state, self.stored.error, waits=bool(self.waits))


class StoredDecisions(Stored):
    """The operators' decisions about one feed."""

    def on_statements(self) -> Mapping[DdlId, Decision]:
        """Return decisions on statements neither done nor skipped, by `DdlStep.identity`."""
        made, journal = self._tables.decisions, self._tables.journal
        query = select(made).join(journal, same_statement(made, journal))
        query = query.where(journal.c.state.not_in((DONE, SKIPPED)))
        return {
            DdlId(row.table_dir, row.version, row.checksum): record(
                Decision, row, decided_at=str(row.decided_at)
            )
            for row in self._read(query, "reading the decisions about DDL")
        }

    def foreseen(self, *, tells_time: bool = True) -> list[Foreseen]:
        """Return what `apply_to_tables` would make of unseen decisions, without changes."""
        waits = select(self._tables.table_decisions).where(
            self._tables.table_decisions.c.obeyed_at.is_(None)
        )
        with self._shared("reading the decisions about tables") as connection:
            made = map(_decision, connection.execute(waits).all())
            return [
                self._judged(connection, each, tells_time=tells_time, locks=False) for each in made
            ]

    def waiting(self) -> tuple[bool, bool]:
        """Return whether decisions on tables wait, and whether loads do.

        Without the lease, so that an idle round takes no lock.
        """
        made, loads = self._tables.table_decisions, self._tables.loads
        decided = exists().where(made.c.obeyed_at.is_(None))
        requested = exists().where(loads.c.phase == LoadPhase.REQUESTED)
        (row,) = self._read(select(decided, requested), "looking for decisions about tables")
        return bool(row[0]), bool(row[1])

    def apply_to_tables(
        self, busy: Collection[str] = (), *, tells_time: bool = True
    ) -> list[Obeyed]:
        """Apply stored decisions, each once; note one that cannot be followed, without effect.

        Decisions about tables that are `busy` wait. `tells_time` says whether rows carry their
        commit-ts.
        """
        waits = select(self._tables.table_decisions).where(
            self._tables.table_decisions.c.obeyed_at.is_(None)
        )
        if not self.waiting()[0]:
            return []
        with self._owned("applying a decision about a table") as connection:
            # Read again, under a lock: an operator may have replaced a decision since the first
            # look.
            made = map(_decision, connection.execute(waits.with_for_update()).all())
            return [
                self._obeyed(connection, each, tells_time=tells_time)
                for each in made
                if each.table_key not in busy
            ]

    def _obeyed(
        self, connection: Connection, decision: TableDecision, *, tells_time: bool
    ) -> Obeyed:
        tables, of = self._tables, decision.table_key
        found = self._judged(connection, decision, tells_time=tells_time, locks=True)
        name = found.table.name
        if not found.refusal:
            # A copy too may have keys that are new: those of the statements that it contains. So
            # the note of what our last statement left goes.
            if decision.verb in ("accept-keys", "reload-done"):
                there = key_of(self._place(connection, found.table))
                connection.execute(delete(tables.keys).where(tables.keys.c.table_key == there))
            self._put(connection, found)
            if decision.verb == "reload-done":
                close_copied(connection, tables, of, decision.at)
        made = tables.table_decisions
        connection.execute(
            # In the transaction that changes the table: after a crash both are there, or the
            # decision still waits.
            update(made)
            .where(made.c.table_key == of)
            .values(obeyed_at=NOW, refusal=found.refusal or None)
        )
        return Obeyed(table=str(name), decision=decision, refusal=found.refusal)

    def follow(self, connection: Connection, decision: TableDecision) -> str:
        """Apply a decision not stored, in the owner's transaction; return its refusal, or "".

        The statements of a load have noted the table's keys, so the notes stay.
        """
        found = self._judged(connection, decision, tells_time=True, locks=True)
        if not found.refusal:
            self._put(connection, found)
        return found.refusal

    def end_pause(self, connection: Connection, table_key: str) -> None:
        """Forget what halts a table until its coming copy, but not an unseen decision."""
        made = self._tables.table_decisions
        refused = (made.c.verb == "reload-done") & made.c.refusal.is_not(None)
        ends = (made.c.table_key == table_key) & (_is_paused(self._tables) | refused)
        connection.execute(delete(made).where(ends))

    def _judged(
        self, connection: Connection, decision: TableDecision, *, tells_time: bool, locks: bool
    ) -> Foreseen:
        """Return a table after a decision; `locks`: hold its row until the transaction ends."""
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
        # What the verdict needs of the journal is read in the same transaction, so that no
        # statement moves in between.
        stored = self._with_statements(connection, stored)
        loads = tables.loads.c
        phase = connection.execute(
            select(loads.phase).where(loads.table_key == of)
        ).scalar_one_or_none()
        stored = replace(
            stored, loading=phase == LoadPhase.LOADING, joining=phase == LoadPhase.JOINING
        )
        place = self._place(connection, stored)
        if why := refusal(stored, decision, tells_time=tells_time):
            return Foreseen(decision=decision, table=stored, place=place, refusal=why)
        # A table that follows has reached this, though its own row may be older.
        running = connection.execute(select(tables.feed.c.checkpoint_running)).scalar_one()
        return Foreseen(
            decision=decision, table=obeyed(stored, decision, running), place=decision.to or place
        )

    def _with_statements(self, connection: Connection, table: StoredTable) -> StoredTable:
        """Return the table with what the journal says of its statements."""
        tables = self._tables
        journal, kept = tables.journal.c, tables.structures.c
        same = same_statement(tables.structures, tables.journal)
        query = select(journal.version, journal.query, kept.schema_name, kept.table_name)
        # A structure without a statement is journaled too, but it is no change that a copy has to
        # hold.
        ended = (
            (kept.table_key == table.table_key)
            & (kept.query != "")
            & journal.state.in_((DONE, SKIPPED))
        )
        query = query.join_from(tables.structures, tables.journal, same).where(ended)
        resolved = connection.execute(query.order_by(journal.version.desc()).limit(_STRAYS))
        begun = connection.execute(begun_statements(tables, given_up=needs_copy(table.state)))
        return replace(
            table,
            last_resolved=next(
                (row.version for row in resolved if leads_to(row.query, name_in(row))), 0
            ),
            started=last_that_may_touch(begun, table.name),
        )

    def _place(self, connection: Connection, table: StoredTable) -> TableName:
        """Return a table's name in the target."""
        targets = self._tables.targets.c
        of = targets.table_key == table.table_key
        row = connection.execute(
            select(targets.target_schema, targets.target_table).where(of)
        ).first()
        return (
            table.name
            if row is None
            else TableName(schema=row.target_schema, table=row.target_table)
        )

    def _put(self, connection: Connection, found: Foreseen) -> None:
        """Store what a decision makes of a table."""
        table, verb, of, to = (
            found.table,
            found.decision.verb,
            found.decision.table_key,
            found.decision.to,
        )
        row = {name: getattr(table, name) for name in ("checkpoint", "state", "follows", "error")}
        row |= {"table_key": of, "schema_name": table.name.schema, "table_name": table.name.table}
        connection.execute(put(self._tables.tables, row))
        connection.execute(put(self._tables.copies, {"table_key": of} | copy_values(table.copies)))
        if verb == "moved" and to is not None:
            _put_place(connection, self._tables, of, to)
        # Whatever was being loaded is no longer what the table goes on with.
        if verb in ("reload-done", "skip"):
            loads = self._tables.loads
            open_loads = update(loads).where(loads.c.table_key == of, loads.c.phase.in_(OPEN))
            connection.execute(open_loads.values(phase=LoadPhase.CANCELLED, ended_at=NOW))

    # what an operator sees and decides

    def tables(self) -> list[TableRow]:
        """Return all tables that the state knows, by name."""
        tables, kept = self._tables, self._tables.structures.c
        progress, made = tables.tables.c, tables.table_decisions
        said = [column for name, column in made.c.items() if name != "table_key"]
        query = (
            _stored_tables(tables)
            .add_columns(*said)
            .outerjoin(made, made.c.table_key == progress.table_key)
        )
        found = [
            TableRow(
                stored=_stored_table(row),
                # without a verb the outer join found no decision
                decision=row.verb and _decision(row),
                obeyed=row.obeyed_at is not None,
                refusal=row.refusal or "",
            )
            for row in self._read(query.order_by(progress.schema_name, progress.table_name))
        ]
        known = {row.stored.table_key for row in found}
        # Tables on which nothing has run yet: only schema files name them.
        named = select(kept.table_key, kept.schema_name, kept.table_name).distinct()
        for row in self._read(named):
            if row.table_key not in known:
                known.add(row.table_key)
                found.append(
                    TableRow(stored=StoredTable(table_key=row.table_key, name=name_in(row)))
                )
        running = max(
            (each for (each,) in self._read(select(tables.feed.c.checkpoint_running))), default=0
        )
        report, _ = StoredReports(self._transactions).last()
        waiting = report.waiting if report else {}
        return [
            replace(
                row,
                reached=max(
                    it.checkpoint, running if it.follows and it.state == TableState.RUNNING else 0
                ),
                waits=waiting.get(str(it.name), ""),
            )
            for row in found
            for it in (row.stored,)
        ]

    def judged(self, table: StoredTable) -> StoredTable:
        """Return the table with what a consumer would look up before it follows a decision."""
        with self._shared("reading the state") as connection:
            return self._with_statements(connection, table)

    def now_ms(self) -> int:
        """Return the target's clock in milliseconds since 1970-01-01 UTC."""
        ((now,),) = self._read(text("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)"))
        return int(now)

    def decide_on(self, row: TableRow, decision: TableDecision) -> str:
        """Store a decision; return ``stored``, or ``same`` if it was, and no consumer saw it."""
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
            "decided_at": NOW,
            "decided_by": decision.decided_by,
            # What became of an earlier decision about the table says nothing of this one.
            "obeyed_at": None,
            "refusal": None,
        }
        with self._shared("storing a decision") as connection:
            connection.execute(put(self._tables.table_decisions, new))
        return "stored"


_STRAYS = 100
"""More statements than other tables' steps of a cycle of renames ever lie in one table's folder,
one after the other.
"""


def _stored_tables(tables: StateTables) -> Select[Any]:
    """Return the query for stored tables, one row each; see `_stored_table`."""
    progress, copies = tables.tables, tables.copies
    found = select(progress, *(copies.c[name] for name in COLUMNS))
    return found.outerjoin_from(progress, copies, progress.c.table_key == copies.c.table_key)


def _stored_table(row: Any) -> StoredTable:
    return record(
        StoredTable, row, name=name_in(row), follows=bool(row.follows), copies=copies_in(row)
    )


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
    return frozenset(
        connection.execute(select(made.c.table_key).where(_is_paused(tables))).scalars()
    )


def _is_paused(tables: StateTables) -> ColumnElement[bool]:
    # A pause that waits for a statement to end is not stored with its table yet: the table would
    # stand still in memory, and by its row follow the feed's checkpoint beyond rows that nobody has
    # read.
    made = tables.table_decisions.c
    return (made.verb == _STORED_PAUSE) & made.obeyed_at.is_not(None)


def held_tables(connection: Connection, tables: StateTables) -> Mapping[str, str]:
    """Return table key → the operator's decision, or refused copy, that keeps it halted."""
    made = tables.table_decisions
    stays = _is_paused(tables) | ((made.c.verb == "reload-done") & made.c.refusal.is_not(None))
    holds = connection.execute(select(made).where(stays)).all()
    return {row.table_key: held(_decision(row), row.refusal or "") for row in holds}


_DOING = "reading the loads of tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """The last load of one table, as an operator sees it."""

    load: Load
    requested_at: str
    """By the target's clock, in UTC."""
    requested_by: str
    ended_at: str = ""
    """When it was refused or cancelled, or when all of its copy was written; empty before that."""
    waits_for: int = 0
    """The version of a statement that may touch its table and is not known to have ended: the load
    waits for it; 0 for none.
    """


class StoredLoads(Stored):
    """A feed's loads; tasks move a keyless table's clock themselves, see `target.keyless`."""

    def __init__(self, transactions: StateTransactions) -> None:
        """Use `transactions`; a finished load is followed like a decision about a copy."""
        super().__init__(transactions)
        self._decisions = StoredDecisions(transactions)

    def requested(self) -> list[Load]:
        """Return the loads that no consumer has looked at, by table."""
        loads = self._tables.loads
        query = (
            select(loads).where(loads.c.phase == LoadPhase.REQUESTED).order_by(loads.c.table_key)
        )
        return [_load_of(row) for row in self._read(query, _DOING)]

    def unsettled(self, load: Load) -> tuple[int, bool]:
        """See `ports.Loads`."""
        stored = self._tables.tables.c
        query = select(stored.state).where(stored.table_key == load.table_key)
        with self._shared(_DOING) as connection:
            state = connection.execute(query).scalar_one_or_none() or ""
            begun = connection.execute(
                begun_statements(self._tables, given_up=needs_copy(state))
            ).all()
        return last_that_may_touch(begun, load.name), state in (TableState.HALTED, TableState.LOST)

    def begin(
        self,
        loads: Collection[Load],
        *,
        by: str,
        floor: int = 0,
        places: Mapping[str, TableName] | None = None,
    ) -> list[Load]:
        """See `ports.Loads`; loads that were requested keep who did that, and when."""
        tables, wanted = self._tables, self._tables.loads
        with self._owned("beginning to load tables") as connection:
            if floor:
                feed = tables.feed
                running = larger(feed.c.checkpoint_running, floor)
                connection.execute(
                    update(feed).values(
                        floor=floor,
                        checkpoint=larger(feed.c.checkpoint, floor),
                        checkpoint_running=running,
                    )
                )
            # When and by whom the loads were requested that still are; nobody withdraws them now.
            asked = select(
                wanted.c.table_key, wanted.c.load_id, wanted.c.requested_at, wanted.c.requested_by
            )
            still = wanted.c.table_key.in_([load.table_key for load in loads]) & (
                wanted.c.phase == LoadPhase.REQUESTED
            )
            found = () if by else connection.execute(asked.where(still).with_for_update())
            wishes = {(key, load_id): (at, who) for key, load_id, at, who in found}
            begun = [load for load in loads if by or (load.table_key, load.load_id) in wishes]
            for load in begun:
                wished_at, wished_by = wishes.get((load.table_key, load.load_id), (NOW, by))
                self._put(
                    connection, load, requested_at=wished_at, requested_by=wished_by, ended_at=None
                )
                new = {"state": TableState.LOADING, "follows": False, "error": ""}
                names = {"schema_name": load.name.schema, "table_name": load.name.table}
                progress = insert(tables.tables).values(
                    {"table_key": load.table_key, "checkpoint": 0} | names | new
                )
                connection.execute(progress.on_duplicate_key_update(**new))
                # Before any row of the copy is there, so that a route that changes meanwhile does
                # not go unseen.
                _put_place(connection, tables, load.table_key, (places or {}).get(load.table_key))
                self._decisions.end_pause(connection, load.table_key)
                # Now, and not when it ends: by then there may be rows of this very copy.
                close_copied(connection, tables, load.table_key, load.low)
        return begun

    def wait(self, load: Load, why: str) -> None:
        """Store why a requested load does not begin yet."""
        loads = self._tables.loads.c
        this = (loads.table_key == load.table_key) & (loads.load_id == load.load_id)
        with self._owned("storing what a load waits for") as connection:
            waits = update(self._tables.loads).where(this & (loads.phase == LoadPhase.REQUESTED))
            connection.execute(waits.values(error=why))

    def refuse(self, load: Load, error: str) -> None:
        """Store why a copy cannot be used."""
        with self._owned("refusing a load") as connection:
            self._end(connection, load, LoadPhase.REFUSED, error=error)

    def cancel(self, load: Load, why: str) -> None:
        """Store why a load that has begun does not go on."""
        with self._owned("ending a load") as connection:
            self._end(connection, load, LoadPhase.CANCELLED, error=why)

    def advance(self, clocks: Mapping[str, int]) -> None:
        """Store table key → the clock (inclusive) up to which rows are written; never back."""
        loads = self._tables.loads
        with self._owned("storing how far loads are") as connection:
            for key, clock in clocks.items():
                moved = update(loads).where(
                    loads.c.table_key == key, loads.c.phase == LoadPhase.LOADING
                )
                connection.execute(moved.values(done=larger(loads.c.done, clock)))

    def clocks(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Return how far the loads of these tables are, as tasks have left them."""
        loads = self._tables.loads.c
        with self._owned(_DOING) as connection:
            rows = connection.execute(
                select(loads.table_key, loads.done).where(loads.table_key.in_(list(keys)))
            ).all()
        return {row.table_key: row.done for row in rows}

    def finish(self, load: Load) -> str:
        """Let a table go on after its written copy; return why it may not yet, or ""."""
        with self._owned("ending a load") as connection:
            copied = TableDecision(table_key=load.table_key, verb="reload-done", at=load.low)
            if why := self._decisions.follow(connection, copied):
                return why
            self._end(connection, load, LoadPhase.JOINING)
        return ""

    def _end(
        self, connection: Connection, load: Load, phase: LoadPhase, *, error: str = ""
    ) -> None:
        loads = self._tables.loads
        # Only this very load: an operator may have requested another one meanwhile.
        this = (loads.c.table_key == load.table_key) & (loads.c.load_id == load.load_id)
        ended = {"phase": phase, "error": error, "ended_at": NOW}
        connection.execute(update(loads).where(this).values(ended))

    def _put(self, connection: Connection, load: Load, **more: Any) -> None:
        values = (
            asdict(load) | {"schema_name": load.name.schema, "table_name": load.name.table} | more
        )
        del values["name"]
        connection.execute(put(self._tables.loads, values))

    # what an operator sees and wants: a running consumer looks at it before its next round, a
    # stopped one when it starts

    def all(self) -> list[LoadRow]:
        """Return each table's last load by name; an older version's state has none."""
        loads = self._tables.loads
        if not self._transactions.has(loads):
            return []
        found = list(
            map(
                _load_row,
                self._read(select(loads).order_by(loads.c.schema_name, loads.c.table_name)),
            )
        )
        if not any(row.load.is_pending for row in found):
            return found
        begun = self._read(begun_statements(self._tables, given_up=True))
        return [
            replace(row, waits_for=last_that_may_touch(begun, row.load.name))
            if row.load.is_pending
            else row
            for row in found
        ]

    def request(self, load: Load, by: str) -> LoadRow | None:
        """Store a request, unless the table is in load; return that load then."""
        with self._shared("requesting a load") as connection:
            found = self._locked(connection, load.table_key)
            if found is not None and found.load.phase == LoadPhase.LOADING:
                return found
            # What the table has of an earlier copy it keeps, whatever becomes of this one.
            wish = replace(load, low=found.load.low if found is not None else 0)
            self._put(connection, wish, requested_at=NOW, requested_by=by, ended_at=None)
        return None

    def withdraw(self, table_key: str) -> LoadRow | None:
        """Withdraw a request; return a begun or ended load, or None if there is none.

        That is returned where nothing is left to withdraw.
        """
        with self._shared("storing a decision") as connection:
            found = self._locked(connection, table_key)
            if found is not None and found.load.phase == LoadPhase.REQUESTED:
                self._end(connection, found.load, LoadPhase.CANCELLED, error=found.load.error)
        return found

    def _locked(self, connection: Connection, table_key: str) -> LoadRow | None:
        """Return the load of a table, which no consumer changes until the transaction ends."""
        loads = self._tables.loads
        row = connection.execute(
            select(loads).where(loads.c.table_key == table_key).with_for_update()
        ).first()
        return None if row is None else _load_row(row)


def _put_place(
    connection: Connection, tables: StateTables, table_key: str, place: TableName | None
) -> None:
    """Store where a table's rows go; None: by its name, whatever earlier routes said."""
    targets = tables.targets
    if place is None:
        connection.execute(delete(targets).where(targets.c.table_key == table_key))
    else:
        where = {"target_schema": place.schema, "target_table": place.table}
        connection.execute(put(targets, {"table_key": table_key} | where))


def loads_in(connection: Connection, tables: StateTables) -> tuple[dict[str, Load], frozenset[str]]:
    """Return open loads by table key, and keys of all tables loaded or in load."""
    rows = [_load_of(row) for row in connection.execute(select(tables.loads))]
    based = frozenset(load.table_key for load in rows if load.low)
    return {load.table_key: load for load in rows if load.phase in OPEN}, based


def put_joined(connection: Connection, tables: StateTables, keys: Collection[str]) -> None:
    """Store that tables have caught up with the others since their loads."""
    loads = tables.loads
    joining = update(loads).where(
        loads.c.table_key.in_(list(keys)), loads.c.phase == LoadPhase.JOINING
    )
    connection.execute(joining.values(phase=LoadPhase.DONE))


def _load_of(row: Any) -> Load:
    """Return a row of ``table_load`` as a record."""
    return record(
        Load,
        row,
        name=name_in(row),
        phase=LoadPhase(row.phase),
        is_view=bool(row.is_view),
        replaces=bool(row.replaces),
    )


def _load_row(row: Any) -> LoadRow:
    ends = {"requested_at": str(row.requested_at), "ended_at": str(row.ended_at or "")}
    return record(LoadRow, row, load=_load_of(row), **ends)
