"""How far tables and files are, never ahead of rows; a state's bucket, and its files.

Files: how far each sequence is finished, and digests of finished files, many to a row. Tables: how
far each is and, of a routed one, where its rows are (the state table ``table_targets``), which
keeps a changed route from passing for another table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Executable, delete, false, func, insert, literal_column, select, true, update
from sqlalchemy.engine import Connection
from sqlalchemy.sql.elements import ColumnElement

from storage_consumer.checkpoint.tables import (
    copies_of,
    held_tables,
    loads_in,
    paused_tables,
    put_copies,
    put_joined,
)
from storage_consumer.checkpoint.transactions import (
    CHUNK,
    StateTransactions,
    Stored,
    exists,
    larger,
    name_in,
    put_all,
)
from storage_consumer.driver.lease import readable
from storage_consumer.errors import ConfigError, LeaseHeld
from storage_consumer.model import DdlId, SkippedRows, TableName
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Digests, Finished
from storage_consumer.plan.journal_entry import DONE, FAILED, SKIPPED, STARTED
from storage_consumer.plan.steps import OF_SKIPPED, key_of
from storage_consumer.plan.table_decisions import is_skipped
from storage_consumer.plan.table_state import TableState
from storage_consumer.ports import TableProgress
from storage_consumer.target.row_statements import batched
from storage_consumer.target.state_tables import NOW, StateTables


class StoredProgress(Stored):
    """The progress of one feed."""

    def __init__(self, transactions: StateTransactions) -> None:
        """Read and store it in `transactions`."""
        super().__init__(transactions)
        self._copies: dict[str, Copies] = {}
        """Table key → what the state has of its copies: most rounds change nothing of it."""

    def load(self) -> tuple[Restart, int]:
        """Return what an earlier run left, and the highest storage checkpoint that it saw."""
        tables = self._tables
        with self._owned("reading the state") as connection:
            # Several reads see one state: only the owner writes it, and the window that was opened
            # before keeps out late tasks, which move the checkpoints of keyless tables.
            feed = connection.execute(select(tables.feed)).one()
            progress = connection.execute(select(tables.tables)).all()
            places = {
                row.table_key: TableName(schema=row.target_schema, table=row.target_table)
                for row in connection.execute(select(tables.targets))
            }
            done = _known_files(connection, tables)
            copies, held = copies_of(connection, tables), held_tables(connection, tables)
            loads, based = loads_in(connection, tables)
            paused = paused_tables(connection, tables)
            written = {row.table_key: row.upto for row in connection.execute(select(tables.writes))}
            noted = tables.journal.c
            journal = connection.execute(
                select(noted.table_dir, noted.version, noted.checksum, noted.state).where(
                    noted.state.in_((DONE, SKIPPED, STARTED, FAILED))
                )
            ).all()
        self._copies = dict(copies)
        by_state = defaultdict[str, set[DdlId]](set)
        for row in journal:
            by_state[row.state].add(DdlId(row.table_dir, row.version, row.checksum))
        restart = Restart(
            checkpoint=feed.checkpoint_running,
            lowest=feed.checkpoint,
            tables={row.table_key: row.checkpoint for row in progress},
            behind=frozenset(row.table_key for row in progress if not row.follows),
            dropped=frozenset(row.table_key for row in progress if row.state == TableState.DROPPED),
            excluded={
                row.table_key: name_in(row) for row in progress if row.state == TableState.EXCLUDED
            },
            # Databases have no rows, and the name of a table that is gone or left out may be
            # another's.
            targets={
                row.table_key: (name_in(row), places.get(row.table_key, name_in(row)))
                for row in progress
                if row.table_name and row.state not in (TableState.DROPPED, TableState.EXCLUDED)
            },
            copies=copies,
            loads=loads,
            based=based,
            written=written,
            floor=feed.floor,
            held=held,
            paused=paused,
            skipped={
                row.table_key: row.error for row in progress if is_skipped(row.state, row.error)
            },
            lost={row.table_key: row.error for row in progress if row.state == TableState.LOST},
            done=done,
            journalled=frozenset(by_state[DONE] | by_state[SKIPPED]),
            started=frozenset(by_state[STARTED]),
            refused=frozenset(by_state[FAILED]),
        )
        return restart, feed.storage_checkpoint

    def sequences(self) -> Mapping[str, Finished]:
        """Return file sequence (see `DataFile.sequence`) → how far it is finished."""
        with self._shared("reading the state") as connection:
            return _known_files(connection, self._tables)

    def save(
        self,
        *,
        tables: Iterable[TableProgress],
        sequences: Mapping[str, Finished],
        checkpoint: int,
        storage_checkpoint: int,
        lowest: int | None = None,
        joined: Collection[str] = (),
    ) -> None:
        """Store what moved: tables, finished files of sequences, and overall checkpoints.

        `checkpoint` (``feed.checkpoint_running``) only grows. `lowest` (``feed.checkpoint``) is
        stored as it is: a table that the filter includes again lacks what was written meanwhile.
        `joined`: keys of tables that have caught up since their loads. In one transaction with
        their progress: one that follows the feed without counting for its checkpoint would be taken
        along past its own rows.
        """
        feed, tables = self._tables.feed, list(tables)
        copies = {
            table.table_key: table.copies
            for table in tables
            if table.copies is not None and table.copies != self._copies.get(table.table_key)
        }
        with self._owned("storing the progress") as connection:
            put_tables(connection, self._tables, tables)
            put_copies(connection, self._tables, copies)
            known = self._tables
            rows = (
                {"stream": key, "done_upto": it.upto, "left_out": it.left_out}
                for key, it in sequences.items()
            )
            put_all(connection, known.files, rows)
            # Where the chunks to store are all that there is, the stored ones go first.
            for names in batched(
                (name for name, done in sequences.items() if done.replaces), CHUNK
            ):
                connection.execute(delete(known.digests).where(known.digests.c.stream.in_(names)))
            # Only those that changed.
            chunks = (
                {"stream": name, "chunk": chunk, "digests": digests}
                for name, done in sequences.items()
                for chunk, digests in done.digests.items()
            )
            put_all(connection, known.digests, chunks)
            if joined:
                put_joined(connection, self._tables, joined)
            if checkpoint or storage_checkpoint or lowest is not None:
                connection.execute(
                    update(feed).values(
                        checkpoint=feed.c.checkpoint if lowest is None else lowest,
                        checkpoint_running=larger(feed.c.checkpoint_running, checkpoint),
                        storage_checkpoint=larger(feed.c.storage_checkpoint, storage_checkpoint),
                    )
                )
        self._transactions.note_stored(0, checkpoint, storage_checkpoint)
        self._copies.update(copies)

    def skip(self, rows: Iterable[SkippedRows], *, anew: bool = False) -> None:
        """Store what is left out; with `anew`, forget the entries without a table."""
        journal = self._tables.journal
        with self._owned("storing what is left out") as connection:
            if anew:
                connection.execute(delete(journal).where(journal.c.table_dir == OF_SKIPPED))
            _put_skipped(connection, self._tables, rows)

    def skipped(self) -> Sequence[SkippedRows]:
        """Return what was left out, by commit-ts."""
        journal = self._tables.journal.c
        mine = func.left(journal.table_dir, len(OF_SKIPPED)) == OF_SKIPPED
        columns = journal.schema_name, journal.table_name, journal.version, journal.note
        return [
            SkippedRows(name_in(row), row.version, int(count) if count.isdecimal() else None)
            for row in self._read(select(*columns).where(mine).order_by(journal.version))
            for count in row.note.split(" ", 1)[:1]
        ]


def _put_skipped(
    connection: Connection, tables: StateTables, skipped: Iterable[SkippedRows]
) -> None:
    rows = (
        {
            "table_dir": OF_SKIPPED + (key_of(each.table) if each.table.schema else ""),
            "version": each.commit_ts,
            "checksum": 0,
            "schema_name": each.table.schema,
            "table_name": each.table.table,
            "state": SKIPPED,
            **dict.fromkeys(("query", "statement", "structure_before"), ""),
            "note": f"{'?' if each.rows is None else each.rows} rows left out",
        }
        for each in skipped
    )
    put_all(connection, tables.journal, rows)


def put_tables(
    connection: Connection,
    tables: StateTables,
    progress: Iterable[TableProgress],
    *,
    as_they_were: bool = False,
) -> None:
    """Store the progress of tables.

    With `as_they_were`, they are as they were some time ago: a table that has stopped since then
    stays stopped, and follows nothing. Of those that `may_be_outdated`, only the checkpoint moves,
    unless nothing is stored of them yet.
    """
    stored = list(progress)
    _put_skipped(connection, tables, (each for table in stored for each in table.skipped))
    current, outdated = ([t for t in stored if t.may_be_outdated is old] for old in (False, True))
    _put_places(connection, tables, current, stays=False)
    _put_places(connection, tables, outdated, stays=True)
    old = tables.tables.c
    stopped = old.state.in_(
        [literal_column(f"'{state}'") for state in (TableState.HALTED, TableState.LOST)]
    )
    _put_rows(connection, tables, current, stopped if as_they_were else false())
    _put_rows(connection, tables, outdated, true())


def _put_rows(
    connection: Connection,
    tables: StateTables,
    progress: Iterable[TableProgress],
    stays: ColumnElement[bool],
) -> None:
    """Store the rows of ``table_progress``. `stays`: whether a stored state stays as it is."""

    def kept(old: ColumnElement[Any], new: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.if_(stays, old, new)

    rows = (
        {
            "table_key": table.table_key,
            "schema_name": table.schema,
            "table_name": table.table,
            "checkpoint": table.checkpoint,
            # a TEXT holds 65,535 bytes, and a character takes up to four
            "error": table.error[:16_000],
            "follows": table.follows,
            # It decides about the others, so it is assigned last.
            "state": table.state,
        }
        for table in progress
    )
    # A task may have moved a keyless table's checkpoint further than the round knows, and a
    # statement a table's since it started.
    put_all(
        connection, tables.tables, rows, checkpoint=larger, error=kept, follows=kept, state=kept
    )


def stored_digests(connection: Connection, tables: StateTables) -> Mapping[str, dict[int, bytes]]:
    """Return sequence → chunk → digests of its files; empty for a state of an older version."""
    found = defaultdict[str, dict[int, bytes]](dict)
    if exists(connection, tables.digests):
        for row in connection.execute(select(tables.digests)):
            found[row.stream][row.chunk] = bytes(row.digests)
    return found


def _known_files(connection: Connection, tables: StateTables) -> Mapping[str, Finished]:
    """Return sequence → how far it is finished."""
    files = tables.files.c
    # A state of an older version lacks the column, which a migration fills with 0.
    left_out = files.left_out if exists(connection, files.left_out) else literal_column("0")
    # All digests: whatever a listing shows of a finished file is compared with its own.
    digests = stored_digests(connection, tables)
    return {
        name: Finished(upto=upto, left_out=unseen, digests=digests.get(name, {}))
        for name, upto, unseen in connection.execute(
            select(files.stream, files.done_upto, left_out)
        )
    }


def _put_places(
    connection: Connection, tables: StateTables, progress: Sequence[TableProgress], *, stays: bool
) -> None:
    """Store tables' places, a row for routed ones only; `stays`: keep a stored place."""
    # No start goes on elsewhere than the rows are, so what routes of earlier starts left says
    # nothing of a table without routes.
    unplaced = [] if stays else [table.table_key for table in progress if table.target is None]
    for keys in batched(unplaced, CHUNK):
        connection.execute(delete(tables.targets).where(tables.targets.c.table_key.in_(keys)))
    # A changed route would otherwise lead to a place that lacks the rows that are applied already.
    placed = (
        {
            "table_key": table.table_key,
            "target_schema": table.target.schema,
            "target_table": table.target.table,
        }
        for table in progress
        if table.target is not None
    )
    kept = dict.fromkeys(("target_schema", "target_table"), lambda old, _: old) if stays else {}
    put_all(connection, tables.targets, placed, **kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRow:
    """What is stored of the feed, and who writes."""

    upstream: str
    """The bucket; see `Upstream.identity`."""
    checkpoint: int
    storage_checkpoint: int
    """Highest checkpoint-ts of ``metadata`` that was read."""
    holder: str
    """The lease's holder, whether or not the lease has run out; empty for nobody."""
    is_held: bool
    """Whether the lease has not run out."""
    epoch: int
    """The lease's epoch: another value shows that a writer has begun since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """A schema file that was read."""

    table_dir: str
    version: int
    path: str
    digest: str


class StoredFeed(Stored):
    """Reads what is known of the bucket, and binds the state to another place of the same files.

    It also reads a state of an older version. `run` would migrate that, but only once it is bound.
    """

    def __init__(self, transactions: StateTransactions) -> None:
        """Work in `transactions`."""
        super().__init__(transactions)
        lease = self._tables.lease.c
        is_held = (lease.holder != "") & (lease.expires_at >= NOW)
        self._holder = (lease.holder, is_held.label("is_held"), lease.epoch)

    def one(self, query: Executable) -> Any:
        """Return the row of a feed's query; raise `ConfigError` if the state has no bucket yet."""
        for row in self._read(query):
            return row
        raise ConfigError(
            f"the state schema {self._transactions.schema} is not bound to a bucket yet: `storage-consumer run` binds it"
        )

    def row(self) -> FeedRow:
        """Return the feed's row; raise `ConfigError` if the state is bound to no bucket yet."""
        feed, lease = self._tables.feed, self._tables.lease
        query = select(feed.c.upstream, feed.c.checkpoint, feed.c.storage_checkpoint, *self._holder)
        row = self.one(query.join_from(feed, lease, true()))
        return FeedRow(**row._asdict() | {"is_held": bool(row.is_held)})

    def schema_files(self) -> list[KeptFile]:
        """Return all schema files that were read, the newest first."""
        kept = self._tables.structures.c
        if not self._transactions.has(self._tables.structures):
            return []
        query = select(kept.table_dir, kept.version, kept.path, kept.digest).order_by(
            kept.version.desc()
        )
        return [KeptFile(**row._asdict()) for row in self._read(query)]

    def rebind(
        self,
        feed: FeedRow,
        new: str,
        other: Mapping[str, Collection[int]],
        is_gone: Callable[[str], bool],
    ) -> None:
        """Bind the state to another place, or again to its own, unless a writer holds the lease.

        `feed` is what was read before the places were compared. `other` maps a sequence to the
        numbers of the files that have changed. `is_gone` tells whether a holder is known not to run
        any more. The lease gets a new epoch, so a former writer that was only paused can write no
        more. Raise `LeaseHeld` and `ConfigError`.
        """
        lease, bound = self._tables.lease, self._tables.feed
        with self._shared("storing a decision") as connection:
            # The lease before the feed, as in the owner's transactions, so that the two cannot
            # deadlock.
            now = connection.execute(select(*self._holder).with_for_update()).one()
            if now.is_held and not is_gone(now.holder):
                raise LeaseHeld(busy(now.holder))
            # Both are looked at again under their locks: comparing the places may have taken hours.
            upstream = connection.execute(select(bound.c.upstream).with_for_update()).scalar_one()
            if upstream != feed.upstream:
                raise ConfigError(
                    f"the state has just been bound to {upstream}; nothing was changed"
                )
            if now.epoch != feed.epoch:
                raise ConfigError(
                    f"a consumer of {upstream} ran while its files were compared; nothing was changed. Stop it, and "
                    "run the same command again"
                )
            # The new epoch keeps out a writer that was only paused, and whose memory has the files
            # of the former place.
            connection.execute(update(lease).values(holder="", epoch=lease.c.epoch + 1))
            connection.execute(update(bound).values(upstream=new))
            # All other files have another tag now: their digests, and the marks of files to read
            # again, are forgotten.
            digests = self._tables.digests
            kept = stored_digests(connection, self._tables)
            if kept:
                connection.execute(delete(digests))
            for sequence, chunks in kept.items():
                left = Digests(chunks)
                left.forget(but=frozenset(other.get(sequence, ())))
                for chunk, content in left.moved()[0].items():
                    connection.execute(
                        insert(digests).values(stream=sequence, chunk=chunk, digests=content)
                    )


def busy(holder: str) -> str:
    """Return why nothing can be bound while a writer runs."""
    return (
        f"{readable(holder)} is the writer of this target: stop it first (its lease expires a few seconds after it "
        "has ended)"
    )
