"""Whether a bucket still holds the changefeed that an earlier run read, or another one that was given the emptied prefix.

Known of the former one are the schema files that were read and the numbered files that were finished. Each names a table version,
a TSO of the source, so files of another changefeed have other ones. Nothing is concluded from files that are gone: old
dates expire, and schema files are deleted manually. Nor from ``metadata`` that went back: a changefeed that is resumed from an older
checkpoint writes its rows once more, beside the files that it wrote before.

But if none of the known files is left and others are there that begin well before the checkpoint that was read, these are not its
continuation: all rows up to that checkpoint would pass for repeats. A changefeed that merely continues in a prefix that was cleaned
up opens its new table versions at its own checkpoint. That may be behind the one that was read by as much as TiCDC loses in a restart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from storage_consumer.errors import ConfigError
from storage_consumer.model import folder_of, is_ahead_of_clock, physical_ms
from storage_consumer.poll.findings import Findings
from storage_consumer.poll.metadata import RESTART_MS, clock_time
from storage_consumer.storage.paths import with_all_above
from storage_consumer.telemetry import tso_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What an earlier run left."""

    checkpoint: int
    """Highest checkpoint-ts of ``metadata`` that it read."""
    sequences: Collection[str]
    """The numbered sequences of which it finished files, see `DataFile.sequence`."""
    schema_files: Collection[tuple[str, int]]
    """Table directory and version of the schema files that it read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """A table version that is in the bucket."""

    table_dir: str
    version: int

    def __str__(self) -> str:
        return f"{self.table_dir}/{self.version}"


def doubts(before: Before, looks: Sequence[Findings], latest: int, place: str) -> tuple[str, ...]:
    """Return warnings about a bucket of which everything was listed; `latest`: the value in its ``metadata``.

    Raises `ConfigError` if it is another changefeed's.
    """
    there = frozenset(_there(looks))
    # Nothing was read before, or nothing is there now: neither proves anything.
    if not (before.checkpoint and there and (before.sequences or before.schema_files)):
        return ()
    if any(look.finished for look in looks) or _is_any_known(there, before):
        return ()
    # The oldest version shows how far back the files that are there begin.
    first = min(there, key=lambda version: version.version)
    # If the checkpoint in `metadata` is lower still, the rows that follow begin there.
    begin = min(latest or first.version, first.version)
    gone = (
        f"none of the files that were read before is in {place} any more, and others are there, the oldest in {first}"
    )
    read = f"up to the checkpoint {before.checkpoint} ({tso_time(before.checkpoint)})"
    # A continuation may begin a little before the checkpoint, by what a restart of TiCDC loses.
    if physical_ms(before.checkpoint) - physical_ms(begin) <= RESTART_MS:
        said = (
            f"{gone}. They are taken as the continuation of what was read {read}. If the prefix was emptied and "
            "given to another "
            "changefeed, rows between the two are missing: then start that one with an empty target and a state of its own"
        )
        return (said,)
    raise ConfigError(
        f"{gone}, which begin at {begin} ({tso_time(begin)}). This is another changefeed than the one that was read {read}: "
        "its rows up to there would be treated as duplicates, so nothing was applied. Give it a state of its own "
        "(--state-schema) and "
        "a target without the former one's tables, or an empty target without the state schema. If the former changefeed's files "
        "lie elsewhere by now, bind the state to that place: storage-consumer rebind --upstream-uri URI"
    )


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


def _there(looks: Iterable[Findings]) -> Iterator[_Version]:
    for look in looks:
        yield from (_Version(table_dir=file.table_dir, version=file.version) for file in look.schema_files)
        yield from (_Version(table_dir=file.table_dir, version=file.version) for file in look.data_files)


def _is_any_known(there: Collection[_Version], before: Before) -> bool:
    """Return whether an earlier run read a schema file of one of these versions, or finished files of it."""
    if any((version.table_dir, version.version) in before.schema_files for version in there):
        return True
    folders = {folder for sequence in before.sequences for folder in with_all_above(folder_of(sequence))}
    return any(str(version) in folders for version in there)
