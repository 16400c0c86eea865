"""Hold the changes of one table version between reading and sending: one state per key, or every event of a table without a key.

The decoder gives changes one by one (`RowBuffer`) and in batches (`BatchBuffer`), often both from one file. They leave
together, as blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from storage_consumer.decode.decoder import Batch, Decoder, FileRead, RowChange
from storage_consumer.errors import NotReplicable
from storage_consumer.job.spec import TablePlan, VersionPlan
from storage_consumer.order.batch_buffer import BadKey, BatchBuffer
from storage_consumer.order.changes import Integers, Keys, folded, together
from storage_consumer.order.keys import bucket_function, one_bucket, stripes
from storage_consumer.order.row_buffer import RowBuffer

NOTICE, CHANGES, REPORT = 0, 1, 2
"""Kinds of shuffled items, in the order in which a bucket must see them."""
FLUSH_BYTES = 32 << 20
"""File bytes after which all that is held of one table is sent, even in the middle of a file."""
FLUSH_ROWS = 100_000
"""Row changes after which it is sent."""
BLOCK_ROWS, BLOCK_BYTES = 5_000, 512 << 10
"""Most changes in one shuffled block, and about how many bytes of files they come from: on a cluster Spark holds many blocks in memory."""
PIECE_BYTES = 256 << 10
"""Bytes of a file that are decoded in one piece."""

Place = tuple[int, int, int, int]
"""(bucket, kind, table index, lowest commit-ts): the bucket of an item and its sort key there."""
Block = tuple[Place, bytes]
"""Encoded changes of one bucket, and where they go."""


class Buffer:
    """The changes of one version of one table that are not sent yet."""

    def __init__(self, table: TablePlan, version: VersionPlan, partitions: int) -> None:
        """Start empty; `partitions`: the number of buckets."""
        self._table = table
        self.version = version
        """The version that all its changes are of."""
        self._partitions = partitions
        self._single = RowBuffer(table, version)
        self._batches = BatchBuffer(table, version)
        self._taken = 0
        """Row changes received since the last ones were sent."""
        self._read = 0
        """Bytes of files read in the same time."""
        # A batch's values are not looked at one by one, and the loops find only rows that carry a commit-ts.
        self.takes_batches = bool(version.written and table.has_commit_ts) and not (
            version.limits or version.misfit or version.is_all_duplicates
        )
        """Whether changes can be taken in batches."""

    def read(self, decoder: Decoder, file: FileRead, rank: int) -> Iterator[Block]:
        """Take the changes of a file or split, counting them in its tally; yield all that is held whenever it is much.

        Raises `NotReplicable`, naming file and row, for a change that cannot be applied, and what the decoder raises.
        """
        tally = file.tally
        file = replace(file, blocks=self._measured(file.blocks))
        for change in decoder.changes(file) if self.takes_batches else decoder.rows(file):
            # Every row is a repeated delivery, decoded only to be counted.
            if self.version.is_all_duplicates:
                tally.duplicates += 1
                continue
            if self.version.is_uncompared:
                tally.taken += 1
                continue
            tally.taken += self._take(change, rank, file.source)
            if self.is_full:
                yield from self.blocks()

    def _measured(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the content of a file in pieces that fit a processor's cache, counted as they are read."""
        for block in blocks:
            for start in range(0, len(block), PIECE_BYTES):
                piece = block[start : start + PIECE_BYTES]
                # Counted as they are consumed: `is_full` goes by what was decoded, not by what a block holds.
                self._read += len(piece)
                yield piece

    def _take(self, change: RowChange | Batch, rank: int, source: str) -> int:
        """Take one change, or a batch from the file at `source`; return the number of changes."""
        if not isinstance(change, tuple):
            try:
                return self.take_batch(change, rank)
            except BadKey as fault:
                number, ts = change.numbers[fault.place], change.ts[fault.place]
                raise NotReplicable(f"{source}, row {number}, commit ts {ts}: {fault}") from fault
        if self.version.misfit:
            message = f"{self.version.misfit}; the row is number {change[0]} of {source}, commit ts {change[1]}"
            raise NotReplicable(message)
        self._taken += 1
        try:
            self._single.add(change, rank)
        except (ValueError, NotReplicable) as fault:
            raise NotReplicable(f"{source}, row {change[0]}, commit ts {change[1]}: {fault}") from fault
        return 1

    def take_batch(self, batch: Batch, rank: int | Integers, size: int = 0) -> int:
        """Take a batch of `size` bytes that `read` has not read; return its number of changes. See `BatchBuffer.take`."""
        taken = self._batches.take(batch, rank) if len(batch.ts) else 0
        self._taken += taken
        self._read += size
        return taken

    @property
    def is_full(self) -> bool:
        """Whether so much is held that it should be sent."""
        return self._taken >= FLUSH_ROWS or self._read >= FLUSH_BYTES

    def blocks(self) -> Iterator[Block]:
        """Yield everything that is held, encoded, by bucket; the buffer is empty afterwards."""
        # From the counters, so before they are reset.
        rows = self._block_rows()
        found = [changes for changes in (self._batches.drain(), self._single.drain()) if changes]
        # Reset before the first yield, so that changes added between two blocks are not lost.
        self._taken = self._read = 0
        if not found:
            return
        # One key may have changes of both kinds.
        changes = found[0] if len(found) == 1 else folded(together(found), self._table)
        buckets = self._buckets(changes.keys, len(changes))
        for bucket in np.unique(buckets).tolist():
            places = np.flatnonzero(buckets == bucket)
            for first in range(0, len(places), rows):
                block = changes.chosen(places[first : first + rows])
                yield (bucket, CHANGES, self._table.index, int(block.ts.min())), block.packed()

    def _block_rows(self) -> int:
        """Return the number of changes in one block, by the average size of what is held."""
        return max(1, min(BLOCK_ROWS, BLOCK_BYTES * self._taken // max(1, self._read)))

    def _buckets(self, keys: Keys, count: int) -> Integers:
        """Return the bucket of each change."""
        if not self._table.key:
            return np.full(count, one_bucket(self._table.index, self._partitions))
        # An array if all keys are integers; a row of another structure may have brought in a text.
        if isinstance(keys, np.ndarray):
            return stripes(keys, self._partitions, self._table.stripe_bits)
        return np.array([*map(bucket_function(self._table.key, self._partitions, self._table.stripe_bits), keys)])
