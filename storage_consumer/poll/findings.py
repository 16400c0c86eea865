"""What a listing showed, and what comes up while it is processed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from storage_consumer.model import DataFile, SchemaFile, StoredObject
from storage_consumer.storage.paths import DataName, Ignored

_SHOWN = 10
"""Number of paths that a message names; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The new and changed files that one listing showed."""

    schema_files: tuple[SchemaFile, ...]
    """New, or with other content under a known name."""
    data_files: tuple[DataFile, ...]
    """New, or with other content under a known name."""
    vanished: tuple[DataFile, ...]
    """Found before and no longer there; only after a full listing. Their size is 0 and their tag empty."""
    changed: int
    """Number of `data_files` that had other content before."""
    overwritten: tuple[DataFile, ...]
    """Those of them that were rewritten below a mark: the checkpoint may have passed their rows unseen."""
    ignored: dict[str, int]
    """Reason → number of objects passed over; as of the last full listing."""
    contradictions: tuple[str, ...]
    """``path: reason`` for paths that contradict the settings."""
    warnings: tuple[str, ...]
    roots: frozenset[str] = frozenset()
    """Folders below the root that have a ``metadata``; see `Look.roots`."""
    moved: bool
    """Whether to list again: given the schema files found, the listing may lack files or showed some under the wrong table."""
    finished: int = 0
    """Number of new data files missing from `data_files` because an earlier run finished them."""


@dataclass(slots=True)
class Look:
    """What comes up while one listing is processed."""

    late: bool
    """Whether files may turn up that the previous listings left out. Not at a start: what is listed again then was passed over."""
    ignored: Counter[str] = field(default_factory=Counter)
    contradictions: list[str] = field(default_factory=list)
    roots: set[str] = field(default_factory=set)
    """Folders below the root that have a ``metadata``, as the root of a changefeed's files has."""
    unplaced: list[tuple[str, DataName, StoredObject]] = field(default_factory=list)
    schema_paths: set[str] = field(default_factory=set)
    schemas_gone: list[str] = field(default_factory=list)
    came_late: list[str] = field(default_factory=list)
    finished: int = 0
    """Number of data files that an earlier run finished."""
    overflow: Counter[str] = field(default_factory=Counter)
    """Folder not known before → number of its files that were too many to be held."""
    overflown: bool = False
    """Whether data files are among them, so that the next listing has to show them again."""
    upgraded: bool = False
    """Whether a version of the older layout turned out to be one of the present layout too: then less may be left out."""

    def ignore(self, path: str, why: Ignored, files: int = 1) -> None:
        """Count a path (or the `files` in it) as passed over, or note that it contradicts the settings."""
        if why.contradicts:
            self.contradictions.append(f"{path}: {why.reason}")
        else:
            self.ignored[why.reason] += files

    def warnings(self) -> Iterator[str]:
        """Yield the warnings for an operator."""
        for path in shortened(self.came_late):
            yield (
                f"{path} appeared where TiCDC had finished writing; rows in it at or below the checkpoint are "
                "treated as duplicates. If TiCDC did not just restart, compare the table with its source"
            )
        for path in shortened(self.schemas_gone):
            yield f"schema file {path} is gone from the storage; what was read from it stays in force"


def shortened(paths: list[str]) -> tuple[str, ...]:
    """Return the first few paths, and the number of the others."""
    more = len(paths) - _SHOWN
    return (*paths[:_SHOWN], f"and {more} more") if more > 0 else tuple(paths)
