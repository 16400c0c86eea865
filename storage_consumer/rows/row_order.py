"""A table's changes in columns: what tasks hold, what the shuffle carries, and what counts.

There are millions of them, so NumPy does all work per change wherever keys are integers.

The decoder gives changes one by one and in batches, often both from one file. They leave a `Buffer`
together, as blocks. Small files are read together, as if they were one: a flush every few seconds
leaves thousands of them. The cost of decoding a batch hardly depends on its number of rows: for
files of 12 KiB it exceeded the cost of the rows.
"""

from __future__ import annotations

import marshal
from bisect import bisect
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from storage_consumer.config.table_filter import skipped_in
from storage_consumer.decode.decoder import Batch, Decoder, FileRead, RowChange, Tally, Values
from storage_consumer.decode.kernels.arrays import (
    DELETE,
    INSERT,
    PARTIAL_DELETE,
    UPDATE,
    Flags,
    Offsets,
    Places,
    Stamps,
)
from storage_consumer.decode.kernels.row_lines import Lines
from storage_consumer.decode.wire_format import LineEncoder
from storage_consumer.errors import NotReplicable
from storage_consumer.model import CommitRange
from storage_consumer.rows.fitting import check
from storage_consumer.rows.row_keys import (
    Key,
    bucket_function,
    compares_texts,
    delivered_once,
    is_birth,
    is_integer,
    is_upsert,
    key_function,
    order_of,
    rank_of,
    sequence_of,
    stripes,
)
from storage_consumer.rows.spec import JobFile, TablePlan, VersionPlan
from storage_consumer.tso import is_applied

Keys = Offsets | list[Key]
"""An array if all keys are integers that it can hold, otherwise a list."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Changes:
    """Changes of one table, in any order; every column has one entry for each of them."""

    ts: Stamps
    """Commit-ts of each change."""
    order: Offsets
    """The order at one commit-ts; see `row_keys.order_of`."""
    keys: Keys
    """The key of each change; empty for a table without a key."""
    lines: Lines
    """The written columns of an upsert, the key's columns of a delete; see `decode.wire_format`."""

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self.lines)

    def pairs(self) -> Iterator[tuple[int, bytes]]:
        """Yield the order and the line of each change."""
        return zip(self.order.tolist(), self.lines, strict=True)

    def chosen(self, places: Places, order: Offsets | None = None) -> Changes:
        """Return the changes at these indexes, in this order; `order`: their new orders, if any."""
        return Changes(
            ts=self.ts[places],
            order=self.order[places] if order is None else order,
            keys=chosen_keys(self.keys, places) if len(self.keys) else [],
            lines=self.lines.chosen(places),
        )

    def part(self, start: int, end: int) -> Changes:
        """Return the changes from index `start` (inclusive) to `end` (exclusive)."""
        some = slice(start, end)
        return Changes(
            ts=self.ts[some], order=self.order[some], keys=self.keys[some], lines=self.lines[some]
        )

    def pieces(self, most: int) -> Iterator[Changes]:
        """Yield changes in sequence by whole commit-ts, at most `most` unless one has more."""
        start = 0
        while len(self) - start > most:
            following = self.ts[start + most]
            # Back to where the commit-ts at the border begins.
            end = int(np.searchsorted(self.ts, following))
            if end <= start:  # this commit-ts alone has more
                end = int(np.searchsorted(self.ts, following, side="right"))
            yield self.part(start, end)
            start = end
        if start < len(self):
            yield self.part(start, len(self))

    def after(self, checkpoint: int) -> Changes:
        """Return, of changes in sequence, those that are not in the target at this checkpoint."""
        due = bisect(self.ts, False, key=lambda ts: not is_applied(int(ts), checkpoint))  # noqa: FBT003 - the value that `key` has for the others
        return self.part(due, len(self)) if due else self

    def packed(self) -> bytes:
        """Return the changes as one piece, for the shuffle."""
        keys = self.keys.data if isinstance(self.keys, np.ndarray) else self.keys
        lines, ends = self.lines.packed()
        # Buffers as they are, so that no number becomes an object on the way. What is held is sent
        # long before 4 GiB, so 32 bits are enough for places in it.
        return marshal.dumps(
            (self.ts.data, self.order.data, keys, lines.data, ends.astype(np.uint32).data)
        )


def unpacked(piece: bytes) -> Changes:
    """Return the changes that `Changes.packed` encoded; at least one."""
    ts, order, keys, lines, ends = marshal.loads(piece)  # noqa: S302 - written by the first half of this very job
    return Changes(
        ts=np.frombuffer(ts, np.uint64),
        order=np.frombuffer(order, np.int64),
        keys=np.frombuffer(keys, np.int64) if isinstance(keys, bytes) else keys,
        lines=Lines.side_by_side(
            np.frombuffer(lines, np.uint8), np.frombuffer(ends, np.uint32).astype(np.int64)
        ),
    )


def together(parts: Sequence[Changes]) -> Changes:
    """Return the changes of all parts, of which there is at least one."""
    if len(parts) == 1:
        return parts[0]
    return Changes(
        ts=np.concatenate([part.ts for part in parts]),
        order=np.concatenate([part.order for part in parts]),
        keys=joined_keys([part.keys for part in parts]),
        lines=Lines.joined([part.lines for part in parts]),
    )


def in_sequence(pieces: Iterable[tuple[int, bytes]]) -> Iterator[Changes]:
    """Yield changes of keyless tables by commit-ts and order, in parts of whole commit-ts.

    `pieces`: each with its lowest commit-ts, in this order, and each sorted by commit-ts. A piece
    is unpacked only when the sequence has reached its lowest commit-ts.
    """
    opened: list[tuple[Changes, int]] = []
    for lowest, piece in pieces:
        # No later piece begins below `lowest`, so all changes below it are open by now.
        opened = yield from _below(opened, lowest)
        opened.append((unpacked(piece), 0))
    yield from _below(opened, None)


def _below(
    opened: Iterable[tuple[Changes, int]], border: int | None
) -> Generator[Changes, None, list[tuple[Changes, int]]]:
    """Yield changes below commit-ts `border` (None: all) from starts `opened`; return the rest."""
    due: list[Changes] = []
    rest: list[tuple[Changes, int]] = []
    for changes, start in opened:
        # As unsigned: with a signed border both would be inexact floats.
        end = (
            len(changes) if border is None else int(np.searchsorted(changes.ts, np.uint64(border)))
        )
        if end > start:
            due.append(changes.part(start, end))
        if end < len(changes):
            rest.append((changes, end))
    if due:
        part = together(due)
        # One piece alone mostly is in sequence, and a look costs less than a sort.
        ts, order = part.ts, part.order
        is_sorted = bool(
            ((ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (order[1:] > order[:-1]))).all()
        )
        yield part if is_sorted else part.chosen(np.lexsort((order, ts)))
    return rest


def latest(ts: Stamps, order: Offsets, keys: Keys, table: TablePlan) -> tuple[Places, Offsets]:
    """Return the indexes of the last change of each key, and their orders.

    They are sorted by key if keys are integers, else by each key's first change.
    """
    if isinstance(keys, np.ndarray):
        codes = keys
    else:
        # The same number for equal keys, by first occurrence, since keys are returned in the order
        # of these numbers.
        numbers: dict[Key, int] = {}
        codes = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    # strictly ascending: each key occurs once, as new rows mostly do
    if (codes[1:] > codes[:-1]).all():
        return np.arange(len(codes)), order
    # Sorted by key, commit-ts, order: the last of each run of equal keys counts.
    sequence = np.lexsort((sequence_of(order, has_commit_ts=table.has_commit_ts), ts, codes))
    codes = codes[sequence]
    is_last = np.empty(len(codes), np.bool_)
    is_last[-1:] = True
    np.not_equal(codes[1:], codes[:-1], out=is_last[:-1])
    places = sequence[is_last]
    # Elsewhere no other row can be in the way, so nobody asks.
    if not compares_texts(table.key):
        return places, order[places]
    return places, order[places] | _born(ts[sequence], order[sequence], is_last)


def _born(ts: Stamps, order: Offsets, is_last: Flags) -> Flags:
    """Return for each key whether its last change's life began among these sequenced changes."""
    places = np.arange(len(order))
    ends = places[is_last]
    starts = np.append(0, ends[:-1] + 1)[: len(ends)]
    # A change delivered again is no new one: a delete's repeats end no earlier life.
    is_new = np.append(True, (ts[1:] != ts[:-1]) | is_last[:-1])[: len(ts)]
    first = np.maximum.accumulate(np.where(is_new, places, 0))
    upsert = is_upsert(order)
    # A delete has the bit where what is left of a piece is the end of such a life.
    births = np.maximum.accumulate(np.where(is_birth(order), places, -1))
    deaths = np.append(-1, np.maximum.accumulate(np.where(upsert, -1, places)))
    found: Flags = births[ends] > np.maximum(deaths[first[ends]], starts - 1)
    return found


def counting(ts: Stamps, order: Offsets, keys: Keys, table: TablePlan) -> tuple[Places, Offsets]:
    """Return indexes and orders of changes that count: each key's last, or all keyless events.

    Events are in sequence.
    """
    if table.key:
        return latest(ts, order, keys, table)
    places = np.lexsort((order, ts))
    return places, order[places]


def folded(changes: Changes, table: TablePlan) -> Changes:
    """Return the changes that count."""
    return changes.chosen(*counting(changes.ts, changes.order, changes.keys, table))


def joined_keys(parts: Sequence[Keys]) -> Keys:
    """Return the keys of all parts, one after the other."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts):
        return np.concatenate(arrays)
    # One part with another sort of key makes all of them a list.
    return list(chain.from_iterable(listed_keys(part) for part in parts))


def listed_keys(keys: Keys) -> list[Key]:
    """Return the keys as a list."""
    return keys.tolist() if isinstance(keys, np.ndarray) else keys


def chosen_keys(keys: Keys, places: Places) -> Keys:
    """Return the keys at these indexes."""
    return (
        keys[places] if isinstance(keys, np.ndarray) else [keys[place] for place in places.tolist()]
    )


def compact_keys(keys: list[Key]) -> Keys:
    """Return the keys as an array if all are integers that fit, otherwise unchanged."""
    if all(type(key) is int for key in keys):
        try:
            return np.array(keys, np.int64)
        # BIGINT UNSIGNED goes beyond a signed integer.
        except OverflowError:
            return keys
    return keys


def in_parts(pieces: Iterable[tuple[int, bytes]]) -> Iterator[Changes]:
    """Yield a table's events, each as often as at the source, in parts of whole commit-ts.

    `pieces`: see `in_sequence`. A commit-ts that occurs in one file only was delivered once: a file
    holds one pass.
    """
    for part in in_sequence(pieces):
        files = rank_of(part.order)
        starts = np.flatnonzero(np.append(True, part.ts[1:] != part.ts[:-1]))
        ends = np.append(starts[1:], len(part))
        # Lowest and highest rank differ exactly if the commit-ts is in several files. Usually none
        # is, and no Python loop runs.
        in_several = np.minimum.reduceat(files, starts) != np.maximum.reduceat(files, starts)
        found: list[Changes] = []
        done = 0
        for start, end in zip(starts[in_several].tolist(), ends[in_several].tolist(), strict=True):
            events = delivered_once(part.part(start, end).pairs())
            order = np.array([order_of(0, 0, upsert=upsert) for upsert, _ in events], np.int64)
            lines = Lines.of([line for _, line in events])
            # What lies between two such commit-ts stays as it is.
            found.append(part.part(done, start))
            found.append(
                Changes(ts=np.full(len(events), part.ts[start]), order=order, keys=[], lines=lines)
            )
            done = end
        yield together([*found, part.part(done, len(part))]) if found else part


NOTICE, CHANGES, REPORT = 0, 1, 2
"""Kinds of shuffled items, in the order in which a bucket must see them."""
FLUSH_BYTES = 32 << 20
"""File bytes after which all that is held of one table is sent, even in the middle of a file."""
FLUSH_ROWS = 100_000
"""Row changes after which it is sent."""
BLOCK_ROWS, BLOCK_BYTES = 5_000, 512 << 10
"""Most changes and about the file bytes in a shuffled block: Spark holds many in memory."""
PIECE_BYTES = 256 << 10
"""Bytes of a file that are decoded in one piece."""

Place = tuple[int, int, int, int]
"""(bucket, kind, table index, lowest commit-ts): the bucket of an item and its sort key there."""
Block = tuple[Place, bytes]
"""Encoded changes of one bucket, and where they go."""
SMALL_BYTES = 64 << 10
"""Files of fewer bytes are read together, up to `PIECE_BYTES` in all."""
LEAST_BYTES = 32 << 10
"""Least number of bytes that are read together: fewer are faster one by one."""
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

    def __init__(self, table: TablePlan, version: VersionPlan, partitions: int) -> None:
        """Start empty; `partitions`: the number of buckets."""
        self._table = table
        self.version = version
        """The version that all its changes are of."""
        self._partitions = partitions
        self._key = key_function(table.key, version.key) if version.key else None
        self._key_of_texts = key_function(table.key, range(len(table.key)))
        self._key_limits = tuple(
            limit for limit in version.limits if limit.place in version.key and not limit.changed_at
        )
        self._single: list[tuple[int, int, Values, Key]] = []
        """Commit-ts, order, values and key of each change that came by itself."""
        self._made: list[Changes] = []
        """Those that came in batches."""
        self._taken = 0
        """Row changes received since the last ones were sent."""
        self._read = 0
        """Bytes of files read in the same time."""
        # A batch's values are not read one by one; the loops find only rows with a commit-ts.
        self.takes_batches = bool(version.written and table.has_commit_ts) and not (
            version.limits or version.misfit or version.is_all_duplicates
        )
        """Whether changes can be taken in batches."""

    def read(self, decoder: Decoder, file: FileRead, rank: int) -> Iterator[Block]:
        """Take and tally a file's changes; yield all that is held whenever it is much.

        Raises `NotReplicable`, naming file and row, for a change that cannot be applied, and what
        the decoder raises.
        """
        tally = file.tally
        file = replace(file, blocks=self._measured(file.blocks))
        for change in decoder.changes(file) if self.takes_batches else decoder.rows(file):
            # Every row is a repeated delivery, decoded only to be counted.
            if self.version.is_all_duplicates:
                tally.duplicates += 1
            elif self.version.is_uncompared:
                tally.taken += 1
            else:
                try:
                    tally.taken += (
                        self.take(change, rank)
                        if isinstance(change, tuple)
                        else self.take_batch(change, rank)
                    )
                except (ValueError, NotReplicable) as fault:
                    place = fault.place if isinstance(fault, BadKey) else 0
                    number, ts = (
                        change[:2]
                        if isinstance(change, tuple)
                        else (int(change.numbers[place]), int(change.ts[place]))
                    )
                    raise NotReplicable(
                        f"{file.source}, row {number}, commit ts {ts}: {fault}"
                    ) from fault
                if self.is_full:
                    yield from self.blocks()

    def _measured(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield a file's content in pieces that fit a processor's cache, counted when read."""
        for block in blocks:
            for start in range(0, len(block), PIECE_BYTES):
                piece = block[start : start + PIECE_BYTES]
                # Counted when consumed: `is_full` goes by what was decoded, not by what a block
                # holds.
                self._read += len(piece)
                yield piece

    @property
    def is_full(self) -> bool:
        """Whether so much is held that it should be sent."""
        return self._taken >= FLUSH_ROWS or self._read >= FLUSH_BYTES

    def blocks(self) -> Iterator[Block]:
        """Yield everything that is held, encoded, by bucket; the buffer is empty afterwards."""
        # Changes per block, by the average size of what is held; before counters are reset.
        rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES * self._taken // max(1, self._read)))
        # Before the first yield, so that changes added between two blocks are not lost.
        self._taken = self._read = 0
        changes = self.drain()
        if changes is None:
            return
        keys, table = changes.keys, self._table
        if not table.key:
            # Tables without a key share a bucket only if there are more tables than buckets.
            buckets: Offsets = np.full(len(changes), table.index % self._partitions)
        # An array if all keys are integers; a row of another structure may have brought in a text.
        elif isinstance(keys, np.ndarray):
            buckets = stripes(keys, self._partitions, table.stripe_bits)
        else:
            buckets = np.array(
                [*map(bucket_function(table.key, self._partitions, table.stripe_bits), keys)]
            )
        for bucket in np.unique(buckets).tolist():
            places = np.flatnonzero(buckets == bucket)
            for first in range(0, len(places), rows):
                block = changes.chosen(places[first : first + rows])
                yield (bucket, CHANGES, table.index, int(block.ts.min())), block.packed()

    def drain(self) -> Changes | None:
        """Return the held changes that count, with lines, or None; nothing is held afterwards."""
        found = [folded(together(self._made), self._table)] if self._made else []
        held, self._single, self._made = self._single, [], []
        if held:
            every_ts, every_order, rows, every_key = zip(*held, strict=True)
            ts, order = np.array(every_ts, np.uint64), np.array(every_order, np.int64)
            keys: Keys = compact_keys(list(every_key)) if self._key else []
            places, orders = counting(ts, order, keys, self._table)
            layout, written, key = self.version.layout, self.version.written, self.version.key
            whole = LineEncoder(layout, written).encode_line
            # A delete's line has only the key; without a key the whole row, which it must find.
            key_only = LineEncoder(layout, key).encode_line if key else whole
            lines = [
                (whole if is_upsert(every_order[n]) else key_only)(rows[n]) for n in places.tolist()
            ]
            chosen = chosen_keys(keys, places) if self._key else keys
            found.append(Changes(ts=ts[places], order=orders, keys=chosen, lines=Lines.of(lines)))
        # One key may have changes of both kinds.
        return (
            found[0] if len(found) == 1 else folded(together(found), self._table) if found else None
        )

    # one by one

    def take(self, change: RowChange, rank: int) -> int:
        """Take a row change of the file of this rank; raise `NotReplicable` or `ValueError`."""
        if self.version.misfit:
            raise NotReplicable(self.version.misfit)
        self._taken += 1
        number, commit_ts, operation, values, old = change
        # A delete writes no value, so only the key by which it finds its row is checked.
        if self.version.limits:
            check(
                values, self.version.limits if operation > DELETE else self._key_limits, commit_ts
            )
        if self._key is None:
            # Every event counts, and an old row is found by all its values. An update without one
            # can still be applied if a unique key of the row holds no NULL: TiCDC splits updates
            # that change such a key, so the row to replace is the one with this very key.
            if operation == PARTIAL_DELETE:
                raise NotReplicable(_DELETE_WITHOUT_KEY)
            if old is not None and operation == UPDATE:
                self._single.append((commit_ts, order_of(rank, number, upsert=False), old, 0))
            elif operation == UPDATE and not any(
                all(values[p] is not None for p in k) for k in self.version.unique
            ):
                raise NotReplicable(lost_row(self._table))
            self._single.append(
                (commit_ts, order_of(rank, number, upsert=operation > DELETE), values, 0)
            )
            return 1
        # TiCDC's handle key need not be the key that the target has.
        if operation == PARTIAL_DELETE and any(values[place] is None for place in self.version.key):
            raise NotReplicable(_DELETE_WITHOUT_KEY)
        key, old_key = self._key(values), None if old is None else self._key(old)
        # An update of the key is also a delete of the old key, maybe in another bucket.
        moves = old_key not in (None, key)
        birth = operation == INSERT or moves
        self._single.append(
            (commit_ts, order_of(rank, number, upsert=operation > DELETE, birth=birth), values, key)
        )
        if old is not None and old_key is not None and moves:
            if not self._table.has_commit_ts:
                raise NotReplicable(_UNORDERED_MOVE)
            check(old, self._key_limits)
            self._single.append((commit_ts, order_of(rank, number, upsert=False), old, old_key))
        return 1

    # in batches

    def take_batch(self, batch: Batch, rank: int | Offsets, size: int = 0) -> int:
        """Take a batch of `size` bytes that `read` has not read.

        Returns its number of changes, where an update that is a delete and an insert counts as one.
        `rank`: the rank of the file, or of each change's file. Raises `BadKey`, having taken none.
        """
        if not len(batch.ts):
            self._read += size
            return 0
        places = order_of(rank, batch.numbers, upsert=False)
        order = places + np.where(batch.operations > DELETE, order_of(0, 0, upsert=True), 0)
        if self._table.key:
            self._take_states(batch, places, order)
        else:
            updates = np.flatnonzero(batch.operations == UPDATE)
            has_key = np.zeros(len(updates), np.bool_)
            for key in self.version.unique:
                columns = [batch.texts(place, updates) for place in key]
                # TiCDC splits updates that change a unique key, so a whole one still finds the row
                # that it replaces.
                has_key |= np.array(
                    [None not in texts for texts in zip(*columns, strict=True)], np.bool_
                )
            if not has_key.all():
                raise BadKey(int(updates[~has_key][0]), lost_row(self._table))
            lines = batch.lines(self.version.written, np.arange(len(order)))
            self._made.append(Changes(ts=batch.ts, order=order, keys=[], lines=lines))
        # The delete and the insert of one update are adjacent and share rank and row number.
        taken = len(order) - int((places[1:] == places[:-1]).sum())
        self._taken += taken
        self._read += size
        return taken

    def _take_states(self, batch: Batch, places: Offsets, order: Offsets) -> None:
        """Take changes of keyed rows, and their births; `places`: orders without operation.

        Raise `BadKey` for the first change without a usable key.
        """
        key, rows = self.version.key, np.arange(len(order))
        keys: Keys | None = batch.integers(key[0]) if is_integer(self._table.key) else None
        if keys is None:
            found: list[Key] = []
            try:
                for texts in zip(*(batch.texts(place, rows) for place in key), strict=True):
                    found.append(self._key_of_texts(texts))  # noqa: PERF401 - the number of keys shows which one failed
            except ValueError as fault:
                raise BadKey(len(found), str(fault)) from fault
            keys = compact_keys(found)
        order = order + (batch.operations == INSERT)
        seconds = np.flatnonzero(places[1:] == places[:-1]) + 1
        if len(seconds):
            if isinstance(keys, np.ndarray):
                stays = keys[seconds] == keys[seconds - 1]
            else:
                stays = np.array(
                    [keys[place] == keys[place - 1] for place in seconds.tolist()], np.bool_
                )
            # An update that is a delete and an insert and leaves the key as it is becomes the one
            # change that it is.
            order[seconds[stays]] -= 1
            rows = np.delete(rows, seconds[stays] - 1)
        is_delete = batch.operations[rows] == DELETE
        for columns, some in (
            (self.version.written, rows[~is_delete]),
            (self.version.key, rows[is_delete]),
        ):
            if len(some):
                lines = batch.lines(columns, some)
                self._made.append(
                    Changes(
                        ts=batch.ts[some],
                        order=order[some],
                        keys=chosen_keys(keys, some),
                        lines=lines,
                    )
                )


def lost_row(table: TablePlan) -> str:
    """Return why an update of a keyless table that does not show its old row cannot be applied."""
    return (
        "this row does not show which row it replaced, and the table has no key: set `[sink.csv] "
        f"output-old-value = true` in the changefeed, or give {table.name} a primary key"
    )


def runs(files: Iterable[JobFile]) -> Iterator[list[JobFile]]:
    """Yield the files in their sequence; adjacent files that may be read together share a list."""
    run: list[JobFile] = []
    size = 0
    for work in files:
        is_small = work.size < SMALL_BYTES
        if run and not (is_small and size + work.size <= PIECE_BYTES):
            yield run
            run, size = [], 0
        run.append(work)
        # After a large file the run counts as full, so that it stays alone.
        size += work.size if is_small else PIECE_BYTES + 1
    if run:
        yield run


def read_together(
    run: Sequence[JobFile],
    contents: Sequence[bytes],
    commit_range: CommitRange,
    buffer: Buffer,
    decoder: Decoder,
) -> list[Tally] | None:
    """Take the changes of these files into the buffer; return the tally of each file.

    Returns None, having taken none, if each file has to be read by itself. `contents`: fewer than
    files if one is gone.
    """
    size, layout = sum(map(len, contents)), buffer.version.layout
    if len(contents) < len(run) or size < LEAST_BYTES:
        return None
    if skipped_in(decoder.skips, layout.table, commit_range):
        return None
    found = decoder.together(contents, layout, commit_range, buffer.version.key)
    if found is None:
        return None
    try:
        buffer.take_batch(found.batch, np.array([work.rank for work in run])[found.files], size)
    except BadKey:  # reading each file by itself finds the file and the row
        return None
    for tally in found.tallies:
        # Every row inside the commit range is one change, also an update of two rows.
        tally.taken = tally.inside
    return found.tallies
