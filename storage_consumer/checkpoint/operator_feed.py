"""The feed's row in a target's state, as an operator sees it: the bucket that it belongs to, and what is known of that bucket."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from storage_consumer.checkpoint.operator import StateInspector
from storage_consumer.checkpoint.tables import MIGRATED, STATE_VERSION
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


class FeedInspector(StateInspector):
    """Reads what is known of the bucket, and binds the state to another place of the same files.

    It also reads a state of an older version. `run` would migrate that, but only once it is bound.
    """

    readable_versions = (STATE_VERSION, *MIGRATED)

    def feed(self) -> FeedRow:
        """Return the feed's row; raise `ConfigError` if the state is bound to no bucket yet."""
        found = self.rows(
            "SELECT f.upstream, f.checkpoint, f.storage_checkpoint, l.holder, l.expires_at >= UTC_TIMESTAMP(6), l.epoch "
            f"FROM {self.table('feed')} f, {self.table('lease')} l"
        )
        if not found:
            raise ConfigError(
                f"the state schema {self._schema} is not bound to a bucket yet: `storage-consumer run` binds it"
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

    def schema_files(self) -> list[KeptFile]:
        """Return all schema files that were read, the newest first."""
        if not self._has("schema_history"):
            return []
        rows = self.rows(
            f"SELECT table_dir, version, path, digest FROM {self.table('schema_history')} ORDER BY version DESC"
        )
        return [KeptFile(table_dir=row[0], version=row[1], path=row[2], digest=row[3]) for row in rows]

    def streams(self) -> dict[str, Finished]:
        """Return stream (see `DataFile.stream`) → how far it is finished. A state of an older version has no digests."""
        left_out = "left_out" if self._has("file_progress", "left_out") else "0"
        rows = self.rows(f"SELECT stream, done_upto, {left_out} FROM {self.table('file_progress')}")
        kept = self._digests()
        return {
            stream: Finished(upto=upto, left_out=unseen, digests=kept.get(stream, {})) for stream, upto, unseen in rows
        }

    def _digests(self) -> dict[str, dict[int, bytes]]:
        """Return stream → chunk → digests of its files; empty for a state of an older version."""
        found: dict[str, dict[int, bytes]] = {}
        if self._has("file_digests"):
            for stream, chunk, digests in self.rows(f"SELECT stream, chunk, digests FROM {self.table('file_digests')}"):
                found.setdefault(stream, {})[chunk] = digests
        return found

    def _has(self, table: str, column: str = "") -> bool:
        """Return whether a state table, or one of its columns, exists."""
        where, arguments = "table_schema = %s AND table_name = %s", (self._schema, table)
        if column:
            sql = f"SELECT 1 FROM information_schema.columns WHERE {where} AND column_name = %s"
            return bool(self.rows(sql, (*arguments, column)))
        return bool(self.rows(f"SELECT 1 FROM information_schema.tables WHERE {where}", arguments))

    def _forget_digests(self, but: Mapping[str, Collection[int]]) -> None:
        """Forget all digests except those of `but`, and the marks of files to read again: all other files have another tag now."""
        kept = self._digests()
        if not kept:
            return
        self.rows(f"DELETE FROM {self.table('file_digests')}")
        for stream, chunks in kept.items():
            digests = Digests(chunks)
            digests.forget(but=frozenset(but.get(stream, ())))
            for chunk, content in digests.moved()[0].items():
                self.rows(f"INSERT INTO {self.table('file_digests')} VALUES (%s, %s, %s)", (stream, chunk, content))

    def rebind(
        self, feed: FeedRow, new: str, other: Mapping[str, Collection[int]], is_gone: Callable[[str], bool]
    ) -> None:
        """Bind the state to another place, or again to its own, unless a writer holds the lease.

        `feed` is what was read before the places were compared. `other` maps a stream to the numbers of the files that have changed.
        `is_gone` tells whether a holder is known not to run any more. The lease gets a new epoch, so a former writer that was only
        paused can write no more. Raise `LeaseHeld` and `ConfigError`.
        """
        with self.transaction():
            ((holder, valid, epoch),) = self.rows(
                f"SELECT holder, expires_at >= UTC_TIMESTAMP(6), epoch FROM {self.table('lease')} FOR UPDATE"
            )
            if holder and valid and not is_gone(holder):
                raise LeaseHeld(busy(holder))
            ((bound,),) = self.rows(f"SELECT upstream FROM {self.table('feed')} FOR UPDATE")
            if bound != feed.upstream:
                raise ConfigError(f"the state has just been bound to {bound}; nothing was changed")
            if epoch != feed.epoch:
                raise ConfigError(
                    f"a consumer of {bound} ran while its files were compared; nothing was changed. Stop it, and "
                    "run the same command again"
                )
            self.rows(f"UPDATE {self.table('lease')} SET holder = '', epoch = epoch + 1")
            self.rows(f"UPDATE {self.table('feed')} SET upstream = %s", (new,))
            self._forget_digests(other)


def busy(holder: str) -> str:
    """Return why nothing can be bound while a writer runs."""
    return (
        f"{readable(holder)} is the writer of this target: stop it first (its lease expires a few seconds after it "
        "has ended)"
    )
