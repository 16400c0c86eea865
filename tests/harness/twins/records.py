"""TargetRecords: what a target keeps, for the twins, which are handles on it and do not outlive their process."""

from __future__ import annotations

from dataclasses import dataclass, field

from storage_consumer.model import DdlId, SkippedRows, TableDefinition, TableName
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.journal_entry import JournalEntry
from storage_consumer.plan.loads import Load
from storage_consumer.plan.table_decisions import Obeyed, TableDecision
from storage_consumer.ports import Decision, TableProgress
from storage_consumer.rows.comparison import TableResult
from storage_consumer.rows.fitting import TargetTable

Row = dict[str, str | None]
"""Column name → wire text."""


@dataclass(slots=True)
class TargetRecords:
    """Everything that a target keeps: state tables, structure and rows."""

    upstream: str = ""
    holder: str = ""
    epoch: int = 0
    expires_at: float = 0.0
    window: tuple[int, int] = (0, 0)  # epoch and window id in every slot
    checkpoint: int = 0
    """Commit ts that idle tables follow."""
    lowest: int = 0
    """Commit ts that is published to others."""
    storage_checkpoint: int = 0
    writes: dict[str, int] = field(default_factory=dict)
    """Table key → commit ts up to which windows may have written rows."""
    skipped: dict[tuple[TableName, int], SkippedRows] = field(default_factory=dict)
    """What was left out of tables."""
    tables: dict[str, TableProgress] = field(default_factory=dict)
    sequences: dict[str, Finished] = field(default_factory=dict)
    journal: dict[DdlId, JournalEntry] = field(default_factory=dict)
    kept: dict[DdlId, TableDefinition] = field(default_factory=dict)
    decisions: dict[DdlId, Decision] = field(default_factory=dict)
    copies: dict[str, Copies] = field(default_factory=dict)
    table_decisions: dict[str, TableDecision] = field(default_factory=dict)
    obeyed: dict[str, Obeyed] = field(default_factory=dict)
    loads: dict[str, Load] = field(default_factory=dict)
    verified: dict[str, TableResult] = field(default_factory=dict)
    """Table key → the last comparison, with the outcome that counts."""
    floor: int = 0
    """Commit ts of the copy that the feed began with."""
    databases: set[str] = field(default_factory=set)
    structures: dict[TableName, TargetTable] = field(default_factory=dict)
    rows: dict[TableName, list[Row]] = field(default_factory=dict)
    effects: list[str] = field(default_factory=list)
    """Statements that took effect, in order."""
