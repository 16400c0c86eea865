"""What a bucket is, and what its settings must be: the outcome of looking at it, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.settings import Upstream
from storage_consumer.model import TableName

State = Literal["told", "inferred", "assumed", "not decidable", "unknown", "contradicts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One option that says how the files were written."""

    keyword: str
    state: State
    """``assumed``: no file shows it, and TiCDC's default is taken; ``not decidable``: the files leave several values; ``unknown``: no file shows it yet."""
    value: object = None
    """None where it is not known."""
    origin: str = ""
    """Who told it, or from which file and row it was inferred, or what it contradicts."""

    @property
    def name(self) -> str:
        """The flag without dashes in front."""
        return BY_KEYWORD[self.keyword].name

    @property
    def is_missing(self) -> bool:
        """Whether somebody has to say it."""
        return self.state in ("not decidable", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """One table directory."""

    directory: str
    name: TableName | None
    """None where its schema files were not read."""
    versions: int
    files: int
    size: int
    """Bytes of its data files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket as it was looked at."""

    place: str
    """Scheme and root."""
    layouts: tuple[str, ...]
    architecture: str
    """``classic``, ``new``, or ``not tellable``."""
    index_widths: tuple[int, ...]
    """Digits of the file numbers."""
    dispatchers: bool
    """Whether file names name the dispatcher that wrote them."""
    settings: tuple[Setting, ...]
    tables: tuple[TableFacts, ...]
    """The largest first."""
    objects: int
    size: int
    """Bytes of all objects."""
    data_files: int
    schema_files: int
    sampled: int
    """How many data files were looked into."""
    checkpoint: int
    """``checkpoint-ts`` of ``metadata``; 0: none."""
    commit_ts: tuple[int, ...]
    """Lowest and highest commit ts of the rows looked at; empty where none was seen."""
    versions: tuple[int, ...]
    """Lowest and highest table version of all paths; empty where there is none."""
    warnings: tuple[str, ...]
    likely: tuple[str, ...] = ()
    """URIs of folders near it that have a ``metadata``, where it has none with a checkpoint itself."""
    upstream: Upstream
    """The settings, completed by what was inferred."""

    @property
    def missing(self) -> tuple[Setting, ...]:
        """What has to be said."""
        return tuple(setting for setting in self.settings if setting.is_missing)

    @property
    def contradictions(self) -> tuple[Setting, ...]:
        """What was told but is not so."""
        return tuple(setting for setting in self.settings if setting.state == "contradicts")

    @property
    def inferred(self) -> Mapping[str, str]:
        """Keyword → from what it was inferred, or why it was assumed."""
        return {each.keyword: each.origin for each in self.settings if each.state in ("inferred", "assumed")}

    @property
    def assumed(self) -> tuple[Setting, ...]:
        """What was taken to be TiCDC's default although no file shows it."""
        return tuple(setting for setting in self.settings if setting.state == "assumed")
