"""How many tasks write at once."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.spark.spark_session import spread


@given(st.integers(1, 500), st.integers(1, 64))
def test_turns(partitions: int, most: int) -> None:
    """Each partition has its turn once, no turn has more than may be, none is much smaller than another."""
    found = spread(partitions, most)
    assert list(chain(*found)) == list(range(partitions))
    sizes = {len(turn) for turn in found}
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
