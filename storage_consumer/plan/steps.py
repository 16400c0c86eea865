"""All the work there is, as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage_consumer.model import (
    CommitRange,
    DataFile,
    DdlId,
    DdlKind,
    ParsedDdl,
    TableDefinition,
    TableName,
    VersionKey,
    folded_name,
)
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import quote

DROPS = frozenset((DdlKind.DROP_SCHEMA, DdlKind.DROP_TABLE, DdlKind.DROP_VIEW))
"""Kinds that remove the object that they are about."""
MAKES_TABLE = frozenset(
    (
        DdlKind.CREATE_TABLE,
        DdlKind.RENAME_TABLE,
        DdlKind.RENAME_TABLES,
        DdlKind.CREATE_VIEW,
        DdlKind.RECOVER_TABLE,
        DdlKind.CREATE_TABLES,
    )
)
"""Kinds that give a name a table, a view, or the table's former rows."""


def key_of(name: TableName) -> str:
    """Return the unique key of a table (or a database): its folded name as one text that can be read in one way only."""
    # In backquotes, so that a dot in a name separates nothing.
    folded = name.folded()
    return f"{quote(folded.schema)}.{quote(folded.table)}" if folded.table else quote(folded.schema)


OF_LOADS = "load/"
"""How the folder begins under which the journal has the statements of copies; behind the load's id follows a key of a table or database."""


def is_of_copy(table_dir: str) -> bool:
    """Return whether the journal has statements of a copy under this folder. A database of the bucket may be called `load`."""
    return table_dir.startswith(OF_LOADS) and "/`" in table_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlStep:
    """One statement, or one structure that the target must have, at its place on the commit-ts line."""

    table_dir: str
    """The directory of its schema file."""
    table_key: str
    """The table that it leads to; see `key_of`."""
    definition: TableDefinition
    ensure: bool = False
    """Whether no statement is known: create the table from its columns if the target lacks it."""
    inferred: bool = False
    """Whether no file holds it: the other statements of its version show that it was lost."""
    skip: str = ""
    """Why the filter keeps it from being run; empty if it does not."""
    refusal: str = ""
    """Why the view that it creates cannot be made; empty if only the target can say."""
    source: DdlStep | None = None
    """The same with the bucket's names, if this one has the target's."""

    @property
    def is_of_copy(self) -> bool:
        """Whether it makes a table of a copy, or its database, and is no statement of the bucket."""
        return is_of_copy(self.table_dir)

    @property
    def creates_view(self) -> bool:
        """Whether it creates a view, which can be done at any later time; a rename would take whatever has the old name by then."""
        return self.definition.ddl_type == DdlKind.CREATE_VIEW

    @property
    def makes_view(self) -> bool:
        """Whether it creates a view, or gives one another name: that has no rows, so it waits for tables, and no table waits for it."""
        return self.creates_view or (self.ddl.rename is not None and self.definition.is_view)

    @property
    def alters_no_table(self) -> bool:
        """Whether tables stay as they are: it waits for none that stands still, and takes none along."""
        return self.makes_view or self.definition.ddl_type == DdlKind.ALTER_SCHEMA

    def holds_up_rows(self, key: str) -> bool:
        """Return whether later rows of a table that it touches, by key, wait for it."""
        return key == self.table_key or not self.alters_no_table

    @property
    def origin(self) -> DdlStep:
        """The step with the bucket's names, which everything but the target uses."""
        return self.source or self

    @property
    def version(self) -> int:
        """The version: rows with commit-ts <= it come before the statement, the others after."""
        return self.definition.version

    @property
    def name(self) -> TableName:
        """The name of the table that the schema file is about."""
        return self.definition.name

    @property
    def ddl(self) -> ParsedDdl:
        """What the statement says."""
        return parsed(self.definition)

    @property
    def identity(self) -> DdlId:
        """The unique identity of a statement, stable over restarts: directory, version, checksum in the file's name.

        An inferred one has the directory that its file would be in, and a checksum of its text.
        """
        return DdlId(self.table_dir, self.definition.version, self.definition.checksum)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStep:
    """The rows of one table in one commit range."""

    table_key: str
    """See `key_of`."""
    name: TableName
    commit_range: CommitRange
    current: TableDefinition
    """The structure that is in force in the commit range."""
    definitions: Mapping[VersionKey, TableDefinition]
    """The structure of every version directory that a file is in."""
    files: tuple[DataFile, ...]
    """Files that may hold rows of the commit range, in sequence order."""
    made_at: int = 0
    """Version of the CREATE TABLE that made the table before the commit range; 0 for none, and for one that a rename gave its name."""
    dropped: bool = False
    """Whether the table does not exist at this time: the files may only hold rows that were applied before."""
    out_of_turn: str = ""
    """Path of a file of which later ones were applied: it came late or its content has changed. Empty if there is none."""
    origin: int = 0
    """Where its files are: 0 is the bucket, and above it are copies that tables are loaded from."""
    as_of: int = 0
    """TSO of the copy that its files are of; 0 for files of the bucket, whose rows have a commit-ts each."""
    upcoming: TableDefinition | None = None
    """What the table's next statement leads to, if the target may have that already, from a copy; see `plan.covered`."""
    early_name: TableName | None = None
    """The name that the next statement gives the table, if the target may have it by that already, from a copy."""
    is_early: bool = False
    """Whether it does have it by that name, beside whatever it has under the former one."""
    crossing: str = ""
    """Path of the schema file by which one key's rows may be in several partitions, if the files are. Empty if there is none."""

    def is_former(self, definition: TableDefinition) -> bool:
        """Return whether a directory is of an earlier table of the name, which was gone before the commit range: no row of it is in there.

        Where the table that is there now has these columns, TiCDC may write rows of it into that directory.
        """
        is_earlier = definition.version < self.made_at and definition.name.folded() == self.current.name.folded()
        return is_earlier and _kinds(definition) != _kinds(self.current)

    @property
    def is_before_structure(self) -> bool:
        """Whether `current` is what a statement leads to that comes only after these rows: nothing shows the one before it but a copy."""
        return self.current.is_ddl and self.current.version >= self.commit_range.high


def _kinds(definition: TableDefinition) -> list[tuple[str, str, bool, tuple[str, ...]]]:
    return [(folded_name(c.name), c.type, c.unsigned, c.elements) for c in definition.columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """What can be done next, all at the same time."""

    rows: tuple[RowStep, ...]
    """Row steps of all tables that have files to read; one Spark job."""
    ddls: tuple[tuple[DdlStep, ...], ...]
    """Groups of one version each, whose tables have all arrived there; only where there are no rows to write first."""

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.rows or self.ddls)


MOST_FILES = 100_000
"""Most files in one job, unless a single table has more: the job's description and its reports are held in memory."""


def in_one_job(steps: Sequence[RowStep], most: int = 0) -> tuple[RowStep, ...]:
    """Return the first steps, with at most `most` files together (0: `MOST_FILES`), and at least one; the others come in the next wave."""
    most = min(most, MOST_FILES) if most else MOST_FILES
    taken: list[RowStep] = []
    files = 0
    for step in steps:
        files += len(step.files)
        # One table's step is never divided, so the first one goes whatever its size.
        if taken and files > most:
            break
        taken.append(step)
    return tuple(taken)
