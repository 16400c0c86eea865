"""The feed's row in a target's state, as an operator sees it: the bucket that it belongs to, and what is known of that bucket."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, literal_column, select, true, update

from storage_consumer.checkpoint.operator_connection import OperatorConnection
from storage_consumer.driver.lease_holder import readable
from storage_consumer.errors import ConfigError, LeaseHeld
from storage_consumer.plan.finished_files import Digests, Finished


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


class FeedInspector:
    """Reads what is known of the bucket, and binds the state to another place of the same files.

    It also reads a state of an older version. `run` would migrate that, but only once it is bound.
    """

    def __init__(self, connection: OperatorConnection) -> None:
        """Use `connection`."""
        self._connection = connection
        self._tables = connection.tables

    def row(self) -> FeedRow:
        """Return the feed's row; raise `ConfigError` if the state is bound to no bucket yet."""
        feed, lease = self._tables.feed, self._tables.lease
        query = select(feed.c.upstream, feed.c.checkpoint, feed.c.storage_checkpoint, *self._holder())
        found = self._connection.rows(query.join_from(feed, lease, true()))
        if not found:
            raise ConfigError(
                f"the state schema {self._connection.schema} is not bound to a bucket yet: `storage-consumer run` binds it"
            )
        upstream, checkpoint, storage_checkpoint, holder, valid, epoch = found[0]
        return FeedRow(
            upstream=upstream,
            checkpoint=checkpoint,
            storage_checkpoint=storage_checkpoint,
            holder=holder,
            is_held=bool(holder and valid),
            epoch=epoch,
        )

    def _holder(self) -> tuple[ColumnElement[Any], ...]:
        """Return the lease's holder, whether the lease has not run out, and its epoch."""
        lease = self._tables.lease.c
        return lease.holder, lease.expires_at >= func.utc_timestamp(6), lease.epoch

    def schema_files(self) -> list[KeptFile]:
        """Return all schema files that were read, the newest first."""
        kept = self._tables.structures.c
        if not self._connection.has(self._tables.structures):
            return []
        query = select(kept.table_dir, kept.version, kept.path, kept.digest).order_by(kept.version.desc())
        rows = self._connection.rows(query)
        return [KeptFile(table_dir=row[0], version=row[1], path=row[2], digest=row[3]) for row in rows]

    def sequences(self) -> dict[str, Finished]:
        """Return sequence (see `DataFile.sequence`) → how far it is finished. A state of an older version has no digests."""
        files = self._tables.files.c
        # A state of an older version lacks the column, which a migration fills with 0.
        left_out = files.left_out if self._connection.has(files.left_out) else literal_column("0")
        rows = self._connection.rows(select(files.stream, files.done_upto, left_out))
        kept = self._digests()
        return {name: Finished(upto=upto, left_out=unseen, digests=kept.get(name, {})) for name, upto, unseen in rows}

    def _digests(self) -> dict[str, dict[int, bytes]]:
        """Return sequence → chunk → digests of its files; empty for a state of an older version."""
        found: dict[str, dict[int, bytes]] = {}
        if self._connection.has(self._tables.digests):
            for sequence, chunk, digests in self._connection.rows(select(self._tables.digests)):
                found.setdefault(sequence, {})[chunk] = digests
        return found

    def _forget_digests(self, but: Mapping[str, Collection[int]]) -> None:
        """Forget all digests except those of `but`, and the marks of files to read again: all other files have another tag now."""
        kept = self._digests()
        if not kept:
            return
        table = self._tables.digests
        self._connection.rows(delete(table))
        for sequence, chunks in kept.items():
            digests = Digests(chunks)
            digests.forget(but=frozenset(but.get(sequence, ())))
            for chunk, content in digests.moved()[0].items():
                self._connection.rows(insert(table).values(stream=sequence, chunk=chunk, digests=content))

    def rebind(
        self, feed: FeedRow, new: str, other: Mapping[str, Collection[int]], is_gone: Callable[[str], bool]
    ) -> None:
        """Bind the state to another place, or again to its own, unless a writer holds the lease.

        `feed` is what was read before the places were compared. `other` maps a sequence to the numbers of the files that have changed.
        `is_gone` tells whether a holder is known not to run any more. The lease gets a new epoch, so a former writer that was only
        paused can write no more. Raise `LeaseHeld` and `ConfigError`.
        """
        lease, row, rows = self._tables.lease, self._tables.feed, self._connection.rows
        with self._connection.transaction():
            # The lease before the feed, as in the owner's transactions, so that the two cannot deadlock.
            ((holder, valid, epoch),) = rows(select(*self._holder()).with_for_update())
            if holder and valid and not is_gone(holder):
                raise LeaseHeld(busy(holder))
            # Both are looked at again under their locks: comparing the places may have taken hours.
            ((bound,),) = rows(select(row.c.upstream).with_for_update())
            if bound != feed.upstream:
                raise ConfigError(f"the state has just been bound to {bound}; nothing was changed")
            if epoch != feed.epoch:
                raise ConfigError(
                    f"a consumer of {bound} ran while its files were compared; nothing was changed. Stop it, and "
                    "run the same command again"
                )
            # The new epoch keeps out a writer that was only paused, and whose memory has the files of the former place.
            rows(update(lease).values(holder="", epoch=lease.c.epoch + 1))
            rows(update(row).values(upstream=new))
            self._forget_digests(other)


def busy(holder: str) -> str:
    """Return why nothing can be bound while a writer runs."""
    return (
        f"{readable(holder)} is the writer of this target: stop it first (its lease expires a few seconds after it "
        "has ended)"
    )
