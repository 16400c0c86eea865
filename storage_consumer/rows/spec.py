"""A job's records: what tasks know and report of a table; and how a job is cut.

They are frozen, picklable and without secrets.

A job has one of two shapes. If each table has little to read, all files of a table go to one task,
which writes what it has read: one stage, no shuffle, and no cost per table. Otherwise tasks read
groups of files, and the rows go through a shuffle to tasks that write a bucket of keys each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from storage_consumer.clock import data_size
from storage_consumer.config.settings import Downstream, Protocol, Upstream
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.values import Spelling, WireKind
from storage_consumer.model import MAX_TSO, CommitRange, DataFile, TableName, VersionKey
from storage_consumer.plan.steps import RowStep
from storage_consumer.rows.fitting import Limit
from storage_consumer.telemetry import escaped, redact


class Mode(Enum):
    """How a table's changes are ordered and written."""

    KEYED = "keyed"
    """Only each key's last state counts: a bucket's deletes first, then upserts in any order."""
    ORDERED = "ordered"
    """The target may equate keys with other texts: all changes of a bucket in sequence."""
    KEYLESS = "keyless"
    """No key: every event counts, in sequence, in one bucket, committed with its position."""


class Fold(Enum):
    """When two texts of a key column are the same key."""

    EXACT = "exact"
    PAD = "pad"
    """If they are equal to the source; the target ignores trailing spaces."""
    NUMBER = "number"
    """If they are equal as floating-point numbers."""
    LOOSE = "loose"
    """The same, by a collation without imitation: only a text's coarse image proves keys different.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class WireColumn:
    """A target column that rows are written to or compared by."""

    name: str
    kind: WireKind
    type: str
    """Schema file's type in upper case; for FLOAT, DOUBLE and conversion to text the target's."""
    is_computed: bool = False
    """Whether the target computes its values: rows' values are compared, not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """How rows of a table are quarantined that the target refuses."""

    limit: int
    """Most entries of the table."""
    paths: tuple[str, ...]
    """Paths of the files of this job, by rank."""
    as_of: int = 0
    """TSO of the copy of these files, used as commit-ts; 0 for files of the bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPart:
    """One column of the key."""

    column: WireColumn
    fold: Fold
    prefix: int | None = None
    """The number of leading characters (bytes for binary types) that count; None means all."""
    beyond_bmp: bool = True
    """For LOOSE: whether characters above U+FFFF differ; older collations equate them all."""
    form: Spelling | None = None
    """The one form of its values over all commit ranges; None: as they are written."""
    is_lasting: bool = True
    """Whether its values have such a form, whatever the type of the column that they came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPlan:
    """One version directory of a table."""

    layout: RowLayout
    low: int
    """Rows with commit-ts <= low are repeated deliveries."""
    written: tuple[int, ...]
    """For each written column, its index in the layout."""
    key: tuple[int, ...]
    """For each key column, its index in the layout."""
    unique: tuple[tuple[int, ...], ...] = ()
    """For a keyless table: column indexes of each unique key that may hold NULL."""
    limits: tuple[Limit, ...] = ()
    """What the target would not keep of values that these rows may hold."""
    misfit: str = ""
    """Why its rows do not fit the target's table, or empty; if set, none may be in range."""
    is_all_duplicates: bool = False
    """Whether all rows are repeats, though without commit-ts: the table was dropped later."""
    is_uncompared: bool = False
    """Whether its rows are only counted: the table that a plan writes to is not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """All that tasks must know about one table in one commit range."""

    index: int
    table_key: str
    """The key under which its progress is stored."""
    origin: int = 0
    """Where its files lie: an index of `JobSpec.origins`."""
    name: TableName
    """The name as the target spells it."""
    commit_range: CommitRange
    mode: Mode
    has_other_unique_keys: bool
    """Whether there are other unique keys: blocking writers queue, rows may block each other."""
    written: tuple[WireColumn, ...]
    key: tuple[KeyPart, ...]
    versions: Mapping[VersionKey, VersionPlan]
    is_settled: bool = False
    """Whether the range's rows in the target are last states: one that blocks another stays."""
    replaces: bool = False
    """Whether a keyless table has nullable unique keys: a row replaces the one that shares one."""
    has_commit_ts: bool = True
    """Whether every row has its commit-ts; otherwise the place in the files is the order."""
    stripe_bits: int = 6
    """Low bits of an integer key that its bucket ignores: neighbours share one, filling pages."""
    latest: int = MAX_TSO
    """The highest commit-ts that a row may have: no source can have issued a later one yet."""
    version: int = 0
    """The table version of the structure in which its rows are written."""
    quarantine: Quarantine | None = None
    """Whether, and how, rows are quarantined that the target refuses."""
    has_entries: bool = False
    """Whether the quarantine may hold rows of the table: a written key then leaves it."""

    @property
    def has_gaps(self) -> bool:
        """Whether rows may lack columns, each another one: see `RowLayout.may_lack`."""
        return any(version.layout.may_lack for version in self.versions.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """One file to read."""

    table: int
    """`TablePlan.index`."""
    file: DataFile
    rank: int
    """Index in the sequence of its table's files in this job."""
    newest: bool
    """Whether no file follows in its sequence: its last row may still be being written."""
    exact: bool = False
    """Whether it must be as listed: a copy is listed once, so other content would go unseen."""

    @property
    def size(self) -> int:
        """Bytes to read, by the listing."""
        return self.file.stored.size


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatements:
    """A task's statements on state tables; ``%`` fills in literals: `StateTables.for_tasks`."""

    lock_slot: str
    """Lock the slot ``of``: epoch, window, attempt, and whether that attempt has finished."""
    claim_slot: str
    """Note in the slot ``of`` that the attempt ``by`` has it."""
    close_slot: str
    """Note in the slot ``of`` that its attempt has finished."""
    lock_checkpoint: str
    """Lock the progress of the table ``of`` (its key): its checkpoint."""
    store_checkpoint: str
    """Move the checkpoint of the table ``of``, which is ``named`` so ``in_schema``, to ``upto``."""
    lock_load: str = ""
    """Lock the load of the table ``of``: its clock; see `plan.loads`."""
    store_load: str = ""
    """Move the clock of the load of the table ``of`` to ``upto``."""
    open_entries: str = ""
    """The quarantined rows of the table ``of``: the digests of their keys."""
    lock_entries: str = ""
    """The same, locked."""
    put_entry: str = ""
    """Put a row, or its key's newer state, into the quarantine; see `QUARANTINE_VALUES`."""
    remove_entries: str = ""
    """Remove the quarantined rows of the table ``of`` whose digests are in the list ``digests``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One Spark job: the row steps of a wave."""

    origins: tuple[Upstream, ...]
    """Where its files are and how they are written: the bucket's, then exports' for loads."""
    downstream: Downstream
    secrets_file: str
    """Path of the file with the secrets on this machine; if empty, the environment has them."""
    tables: tuple[TablePlan, ...]
    partitions: int
    """Tasks that write; each has a slot."""
    whole: bool = False
    """Whether all files of a table are read by the task that writes it."""
    epoch: int
    window_id: int
    statements: TaskStatements
    load_data: bool
    """Whether LOAD DATA LOCAL may be used; otherwise multi-row statements are."""
    max_packet: int
    """The server's max_allowed_packet, in bytes."""
    rows_per_second: float = 0.0
    """Most rows that all tasks write per second, or the one that gets it; 0: any number."""
    title: str = ""
    """What Spark's UI says about the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """The outcome of one file."""

    table: int
    path: str
    rows: int = 0
    duplicates: int = 0
    repeated_ts: int = 0
    """Highest commit-ts of the duplicates."""
    later: int = 0
    applied: int = 0
    max_ts: int = 0
    next_ts: int = 0
    skipped: tuple[tuple[int, int], ...] = ()
    """Commit-ts and number of the rows that were left out."""
    error: str = ""
    """Why the file's table cannot go on; empty if it can."""
    torn: bool = False
    """Whether the error may vanish: the newest file's last row is being written; or `gone`."""
    gone: bool = False
    """Whether the listed object no longer exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlace:
    """Where a row comes from."""

    commit_ts: int
    rank: int
    """Of its file."""
    row: int
    """Its number in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    """A row that goes into the quarantine instead of its table."""

    key: str
    """Columns and values of its key, for people."""
    line: bytes
    """Of the written columns; empty in what is reported."""
    reason: str
    """What the target said, with this number."""
    error_number: int
    place: RowPlace


class Written(NamedTuple):
    """What became of the rows of a table in one bucket."""

    rows: int
    """Rows written and deleted."""
    blocked: int = 0
    """See `WriteReport.blocked`."""
    quarantined: tuple[QuarantinedRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """The outcome of one table in one bucket."""

    table: int
    written: int = 0
    """Rows written and deleted."""
    blocked: int = 0
    """Rows blocked by others that may be about to go; see `TablePlan.is_settled`."""
    error: str = ""
    """Why the target refused a row; empty if it took all of them."""
    place: RowPlace | None = None
    """Where the refused row comes from, if that is known."""
    quarantined: tuple[QuarantinedRow, ...] = ()
    """Rows that went into the quarantine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """What a job did with one table."""

    files: dict[str, FileReport]
    """By path; see `by_path`."""
    written: int
    """Rows written and deleted."""
    error: str
    """Why the table cannot continue, with the place in the bucket, the first one; or empty."""
    refused: bool
    """Whether it is the target that refused a row; else a file cannot be read."""
    may_pass: bool
    """Whether every error may vanish by itself; see `FileReport.torn`."""
    gone: bool
    """Whether a listed file no longer exists."""
    quarantined: tuple[QuarantinedRow, ...] = ()
    """Rows that went into the quarantine, by commit-ts."""


def table_outcome(step: RowStep, reports: Sequence[FileReport | WriteReport]) -> TableOutcome:
    """Return the outcome of a step. `reports`: all of its table."""
    of_files, faulty = _of_files(reports), [report for report in reports if report.error]
    first = faulty[0] if faulty else None
    error = first.error if first else ""
    if isinstance(first, WriteReport) and (place := first.place):
        # A row of a copy has the load's clock there, which tells nobody anything.
        at = f", commit ts {place.commit_ts}" if place.commit_ts and not step.as_of else ""
        error += f" (row {place.row} of {in_sequence(step)[place.rank].stored.path}{at})"
    rows = [
        row for report in reports if isinstance(report, WriteReport) for row in report.quarantined
    ]
    return TableOutcome(
        files=by_path(reports),
        written=sum(report.written for report in reports if isinstance(report, WriteReport)),
        error=error,
        refused=isinstance(first, WriteReport),
        may_pass=all(isinstance(report, FileReport) and report.torn for report in faulty),
        gone=any(report.gone for report in of_files),
        quarantined=tuple(
            sorted(rows, key=lambda row: (row.place.commit_ts, row.place.rank, row.place.row))
        ),
    )


def is_blocked(reports: Iterable[FileReport | WriteReport]) -> bool:
    """Return whether a table waits only for other rows to make way for its own."""
    found = list(reports)
    blocked = any(report.blocked for report in found if isinstance(report, WriteReport))
    return blocked and not any(report.error for report in found)


def by_path(reports: Iterable[FileReport | WriteReport]) -> dict[str, FileReport]:
    """Return one report per file, the first: one with an error may come from each bucket."""
    return {report.path: report for report in reversed(_of_files(reports))}


def _of_files(reports: Iterable[FileReport | WriteReport]) -> list[FileReport]:
    return [report for report in reports if isinstance(report, FileReport)]


def in_sequence(step: RowStep) -> list[DataFile]:
    """Return the files of one table in its sequence: a file's rank is its index here."""
    return sorted(step.files, key=lambda file: (file.version_key, file.order))


BUCKET_BYTES: dict[Protocol, int] = {
    "csv": 24 << 20,
    "canal-json": 96 << 20,
    "dump-sql": 24 << 20,
    "dump-csv": 24 << 20,
}
"""File bytes per bucket, of about equal rows: a canal-json message repeats all names."""
ROW_BYTES = {protocol: size // 250_000 for protocol, size in BUCKET_BYTES.items()}
"""About how many bytes of a file a row takes."""
TASK_PACE = 10_000
"""Rows per second that a single task can write in any case."""
MOST_TASKS = 2_000
SMALLEST_GROUP, LARGEST_GROUP = 1 << 20, 48 << 20
"""File bytes per reading task; one that also writes holds all, at most `LARGEST_WHOLE`."""
LARGEST_WHOLE = 16 << 20
FILE_COST = 16 << 10
"""Bytes that could be read while a file is opened; no file counts for less."""
LONGEST = 200
"""Characters."""
_NAMED = 5
"""Most tables that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """How a job is cut."""

    partitions: int
    """Tasks that write, and so slots."""
    whole: bool
    """Whether they read as well: all files of a table are read by the task that writes it."""


def shape(
    files: Iterable[JobFile], protocol: Protocol, cores: int, wish: int = 0, pace: int = 0
) -> JobShape:
    """Return the shape by bytes: what a task holds fits in memory, and each has work.

    `wish`: the requested number of buckets, 0 for none. `pace`: most rows to write per
    second, 0 for any number.
    """
    if wish:
        return JobShape(partitions=wish, whole=False)
    # Each task has a share of the pace, which one with less to write leaves unused.
    cores = min(cores, 1 + pace // TASK_PACE) if pace else cores
    by_table: dict[int, int] = {}
    size = 0
    for work in files:
        by_table[work.table] = by_table.get(work.table, 0) + _cost(work)
        size += work.size
    # One large table would keep its task busy alone, so each of them has to be small.
    if max(by_table.values(), default=0) <= SMALLEST_GROUP:
        total = sum(by_table.values())
        tasks = -(-total // min(LARGEST_WHOLE, max(SMALLEST_GROUP, -(-total // cores))))
        return JobShape(partitions=min(MOST_TASKS, max(1, min(tasks, len(by_table)))), whole=True)
    by_size = -(-size // BUCKET_BYTES[protocol])
    # A task per table or MiB, up to the cores; two per core once it has 4 MiB to do.
    few = min(cores, max(len(by_table), -(-size // (1 << 20))))
    partitions = max(few, by_size, 2 * cores if size > cores * (4 << 20) else 1)
    if partitions > cores:  # tasks are alike: an odd last one would keep the other cores waiting
        partitions = -(-partitions // cores) * cores
    return JobShape(partitions=min(MOST_TASKS, partitions), whole=False)


def _cost(work: JobFile) -> int:
    """Return the cost of reading a file, in bytes."""
    return max(FILE_COST, work.size)


def in_groups(files: Sequence[JobFile], cores: int) -> list[list[JobFile]]:
    """Return files in groups of about equal cost, neighbours and small files together.

    The most costly group comes first: tasks begin in this order, and the last one to begin keeps
    the other cores waiting.
    """
    total = sum(map(_cost, files))
    goal = min(LARGEST_GROUP, max(SMALLEST_GROUP, -(-total // (3 * cores))))
    groups: list[list[JobFile]] = [[]]
    size = 0
    for work in sorted(files, key=lambda w: (w.table, w.rank)):
        if groups[-1] and size + _cost(work) > goal:
            groups.append([])
            size = 0
        groups[-1].append(work)
        size += _cost(work)
    return sorted(groups, key=lambda group: -sum(map(_cost, group)))


def by_tables(files: Sequence[JobFile], tasks: int) -> list[list[JobFile]]:
    """Return files in `tasks` groups, a table's files in one, as even as tables allow."""
    tables: dict[int, list[JobFile]] = {}
    for work in files:
        tables.setdefault(work.table, []).append(work)
    costs = {table: sum(map(_cost, found)) for table, found in tables.items()}
    groups: list[list[JobFile]] = [[] for _ in range(tasks)]
    sizes = [0] * tasks
    # The costliest table first, each to the group that is lightest so far.
    for table in sorted(tables, key=lambda table: (-costs[table], table)):
        lightest = sizes.index(min(sizes))
        groups[lightest] += tables[table]
        sizes[lightest] += costs[table]
    return groups


def job_title(number: int, wave: int, tables: Sequence[str], files: Sequence[JobFile]) -> str:
    """Return a job's description of at most `LONGEST` characters.

    Such as ``round 12, wave 1: 3 files, 1.5 MiB, 1 table: shop.orders``.

    `number` counts the rounds since the start, `wave` the jobs of the round, both from 1.
    """
    size = data_size(sum(work.size for work in files))
    counts = f"{_count(len(files), 'file')}, {size}, {_count(len(tables), 'table')}"
    # Spark's UI would take some tags for links.
    title = redact(escaped(f"round {number}, wave {wave}: {counts}: {', '.join(tables[:_NAMED])}"))
    return title.replace("<", "(").replace(">", ")")[:LONGEST]


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
