"""What is left of many events of a table without a key."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from storage_consumer.target import keyless
from storage_consumer.target.keyless import netted, portions

CHANCE = random.Random(11)  # noqa: S311 - data, not a secret


def test_deletes_take_back_inserts() -> None:
    """A delete takes back an equal insert before it, never one behind it: that delete has to find a row in the table."""
    events = [(True, b"a"), (False, b"a"), (False, b"b"), (True, b"b"), (True, b"c"), (True, b"c"), (False, b"c")]
    assert netted(events) == (Counter({b"b": 1}), [b"b", b"c"])


def test_any_history() -> None:
    """Whatever the history, deleting what is left and then inserting what is left gives the same rows as all events in turn."""
    for _ in range(300):
        rows = before = Counter(CHANCE.choices([b"a", b"b", b"c"], k=4))
        rows = before.copy()
        events = []
        for _ in range(CHANCE.randrange(20)):
            line = CHANCE.choice([b"a", b"b", b"c"])
            upsert = not rows[line] or CHANCE.random() < 0.5
            rows[line] += 1 if upsert else -1
            events.append((upsert, line))
        deletes, inserts = netted(events)
        assert all(before[line] >= count for line, count in deletes.items())
        assert +(before - deletes + Counter(inserts)) == +rows


def test_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups share a transaction up to a number of events and of bytes, and no group is cut."""
    groups = [(ts, [(True, b"x" * size)] * count) for ts, size, count in ((1, 1, 2), (2, 1, 9), (3, 90, 1), (4, 1, 1))]
    monkeypatch.setattr(keyless, "PORTION_SIZE", 80)
    assert [[ts for ts, _ in portion] for portion in portions(groups, lambda: 3)] == [[1, 2], [3], [4]]
    assert list(portions([], lambda: 3)) == []
