"""What a plan is made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from storage_consumer.clock import Clock
from storage_consumer.config.settings import Config
from storage_consumer.dry_run.state import Stored
from storage_consumer.dry_run.structure import RealStructure
from storage_consumer.model import TableName
from storage_consumer.ports import ServerInfo
from storage_consumer.storage.base import Storage


class Zones(Protocol):
    """In which time zone statements run; see `downstream.ddl_execution`."""

    @property
    def zone(self) -> str:
        """The time zone of the feed."""
        ...

    def statement_zone(self, version: int) -> str:
        """Return that of the session of a statement."""
        ...


class NotedKeys(Protocol):
    """What is noted of tables' keys; see `downstream.key_notes`."""

    def noted(self, names: Iterable[TableName]) -> Mapping[TableName, Sequence[str]]:
        """Return the notes of those tables that have one, by folded name."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSources:
    """The bucket, the target and its state; all of them are only read."""

    config: Config
    storage: Storage
    stored: Stored | None
    """The state; None if the target has none of this bucket."""
    structure: RealStructure
    zones: Zones
    notes: NotedKeys
    server_info: ServerInfo
    writer: str
    """See `Plan.writer`."""
    clock: Clock
    warnings: tuple[str, ...] = ()
    """What is odd about the sources."""
