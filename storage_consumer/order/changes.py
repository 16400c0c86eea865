"""Changes of one table in columns: what a task holds of them, what the shuffle carries, and which change of a key counts.

There are millions of them, so NumPy does all work per change wherever keys are integers.
"""

from __future__ import annotations

import marshal
from bisect import bisect
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from storage_consumer.job.spec import TablePlan
from storage_consumer.kernels.row_lines import Lines
from storage_consumer.order.keys import (
    Key,
    compares_texts,
    delivered_once,
    is_birth,
    is_upsert,
    rank_of,
    sequence_of,
)
from storage_consumer.tso import is_applied

Integers = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
Places = NDArray[np.intp]
Keys = Integers | list[Key]
"""An array if all keys are integers that it can hold, otherwise a list."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Changes:
    """Changes of one table, in any order; every column has one entry for each of them."""

    ts: Unsigned
    """Commit-ts of each change."""
    order: Integers
    """The order at one commit-ts; see `order.keys.order_of`."""
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

    def chosen(self, places: Places, order: Integers | None = None) -> Changes:
        """Return the changes at these indexes, in this order; `order`: their orders, where these are others by now."""
        return Changes(
            ts=self.ts[places],
            order=self.order[places] if order is None else order,
            keys=chosen_keys(self.keys, places) if len(self.keys) else [],
            lines=self.lines.chosen(places),
        )

    def packed(self) -> bytes:
        """Return the changes as one piece, for the shuffle."""
        keys = self.keys.data if isinstance(self.keys, np.ndarray) else self.keys
        lines, ends = self.lines.packed()
        # Buffers as they are, so that no number becomes an object on the way. What is held is sent long before 4 GiB,
        # so 32 bits are enough for places in it.
        return marshal.dumps((self.ts.data, self.order.data, keys, lines.data, ends.astype(np.uint32).data))


def unpacked(piece: bytes) -> Changes:
    """Return the changes that `Changes.packed` encoded; at least one."""
    ts, order, keys, lines, ends = marshal.loads(piece)  # noqa: S302 - written by the first half of this very job
    return Changes(
        ts=np.frombuffer(ts, np.uint64),
        order=np.frombuffer(order, np.int64),
        keys=np.frombuffer(keys, np.int64) if isinstance(keys, bytes) else keys,
        lines=Lines.side_by_side(np.frombuffer(lines, np.uint8), np.frombuffer(ends, np.uint32).astype(np.int64)),
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
    """Yield changes of tables without a key by commit-ts and order, in parts that do not cut a commit-ts.

    `pieces`: each with its lowest commit-ts, in this order, and each sorted by commit-ts. A piece is unpacked only when
    the sequence has reached its lowest commit-ts.
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
    """Yield the changes with commit-ts below `border` (None: all) from the given starts in `opened` on; return the rest."""
    due: list[Changes] = []
    rest: list[tuple[Changes, int]] = []
    for changes, start in opened:
        # As unsigned: with a signed border both would become floats, which do not hold a commit-ts exactly.
        end = len(changes) if border is None else int(np.searchsorted(changes.ts, np.uint64(border)))
        if end > start:
            due.append(changes if end - start == len(changes) else changes.chosen(np.arange(start, end)))
        if end < len(changes):
            rest.append((changes, end))
    if due:
        part = together(due)
        # One piece alone mostly is in sequence, and a look costs less than a sort.
        yield part if _is_in_sequence(part) else part.chosen(np.lexsort((part.order, part.ts)))
    return rest


def _is_in_sequence(part: Changes) -> bool:
    """Return whether the changes are sorted by commit-ts and order."""
    ts, order = part.ts, part.order
    return bool(((ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (order[1:] > order[:-1]))).all())


def latest(ts: Unsigned, order: Integers, keys: Keys, table: TablePlan) -> tuple[Places, Integers]:
    """Return the indexes of the last change of each key, and their orders.

    They are sorted by key if keys are integers, else by each key's first change.
    """
    codes = keys if isinstance(keys, np.ndarray) else _numbered(keys)
    if (codes[1:] > codes[:-1]).all():  # strictly ascending: each key occurs once, as new rows mostly do
        return np.arange(len(codes)), order
    # Sorted by key, then commit-ts, then order: the last of each run of equal keys is the one that counts.
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


def _born(ts: Unsigned, order: Integers, is_last: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return of each key's last change whether the life that it continues or ends began among its changes, which are in sequence."""
    places = np.arange(len(order))
    ends = places[is_last]
    starts = np.append(0, ends[:-1] + 1)[: len(ends)]
    # A change that is delivered again is no change more: a delete's own repeats end no earlier life.
    is_new = np.append(True, (ts[1:] != ts[:-1]) | is_last[:-1])[: len(ts)]
    first = np.maximum.accumulate(np.where(is_new, places, 0))
    upsert = is_upsert(order)
    # A delete has the bit where what is left of a piece is the end of such a life.
    births = np.maximum.accumulate(np.where(is_birth(order), places, -1))
    deaths = np.append(-1, np.maximum.accumulate(np.where(upsert, -1, places)))
    found: NDArray[np.bool_] = births[ends] > np.maximum(deaths[first[ends]], starts - 1)
    return found


def counting(ts: Unsigned, order: Integers, keys: Keys, table: TablePlan) -> tuple[Places, Integers]:
    """Return the indexes of the changes that count, and their orders: the last one of each key, or every event of a keyless table in sequence."""
    if table.key:
        return latest(ts, order, keys, table)
    places = np.lexsort((order, ts))
    return places, order[places]


def folded(changes: Changes, table: TablePlan) -> Changes:
    """Return the changes that count."""
    return changes.chosen(*counting(changes.ts, changes.order, changes.keys, table))


def _numbered(keys: Iterable[Key]) -> Integers:
    """Return a number for each key, the same one for equal keys."""
    numbers: dict[Key, int] = {}
    # By first occurrence, since `latest` returns keys in the order of these numbers.
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


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
    return keys[places] if isinstance(keys, np.ndarray) else [keys[place] for place in places.tolist()]


def compact_keys(keys: list[Key]) -> Keys:
    """Return the keys as an array if all are integers that fit, otherwise unchanged."""
    if all(type(key) is int for key in keys):
        try:
            return np.array(keys, np.int64)
        # BIGINT UNSIGNED goes beyond a signed integer.
        except OverflowError:
            return keys
    return keys


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Events:
    """Events in sequence; every column has one entry for each of them, and at one commit-ts deletes come first."""

    ts: Unsigned
    """Commit-ts of each event, never smaller than the one before."""
    upserts: NDArray[np.bool_]
    """Whether the event leaves a row in place."""
    lines: list[bytes]
    """The row that is added or removed; see `decode.wire_format`."""

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.lines)

    def by_commit_ts(self) -> Iterator[tuple[int, list[tuple[bool, bytes]]]]:
        """Yield each commit-ts with its events."""
        events = zip(self.ts.tolist(), self.upserts.tolist(), self.lines, strict=True)
        for ts, together in groupby(events, key=itemgetter(0)):
            yield ts, [(upsert, line) for _, upsert, line in together]

    def part(self, start: int, end: int) -> Events:
        """Return the events from index `start` (inclusive) to `end` (exclusive)."""
        return Events(ts=self.ts[start:end], upserts=self.upserts[start:end], lines=self.lines[start:end])

    def pieces(self, most: int) -> Iterator[Events]:
        """Yield the events in parts that do not cut a commit-ts, of at most `most` events unless one commit-ts has more."""
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

    def after(self, checkpoint: int) -> Events:
        """Return the events that are not in the target at this checkpoint."""
        due = bisect(self.ts, False, key=lambda ts: not is_applied(int(ts), checkpoint))  # noqa: FBT003 - the value that `key` has for the others
        return self.part(due, len(self)) if due else self


def in_parts(pieces: Iterable[tuple[int, bytes]]) -> Iterator[Events]:
    """Yield a table's events from what tasks sent, each as often as it occurred at the source, in parts that cut no commit-ts.

    `pieces`: see `in_sequence`.
    """
    return map(_delivered_once, in_sequence(pieces))


def _delivered_once(part: Changes) -> Events:
    """Return repeated deliveries once. A commit-ts that occurs in one file only was delivered once: a file holds one pass."""
    found = Events(ts=part.ts, upserts=is_upsert(part.order), lines=list(part.lines))
    files = rank_of(part.order)
    starts = np.flatnonzero(np.append(True, part.ts[1:] != part.ts[:-1]))
    ends = np.append(starts[1:], len(part))
    # Lowest and highest rank differ exactly if the commit-ts is in several files. Usually none is, and no Python loop runs.
    in_several = np.minimum.reduceat(files, starts) != np.maximum.reduceat(files, starts)
    if not in_several.any():
        return found
    pieces: list[Events] = []
    done = 0
    for start, end in zip(starts[in_several].tolist(), ends[in_several].tolist(), strict=True):
        events = delivered_once(zip(part.order[start:end].tolist(), found.lines[start:end], strict=True))
        # What lies between two such commit-ts stays as it is.
        pieces += found.part(done, start), _at(part.ts[start], events)
        done = end
    return _joined([*pieces, found.part(done, len(found))])


def _at(ts: np.uint64, events: Sequence[tuple[bool, bytes]]) -> Events:
    """Return events of one commit-ts."""
    upserts = np.array([upsert for upsert, _ in events], np.bool_)
    return Events(ts=np.full(len(events), ts), upserts=upserts, lines=[line for _, line in events])


def _joined(parts: Sequence[Events]) -> Events:
    """Return the events of all parts, of which there is at least one."""
    return Events(
        ts=np.concatenate([part.ts for part in parts]),
        upserts=np.concatenate([part.upserts for part in parts]),
        lines=list(chain.from_iterable(part.lines for part in parts)),
    )
