"""The events of tables without a key: in sequence, once, and what is left of them."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.decode.kernels.row_lines import Lines
from storage_consumer.rows.row_keys import delivered_once, order_of
from storage_consumer.rows.row_order import Changes, in_parts
from storage_consumer.target.keyless import Portion
from tests.harness.twins.writer import by_commit_ts
from tests.unit.halves import as_events

CHANCE = random.Random(11)  # noqa: S311 - data, not a secret
ROWS = [b"a", b"b", b"c"]
Group = tuple[int, list[tuple[bool, bytes]]]


def net_of(*groups: Group) -> Portion:
    """What is left of the events of some commit ts."""
    net = Portion(in_turn=False)
    for part in as_events(*groups):
        for start in range(0, len(part), 3):
            net.add(part.part(start, start + 3))
    return net


def test_deletes_take_back_inserts() -> None:
    """A delete takes back an equal insert before it, never one behind it: that delete has to find a row in the table."""
    events = [(True, b"a"), (False, b"a"), (False, b"b"), (True, b"b"), (True, b"c"), (True, b"c"), (False, b"c")]
    net = net_of(*((ts, [event]) for ts, event in enumerate(events, 1)), (8, [(False, b"b"), (False, b"b")]))
    assert (net.deletes, net.inserts, net.deleted_at) == ({b"b": 2}, {b"c": 1}, {b"b": 3})
    assert net.met == 5


def test_any_history() -> None:
    """Whatever the history, deleting what is left and then inserting what is left gives the same rows as all events in turn."""
    for _ in range(300):
        before = Counter(CHANCE.choices(ROWS, k=4))
        rows = before.copy()
        events = []
        for _ in range(CHANCE.randrange(20)):
            line = CHANCE.choice(ROWS)
            upsert = not rows[line] or CHANCE.random() < 0.5
            rows[line] += 1 if upsert else -1
            events.append((upsert, line))
        net = net_of((1, events))
        assert all(before[line] >= count for line, count in net.deletes.items())
        assert +(before - net.deletes + net.inserts) == +rows


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.sampled_from(ROWS)), min_size=1), max_size=5),
    st.integers(0, 7),
)
def test_in_parts(files: list[list[tuple[int, bool, bytes]]], checkpoint: int) -> None:
    """Whatever is in how many files, each commit ts comes whole and in sequence, with its events as often as they were made."""
    by_ts: dict[int, list[tuple[int, bytes]]] = {}
    pieces = []
    for rank, rows in enumerate(files):
        rows.sort()
        order = [order_of(rank, number, upsert=upsert) for number, (_, upsert, _) in enumerate(rows, 1)]
        for (ts, _, line), place in zip(rows, order, strict=True):
            by_ts.setdefault(ts, []).append((place, line))
        columns = Changes(
            ts=np.array([ts for ts, _, _ in rows], np.uint64),
            order=np.array(order, np.int64),
            keys=[],
            lines=Lines.of([line for _, _, line in rows]),
        )
        pieces.append((rows[0][0], columns.packed()))
    found: list[Group] = []
    for part in in_parts(sorted(pieces, key=lambda piece: piece[0])):
        found += by_commit_ts(part)
        due = [ts for ts, _ in by_commit_ts(part.after(checkpoint))]
        assert due == [ts for ts, _ in by_commit_ts(part) if ts > checkpoint]
    assert [ts for ts, _ in found] == sorted(by_ts)
    for ts, events in found:
        assert Counter(events) == Counter(delivered_once(by_ts[ts]))
        assert [upsert for upsert, _ in events] == sorted(upsert for upsert, _ in events)


@given(st.lists(st.integers(1, 9)).map(sorted), st.integers(1, 5))
def test_pieces(ts: list[int], most: int) -> None:
    """All events are in some piece, in sequence; no commit ts is in two, and none but one of a single commit ts has more than asked."""
    parts = as_events(*((at, [(True, b"%d" % place)]) for place, at in enumerate(ts)))
    pieces = [piece for part in parts for piece in part.pieces(most)]
    assert [line for piece in pieces for line in piece.lines] == [b"%d" % place for place in range(len(ts))]
    told = [set(piece.ts.tolist()) for piece in pieces]
    assert all(len(piece) <= most or len(of) == 1 for piece, of in zip(pieces, told, strict=True))
    assert sum(map(len, told)) == len(set(ts))
