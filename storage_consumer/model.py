"""The nouns: what travels between the stages, as frozen records.

Every commit ts, table version and checkpoint is a TSO: an unsigned 64-bit integer, ``physical milliseconds << 18 | logical``.
They are plain Python integers and are never passed through a float.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

CommitTs = NewType("CommitTs", int)
"""TSO at which a change committed at the source."""
TableVersion = NewType("TableVersion", int)
"""TSO in a directory or schema file name; for a DDL, the TSO at which it finished at the source."""

VersionKey = tuple[int, str]
"""One version directory: version and table directory; two directories of one table may share a version."""

TSO_PHYSICAL_SHIFT = 18
DAY_MS = 24 * 3600 * 1000
CLOCK_MARGIN_MS = DAY_MS
"""A TSO may lie so far beyond our clock. Its physical part comes from the clock of the source's PD, and servers that keep time differ
by far less than a second; but a clock that was set to local time and is taken for UTC is up to 14 hours wrong, and still no row is lost."""
MAX_TSO = (1 << 64) - 1


def physical_ms(ts: int) -> int:
    """Milliseconds since 1970-01-01 UTC of a TSO."""
    return ts >> TSO_PHYSICAL_SHIFT


def is_ahead_of_clock(ts: int, now: float) -> bool:
    """Whether a TSO is one that no source can have given out yet; `now`: seconds since 1970-01-01 UTC by our clock."""
    return physical_ms(ts) > now * 1000 + CLOCK_MARGIN_MS


def latest_tso(checkpoint: int, now: float) -> int:
    """The highest commit ts that a row may have, given a checkpoint that was told and our clock.

    Where the checkpoint lies beyond the clock it is the clock that must be wrong: then any.
    """
    latest = int(now * 1000) + CLOCK_MARGIN_MS + 1 << TSO_PHYSICAL_SHIFT
    return MAX_TSO if is_ahead_of_clock(checkpoint, now) else max(latest, checkpoint + (DAY_MS << TSO_PHYSICAL_SHIFT))


def folded_name(name: str) -> str:
    """A database's or table's name as TiDB compares names: each character in lower case, without any other folding."""
    return name.lower() if name.isascii() else "".join(sign.lower()[:1] for sign in name)


def tso_of(seconds: float) -> int:
    """The first TSO of a moment, given in seconds since 1970-01-01 UTC."""
    return int(seconds * 1000) << TSO_PHYSICAL_SHIFT


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TableName:
    """A table by the names in its schema file; ``table`` is empty for the database itself."""

    schema: str
    table: str

    def __str__(self) -> str:
        """``schema.table``, or ``schema`` alone for a database."""
        return f"{self.schema}.{self.table}" if self.table else self.schema

    def folded(self) -> TableName:
        """The same name as TiDB compares names: without case."""
        return TableName(schema=folded_name(self.schema), table=folded_name(self.table))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One entry of ``TableColumns`` in a schema file (format: attributes that are absent have TiCDC's defaults)."""

    name: str
    type: str
    """Upper-case base name without the UNSIGNED suffix: ``BIGINT``, ``VARCHAR``, ``BIT`` …"""
    unsigned: bool = False
    precision: int | None = None
    """Display width, length or digits, as written."""
    scale: int | None = None
    """Digits after the point, or fractional seconds digits; None where the file has none."""
    nullable: bool = True
    is_pk: bool = False
    default: str | None = None
    """TiDB's raw default text; None where the file has none."""
    elements: tuple[str, ...] = ()
    """Members of ENUM and SET, in order; empty where the writer did not record them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """What one schema file says: a structure, and the DDL that led to it if there was one."""

    name: TableName
    version: TableVersion
    query: str
    """DDL text; empty when the file only records a structure."""
    ddl_type: int
    """TiDB's DDL action code; 0 when ``query`` is empty."""
    columns: tuple[TableColumn, ...]
    """All columns in table order, hidden and virtual generated ones included; empty for a database."""
    path: str
    """The schema file, relative to the storage root."""
    checksum: int
    """CRC-32 from the file's name; where the name has none, what the content comes to, and 0 if that can't be computed."""
    warnings: tuple[str, ...] = ()
    """What was odd about the file but does not stop anything (wrong checksum, unknown attribute, swapped names)."""

    @property
    def is_ddl(self) -> bool:
        """Whether this file carries a statement to run."""
        return bool(self.query.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object as a listing shows it."""

    path: str
    """Relative to the storage root, ``/`` between segments."""
    size: int
    """Bytes."""
    tag: str
    """Changes whenever the content may have changed: an ETag, or mtime in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFile:
    """A schema file that was listed; its content is a `TableDefinition`."""

    stored: StoredObject
    table_dir: str
    """The directory that holds ``meta/``: ``schema/table``, or ``schema`` for a database; in the older layout that above the
    version directory."""
    version: TableVersion
    checksum: int | None
    """CRC-32 from the file's name; None in the older layout, where the name has none."""


def stream_of(folder: str, dispatcher: str, width: int) -> str:
    """The name of a sequence of numbers: directory, dispatcher and index width."""
    return f"{folder}|{dispatcher}|{width}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data file that was listed."""

    stored: StoredObject
    table_dir: str
    """The directory above the version directory; the same text as in the table's `SchemaFile`."""
    version: TableVersion
    partition: int | None
    """Physical partition id, None where the path has no partition directory."""
    date: str
    """``2026-01-31``, ``2026-01``, ``2026`` or empty."""
    dispatcher: str
    """Digits of the dispatcher id in the name, or empty."""
    number: int
    """File index, starts at 1 in each directory (and for each dispatcher)."""
    width: int
    """How many digits the index was written with; streams of other widths count apart."""
    settled: bool = False
    """An earlier run finished it as it is: it only shows that its stream is there."""

    @property
    def version_key(self) -> VersionKey:
        """The version directory that it is in."""
        return self.version, self.table_dir

    @property
    def stream(self) -> str:
        """The sequence of numbers that this file belongs to: directory, dispatcher and index width."""
        return stream_of(self.stored.path.rpartition("/")[0], self.dispatcher, self.width)

    @property
    def order(self) -> tuple[int, str, str, int, str]:
        """Place among the files of one table version: partition, dispatcher, date, number, name."""
        return (
            -1 if self.partition is None else self.partition,
            self.dispatcher,
            self.date,
            self.number,
            self.stored.path,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The interval of commit ts that one row step applies: ``low`` exclusive, ``high`` inclusive."""

    low: int
    high: int
