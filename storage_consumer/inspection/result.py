"""What a bucket is, and what its settings must be: the result of inspecting it, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.settings import Upstream
from storage_consumer.model import TableName

State = Literal["given", "inferred", "assumed", "not decidable", "unknown", "contradicts"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One option that says how the files were written."""

    keyword: str
    state: State
    """``given``: the user gave it; ``assumed``: no file shows it, so TiCDC's default is taken; ``not decidable``: several
    values fit the files; ``unknown``: no file shows it."""
    value: object = None
    """The value; None if it is not known."""
    origin: str = ""
    """Who gave it, or the file and row it was inferred from, or what it contradicts."""

    @property
    def name(self) -> str:
        """The flag without leading dashes."""
        return BY_KEYWORD[self.keyword].name

    @property
    def is_missing(self) -> bool:
        """Whether the user has to give it."""
        return self.state in ("not decidable", "unknown")


@dataclass(slots=True, kw_only=True)
class TableFacts:
    """One table directory."""

    directory: str
    name: TableName | None
    """The table's name; None if its schema files were not read."""
    versions: int
    files: int = 0
    size: int = 0
    """Bytes of its data files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket as inspected."""

    place: str
    """Scheme and root."""
    layouts: tuple[str, ...]
    architecture: str
    """``classic``, ``new``, or ``not tellable``."""
    index_widths: tuple[int, ...]
    """Digits of the file numbers."""
    dispatchers: bool
    """Whether file names contain the dispatcher that wrote them."""
    settings: tuple[Setting, ...]
    tables: tuple[TableFacts, ...]
    """The tables, largest first."""
    objects: int
    size: int
    """Bytes of all objects."""
    data_files: int
    schema_files: int
    sampled: int
    """Number of data files that were read in part."""
    checkpoint: int
    """``checkpoint-ts`` of ``metadata``; 0: none."""
    commit_ts: tuple[int, ...]
    """Lowest and highest commit-ts of the sampled rows (both inclusive); empty if none was seen."""
    versions: tuple[int, ...]
    """Lowest and highest table version of all paths (both inclusive); empty if there is none."""
    warnings: tuple[str, ...]
    likely: tuple[str, ...] = ()
    """URIs of nearby folders with a ``metadata``, if this one has none with a checkpoint."""
    upstream: Upstream
    """The settings, completed by inference."""

    @property
    def missing(self) -> tuple[Setting, ...]:
        """The settings that the user has to give."""
        return tuple(setting for setting in self.settings if setting.is_missing)

    @property
    def contradictions(self) -> tuple[Setting, ...]:
        """The settings that were given but do not match the files."""
        return tuple(setting for setting in self.settings if setting.state == "contradicts")

    @property
    def inferred(self) -> Mapping[str, str]:
        """Keyword → what it was inferred from, or why it was assumed."""
        return {each.keyword: each.origin for each in self.settings if each.state in ("inferred", "assumed")}

    @property
    def assumed(self) -> tuple[Setting, ...]:
        """The settings that take TiCDC's default although no file shows it."""
        return tuple(setting for setting in self.settings if setting.state == "assumed")
