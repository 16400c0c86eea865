"""What the driver asks of the outside: the target's state, its structure, its DDL, and the job that writes rows.

The real ones are in `checkpoint`, `ddl`, `downstream` and `spark`; `api.py` puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from storage_consumer.job.spec import FileSplit, JobSpec
from storage_consumer.job.target_table import TargetTable
from storage_consumer.job.task_reports import FileReport, WriteReport
from storage_consumer.model import TableDefinition, TableName
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table_decisions import Obeyed
from storage_consumer.summary import Progress

SERIAL_SLOTS = 16
"""Slots of a window beyond those of the partitions, for tables whose write transactions queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    """What is stored of one table."""

    table_key: str
    """See `plan.steps.key_of`."""
    schema: str
    table: str
    checkpoint: int
    """Inclusive; what is stored never gets smaller."""
    state: str
    """``running``, ``waiting``, ``halted`` or ``dropped``."""
    follows: bool = True
    """Its checkpoint is not behind the whole's, which it follows while it is idle."""
    error: str = ""
    copies: Copies | None = None
    """What a copy of it has to hold; None where nothing is to be stored of it."""
    target: TableName | None = None
    """Where its rows are, if there are routes (`selected.NOWHERE`: not in the target yet); None: under its own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What the target server is and allows."""

    server_type: str
    """``mariadb``, ``mysql`` or ``tidb``."""
    version: str
    max_packet: int
    """Bytes."""
    load_data: bool
    """LOAD DATA LOCAL is allowed."""


class State(Protocol):
    """Lease and progress; see `checkpoint.store`."""

    epoch: int

    def open(self, upstream: str) -> None:
        """Create what is not there; `ConfigError` for another bucket's state."""

    def acquire(self, holder: str, ttl: float, *, dead: str = "") -> str:
        """Try to become the writer for `ttl` seconds; returns the holder who prevents it, or an empty text.

        `dead`: a holder who is known to be gone, so that its lease need not run out.
        """
        ...

    def renew(self, ttl: float) -> bool:
        """Hold the lease for `ttl` seconds from now; False if it is no longer ours."""
        ...

    def release(self) -> None:
        """Give the lease back."""

    def load(self) -> tuple[Restart, int]:
        """What an earlier run left, and the highest storage checkpoint that it saw."""
        ...

    def open_window(self, partitions: int, storage_checkpoint: int) -> int:
        """Fence off everything older; the id of the new window."""
        ...

    def save(
        self,
        *,
        tables: Iterable[TableProgress],
        streams: Mapping[str, Finished],
        checkpoint: int,
        storage_checkpoint: int,
        lowest: int | None = None,
    ) -> None:
        """Store what moved. `checkpoint`: what idle tables follow; `lowest`: what is told to others, None where it stays."""

    def refused(self, step: DdlStep, error: str) -> None:
        """Note in the journal why a statement stops its table; one that was started and is not settled stays so."""

    def copied(self, step: DdlStep, at: int) -> None:
        """Note in the journal that a statement is done, since a copy of its table as of a TSO holds what it did."""

    def keep(self, read: Iterable[tuple[str, TableDefinition]]) -> None:
        """Store what schema files say, with the table directory of each; what is stored already costs nothing."""

    def kept(self, table_dir: str, version: int) -> list[TableDefinition]:
        """What the schema files of one version directory said, whether or not they still exist."""
        ...

    def known_versions(self) -> frozenset[tuple[str, int]]:
        """Table directory and version of all schema files that were ever read."""
        ...

    def unsettled(self) -> list[tuple[str, int]]:
        """Table directory and version of the statements that are kept and, by the journal, neither done nor skipped."""
        ...

    def decisions(self) -> Mapping[tuple[str, int, int], Decision]:
        """What operators said about statements that are neither done nor skipped, by `DdlStep.identity`."""
        ...

    def apply_decisions(self, busy: Collection[str] = (), *, timed: bool = True) -> list[Obeyed]:
        """Have what operators decided about tables take effect on what is stored, each decision once; `load` tells the rest.

        `busy`: keys of tables that a running statement touches; what was decided about them waits. `timed`: rows say when they
        committed.
        """
        ...

    def close(self) -> None:
        """Close all connections."""


class Target(Protocol):
    """Structure of the target; see `downstream.database`."""

    def server_info(self) -> ServerInfo:
        """What the server is."""
        ...

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """The tables that exist, by folded name."""
        ...

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """Folded name → the target's own spelling, of the tables and databases (empty table name) that exist."""
        ...

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:
        """Who holds locks that a statement on these tables waits for, as far as the server tells."""
        ...

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an operator said about a statement that stopped its table."""

    verb: Literal["done", "skip", "replace"]
    """It took effect by hand, or is not to run, or `statement` is to run in its place."""
    statement: str = ""
    decided_at: str = ""
    """By the target's clock; a later decision about the same statement has another one."""
    decided_by: str = ""


class Ddl(Protocol):
    """Runs one statement after another, each once; see `ddl.runner`."""

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Run, or find out that it ran; `moved` is stored in the transaction that says so. Returns a note, or ``""``."""
        ...

    def refused(self, step: DdlStep, error: str) -> None:
        """Note why a statement stops its table."""

    def fence(self) -> None:
        """End what a former owner may still be about to run in this lane."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlContext:
    """What the files tell about a statement's surroundings."""

    database_is_ours: bool
    """The bucket has the CREATE DATABASE of the statement's database, so it need not be made."""
    table_was_seen: bool
    """The bucket has an earlier structure of the table, or anything of the database, so it should be there."""
    made_by: DdlStep | None = None
    """The last statement before it that made the table, which may not have been run here."""
    database_statements: tuple[str, ...] = ()
    """The source's CREATE and ALTER DATABASE up to the statement, in order: which defaults a new table has there."""
    decision: Decision | None = None
    """What an operator said about it."""
    should_continue: Callable[[], bool] = lambda: True
    """Asked now and then while a statement is waited for; raises `LeaseLost`, or returns False to end."""


class RowPipeline(Protocol):
    """Runs one wave's rows; see `spark.pipeline`."""

    @property
    def cores(self) -> int:
        """Tasks that run at once."""
        ...

    def run(self, spec: JobSpec, files: Sequence[FileSplit], progress: Progress) -> list[FileReport | WriteReport]:
        """Read, decode, order and write; `TransientError` or `LeaseLost` where the job as a whole failed."""
        ...
