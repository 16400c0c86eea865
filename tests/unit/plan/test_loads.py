"""The clock of a load, and which parts a job takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.model import TableName
from storage_consumer.plan.loads import Load, LoadPhase, clock_of, end_of, next_slices, part_before

MOST_PARTS = 2**31 - 2


def load(*, parts: int, done: int = 0, name: str = "a") -> Load:
    """A load of some parts."""
    return Load(
        table_key=f"`s`.`{name}`",
        name=TableName(schema="s", table=name),
        load_id="1",
        source="file:///x",
        phase=LoadPhase.LOADING,
        parts=parts,
        done=done,
    )


@given(st.integers(1, MOST_PARTS), st.integers(1, 2**32 - 2))
def test_the_clock_grows_with_parts_and_rows(part: int, row: int) -> None:
    """Rows of a part lie between the end of the one before and its own, and fit into a signed 64-bit integer."""
    assert end_of(part - 1) < clock_of(part, row) < clock_of(part, row + 1) <= end_of(part) < 2**63


@given(st.integers(0, MOST_PARTS))
def test_the_end_of_a_part_is_the_only_clock_at_which_it_is_written(part: int) -> None:
    """Before its end a part has to be read again; at its end it need not be."""
    assert part_before(end_of(part)) == part
    assert part_before(clock_of(part + 1, 5)) == part


def test_nothing_is_written_at_first() -> None:
    """A load begins before its first part."""
    assert (load(parts=2).parts_done, load(parts=2).is_written) == (0, False)
    assert load(parts=0).is_written


@pytest.mark.parametrize(
    ("sizes", "done", "most", "expected"),
    [
        ((5, 5, 5), 0, 10, (1, 2)),
        ((5, 5, 5), 0, 14, (1, 2)),
        ((5, 5, 5), 0, 15, (1, 3)),
        ((50, 5), 0, 10, (1, 1)),
        ((5, 5, 5), 1, 100, (2, 3)),
        ((0, 0), 0, 0, (1, 2)),
    ],
)
def test_a_slice_is_as_large_as_it_may_be(
    sizes: tuple[int, ...], done: int, most: int, expected: tuple[int, int]
) -> None:
    """Parts are taken in order, as many as fit, and at least one."""
    (found,) = next_slices([(load(parts=len(sizes), done=end_of(done)), sizes)], most)
    assert (found.first, found.last) == expected


def test_what_one_load_leaves_goes_to_the_next() -> None:
    """Small tables share a job; a load for which nothing is left waits, and a written one takes nothing."""
    small, written = load(parts=1, name="small"), load(parts=1, name="written", done=end_of(1))
    large, late = load(parts=3, name="large"), load(parts=1, name="late")
    found = next_slices([(small, (2,)), (written, (9,)), (large, (4, 4, 4)), (late, (1,))], 10)
    assert [(each.load.name.table, each.first, each.last) for each in found] == [("small", 1, 1), ("large", 1, 2)]
