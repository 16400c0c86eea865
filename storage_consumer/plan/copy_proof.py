"""The proof that no change lies between a copy and the changefeed: that the changefeed began at or before the copy."""

from __future__ import annotations

from storage_consumer.model import physical_ms, tso_of
from storage_consumer.telemetry import tso_time
from storage_consumer.tso import begins_in_time

_AHEAD_MS = 10 * 60 * 1000
"""How far the source's clock, by which the TSO of a copy is made, may be ahead of another one."""
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


def is_in_future(low: int, now_ms: float) -> bool:
    """Return whether no source can have issued the TSO of a copy yet; `now_ms`: milliseconds since 1970-01-01 UTC by another clock."""
    return physical_ms(low) > now_ms + _AHEAD_MS


def refused_future(low: int, now: float, storage_checkpoint: int) -> str:
    """Return why a copy that is as of the TSO `low` cannot be used, or "": all that the bucket brings up to then would be left out.

    `now`: seconds by our clock, which may be wrong; the source's clock has reached the checkpoint that the bucket reports.
    """
    latest = max(now * 1000, physical_ms(storage_checkpoint))
    if not is_in_future(low, latest):
        return ""
    return (
        f"the copy is as of {_shown(low)}, which is in the future: the clock of this machine shows {tso_time(tso_of(now))}, and the bucket's checkpoint is "
        f"{_shown(storage_checkpoint) if storage_checkpoint else 'not there yet'}. If the clock is wrong, set it and try again. If it is "
        "right, the `Pos` in the export's metadata is damaged: export again"
    )


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
        "its start-ts: --start-ts TSO (start_ts=TSO in Python), or --config with what `cdc cli changefeed query` prints; or take a new copy, which is then later "
        "than that checkpoint"
        + ("" if first_storage_checkpoint else ", once the bucket has `metadata` and this program has seen it")
    )


def _shown(ts: int) -> str:
    return f"{ts} ({tso_time(ts)})"
