"""The changes of a table that a task has read and not sent on yet: one state per key, or every event of a table without one."""

from __future__ import annotations

import marshal
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from storage_consumer.decoding.decoder import DELETE, PARTIAL_DELETE, UPDATE, RowChange, Values
from storage_consumer.decoding.wire import LineEncoder
from storage_consumer.errors import NotReplicable
from storage_consumer.limits import check
from storage_consumer.ordering import (
    Key,
    bucket_function,
    fold,
    is_upsert,
    key_function,
    one_bucket,
    order_of,
    place_in_files,
)
from storage_consumer.work import TableWork, VersionWork

NOTICE, CHANGES, REPORT = 0, 1, 2
"""Kinds of shuffled items, in the order in which a bucket must see them."""
BLOCK_ROWS, BLOCK_BYTES = 5_000, 512 << 10
"""Most changes in one shuffled block, and about how many bytes of files they come from: Spark holds many blocks at once."""

Place = tuple[int, int, int, int]
"""(bucket, kind, table index, lowest commit ts): where an item goes and where it is sorted in there."""

_UNORDERED_MOVE = (
    "this update changes the row's key and does not say its commit ts, so it can't be put in order with the others of its "
    "transaction: let TiCDC split such updates (output-raw-change-event = false), or write commit ts"
)


_DELETE_WITHOUT_KEY = (
    "this delete does not say the whole key by which rows are told apart in the target: TiCDC wrote it with "
    "delete-only-output-handle-key-columns = true; set that to false in the changefeed's [sink]"
)


class Buffer:
    """The changes of one version of one table that have not been sent on."""

    def __init__(self, work: TableWork, version: VersionWork, partitions: int) -> None:
        """Without changes; `partitions`: the number of buckets."""
        self._work = work
        self._partitions = partitions
        self._key = key_function(work.key, version.key) if version.key else None
        self._places = version.key
        self._unique = version.unique
        self._limits = version.limits
        self._row = LineEncoder(version.layout, version.written) if version.written else None
        self._key_row = LineEncoder(version.layout, version.key) if version.key else None
        self._states: dict[Key, tuple[int, int, Any]] = {}
        self._events: list[tuple[int, int, Any]] = []
        self.rows = 0
        """Row changes that came in since the last were sent on."""
        self.size = 0
        """Bytes of files that were read in the same time."""

    def measured(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """The same pieces of a file, counted into `size` as they are read."""
        for block in blocks:
            self.size += len(block)
            yield block

    def add(self, change: RowChange, rank: int) -> None:
        """Take one row change. Raises `NotReplicable` or `ValueError` for one that can't be applied as it is."""
        number, commit_ts, operation, values, old = change
        self.rows += 1
        if self._limits and operation > DELETE:
            check(values, self._limits)
        if self._key is None:
            self._add_event(number, commit_ts, operation, values, old, rank)
            return
        if not self._work.timed:
            commit_ts = place_in_files(commit_ts, rank, number)
        if operation == PARTIAL_DELETE and any(values[place] is None for place in self._places):
            raise NotReplicable(_DELETE_WITHOUT_KEY)
        key = self._key(values)
        fold(self._states, key, commit_ts, order_of(rank, number, upsert=operation > DELETE), values)
        if old is not None and (old_key := self._key(old)) != key:
            if not self._work.timed:
                raise NotReplicable(_UNORDERED_MOVE)
            fold(self._states, old_key, commit_ts, order_of(rank, number, upsert=False), old)

    def _add_event(
        self, number: int, commit_ts: int, operation: int, values: Values, old: Values | None, rank: int
    ) -> None:
        """Every event of a keyless table counts.

        An update that does not tell its old row still does where a unique key of the row holds no NULL: TiCDC splits the
        updates that change one, so the row with this very key is the one.
        """
        if operation == PARTIAL_DELETE:
            raise NotReplicable(_DELETE_WITHOUT_KEY)
        if old is not None and operation == UPDATE:
            self._events.append((commit_ts, order_of(rank, number, upsert=False), old))
        elif operation == UPDATE and not any(all(values[p] is not None for p in key) for key in self._unique):
            message = (
                "this row does not say which one it took the place of, and it has no key: "
                f"set `[sink.csv] output-old-value = true` in the changefeed, or give {self._work.name} a primary key"
            )
            raise NotReplicable(message)
        self._events.append((commit_ts, order_of(rank, number, upsert=operation > DELETE), values))

    def blocks(self) -> Iterator[tuple[Place, bytes]]:
        """All that is held, encoded, by bucket; the buffer is empty afterwards."""
        buckets, rows = self._by_bucket(), self._block_rows()
        self._states, self._events, self.rows, self.size = {}, [], 0, 0
        for bucket, changes in buckets.items():
            for first in range(0, len(changes), rows):
                block = changes[first : first + rows]
                lowest = min(change[0] for change in block)
                yield (bucket, CHANGES, self._work.index, lowest), marshal.dumps(block)

    def _block_rows(self) -> int:
        """Changes in one block, by the average of what is held."""
        return max(1, min(BLOCK_ROWS, BLOCK_BYTES * self.rows // max(1, self.size)))

    def _by_bucket(self) -> dict[int, list[tuple[Any, ...]]]:
        """Encoded changes per bucket: (commit ts, order, line, key), without the key for a keyless table."""
        buckets: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        if self._row and self._events:
            encode = self._row.encode_line
            ordered = sorted(self._events, key=lambda event: event[:2])
            buckets[one_bucket(self._work.index, self._partitions)] = [(t, o, encode(row)) for t, o, row in ordered]
        elif self._row and self._key_row and self._states:
            bucket_of = bucket_function(self._work.key, self._partitions)
            whole, key_only = self._row.encode_line, self._key_row.encode_line
            for key, (ts, order, row) in self._states.items():
                buckets[bucket_of(key)].append((ts, order, whole(row) if is_upsert(order) else key_only(row), key))
        return buckets
