"""What a task must know about a table: the layouts of its rows, its target columns, its key. Frozen, picklable, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from storage_consumer.config.settings import Downstream, Upstream
from storage_consumer.decode.canonical_text import Spelling
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.values import WireKind
from storage_consumer.job.lossy_columns import Limit
from storage_consumer.model import MAX_TSO, CommitRange, DataFile, TableName, VersionKey


class Mode(Enum):
    """How a table's changes are ordered and written."""

    KEYED = "keyed"
    """Only the last state of each key counts; a bucket's deletes come first, then its upserts in any order."""
    ORDERED = "ordered"
    """The target may treat keys as equal that differ in text: all changes of a bucket in sequence."""
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
    """The same; the target compares by a collation that we do not imitate: only a coarse image of the text proves keys different."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireColumn:
    """A target column that rows are written to or compared by."""

    name: str
    kind: WireKind
    type: str
    """Upper-case type name in the schema file; for a FLOAT or DOUBLE, and for what becomes a text, that of the target's column."""
    is_computed: bool = False
    """Whether the target computes its values: those of the rows are compared with them, and not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """How rows of a table are quarantined that the target refuses."""

    limit: int
    """Most entries of the table."""
    paths: tuple[str, ...]
    """Paths of the files of this job, by rank."""
    as_of: int = 0
    """TSO of the copy that these are files of, which its rows have in the place of a commit-ts; 0 for files of the bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPart:
    """One column of the key."""

    column: WireColumn
    fold: Fold
    prefix: int | None = None
    """The number of leading characters (bytes for binary types) that count; None means all."""
    beyond_bmp: bool = True
    """For LOOSE: whether the collation distinguishes characters beyond U+FFFF; older ones find all of them equal."""
    form: Spelling | None = None
    """The one form of its values over all commit ranges; None: they have one as they are written."""
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
    """For a keyless table: for each unique key that may hold NULL, the indexes of its columns in the layout."""
    limits: tuple[Limit, ...] = ()
    """What the target would not keep of values that these rows may hold."""
    misfit: str = ""
    """Why its rows do not fit the target's current table; empty if they do. If set, no row in the commit range may be of this version."""
    is_all_duplicates: bool = False
    """Whether all its rows are repeated deliveries, though they have no commit-ts: the table was dropped after them."""
    is_uncompared: bool = False
    """Whether its rows are only counted: nobody knows the table yet to which a plan would have them written."""


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
    """Whether there are further unique keys: writers that block each other then queue, and a row may be in another's way."""
    written: tuple[WireColumn, ...]
    key: tuple[KeyPart, ...]
    versions: Mapping[VersionKey, VersionPlan]
    is_settled: bool = False
    """Whether the rows of this commit range in the target are in their last states: one that is in another's way stays in it."""
    replaces: bool = False
    """Whether a keyless table has unique keys over nullable columns: a row replaces the one that shares such a key."""
    has_commit_ts: bool = True
    """Whether every row has its commit-ts; otherwise the place in the files is the order."""
    stripe_bits: int = 6
    """How many low bits of an integer key its bucket ignores. Neighbours share a bucket, so each writer fills index pages in sequence."""
    latest: int = MAX_TSO
    """The highest commit-ts that a row may have: no source can have issued a later one yet."""
    version: int = 0
    """The table version of the structure in which its rows are written."""
    quarantine: Quarantine | None = None
    """Whether, and how, rows are quarantined that the target refuses."""
    has_entries: bool = False
    """Whether the quarantine may hold rows of the table: writing or deleting a key then removes its entry."""

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
    """Whether no file follows it in its sequence, so that its last row may still be being written."""
    exact: bool = False
    """Whether it may only be read as it was listed: what a copy consists of is listed once, so nothing would show another content later."""

    @property
    def size(self) -> int:
        """Bytes to read, by the listing."""
        return self.file.stored.size


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatements:
    """A task's statements on the state tables. ``%`` puts SQL literals in place of their names; see `StateTables.for_tasks`."""

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
    """Put a row into the quarantine, or the newer state of its key in its place; see `QUARANTINE_VALUES`."""
    remove_entries: str = ""
    """Remove the quarantined rows of the table ``of`` whose digests are in the list ``digests``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One Spark job: the row steps of a wave."""

    origins: tuple[Upstream, ...]
    """Where its files lie and how they are written: first the bucket, then the exports that tables are loaded from."""
    downstream: Downstream
    secrets_file: str
    """Path of the file that holds the secrets on this machine; if empty, they come from the environment."""
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
    title: str = ""
    """What Spark's UI says about the job."""
