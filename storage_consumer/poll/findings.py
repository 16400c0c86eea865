"""What a listing showed, and what comes up while it is taken in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from storage_consumer.model import DataFile, SchemaFile, StoredObject
from storage_consumer.storage.paths import DataName, Ignored

_SHOWN = 10
"""So many paths are named in a message; of the others there is a count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one listing showed."""

    schema_files: tuple[SchemaFile, ...]
    """New, or with other content under a known name."""
    data_files: tuple[DataFile, ...]
    """New, or with other content under a known name."""
    vanished: tuple[DataFile, ...]
    """Found before, no longer there; after a full listing only. Their size is 0 and their tag empty."""
    changed: int
    """How many of `data_files` had other content before."""
    overwritten: tuple[DataFile, ...]
    """Those of them that were written anew below a mark: by now the checkpoint may have passed their rows unseen."""
    ignored: dict[str, int]
    """Objects passed over, by reason; as of the last full listing."""
    contradictions: tuple[str, ...]
    """``path: reason`` for paths that do not go with the settings."""
    warnings: tuple[str, ...]
    moved: bool
    """Whether the listing may lack files, or showed some under the wrong table, given the schema files found in it: list again."""
    finished: int = 0
    """How many new data files are not among `data_files`, since an earlier run finished them."""


@dataclass(slots=True)
class Look:
    """What comes up while one listing is taken in."""

    late: bool
    """Whether files may turn up that the listings before left out. Not at a start: what is listed once more then was passed over."""
    ignored: Counter[str] = field(default_factory=Counter)
    contradictions: list[str] = field(default_factory=list)
    unplaced: list[tuple[str, DataName, StoredObject]] = field(default_factory=list)
    schema_paths: set[str] = field(default_factory=set)
    schemas_gone: list[str] = field(default_factory=list)
    came_late: list[str] = field(default_factory=list)
    finished: int = 0
    """Data files that an earlier run finished."""
    overflow: Counter[str] = field(default_factory=Counter)
    """Folders, not known before, of files that were too many to be held, with the number of those."""
    overflown: bool = False
    """Whether data files are among them, so that the next listing has to show them again."""
    upgraded: bool = False
    """Whether a version of the older layout turned out to be one of the present layout too: then less may be left out."""

    def ignore(self, path: str, why: Ignored, files: int = 1) -> None:
        """Count a path, or the `files` in it, that is passed over, or note that it contradicts the settings."""
        if why.contradicts:
            self.contradictions.append(f"{path}: {why.reason}")
        else:
            self.ignored[why.reason] += files

    def warnings(self) -> Iterator[str]:
        """What an operator should hear."""
        for path in shortened(self.came_late):
            yield (
                f"{path} turned up where TiCDC was done writing; rows in it at or below the checkpoint are taken for "
                "repeats. If TiCDC did not just restart, compare the table with its source"
            )
        for path in shortened(self.schemas_gone):
            yield f"schema file {path} is gone from the storage; what was read from it stays in force"


def shortened(paths: list[str]) -> tuple[str, ...]:
    """The first few, and how many more there are."""
    more = len(paths) - _SHOWN
    return (*paths[:_SHOWN], f"and {more} more") if more > 0 else tuple(paths)
