"""All the work there is, as records."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

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
from storage_consumer.plan.finished_files import Rest
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
    """Return the key of a table or database: its folded name as one unambiguous text."""
    # In backquotes, so that a dot in a name separates nothing.
    folded = name.folded()
    return f"{quote(folded.schema)}.{quote(folded.table)}" if folded.table else quote(folded.schema)


OF_LOADS = "load/"
"""How the journal's folder of copies' statements begins, before a load's id and a key."""


OF_SKIPPED = "skipped/`"
"""How the journal's folder begins for what ``--skip-commit-ts`` left out of a table."""


def is_of_copy(table_dir: str) -> bool:
    """Return whether a journal folder is a copy's; a bucket's database may be called `load`."""
    return table_dir.startswith(OF_LOADS) and "/`" in table_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlStep:
    """A statement, or a structure that the target must have, on the commit-ts line."""

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
        """Whether it makes a copy's table or database, and is no statement of the bucket."""
        return is_of_copy(self.table_dir)

    @property
    def creates_view(self) -> bool:
        """Whether it creates a view, possible at any later time.

        A rename would take whatever has the old name by then.
        """
        return self.definition.ddl_type == DdlKind.CREATE_VIEW

    @property
    def makes_view(self) -> bool:
        """Whether it creates or renames a view: without rows, it waits, but is not waited for."""
        return self.creates_view or (self.ddl.rename is not None and self.definition.is_view)

    @property
    def alters_no_table(self) -> bool:
        """Whether tables stay as they are: it waits for no halted one, and advances none."""
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
        """A statement's stable identity: directory, version, checksum in the file's name.

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
    """Version of its CREATE TABLE before the commit range; 0 for none or a renamed table."""
    dropped: bool = False
    """Whether the table is gone at this time: files may only hold rows applied before."""
    out_of_turn: str = ""
    """Path of a file that came late or changed, after later ones were applied; or empty."""
    origin: int = 0
    """Where its files are: 0 is the bucket, and above it are copies that tables are loaded from."""
    as_of: int = 0
    """TSO of its files' copy; 0 for the bucket's files, whose rows have a commit-ts each."""
    upcoming: TableDefinition | None = None
    """What the next statement leads to, if a copy may already show it; see `plan.covered`."""
    early_name: TableName | None = None
    """The name that the next statement gives, if a copy may already show it."""
    is_early: bool = False
    """Whether it does have it by that name, beside whatever it has under the former one."""
    crossing: str = ""
    """Path of the schema file by which a key may be in several partitions of files, or empty."""

    def is_former(self, definition: TableDefinition) -> bool:
        """Return whether a directory is an earlier table's, gone before the range: no rows in it.

        Where the table that is there now has these columns, TiCDC may write rows of it into that
        directory.
        """
        is_earlier = (
            definition.version < self.made_at
            and definition.name.folded() == self.current.name.folded()
        )
        return is_earlier and _kinds(definition) != _kinds(self.current)

    @property
    def is_before_structure(self) -> bool:
        """Whether `current` is a later statement's structure: only a copy shows the earlier one."""
        return self.current.is_ddl and self.current.version >= self.commit_range.high


def _kinds(definition: TableDefinition) -> list[tuple[str, str, bool, tuple[str, ...]]]:
    return [(folded_name(c.name), c.type, c.unsigned, c.elements) for c in definition.columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """What can be done next, all at the same time."""

    rows: tuple[RowStep, ...]
    """Row steps of all tables that have files to read; one Spark job."""
    ddls: tuple[tuple[DdlStep, ...], ...]
    """Groups of one version, whose tables have all arrived, without rows to write first."""

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.rows or self.ddls)


_Rests = Callable[[DataFile], Rest | None]


def beginning(step: RowStep, most: int, row_bytes: int, rest: _Rests) -> tuple[RowStep, int]:
    """Return the rows of a step up to a commit-ts with about `most`, or all, and their number.

    Of files that were not read (`rest`: None) only the bytes are known. If these are too many, the
    first rows alone are wanted, and reading them tells of all others.
    """
    low, high = step.commit_range.low, step.commit_range.high
    known = {file: rest(file) for file in step.files}
    rests = {
        file: it or Rest(low + 1, high, file.stored.size // row_bytes) for file, it in known.items()
    }

    def upto(ts: int) -> int:
        # As if the rows of a file were spread evenly.
        reached = (it for it in rests.values() if it.first <= ts)
        return sum(
            it.rows * min(span := it.last - it.first + 1, ts - it.first + 1) // span
            for it in reached
        )

    end = high
    if upto(high) > most:
        end = max(low + 1, min(it.first for it in rests.values()))
        if sum(rests[file].rows for file, it in known.items() if it is None) <= most:
            end = max(end, low + bisect(range(low + 1, high), most, key=upto))
    files = tuple(file for file, it in rests.items() if it.first <= end)
    return replace(step, commit_range=CommitRange(low=low, high=end), files=files), upto(end)


MOST_FILES = 100_000
"""Most files in a job of several tables: its description and reports are in memory."""


def in_one_job(steps: Sequence[RowStep], most: int = 0) -> tuple[RowStep, ...]:
    """Return first steps with up to `most` files (0: `MOST_FILES`), at least one step."""
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
