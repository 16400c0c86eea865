"""The nouns: frozen records that travel between the stages.

Every commit-ts, table version and checkpoint is a TSO: an unsigned 64-bit integer,
``physical milliseconds << 18 | logical``. They are plain Python integers and never pass through a
float, which holds only 53 bits exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, NewType

CommitTs = NewType("CommitTs", int)
"""TSO at which a change committed at the source."""
TableVersion = NewType("TableVersion", int)
"""TSO in a directory's or schema file's name; a DDL's, at which it finished at the source."""

VersionKey = tuple[int, str]
"""Version and table directory, which name a version directory; tables may have two of one.

Two directories of one table may share a version.
"""


class DdlId(NamedTuple):
    """The identity of one statement, stable over restarts; see `DdlStep.identity`."""

    table_dir: str
    """The directory of its schema file."""
    version: int
    checksum: int
    """CRC-32 in the file's name; see `TableDefinition.checksum`."""


class DdlKind(IntEnum):
    """TiDB's DDL action codes, as far as they matter here.

    A schema file may have any other code: compare its code with these members, but never convert
    it.
    """

    CREATE_SCHEMA = 1
    DROP_SCHEMA = 2
    CREATE_TABLE = 3
    DROP_TABLE = 4
    ADD_COLUMN = 5
    DROP_COLUMN = 6
    ADD_INDEX = 7
    DROP_INDEX = 8
    ADD_FOREIGN_KEY = 9
    DROP_FOREIGN_KEY = 10
    TRUNCATE_TABLE = 11
    MODIFY_COLUMN = 12
    REBASE_AUTO_ID = 13
    RENAME_TABLE = 14
    SET_DEFAULT_VALUE = 15
    MODIFY_TABLE_COMMENT = 17
    RENAME_INDEX = 18
    ADD_PARTITION = 19
    DROP_PARTITION = 20
    CREATE_VIEW = 21
    MODIFY_TABLE_CHARSET = 22
    TRUNCATE_PARTITION = 23
    DROP_VIEW = 24
    RECOVER_TABLE = 25
    ALTER_SCHEMA = 26
    """A change of a database's charset or collation."""
    ADD_PRIMARY_KEY = 32
    DROP_PRIMARY_KEY = 33
    ADD_COLUMNS = 37
    DROP_COLUMNS = 38
    ALTER_INDEX_VISIBILITY = 41
    EXCHANGE_PARTITION = 42
    RENAME_TABLES = 47
    """One of several renames in one statement."""
    CREATE_TABLES = 60
    """One of several CREATE TABLE in one batch."""
    MULTI_SCHEMA_CHANGE = 61
    """Several actions in one ALTER TABLE."""
    REORGANIZE_PARTITION = 64
    ALTER_TTL = 65
    REMOVE_TTL = 67
    ALTER_PARTITIONING = 71
    REMOVE_PARTITIONING = 72
    ADD_FULLTEXT_INDEX = 230
    CREATE_HYBRID_INDEX = 231


TSO_PHYSICAL_SHIFT = 18
DAY_MS = 24 * 3600 * 1000
CLOCK_MARGIN_MS = DAY_MS
"""How far a TSO may be ahead of our clock, in milliseconds.

A TSO's physical part comes from the clock of the source's PD. Servers that keep time differ by far
less than a second. A clock that was set to local time and is taken for UTC is up to 14 hours wrong;
the margin keeps even its rows.
"""
MAX_TSO = (1 << 64) - 1


def physical_ms(ts: int) -> int:
    """Return the physical part of a TSO: milliseconds since 1970-01-01 UTC."""
    return ts >> TSO_PHYSICAL_SHIFT


def is_ahead_of_clock(ts: int, now: float) -> bool:
    """Return whether a TSO is in the future; `now`: seconds since 1970, UTC, by our clock."""
    return physical_ms(ts) > now * 1000 + CLOCK_MARGIN_MS


def latest_tso(checkpoint: int, now: float) -> int:
    """Return a row's highest possible commit-ts (inclusive), by checkpoint and our clock.

    If the checkpoint is ahead of the clock, the clock must be wrong, so any TSO is allowed.
    """
    # The shift binds last: this is the first TSO of the millisecond after the margin.
    latest = int(now * 1000) + CLOCK_MARGIN_MS + 1 << TSO_PHYSICAL_SHIFT
    return (
        MAX_TSO
        if is_ahead_of_clock(checkpoint, now)
        else max(latest, checkpoint + (DAY_MS << TSO_PHYSICAL_SHIFT))
    )


def folded_name(name: str) -> str:
    """Return a database or table name as TiDB compares them: lower case by character."""
    # str.lower() may give two characters ("İ"); TiDB lowers rune by rune, hence the first.
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
        """Return ``schema.table``, or ``schema`` alone, in backquotes if it has dots or backquotes.

        No two names are equal as texts.
        """
        parts = [self.schema, self.table] if self.table else [self.schema]
        if any("." in part or "`" in part for part in parts):
            parts = ["`" + part.replace("`", "``") + "`" for part in parts]
        return ".".join(parts)

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
    """Digits after the decimal point, or of fractional seconds; None if the file has none."""
    nullable: bool = True
    is_pk: bool = False
    default: str | None = None
    """TiDB's raw default text; None if the file has none."""
    elements: tuple[str, ...] = ()
    """Members of ENUM and SET, in order; empty if the writer did not record them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameAt:
    """The name of a table, or of a database (empty table), and its place in a statement."""

    schema: str
    """Empty if the statement does not name the database."""
    table: str
    start: int
    end: int
    new: bool = False
    """Whether the statement creates this name."""
    reads: bool = False
    """Whether the statement only reads it: a LIKE source, a parent table, a view's source."""
    alias_at: int = -1
    """Where an alias may be inserted if a view gives the table none; otherwise -1."""
    qualifies: bool = False
    """Whether the name qualifies a column of a view."""

    def within(self, schema: str) -> TableName:
        """Return the name as spelled, in database `schema` if the statement does not name one."""
        return TableName(schema=self.schema or schema, table=self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """A table's old and new name, as spelled; a missing database is the schema file's."""

    old: TableName
    new: TableName
    from_anywhere: bool
    """Whether the old name may be in any database: only the new one is qualified.

    The session's database is not known then.
    """

    @property
    def folded(self) -> tuple[TableName, TableName]:
        """The old and the new name as TiDB compares names."""
        return self.old.folded(), self.new.folded()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedDdl:
    """What a schema file's statement says (`sql.parse.parsed`), without tokens, to be held.

    A definition holds it for as long as it lives.
    """

    own: TableName
    """The name in the schema file."""
    subject: TableName
    """The table that the statement leads to; `own` itself, unless the file lies under another name.

    The new architecture stores one step of a cycle of renames under the last name of its table, in
    the directory and in the file; the statement alone shows which name this step gives.
    """
    head: tuple[str, ...] = ()
    """The first two words in upper case, empty for quoted names and strings; or fewer."""
    rename: Rename | None = None
    """What it renames its table from and to; None if it does not."""
    names: tuple[NameAt, ...] = ()
    """Tables, views and databases it names, in order; no columns, indexes, aliases."""
    others: frozenset[TableName] = frozenset()
    """Words that could be tables, as spelled, if it may touch other tables; else empty."""
    exchanges_partition: bool = False
    has_references: bool = False
    """Whether it may have a foreign key."""
    makes_global_index: bool = False
    """Whether it mentions a GLOBAL index, in TiDB's own comments too."""

    @property
    def is_astray(self) -> bool:
        """Whether the file's columns are another table's than of its place; see `subject`."""
        return self.subject != self.own

    @property
    def creates_table(self) -> bool:
        """Whether it begins with CREATE TABLE."""
        return self.head == ("CREATE", "TABLE")

    @property
    def renamed(self) -> tuple[TableName, TableName] | None:
        """The (old, new) folded names of a statement that renames its table, else None."""
        return None if self.rename is None else self.rename.folded

    @property
    def mentioned(self) -> frozenset[TableName]:
        """Names that the statement touches or may touch, as spelled; a database's is its own."""
        # Not `own`: a table of that name has nothing to do with a step that lies under it.
        return self.others | {self.subject}

    @property
    def touched(self) -> frozenset[TableName]:
        """The names of `mentioned`, folded."""
        return frozenset(name.folded() for name in self.mentioned)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """The content of one schema file: a structure, and the DDL that led to it if there was one."""

    name: TableName
    version: TableVersion
    query: str
    """DDL text; empty if the file only records a structure."""
    ddl_type: int
    """TiDB's DDL action code, known to `DdlKind` or not; 0 if ``query`` is empty."""
    columns: tuple[TableColumn, ...]
    """All columns in order, hidden and virtual generated ones included; empty for a database."""
    path: str
    """Path of the schema file, relative to the storage root."""
    checksum: int
    """CRC-32 of the file's name, else of the content, or 0 if it cannot be computed."""
    warnings: tuple[str, ...] = ()
    """Oddities of the file that stop nothing (wrong checksum, unknown attribute, swapped names)."""
    held: ParsedDdl | None = field(default=None, init=False, repr=False, compare=False)
    """Of `sql.parse.parsed`, filled at first use; `replace` empties it, to parse changed text."""

    @property
    def is_ddl(self) -> bool:
        """Whether this file carries a statement to run."""
        return bool(self.query.strip())

    @property
    def session_database(self) -> str:
        """The statement's session database; "" for none.

        It is none where it makes or drops one. ALTER DATABASE may leave the name out.
        """
        return self.name.schema if self.name.table or self.ddl_type == DdlKind.ALTER_SCHEMA else ""

    @property
    def is_view(self) -> bool:
        """Whether it is about a view: TiDB keeps no types of its columns."""
        return bool(self.columns) and all(column.type == "UNSPECIFIED" for column in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object as a listing shows it."""

    path: str
    """Path relative to the storage root, with ``/`` between segments."""
    size: int
    """Size in bytes."""
    tag: str
    """Text that changes if the content may have: an ETag, or the mtime in nanoseconds."""
    modified: float = field(default=0.0, compare=False)
    """When it was written, in seconds since 1970 UTC by the store's clock; 0 if unknown.

    A copy has another time.
    """


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


def sequence_name(folder: str, dispatcher: str, width: int) -> str:
    """Return the name of a numbered file sequence: directory, dispatcher and index width."""
    return f"{folder}|{dispatcher}|{width}"


def folder_of(sequence: str) -> str:
    """Return the directory in the name of a numbered file sequence."""
    # Cut from the right: a table's name, and so a folder, may hold a bar.
    return sequence.rsplit("|", 2)[0]


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
    """Digits of the written index; sequences of different widths count separately."""
    finished: bool = False
    """True if an earlier run finished this file unchanged: it only shows its sequence."""

    @property
    def version_key(self) -> VersionKey:
        """The version directory that holds the file."""
        return self.version, self.table_dir

    @property
    def sequence(self) -> str:
        """This file's numbered sequence: directory, dispatcher and index width."""
        return sequence_name(self.stored.path.rpartition("/")[0], self.dispatcher, self.width)

    @property
    def order(self) -> tuple[int, str, str, int, str]:
        """The file's position in its table version: partition, dispatcher, date, number, path."""
        return (
            # Ids of partitions are positive, so files without a partition directory come first.
            -1 if self.partition is None else self.partition,
            self.dispatcher,
            self.date,
            self.number,
            self.stored.path,
        )


class SkippedRows(NamedTuple):
    """Rows of one transaction that ``--skip-commit-ts`` left out of a table."""

    table: TableName
    """Without a name for the transaction as such, which has an entry from the first start on."""
    commit_ts: int
    rows: int | None
    """None: the program was killed before it could store how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRange:
    """The commit-ts that a row step applies: ``low`` exclusive, ``high`` inclusive."""

    low: int
    high: int
