"""Which events of a table without a key share a transaction."""

from __future__ import annotations

import pytest

from storage_consumer.target.keyless import Portion, portions
from tests.unit.halves import as_events


@pytest.mark.parametrize("in_turn", [True, False])
def test_portions(in_turn: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """Parts share a transaction until it has enough, and no part is cut."""
    sizes = ((1, 1, 2), (2, 1, 9), (3, 90, 1), (4, 1, 1))
    parts = [part for ts, size, count in sizes for part in as_events((ts, [(True, b"x" * size)] * count))]
    found = portions(parts, lambda portion: portion.events >= 3 or portion.size >= 80, in_turn=in_turn)
    bounds = [(portion.first, portion.last, portion.events) for portion in found]
    assert bounds == ([(1, 2, 11), (3, 3, 1), (4, 4, 1)] if in_turn else [(1, 1, 2), (2, 2, 9), (3, 3, 1), (4, 4, 1)])
    assert list(portions([], lambda _: True, in_turn=in_turn)) == []


def test_size() -> None:
    """What is taken back takes no memory; what is left does, by its text and more."""
    portion = Portion(in_turn=False)
    events = [(True, b"a" * 1_000), (False, b"a" * 1_000), (False, b"b" * 100), (True, b"c" * 10)]
    for part in as_events(*((ts, [event]) for ts, event in enumerate(events, 1))):
        portion.add(part)
    assert 110 < portion.size < 1_000
