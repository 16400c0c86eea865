"""Buffer a table's changes between reading and sending: one state per key, or every event of a table without a key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from storage_consumer.decode.decoder import Batch, RowChange, Values
from storage_consumer.decode.wire_format import LineEncoder
from storage_consumer.errors import NotReplicable
from storage_consumer.job.lossy_columns import check
from storage_consumer.job.spec import TablePlan, VersionPlan
from storage_consumer.kernels.codes import DELETE, PARTIAL_DELETE, UPDATE
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.order.changes import (
    Changes,
    Integers,
    Keys,
    Places,
    Unsigned,
    chosen_keys,
    compact_keys,
    joined_keys,
    latest,
    together,
)
from storage_consumer.order.keys import (
    Key,
    bucket_function,
    is_integer,
    is_upsert,
    key_function,
    one_bucket,
    order_of,
    stripes,
)

NOTICE, CHANGES, REPORT = 0, 1, 2
"""Kinds of shuffled items, in the order in which a bucket must see them."""
BLOCK_ROWS, BLOCK_BYTES = 5_000, 512 << 10
"""Most changes in one shuffled block, and about how many bytes of files they come from: on a cluster Spark holds many blocks in memory."""

PIECE_BYTES = 256 << 10
"""Bytes of a file that are decoded in one piece."""
UNMADE_BYTES = 2 << 20
"""Bytes of files whose lines wait until it is known which of their changes are superseded by later ones of the same key."""

Place = tuple[int, int, int, int]
"""(bucket, kind, table index, lowest commit-ts): the bucket of an item and its sort key there."""

_UNORDERED_MOVE = (
    "this update changes the row's key and carries no commit ts, so it cannot be ordered among the changes of its "
    "transaction: let TiCDC split such updates (output-raw-change-event = false), or have it write commit ts"
)


_DELETE_WITHOUT_KEY = (
    "this delete does not carry the whole key that identifies rows in the target: TiCDC wrote it with "
    "delete-only-output-handle-key-columns = true; set that to false in the changefeed's [sink]"
)


class BadKey(ValueError):
    """A row of the batch has no usable key."""

    def __init__(self, place: int, message: str) -> None:
        """Initialize; `place`: the row's index in the batch, from 0."""
        super().__init__(message)
        self.place = place


class Buffer:
    """The changes of one version of one table that are not sent yet."""

    def __init__(self, work: TablePlan, version: VersionPlan, partitions: int) -> None:
        """Start empty; `partitions`: the number of buckets."""
        self._work = work
        self._partitions = partitions
        self._key = key_function(work.key, version.key) if version.key else None
        self._places = version.key
        self._unique = version.unique
        self._limits = version.limits
        self._key_limits = tuple(limit for limit in version.limits if limit.place in version.key)
        self.misfit = version.misfit
        """Why no change can be taken; empty if changes can be taken."""
        self._written = version.written
        self._row = LineEncoder(version.layout, version.written) if version.written else None
        self._key_row = LineEncoder(version.layout, version.key) if version.key else None
        self._key_of = key_function(work.key, range(len(work.key)))
        self._held = _Held()
        self._unmade: list[_Unmade] = []
        self._batches: list[Changes] = []
        self.takes_batches = (
            bool(version.written) and work.timed and not (version.limits or version.misfit or version.is_all_duplicates)
        )
        """Whether changes can be taken in batches."""
        self.rows = 0
        """Row changes received since the last ones were sent."""
        self.size = 0
        """Bytes of files read in the same time."""
        self._made_until = 0
        """The value of `size` when the lines of all batches were last written."""
        self._waits = True
        """Whether batches wait, so that their lines are written together."""

    def measured(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the content of a file in pieces that fit a processor's cache, counted into `size` as they are read."""
        for block in blocks:
            for start in range(0, len(block), PIECE_BYTES):
                piece = block[start : start + PIECE_BYTES]
                self.size += len(piece)
                yield piece

    def add(self, change: RowChange, rank: int) -> None:
        """Take one row change. Raise `NotReplicable` or `ValueError` if it cannot be applied as it is."""
        number, commit_ts, operation, values, old = change
        self.rows += 1
        if self._limits:
            check(values, self._limits if operation > DELETE else self._key_limits)
        if self._key is None:
            self._add_event(number, commit_ts, operation, values, old, rank)
            return
        if operation == PARTIAL_DELETE and any(values[place] is None for place in self._places):
            raise NotReplicable(_DELETE_WITHOUT_KEY)
        key = self._key(values)
        self._held.add(commit_ts, order_of(rank, number, upsert=operation > DELETE), values, key)
        # An update that changes the key is also a delete of the old key, which may go to another bucket.
        if old is not None and (old_key := self._key(old)) != key:
            if not self._work.timed:
                raise NotReplicable(_UNORDERED_MOVE)
            check(old, self._key_limits)
            self._held.add(commit_ts, order_of(rank, number, upsert=False), old, old_key)

    def take(self, batch: Batch, rank: int | Integers) -> int:
        """Take many changes; return how many, where an update that is a delete and an insert counts as one.

        `rank`: the rank of their file, or of each change's file. Raises `BadKey`, having taken none.
        """
        places = batch.numbers + order_of(rank, 0, upsert=False)
        order = places + np.where(batch.operations > DELETE, order_of(0, 0, upsert=True), 0)
        # The delete and the insert of one update are adjacent and share rank and row number.
        changes = len(order) - int((places[1:] == places[:-1]).sum())
        self.rows += changes
        if self._key is None:
            self._take_events(batch, order)
            return changes
        numbers = batch.integers(self._places[0]) if is_integer(self._work.key) else None
        keys = compact_keys(self._keys_of(batch)) if numbers is None else numbers
        self._unmade.append(_Unmade(batch, order, keys))
        if not self._waits or self.size - self._made_until >= UNMADE_BYTES:
            self._make_lines()
        return changes

    def _take_events(self, batch: Batch, order: Integers) -> None:
        """Take many events of a keyless table; an update with an old row is a delete and an insert in its batches."""
        everything = np.arange(len(order))
        updates = np.flatnonzero(batch.operations == UPDATE)
        told = np.zeros(len(updates), np.bool_)
        for key in self._unique:
            columns = [batch.texts(place, updates) for place in key]
            told |= np.array([None not in texts for texts in zip(*columns, strict=True)], np.bool_)
        if not told.all():
            raise BadKey(int(updates[~told][0]), self._untold())
        lines = batch.lines(self._written, everything)
        self._batches.append(Changes(ts=batch.ts, order=order, keys=[], lines=lines))

    def _make_lines(self) -> None:
        """Write the lines of all batches; only of the last change of each key, as long as that leaves fewer than half of them.

        If more is left, waiting costs more than it saves: what was read is no longer in the processor's cache.
        """
        self._made_until = self.size
        if not self._unmade:
            return
        parts, self._unmade = self._unmade, []
        ts = np.concatenate([part.batch.ts for part in parts])
        order = np.concatenate([part.order for part in parts])
        keys = joined_keys([part.keys for part in parts])
        chosen = np.sort(latest(ts, order, keys, timed=True)) if self._waits else np.arange(len(ts))
        self._waits = 2 * len(chosen) < len(ts)
        taken: list[Places] = []
        lines: list[Lines] = []
        start = 0
        # `chosen` is sorted, so each batch finds its share of it by two binary searches.
        for part in parts:
            end = start + len(part.order)
            places = chosen[slice(*np.searchsorted(chosen, (start, end)))] - start
            is_delete = part.batch.operations[places] == DELETE
            for columns, some in ((self._written, places[~is_delete]), (self._places, places[is_delete])):
                if len(some):
                    taken.append(some + start)
                    lines.append(part.batch.lines(columns, some))
            start = end
        sequence = np.concatenate(taken)
        self._batches.append(
            Changes(ts=ts[sequence], order=order[sequence], keys=chosen_keys(keys, sequence), lines=Lines.joined(lines))
        )

    def _key_texts(self, batch: Batch, chosen: Places) -> list[tuple[str | None, ...]]:
        """Return the texts of the key's columns in the changes at these indexes."""
        return list(zip(*(batch.texts(place, chosen) for place in self._places), strict=True))

    def _keys_of(self, batch: Batch) -> list[Key]:
        """Return the keys of all changes. Raise `BadKey` for the first change without a usable one."""
        texts = self._key_texts(batch, np.arange(len(batch.ts)))
        keys: list[Key] = []
        try:
            for text in texts:
                keys.append(self._key_of(text))  # noqa: PERF401 - the number of keys shows which one failed
        except ValueError as fault:
            raise BadKey(len(keys), str(fault)) from fault
        return keys

    def _add_event(
        self, number: int, commit_ts: int, operation: int, values: Values, old: Values | None, rank: int
    ) -> None:
        """Take an event of a keyless table: every event counts.

        An update without its old row can still be applied if a unique key of the row holds no NULL. TiCDC splits
        updates that change such a key, so the row to replace is the one with this very key.
        """
        if operation == PARTIAL_DELETE:
            raise NotReplicable(_DELETE_WITHOUT_KEY)
        if old is not None and operation == UPDATE:
            self._held.add(commit_ts, order_of(rank, number, upsert=False), old)
        elif operation == UPDATE and not any(all(values[p] is not None for p in key) for key in self._unique):
            raise NotReplicable(self._untold())
        self._held.add(commit_ts, order_of(rank, number, upsert=operation > DELETE), values)

    def _untold(self) -> str:
        """Return why an update of a keyless table cannot be applied."""
        return (
            "this row does not show which row it replaced, and the table has no key: set `[sink.csv] "
            f"output-old-value = true` in the changefeed, or give {self._work.name} a primary key"
        )

    def blocks(self) -> Iterator[tuple[Place, bytes]]:
        """Yield everything that is held, encoded, by bucket; the buffer is empty afterwards."""
        self._make_lines()
        changes, rows = self._changes(), self._block_rows()
        # Reset before the first yield, so that changes added between two blocks are not lost.
        self._held, self._batches, self.rows, self.size, self._made_until = _Held(), [], 0, 0, 0
        if not len(changes):
            return
        buckets = self._buckets(changes.keys, len(changes))
        for bucket in np.unique(buckets).tolist():
            places = np.flatnonzero(buckets == bucket)
            for first in range(0, len(places), rows):
                block = changes.chosen(places[first : first + rows])
                yield (bucket, CHANGES, self._work.index, int(block.ts.min())), block.packed()

    def _block_rows(self) -> int:
        """Return the number of changes in one block, by the average size of what is held."""
        return max(1, min(BLOCK_ROWS, BLOCK_BYTES * self.rows // max(1, self.size)))

    def _changes(self) -> Changes:
        """Return the last change of each key, or every event of a keyless table, in sequence."""
        held = self._held
        ts, order = np.array(held.ts, np.uint64), np.array(held.order, np.int64)
        keys: Keys = compact_keys(held.keys)
        places = self._kept(ts, order, keys)
        changes = Changes(
            ts=ts[places],
            order=order[places],
            keys=chosen_keys(keys, places) if self._key else [],
            lines=self._lines(places.tolist()),
        )
        if not self._batches:
            return changes
        changes = together([*self._batches, changes] if len(changes) else self._batches)
        return changes.chosen(self._kept(changes.ts, changes.order, changes.keys))

    def _kept(self, ts: Unsigned, order: Integers, keys: Keys) -> Places:
        """Return which changes count: the last one of each key, or every event of a keyless table in sequence."""
        return latest(ts, order, keys, timed=self._work.timed) if self._key else np.lexsort((order, ts))

    def _lines(self, places: Sequence[int]) -> Lines:
        """Return the lines of the changes at these indexes; none if the rows do not fit the target's table."""
        if self._row is None:
            return Lines.of([])
        rows, orders = self._held.rows, self._held.order
        whole, key_only = self._row.encode_line, (self._key_row or self._row).encode_line
        return Lines.of([whole(rows[place]) if is_upsert(orders[place]) else key_only(rows[place]) for place in places])

    def _buckets(self, keys: Keys, count: int) -> Integers:
        """Return the bucket of each change."""
        if not self._key:
            return np.full(count, one_bucket(self._work.index, self._partitions))
        if isinstance(keys, np.ndarray):
            return stripes(keys, self._partitions, self._work.stripe_bits)
        return np.array([*map(bucket_function(self._work.key, self._partitions, self._work.stripe_bits), keys)])


class _Unmade(NamedTuple):
    """A batch whose lines are not written yet."""

    batch: Batch
    order: Integers
    keys: Keys


class _Held:
    """Changes in columns, in order of arrival."""

    def __init__(self) -> None:
        self.ts: list[int] = []
        self.order: list[int] = []
        self.rows: list[Values] = []
        self.keys: list[Key] = []

    def add(self, ts: int, order: int, row: Values, key: Key | None = None) -> None:
        """Append a change."""
        self.ts.append(ts)
        self.order.append(order)
        self.rows.append(row)
        if key is not None:
            self.keys.append(key)
