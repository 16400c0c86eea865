"""Read TiCDC's change files in object storage; keep a MySQL-compatible database equal.

`Consumer` is the library entry; `RoundSummary`, `Plan` and `Status` are what its methods return,
and `StorageConsumerError` is the root of what they raise. Importing the package loads none of them:
each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage_consumer.api import Consumer
    from storage_consumer.changes.record_batches import read_changes
    from storage_consumer.clock import Stop, StopSignal
    from storage_consumer.config.options import Options
    from storage_consumer.errors import (
        Abandoned,
        BatchRefused,
        ConfigError,
        DdlFailed,
        ExportRefused,
        ExportUnfinished,
        FilesMissing,
        LeaseHeld,
        LeaseLost,
        MalformedSchemaFile,
        NoMetadata,
        NotReplicable,
        NotTheWriter,
        RowRefused,
        SnapshotLost,
        SparkUnavailable,
        StateGone,
        StatementRefused,
        StorageConsumerError,
        StorageUnavailable,
        TableError,
        TargetBusy,
        TargetUnavailable,
        TransientError,
        UndecodableRow,
    )
    from storage_consumer.model import DdlId, SkippedRows, TableName
    from storage_consumer.operating.planned import (
        Outcome,
        Plan,
        PlannedRows,
        PlannedStatement,
        PlannedStop,
        PlannedWave,
    )
    from storage_consumer.operating.verification import VerifyOptions, VerifyReport
    from storage_consumer.plan.loads import Load, LoadPhase
    from storage_consumer.plan.table_state import TableState
    from storage_consumer.rows.comparison import RowDifference, Span, VerifyOutcome
    from storage_consumer.rows.comparison import TableResult as VerifiedTable
    from storage_consumer.subscribe.entries import Entry
    from storage_consumer.subscribe.subscription import SubscribedBatch, Subscription
    from storage_consumer.summary import Progress, RoundSummary, RunningStatement, TableSummary
    from storage_consumer.watch.report import (
        Health,
        Phase,
        Report,
        Snapshot,
        StoredStatement,
        Totals,
        Work,
    )
    from storage_consumer.watch.report import Table as StoredTable
    from storage_consumer.watch.status import Status, TableStatus

__all__ = [
    "Abandoned",
    "BatchRefused",
    "ConfigError",
    "Consumer",
    "DdlFailed",
    "DdlId",
    "Entry",
    "ExportRefused",
    "ExportUnfinished",
    "FilesMissing",
    "Health",
    "LeaseHeld",
    "LeaseLost",
    "Load",
    "LoadPhase",
    "MalformedSchemaFile",
    "NoMetadata",
    "NotReplicable",
    "NotTheWriter",
    "Options",
    "Outcome",
    "Phase",
    "Plan",
    "PlannedRows",
    "PlannedStatement",
    "PlannedStop",
    "PlannedWave",
    "Progress",
    "Report",
    "RoundSummary",
    "RowDifference",
    "RowRefused",
    "RunningStatement",
    "SkippedRows",
    "Snapshot",
    "SnapshotLost",
    "Span",
    "SparkUnavailable",
    "StateGone",
    "StatementRefused",
    "Status",
    "Stop",
    "StopSignal",
    "StorageConsumerError",
    "StorageUnavailable",
    "StoredStatement",
    "StoredTable",
    "SubscribedBatch",
    "Subscription",
    "TableError",
    "TableName",
    "TableState",
    "TableStatus",
    "TableSummary",
    "TargetBusy",
    "TargetUnavailable",
    "Totals",
    "TransientError",
    "UndecodableRow",
    "VerifiedTable",
    "VerifyOptions",
    "VerifyOutcome",
    "VerifyReport",
    "Work",
    "__version__",
    "read_changes",
]
__version__ = "0.2.0"

_MODULES = {
    "api": ("Consumer",),
    "config.options": ("Options",),
    "operating.planned": (
        "Outcome",
        "Plan",
        "PlannedRows",
        "PlannedStatement",
        "PlannedStop",
        "PlannedWave",
    ),
    "changes.record_batches": ("read_changes",),
    "model": ("DdlId", "SkippedRows", "TableName"),
    "watch.report": ("Health", "Phase", "Report", "Snapshot", "StoredStatement", "Totals", "Work"),
    "watch.status": ("Status", "TableStatus"),
    "operating.verification": ("VerifyOptions", "VerifyReport"),
    "plan.loads": ("Load", "LoadPhase"),
    "plan.table_state": ("TableState",),
    "clock": ("Stop", "StopSignal"),
    "summary": ("Progress", "RoundSummary", "RunningStatement", "TableSummary"),
    "rows.comparison": ("RowDifference", "Span", "VerifyOutcome"),
    "subscribe.entries": ("Entry",),
    "subscribe.subscription": ("SubscribedBatch", "Subscription"),
}
_RENAMED = {
    "StoredTable": ("watch.report", "Table"),
    "VerifiedTable": ("rows.comparison", "TableResult"),
}
"""Public name → module, and name in it, which would say too little outside."""


def _loaded(name: str) -> object:
    """Import a public name at first use: workers and ``--help`` do not need PySpark."""
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    # What no other module has is an error.
    home = next((module for module, names in _MODULES.items() if name in names), "errors")
    module, inner = _RENAMED.get(name, (home, name))
    try:
        found: object = getattr(import_module(f"{__name__}.{module}"), inner)
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        message = f"{name} needs pyarrow: pip install 'storage-consumer[dataframe]'"
        raise ImportError(message) from error
    globals()[name] = found
    return found


if not TYPE_CHECKING:  # a type checker would take every name for an attribute
    __getattr__ = _loaded


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
