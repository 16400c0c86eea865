"""What the tables did in a round, counted, and their state at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.table import HALTED, WAITING
from storage_consumer.summary import TableSummary


@dataclass(slots=True)
class Counts:
    """What one table did in a round."""

    rows: int = 0
    files: int = 0
    ddls: int = 0


def table_summaries(
    manager: ConsumerManager, counted: Mapping[str, Counts], stuck: Mapping[str, str]
) -> tuple[TableSummary, ...]:
    """Return the tables that did something, are halted or wait, by name. `stuck`: table key → what blocks it though it does not wait itself."""
    tables = []
    for table in manager.tables.values():
        counts = counted.get(table.key, Counts())
        state, error = table.shown_state, table.error
        if not table.blocked and table.key in stuck:
            state, error = WAITING, stuck[table.key]
        if counts.rows or counts.files or counts.ddls or state in (HALTED, WAITING):
            tables.append(
                TableSummary(
                    table=str(table.name),
                    rows=counts.rows,
                    files=counts.files,
                    ddls=counts.ddls,
                    checkpoint=table.checkpoint,
                    state=state,
                    error=error,
                )
            )
    return tuple(sorted(tables, key=lambda t: t.table))
