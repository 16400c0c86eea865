"""The proof that no change lies between a copy and the changefeed: that the changefeed began at or before the copy."""

from __future__ import annotations

from storage_consumer.telemetry import tso_time
from storage_consumer.tso import begins_in_time

_NEW_FEED = "a new changefeed at the copy, `cdc cli changefeed create --start-ts={low}`, with a prefix of its own"


def gap_proof(low: int, start_ts: int, first_storage_checkpoint: int) -> str:
    """Return an empty text if every change after the copy is in the bucket; else what is missing, with both remedies.

    `low`: the TSO at or below which the copy holds every change. `start_ts`: the changefeed's start-ts, 0 if nobody gave it.
    `first_storage_checkpoint`: the checkpoint of ``metadata`` that this state saw first, 0 if it has seen none. A changefeed's checkpoint
    never lies before its start-ts, so a checkpoint at or before the copy is as good a proof. Files that only look old are none.
    """
    if start_ts:
        return "" if begins_in_time(start_ts, low) else _late(low, start_ts)
    if first_storage_checkpoint and begins_in_time(first_storage_checkpoint, low):
        return ""
    return _unproven(low, first_storage_checkpoint)


def _late(low: int, start_ts: int) -> str:
    return (
        f"the changefeed's start-ts {_shown(start_ts)} is later than the copy {_shown(low)}: the changes between them are in neither. "
        f"Either take a new copy, which is then later than start-ts; or make {_NEW_FEED.format(low=low)}"
    )


def _unproven(low: int, first_storage_checkpoint: int) -> str:
    seen = (
        f"the first checkpoint that was seen of it is {_shown(first_storage_checkpoint)}"
        if first_storage_checkpoint
        else "no checkpoint of it has been seen"
    )
    return (
        f"nothing proves that the changefeed began at or before the copy {_shown(low)}: its start-ts was not given, and {seen}. Either give "
        "its start-ts: --start-ts TSO, or --config with what `cdc cli changefeed query` prints; or take a new copy, which is then later "
        "than that checkpoint"
        + ("" if first_storage_checkpoint else ", once the bucket has `metadata` and this program has seen it")
    )


def _shown(ts: int) -> str:
    return f"{ts} ({tso_time(ts)})"
