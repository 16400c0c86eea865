"""Hold row changes that come in batches, as columns of numbers and lines: no change becomes an object."""

from __future__ import annotations

import numpy as np

from storage_consumer.decode.decoder import Batch
from storage_consumer.job.spec import TablePlan, VersionPlan
from storage_consumer.kernels.arrays import DELETE, INSERT, UPDATE
from storage_consumer.order.changes import (
    Changes,
    Integers,
    Keys,
    chosen_keys,
    compact_keys,
    folded,
    together,
)
from storage_consumer.order.keys import Key, is_integer, key_function, order_of
from storage_consumer.order.row_buffer import lost_row


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

    def take(self, batch: Batch, rank: int | Integers) -> int:
        """Take a batch; return its number of changes, where an update that is a delete and an insert counts as one.

        `rank`: the rank of the file, or of each change's file. Raises `BadKey`, having taken none.
        """
        places = order_of(rank, batch.numbers, upsert=False)
        order = places + np.where(batch.operations > DELETE, order_of(0, 0, upsert=True), 0)
        if self._table.key:
            self._take_states(batch, places, order)
        else:
            self._take_events(batch, order)
        # The delete and the insert of one update are adjacent and share rank and row number.
        return len(order) - int((places[1:] == places[:-1]).sum())

    def drain(self) -> Changes | None:
        """Return the changes that count of all that are held, with their lines; None if there are none. Nothing is held afterwards."""
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

    def _take_states(self, batch: Batch, places: Integers, order: Integers) -> None:
        """Take changes of rows with keys, and note their births. `places`: their orders without the operation."""
        keys = self._keys(batch)
        order = order + (batch.operations == INSERT)
        rows = np.arange(len(order))
        seconds = np.flatnonzero(places[1:] == places[:-1]) + 1
        if len(seconds):
            if isinstance(keys, np.ndarray):
                stays = keys[seconds] == keys[seconds - 1]
            else:
                stays = np.array([keys[place] == keys[place - 1] for place in seconds.tolist()], np.bool_)
            # An update that is a delete and an insert and leaves the key as it is becomes the one change that it is.
            order[seconds[stays]] -= 1
            rows = np.delete(rows, seconds[stays] - 1)
        is_delete = batch.operations[rows] == DELETE
        for columns, some in ((self._version.written, rows[~is_delete]), (self._version.key, rows[is_delete])):
            if len(some):
                lines = batch.lines(columns, some)
                self._made.append(
                    Changes(ts=batch.ts[some], order=order[some], keys=chosen_keys(keys, some), lines=lines)
                )

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
        lines = batch.lines(self._version.written, np.arange(len(order)))
        self._made.append(Changes(ts=batch.ts, order=order, keys=[], lines=lines))
