"""The events of a table without a key: in sequence, each as often as the source made it, and what is left of many of them."""

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
"""Bytes of memory that a row takes beside its line: the object's head, its places in a dictionary and in a list."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Events:
    """Events in sequence; every column has one entry for each of them, and at one commit ts deletes come first."""

    ts: Unsigned
    """Commit ts, never smaller than the one before."""
    upserts: NDArray[np.bool_]
    """Whether the event leaves a row behind."""
    lines: list[bytes]
    """The row that comes or goes; see `decode.wire_format`."""

    def __len__(self) -> int:
        """How many."""
        return len(self.lines)

    def by_commit_ts(self) -> Iterator[tuple[int, list[tuple[bool, bytes]]]]:
        """Each commit ts with its events."""
        told = zip(self.ts.tolist(), self.upserts.tolist(), self.lines, strict=True)
        for ts, events in groupby(told, key=itemgetter(0)):
            yield ts, [(upsert, line) for _, upsert, line in events]

    def part(self, start: int, end: int) -> Events:
        """Those from place `start` (inclusive) to `end` (exclusive)."""
        return Events(ts=self.ts[start:end], upserts=self.upserts[start:end], lines=self.lines[start:end])

    def pieces(self, most: int) -> Iterator[Events]:
        """The same in parts that cut no commit ts, of at most so many events where no commit ts has more."""
        start = 0
        while len(self) - start > most:
            following = self.ts[start + most]
            end = int(np.searchsorted(self.ts, following))
            if end <= start:  # one commit ts has more
                end = int(np.searchsorted(self.ts, following, side="right"))
            yield self.part(start, end)
            start = end
        if start < len(self):
            yield self.part(start, len(self))

    def after(self, checkpoint: int) -> Events:
        """Those that are not in the target at this checkpoint."""
        due = bisect(self.ts, False, key=lambda ts: not is_applied(int(ts), checkpoint))  # noqa: FBT003 - what `key` tells of the others
        return self.part(due, len(self)) if due else self


def in_parts(pieces: Iterable[tuple[int, bytes]]) -> Iterator[Events]:
    """A table's events from what tasks sent of them, each as often as the source made it, in parts that cut no commit ts.

    `pieces`: see `folding.in_sequence`.
    """
    return map(_delivered_once, in_sequence(pieces))


def _delivered_once(part: Changes) -> Events:
    """What was delivered several times, once. A commit ts that is in one file only was delivered once: a file holds one pass."""
    found = Events(ts=part.ts, upserts=is_upsert(part.order), lines=list(part.lines))
    files = rank_of(part.order)
    starts = np.flatnonzero(np.append(True, part.ts[1:] != part.ts[:-1]))
    ends = np.append(starts[1:], len(part))
    in_several = np.minimum.reduceat(files, starts) != np.maximum.reduceat(files, starts)
    if not in_several.any():
        return found
    pieces: list[Events] = []
    done = 0
    for start, end in zip(starts[in_several].tolist(), ends[in_several].tolist(), strict=True):
        events = delivered_once(zip(part.order[start:end].tolist(), found.lines[start:end], strict=True))
        pieces += found.part(done, start), _at(part.ts[start], events)
        done = end
    return _joined([*pieces, found.part(done, len(found))])


def _at(ts: np.uint64, events: Sequence[tuple[bool, bytes]]) -> Events:
    """Events of one commit ts."""
    upserts = np.array([upsert for upsert, _ in events], np.bool_)
    return Events(ts=np.full(len(events), ts), upserts=upserts, lines=[line for _, line in events])


def _joined(parts: Sequence[Events]) -> Events:
    """All events of some parts, of which there is at least one."""
    return Events(
        ts=np.concatenate([part.ts for part in parts]),
        upserts=np.concatenate([part.upserts for part in parts]),
        lines=list(chain.from_iterable(part.lines for part in parts)),
    )


class Net:
    """What events in sequence come to: rows to delete, by number, and then rows to insert, which leave behind what all events do.

    Rows whose lines are equal are one row to everyone, so of each line only numbers count: a delete takes back an equal insert
    before it, and lines do not touch one another. An insert does not make up for a delete before it: each delete that is left has
    to find a row that was in the table before all these events.
    """

    def __init__(self) -> None:
        """Of no events."""
        self.inserts: Counter[bytes] = Counter()
        self.deletes: Counter[bytes] = Counter()
        self.deleted_at: dict[bytes, int] = {}
        """Of each row to delete the commit ts of the first delete that is left."""
        self.met = 0
        """How many deletes there were, those that took back an insert among them."""
        self.size = 0
        """Bytes of memory that all this takes, about."""

    def add(self, events: Events) -> None:
        """Some more events. What is not deleted among them goes in all at once; the others one by one, in their sequence."""
        lines = events.lines
        doomed = set(compress(lines, (~events.upserts).tolist()))
        if not doomed:
            self._insert(lines)
            return
        is_doomed = np.fromiter(map(doomed.__contains__, lines), np.bool_, len(lines))
        self._insert(list(compress(lines, (~is_doomed).tolist())))
        places = np.flatnonzero(is_doomed)
        told = zip(events.upserts[places].tolist(), events.ts[places].tolist(), places.tolist(), strict=True)
        for upsert, ts, place in told:
            if upsert:
                self._insert(lines[place : place + 1])
            else:
                self._delete(lines[place], ts)

    def _insert(self, lines: Sequence[bytes]) -> None:
        self.inserts.update(lines)
        self.size += sum(map(len, lines)) + ROW_COST * len(lines)

    def _delete(self, line: bytes, ts: int) -> None:
        self.met += 1
        if count := self.inserts.get(line):
            self.size -= len(line) + ROW_COST
            self.inserts[line] = count - 1
            if count == 1:
                del self.inserts[line]
        else:
            self.size += len(line) + ROW_COST
            self.deletes[line] += 1
            self.deleted_at.setdefault(line, ts)
