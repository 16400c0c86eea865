"""Whether a bucket still holds the changefeed that was read before, or another one that was given the emptied prefix.

Known of the former one are the schema files that were read and the numbered files that were finished. Each names a table version,
a TSO of the source, so files of another changefeed have other ones. Nothing is concluded from files that are gone: old
dates expire, and schema files are deleted manually. Nor from ``metadata`` that went back: a changefeed that is resumed from an older
checkpoint writes its rows once more, beside the files that it wrote before.

But if none of the known files is left and others are there, it matters where these begin. At or shortly before the checkpoint that was
read, by as much as TiCDC loses in a restart, they hold every row after it: so does a changefeed that goes on in a prefix that was cleaned up.
Beyond it, rows in between are in neither, or were deleted unread. Well before it, they are no continuation: all rows up to that checkpoint
would pass for repeats.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from storage_consumer.errors import ConfigError
from storage_consumer.model import folder_of, is_ahead_of_clock, physical_ms
from storage_consumer.poll.metadata import RESTART_MS, clock_time
from storage_consumer.storage.paths import with_all_above
from storage_consumer.telemetry import tso_time


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


def doubts(before: Before, there: Collection[tuple[str, int]], latest: int, place: str, way_on: str) -> tuple[str, int]:
    """Return a warning about a bucket of which everything was listed, and the TSO where its files begin; "" and 0 if there is no doubt.

    `there`: table directory and version of what it holds. `latest`: the value in its ``metadata``. `way_on`: what to do if it is another
    changefeed's, or lacks rows after the checkpoint: then this raises `ConfigError`.
    """
    # Nothing was read before, or nothing is there now: neither proves anything.
    if not (before.checkpoint and there and (before.sequences or before.schema_files)) or _is_any_known(there, before):
        return "", 0
    # The oldest version shows how far back the files that are there begin.
    table_dir, first = min(there, key=lambda version: version[1])
    # If the checkpoint in `metadata` went back, the rows that follow begin there. The same one may still be the former changefeed's.
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
    """Raise `ConfigError` if the highest checkpoint in a state is one that no bucket can have reported yet; `now` as in `Clock.now`.

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

    One from after what was applied counts only where none from before was known: any changefeed that began before it writes it.
    """
    applied = before.applied or before.checkpoint
    if any(version <= applied for _, version in before.schema_files):
        there = [each for each in there if each[1] <= applied]
    if any(version in before.schema_files for version in there):
        return True
    folders = {folder for sequence in before.sequences for folder in with_all_above(folder_of(sequence))}
    return any(f"{table_dir}/{version}" in folders for table_dir, version in there)
