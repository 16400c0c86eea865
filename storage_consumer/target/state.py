"""StateStore: lease, progress and DDL journal in the target. Progress never runs ahead of rows.

Every transaction here first locks the lease row and checks that it is still ours. Write transactions of tasks do not touch
that row: each locks its own *slot*, which carries the epoch and the open window. Opening a window updates all slots, and so
waits for every transaction that is still running; what comes later from an older window or owner finds the slot changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from sqlalchemy import create_engine, func, select, text, update
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql.elements import ColumnElement

from storage_consumer.config.settings import Downstream
from storage_consumer.consumers.catalog import Restart
from storage_consumer.consumers.table import DROPPED, EXCLUDED, LOST
from storage_consumer.consumers.table_version import Finished
from storage_consumer.errors import ConfigError, LeaseLost, RowRefused, StorageConsumerError
from storage_consumer.planning.steps import DdlStep
from storage_consumer.ports import TableProgress
from storage_consumer.sql_text import quote
from storage_consumer.target.batches import batched
from storage_consumer.target.connection import Connection as Target
from storage_consumer.target.connection import connect
from storage_consumer.target.faults import translated
from storage_consumer.target.journal import DONE, FAILED, PLANNED, SKIPPED, STARTED, JournalEntry
from storage_consumer.target.places import places, put_places
from storage_consumer.target.state_tables import STATE_VERSION, StateTables

_CHUNK = 1_000
SERIAL_SLOTS = 16
"""Slots beyond those of the partitions, for tables whose write transactions queue."""


class StateStore:
    """The state of one feed in one target. Raises `TargetUnavailable`, `LeaseLost` and `ConfigError`."""

    def __init__(self, downstream: Downstream, password: str) -> None:
        """Nothing is connected before `open`."""
        self._schema = downstream.state_schema
        self._tables = StateTables(downstream.state_schema)
        self._engine = create_engine(
            "mysql+pymysql://",
            creator=lambda: _without_autocommit(connect(downstream, password)),
            pool_pre_ping=True,
            pool_size=2,
        )
        self.epoch = 0
        self._holder = ""

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    # creation

    def open(self, upstream: str) -> None:
        """Create the state schema if it is not there. Raises `ConfigError` for another version or another bucket's state."""
        tables = self._tables
        with self._translated("creating the state schema"), self._engine.begin() as connection:
            self._refuse_other_version(connection)
            options = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            if not self._exists(connection):
                name = quote(self._schema).replace("%", "%%")  # the driver's own escape
                connection.exec_driver_sql(f"CREATE DATABASE IF NOT EXISTS {name} {options}")
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
                connection.execute(insert(table).prefix_with("IGNORE").values(row))
            self._refuse_other_version(connection)
            known = connection.execute(select(tables.feed.c.upstream)).scalar_one()
        if known != upstream:
            message = (
                f"the state schema {self._schema} belongs to the bucket {known}, not to {upstream}: "
                "give this bucket a state schema of its own (--state-schema)"
            )
            raise ConfigError(message)

    def _exists(self, connection: Connection, table: str = "") -> bool:
        """Whether the state schema, or one table in it, is there."""
        found = text(
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = :schema AND table_name = :name"
            if table
            else "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = :schema"
        )
        return bool(connection.execute(found, {"schema": self._schema, "name": table}).scalar_one())

    def _refuse_other_version(self, connection: Connection) -> None:
        """Raise `ConfigError` when the tables are those of another version; they may have another shape."""
        table = self._tables.version
        if not self._exists(connection, table.name):
            return
        version = connection.execute(select(table.c.version)).scalar_one_or_none()
        if version not in (None, STATE_VERSION):
            message = (
                f"the state schema {self._schema} has version {version}, this program writes version {STATE_VERSION}: "
                "use the program that wrote it, or give this one a state schema of its own (--state-schema)"
            )
            raise ConfigError(message)

    # lease

    def acquire(self, holder: str, ttl: float, *, dead: str = "") -> str:
        """Try to become the writer for `ttl` seconds; returns the holder who prevents it, or an empty text.

        `dead`: a holder who is known to be gone, so that its lease need not run out (fencing protects in any case). A holder
        who asks again gets the lease anew, with a higher epoch.
        """
        lease = self._tables.lease
        with self._translated("acquiring the lease"), self._engine.begin() as connection:
            row = connection.execute(
                select(
                    lease.c.holder, lease.c.epoch, (lease.c.expires_at < func.utc_timestamp(6)).label("expired")
                ).with_for_update()
            ).one()
            if row.holder not in ("", holder, dead) and not row.expired:
                return str(row.holder)
            connection.execute(update(lease).values(holder=holder, epoch=row.epoch + 1, expires_at=_in_seconds(ttl)))
        self.epoch, self._holder = row.epoch + 1, holder
        return ""

    def renew(self, ttl: float) -> bool:
        """Hold the lease for `ttl` seconds from now; False if it is no longer ours."""
        lease = self._tables.lease
        with self._translated("renewing the lease"), self._engine.begin() as connection:
            result = connection.execute(
                update(lease)
                .where(lease.c.epoch == self.epoch, lease.c.holder == self._holder)
                .values(expires_at=_in_seconds(ttl))
            )
            return bool(result.rowcount)

    def release(self) -> None:
        """Give the lease back, if it is still ours."""
        lease = self._tables.lease
        with self._translated("releasing the lease"), self._engine.begin() as connection:
            connection.execute(
                update(lease).where(lease.c.epoch == self.epoch, lease.c.holder == self._holder).values(holder="")
            )

    # reading

    def load(self) -> tuple[Restart, int]:
        """What an earlier run left, and the highest storage checkpoint that it saw."""
        tables = self._tables
        with self._owned("reading the state") as connection:
            feed = connection.execute(select(tables.feed)).one()
            progress = connection.execute(select(tables.tables)).all()
            placed = places(connection, tables, progress)
            files = connection.execute(select(tables.files)).all()
            noted = tables.journal.c
            journal = connection.execute(
                select(noted.table_dir, noted.version, noted.checksum, noted.state).where(
                    noted.state.in_((DONE, SKIPPED, STARTED))
                )
            ).all()
        restart = Restart(
            checkpoint=feed.checkpoint,
            tables={row.table_key: row.checkpoint for row in progress},
            behind=frozenset(row.table_key for row in progress if not row.follows),
            dropped=frozenset(row.table_key for row in progress if row.state == DROPPED),
            excluded=frozenset(row.table_key for row in progress if row.state == EXCLUDED),
            targets=placed,
            lost=frozenset(row.table_key for row in progress if row.state == LOST),
            done={row.stream: Finished(upto=row.done_upto, tag=row.tag) for row in files},
            journalled=frozenset((r.table_dir, r.version, r.checksum) for r in journal if r.state != STARTED),
            started=frozenset((r.table_dir, r.version, r.checksum) for r in journal if r.state == STARTED),
        )
        return restart, feed.storage_checkpoint

    def journal_entry(self, step: DdlStep) -> JournalEntry | None:
        """What the journal says of a statement, None if nothing."""
        journal = self._tables.journal
        with self._owned("reading the DDL journal") as connection:
            row = connection.execute(select(journal).where(self._is(step))).one_or_none()
        if row is None:
            return None
        return JournalEntry(state=row.state, structure_before=row.structure_before, note=row.note)

    # writing

    def open_window(self, partitions: int, storage_checkpoint: int) -> int:
        """Fence off everything older and return the id of the new window; `partitions` slots are ready afterwards."""
        tables = self._tables
        with self._translated("opening a window"), self._engine.begin() as connection:
            # Slots before the lease: this may wait for a task, and the lease must be renewed meanwhile.
            connection.execute(select(tables.slots.c.slot).with_for_update()).all()
            self._check_owner(connection, "opening a window")
            connection.execute(
                update(tables.feed).values(
                    window_id=tables.feed.c.window_id + 1,
                    storage_checkpoint=func.greatest(tables.feed.c.storage_checkpoint, storage_checkpoint),
                )
            )
            window_id = connection.execute(select(tables.feed.c.window_id)).scalar_one()
            there = connection.execute(select(func.count()).select_from(tables.slots)).scalar_one()
            wanted = partitions + SERIAL_SLOTS
            closed = {"epoch": 0, "window_id": 0, "attempt": "", "finished": False}
            if missing := [{"slot": n - SERIAL_SLOTS, **closed} for n in range(there, wanted)]:
                connection.execute(insert(tables.slots), missing)
            fresh = {"epoch": self.epoch, "window_id": window_id, "attempt": "", "finished": False}
            connection.execute(update(tables.slots).values(fresh))
        return int(window_id)

    def save(
        self,
        *,
        tables: Iterable[TableProgress],
        streams: Mapping[str, Finished],
        checkpoint: int,
        storage_checkpoint: int,
    ) -> None:
        """Store what moved: tables, per stream how far it is finished, and the whole's checkpoint."""
        feed = self._tables.feed
        with self._owned("storing the progress") as connection:
            self._put_tables(connection, tables)
            for some in batched(streams.items(), _CHUNK):
                statement = insert(self._tables.files).values(
                    [{"stream": name, "done_upto": done.upto, "tag": done.tag} for name, done in some]
                )
                new = statement.inserted
                connection.execute(statement.on_duplicate_key_update(done_upto=new.done_upto, tag=new.tag))
            connection.execute(
                update(feed).values(
                    checkpoint=func.greatest(feed.c.checkpoint, checkpoint),
                    storage_checkpoint=func.greatest(feed.c.storage_checkpoint, storage_checkpoint),
                )
            )

    def journal(
        self,
        step: DdlStep,
        state: str,
        *,
        statement: str = "",
        structure_before: str = "",
        note: str = "",
        tables: Iterable[TableProgress] = (),
    ) -> None:
        """Store where a statement stands; with ``done`` or ``skipped`` the tables that it moved go in the same transaction."""
        finished = state in (DONE, SKIPPED, FAILED)
        values = {"state": state, "note": note[:60_000]}
        if state in (PLANNED, STARTED):
            values |= {"statement": statement, "structure_before": structure_before}
        times = {"started_at": func.now(6)} if state == STARTED else {"finished_at": func.now(6)} if finished else {}
        with self._owned("writing the DDL journal") as connection:
            row = {
                "table_dir": step.table_dir,
                "version": step.version,
                "checksum": step.definition.checksum,
                "schema_name": step.name.schema,
                "table_name": step.name.table,
                "query": step.definition.query,
                "statement": statement,
                "structure_before": structure_before,
            }
            connection.execute(
                insert(self._tables.journal).values(row | values | times).on_duplicate_key_update(**values, **times)
            )
            self._put_tables(connection, tables)

    # helpers

    def _put_tables(self, connection: Connection, tables: Iterable[TableProgress]) -> None:
        stored = list(tables)
        put_places(connection, self._tables, stored)
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
        for some in batched(rows, _CHUNK):
            statement = insert(self._tables.tables).values(some)
            new = statement.inserted
            connection.execute(
                statement.on_duplicate_key_update(
                    schema_name=new.schema_name,
                    table_name=new.table_name,
                    checkpoint=func.greatest(self._tables.tables.c.checkpoint, new.checkpoint),
                    state=new.state,
                    follows=new.follows,
                    error=new.error,
                )
            )

    def _is(self, step: DdlStep) -> ColumnElement[bool]:
        """The condition that a journal row is this statement's."""
        columns = self._tables.journal.c
        return (
            (columns.table_dir == step.table_dir)
            & (columns.version == step.version)
            & (columns.checksum == step.definition.checksum)
        )

    @contextmanager
    def _owned(self, doing: str) -> Iterator[Connection]:
        """A transaction that goes through only while the lease is ours."""
        with self._translated(doing), self._engine.begin() as connection:
            self._check_owner(connection, doing)
            yield connection

    def _check_owner(self, connection: Connection, doing: str) -> None:
        """Lock the lease until the transaction's end; raises `LeaseLost` unless it is ours."""
        epoch = connection.execute(select(self._tables.lease.c.epoch).with_for_update()).scalar_one()
        if epoch != self.epoch:
            message = f"another process took the lease while {doing} (epoch {epoch}, ours is {self.epoch})"
            raise LeaseLost(message)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Our errors for the driver's; what the server refuses of the state itself is no row's fault."""
        try:
            yield
        except DBAPIError as fault:
            error = translated(fault.orig or fault, doing)
            if isinstance(error, RowRefused):
                error = StorageConsumerError(str(error))
            raise error from fault


def _without_autocommit(connection: Target) -> Target:
    """The same connection with transactions: SQLAlchemy sends no BEGIN of its own."""
    connection.autocommit(False)  # noqa: FBT003 - PyMySQL's signature
    return connection


def _in_seconds(ttl: float) -> object:
    """A moment by the database's clock; in UTC, since sessions may have different time zones."""
    return text(f"TIMESTAMPADD(MICROSECOND, {int(ttl * 1_000_000)}, UTC_TIMESTAMP(6))")
