"""What a task needs to know about a table: its rows' layouts, its target columns, its key. Frozen, picklable, no secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from storage_consumer.config.settings import Downstream, Upstream
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.values import WireKind
from storage_consumer.job.lossy_columns import Limit
from storage_consumer.model import MAX_TSO, DataFile, TableName, VersionKey, Window


class Mode(Enum):
    """How a table's changes are ordered and written."""

    KEYED = "keyed"
    """Only the last state of each key counts; deletes of a bucket first, then upserts in any order."""
    ORDERED = "ordered"
    """The target may find keys equal that differ in text: all changes of a bucket in sequence."""
    KEYLESS = "keyless"
    """No key: every event counts, in sequence, in one bucket, committed with its position."""


class Fold(Enum):
    """When two texts of a key column are the same key."""

    EXACT = "exact"
    PAD = "pad"
    """After trailing spaces are taken off."""
    NUMBER = "number"
    """As floating point numbers."""
    LOOSE = "loose"
    """By a collation that we do not imitate: only a coarse image of the text tells keys surely apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireColumn:
    """A target column that rows are written to or compared by."""

    name: str
    kind: WireKind
    type: str
    """Upper-case type name of the schema file; of a FLOAT or DOUBLE, and of what becomes a text, that of the target's column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPart:
    """One column of the key."""

    column: WireColumn
    fold: Fold
    prefix: int | None = None
    """Only so many leading characters (bytes for binary types) count; None = all."""
    beyond_bmp: bool = True
    """For LOOSE: the collation tells characters beyond U+FFFF from one another; older ones find all of them equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPlan:
    """One version directory of a table."""

    layout: RowLayout
    low: int
    """Rows with commit ts <= low are repeated deliveries."""
    written: tuple[int, ...]
    """Per written column its place in the layout."""
    key: tuple[int, ...]
    """Per key column its place in the layout."""
    unique: tuple[tuple[int, ...], ...] = ()
    """For a keyless table: per unique key that may hold NULL the places of its columns in the layout."""
    limits: tuple[Limit, ...] = ()
    """What the target would not keep of values that these rows may hold."""
    misfit: str = ""
    """Why its rows do not fit the target's table as it is now; empty if they do. No row in the window may be of it then."""
    is_all_duplicates: bool = False
    """All its rows are repeated deliveries, though they do not say their commit ts: the table was dropped after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """All that tasks need to know about one table in one window."""

    index: int
    table_key: str
    """Under which its progress is stored."""
    name: TableName
    """With the target's own spelling."""
    window: Window
    mode: Mode
    has_other_unique_keys: bool
    """It has further unique keys: writers that get in each other's way with REPLACE queue from then on."""
    written: tuple[WireColumn, ...]
    key: tuple[KeyPart, ...]
    versions: Mapping[VersionKey, VersionPlan]
    replaces: bool = False
    """A keyless table has unique keys over columns that may be NULL: a row replaces the one that shares such a key."""
    timed: bool = True
    """Every row says its commit ts; else the place in the files is the order."""
    stripe_bits: int = 6
    """So many of an integer key's last bits do not count for its bucket: neighbours share one, so that each writer fills pages of the
    target's index in sequence."""
    latest: int = MAX_TSO
    """The highest commit ts that a row may have: no source can have given out a later one yet."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Which rows of a file one task reads, by the bytes at which they begin; see `decode.file_splits`.

    The rows of a part are numbered from `start` + 1 on: so numbers of later parts are higher, however many rows are before them.
    """

    start: int = 0
    """Inclusive."""
    end: int | None = None
    """Exclusive; None: to the end of the file."""


WHOLE = ByteRange()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSplit:
    """One file to read, or a part of it."""

    table: int
    """`TablePlan.index`."""
    file: DataFile
    rank: int
    """Place in the sequence order of its table's files in this job."""
    newest: bool
    """No file follows it in its stream, so its last row may still be in writing."""
    splittable: bool = False
    """It may be read in parts."""
    span: ByteRange = WHOLE

    @property
    def size(self) -> int:
        """Bytes to read, by the listing."""
        return (self.file.stored.size if self.span.end is None else self.span.end) - self.span.start


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One Spark job: the row steps of a wave."""

    upstream: Upstream
    downstream: Downstream
    secrets_file: str
    """Path of the file that holds the secrets on this machine, or empty: then they come from the environment."""
    tables: tuple[TablePlan, ...]
    partitions: int
    """Tasks that write; each has a slot."""
    whole: bool = False
    """All files of a table are read by the task that writes it."""
    epoch: int
    window_id: int
    load_data: bool
    """Whether LOAD DATA LOCAL may be used; otherwise multi-row statements."""
    max_packet: int
    """max_allowed_packet of the server, bytes."""
