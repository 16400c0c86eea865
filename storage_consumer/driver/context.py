"""Everything a round works with, and what it stores of a table."""

from __future__ import annotations

from dataclasses import dataclass

from storage_consumer.clock import Clock
from storage_consumer.config.settings import Config
from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.shared_names import place_of
from storage_consumer.plan.table import HALTED, TableConsumer
from storage_consumer.poll.reader import StorageReader
from storage_consumer.ports import RowPipeline, ServerInfo, State, TableProgress, Target
from storage_consumer.summary import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundContext:
    """Everything a round works with; assembled in api.py."""

    config: Config
    reader: StorageReader
    manager: ConsumerManager
    state: State
    target: Target
    lanes: DdlWorkers
    """Where statements run; it outlives the other parts."""
    pipeline: RowPipeline
    server_info: ServerInfo
    progress: Progress
    clock: Clock
    secrets_file: str


def progress_of(table: TableConsumer, manager: ConsumerManager) -> TableProgress:
    """Return what to store of a table."""
    return TableProgress(
        table_key=table.key,
        schema=table.name.schema,
        table=table.name.table,
        checkpoint=table.checkpoint,
        state=table.stored_state,
        follows=table.state != HALTED and table.checkpoint >= manager.stored_checkpoint,
        error=table.error,
        copies=table.copies,
        target=place_of(table, manager.selection.routes),
    )
