"""The ``metadata`` file: ``{"checkpoint-ts":449000000000000001}``, overwritten in place by TiCDC."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from storage_consumer.errors import StorageUnavailable
from storage_consumer.model import CLOCK_MARGIN_MS, MAX_TSO, is_ahead_of_clock, physical_ms
from storage_consumer.telemetry import tso_time

RESTART_MS = 600_000
"""How far, in milliseconds, ``metadata`` may go back while one process watches before everything is looked up again. A new owner of TiCDC
continues from what the former one left in etcd, which is a moment old; a changefeed resumed from an older point goes back further.
"""
_SHOWN = 60


class Metadata:
    """The highest checkpoint-ts read so far, and what was odd on the way."""

    def __init__(self) -> None:
        """Start before the first reading."""
        self.checkpoint = 0
        """0 until there is one."""
        self.latest = 0
        """The latest readable value of the file; 0 before."""
        self.unreadable = 0
        """Number of times that the file existed but held no valid checkpoint-ts."""
        self.went_back = False
        """Whether it once went so far back that it may be another changefeed's."""
        self.refused = 0
        """The latest value if it lies beyond the clock, so that one of the two is wrong; else 0."""
        # The last value that was read, None for no file. -1 is neither, so that the first reading is news whatever it says.
        self._last: int | None = -1

    def update(self, content: bytes | None, now: float) -> tuple[str, ...]:
        """Process the file's content (None: the file is absent); return warnings for an operator. Each value is reported once.

        `now`: seconds since 1970-01-01 UTC. Raises `StorageUnavailable` if the file is gone, or has gone so far back that it may
        be another changefeed's: then everything known of the bucket has to be looked up again.
        """
        if content is None:
            return self._absent()
        ts = parse_metadata(content)
        if ts is None:
            return self._refused(
                f"metadata holds no checkpoint-ts but {content[:_SHOWN]!r}; the last good value {self.checkpoint} "
                "stays in force. If this lasts, check the changefeed"
            )
        self.refused = ts if is_ahead_of_clock(ts, now) else 0
        # It is not believed, so neither `checkpoint` nor `latest` moves.
        if self.refused:
            known, self._last = self._last, ts
            said = self._refused(
                f"metadata says checkpoint-ts {ts}, and the last good value {self.checkpoint} stays: {ahead_of_clock(ts, now)}"
            )
            return said if ts != known else ()
        return self._taken(ts)

    def _taken(self, ts: int) -> tuple[str, ...]:
        known, self._last, before, self.latest = self._last, ts, self.latest, ts
        # Compared with the latest value, not with the highest one. `latest` has moved already, so this is raised once, and the next
        # poll goes on from the lower value.
        if before and physical_ms(before) - physical_ms(ts) > RESTART_MS:
            self.went_back = True
            raise StorageUnavailable(
                f"metadata went back from {before} ({tso_time(before)}) to {ts} ({tso_time(ts)}); the whole bucket "
                "is listed again, to see whether it is another changefeed's"
            )
        if ts < self.checkpoint and ts != known:
            said = (
                f"metadata went back from {self.checkpoint} to {ts}: the changefeed was resumed from an older point or "
                f"recreated. {self.checkpoint} stays in force, and repeated rows are expected"
            )
            return (said,)
        self.checkpoint = max(self.checkpoint, ts)
        return ()

    def _refused(self, text: str) -> tuple[str, ...]:
        self.unreadable += 1
        return (text,)

    def _absent(self) -> tuple[str, ...]:
        if self.checkpoint:
            raise StorageUnavailable(
                f"metadata is gone, though TiCDC never deletes it; its last value was {self.checkpoint} "
                f"({tso_time(self.checkpoint)}). Nothing more is read until it is back. Is the file system mounted, "
                "is the prefix still the same? If it was "
                "emptied for another changefeed, that one needs a state of its own (--state-schema)"
            )
        known, self._last = self._last, None
        if known is None:
            return ()
        said = (
            "there is no metadata file yet: nothing is applied until TiCDC writes its first checkpoint. If the "
            "changefeed has been running for a while, the upstream URI names another folder than its sink URI"
        )
        return (said,)


def ahead_of_clock(ts: int, now: float) -> str:
    """Return why a TSO can't be valid, and what to look at."""
    hours = CLOCK_MARGIN_MS // 3_600_000
    return (
        f"its time, {tso_time(ts)}, lies more than {hours} hours ahead of the clock of this machine, which shows "
        f"{clock_time(now)}. "
        "If that clock is wrong, as after a start without a time server, set it: nothing is lost meanwhile, and nothing new is "
        "applied. If it is right, the number is damaged, or the source's clock is wrong: check the changefeed"
    )


def clock_time(now: float) -> str:
    """Return the time by this machine's clock, in UTC."""
    return f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} UTC"


def parse_metadata(content: bytes) -> int | None:
    """Return the checkpoint-ts, an exact integer; None where the content is torn or is not what TiCDC writes."""
    try:
        document = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    ts = document.get("checkpoint-ts") if isinstance(document, dict) else None
    # In Python a bool is an int, but true is no TSO.
    return ts if isinstance(ts, int) and not isinstance(ts, bool) and 0 <= ts <= MAX_TSO else None
