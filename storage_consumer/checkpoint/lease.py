"""StoredLease: who may write, and the windows that fence off whoever may not any more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Select, func, select, text, update
from sqlalchemy.dialects.mysql import insert

from storage_consumer.checkpoint.state_schema import StateSchema
from storage_consumer.checkpoint.transactions import StateTransactions, larger, put_all
from storage_consumer.ports import SERIAL_SLOTS

_OPENING = "opening a window"


class StoredLease:
    """The lease of one feed."""

    def __init__(self, transactions: StateTransactions, schema: StateSchema) -> None:
        """Take the lease for `transactions`; whoever gets it migrates `schema`."""
        self._transactions = transactions
        self._schema = schema
        self._tables = transactions.tables
        self._holder = ""
        self.task_statements = self._tables.for_tasks()
        """What the tasks of a window run on the state tables."""

    @property
    def epoch(self) -> int:
        """The number of our lease, higher than that of every earlier one; 0 before the first."""
        return self._transactions.epoch

    def acquire(self, holder: str, ttl: float, *, dead: str = "") -> str:
        """Try to become the writer for `ttl` seconds. Return "", or the holder who prevents it.

        `dead` is a holder that is known to be gone, so its lease need not run out (fencing protects in any case). A holder that asks
        again gets a new lease with a higher epoch. A state of an older version is migrated before this returns.
        """
        free = ("", holder, dead)
        with self._transactions.translated("acquiring the lease"):
            other = self._transactions.evicting(lambda: self._take(holder, ttl, free), unless=lambda: self.holder(free))
        if not other:
            # Only the owner migrates, so no two programs change the tables at the same time.
            self._schema.migrate()
        return other

    def _take(self, holder: str, ttl: float, free: Collection[str]) -> str:
        """Take the lease and return "", or return the holder, not one of `free`, whose unexpired lease prevents it."""
        lease = self._tables.lease
        with self._transactions.engine.begin() as connection:
            # Under the row's lock, so that of several processes that ask in the same moment one gets it.
            row = connection.execute(self._now().with_for_update()).one()
            # An expired lease is free for anybody; before that, it has to be nobody's, ours, or that of a holder known to be gone.
            if row.holder not in free and not row.expired:
                return str(row.holder)
            connection.execute(update(lease).values(holder=holder, epoch=row.epoch + 1, expires_at=_in_seconds(ttl)))
        # Only after the commit: until then the lease may still be someone else's.
        self._transactions.epoch, self._holder = row.epoch + 1, holder
        return ""

    def holder(self, free: Collection[str] = ()) -> str:
        """Return the holder whose lease runs, without waiting for a lock on its row; "" for none, or one of `free`."""
        with self._transactions.shared("reading the lease") as connection:
            row = connection.execute(self._now()).one()
        return "" if row.holder in free or row.expired else str(row.holder)

    def _now(self) -> Select[Any]:
        lease = self._tables.lease.c
        return select(lease.holder, lease.epoch, (lease.expires_at < func.utc_timestamp(6)).label("expired"))

    def renew(self, ttl: float) -> bool:
        """Hold the lease for `ttl` seconds from now; return False if it is no longer ours."""
        lease = self._tables.lease
        with self._transactions.shared("renewing the lease") as connection:
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
        with self._transactions.shared("releasing the lease") as connection:
            connection.execute(
                # The epoch stays, so the next owner's is higher than every earlier one.
                update(lease).where(lease.c.epoch == self.epoch, lease.c.holder == self._holder).values(holder="")
            )

    # windows

    def open_window(self, partitions: int, storage_checkpoint: int, writes: Mapping[str, int] | None = None) -> int:
        """Fence off everything older and return the id of the new window; `partitions` slots are ready then.

        `writes`: table key → the commit-ts up to which the window may write rows that are visible before the table's checkpoint moves.
        """
        with self._transactions.translated(_OPENING):
            return self._transactions.evicting(
                lambda: self._open_window(partitions, storage_checkpoint, writes or {}), unless=self._see_owner
            )

    def _see_owner(self) -> None:
        """Raise `LeaseLost` if the tasks that hold the locks are another owner's."""
        with self._transactions.engine.begin() as connection:
            self._transactions.check_owner(connection, _OPENING, lock=False)

    def _open_window(self, partitions: int, storage_checkpoint: int, writes: Mapping[str, int]) -> int:
        feed, slots = self._tables.feed, self._tables.slots
        with self._transactions.engine.begin() as connection:
            # Slots before the lease: this may wait for a task, and the lease must be renewed meanwhile.
            connection.execute(select(slots.c.slot).with_for_update()).all()
            self._transactions.check_owner(connection, _OPENING)
            connection.execute(
                update(feed).values(
                    window_id=feed.c.window_id + 1,
                    storage_checkpoint=larger(feed.c.storage_checkpoint, storage_checkpoint),
                )
            )
            window_id = connection.execute(select(feed.c.window_id)).scalar_one()
            # Slots are only added, and numbered without a gap from -SERIAL_SLOTS on: their count shows which are missing.
            there = connection.execute(select(func.count()).select_from(slots)).scalar_one()
            wanted = partitions + SERIAL_SLOTS
            # New slots begin as closed; the UPDATE below opens them together with the old ones.
            closed = {"epoch": 0, "window_id": 0, "attempt": "", "finished": False}
            # Slots below 0 are for tables whose writers queue, those from 0 on for partitions.
            if missing := [{"slot": n - SERIAL_SLOTS, **closed} for n in range(there, wanted)]:
                connection.execute(insert(slots), missing)
            fresh = {"epoch": self.epoch, "window_id": window_id, "attempt": "", "finished": False}
            connection.execute(update(slots).values(fresh))
            # A note only grows: after a job that failed it stays beyond the table's checkpoint, whatever range a later job has.
            notes = ({"table_key": key, "upto": upto} for key, upto in writes.items())
            put_all(connection, self._tables.writes, notes, upto=larger)
        return int(window_id)


def _in_seconds(ttl: float) -> object:
    """Return the time `ttl` seconds from now by the database's clock, in UTC since sessions may have different time zones."""
    return text(f"TIMESTAMPADD(MICROSECOND, {int(ttl * 1_000_000)}, UTC_TIMESTAMP(6))")
