"""Which tables are not yet where a run is to end. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from storage_consumer.plan.planner import PendingDdl
from storage_consumer.plan.table import TableConsumer
from storage_consumer.tso import ddl_is_stored


def unreached(
    tables: Mapping[str, TableConsumer], pending: Iterable[PendingDdl], checkpoint: int, stuck: Collection[str]
) -> list[str]:
    """Return the keys of tables that are not at a checkpoint and can get there.

    `pending`: the statements that have not run; `stuck`: tables before one of them. A table that is halted cannot get there, nor can one
    that waits for a statement together with it.
    """
    stopped = {key for key, table in tables.items() if table.status.is_halted}
    touched = [ddl.touches for ddl in pending if ddl_is_stored(ddl.step.version, checkpoint, is_stable=True)]
    while more := {key for keys in touched if keys & stopped for key in keys} - stopped:
        stopped |= more
    return [
        key
        for key, table in tables.items()
        if key not in stopped and (table.status.blocked or key in stuck or table.checkpoint < checkpoint)
    ]
