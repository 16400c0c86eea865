"""What a round did, as frozen records: `Consumer.run_once`'s result, the summary line."""

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
    """``running``; ``waiting`` for a file or torn line; ``halted``; ``paused``; ``dropped``.

    An operator pauses a table.
    """
    error: str = ""
    """Why the table is halted or waiting, or the view left out."""
    waits_for: str = ""
    """What it waits for: ``file``, ``ddl`` (before its rows) or ``lock`` (other sessions')."""


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
    """Commit ts (inclusive) to which all tables are applied, halted ones too; not left-out ones."""
    checkpoint_running: int = 0
    """The same for the tables that are not halted; never less than `checkpoint`."""
    joining: tuple[int, ...] = ()
    """Commit ts (inclusive) of tables that catch up after loads, which `checkpoint` ignores."""
    storage_checkpoint: int = 0
    """The ``metadata`` checkpoint-ts at the round's start; an earlier one if unbelievable."""
    refused_checkpoint: int = 0
    """What ``metadata`` says if that lies too far ahead of the clock to be believed; else 0."""
    seconds: float = 0.0
    """Wall time of the round, in seconds."""
    finished_files: int = 0
    """Files of an earlier run that this process did not read again, counted when listed."""
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
    """Tables whose loads go on or wait at the round's end.

    After `run_once` also those whose requested loads have not begun.
    """
    refused_loads: tuple[str, ...] = ()
    """After `run_once`: tables whose loads were requested, and refused meanwhile."""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds of the round by stage: ``poll``, ``plan``, ``rows``, ``ddl``, ``checkpoint``."""
    ended_early: str = ""
    """Why the round ended early: ``asked``, ``max-files``, ``max-seconds``; empty: it did not."""
    reached_until: bool = False
    """Whether all tables not stopped have all changes up to ``until``: the run is over."""
    bytes: int = 0
    """Size of the data files read."""
    states: dict[str, int] = field(default_factory=dict)
    """State → number of tables at the end of the round; tables that are left out do not count."""
    tables: tuple[TableSummary, ...] = ()
    quarantined: dict[str, int] = field(default_factory=dict)
    """Table → number of its rows in the quarantine: these tables are not equal to the source."""

    def following(self, earlier: RoundSummary) -> RoundSummary:
        """Return the summary of an earlier round and this: work of both, this one's end."""
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
        """Commit ts (inclusive) to which all tables are applied, not left out or in load."""
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
        """Tables that did not reach the storage checkpoint now, but may in a later round."""
        return tuple(table for table in self.tables if table.state == "waiting")


def slowest(checkpoint: int, joining: Iterable[int]) -> int:
    """Return the lowest of overall checkpoint and those of tables catching up after loads."""
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
    """Receives a round's progress in the driver's threads; must not raise, nor take long."""

    def round_started(
        self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0
    ) -> None:
        """Show that a round begins.

        `files` data files with `size` bytes in all are to be read, and `statements` are to run.
        """

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Count `files` more that were read, with `rows` changes, and `statements` done."""

    def ddl(self, *, table: str, query: str) -> None:
        """Show that a statement is about to run."""

    def round_finished(self, summary: RoundSummary) -> None:
        """Show that the round is over."""


class Silent:
    """A `Progress` that shows nothing."""

    def round_started(
        self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0
    ) -> None:
        """Show nothing."""

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Show nothing."""

    def ddl(self, *, table: str, query: str) -> None:
        """Show nothing."""

    def round_finished(self, summary: RoundSummary) -> None:
        """Show nothing."""
