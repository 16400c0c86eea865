"""Transactions on the state in the target, above all those that only the lease's owner can commit.

`store` says how the lease also fences the rows that tasks write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeVar

import pymysql.err
from sqlalchemy import Column, Executable, Table, create_engine, func, select, text
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import DBAPIError, NoResultFound
from sqlalchemy.sql.elements import ColumnElement

from storage_consumer.config.settings import Downstream
from storage_consumer.downstream.batches import batched
from storage_consumer.downstream.connection import Connection as Target
from storage_consumer.downstream.connection import connect
from storage_consumer.downstream.mysql_errors import LOCK_WAIT_TIMEOUT, gone, is_denied, number_of, translated
from storage_consumer.downstream.rights import state_remedy
from storage_consumer.downstream.session import fetched
from storage_consumer.downstream.stale_connections import evict, mark
from storage_consumer.downstream.state_tables import state_tables
from storage_consumer.errors import ConfigError, LeaseLost, RowRefused, StateGone, StorageConsumerError
from storage_consumer.model import TableName

CHUNK = 1_000
"""Rows per statement. They are sent beside the statement's text, so that the text is built once for all of them."""
T = TypeVar("T")
LOCK_WAIT = 10
"""Seconds that the owner waits for a lock before it looks for the holder."""
_READ_TIMEOUT = 60
"""Seconds that an operator waits for an answer: a lock may be held for long."""
_CONNECTIONS = 7
"""Connections kept open once needed: of the round, the lease's renewal, the reports, and four DDL workers. Opening one takes longer than a journal entry."""

Role = Literal["owner", "reader", "operator"]
"""Who opens a state: who has the lease or wants it; who only looks, beside its owner, and sees one moment in each transaction; or who looks and
stores decisions, with a limit to each answer. The last two ask for no lease.
"""


class StateTransactions:
    """Connections to the state schema, and the epoch of the lease that transactions of its owner need."""

    def __init__(self, downstream: Downstream, password: str, role: Role = "owner") -> None:
        """Prepare the engine; nothing connects before the first transaction."""
        self._role = role
        self.downstream = downstream
        self.schema = downstream.state_schema
        self.tables = state_tables(downstream.state_schema)
        timeout = _READ_TIMEOUT if role == "operator" else None
        self.engine = create_engine(
            "mysql+pymysql://",
            creator=lambda: connect(downstream, password, read_timeout=timeout, prepare=self._prepare),
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

    def _prepare(self, connection: Target) -> None:
        connection.autocommit(False)  # noqa: FBT003 - PyMySQL's signature; SQLAlchemy sends no BEGIN of its own
        if self._role == "reader":
            # One view for each transaction: the owner may be writing meanwhile.
            connection.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            with suppress(pymysql.err.MySQLError):  # TiDB has no such transactions
                connection.query("SET SESSION TRANSACTION READ ONLY")
        # Others are unmarked: no owner of the lease waits for them, so none may end them.
        if self._role != "owner":
            return
        connection.query(f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT}")
        # By these ids `evict` knows which connections are not a former owner's.
        self._ours.update(int(connection_id) for (connection_id,) in fetched(connection, "SELECT CONNECTION_ID()"))
        with suppress(pymysql.err.MySQLError):  # before the first start there is no state schema
            mark(connection.query, self.schema)

    # transactions

    @contextmanager
    def owned(self, doing: str) -> Iterator[Connection]:
        """Open a transaction that commits only while the lease is ours; raise `LeaseLost` if it is not."""
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
        """Return whether a state table, or a column of one, exists; a state of an older version may lack it."""
        with self.shared("reading the state") as connection:
            return exists(connection, wanted)

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
        except DBAPIError as error:
            fault = error.orig or error
            # First: where a table of the state is gone, what was applied is no longer known, and no setting helps.
            if lost := gone(fault, doing, self.schema):
                raise lost from error
            if is_denied(fault):
                raise ConfigError(f"{doing}: {state_remedy(fault, self._asked, self.schema)}") from error
            ours = translated(fault, doing)
            raise (StorageConsumerError(str(ours)) if isinstance(ours, RowRefused) else ours) from error
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


def put_all(
    connection: Connection,
    table: Table,
    rows: Iterable[Mapping[str, Any]],
    most: int = CHUNK,
    /,
    **instead: Callable[[ColumnElement[Any], ColumnElement[Any]], ColumnElement[Any]],
) -> None:
    """Store rows under their primary keys, in statements of at most `most` rows.

    `instead`: what a column of a row that exists is set to, by its old and its new value; without it, to the new one. A server assigns in the
    order of the columns in `rows`, and what comes later sees it.
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
    # Of tables wherever that will do: for `columns` MariaDB writes to its disk, which may be full when `status` asks.
    kind, more = ("tables", "") if column is None else ("columns", " AND column_name = :called")
    where = f"table_schema = :schema AND table_name = :name{more}"
    query = text(f"SELECT COUNT(*) FROM information_schema.{kind} WHERE {where}")
    its = {"schema": table.schema, "name": table.name, **({"called": column} if column else {})}
    return bool(connection.execute(query, its).scalar_one())


def name_in(row: Any) -> TableName:
    """Return the table that a row of the state names."""
    return TableName(schema=row.schema_name, table=row.table_name)


def larger(stored: ColumnElement[int], new: ColumnElement[int] | int) -> ColumnElement[int]:
    """Return the larger of two numbers. TiDB's GREATEST is wrong beyond 2^63."""
    return func.if_(stored < new, new, stored)
