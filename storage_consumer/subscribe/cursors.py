"""Where the clients of a destination are, in a database; and which process serves it.

All of a destination's clients are served by one process, which has its lease. Each write of a
cursor locks the lease's row and asks for the epoch, so that one whose lease went writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import (
    VARCHAR,
    BigInteger,
    Column,
    Double,
    MetaData,
    Table,
    Text,
    create_engine,
    delete,
    event,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.engine import Connection, Engine, Row
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateSchema, CreateTable
from sqlalchemy.sql.elements import ColumnElement

from storage_consumer.config.load import load_target
from storage_consumer.driver.lease import process_is_gone
from storage_consumer.errors import ConfigError, LeaseLost, StorageConsumerError, TargetUnavailable
from storage_consumer.subscribe.marks import Position
from storage_consumer.target.connection import connect

_SQLITE = "sqlite:///"
_BUSY = 30.0
"""Seconds to wait for another process that writes to a SQLite file."""


class Cursor(NamedTuple):
    """What is stored of a client."""

    position: Position | None
    """None for one that has acknowledged nothing yet."""
    next_batch: int
    """All numbers of batches below may have been given."""
    filter: str


class Cursors:
    """Leases and cursors in MySQL, MariaDB or TiDB, or in a file of SQLite."""

    def __init__(self, meta_uri: str, environ: Mapping[str, str]) -> None:
        """Take ``mysql://…`` as `--downstream-uri` has it, or ``sqlite:///FILE``.

        Raises `ConfigError`, and `TargetUnavailable` if the server does not answer.
        """
        self._epochs = dict[str, int]()
        schema = None
        self._now: ColumnElement[float]
        if meta_uri.startswith("sqlite:"):
            if not meta_uri.startswith(_SQLITE) or not (path := meta_uri.removeprefix(_SQLITE)):
                raise ConfigError(f"--meta-uri {meta_uri}: give a file, as in sqlite:///cursors.db")
            self._engine = _sqlite(path)
            self._now = literal_column("(julianday('now') - 2440587.5) * 86400.0")
        else:
            server = load_target({"downstream_uri": meta_uri}, environ)
            schema = server.settings.state_schema
            self._engine = create_engine(
                "mysql+pymysql://",
                creator=lambda: connect(
                    server.settings,
                    server.password,
                    prepare=lambda made: made.autocommit(False),  # noqa: FBT003 - PyMySQL's
                ),
                pool_pre_ping=True,
            )
            self._now = literal_column("UNIX_TIMESTAMP(NOW(6))")
        names = VARCHAR(255)
        self._leases = Table(
            "subscription_leases",
            MetaData(schema=schema),
            Column("destination", names, primary_key=True),
            Column("holder", names, nullable=False),
            Column("address", names, nullable=False),
            Column("epoch", BigInteger, nullable=False),
            Column("expires_at", Double, nullable=False),
        )
        self._cursors = Table(
            "subscription_cursors",
            MetaData(schema=schema),
            Column("destination", names, primary_key=True),
            Column("client_id", BigInteger, primary_key=True, autoincrement=False),
            Column("commit_ts", BigInteger),
            Column("statement_ts", BigInteger),
            Column("next_batch", BigInteger, nullable=False),
            Column("filter", Text, nullable=False),
        )
        with self._transaction() as connection:
            if schema is not None:
                connection.execute(CreateSchema(schema, if_not_exists=True))
            for table in (self._leases, self._cursors):
                connection.execute(CreateTable(table, if_not_exists=True))

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    # the lease

    def acquire(self, destination: str, holder: str, address: str, ttl: float) -> str:
        """Take a destination for `ttl` seconds; return "", or who has it: holder and address."""
        lease, mine = self._leases, self._leases.c.destination == destination
        with self._transaction() as connection:
            connection.execute(
                insert(lease)
                .prefix_with("IGNORE", dialect="mysql")
                .prefix_with("OR IGNORE", dialect="sqlite")
                .values(destination=destination, holder="", address="", epoch=0, expires_at=0)
            )
            row = connection.execute(
                select(lease, self._now.label("now")).where(mine).with_for_update()
            ).one()
            is_free = row.holder in ("", holder) or process_is_gone(row.holder)
            if not is_free and row.expires_at > float(row.now):
                return f"{row.holder} ({row.address})" if row.address else str(row.holder)
            # Also higher than in a backup of this table that is put back.
            epoch = max(row.epoch + 1, int(float(row.now) * 1e6))
            connection.execute(
                update(lease)
                .where(mine)
                .values(
                    holder=holder,
                    address=address,
                    epoch=epoch,
                    expires_at=float(row.now) + ttl,
                )
            )
        self._epochs[destination] = epoch
        return ""

    def renew(self, destination: str, ttl: float) -> bool:
        """Hold a destination for `ttl` seconds from now; return False if it is no longer ours."""
        try:
            with self._owned(destination) as (connection, row):
                connection.execute(
                    update(self._leases)
                    .where(self._leases.c.destination == destination)
                    .values(expires_at=float(row.now) + ttl)
                )
        except LeaseLost:
            return False
        return True

    def release(self, destination: str) -> None:
        """Give a destination back if it is still ours."""
        try:
            with self._owned(destination) as (connection, _):
                connection.execute(
                    update(self._leases)
                    .where(self._leases.c.destination == destination)
                    .values(holder="", address="")
                )
        except LeaseLost:
            pass

    # cursors

    def load(self, destination: str, client_id: int) -> Cursor | None:
        """Return what is stored of a client."""
        with self._transaction() as connection:
            row = connection.execute(
                select(self._cursors).where(*self._of(destination, client_id))
            ).one_or_none()
        if row is None:
            return None
        known = row.commit_ts is not None
        position = Position(row.commit_ts, row.statement_ts) if known else None
        return Cursor(position, row.next_batch, row.filter)

    def save(self, destination: str, client_id: int, cursor: Cursor) -> None:
        """Store where a client is; raise `LeaseLost` if the destination is no longer ours."""
        rows, statements = cursor.position or (None, None)
        values = {
            "commit_ts": rows,
            "statement_ts": statements,
            "next_batch": cursor.next_batch,
            "filter": cursor.filter,
        }
        with self._owned(destination) as (connection, _):
            found = connection.execute(
                update(self._cursors).where(*self._of(destination, client_id)).values(**values)
            )
            if not found.rowcount:
                connection.execute(
                    insert(self._cursors).values(
                        destination=destination, client_id=client_id, **values
                    )
                )

    def forget(self, destination: str, client_id: int) -> None:
        """Remove a client; raise `LeaseLost` if the destination is no longer ours."""
        with self._owned(destination) as (connection, _):
            connection.execute(delete(self._cursors).where(*self._of(destination, client_id)))

    def _of(
        self, destination: str, client_id: int
    ) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        columns = self._cursors.c
        return columns.destination == destination, columns.client_id == client_id

    @contextmanager
    def _owned(self, destination: str) -> Iterator[tuple[Connection, Row[tuple[object, ...]]]]:
        """Open a transaction that holds the lease's row; raise `LeaseLost` if it is not ours."""
        lease = self._leases
        query = select(lease, self._now.label("now")).where(lease.c.destination == destination)
        with self._transaction() as connection:
            row = connection.execute(query.with_for_update()).one_or_none()
            if row is None or row.epoch != self._epochs.get(destination):
                other = f": {row.holder} ({row.address}) has it" if row is not None else ""
                raise LeaseLost(f"another process took destination {destination}{other}")
            yield connection, row

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except StorageConsumerError:
            raise
        except DBAPIError as fault:
            raise TargetUnavailable(f"--meta-uri: {fault.orig}") from fault


def _sqlite(path: str) -> Engine:
    if not Path(path).absolute().parent.is_dir():
        raise ConfigError(f"--meta-uri {_SQLITE}{path}: there is no such folder")
    engine = create_engine(f"{_SQLITE}{path}", connect_args={"timeout": _BUSY})

    # The driver would begin only with the first write, and a lease is read before.
    @event.listens_for(engine, "connect")
    def _no_begin(connection: object, _: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined] # of sqlite3

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
