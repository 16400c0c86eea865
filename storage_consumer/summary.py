"""What a round did, as frozen records: the answer of `Consumer.run_once` and the source of the summary line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """One table's share of a round; tables that did nothing and are not halted have none."""

    table: str
    """``schema.table``, or ``schema`` for a database's own DDL."""
    rows: int = 0
    """Row changes read inside the window and taken into account (folded ones included)."""
    files: int = 0
    """Data files read."""
    ddls: int = 0
    """Statements executed."""
    checkpoint: int = 0
    """Commit ts up to which this table is applied, inclusive."""
    state: str = "running"
    """``running``; ``waiting`` for something that should come (a missing file, a torn last line); ``halted``; ``dropped``."""
    error: str = ""
    """Why it is halted or waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSummary:
    """One round."""

    rows: int = 0
    """Row changes taken into account, over all tables."""
    written: int = 0
    """Rows written or deleted in the target after folding; 0 in a round that changed nothing."""
    files: int = 0
    """Data files read."""
    ddls: int = 0
    """DDL statements executed."""
    checkpoint: int = 0
    """Commit ts up to which every table is applied that is not left out, halted ones included; inclusive."""
    checkpoint_running: int = 0
    """The same of the tables that are not halted; never less than `checkpoint`."""
    storage_checkpoint: int = 0
    """checkpoint-ts of the bucket's ``metadata`` at the start of the round."""
    seconds: float = 0.0
    """Wall time of the round."""
    finished_files: int = 0
    """Files that an earlier run had finished and this process did not read again, counted when first listed."""
    pending_files: int = 0
    """Files with rows beyond the storage checkpoint, or not yet read."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Rows and objects passed over, counted by reason."""
    tables: tuple[TableSummary, ...] = ()

    @property
    def halted(self) -> tuple[TableSummary, ...]:
        """The tables that stopped with an error."""
        return tuple(table for table in self.tables if table.state == "halted")

    @property
    def halted_tables(self) -> tuple[str, ...]:
        """The names of the tables that stopped with an error."""
        return tuple(table.table for table in self.halted)

    @property
    def waiting(self) -> tuple[TableSummary, ...]:
        """The tables that could not reach the storage checkpoint in this round, but may in a later one."""
        return tuple(table for table in self.tables if table.state == "waiting")


class Progress(Protocol):
    """Told how a round goes on; called from the driver's threads, must not raise and must be quick."""

    def round_started(self, *, files: int, size: int, storage_checkpoint: int) -> None:
        """A round begins: so many data files with so many bytes are to be read."""

    def advanced(self, *, files: int, rows: int) -> None:
        """So many more files were read, with so many row changes."""

    def ddl(self, *, table: str, query: str) -> None:
        """A statement is about to run."""

    def round_finished(self, summary: RoundSummary) -> None:
        """The round is over."""


class Silent:
    """A `Progress` that shows nothing."""

    def round_started(self, *, files: int, size: int, storage_checkpoint: int) -> None:
        """Show nothing."""

    def advanced(self, *, files: int, rows: int) -> None:
        """Show nothing."""

    def ddl(self, *, table: str, query: str) -> None:
        """Show nothing."""

    def round_finished(self, summary: RoundSummary) -> None:
        """Show nothing."""
