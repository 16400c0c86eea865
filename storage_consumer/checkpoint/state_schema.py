"""The state schema itself: created at the first start, and migrated from an older version by the first owner after an upgrade."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from sqlalchemy import func, select, text, update
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateColumn, CreateTable

from storage_consumer.checkpoint.transactions import StateTransactions, exists
from storage_consumer.downstream.mysql_errors import number_of
from storage_consumer.downstream.stale_connections import mark
from storage_consumer.downstream.state_tables import EVERY_TABLE, MIGRATED, STATE_VERSION, StateTables
from storage_consumer.errors import ConfigError
from storage_consumer.plan.table_state import TableState
from storage_consumer.sql.tokens import quote

_SAME_COLUMN, _NO_COLUMN = 1060, 1091
_TWO_CHECKPOINTS = 4
"""The first version whose feed has a checkpoint of the running tables beside that of all."""


_NOTED_WRITES = 6
"""The first version that notes up to which commit-ts a window may write."""


class StateSchema:
    """The schema that holds the state tables of one feed."""

    def __init__(self, transactions: StateTransactions) -> None:
        """Work on the schema of `transactions`."""
        self._transactions = transactions
        self._schema = transactions.schema
        self._tables = transactions.tables

    def create(self, upstream: str) -> None:
        """Create the schema, its tables and their only rows, as far as they are missing. Tables of an older version stay as they are.

        Raise `ConfigError` for another bucket's state, or one of a version that cannot be migrated.
        """
        tables = self._tables
        # Without the lease, whose table may not exist yet. All steps can be done by two processes at the same time.
        with self._transactions.shared("creating the state schema") as connection:
            self._refuse_foreign(self._version(connection))
            options = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            there = text("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = :schema")
            if not connection.execute(there, {"schema": self._schema}).scalar_one():
                _as_it_is(connection, f"CREATE DATABASE IF NOT EXISTS {quote(self._schema)} {options}")
            for table in tables.metadata.sorted_tables:
                if not exists(connection, table):  # another process may be doing the same
                    connection.execute(CreateTable(table, if_not_exists=True))
            for table, row in (
                (tables.version, {"id": 1, "version": STATE_VERSION}),
                (tables.lease, {"id": 1, "holder": "", "epoch": 0, "expires_at": func.utc_timestamp(6)}),
                (
                    tables.feed,
                    {"id": 1, "upstream": upstream, "checkpoint": 0, "storage_checkpoint": 0, "window_id": 0},
                ),
            ):
                # The look never waits for a row that another process holds; one may have inserted it since.
                if connection.execute(select(table.c.id)).scalar() is None:
                    connection.execute(insert(table).prefix_with("IGNORE").values(row))
            # Again: a program of another version may have created the state since the first look.
            self._refuse_foreign(self._version(connection))
            mark(partial(_as_it_is, connection), self._schema)
            known = connection.execute(select(tables.feed.c.upstream)).scalar_one()
        self._refuse_other(known, upstream)

    def look(self, upstream: str) -> bool:
        """Return whether there is a state, and write nothing; raise `ConfigError` for one of another bucket or version."""
        if self.stored_version() is None:
            return False
        self.refuse_unreadable((STATE_VERSION,))
        known = self._transactions.rows(select(self._tables.feed.c.upstream))
        # Whoever created it came no further than this.
        if not known:
            return False
        self._refuse_other(known[0].upstream, upstream)
        return True

    def stored_version(self) -> int | None:
        """Return the version of the state, whether or not it can be migrated; None if there is none, or not to its end."""
        with self._transactions.shared("looking for the state") as connection:
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
        """Migrate the tables to our version, as the lease's owner; keep what an interrupted migration has done.

        New columns have defaults: so it is the lease that stops a former owner, and not an error of its statements.
        """
        doing = "migrating the state schema"
        with self._transactions.shared(doing) as connection:
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
        # ALTER TABLE commits, which would release the lock on the lease, so none of it is in this transaction. The version is stored last:
        # after a crash before it all steps run again, and find what is done.
        with self._transactions.owned(doing) as connection:
            # A later version has two of them already, and this would throw one away.
            if before < _TWO_CHECKPOINTS:
                _part_checkpoints(connection, self._tables)
            if before < _NOTED_WRITES:
                _note_possible_writes(connection, self._tables)
            connection.execute(update(self._tables.version).values(version=STATE_VERSION))

    def _alter(self, connection: Connection, table: str, change: str, *, unless: int) -> None:
        """Change a state table. The server's error number `unless` means that it was done before."""
        try:
            _as_it_is(connection, f"ALTER TABLE {quote(self._schema)}.{quote(table)} {change}")
        except DBAPIError as fault:
            if number_of(fault.orig or fault) != unless:
                raise


def _part_checkpoints(connection: Connection, tables: StateTables) -> None:
    """Split the feed's checkpoint in two.

    Until version 4 the feed's one checkpoint left halted tables out. From now on that is the checkpoint of the running tables, and the
    other one includes all.
    """
    feed, progress = tables.feed, tables.tables
    running = connection.execute(select(feed.c.checkpoint)).scalar_one()
    own = select(func.min(progress.c.checkpoint)).where(
        progress.c.follows.is_(False), progress.c.state.not_in((TableState.DROPPED, TableState.EXCLUDED))
    )
    behind = connection.execute(own).scalar_one()
    lowest = running if behind is None else min(running, behind)
    connection.execute(update(feed).values(checkpoint=lowest, checkpoint_running=running))


def _note_possible_writes(connection: Connection, tables: StateTables) -> None:
    """Note that any table may hold rows up to the storage checkpoint.

    Until version 6 nothing tells which tables a job was writing that was killed, and none went beyond the storage checkpoint of its time.
    """
    note = insert(tables.writes).values(
        table_key=EVERY_TABLE, upto=select(tables.feed.c.storage_checkpoint).scalar_subquery()
    )
    connection.execute(note.on_duplicate_key_update(upto=note.inserted.upto))


def _as_it_is(connection: Connection, statement: str) -> None:
    """Run a statement in which ``%`` has no meaning."""
    connection.exec_driver_sql(statement.replace("%", "%%"))
