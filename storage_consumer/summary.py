"""What a round did, as frozen records: the result of `Consumer.run_once` and the source of the summary line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """One table's share of a round; a table that did nothing and is not halted has none."""

    table: str
    """``schema.table``, or ``schema`` for a database's own DDL."""
    rows: int = 0
    """Row changes read inside the commit range and taken into account, folded ones included."""
    files: int = 0
    """Data files read."""
    ddls: int = 0
    """Statements executed."""
    checkpoint: int = 0
    """Commit ts up to which this table is applied, inclusive."""
    state: str = "running"
    """``running``; ``waiting`` for something that should come (a missing file, a torn last line); ``halted``; ``paused`` by an operator; ``dropped``."""
    error: str = ""
    """Why the table is halted or waiting, or the view left out."""
    waits_for: str = ""
    """What kind of thing a waiting table waits for: ``file``, ``ddl`` (a statement before its rows) or ``lock`` (of other sessions)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSummary:
    """The result of one round."""

    rows: int = 0
    """Row changes taken into account, over all tables."""
    written: int = 0
    """Rows written or deleted in the target after folding; 0 in a round that changed nothing."""
    files: int = 0
    """Data files read."""
    ddls: int = 0
    """DDL statements executed."""
    checkpoint: int = 0
    """Commit ts (inclusive) up to which every table is applied, halted ones included; tables that are left out do not count."""
    checkpoint_running: int = 0
    """The same for the tables that are not halted; never less than `checkpoint`."""
    joining: tuple[int, ...] = ()
    """Commit ts (inclusive) up to which the tables are applied that catch up after their loads; `checkpoint` leaves them out."""
    storage_checkpoint: int = 0
    """The checkpoint-ts of the bucket's ``metadata`` at the start of the round; an earlier one while that is not to be believed."""
    refused_checkpoint: int = 0
    """What ``metadata`` says if that lies too far ahead of the clock to be believed; else 0."""
    seconds: float = 0.0
    """Wall time of the round, in seconds."""
    finished_files: int = 0
    """Files that an earlier run had finished and this process did not read again; counted when first listed."""
    pending_files: int = 0
    """Files with rows beyond the storage checkpoint, or not yet read."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Rows and objects skipped, counted by reason."""
    pending_bytes: int = 0
    """Their size, as far as they were listed."""
    load_files: int = 0
    """Files of the copies that tables are being loaded from."""
    load_files_done: int = 0
    """Those of them that are written."""
    loading: tuple[str, ...] = ()
    """Tables whose loads go on or wait at the end of the round; after `run_once` also those whose requested loads have not begun."""
    refused_loads: tuple[str, ...] = ()
    """After `run_once`: tables whose loads were requested, and refused meanwhile."""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds of the round by what it was doing: ``poll``, ``plan``, ``rows``, ``ddl`` and ``checkpoint``."""
    ended_early: str = ""
    """Why the round ended before everything that could be done was done: ``asked``, ``max-files`` or ``max-seconds``; empty if it did not."""
    reached_until: bool = False
    """Whether every table that is not stopped has all changes up to the option ``until``, so that the run is over."""
    bytes: int = 0
    """Size of the data files read."""
    states: dict[str, int] = field(default_factory=dict)
    """State → number of tables at the end of the round; tables that are left out do not count."""
    tables: tuple[TableSummary, ...] = ()
    quarantined: dict[str, int] = field(default_factory=dict)
    """Table → number of its rows in the quarantine: these tables are not equal to the source."""

    def following(self, earlier: RoundSummary) -> RoundSummary:
        """Return the summary of an earlier round and of this one together: what was done in both, and where this one ended."""
        return replace(
            self,
            rows=self.rows + earlier.rows,
            written=self.written + earlier.written,
            files=self.files + earlier.files,
            ddls=self.ddls + earlier.ddls,
            bytes=self.bytes + earlier.bytes,
            seconds=self.seconds + earlier.seconds,
            finished_files=self.finished_files + earlier.finished_files,
            skipped=dict(Counter(earlier.skipped) + Counter(self.skipped)),
            stages={
                name: earlier.stages.get(name, 0.0) + self.stages.get(name, 0.0)
                for name in {**earlier.stages, **self.stages}
            },
        )

    @property
    def slowest(self) -> int:
        """Commit ts (inclusive) up to which all tables are applied that are not left out and not being loaded."""
        return slowest(self.checkpoint, self.joining)

    @property
    def halted(self) -> tuple[TableSummary, ...]:
        """The tables that stopped with an error."""
        return tuple(table for table in self.tables if table.state == "halted")

    @property
    def paused(self) -> tuple[TableSummary, ...]:
        """The tables that an operator paused."""
        return tuple(table for table in self.tables if table.state == "paused")

    @property
    def halted_tables(self) -> tuple[str, ...]:
        """The names of the tables that stopped with an error."""
        return tuple(table.table for table in self.halted)

    @property
    def waiting(self) -> tuple[TableSummary, ...]:
        """The tables that could not reach the storage checkpoint in this round, but may in a later one."""
        return tuple(table for table in self.tables if table.state == "waiting")


def slowest(checkpoint: int, joining: Iterable[int]) -> int:
    """Return the lower of the checkpoint of the whole and those of the tables that catch up after their loads."""
    return min([checkpoint, *joining])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStatement:
    """A statement that runs on the target now."""

    table: str
    """``schema.table`` as the target spells it, or ``schema`` for a database's own statement."""
    version: int
    """Its table version: rows with commit-ts up to it, inclusive, come before the statement."""
    query: str
    """The statement as TiCDC wrote it."""
    seconds: float
    """Since its start."""


class Progress(Protocol):
    """Receives the progress of a round. It is called from the driver's threads, must not raise, and must return quickly."""

    def round_started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:
        """Show that a round begins.

        `files` data files with `size` bytes in all are to be read, and `statements` are to run.
        """

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Count `files` more files that were read, with `rows` row changes, and `statements` that are done."""

    def ddl(self, *, table: str, query: str) -> None:
        """Show that a statement is about to run."""

    def round_finished(self, summary: RoundSummary) -> None:
        """Show that the round is over."""


class Silent:
    """A `Progress` that shows nothing."""

    def round_started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:
        """Show nothing."""

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Show nothing."""

    def ddl(self, *, table: str, query: str) -> None:
        """Show nothing."""

    def round_finished(self, summary: RoundSummary) -> None:
        """Show nothing."""
