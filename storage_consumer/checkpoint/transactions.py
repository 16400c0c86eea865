"""Transactions on the state in the target, above all those that only the lease's owner can commit.

`store` says how the lease also fences the rows that tasks write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pymysql.err
from sqlalchemy import create_engine, func, select
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import DBAPIError, NoResultFound
from sqlalchemy.sql.elements import ColumnElement

from storage_consumer.config.settings import Downstream
from storage_consumer.downstream.connection import Connection as Target
from storage_consumer.downstream.connection import connect
from storage_consumer.downstream.mysql_errors import LOCK_WAIT_TIMEOUT, gone, is_denied, number_of, translated
from storage_consumer.downstream.rights import state_remedy
from storage_consumer.downstream.stale_connections import evict, mark
from storage_consumer.downstream.state_tables import state_tables
from storage_consumer.errors import ConfigError, LeaseLost, RowRefused, StateGone, StorageConsumerError

CHUNK = 1_000
"""Rows per statement. They are sent beside the statement's text, so that the text is built once for all of them."""
T = TypeVar("T")
LOCK_WAIT = 10
"""Seconds that the state waits for a lock before it looks for the holder."""
_CONNECTIONS = 7
"""Connections kept open once needed: of the round, the lease's renewal, the reports, and four DDL workers. Opening one takes longer than a journal entry."""


class OwnedTransactions:
    """Connections to the state schema, and the epoch of the lease that their transactions need."""

    def __init__(self, downstream: Downstream, password: str, *, reads_only: bool = False) -> None:
        """Prepare the engine; nothing connects before the first transaction.

        `reads_only`: for somebody who looks at the state beside its owner, needs no lease, and may write nothing.
        """
        self._reads_only = reads_only
        self.schema = downstream.state_schema
        self.tables = state_tables(downstream.state_schema)
        self.engine = create_engine(
            "mysql+pymysql://",
            creator=lambda: self._connected(downstream, password),
            # the server, or a proxy before it, may have ended an idle connection
            pool_pre_ping=True,
            pool_size=_CONNECTIONS,
            # the same few are used again and again, so that a quiet program needs only those
            pool_use_lifo=True,
            pool_reset_on_return=None,  # every transaction is a block that commits or rolls back at its end
        )
        self.epoch = 0
        """The epoch of our lease; 0 before the first one."""
        self._ours: set[int] = set()
        """Ids of our connections."""

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _connected(self, downstream: Downstream, password: str) -> Target:
        """Return a connection with transactions (SQLAlchemy sends no BEGIN of its own) that does not wait long for locks."""
        return connect(downstream, password, prepare=self._prepare)

    def _prepare(self, connection: Target) -> None:
        connection.autocommit(False)  # noqa: FBT003 - PyMySQL's signature
        # Unmarked: no owner of the lease waits for it, so none may end it.
        if self._reads_only:
            # One view for each transaction: the owner may be writing meanwhile.
            connection.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            with suppress(pymysql.err.MySQLError):  # TiDB has no such transactions
                connection.query("SET SESSION TRANSACTION READ ONLY")
            return
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT}")
            cursor.execute("SELECT CONNECTION_ID()")
            # By these ids `evict` knows which connections are not a former owner's.
            self._ours.update(int(connection_id) for (connection_id,) in cursor.fetchall())
        with suppress(pymysql.err.MySQLError):  # before the first start there is no state schema
            mark(connection.query, self.schema)

    # transactions

    @contextmanager
    def owned(self, doing: str) -> Iterator[Connection]:
        """Open a transaction that commits only while the lease is ours; raise `LeaseLost` if it is not."""
        with self.shared(doing) as connection:
            # This locks the lease's row until the commit, so nobody takes the lease in between.
            if not self._reads_only:
                self.check_owner(connection, doing)
            yield connection

    @contextmanager
    def shared(self, doing: str) -> Iterator[Connection]:
        """Open a transaction that asks for no lease."""
        with self.translated(doing), self.engine.begin() as connection:
            yield connection

    def check_owner(self, connection: Connection, doing: str, *, lock: bool = True) -> None:
        """Raise `LeaseLost` unless the lease is ours. With `lock`, hold its row until the transaction ends; else read it without waiting."""
        found = select(self.tables.lease.c.epoch)
        epoch = connection.execute(found.with_for_update() if lock else found).scalar_one()
        if epoch != self.epoch:
            message = f"another process took the lease while {doing} (epoch {epoch}, ours is {self.epoch})"
            raise LeaseLost(message)

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Raise our errors for the driver's. What the server refuses about the state itself is no row's fault."""
        try:
            yield
        except DBAPIError as fault:
            # First: where a table of the state is gone, what was applied is no longer known, and no setting helps.
            if lost := gone(fault.orig or fault, doing, self.schema):
                raise lost from fault
            if is_denied(fault.orig or fault):
                raise ConfigError(f"{doing}: {state_remedy(fault.orig or fault, self._asked, self.schema)}") from fault
            error = translated(fault.orig or fault, doing)
            if isinstance(error, RowRefused):
                error = StorageConsumerError(str(error))
            raise error from fault
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


def larger(stored: ColumnElement[int], new: ColumnElement[int] | int) -> ColumnElement[int]:
    """Return the larger of two numbers. TiDB's GREATEST is wrong beyond 2^63."""
    return func.if_(stored < new, new, stored)
