"""The ``metadata`` file: ``{"checkpoint-ts":449000000000000001}``, overwritten in place by TiCDC.

Whether a bucket still holds the changefeed that was read before, or another one that was given the
emptied prefix.

Known of the former one are the schema files that were read and the numbered files that were
finished. Each names a table version, a TSO of the source, so files of another changefeed have other
ones. Nothing is concluded from files that are gone: old dates expire, and schema files are deleted
manually. Nor from ``metadata`` that went back: a changefeed that is resumed from an older
checkpoint writes its rows once more, beside the files that it wrote before.

But if none of the known files is left and others are there, it matters where these begin. At or
shortly before the checkpoint that was read, by as much as TiCDC loses in a restart, they hold every
row after it: so does a changefeed that goes on in a prefix that was cleaned up. Beyond it, rows in
between are in neither, or were deleted unread. Well before it, they are no continuation: all rows
up to that checkpoint would pass for repeats.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from storage_consumer.bucket.paths import with_all_above
from storage_consumer.errors import ConfigError, StorageUnavailable
from storage_consumer.model import (
    CLOCK_MARGIN_MS,
    MAX_TSO,
    folder_of,
    is_ahead_of_clock,
    physical_ms,
)
from storage_consumer.telemetry import tso_time

RESTART_MS = 600_000
"""How far, in milliseconds, ``metadata`` may go back while one process watches before everything is
listed again. A new owner of TiCDC continues from what the former one left in etcd, which is a
moment old; a changefeed resumed from an older point goes back further.
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
        # The last value that was read, None for no file. -1 is neither, so that the first reading
        # is news whatever it says.
        self._last: int | None = -1

    def update(self, content: bytes | None, now: float) -> tuple[str, ...]:
        """Process the content (None: no file); return new warnings for an operator, each once.

        `now`: seconds since 1970-01-01 UTC. Raises `StorageUnavailable` if the file is gone, or has
        gone so far back that it may be another changefeed's: then everything known of the bucket
        has to be listed again.
        """
        if content is None:
            if self.checkpoint:
                raise StorageUnavailable(
                    f"metadata is gone, though TiCDC never deletes it; its last value was {self.checkpoint} "
                    f"({tso_time(self.checkpoint)}). Nothing more is read until it is back. Is the file system mounted, "
                    "is the prefix still the same? If it was "
                    "emptied for another changefeed, that one needs a state of its own (--state-schema)"
                )
            known, self._last = self._last, None
            said = (
                "there is no metadata file yet: nothing is applied until TiCDC writes its first checkpoint. If the "
                "changefeed has been running for a while, the upstream URI names another folder than its sink URI"
            )
            return () if known is None else (said,)
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
            texts = self._refused(
                f"metadata says checkpoint-ts {ts}, and the last good value {self.checkpoint} stays: {ahead_of_clock(ts, now)}"
            )
            return texts if ts != known else ()
        known, self._last, before, self.latest = self._last, ts, self.latest, ts
        # Compared with the latest value, not with the highest one. `latest` has moved already, so
        # this is raised once, and the next poll goes on from the lower value.
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


def ahead_of_clock(ts: int, now: float) -> str:
    """Return why a TSO can't be valid, and what to check."""
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
    """Return the checkpoint-ts, an exact integer; None if the content is torn or not TiCDC's."""
    try:
        document = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    ts = document.get("checkpoint-ts") if isinstance(document, dict) else None
    # In Python a bool is an int, but true is no TSO.
    return ts if isinstance(ts, int) and not isinstance(ts, bool) and 0 <= ts <= MAX_TSO else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What is known of a bucket from before."""

    checkpoint: int
    """Highest checkpoint-ts of ``metadata`` that it read."""
    applied: int = 0
    """Commit-ts up to which (inclusive) no table lacks a row of it; 0: the checkpoint."""
    sequences: Collection[str]
    """The numbered sequences of which it finished files, see `DataFile.sequence`."""
    schema_files: Collection[tuple[str, int]]
    """Table directory and version of the schema files that it read."""
    place: str = ""
    """Where it was read, see `Upstream.identity`; empty: in this place."""


WAY_ON = (
    "Give it a state of its own (--state-schema) and a target without the former one's tables, or an empty target without the state "
    "schema; its rows from before it began come from a copy (--dump). If the former changefeed's files lie elsewhere by now, bind the state to that "
    "place: storage-consumer rebind --upstream-uri URI"
)


def doubts(
    before: Before, there: Collection[tuple[str, int]], latest: int, place: str, way_on: str
) -> tuple[str, int]:
    """Return a warning on a fully listed bucket and the TSO where files begin, or "" and 0.

    `there`: table directory and version of what it holds. `latest`: the value in its ``metadata``.
    `way_on`: what to do if it is another changefeed's, or lacks rows after the checkpoint: then
    this raises `ConfigError`.
    """
    # Nothing was read before, or nothing is there now: neither proves anything.
    if not (
        before.checkpoint and there and (before.sequences or before.schema_files)
    ) or _is_any_known(there, before):
        return "", 0
    # The oldest version shows how far back the files that are there begin.
    table_dir, first = min(there, key=lambda version: version[1])
    # If the checkpoint in `metadata` went back, the rows that follow begin there. The same one may
    # still be the former changefeed's.
    begin = min(latest, first) if 0 < latest < before.checkpoint else first
    elsewhere = before.place not in ("", place)
    where = f"in {before.place}, is in {place}" if elsewhere else f"is in {place} any more"
    gone = f"none of the files that were read before {where}, and others are there, the oldest in {table_dir}/{first}"
    read = f"up to the checkpoint {before.checkpoint} ({tso_time(before.checkpoint)})"
    applied = before.applied or before.checkpoint
    if begin > applied:
        why = (
            f"{gone}, which begin at {begin} ({tso_time(begin)}). Rows of the former ones were taken up to {applied} ({tso_time(applied)}): those "
            "in between are lost, since another changefeed began later, or they were deleted unread"
        )
    elif elsewhere or physical_ms(before.checkpoint) - physical_ms(begin) > RESTART_MS:
        why = (
            f"{gone}, which begin at {begin} ({tso_time(begin)}). This is another changefeed than the one that was read {read}: "
            "its rows up to there would be treated as duplicates"
        )
    else:
        said = (
            f"{gone}. They are taken as the continuation of what was read {read}: they begin at {begin}, so no row after that is missing if "
            f"it is the same source. If it is another one, stop. {way_on}"
        )
        return said, begin
    raise ConfigError(f"{why}. So nothing of it was taken. {way_on}")


def refuse_ahead_of_clock(checkpoint: int, state_schema: str, now: float) -> None:
    """Raise `ConfigError` if a state's highest checkpoint is in the future; `now`: `Clock.now`.

    A damaged ``metadata`` was believed: every row that came after it passed for a repeat.
    """
    if is_ahead_of_clock(checkpoint, now):
        raise ConfigError(
            f"the state schema {state_schema} says that everything up to {checkpoint} ({tso_time(checkpoint)}) was "
            f"applied, but the clock of this machine shows {clock_time(now)}. If the clock is wrong, set it and "
            "start again. If it is right, a damaged "
            "metadata was believed, and rows that came after it were treated as duplicates: they are missing in the "
            "target. Then reload all tables: empty those of the target, and give this bucket a state of its own "
            "(--state-schema)"
        )


def _is_any_known(there: Collection[tuple[str, int]], before: Before) -> bool:
    """Return whether one of these versions was read before, or has files that were finished.

    One from after what was applied counts only where none from before was known: any changefeed
    that began before it writes it.
    """
    applied = before.applied or before.checkpoint
    if any(version <= applied for _, version in before.schema_files):
        there = [each for each in there if each[1] <= applied]
    if any(version in before.schema_files for version in there):
        return True
    folders = {
        folder for sequence in before.sequences for folder in with_all_above(folder_of(sequence))
    }
    return any(f"{table_dir}/{version}" in folders for table_dir, version in there)
