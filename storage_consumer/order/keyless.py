"""The events of a table without a key: in sequence, each as often as it occurred at the source, and their net effect."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from storage_consumer.order.changes import Changes, Unsigned, in_sequence
from storage_consumer.order.keys import delivered_once, is_upsert, rank_of
from storage_consumer.tso import is_applied

ROW_COST = 100
"""Bytes of memory that a row takes besides its line: the object header, its slots in a dictionary and in a list."""


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

    `pieces`: see `order.changes.in_sequence`.
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


class Net:
    """The net effect of events in sequence: rows to delete, counted, and then rows to insert, with the same result as all events.

    Nothing distinguishes rows with equal lines, so only the count of each line matters: a delete cancels an equal insert
    before it, and different lines do not affect each other. An insert does not cancel a delete before it: each
    remaining delete has to find a row that was in the table before all these events.
    """

    def __init__(self) -> None:
        """Start without events."""
        self.inserts: Counter[bytes] = Counter()
        self.deletes: Counter[bytes] = Counter()
        self.deleted_at: dict[bytes, int] = {}
        """For each row to delete, the commit-ts of its first remaining delete."""
        self.met = 0
        """The number of deletes, including those that cancelled an insert."""
        self.size = 0
        """Approximate bytes of memory that all this takes."""

    def add(self, events: Events) -> None:
        """Add events. Lines that none of them deletes are added in bulk, the others one by one in sequence."""
        lines = events.lines
        doomed = set(compress(lines, (~events.upserts).tolist()))
        if not doomed:
            self._insert(lines)
            return
        is_doomed = np.fromiter(map(doomed.__contains__, lines), np.bool_, len(lines))
        # Different lines do not affect each other, so only those that are deleted somewhere need their sequence.
        self._insert(list(compress(lines, (~is_doomed).tolist())))
        places = np.flatnonzero(is_doomed)
        doomed_events = zip(events.upserts[places].tolist(), events.ts[places].tolist(), places.tolist(), strict=True)
        for upsert, ts, place in doomed_events:
            if upsert:
                self._insert(lines[place : place + 1])
            else:
                self._delete(lines[place], ts)

    def _insert(self, lines: Sequence[bytes]) -> None:
        self.inserts.update(lines)
        self.size += sum(map(len, lines)) + ROW_COST * len(lines)

    def _delete(self, line: bytes, ts: int) -> None:
        self.met += 1
        # The insert is among these events too: neither of the two reaches the target.
        if count := self.inserts.get(line):
            self.size -= len(line) + ROW_COST
            self.inserts[line] = count - 1
            if count == 1:
                del self.inserts[line]
        else:
            self.size += len(line) + ROW_COST
            self.deletes[line] += 1
            # The first one is reported if the target has no such row.
            self.deleted_at.setdefault(line, ts)
