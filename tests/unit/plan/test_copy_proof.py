"""That nothing lies between a copy and the changefeed is proven, or the copy is refused."""

from __future__ import annotations

import pytest

from storage_consumer.plan.copies import gap_proof

COPY = 449660184420352001


@pytest.mark.parametrize(
    ("start_ts", "first_checkpoint"),
    [(COPY, 0), (COPY - 1, 0), (1, COPY + 1), (0, COPY), (0, COPY - 1), (0, 1), (COPY, COPY + 1)],
)
def test_a_changefeed_that_began_at_or_before_the_copy_is_proof(start_ts: int, first_checkpoint: int) -> None:
    """A start-ts that was given, or else the checkpoint that was seen first, at or before the copy leaves no gap."""
    assert gap_proof(COPY, start_ts, first_checkpoint) == ""


@pytest.mark.parametrize("first_checkpoint", [0, 1, COPY - 1, COPY, COPY + 1, COPY + 2])
def test_a_later_start_is_always_refused(first_checkpoint: int) -> None:
    """Whatever was seen of the bucket: a start-ts after the copy leaves a gap, and both ways to close it are named."""
    found = gap_proof(COPY, COPY + 1, first_checkpoint)
    assert f"start-ts {COPY + 1} (2024-05-10T" in found
    assert f"later than the copy {COPY} (2024-05-10T" in found
    assert "Either take a new copy" in found
    assert f"or make a new changefeed at the copy, `cdc cli changefeed create --start-ts={COPY}`" in found


@pytest.mark.parametrize(
    ("first_checkpoint", "seen"),
    [
        (0, "no checkpoint of it has been seen"),
        (COPY + 1, f"the first checkpoint that was seen of it is {COPY + 1} (2024-05-10T"),
    ],
)
def test_an_unknown_start_is_refused(first_checkpoint: int, seen: str) -> None:
    """Without a start-ts and without an early checkpoint nothing is proven; a bucket without `metadata` proves nothing either."""
    found = gap_proof(COPY, 0, first_checkpoint)
    assert seen in found
    assert (
        "Either give its start-ts: --start-ts TSO (start_ts=TSO in Python), or --config with what `cdc cli changefeed query` prints"
        in found
    )
    assert "or take a new copy" in found


@pytest.mark.parametrize("start_ts", range(4))
@pytest.mark.parametrize("first_checkpoint", range(4))
def test_no_gap_is_ever_proven_away(start_ts: int, first_checkpoint: int) -> None:
    """Of all small worlds, only those are proven in which the changefeed surely has what the copy at 2 lacks."""
    begins_at_most_at = start_ts or first_checkpoint
    assert (gap_proof(2, start_ts, first_checkpoint) == "") is (0 < begins_at_most_at <= 2)
