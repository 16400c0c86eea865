"""StoredLoads: which tables are loaded from a copy, and how far each load is: the state table ``table_load``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.decisions import StoredDecisions, begun_statements, last_that_may_touch
from storage_consumer.checkpoint.quarantine import close_copied
from storage_consumer.checkpoint.transactions import StateTransactions, larger, name_in
from storage_consumer.downstream.state_tables import StateTables, put
from storage_consumer.model import TableName
from storage_consumer.plan.loads import OPEN, Load, LoadPhase
from storage_consumer.plan.table_decisions import TableDecision, needs_copy
from storage_consumer.plan.table_state import TableState

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
    """The version of a statement that may touch its table and is not known to have ended: the load waits for it; 0 for none."""


class StoredLoads:
    """The loads of one feed. Tasks move the clock of a keyless table's load themselves; see `apply.keyless`."""

    def __init__(self, transactions: StateTransactions, decisions: StoredDecisions) -> None:
        """Read and store them in `transactions`; a finished load is followed as an operator's decision about a copy is."""
        self._transactions = transactions
        self._tables = transactions.tables
        self._decisions = decisions

    def requested(self) -> list[Load]:
        """Return the loads that no consumer has looked at, by table."""
        loads = self._tables.loads
        query = select(loads).where(loads.c.phase == LoadPhase.REQUESTED).order_by(loads.c.table_key)
        return [_load_of(row) for row in self._transactions.rows(query, _DOING)]

    def unsettled(self, load: Load) -> tuple[int, bool]:
        """See `ports.Loads`."""
        stored = self._tables.tables.c
        query = select(stored.state).where(stored.table_key == load.table_key)
        with self._transactions.shared(_DOING) as connection:
            state = connection.execute(query).scalar_one_or_none() or ""
            begun = connection.execute(begun_statements(self._tables, given_up=needs_copy(state))).all()
        return last_that_may_touch(begun, load.name), state in (TableState.HALTED, TableState.LOST)

    def begin(
        self, loads: Collection[Load], *, by: str, floor: int = 0, places: Mapping[str, TableName] | None = None
    ) -> list[Load]:
        """See `ports.Loads`; loads that were requested keep who did that, and when."""
        tables = self._tables
        with self._transactions.owned("beginning to load tables") as connection:
            if floor:
                feed = tables.feed
                running = larger(feed.c.checkpoint_running, floor)
                connection.execute(
                    update(feed).values(
                        floor=floor, checkpoint=larger(feed.c.checkpoint, floor), checkpoint_running=running
                    )
                )
            wishes = {} if by else self._wishes(connection, [load.table_key for load in loads])
            begun = [load for load in loads if by or (load.table_key, load.load_id) in wishes]
            for load in begun:
                wished_at, wished_by = wishes.get((load.table_key, load.load_id), (func.utc_timestamp(6), by))
                self._put(connection, load, requested_at=wished_at, requested_by=wished_by, ended_at=None)
                new = {"state": TableState.LOADING, "follows": False, "error": ""}
                names = {"schema_name": load.name.schema, "table_name": load.name.table}
                progress = insert(tables.tables).values({"table_key": load.table_key, "checkpoint": 0} | names | new)
                connection.execute(progress.on_duplicate_key_update(**new))
                # Before any row of the copy is there, so that a route that changes meanwhile does not go unseen.
                self._put_place(connection, load.table_key, (places or {}).get(load.table_key))
                self._decisions.end_pause(connection, load.table_key)
                # Now, and not when it ends: by then there may be rows of this very copy.
                close_copied(connection, tables, load.table_key, load.low)
        return begun

    def wait(self, load: Load, why: str) -> None:
        """Store why a requested load does not begin yet."""
        loads = self._tables.loads.c
        this = (loads.table_key == load.table_key) & (loads.load_id == load.load_id)
        with self._transactions.owned("storing what a load waits for") as connection:
            waits = update(self._tables.loads).where(this & (loads.phase == LoadPhase.REQUESTED))
            connection.execute(waits.values(error=why))

    def refuse(self, load: Load, error: str) -> None:
        """Store why a copy cannot be used."""
        with self._transactions.owned("refusing a load") as connection:
            self._end(connection, load, LoadPhase.REFUSED, error=error)

    def cancel(self, load: Load, why: str) -> None:
        """Store why a load that has begun does not go on."""
        with self._transactions.owned("ending a load") as connection:
            self._end(connection, load, LoadPhase.CANCELLED, error=why)

    def advance(self, clocks: Mapping[str, int]) -> None:
        """Store how far loads are: table key → the clock up to which (inclusive) rows are written. It never goes back."""
        loads = self._tables.loads
        with self._transactions.owned("storing how far loads are") as connection:
            for key, clock in clocks.items():
                moved = update(loads).where(loads.c.table_key == key, loads.c.phase == LoadPhase.LOADING)
                connection.execute(moved.values(done=larger(loads.c.done, clock)))

    def clocks(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Return how far the loads of these tables are, as tasks have left them."""
        loads = self._tables.loads.c
        with self._transactions.owned(_DOING) as connection:
            rows = connection.execute(select(loads.table_key, loads.done).where(loads.table_key.in_(list(keys)))).all()
        return {row.table_key: row.done for row in rows}

    def finish(self, load: Load) -> str:
        """Let a table go on after its copy, all of which is written; return why that may not be yet, or an empty text."""
        with self._transactions.owned("ending a load") as connection:
            copied = TableDecision(table_key=load.table_key, verb="reload-done", at=load.low)
            if why := self._decisions.follow(connection, copied):
                return why
            self._end(connection, load, LoadPhase.JOINING)
        return ""

    def _end(self, connection: Connection, load: Load, phase: LoadPhase, *, error: str = "") -> None:
        loads = self._tables.loads
        # Only this very load: an operator may have requested another one meanwhile.
        this = (loads.c.table_key == load.table_key) & (loads.c.load_id == load.load_id)
        ended = {"phase": phase, "error": error, "ended_at": func.utc_timestamp(6)}
        connection.execute(update(loads).where(this).values(ended))

    def _wishes(self, connection: Connection, keys: Collection[str]) -> dict[tuple[str, str], tuple[Any, str]]:
        """Return when and by whom the loads of these tables were requested that still are, by table key and load id; nobody withdraws them now."""
        loads = self._tables.loads.c
        query = select(loads.table_key, loads.load_id, loads.requested_at, loads.requested_by)
        still = loads.table_key.in_(keys) & (loads.phase == LoadPhase.REQUESTED)
        return {
            (key, load_id): (at, by)
            for key, load_id, at, by in connection.execute(query.where(still).with_for_update())
        }

    def _put_place(self, connection: Connection, table_key: str, place: TableName | None) -> None:
        """Store where the rows of a copy go; None: where the table's name says, whatever routes of earlier starts said."""
        targets = self._tables.targets
        if place is None:
            connection.execute(delete(targets).where(targets.c.table_key == table_key))
        else:
            where = {"target_schema": place.schema, "target_table": place.table}
            connection.execute(put(targets, {"table_key": table_key} | where))

    def _put(self, connection: Connection, load: Load, **more: Any) -> None:
        values = asdict(load) | {"schema_name": load.name.schema, "table_name": load.name.table} | more
        del values["name"]
        connection.execute(put(self._tables.loads, values))

    # what an operator sees and wants: a running consumer looks at it before its next round, a stopped one when it starts

    def all(self) -> list[LoadRow]:
        """Return the last load of each table that had one, by name; a state of an older version has none."""
        loads = self._tables.loads
        if not self._transactions.has(loads):
            return []
        found = list(
            map(_load_row, self._transactions.rows(select(loads).order_by(loads.c.schema_name, loads.c.table_name)))
        )
        if not any(row.load.is_pending for row in found):
            return found
        begun = self._transactions.rows(begun_statements(self._tables, given_up=True))
        return [
            replace(row, waits_for=last_that_may_touch(begun, row.load.name)) if row.load.is_pending else row
            for row in found
        ]

    def request(self, load: Load, by: str) -> LoadRow | None:
        """Store what somebody wants to be loaded, unless the table is being loaded; return that load then."""
        with self._transactions.shared("requesting a load") as connection:
            found = self._locked(connection, load.table_key)
            if found is not None and found.load.phase == LoadPhase.LOADING:
                return found
            # What the table has of an earlier copy it keeps, whatever becomes of this one.
            wish = replace(load, low=found.load.low if found is not None else 0)
            self._put(connection, wish, requested_at=func.utc_timestamp(6), requested_by=by, ended_at=None)
        return None

    def withdraw(self, table_key: str) -> LoadRow | None:
        """Withdraw what nobody has begun; return the load of a table where it has been begun or ended, or where there is none, None."""
        with self._transactions.shared("storing a decision") as connection:
            found = self._locked(connection, table_key)
            if found is not None and found.load.phase == LoadPhase.REQUESTED:
                self._end(connection, found.load, LoadPhase.CANCELLED, error=found.load.error)
        return found

    def _locked(self, connection: Connection, table_key: str) -> LoadRow | None:
        """Return the load of a table, which no consumer changes until the transaction ends."""
        loads = self._tables.loads
        row = connection.execute(select(loads).where(loads.c.table_key == table_key).with_for_update()).first()
        return None if row is None else _load_row(row)


def loads_in(connection: Connection, tables: StateTables) -> tuple[dict[str, Load], frozenset[str]]:
    """Return the loads that are not ended, by table key, and the keys of all tables that have been loaded or are."""
    rows = [_load_of(row) for row in connection.execute(select(tables.loads))]
    based = frozenset(load.table_key for load in rows if load.low)
    return {load.table_key: load for load in rows if load.phase in OPEN}, based


def put_joined(connection: Connection, tables: StateTables, keys: Collection[str]) -> None:
    """Store that tables have caught up with the others since their loads."""
    loads = tables.loads
    joining = update(loads).where(loads.c.table_key.in_(list(keys)), loads.c.phase == LoadPhase.JOINING)
    connection.execute(joining.values(phase=LoadPhase.DONE))


def _load_of(row: Any) -> Load:
    """Return a row of ``table_load`` as a record."""
    return Load(
        table_key=row.table_key,
        name=name_in(row),
        load_id=row.load_id,
        source=row.source,
        identity=row.identity,
        low=row.low,
        high=row.high,
        phase=LoadPhase(row.phase),
        done=row.done,
        parts=row.parts,
        size=row.size,
        is_view=bool(row.is_view),
        replaces=bool(row.replaces),
        error=row.error,
    )


def _load_row(row: Any) -> LoadRow:
    return LoadRow(
        load=_load_of(row),
        requested_at=str(row.requested_at),
        requested_by=row.requested_by,
        ended_at=str(row.ended_at or ""),
    )
