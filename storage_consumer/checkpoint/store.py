"""StateStore: lease, progress and DDL journal in the target. Progress never runs ahead of rows.

Every transaction here first locks the lease row and checks that it is still ours. Write transactions of tasks do not touch
that row: each locks its own *slot*, which carries the epoch and the open window. Opening a window updates all slots, and so waits
for every transaction that is still running. A later transaction of an older window or owner finds the slot changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import func, insert, select, update

from storage_consumer.checkpoint.copies import copies_of
from storage_consumer.checkpoint.decisions import OperatedState, held_tables
from storage_consumer.checkpoint.known_files import known_files, put_known_files
from storage_consumer.checkpoint.lease import larger
from storage_consumer.checkpoint.routed_tables import places
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.journal import DONE, SKIPPED, STARTED
from storage_consumer.plan.table import DROPPED, EXCLUDED, LOST
from storage_consumer.ports import SERIAL_SLOTS, TableProgress

_OPENING = "opening a window"


class StateStore(OperatedState):
    """The state of one feed in one target. Raises `TargetUnavailable`, `LeaseLost` and `ConfigError`."""

    # reading

    def load(self) -> tuple[Restart, int]:
        """Return what an earlier run left, and the highest storage checkpoint that it saw."""
        tables = self._tables
        with self._owned("reading the state") as connection:
            feed = connection.execute(select(tables.feed)).one()
            progress = connection.execute(select(tables.tables)).all()
            placed = places(connection, tables, progress)
            done = known_files(connection, tables)
            copies, held = copies_of(connection, tables), held_tables(connection, tables)
            noted = tables.journal.c
            journal = connection.execute(
                select(noted.table_dir, noted.version, noted.checksum, noted.state).where(
                    noted.state.in_((DONE, SKIPPED, STARTED))
                )
            ).all()
        restart = Restart(
            checkpoint=feed.checkpoint_running,
            lowest=feed.checkpoint,
            tables={row.table_key: row.checkpoint for row in progress},
            behind=frozenset(row.table_key for row in progress if not row.follows),
            dropped=frozenset(row.table_key for row in progress if row.state == DROPPED),
            excluded=frozenset(row.table_key for row in progress if row.state == EXCLUDED),
            targets=placed,
            copies=copies,
            held=held,
            lost=frozenset(row.table_key for row in progress if row.state == LOST),
            done=done,
            journalled=frozenset((r.table_dir, r.version, r.checksum) for r in journal if r.state != STARTED),
            started=frozenset((r.table_dir, r.version, r.checksum) for r in journal if r.state == STARTED),
        )
        return restart, feed.storage_checkpoint

    # writing

    def open_window(self, partitions: int, storage_checkpoint: int) -> int:
        """Fence off everything older and return the id of the new window; `partitions` slots are ready then."""
        with self._translated(_OPENING):
            return self._evicting(lambda: self._open_window(partitions, storage_checkpoint), unless=self._see_owner)

    def _see_owner(self) -> None:
        """Raise `LeaseLost` if the tasks that hold the locks are another owner's."""
        with self._engine.begin() as connection:
            self._check_owner(connection, _OPENING, lock=False)

    def _open_window(self, partitions: int, storage_checkpoint: int) -> int:
        tables = self._tables
        with self._engine.begin() as connection:
            # Slots before the lease: this may wait for a task, and the lease must be renewed meanwhile.
            connection.execute(select(tables.slots.c.slot).with_for_update()).all()
            self._check_owner(connection, _OPENING)
            connection.execute(
                update(tables.feed).values(
                    window_id=tables.feed.c.window_id + 1,
                    storage_checkpoint=larger(tables.feed.c.storage_checkpoint, storage_checkpoint),
                )
            )
            window_id = connection.execute(select(tables.feed.c.window_id)).scalar_one()
            there = connection.execute(select(func.count()).select_from(tables.slots)).scalar_one()
            wanted = partitions + SERIAL_SLOTS
            # New slots begin as closed; the UPDATE below opens them together with the old ones.
            closed = {"epoch": 0, "window_id": 0, "attempt": "", "finished": False}
            # Slots below 0 are for tables whose writers queue, those from 0 on for partitions.
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
        lowest: int | None = None,
    ) -> None:
        """Store what moved: tables, how far each stream is finished, and the checkpoints of the whole feed.

        `checkpoint` (``feed.checkpoint_running``) only grows. `lowest` (``feed.checkpoint``) is stored as it is: a table that the filter
        includes again lacks what was written meanwhile.
        """
        feed = self._tables.feed
        with self._owned("storing the progress") as connection:
            self._put_tables(connection, tables)
            put_known_files(connection, self._tables, streams)
            connection.execute(
                update(feed).values(
                    checkpoint=feed.c.checkpoint if lowest is None else lowest,
                    checkpoint_running=larger(feed.c.checkpoint_running, checkpoint),
                    storage_checkpoint=larger(feed.c.storage_checkpoint, storage_checkpoint),
                )
            )
