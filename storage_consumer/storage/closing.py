"""Which directories of a table TiCDC writes no more, so that the next listing may leave them out.

Leaving one out that still grows would lose rows: metadata's checkpoint would pass them unseen. So a directory is closed only
where TiCDC's own rules forbid another file:

* TiCDC puts rows into the directory of the newest schema file with the table's present checksum. A version is done with once
  a newer one has the same checksum and metadata's checkpoint has reached that newer version, read before the listing began:
  then all rows before it were stored, and so were listed. An older version with a checksum of its own stays open: a DDL that
  the changefeed filters out may bring its structure, and so its directory, back.
* Date directories go by the clock of the writing node; all but the newest two of a version and partition are done with.
* A directory in whose numbers one is missing stays open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from storage_consumer.storage.streams import Directory

OPEN_DATES = 2
"""The newest date directories that may still grow: a table may move to a node whose clock or zone is a day behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What the next listing may leave out of one table."""

    closed: frozenset[str]
    """Directories, with all below them."""
    after: dict[str, str]
    """Directory → file name up to which its own files may be left out."""
    waiting: bool
    """Whether more can be closed once metadata's checkpoint has risen."""


def closing(
    table_dir: str,
    versions: Mapping[int, AbstractSet[int]],
    directories: Mapping[str, Directory],
    *,
    checkpoint: int,
    extension: str,
) -> Closing:
    """Judge one table: `versions` → checksums of its schema files, `directories` → its data directories."""
    done = _superseded(versions, checkpoint)
    by_version: dict[int, list[str]] = defaultdict(list)
    dates: dict[tuple[int, int | None], list[str]] = defaultdict(list)
    for folder, directory in directories.items():
        by_version[directory.placed.version].append(folder)
        dates[directory.placed.version, directory.placed.partition].append(directory.placed.date)
    newest = {key: set(sorted(set(found))[-OPEN_DATES:]) for key, found in dates.items()}
    closed: set[str] = set()
    after: dict[str, str] = {}
    for version, folders in by_version.items():
        if version in done and all(directories[folder].complete for folder in folders):
            closed.add(f"{table_dir}/{version}")
            continue
        for folder in folders:
            directory = directories[folder]
            placed = directory.placed
            grows = version not in done and placed.date in newest[placed.version, placed.partition]
            if not grows and directory.complete:
                closed.add(folder)
            elif mark := directory.mark(extension):
                after[folder] = mark
    waiting = _superseded(versions, max(versions, default=0)) != done
    return Closing(closed=frozenset(closed), after=after, waiting=waiting)


def _superseded(versions: Mapping[int, AbstractSet[int]], checkpoint: int) -> set[int]:
    """Versions of which every checksum has a newer version, at or below `checkpoint`."""
    newest: dict[int, int] = {}
    for version in sorted(versions):
        if version <= checkpoint:
            newest.update(dict.fromkeys(versions[version], version))
    return {
        version
        for version, checksums in versions.items()
        if all(newest.get(checksum, 0) > version for checksum in checksums)
    }
