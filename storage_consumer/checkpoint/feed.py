"""StoredFeed: the bucket that a state belongs to, and what is known of its files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Executable, delete, func, insert, select, true, update

from storage_consumer.checkpoint.progress import stored_digests
from storage_consumer.checkpoint.transactions import StateTransactions
from storage_consumer.driver.lease_holder import readable
from storage_consumer.errors import ConfigError, LeaseHeld
from storage_consumer.plan.finished_files import Digests


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


class StoredFeed:
    """Reads what is known of the bucket, and binds the state to another place of the same files.

    It also reads a state of an older version. `run` would migrate that, but only once it is bound.
    """

    def __init__(self, transactions: StateTransactions) -> None:
        """Work in `transactions`."""
        self._transactions = transactions
        self._tables = transactions.tables
        lease = self._tables.lease.c
        is_held = (lease.holder != "") & (lease.expires_at >= func.utc_timestamp(6))
        self._holder = (lease.holder, is_held.label("is_held"), lease.epoch)

    def one(self, query: Executable) -> Any:
        """Return the row of a query of the feed; raise `ConfigError` if the state is bound to no bucket yet."""
        for row in self._transactions.rows(query):
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
        query = select(kept.table_dir, kept.version, kept.path, kept.digest).order_by(kept.version.desc())
        return [KeptFile(**row._asdict()) for row in self._transactions.rows(query)]

    def rebind(
        self, feed: FeedRow, new: str, other: Mapping[str, Collection[int]], is_gone: Callable[[str], bool]
    ) -> None:
        """Bind the state to another place, or again to its own, unless a writer holds the lease.

        `feed` is what was read before the places were compared. `other` maps a sequence to the numbers of the files that have changed.
        `is_gone` tells whether a holder is known not to run any more. The lease gets a new epoch, so a former writer that was only
        paused can write no more. Raise `LeaseHeld` and `ConfigError`.
        """
        lease, bound = self._tables.lease, self._tables.feed
        with self._transactions.shared("storing a decision") as connection:
            # The lease before the feed, as in the owner's transactions, so that the two cannot deadlock.
            now = connection.execute(select(*self._holder).with_for_update()).one()
            if now.is_held and not is_gone(now.holder):
                raise LeaseHeld(busy(now.holder))
            # Both are looked at again under their locks: comparing the places may have taken hours.
            upstream = connection.execute(select(bound.c.upstream).with_for_update()).scalar_one()
            if upstream != feed.upstream:
                raise ConfigError(f"the state has just been bound to {upstream}; nothing was changed")
            if now.epoch != feed.epoch:
                raise ConfigError(
                    f"a consumer of {upstream} ran while its files were compared; nothing was changed. Stop it, and "
                    "run the same command again"
                )
            # The new epoch keeps out a writer that was only paused, and whose memory has the files of the former place.
            connection.execute(update(lease).values(holder="", epoch=lease.c.epoch + 1))
            connection.execute(update(bound).values(upstream=new))
            # All other files have another tag now: their digests, and the marks of files to read again, are forgotten.
            digests = self._tables.digests
            kept = stored_digests(connection, self._tables)
            if kept:
                connection.execute(delete(digests))
            for sequence, chunks in kept.items():
                left = Digests(chunks)
                left.forget(but=frozenset(other.get(sequence, ())))
                for chunk, content in left.moved()[0].items():
                    connection.execute(insert(digests).values(stream=sequence, chunk=chunk, digests=content))


def busy(holder: str) -> str:
    """Return why nothing can be bound while a writer runs."""
    return (
        f"{readable(holder)} is the writer of this target: stop it first (its lease expires a few seconds after it "
        "has ended)"
    )
