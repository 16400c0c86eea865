"""The foundation of the state in the target: its tables, their version, the lease, and transactions that only its owner can commit.

`store` says how the lease also fences the rows that tasks write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import pymysql.err
from sqlalchemy import Column, Select, create_engine, func, literal_column, select, text, update
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import DBAPIError, NoResultFound
from sqlalchemy.schema import CreateColumn, CreateTable
from sqlalchemy.sql.elements import ColumnElement

from storage_consumer.checkpoint.copies import put_copies
from storage_consumer.checkpoint.migrating import part_checkpoints
from storage_consumer.checkpoint.routed_tables import put_places
from storage_consumer.checkpoint.tables import MIGRATED, STATE_VERSION, StateTables
from storage_consumer.config.settings import Downstream
from storage_consumer.downstream.batches import batched
from storage_consumer.downstream.connection import Connection as Target
from storage_consumer.downstream.connection import connect
from storage_consumer.downstream.mysql_errors import LOCK_WAIT_TIMEOUT, gone, is_denied, number_of, translated
from storage_consumer.downstream.rights import state_remedy
from storage_consumer.downstream.stale_connections import evict, mark
from storage_consumer.errors import ConfigError, LeaseLost, RowRefused, StateGone, StorageConsumerError
from storage_consumer.plan.table import HALTED, LOST
from storage_consumer.ports import TableProgress
from storage_consumer.sql.tokens import quote

CHUNK = 1_000
"""Rows per statement. They are sent beside the statement's text, so that the text is built once for all of them."""
T = TypeVar("T")
LOCK_WAIT = 10
"""Seconds that the state waits for a lock before it looks for the holder."""
_CONNECTIONS = 6
"""Connections kept open once needed: of the round, the lease's renewal, and four DDL workers. Opening one takes longer than a journal entry."""
_SAME_COLUMN, _NO_COLUMN = 1060, 1091


class OwnedState:
    """The state schema, its lease, and what only the lease's holder may do."""

    def __init__(self, downstream: Downstream, password: str) -> None:
        """Prepare the engine; nothing connects before `open`."""
        self._schema = downstream.state_schema
        self._tables = StateTables(downstream.state_schema)
        self._engine = create_engine(
            "mysql+pymysql://",
            creator=lambda: self._connected(downstream, password),
            pool_pre_ping=True,
            pool_size=_CONNECTIONS,
            pool_use_lifo=True,
            pool_reset_on_return=None,  # every transaction is a block that commits or rolls back at its end
        )
        self._ours: set[int] = set()
        """Ids of our connections."""
        self.epoch = 0
        self._holder = ""

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _connected(self, downstream: Downstream, password: str) -> Target:
        """Return a connection with transactions (SQLAlchemy sends no BEGIN of its own) that does not wait long for locks."""
        return connect(downstream, password, prepare=self._prepare)

    def _prepare(self, connection: Target) -> None:
        connection.autocommit(False)  # noqa: FBT003 - PyMySQL's signature
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT}")
            cursor.execute("SELECT CONNECTION_ID()")
            self._ours.update(int(connection_id) for (connection_id,) in cursor.fetchall())
        with suppress(pymysql.err.MySQLError):  # before the first start there is no state schema
            mark(connection.query, self._schema)

    # creation

    def open(self, upstream: str) -> None:
        """Create the state schema if it does not exist; `acquire` migrates one of an older version.

        Raise `ConfigError` for another bucket's state, or one of a version that cannot be migrated.
        """
        tables = self._tables
        with self._translated("creating the state schema"), self._engine.begin() as connection:
            self._version(connection)
            options = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            if not self._exists(connection):
                _as_it_is(connection, f"CREATE DATABASE IF NOT EXISTS {quote(self._schema)} {options}")
            for table in tables.metadata.sorted_tables:
                if not self._exists(connection, table.name):  # another process may be doing the same
                    connection.execute(CreateTable(table, if_not_exists=True))
            for table, row in (
                (tables.version, {"id": 1, "version": STATE_VERSION}),
                (tables.lease, {"id": 1, "holder": "", "epoch": 0, "expires_at": func.utc_timestamp(6)}),
                (
                    tables.feed,
                    {"id": 1, "upstream": upstream, "checkpoint": 0, "storage_checkpoint": 0, "window_id": 0},
                ),
            ):
                if (
                    connection.execute(select(table.c.id)).scalar() is None
                ):  # never waits for a row that another process holds
                    connection.execute(insert(table).prefix_with("IGNORE").values(row))
            self._version(connection)
            mark(partial(_as_it_is, connection), self._schema)
            known = connection.execute(select(tables.feed.c.upstream)).scalar_one()
        if known != upstream:
            message = (
                f"the state schema {self._schema} belongs to the bucket {known}, not to {upstream}: give this bucket "
                "its own state schema (--state-schema), or, if its files were copied or moved there, bind the state "
                f"to it: storage-consumer rebind --upstream-uri {upstream}"
            )
            raise ConfigError(message)

    def _exists(self, connection: Connection, table: str = "") -> bool:
        """Return whether the state schema, or one table in it, exists."""
        found = text(
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = :schema AND table_name = :name"
            if table
            else "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = :schema"
        )
        return bool(connection.execute(found, {"schema": self._schema, "name": table}).scalar_one())

    def _version(self, connection: Connection) -> int:
        """Return the version of the tables, ours if there are none; raise `ConfigError` if they cannot be migrated."""
        table = self._tables.version
        if not self._exists(connection, table.name):
            return STATE_VERSION
        version = connection.execute(select(table.c.version)).scalar_one_or_none()
        if version not in (None, STATE_VERSION, *MIGRATED):
            message = (
                f"the state schema {self._schema} has version {version}, this program writes version {STATE_VERSION}: "
                "use the program that wrote it, or give this one its own state schema (--state-schema)"
            )
            raise ConfigError(message)
        return STATE_VERSION if version is None else int(version)

    def _migrate(self) -> None:
        """Migrate the tables to our version, as the lease's holder; keep what an interrupted migration has done.

        New columns have defaults: so it is the lease that stops a former owner, and not an error of its statements.
        """
        with self._translated("migrating the state schema"), self._engine.begin() as connection:
            if self._version(connection) == STATE_VERSION:
                return
            for table, column in self._tables.added():
                self._add_column(connection, table.name, column)
            for table, name in self._tables.removed():
                self._alter(connection, table.name, f"DROP COLUMN {quote(name)}", unless=_NO_COLUMN)
        with self._owned("migrating the state schema") as connection:
            part_checkpoints(connection, self._tables)
            connection.execute(update(self._tables.version).values(version=STATE_VERSION))

    def _add_column(self, connection: Connection, table: str, column: Column[Any]) -> None:
        """Add a column to a state table unless it exists."""
        definition = CreateColumn(column).compile(self._engine)
        self._alter(connection, table, f"ADD COLUMN {definition}", unless=_SAME_COLUMN)

    def _alter(self, connection: Connection, table: str, change: str, *, unless: int) -> None:
        """Change a state table. The server's error number `unless` means that it was done before."""
        try:
            _as_it_is(connection, f"ALTER TABLE {quote(self._schema)}.{quote(table)} {change}")
        except DBAPIError as fault:
            if number_of(fault.orig or fault) != unless:
                raise

    # lease

    def acquire(self, holder: str, ttl: float, *, dead: str = "") -> str:
        """Try to become the writer for `ttl` seconds. Return "", or the holder who prevents it.

        `dead` is a holder that is known to be gone, so its lease need not run out (fencing protects in any case). A holder that asks
        again gets a new lease with a higher epoch. A state of an older version is migrated before this returns.
        """
        free = ("", holder, dead)
        with self._translated("acquiring the lease"):
            other = self._evicting(lambda: self._take_lease(holder, ttl, free), unless=lambda: self._holder_now(free))
        if not other:
            self._migrate()
        return other

    def _take_lease(self, holder: str, ttl: float, free: Collection[str]) -> str:
        """Take the lease and return "", or return the holder, not one of `free`, whose unexpired lease prevents it."""
        lease = self._tables.lease
        with self._engine.begin() as connection:
            row = connection.execute(self._lease_now().with_for_update()).one()
            if row.holder not in free and not row.expired:
                return str(row.holder)
            connection.execute(update(lease).values(holder=holder, epoch=row.epoch + 1, expires_at=_in_seconds(ttl)))
        # Only after the commit: until then the lease may still be someone else's.
        self.epoch, self._holder = row.epoch + 1, holder
        return ""

    def _holder_now(self, free: Collection[str]) -> str:
        """Return the holder whose lease runs, without waiting for a lock on its row; "" for none, or one of `free`."""
        with self._engine.begin() as connection:
            row = connection.execute(self._lease_now()).one()
        return "" if row.holder in free or row.expired else str(row.holder)

    def _lease_now(self) -> Select[Any]:
        lease = self._tables.lease.c
        return select(lease.holder, lease.epoch, (lease.expires_at < func.utc_timestamp(6)).label("expired"))

    def _evicting(self, attempt: Callable[[], T], *, unless: Callable[[], T | None]) -> T:
        """Run `attempt`. If it times out on a lock, end the connections of former owners and run it again.

        First ask `unless`: if it returns a true value, return that instead, and end no connection. The same holds if it raises.
        """
        try:
            return attempt()
        except DBAPIError as fault:
            if number_of(fault.orig or fault) != LOCK_WAIT_TIMEOUT:
                raise
            if answer := unless():
                return answer
            if not self._evict():
                raise
        return attempt()

    def _evict(self) -> bool:
        """End the connections of former owners; return whether there were any."""
        with self._engine.begin() as connection:

            def run(statement: str) -> Any:
                with self._translated("ending the connections of former owners"):
                    return connection.exec_driver_sql(statement)

            return bool(evict(run, self._schema, self._ours))

    def renew(self, ttl: float) -> bool:
        """Hold the lease for `ttl` seconds from now; return False if it is no longer ours."""
        lease = self._tables.lease
        with self._translated("renewing the lease"), self._engine.begin() as connection:
            result = connection.execute(
                update(lease)
                .where(lease.c.epoch == self.epoch, lease.c.holder == self._holder)
                .values(expires_at=_in_seconds(ttl))
            )
            # Our connections count matched rows (FOUND_ROWS), whether or not the time changed.
            return bool(result.rowcount)

    def release(self) -> None:
        """Give the lease back if it is still ours."""
        lease = self._tables.lease
        with self._translated("releasing the lease"), self._engine.begin() as connection:
            connection.execute(
                update(lease).where(lease.c.epoch == self.epoch, lease.c.holder == self._holder).values(holder="")
            )

    # for those that store

    def _put_tables(
        self, connection: Connection, tables: Iterable[TableProgress], *, as_they_were: bool = False
    ) -> None:
        """Store tables.

        With `as_they_were`, they are as they were some time ago: a table that has stopped since then stays stopped, and follows nothing.
        """
        stored = list(tables)
        put_places(connection, self._tables, stored)
        if not as_they_were:
            put_copies(connection, self._tables, stored)
        rows = [
            {
                "table_key": table.table_key,
                "schema_name": table.schema,
                "table_name": table.table,
                "checkpoint": table.checkpoint,
                "state": table.state,
                "follows": table.follows,
                "error": table.error[:16_000],
            }
            for table in stored
        ]
        statement = insert(self._tables.tables)
        new, old = statement.inserted, self._tables.tables.c
        stopped = old.state.in_([literal_column(f"'{state}'") for state in (HALTED, LOST)])

        def kept(name: str) -> ColumnElement[Any]:
            return func.if_(stopped, old[name], new[name]) if as_they_were else new[name]

        # A server assigns in this order, and what comes later sees it: `state` decides about the others, so it is last.
        statement = statement.on_duplicate_key_update(
            [
                ("schema_name", new.schema_name),
                ("table_name", new.table_name),
                ("checkpoint", larger(old.checkpoint, new.checkpoint)),
                ("error", kept("error")),
                ("follows", kept("follows")),
                ("state", kept("state")),
            ]
        )
        for some in batched(rows, CHUNK):
            connection.execute(statement, some)

    @contextmanager
    def _owned(self, doing: str) -> Iterator[Connection]:
        """Open a transaction that commits only while the lease is ours."""
        with self._translated(doing), self._engine.begin() as connection:
            # This locks the lease's row until the commit, so nobody takes the lease in between.
            self._check_owner(connection, doing)
            yield connection

    def _check_owner(self, connection: Connection, doing: str, *, lock: bool = True) -> None:
        """Raise `LeaseLost` unless the lease is ours. With `lock`, hold its row until the transaction ends; else read it without waiting."""
        found = select(self._tables.lease.c.epoch)
        epoch = connection.execute(found.with_for_update() if lock else found).scalar_one()
        if epoch != self.epoch:
            message = f"another process took the lease while {doing} (epoch {epoch}, ours is {self.epoch})"
            raise LeaseLost(message)

    def _asked(self, sql: str) -> Sequence[Row[Any]]:
        """Return the rows of a query outside any transaction of the caller."""
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(sql).all()

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Raise our errors for the driver's. What the server refuses about the state itself is no row's fault."""
        try:
            yield
        except DBAPIError as fault:
            if lost := gone(fault.orig or fault, doing, self._schema):
                raise lost from fault
            if is_denied(fault.orig or fault):
                raise ConfigError(f"{doing}: {state_remedy(fault.orig or fault, self._asked, self._schema)}") from fault
            error = translated(fault.orig or fault, doing)
            if isinstance(error, RowRefused):
                error = StorageConsumerError(str(error))
            raise error from fault
        except NoResultFound as fault:
            message = (
                f"{doing}: a row that every state has is missing from the state schema {self._schema}: the schema was "
                "emptied or created again"
            )
            raise StateGone(message) from fault


def _as_it_is(connection: Connection, statement: str) -> None:
    """Run a statement in which ``%`` has no meaning."""
    connection.exec_driver_sql(statement.replace("%", "%%"))


def _in_seconds(ttl: float) -> object:
    """Return the time `ttl` seconds from now by the database's clock, in UTC since sessions may have different time zones."""
    return text(f"TIMESTAMPADD(MICROSECOND, {int(ttl * 1_000_000)}, UTC_TIMESTAMP(6))")


def larger(stored: ColumnElement[int], new: ColumnElement[int] | int) -> ColumnElement[int]:
    """Return the larger of two numbers. TiDB's GREATEST is wrong beyond 2^63."""
    return func.if_(stored < new, new, stored)
