"""Transactions on the state, above all the lease owner's; the state schema; and the lease.

`store` says how the lease also fences the rows that tasks write. The schema is created at the first
start, and migrated from an older version by the first owner after an upgrade.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from inspect import get_annotations
from typing import Any, Literal, TypeVar

import pymysql.err
from sqlalchemy import Column, Executable, Select, Table, create_engine, func, select, text, update
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import DBAPIError, NoResultFound
from sqlalchemy.schema import CreateColumn, CreateTable
from sqlalchemy.sql.elements import ColumnElement

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import (
    ConfigError,
    LeaseLost,
    RowRefused,
    StateGone,
    StorageConsumerError,
)
from storage_consumer.model import TableName
from storage_consumer.plan.table_state import TableState
from storage_consumer.ports import SERIAL_SLOTS
from storage_consumer.sql.tokens import quote
from storage_consumer.target.connection import Connection as Target
from storage_consumer.target.connection import connect, read_only
from storage_consumer.target.mysql_errors import (
    LOCK_WAIT_TIMEOUT,
    gone,
    is_denied,
    number_of,
    translated,
)
from storage_consumer.target.rights import state_remedy
from storage_consumer.target.row_statements import batched
from storage_consumer.target.session_settings import evict, fetched, mark
from storage_consumer.target.state_tables import (
    EVERY_TABLE,
    MIGRATED,
    NOW,
    STATE_VERSION,
    put,
    state_tables,
)

_PUT_BACK = (
    "the state schema {} went back while this program ran: it was restored from a backup. If the tables were restored with it, start again. With the "
    "state alone, statements would run again, and tables without a key get rows twice: restore the tables of the same backup first"
)
CHUNK = 1_000
"""Rows per statement. They are sent beside the statement's text, so that the text is built once for
all of them.
"""
T = TypeVar("T")
LOCK_WAIT = 10
"""Seconds that the owner waits for a lock before it looks for the holder."""
_READ_TIMEOUT = 60
"""Seconds that an operator waits for an answer: a lock may be held for long."""
_CONNECTIONS = 7
"""Connections kept open once needed: of the round, the lease's renewal, the reports, and four DDL
workers. Opening one takes longer than a journal entry.
"""

Role = Literal["owner", "reader", "operator"]
"""Who opens a state: who has the lease or wants it; who only looks, beside its owner, and sees one
moment in each transaction; or who looks and stores decisions, with a limit to each answer. The last
two ask for no lease.
"""


class StateTransactions:
    """Connections to the state schema, and the lease's epoch for its owner's transactions."""

    def __init__(self, downstream: Downstream, password: str, role: Role = "owner") -> None:
        """Prepare the engine; nothing connects before the first transaction."""
        self._role = role
        self.downstream = downstream
        self.schema = downstream.state_schema
        self.tables = state_tables(downstream.state_schema)
        timeout = _READ_TIMEOUT if role == "operator" else None
        self.engine = create_engine(
            "mysql+pymysql://",
            creator=lambda: connect(
                downstream, password, read_timeout=timeout, prepare=self._prepare
            ),
            # the server, or a proxy before it, may have ended an idle connection
            pool_pre_ping=True,
            pool_size=_CONNECTIONS,
            # the same few are used again and again, so that a quiet program needs only those
            pool_use_lifo=True,
            # every transaction is a block that commits or rolls back at its end
            pool_reset_on_return=None,
        )
        self.epoch = 0
        """The epoch of our lease; 0 before the first one."""
        self._stored = [0, 0, 0]
        """Window, running and storage checkpoint of the feed, as far as we know: they only grow."""
        self._ours: set[int] = set()
        """Ids of our connections."""

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _prepare(self, connection: Target) -> None:
        connection.autocommit(False)  # noqa: FBT003 - PyMySQL's signature; SQLAlchemy sends no BEGIN of its own
        if self._role == "reader":
            read_only(connection)  # the owner may be writing meanwhile
        # Others are unmarked: no owner of the lease waits for them, so none may end them.
        if self._role != "owner":
            return
        connection.query(f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT}")
        # By these ids `evict` knows which connections are not a former owner's.
        self._ours.update(
            int(connection_id) for (connection_id,) in fetched(connection, "SELECT CONNECTION_ID()")
        )
        with suppress(pymysql.err.MySQLError):  # before the first start there is no state schema
            mark(connection.query, self.schema)

    # transactions

    @contextmanager
    def owned(self, doing: str) -> Iterator[Connection]:
        """Open a transaction that commits only with the lease; raise `LeaseLost` without it."""
        with self.shared(doing) as connection:
            # This locks the lease's row until the commit, so nobody takes the lease in between.
            if self._role != "reader":
                self.check_owner(connection, doing)
            yield connection

    @contextmanager
    def shared(self, doing: str) -> Iterator[Connection]:
        """Open a transaction that asks for no lease."""
        with self.translated(doing), self.engine.begin() as connection:
            yield connection

    def rows(self, query: Executable, doing: str = "reading the state") -> Sequence[Any]:
        """Return all rows of a query, in a transaction of its own that asks for no lease."""
        with self.shared(doing) as connection:
            return connection.execute(query).all()

    def has(self, wanted: Table | Column[Any]) -> bool:
        """Return whether a state table or column exists; an older version may lack it."""
        with self.shared("reading the state") as connection:
            return exists(connection, wanted)

    def check_owner(self, connection: Connection, doing: str, *, lock: bool = True) -> None:
        """Raise `LeaseLost` unless the lease is ours, `StateGone` for a state older than one seen.

        With `lock`, hold its row until the transaction ends; else read it without waiting.
        """
        found = select(self.tables.lease.c.epoch)
        epoch = connection.execute(found.with_for_update() if lock else found).scalar_one()
        if epoch > self.epoch:
            message = f"another process took the lease while {doing} (epoch {epoch}, ours is {self.epoch})"
            raise LeaseLost(message)
        feed = self.tables.feed.c
        # After the lease, as all who lock both. Locked, so that it is not older than what we know.
        newest = select(
            feed.window_id, feed.checkpoint_running, feed.storage_checkpoint
        ).with_for_update()
        stored = connection.execute(newest).one() if lock else self._stored
        if epoch < self.epoch or any(map(operator.lt, stored, self._stored)):
            raise StateGone(f"{doing}: {_PUT_BACK.format(self.schema)}")
        self.note_stored(*stored)

    def note_stored(self, *stored: int) -> None:
        """Note what the feed has; see `_stored`. 0 for what is not known."""
        self._stored = list(map(max, self._stored, stored))

    def own(self, epoch: int) -> None:
        """Note that the lease is ours, with this epoch."""
        self.epoch, self._stored = epoch, [0, 0, 0]

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Raise our errors for the driver's; refusals about the state are no row's fault."""
        try:
            yield
        except DBAPIError as error:
            fault = error.orig or error
            # First: where a table of the state is gone, what was applied is no longer known, and no
            # setting helps.
            if lost := gone(fault, doing, self.schema):
                raise lost from error
            if is_denied(fault):
                raise ConfigError(
                    f"{doing}: {state_remedy(fault, self._asked, self.schema)}"
                ) from error
            ours = translated(fault, doing)
            raise (
                StorageConsumerError(str(ours)) if isinstance(ours, RowRefused) else ours
            ) from error
        except NoResultFound as fault:
            message = (
                f"{doing}: a row that every state has is missing from the state schema {self.schema}: the schema was "
                "emptied or created again"
            )
            raise StateGone(message) from fault

    def _asked(self, sql: str) -> Sequence[Row[Any]]:
        """Return the rows of a query outside any transaction of the caller."""
        with self.engine.begin() as connection:
            return connection.exec_driver_sql(sql).all()

    # former owners

    def evicting(self, attempt: Callable[[], T], *, unless: Callable[[], T | None]) -> T:
        """Run `attempt`; if a lock times out, end former owners' connections and run it again.

        First ask `unless`: if it returns a true value, return that instead, and end no connection.
        The same holds if it raises.
        """
        try:
            return attempt()
        except DBAPIError as fault:
            if number_of(fault.orig or fault) != LOCK_WAIT_TIMEOUT:
                raise
            if answer := unless():
                return answer
            # The lock is somebody else's, such as an administrator's: the fault stands as it is.
            if not self._evict():
                raise
        return attempt()

    def _evict(self) -> bool:
        """End the connections of former owners; return whether there were any."""
        with self.engine.begin() as connection:

            def run(statement: str) -> Any:
                with self.translated("ending the connections of former owners"):
                    return connection.exec_driver_sql(statement)

            return bool(evict(run, self.schema, self._ours))


def put_all(
    connection: Connection,
    table: Table,
    rows: Iterable[Mapping[str, Any]],
    most: int = CHUNK,
    /,
    **instead: Callable[[ColumnElement[Any], ColumnElement[Any]], ColumnElement[Any]],
) -> None:
    """Store rows under their primary keys, in statements of at most `most` rows.

    `instead`: what a column of a row that exists is set to, by its old and its new value; without
    it, to the new one. A server assigns in the order of the columns in `rows`, and what comes later
    sees it.
    """
    for some in batched(rows, most):
        statement = insert(table)
        changed = [
            (name, instead[name](table.c[name], new) if name in instead else new)
            for name in some[0]
            for new in (statement.inserted[name],)
            if not table.c[name].primary_key
        ]
        connection.execute(statement.on_duplicate_key_update(changed), some)


def exists(connection: Connection, wanted: Table | Column[Any]) -> bool:
    """Return whether a state table, or a column of one, exists."""
    table, column = (wanted, None) if isinstance(wanted, Table) else (wanted.table, wanted.name)
    # Of tables wherever that will do: for `columns` MariaDB writes to its disk, which may be full
    # when `status` asks.
    kind, more = ("tables", "") if column is None else ("columns", " AND column_name = :called")
    where = f"table_schema = :schema AND table_name = :name{more}"
    query = text(f"SELECT COUNT(*) FROM information_schema.{kind} WHERE {where}")
    its = {"schema": table.schema, "name": table.name, **({"called": column} if column else {})}
    return bool(connection.execute(query, its).scalar_one())


class Stored:
    """A part of the state."""

    def __init__(self, transactions: StateTransactions) -> None:
        """Read and store it in `transactions`."""
        self._transactions = transactions
        self._tables = transactions.tables
        self._owned, self._shared, self._read = (
            transactions.owned,
            transactions.shared,
            transactions.rows,
        )


def record(kind: Callable[..., T], row: Any, /, **more: Any) -> T:
    """Return a row's record; `more`: fields that no column of the name holds as they are."""
    known = get_annotations(kind)
    return kind(**{name: value for name, value in row._asdict().items() if name in known} | more)


def name_in(row: Any) -> TableName:
    """Return the table that a row of the state names."""
    return TableName(schema=row.schema_name, table=row.table_name)


def larger(stored: ColumnElement[int], new: ColumnElement[int] | int) -> ColumnElement[int]:
    """Return the larger of two numbers. TiDB's GREATEST is wrong beyond 2^63."""
    return func.if_(stored < new, new, stored)


_MICROSECOND = 1e-6


def seconds_between(column: str, now: str) -> Any:
    """Return the expression for a column's age in seconds, by the target's clock."""
    return (func.timestampdiff(text("MICROSECOND"), text(column), text(now)) * _MICROSECOND).label(
        f"{column}_ago"
    )


_SAME_COLUMN, _NO_COLUMN = 1060, 1091
_TWO_CHECKPOINTS = 4
"""The first version whose feed has a checkpoint of the running tables beside that of all."""


_NOTED_WRITES = 6
"""The first version that notes up to which commit-ts a window may write."""
_CLOCK = func.timestampdiff(text("MICROSECOND"), text("'1970-01-01'"), NOW)
"""The least epoch of a lease: whoever still writes to a state that was dropped or put back has a
lower one.
"""


class StateSchema(Stored):
    """The schema that holds the state tables of one feed."""

    @property
    def _schema(self) -> str:
        return self._transactions.schema

    def create(self, upstream: str) -> None:
        """Create missing schema, tables and their only rows; older tables stay as they are.

        Raise `ConfigError` for another bucket's state, or one of a version that cannot be migrated.
        """
        tables = self._tables
        # Without the lease, whose table may not exist yet. All steps can be done by two processes
        # at the same time.
        with self._shared("creating the state schema") as connection:
            self._refuse_foreign(self._version(connection))
            options = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            there = text(
                "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = :schema"
            )
            if not connection.execute(there, {"schema": self._schema}).scalar_one():
                _as_it_is(
                    connection, f"CREATE DATABASE IF NOT EXISTS {quote(self._schema)} {options}"
                )
            for table in tables.metadata.sorted_tables:
                if not exists(connection, table):  # another process may be doing the same
                    connection.execute(CreateTable(table, if_not_exists=True))
            for table, row in (
                (tables.version, {"id": 1, "version": STATE_VERSION}),
                (tables.lease, {"id": 1, "holder": "", "epoch": _CLOCK, "expires_at": NOW}),
                (
                    tables.feed,
                    {
                        "id": 1,
                        "upstream": upstream,
                        "checkpoint": 0,
                        "storage_checkpoint": 0,
                        "window_id": 0,
                    },
                ),
            ):
                # The look never waits for a row that another process holds; one may have inserted
                # it since.
                if connection.execute(select(table.c.id)).scalar() is None:
                    connection.execute(insert(table).prefix_with("IGNORE").values(row))
            # Again: a program of another version may have created the state since the first look.
            self._refuse_foreign(self._version(connection))
            mark(partial(_as_it_is, connection), self._schema)
            known = connection.execute(select(tables.feed.c.upstream)).scalar_one()
        self._refuse_other(known, upstream)

    def look(self, upstream: str) -> bool:
        """Return whether there is a state; raise `ConfigError` for another bucket's or version.

        Write nothing.
        """
        if self.stored_version() is None:
            return False
        self.refuse_unreadable((STATE_VERSION,))
        known = self._read(select(self._tables.feed.c.upstream))
        # Whoever created it came no further than this.
        if not known:
            return False
        self._refuse_other(known[0].upstream, upstream)
        return True

    def stored_version(self) -> int | None:
        """Return the state's version, migratable or not; None if absent or incomplete."""
        with self._shared("looking for the state") as connection:
            return self._version(connection)

    def refuse_unreadable(self, readable: Collection[int]) -> None:
        """Raise `ConfigError` if there is no state of a `readable` version."""
        version = self.stored_version()
        if version is None:
            raise ConfigError(
                f"there is no state schema {self._schema} on {self._transactions.downstream.address}: was "
                "`storage-consumer run` started there, and with which --state-schema?"
            )
        self._refuse_foreign(version)
        if version not in readable:
            raise ConfigError(
                f"the state schema {self._schema} has version {version}, this program reads version "
                f"{STATE_VERSION}: start `storage-consumer run`, which migrates an older state"
            )

    def _refuse_other(self, known: str, upstream: str) -> None:
        """Raise `ConfigError` if the state belongs to another bucket."""
        if known != upstream:
            message = (
                f"the state schema {self._schema} belongs to the bucket {known}, not to {upstream}: give this bucket "
                "its own state schema (--state-schema), or, if its files were copied or moved there, bind the state "
                f"to it: storage-consumer rebind --upstream-uri {upstream}"
            )
            raise ConfigError(message)

    def _version(self, connection: Connection) -> int | None:
        table = self._tables.version
        if not exists(connection, table):
            return None
        version = connection.execute(select(table.c.version)).scalar_one_or_none()
        return None if version is None else int(version)

    def _refuse_foreign(self, version: int | None) -> None:
        """Raise `ConfigError` for tables of a version that cannot be migrated to ours."""
        if version not in (None, STATE_VERSION, *MIGRATED):
            raise ConfigError(
                f"the state schema {self._schema} has version {version}, this program writes version {STATE_VERSION}: "
                "use the program that wrote it, or give this one its own state schema (--state-schema)"
            )

    def migrate(self) -> None:
        """Migrate the tables to our version, as the lease's owner, resuming an interruption.

        New columns have defaults: so it is the lease that stops a former owner, and not an error of
        its statements.
        """
        doing = "migrating the state schema"
        with self._shared(doing) as connection:
            # An interrupted migration has not stored the version, so it is found here and goes on.
            before = self._version(connection)
            self._refuse_foreign(before)
            if before is None or before == STATE_VERSION:
                return
            for table, column in self._tables.added():
                definition = CreateColumn(column).compile(connection.engine)
                self._alter(connection, table.name, f"ADD COLUMN {definition}", unless=_SAME_COLUMN)
            for table, name in self._tables.removed():
                self._alter(connection, table.name, f"DROP COLUMN {quote(name)}", unless=_NO_COLUMN)
        # ALTER TABLE commits, which would release the lock on the lease, so none of it is in this
        # transaction. The version is stored last: after a crash before it all steps run again, and
        # find what is done.
        with self._owned(doing) as connection:
            feed, progress, writes = self._tables.feed, self._tables.tables.c, self._tables.writes
            if before < _TWO_CHECKPOINTS:
                # The feed's one checkpoint left halted tables out: that is the checkpoint of the
                # running tables now, and the other one includes all. A later version has both
                # already, and this would throw one away.
                running = connection.execute(select(feed.c.checkpoint)).scalar_one()
                own = select(func.min(progress.checkpoint)).where(
                    progress.follows.is_(False),
                    progress.state.not_in((TableState.DROPPED, TableState.EXCLUDED)),
                )
                behind = connection.execute(own).scalar_one()
                lowest = running if behind is None else min(running, behind)
                connection.execute(
                    update(feed).values(checkpoint=lowest, checkpoint_running=running)
                )
            if before < _NOTED_WRITES:
                # Nothing tells which tables a job was writing that was killed: any may hold rows up
                # to the storage checkpoint, and none goes beyond that of its time.
                upto = connection.execute(select(feed.c.storage_checkpoint)).scalar_one()
                connection.execute(put(writes, {"table_key": EVERY_TABLE, "upto": upto}))
            connection.execute(update(self._tables.version).values(version=STATE_VERSION))
        # What an older version calls a checkpoint may be lower.
        self._transactions.own(self._transactions.epoch)

    def _alter(self, connection: Connection, table: str, change: str, *, unless: int) -> None:
        """Change a state table; server error `unless` means that it was done before."""
        try:
            _as_it_is(connection, f"ALTER TABLE {quote(self._schema)}.{quote(table)} {change}")
        except DBAPIError as fault:
            if number_of(fault.orig or fault) != unless:
                raise


def _as_it_is(connection: Connection, statement: str) -> None:
    """Run a statement in which ``%`` has no meaning."""
    connection.exec_driver_sql(statement.replace("%", "%%"))


_OPENING = "opening a window"


class StoredLease(Stored):
    """The lease of one feed; whoever gets it migrates the schema."""

    _holder = ""

    def __init__(self, transactions: StateTransactions) -> None:
        """Take the lease for `transactions`."""
        super().__init__(transactions)
        self.task_statements = self._tables.for_tasks()
        """What the tasks of a window run on the state tables."""

    @property
    def epoch(self) -> int:
        """The number of our lease, higher than that of every earlier one; 0 before the first."""
        return self._transactions.epoch

    def acquire(self, holder: str, ttl: float, *, dead: str = "") -> str:
        """Try to become the writer for `ttl` seconds. Return "", or the holder who prevents it.

        `dead` is a holder that is known to be gone, so its lease need not run out (fencing protects
        in any case). A holder that asks again gets a new lease with a higher epoch. A state of an
        older version is migrated before this returns.
        """
        free = ("", holder, dead)
        with self._transactions.translated("acquiring the lease"):
            other = self._transactions.evicting(
                lambda: self._take(holder, ttl, free), unless=lambda: self.holder(free)
            )
        if not other:
            # Only the owner migrates, so no two programs change the tables at the same time.
            StateSchema(self._transactions).migrate()
        return other

    def _take(self, holder: str, ttl: float, free: Collection[str]) -> str:
        """Acquire the lease and return "", or the holder, not in `free`, of an unexpired one."""
        lease = self._tables.lease
        with self._transactions.engine.begin() as connection:
            # Under the row's lock, so that of several processes that ask in the same moment one
            # gets it.
            row = connection.execute(self._now().with_for_update()).one()
            # An expired lease is free for anybody; before that, it has to be nobody's, ours, or
            # that of a holder known to be gone.
            if row.holder not in free and not row.expired:
                return str(row.holder)
            # No epoch comes twice, though the state may have been restored from a backup.
            epoch = max(row.epoch + 1, row.clock)
            connection.execute(
                update(lease).values(holder=holder, epoch=epoch, expires_at=_in_seconds(ttl))
            )
        # Only after the commit: until then the lease may still be someone else's.
        self._transactions.own(epoch)
        self._holder = holder
        return ""

    def holder(self, free: Collection[str] = ()) -> str:
        """Return the unexpired lease's holder, without lock; "" for none, or one of `free`."""
        with self._shared("reading the lease") as connection:
            row = connection.execute(self._now()).one()
        return "" if row.holder in free or row.expired else str(row.holder)

    def _now(self) -> Select[Any]:
        lease = self._tables.lease.c
        expired = (lease.expires_at < NOW).label("expired")
        return select(lease.holder, lease.epoch, _CLOCK.label("clock"), expired)

    def renew(self, ttl: float) -> bool:
        """Hold the lease for `ttl` seconds from now; return False if it is no longer ours."""
        lease = self._tables.lease
        with self._shared("renewing the lease") as connection:
            result = connection.execute(
                update(lease)
                .where(lease.c.epoch == self.epoch, lease.c.holder == self._holder)
                # Whether it ran out does not matter: while the epoch is ours, nobody has taken it.
                .values(expires_at=_in_seconds(ttl))
            )
            # Our connections count matched rows (FOUND_ROWS), whether or not the time changed.
            return bool(result.rowcount)

    def release(self) -> None:
        """Give the lease back if it is still ours."""
        lease = self._tables.lease
        with self._shared("releasing the lease") as connection:
            connection.execute(
                # The epoch stays, so the next owner's is higher than every earlier one.
                update(lease)
                .where(lease.c.epoch == self.epoch, lease.c.holder == self._holder)
                .values(holder="")
            )

    # windows

    def open_window(
        self, partitions: int, storage_checkpoint: int, writes: Mapping[str, int] | None = None
    ) -> int:
        """Fence off all older work; return a new window's id with `partitions` ready slots.

        `writes`: table key → the commit-ts up to which the window may write rows that are visible
        before the table's checkpoint moves.
        """
        with self._transactions.translated(_OPENING):
            return self._transactions.evicting(
                lambda: self._open_window(partitions, storage_checkpoint, writes or {}),
                unless=self._see_owner,
            )

    def _see_owner(self) -> None:
        """Raise `LeaseLost` if the tasks that hold the locks are another owner's."""
        with self._transactions.engine.begin() as connection:
            self._transactions.check_owner(connection, _OPENING, lock=False)

    def _open_window(
        self, partitions: int, storage_checkpoint: int, writes: Mapping[str, int]
    ) -> int:
        feed, slots = self._tables.feed, self._tables.slots
        with self._transactions.engine.begin() as connection:
            # Slots before the lease: this may wait for a task, and the lease must be renewed
            # meanwhile.
            connection.execute(select(slots.c.slot).with_for_update()).all()
            self._transactions.check_owner(connection, _OPENING)
            connection.execute(
                update(feed).values(
                    window_id=feed.c.window_id + 1,
                    storage_checkpoint=larger(feed.c.storage_checkpoint, storage_checkpoint),
                )
            )
            window_id = connection.execute(select(feed.c.window_id)).scalar_one()
            # Slots are only added, and numbered without a gap from -SERIAL_SLOTS on: their count
            # shows which are missing.
            there = connection.execute(select(func.count()).select_from(slots)).scalar_one()
            wanted = partitions + SERIAL_SLOTS
            # New slots begin as closed; the UPDATE below opens them together with the old ones.
            closed = {"epoch": 0, "window_id": 0, "attempt": "", "finished": False}
            # Slots below 0 are for tables whose writers queue, those from 0 on for partitions.
            if missing := [{"slot": n - SERIAL_SLOTS, **closed} for n in range(there, wanted)]:
                connection.execute(insert(slots), missing)
            fresh = {"epoch": self.epoch, "window_id": window_id, "attempt": "", "finished": False}
            connection.execute(update(slots).values(fresh))
            # A note only grows: after a job that failed it stays beyond the table's checkpoint,
            # whatever range a later job has.
            notes = ({"table_key": key, "upto": upto} for key, upto in writes.items())
            put_all(connection, self._tables.writes, notes, upto=larger)
        self._transactions.note_stored(window_id, 0, storage_checkpoint)
        return int(window_id)


def _in_seconds(ttl: float) -> object:
    """Return the database's time in `ttl` seconds, in UTC: sessions' time zones may differ."""
    return text(f"TIMESTAMPADD(MICROSECOND, {int(ttl * 1_000_000)}, UTC_TIMESTAMP(6))")
