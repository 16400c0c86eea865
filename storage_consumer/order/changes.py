"""Changes of one table in columns: what a task holds of them, what the shuffle carries, and which of a key's changes counts.

There are millions of them, so what is done to each is done by NumPy wherever keys are integers.
"""

from __future__ import annotations

import marshal
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from storage_consumer.kernels.row_lines import Lines
from storage_consumer.order.keys import Key, is_upsert, sequence_of

Integers = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
Places = NDArray[np.intp]
Keys = Integers | list[Key]
"""An array where all keys are integers that it can hold, else a list."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Changes:
    """Changes of one table, in any sequence; every column has one entry for each of them."""

    ts: Unsigned
    """Commit ts."""
    order: Integers
    """What comes first at one commit ts; see `ordering.order_of`."""
    keys: Keys
    """Empty for a table without a key."""
    lines: Lines
    """The written columns of an upsert, the key's columns of a delete; see `decode.wire_format`."""

    def __len__(self) -> int:
        """How many."""
        return len(self.lines)

    def pairs(self) -> Iterator[tuple[bool, bytes]]:
        """Of each change whether it leaves a row behind, and its line."""
        return zip(is_upsert(self.order).tolist(), self.lines, strict=True)

    def chosen(self, places: Places) -> Changes:
        """Those at these places, in the same sequence."""
        return Changes(
            ts=self.ts[places],
            order=self.order[places],
            keys=chosen_keys(self.keys, places) if len(self.keys) else [],
            lines=self.lines.chosen(places),
        )

    def packed(self) -> bytes:
        """As one piece, for the shuffle."""
        keys = self.keys.data if isinstance(self.keys, np.ndarray) else self.keys
        lines, ends = self.lines.packed()
        return marshal.dumps((self.ts.data, self.order.data, keys, lines.data, ends.astype(np.uint32).data))


def unpacked(piece: bytes) -> Changes:
    """What `Changes.packed` made of at least one change."""
    ts, order, keys, lines, ends = marshal.loads(piece)  # noqa: S302 - made by the first half of this very job
    return Changes(
        ts=np.frombuffer(ts, np.uint64),
        order=np.frombuffer(order, np.int64),
        keys=np.frombuffer(keys, np.int64) if isinstance(keys, bytes) else keys,
        lines=Lines.side_by_side(np.frombuffer(lines, np.uint8), np.frombuffer(ends, np.uint32).astype(np.int64)),
    )


def together(parts: Sequence[Changes]) -> Changes:
    """All changes of some parts, of which there is at least one."""
    if len(parts) == 1:
        return parts[0]
    return Changes(
        ts=np.concatenate([part.ts for part in parts]),
        order=np.concatenate([part.order for part in parts]),
        keys=joined_keys([part.keys for part in parts]),
        lines=Lines.joined([part.lines for part in parts]),
    )


def in_sequence(pieces: Iterable[tuple[int, bytes]]) -> Iterator[Changes]:
    """Changes of tables without a key by commit ts and order, in parts that cut no commit ts.

    `pieces`: each with its lowest commit ts, by which they come, and of which each is sorted by commit ts. One is unpacked only
    when the sequence has come to its lowest commit ts.
    """
    opened: list[tuple[Changes, int]] = []
    for lowest, piece in pieces:
        opened = yield from _below(opened, lowest)
        opened.append((unpacked(piece), 0))
    yield from _below(opened, None)


def _below(
    opened: Iterable[tuple[Changes, int]], border: int | None
) -> Generator[Changes, None, list[tuple[Changes, int]]]:
    """The changes with commit ts below `border` (None: all), of those that begin at a place in `opened`; returns the others."""
    due: list[Changes] = []
    rest: list[tuple[Changes, int]] = []
    for changes, start in opened:
        end = len(changes) if border is None else int(np.searchsorted(changes.ts, np.uint64(border)))
        if end > start:
            due.append(changes if end - start == len(changes) else changes.chosen(np.arange(start, end)))
        if end < len(changes):
            rest.append((changes, end))
    if due:
        part = together(due)
        yield part if _is_in_sequence(part) else part.chosen(np.lexsort((part.order, part.ts)))
    return rest


def _is_in_sequence(part: Changes) -> bool:
    """Whether its changes come by commit ts and order."""
    ts, order = part.ts, part.order
    return bool(((ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (order[1:] > order[:-1]))).all())


def latest(ts: Unsigned, order: Integers, keys: Keys, *, timed: bool) -> Places:
    """The places of the last change of each key: by key if keys are integers, else by their first changes.

    `timed`: see `ordering.sequence_of`.
    """
    codes = keys if isinstance(keys, np.ndarray) else _numbered(keys)
    if (codes[1:] > codes[:-1]).all():  # new rows, most often
        return np.arange(len(codes))
    sequence = np.lexsort((sequence_of(order, timed=timed), ts, codes))
    codes = codes[sequence]
    is_last = np.empty(len(codes), np.bool_)
    is_last[-1:] = True
    np.not_equal(codes[1:], codes[:-1], out=is_last[:-1])
    return sequence[is_last]


def _numbered(keys: Iterable[Key]) -> Integers:
    """A number for each key, the same one for equal keys."""
    numbers: dict[Key, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def joined_keys(parts: Sequence[Keys]) -> Keys:
    """The keys of all parts, one behind the other."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts):
        return np.concatenate(arrays)
    return list(chain.from_iterable(listed_keys(part) for part in parts))


def listed_keys(keys: Keys) -> list[Key]:
    """The same keys as a list."""
    return keys.tolist() if isinstance(keys, np.ndarray) else keys


def chosen_keys(keys: Keys, places: Places) -> Keys:
    """The keys at these places."""
    return keys[places] if isinstance(keys, np.ndarray) else [keys[place] for place in places.tolist()]


def compact_keys(keys: list[Key]) -> Keys:
    """The same keys as an array if all are integers that fit."""
    if all(type(key) is int for key in keys):
        try:
            return np.array(keys, np.int64)
        except OverflowError:
            return keys
    return keys
