"""The nouns: frozen records that travel between the stages.

Every commit-ts, table version and checkpoint is a TSO: an unsigned 64-bit integer, ``physical milliseconds << 18 | logical``.
They are plain Python integers and never pass through a float, which holds only 53 bits exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

CommitTs = NewType("CommitTs", int)
"""TSO at which a change committed at the source."""
TableVersion = NewType("TableVersion", int)
"""TSO in the name of a directory or schema file; for a DDL, the TSO at which it finished at the source."""

VersionKey = tuple[int, str]
"""Version and table directory, which name one version directory; two directories of one table may share a version."""

TSO_PHYSICAL_SHIFT = 18
DAY_MS = 24 * 3600 * 1000
CLOCK_MARGIN_MS = DAY_MS
"""How far a TSO may be ahead of our clock, in milliseconds.

A TSO's physical part comes from the clock of the source's PD. Servers that keep time differ by far less than a second. A clock that was
set to local time and is taken for UTC is up to 14 hours wrong; the margin keeps even its rows.
"""
MAX_TSO = (1 << 64) - 1


def physical_ms(ts: int) -> int:
    """Return the physical part of a TSO: milliseconds since 1970-01-01 UTC."""
    return ts >> TSO_PHYSICAL_SHIFT


def is_ahead_of_clock(ts: int, now: float) -> bool:
    """Return whether no source can have issued this TSO yet; `now` is seconds since 1970-01-01 UTC by our clock."""
    return physical_ms(ts) > now * 1000 + CLOCK_MARGIN_MS


def latest_tso(checkpoint: int, now: float) -> int:
    """Return the highest commit-ts (inclusive) that a row may have, given the reported checkpoint and our clock.

    If the checkpoint is ahead of the clock, the clock must be wrong, so any TSO is allowed.
    """
    # The shift binds last: this is the first TSO of the millisecond after the margin.
    latest = int(now * 1000) + CLOCK_MARGIN_MS + 1 << TSO_PHYSICAL_SHIFT
    return MAX_TSO if is_ahead_of_clock(checkpoint, now) else max(latest, checkpoint + (DAY_MS << TSO_PHYSICAL_SHIFT))


def folded_name(name: str) -> str:
    """Return a database or table name as TiDB compares names: each character in lower case, with no other folding."""
    # str.lower() may turn one character into two ("İ"); TiDB lowers rune by rune, hence the first one only.
    return name.lower() if name.isascii() else "".join(sign.lower()[:1] for sign in name)


def tso_of(seconds: float) -> int:
    """Return the first TSO at a time, given in seconds since 1970-01-01 UTC."""
    return int(seconds * 1000) << TSO_PHYSICAL_SHIFT


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TableName:
    """A table by the names in its schema file; ``table`` is empty for the database itself."""

    schema: str
    table: str

    def __str__(self) -> str:
        """Return ``schema.table``, or ``schema`` alone for a database."""
        return f"{self.schema}.{self.table}" if self.table else self.schema

    def folded(self) -> TableName:
        """Return the name in the form in which TiDB compares names: without case."""
        return TableName(schema=folded_name(self.schema), table=folded_name(self.table))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One entry of ``TableColumns`` in a schema file; absent attributes have TiCDC's defaults."""

    name: str
    type: str
    """Upper-case base name without the UNSIGNED suffix: ``BIGINT``, ``VARCHAR``, ``BIT`` …"""
    unsigned: bool = False
    precision: int | None = None
    """Display width, length or digits, as written in the file."""
    scale: int | None = None
    """Digits after the decimal point, or digits of fractional seconds; None if the file has none."""
    nullable: bool = True
    is_pk: bool = False
    default: str | None = None
    """TiDB's raw default text; None if the file has none."""
    elements: tuple[str, ...] = ()
    """Members of ENUM and SET, in order; empty if the writer did not record them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """The content of one schema file: a structure, and the DDL that led to it if there was one."""

    name: TableName
    version: TableVersion
    query: str
    """DDL text; empty if the file only records a structure."""
    ddl_type: int
    """TiDB's DDL action code; 0 if ``query`` is empty."""
    columns: tuple[TableColumn, ...]
    """All columns in table order, hidden and virtual generated ones included; empty for a database."""
    path: str
    """Path of the schema file, relative to the storage root."""
    checksum: int
    """CRC-32 from the file's name; if the name has none, that of the content, or 0 if it can't be computed."""
    warnings: tuple[str, ...] = ()
    """Oddities of the file that stop nothing (wrong checksum, unknown attribute, swapped names)."""

    @property
    def is_ddl(self) -> bool:
        """Whether this file carries a statement to run."""
        return bool(self.query.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object as a listing shows it."""

    path: str
    """Path relative to the storage root, with ``/`` between segments."""
    size: int
    """Size in bytes."""
    tag: str
    """Text that changes whenever the content may have changed: an ETag, or the mtime in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFile:
    """A schema file that was listed; its content is a `TableDefinition`."""

    stored: StoredObject
    table_dir: str
    """The directory that holds ``meta/``: ``schema/table``, or ``schema`` for a database.

    In the older layout, the directory above the version directory.
    """
    version: TableVersion
    checksum: int | None
    """CRC-32 from the file's name; None in the older layout, where the name has none."""


def stream_of(folder: str, dispatcher: str, width: int) -> str:
    """Return the name of a numbered file sequence: directory, dispatcher and index width."""
    return f"{folder}|{dispatcher}|{width}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data file that was listed."""

    stored: StoredObject
    table_dir: str
    """The directory above the version directory; the same text as in the table's `SchemaFile`."""
    version: TableVersion
    partition: int | None
    """Physical partition id; None if the path has no partition directory."""
    date: str
    """``2026-01-31``, ``2026-01``, ``2026`` or empty."""
    dispatcher: str
    """Digits of the dispatcher id in the name, or empty."""
    number: int
    """File index; starts at 1 in each directory (and for each dispatcher)."""
    width: int
    """Number of digits that the index was written with; sequences of different widths count separately."""
    settled: bool = False
    """True if an earlier run finished this file unchanged: it only shows that its sequence exists."""

    @property
    def version_key(self) -> VersionKey:
        """The version directory that holds the file."""
        return self.version, self.table_dir

    @property
    def stream(self) -> str:
        """The numbered sequence that this file belongs to: directory, dispatcher and index width."""
        return stream_of(self.stored.path.rpartition("/")[0], self.dispatcher, self.width)

    @property
    def order(self) -> tuple[int, str, str, int, str]:
        """The file's position in its table version: partition, dispatcher, date, number, path."""
        return (
            -1 if self.partition is None else self.partition,
            self.dispatcher,
            self.date,
            self.number,
            self.stored.path,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The interval of commit-ts that one row step applies: ``low`` exclusive, ``high`` inclusive."""

    low: int
    high: int
