"""Everything a round works with."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from storage_consumer.bucket.reader import StorageReader
from storage_consumer.clock import Clock
from storage_consumer.config.settings import Config
from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.driver.open_copies import LoadingState
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.ports import RowPipeline, ServerInfo, State, Target
from storage_consumer.summary import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundContext:
    """Everything a round works with; assembled in api.py."""

    config: Config
    reader: StorageReader
    manager: ConsumerManager
    state: State
    target: Target
    ddl_workers: DdlWorkers
    """Where statements run; those that are running outlive a fault of the round."""
    pipeline: RowPipeline
    server_info: ServerInfo
    progress: Progress
    clock: Clock
    secrets_file: str
    loading: LoadingState | None = None
    """Loads tables from copies; None where none is loaded, as in a plan."""
    retry_quarantined: Callable[[RoundContext, Collection[str]], None] | None = None
    """Tries quarantined rows again that operators asked for, except those of tables that a running statement touches."""
