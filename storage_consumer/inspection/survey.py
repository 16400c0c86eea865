"""What paths alone show of a bucket: tables, versions, files, layouts. Memory grows with the directories, not the files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from storage_consumer.model import StoredObject
from storage_consumer.poll.copies import Copies
from storage_consumer.storage.paths import (
    COPY,
    DataName,
    Ignored,
    SchemaPath,
    is_of_file_system,
    parse_data_name,
    parse_other,
)

_OLD_SCHEMA = re.compile(r"(.+)/([1-9][0-9]{0,19})/schema\.json", re.DOTALL)
_DATES = {
    "day": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "month": re.compile(r"[0-9]{4}-[0-9]{2}"),
    "year": re.compile(r"[0-9]{4}"),
}
_EMPTY = "empty object"
_UNPLACED = "data file without a schema file"


@dataclass(slots=True, kw_only=True)
class Folder:
    """One directory of data files."""

    path: str
    files: int = 0
    size: int = 0
    first: StoredObject | None = None
    last: StoredObject | None = None
    largest: StoredObject | None = None
    extensions: Counter[str] = field(default_factory=Counter)
    widths: set[int] = field(default_factory=set)
    sequences: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """(dispatcher, width) → [lowest number, highest number, count]."""
    table_dir: str = ""
    """The table directory; empty: no schema file says whose it is."""
    version: int = 0
    partition: bool = False
    date: str = ""
    """``day``, ``month``, ``year``, ``none``, or ``year?`` if a year cannot be distinguished from a partition."""

    def take(self, stored: StoredObject, name: DataName) -> None:
        """Count a file."""
        self.files += 1
        self.size += stored.size
        self.extensions[name.extension] += 1
        # As written, since leading zeros show the width that TiCDC pads to.
        digits = len(stored.path.rpartition("/")[2].rpartition(".")[0].removeprefix("CDC").rpartition("_")[2])
        self.widths.add(digits)
        if self.first is None or stored.path < self.first.path:
            self.first = stored
        if self.last is None or stored.path > self.last.path:
            self.last = stored
        if self.largest is None or stored.size > self.largest.size:
            self.largest = stored
        span = self.sequences.setdefault((name.dispatcher, name.width), [name.number, name.number, 0])
        span[:] = [min(span[0], name.number), max(span[1], name.number), span[2] + 1]

    @property
    def missing(self) -> int:
        """The count of numbers missing between the lowest and the highest of each sequence."""
        # Counted from the lowest number that is there: what expired before it is not missing.
        return sum(high - low + 1 - count for low, high, count in self.sequences.values())


@dataclass(slots=True, kw_only=True)
class Survey:
    """A bucket's paths."""

    folders: dict[str, Folder] = field(default_factory=dict)
    schemas: dict[str, dict[int, list[StoredObject]]] = field(default_factory=dict)
    """Table directory → version → its schema files."""
    old_schemas: dict[str, dict[int, list[StoredObject]]] = field(default_factory=dict)
    """The same for the layout before TiCDC 6.5.3 and 7.1."""
    ignored: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """Reason → the first path skipped for it."""
    objects: int = 0
    size: int = 0
    indexes: int = 0
    has_metadata: bool = False
    roots: set[str] = field(default_factory=set)
    """Folders below the root that have a ``metadata`` of their own."""

    def placed(self) -> list[Folder]:
        """Return the directories whose table a schema file names."""
        return [folder for folder in self.folders.values() if folder.table_dir]

    def versions(self, table_dir: str) -> dict[int, list[StoredObject]]:
        """Return version → schema files of one table directory, of either layout."""
        return {**self.old_schemas.get(table_dir, {}), **self.schemas.get(table_dir, {})}

    def without(self, copies: Copies) -> None:
        """Leave out what is below folders that hold copies."""
        for found in (self.folders, self.schemas, self.old_schemas):
            for folder in [folder for folder in found if copies.holds(f"{folder}/")]:
                del found[folder]
        for folder in sorted(copies.folders):
            self.ignore(COPY, folder)

    def ignore(self, reason: str, path: str) -> None:
        """Count an object that is skipped."""
        self.ignored[reason] += 1
        self.examples.setdefault(reason, path)


def survey(listing: Iterable[StoredObject]) -> Survey:
    """Return what one full listing shows."""
    seen = Survey()
    for stored in listing:
        seen.objects += 1
        seen.size += stored.size
        _see(seen, stored)
    # Placing needs all schema files, and a listing shows a table's data directories (digits) before its meta/.
    for folder in seen.folders.values():
        _place(seen, folder)
    return seen


def ignore_unplaced(seen: Survey) -> None:
    """Count the data files of which no schema file says whose they are."""
    for folder in seen.folders.values():
        if not folder.table_dir:
            reason = COPY if is_of_file_system(folder.path) else _UNPLACED
            seen.ignored[reason] += folder.files
            seen.examples.setdefault(reason, folder.path)


def _see(seen: Survey, stored: StoredObject) -> None:
    parent, _, name = stored.path.rpartition("/")
    if stored.path == "metadata":
        seen.has_metadata = True
    # Data files first, by their name alone: whose they are shows when all schema files were seen.
    elif data := parse_data_name(name):
        if stored.size:
            seen.folders.setdefault(parent, Folder(path=parent)).take(stored, data)
        else:
            seen.ignore(_EMPTY, stored.path)
    elif match := _OLD_SCHEMA.fullmatch(stored.path):
        seen.old_schemas.setdefault(match[1], {}).setdefault(int(match[2]), []).append(stored)
    elif name.startswith("CDC") and name.endswith(".index"):
        seen.indexes += 1
    else:
        _see_other(seen, stored)


def _see_other(seen: Survey, stored: StoredObject) -> None:
    parsed = parse_other(stored.path)
    if stored.path.endswith("/metadata"):
        seen.roots.add(stored.path.removesuffix("/metadata"))
    if isinstance(parsed, SchemaPath) and stored.size:
        seen.schemas.setdefault(parsed.table_dir, {}).setdefault(parsed.version, []).append(stored)
    elif not stored.size:
        seen.ignore(_EMPTY, stored.path)
    elif isinstance(parsed, Ignored):
        seen.ignore(parsed.reason, stored.path)


def _place(seen: Survey, folder: Folder) -> None:
    """Find the table and version of a directory: the longest table directory that has a schema file of this very version."""
    segments = folder.path.split("/")
    # The version is followed by at most a partition and a date; fewer of them mean a longer table directory.
    for length in (1, 2, 3):
        if length >= len(segments):
            return
        table_dir, rest = "/".join(segments[:-length]), segments[-length:]
        if not rest[0].isdecimal() or int(rest[0]) not in seen.versions(table_dir):
            continue
        shape = _shape(rest[1:])
        if shape is not None:
            folder.table_dir, folder.version = table_dir, int(rest[0])
            folder.partition, folder.date = shape
            return


def _shape(middle: list[str]) -> tuple[bool, str] | None:
    """Return whether there is a partition directory, and the kind of date directory; None if the segments are neither."""
    if not middle:
        return False, "none"
    kind = next((name for name, pattern in _DATES.items() if pattern.fullmatch(middle[-1])), "none")
    # Four digits alone may also be the id of a partition (see `storage.paths`).
    if len(middle) == 1 and kind == "year":
        return False, "year?"
    others = middle if kind == "none" else middle[:-1]
    if len(others) > 1 or not all(text.isdecimal() for text in others):
        return None
    return bool(others), kind
