"""Hold row changes that come one by one: each is checked, given its key and its place in the order, and kept as values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from storage_consumer.decode.decoder import RowChange, Values
from storage_consumer.decode.wire_format import LineEncoder
from storage_consumer.errors import NotReplicable
from storage_consumer.job.lossy_columns import check
from storage_consumer.job.spec import TablePlan, VersionPlan
from storage_consumer.kernels.arrays import DELETE, INSERT, PARTIAL_DELETE, UPDATE
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.order.changes import Changes, chosen_keys, compact_keys, counting
from storage_consumer.order.keys import Key, is_upsert, key_function, order_of

_UNORDERED_MOVE = (
    "this update changes the row's key and carries no commit ts, so it cannot be ordered among the changes of its "
    "transaction: let TiCDC split such updates (output-raw-change-event = false), or have it write commit ts"
)
_DELETE_WITHOUT_KEY = (
    "this delete does not carry the whole key that identifies rows in the target: TiCDC wrote it with "
    "delete-only-output-handle-key-columns = true; set that to false in the changefeed's [sink]"
)


def lost_row(table: TablePlan) -> str:
    """Return why an update of a keyless table that does not show its old row cannot be applied."""
    return (
        "this row does not show which row it replaced, and the table has no key: set `[sink.csv] "
        f"output-old-value = true` in the changefeed, or give {table.name} a primary key"
    )


class RowBuffer:
    """Row changes of one version of one table, taken one by one."""

    def __init__(self, table: TablePlan, version: VersionPlan) -> None:
        """Start empty."""
        self._table = table
        self._version = version
        self._key = key_function(table.key, version.key) if version.key else None
        self._key_limits = tuple(
            limit for limit in version.limits if limit.place in version.key and not limit.changed_at
        )
        self._held = _Held()

    def add(self, change: RowChange, rank: int) -> None:
        """Take one row change of the file with this rank. Raise `NotReplicable` or `ValueError` if it cannot be applied as it is."""
        number, commit_ts, operation, values, old = change
        # A delete writes no value, so only the key by which it finds its row is checked.
        if self._version.limits:
            check(values, self._version.limits if operation > DELETE else self._key_limits, commit_ts)
        if self._key is None:
            self._add_event(number, commit_ts, operation, values, old, rank)
            return
        # TiCDC's handle key need not be the key that the target has.
        if operation == PARTIAL_DELETE and any(values[place] is None for place in self._version.key):
            raise NotReplicable(_DELETE_WITHOUT_KEY)
        key, old_key = self._key(values), None if old is None else self._key(old)
        # An update that changes the key is also a delete of the old key, which may go to another bucket.
        moves = old_key not in (None, key)
        birth = operation == INSERT or moves
        self._held.add(commit_ts, order_of(rank, number, upsert=operation > DELETE, birth=birth), values, key)
        if old is not None and moves:
            if not self._table.has_commit_ts:
                raise NotReplicable(_UNORDERED_MOVE)
            check(old, self._key_limits)
            self._held.add(commit_ts, order_of(rank, number, upsert=False), old, old_key)

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
            # Without a key the old row is found by all its values.
            self._held.add(commit_ts, order_of(rank, number, upsert=False), old)
        elif operation == UPDATE and not any(all(values[p] is not None for p in key) for key in self._version.unique):
            raise NotReplicable(lost_row(self._table))
        self._held.add(commit_ts, order_of(rank, number, upsert=operation > DELETE), values)

    def drain(self) -> Changes | None:
        """Return the changes that count of all that are held, with their lines; None if there are none. Nothing is held afterwards."""
        held, self._held = self._held, _Held()
        if not held.ts:
            return None
        ts, order, keys = np.array(held.ts, np.uint64), np.array(held.order, np.int64), compact_keys(held.keys)
        places, orders = counting(ts, order, keys, self._table)
        return Changes(
            ts=ts[places],
            order=orders,
            keys=chosen_keys(keys, places) if self._key else [],
            lines=self._lines(held, places.tolist()),
        )

    def _lines(self, held: _Held, places: Sequence[int]) -> Lines:
        """Return the lines of the changes at these indexes."""
        layout, written, key = self._version.layout, self._version.written, self._version.key
        whole = LineEncoder(layout, written).encode_line
        # A delete's line has the key alone; without a key it has the whole row, which it has to find.
        key_only = LineEncoder(layout, key).encode_line if key else whole
        return Lines.of([(whole if is_upsert(held.order[place]) else key_only)(held.rows[place]) for place in places])


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
