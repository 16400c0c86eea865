"""Which directories of a table TiCDC no longer writes to, so that the next listing may leave them out.

Leaving out a directory that still grows would lose rows: metadata's checkpoint would pass them unseen. So a directory is closed
only where TiCDC's own rules forbid another file:

* TiCDC puts rows into the directory of the newest schema file with the table's present checksum. A version is finished once
  a newer one has the same checksum and metadata's checkpoint has reached that newer version, read before the listing began:
  then all rows before it were stored, and so were listed. An older version with a checksum of its own stays open: a DDL that
  the changefeed filters out may bring its structure, and so its directory, back. The new architecture writes the schema file of
  one step of a rename cycle under the last name of its table: it is not a version of the table that has that name meanwhile.
* In the older layout (``schema.json``) each start of a changefeed opens a version, and one that is started from an earlier
  point opens a lower one: so a higher version finishes none. But all of them are finished once TiCDC was upgraded and the
  checkpoint has reached a version of the present layout.
* Date directories follow the clock of the writing node. All but the newest two of a version and partition are finished, if
  their date is well before the checkpoint's: TiCDC never flushes a row before it commits, so a directory of that day or later
  may grow whatever dates a wrong clock has left beside it. Directories of another date-separator are counted apart:
  2024-12 may grow after 2024-12-31. A year that may be a partition is read as one (see `paths`), and no partition is ever
  finished.
* A directory with a missing number stays open.

In a directory that stays open, files up to a *mark* may be left out where TiCDC only continues its numbering. The older layout
begins again at 1 where a changefeed is restarted before or at the directory's version: there is no mark until the checkpoint has
passed that version. And where a changefeed has no partition directories, each partition of a table counts for itself, and a slow
one may rewrite a low number long after a quick one did: a directory without a partition has no mark if that setting was given
or once any file of the table has been rewritten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from storage_consumer.model import physical_ms
from storage_consumer.poll.file_numbers import Directory
from storage_consumer.storage.paths import sequence_of

OPEN_DATES = 2
"""Number of newest date directories that may still grow: a table may move to a node whose clock or zone is a day behind."""
_SLACK = timedelta(days=2)
"""How far a directory's date may lie before the UTC date of the rows in it: the world's time zones span more than a day."""

Versions = Mapping[int, AbstractSet[int | None]]
"""Version → checksums in the names of its schema files; None for a ``schema.json`` of the older layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What the next listing may leave out of one table."""

    closed: frozenset[str]
    """Directories, with everything below them."""
    after: dict[str, str]
    """Sequence of files → the file name up to which (inclusive) they may be left out."""
    waiting: bool
    """Whether more can be left out once metadata's checkpoint has risen."""


def closing(
    table_dir: str,
    versions: Versions,
    directories: Mapping[str, Directory],
    *,
    checkpoint: int,
    extension: str,
    shared: bool = False,
) -> Closing:
    """Judge one table by the `versions` and the data `directories` that were found of it.

    `shared`: several partitions may count for themselves in a directory without a partition.
    """
    done = _superseded(versions, checkpoint)
    # Versions that only the older layout wrote; one that was upgraded has a checksum as well.
    old = {version for version, checksums in versions.items() if checksums == {None}}
    newest, floor = _newest_dates(directories), oldest_open_date(checkpoint)
    closed: set[str] = set()
    after: dict[str, str] = {}
    for version, folders in _by_version(directories).items():
        # Closed as a whole: not even a new partition or a new date can appear below a finished version.
        if version in done and all(directories[folder].complete for folder in folders):
            closed.add(f"{table_dir}/{version}")
            continue
        for folder in folders:
            directory = directories[folder]
            date = directory.placed.date
            # A date is compared at its own precision: only the year of the border counts for a directory 2024.
            grows = version not in done and (date >= floor[: len(date)] or date in newest[_sequence(directory)])
            if not grows and directory.complete:
                closed.add(folder)
            # No mark where TiCDC may write low numbers again: see the last paragraph of the module's docstring.
            elif not (version in old and version >= checkpoint) and not (shared and directory.placed.partition is None):
                marks = directory.marks(extension, fixed_width=version in old)
                after |= {sequence_of(f"{folder}/{mark}"): mark for mark in marks}
    # What the checkpoint alone still holds open: versions that are replaced above it, and marks of the older layout.
    waiting = _superseded(versions, max(versions, default=0)) != done or max(old, default=-1) >= checkpoint
    return Closing(closed=frozenset(closed), after=after, waiting=waiting)


def oldest_open_date(checkpoint: int) -> str:
    """Return the first date (inclusive) whose directory may still receive rows that commit after `checkpoint`."""
    return (datetime.fromtimestamp(physical_ms(checkpoint) / 1000, UTC) - _SLACK).date().isoformat()


def own_versions(versions: Versions, apart: Collection[tuple[int, int | None]]) -> Versions:
    """Return `versions` without the schema files (version, checksum) that say nothing about where the table's own rows go."""
    if not apart:
        return versions
    own = {version: {c for c in checksums if (version, c) not in apart} for version, checksums in versions.items()}
    return {version: checksums for version, checksums in own.items() if checksums}


def _superseded(versions: Versions, checkpoint: int) -> set[int]:
    """Return the versions that a newer one, at or below `checkpoint` (inclusive), has replaced for each of their checksums."""
    newest: dict[int | None, int] = {}
    # In ascending order, so that the newest version of each checksum is the one that stays.
    for version in sorted(versions):
        if version <= checkpoint:
            newest.update(dict.fromkeys(versions[version] - {None}, version))
    # A version of the older layout has no checksum: any newer version of the present layout replaces it.
    newest[None] = max(newest.values(), default=0)
    return {
        version
        for version, checksums in versions.items()
        # All of them: a version with two schema files is finished only when both of its structures went on elsewhere.
        if all(newest.get(checksum, 0) > version for checksum in checksums)
    }


def _by_version(directories: Mapping[str, Directory]) -> dict[int, list[str]]:
    folders: dict[int, list[str]] = defaultdict(list)
    for folder, directory in directories.items():
        folders[directory.placed.version].append(folder)
    return folders


def _newest_dates(directories: Mapping[str, Directory]) -> dict[tuple[int, int | None, int], set[str]]:
    """Return the dates that may still grow, for each sequence of date directories."""
    dates: dict[tuple[int, int | None, int], set[str]] = defaultdict(set)
    for directory in directories.values():
        dates[_sequence(directory)].add(directory.placed.date)
    # Dates of one length sort as texts in the order of time.
    return {sequence: set(sorted(found)[-OPEN_DATES:]) for sequence, found in dates.items()}


def _sequence(directory: Directory) -> tuple[int, int | None, int]:
    """Return version, partition and length of the date: what consecutive date directories have in common."""
    placed = directory.placed
    return placed.version, placed.partition, len(placed.date)
