"""Hold row changes that come in batches, as columns of numbers and lines: no change becomes an object.

Where a few keys change all the time, most changes are superseded before they are sent, and their lines would be written
for nothing. So a batch's lines may wait until later batches have shown which of its changes still count.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from storage_consumer.decode.decoder import Batch
from storage_consumer.job.spec import TablePlan, VersionPlan
from storage_consumer.kernels.arrays import DELETE, INSERT, UPDATE
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.order.changes import (
    Changes,
    Integers,
    Keys,
    Places,
    chosen_keys,
    compact_keys,
    folded,
    joined_keys,
    latest,
    together,
)
from storage_consumer.order.keys import Key, is_integer, key_function, order_of
from storage_consumer.order.row_buffer import lost_row

WAITING_BYTES = 2 << 20
"""Bytes of files whose lines wait until it is known which of their changes are superseded by later ones of the same key."""


class BadKey(ValueError):
    """A row of the batch has no usable key."""

    def __init__(self, place: int, message: str) -> None:
        """Initialize; `place`: the row's index in the batch, from 0."""
        super().__init__(message)
        self.place = place


class BatchBuffer:
    """Row changes of one version of one table, taken in batches."""

    def __init__(self, table: TablePlan, version: VersionPlan) -> None:
        """Start empty."""
        self._table = table
        self._version = version
        self._key_of = key_function(table.key, range(len(table.key)))
        self._made: list[Changes] = []
        """Changes with their lines."""
        self._waiting: list[_Waiting] = []
        """Batches whose lines are not written yet."""
        self._waits = True
        """Whether batches wait, so that their lines are written together. Once false it stays so."""
        self._made_at = 0
        """The value of `read` when the lines of all batches were last written."""

    def take(self, batch: Batch, rank: int | Integers, read: int) -> int:
        """Take a batch; return its number of changes, where an update that is a delete and an insert counts as one.

        `rank`: the rank of the file, or of each change's file. `read`: the bytes of files read since the last `drain`.
        Raises `BadKey`, having taken none.
        """
        places = order_of(rank, batch.numbers, upsert=False)
        order = places + np.where(batch.operations > DELETE, order_of(0, 0, upsert=True), 0)
        if self._table.key:
            self._waiting.append(_kept(batch, places, order, self._keys(batch)))
            if not self._waits or read - self._made_at >= WAITING_BYTES:
                # Judged only here: the few changes that wait at a `drain` would make hot keys look cold.
                self._waits = self._make_lines()
                self._made_at = read
        else:
            self._take_events(batch, order)
        # The delete and the insert of one update are adjacent and share rank and row number.
        return len(order) - int((places[1:] == places[:-1]).sum())

    def drain(self) -> Changes | None:
        """Return the changes that count of all that are held, with their lines; None if there are none. Nothing is held afterwards."""
        self._make_lines()
        self._made_at = 0
        if not self._made:
            return None
        made, self._made = self._made, []
        return folded(together(made), self._table)

    def _keys(self, batch: Batch) -> Keys:
        """Return the keys of all changes. Raise `BadKey` for the first change without a usable one."""
        key = self._version.key
        numbers = batch.integers(key[0]) if is_integer(self._table.key) else None
        if numbers is not None:
            return numbers
        everything = np.arange(len(batch.ts))
        keys: list[Key] = []
        try:
            for texts in zip(*(batch.texts(place, everything) for place in key), strict=True):
                keys.append(self._key_of(texts))  # noqa: PERF401 - the number of keys shows which one failed
        except ValueError as fault:
            raise BadKey(len(keys), str(fault)) from fault
        return compact_keys(keys)

    def _take_events(self, batch: Batch, order: Integers) -> None:
        """Take many events of a keyless table; an update with an old row is a delete and an insert in its batches."""
        updates = np.flatnonzero(batch.operations == UPDATE)
        has_key = np.zeros(len(updates), np.bool_)
        for key in self._version.unique:
            columns = [batch.texts(place, updates) for place in key]
            # TiCDC splits updates that change a unique key, so a whole one still finds the row that it replaces.
            has_key |= np.array([None not in texts for texts in zip(*columns, strict=True)], np.bool_)
        if not has_key.all():
            raise BadKey(int(updates[~has_key][0]), lost_row(self._table))
        # Every event counts, so no line has a reason to wait.
        lines = batch.lines(self._version.written, np.arange(len(order)))
        self._made.append(Changes(ts=batch.ts, order=order, keys=[], lines=lines))

    def _make_lines(self) -> bool:
        """Write the lines of all batches that wait, or if they waited those of the last change of each key; return whether few are.

        With half of them or more waiting costs more than it saves: what was read is no longer in the processor's cache.
        """
        if not self._waiting:
            return False
        batches, self._waiting = self._waiting, []
        ts = np.concatenate([each.batch.ts[each.rows] for each in batches])
        order = np.concatenate([each.order for each in batches])
        keys = joined_keys([each.keys for each in batches])
        chosen = np.arange(len(ts))
        if self._waits:
            places, orders = latest(ts, order, keys, self._table)
            order[places] = orders
            chosen = np.sort(places)
        taken: list[Places] = []
        lines: list[Lines] = []
        start = 0
        # `chosen` is sorted, so each batch finds its share of it by two binary searches.
        for batch, rows, orders_of, _ in batches:
            end = start + len(orders_of)
            places = chosen[slice(*np.searchsorted(chosen, (start, end)))] - start
            # Deletes have other columns than the rest, so each batch gives two sets of lines at most.
            is_delete = batch.operations[rows[places]] == DELETE
            for columns, some in ((self._version.written, places[~is_delete]), (self._version.key, places[is_delete])):
                if len(some):
                    taken.append(some + start)
                    lines.append(batch.lines(columns, rows[some]))
            start = end
        # Everything else follows the order in which the lines were made.
        sequence = np.concatenate(taken)
        self._made.append(
            Changes(ts=ts[sequence], order=order[sequence], keys=chosen_keys(keys, sequence), lines=Lines.joined(lines))
        )
        return 2 * len(chosen) < len(ts)


class _Waiting(NamedTuple):
    """Changes of a batch whose lines are not written yet."""

    batch: Batch
    rows: Places
    """Their indexes in the batch."""
    order: Integers
    keys: Keys


def _kept(batch: Batch, places: Integers, order: Integers, keys: Keys) -> _Waiting:
    """Return a batch's changes, with their births; `places`: their orders without the operation.

    An update that is a delete and an insert and leaves the key as it is becomes the one change that it is.
    """
    order = order + (batch.operations == INSERT)
    rows = np.arange(len(order))
    seconds = np.flatnonzero(places[1:] == places[:-1]) + 1
    if not len(seconds):
        return _Waiting(batch, rows, order, keys)
    if isinstance(keys, np.ndarray):
        stays = keys[seconds] == keys[seconds - 1]
    else:
        stays = np.array([keys[place] == keys[place - 1] for place in seconds.tolist()], np.bool_)
    order[seconds[stays]] -= 1
    rows = np.delete(rows, seconds[stays] - 1)
    return _Waiting(batch, rows, order[rows], chosen_keys(keys, rows))
