"""StoredProgress: how far tables and files are. It never runs ahead of rows.

Files: how far each sequence is finished, and digests of finished files, many to a row. Tables: how far each is and, of a routed one,
where its rows are (the state table ``table_targets``), which keeps a changed route from passing for another table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, false, func, literal_column, select, true, update
from sqlalchemy.engine import Connection, Row
from sqlalchemy.sql.elements import ColumnElement

from storage_consumer.checkpoint.copies import copies_of, put_copies
from storage_consumer.checkpoint.decisions import held_tables, paused_tables
from storage_consumer.checkpoint.loads import loads_in, put_joined
from storage_consumer.checkpoint.transactions import CHUNK, StateTransactions, exists, larger, name_in, put_all
from storage_consumer.downstream.batches import batched
from storage_consumer.downstream.state_tables import StateTables
from storage_consumer.model import DdlId, TableName
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.journal import DONE, FAILED, SKIPPED, STARTED
from storage_consumer.plan.table_decisions import is_skipped
from storage_consumer.plan.table_state import TableState
from storage_consumer.ports import TableProgress


class StoredProgress:
    """The progress of one feed."""

    def __init__(self, transactions: StateTransactions) -> None:
        """Read and store it in `transactions`."""
        self._transactions = transactions
        self._tables = transactions.tables
        self._copies: dict[str, Copies] = {}
        """Table key → what the state has of its copies: most rounds change nothing of it."""

    def load(self) -> tuple[Restart, int]:
        """Return what an earlier run left, and the highest storage checkpoint that it saw."""
        tables = self._tables
        with self._transactions.owned("reading the state") as connection:
            # Several reads see one state: only the owner writes it, and the window that was opened before keeps out late tasks,
            # which move the checkpoints of keyless tables.
            feed = connection.execute(select(tables.feed)).one()
            progress = connection.execute(select(tables.tables)).all()
            placed = _places(connection, tables, progress)
            done = _known_files(connection, tables)
            copies, held = copies_of(connection, tables), held_tables(connection, tables)
            loads, based = loads_in(connection, tables)
            paused = paused_tables(connection, tables)
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
            excluded={row.table_key: name_in(row) for row in progress if row.state == TableState.EXCLUDED},
            targets=placed,
            copies=copies,
            loads=loads,
            based=based,
            floor=feed.floor,
            held=held,
            paused=paused,
            skipped={row.table_key: row.error for row in progress if is_skipped(row.state, row.error)},
            lost={row.table_key: row.error for row in progress if row.state == TableState.LOST},
            done=done,
            journalled=frozenset(by_state[DONE] | by_state[SKIPPED]),
            started=frozenset(by_state[STARTED]),
            refused=frozenset(by_state[FAILED]),
        )
        return restart, feed.storage_checkpoint

    def sequences(self) -> Mapping[str, Finished]:
        """Return file sequence (see `DataFile.sequence`) → how far it is finished."""
        with self._transactions.shared("reading the state") as connection:
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
        """Store what moved: tables, how far each sequence is finished, and the checkpoints of the whole feed.

        `checkpoint` (``feed.checkpoint_running``) only grows. `lowest` (``feed.checkpoint``) is stored as it is: a table that the filter
        includes again lacks what was written meanwhile. `joined`: keys of tables that have caught up since their loads. In one transaction
        with their progress: one that follows the feed without counting for its checkpoint would be taken along past its own rows.
        """
        feed, tables = self._tables.feed, list(tables)
        copies = {
            table.table_key: table.copies
            for table in tables
            if table.copies is not None and table.copies != self._copies.get(table.table_key)
        }
        with self._transactions.owned("storing the progress") as connection:
            put_tables(connection, self._tables, tables)
            put_copies(connection, self._tables, copies)
            _put_known_files(connection, self._tables, sequences)
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
        self._copies.update(copies)


def put_tables(
    connection: Connection, tables: StateTables, progress: Iterable[TableProgress], *, as_they_were: bool = False
) -> None:
    """Store the progress of tables.

    With `as_they_were`, they are as they were some time ago: a table that has stopped since then stays stopped, and follows nothing.
    Of those that `may_be_outdated`, only the checkpoint moves, unless nothing is stored of them yet.
    """
    stored = list(progress)
    current, outdated = ([t for t in stored if t.may_be_outdated is old] for old in (False, True))
    _put_places(connection, tables, current, stays=False)
    _put_places(connection, tables, outdated, stays=True)
    old = tables.tables.c
    stopped = old.state.in_([literal_column(f"'{state}'") for state in (TableState.HALTED, TableState.LOST)])
    _put_rows(connection, tables, current, stopped if as_they_were else false())
    _put_rows(connection, tables, outdated, true())


def _put_rows(
    connection: Connection, tables: StateTables, progress: Iterable[TableProgress], stays: ColumnElement[bool]
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
    # A task may have moved a keyless table's checkpoint further than the round knows, and a statement a table's since it started.
    put_all(connection, tables.tables, rows, checkpoint=larger, error=kept, follows=kept, state=kept)


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
        for name, upto, unseen in connection.execute(select(files.stream, files.done_upto, left_out))
    }


def _put_known_files(connection: Connection, tables: StateTables, sequences: Mapping[str, Finished]) -> None:
    """Store the sequences that moved, and those chunks of their digests that changed."""
    rows = ({"stream": name, "done_upto": done.upto, "left_out": done.left_out} for name, done in sequences.items())
    put_all(connection, tables.files, rows)
    # Where the chunks to store are all that there is, the stored ones go first.
    for names in batched((name for name, done in sequences.items() if done.replaces), CHUNK):
        connection.execute(delete(tables.digests).where(tables.digests.c.stream.in_(names)))
    chunks = (
        {"stream": name, "chunk": chunk, "digests": digests}
        for name, done in sequences.items()
        for chunk, digests in done.digests.items()
    )
    put_all(connection, tables.digests, chunks)


def _places(
    connection: Connection, tables: StateTables, progress: Sequence[Row[Any]]
) -> Mapping[str, tuple[TableName, TableName]]:
    """Return table key → its names in the bucket and in the target, for those rows of ``table_progress`` whose table exists."""
    rows = connection.execute(select(tables.targets)).all()
    stored = {row.table_key: TableName(schema=row.target_schema, table=row.target_table) for row in rows}
    found = {}
    for row in progress:
        # Databases have no rows, and the name of a table that is gone or left out may be another's.
        if row.table_name and row.state not in (TableState.DROPPED, TableState.EXCLUDED):
            name = name_in(row)
            found[row.table_key] = (name, stored.get(row.table_key, name))
    return found


def _put_places(connection: Connection, tables: StateTables, progress: Sequence[TableProgress], *, stays: bool) -> None:
    """Store where these tables are; a table without routes has no row. `stays`: whether a stored place stays as it is."""
    # No start goes on elsewhere than the rows are, so what routes of earlier starts left says nothing of a table without routes.
    unplaced = [] if stays else [table.table_key for table in progress if table.target is None]
    for keys in batched(unplaced, CHUNK):
        connection.execute(delete(tables.targets).where(tables.targets.c.table_key.in_(keys)))
    # A changed route would otherwise lead to a place that lacks the rows that are applied already.
    placed = (
        {"table_key": table.table_key, "target_schema": table.target.schema, "target_table": table.target.table}
        for table in progress
        if table.target is not None
    )
    kept = dict.fromkeys(("target_schema", "target_table"), _old) if stays else {}
    put_all(connection, tables.targets, placed, **kept)


def _old(old: ColumnElement[Any], _: ColumnElement[Any]) -> ColumnElement[Any]:
    return old
