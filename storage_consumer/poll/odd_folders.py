"""Folders that are not as a changefeed's should be: copies of its files, and those that all partitions of a table write into.

Copies are what a filer shows of earlier hours, a backup, or the files of another changefeed. Partitions of one folder overwrite one another's
files, so that rows may be lost at the source.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping

from storage_consumer.model import DataFile, DdlKind, SchemaFile, TableDefinition, TableName, TableVersion
from storage_consumer.poll.inventory import shortened
from storage_consumer.poll.schema_file import directory_of
from storage_consumer.sql.tokens import find_words, has_words, tokens
from storage_consumer.storage.paths import folder_above, is_of_file_system


class Copies:
    """Folders whose schema files say that TiCDC put them elsewhere.

    Names may hold slashes and dots, so a path alone shows nothing: a database can be called ``.snapshot``. But TiCDC puts a schema file
    where the names in it say.
    """

    def __init__(self) -> None:
        """Start without any."""
        self.folders: set[str] = set()
        self._own: set[str] = set()
        self._untold: dict[str, str] = {}

    def holds(self, path: str) -> bool:
        """Return whether a file is below one of them."""
        return bool(folder_above(path, self.folders))

    def is_one(self, file: SchemaFile, name: TableName, roots: Collection[str], tables: Container[str]) -> bool:
        """Return whether a schema file that names `name` is a copy; then so is all that lies beside and below it.

        To be asked of files in folders of few levels first. `roots`: folders that have a ``metadata``, as the root of a changefeed's files has: such a copy counts as a whole. `tables`: the
        table directories that there are.
        """
        table_dir, own = file.table_dir, directory_of(name)
        # With table ids as paths, one of them is in its place below the root alone. TiCDC may spell a database otherwise after a rename.
        if table_dir.lower() == own.lower() or table_dir.isdecimal():
            self._own.add(table_dir)
            return False
        below = own if table_dir.endswith(f"/{own}") else table_dir.rpartition("/")[2]
        is_below = "/" in table_dir and (below == own or below.isdecimal())
        # A folder that was only moved is read as what its files say.
        if not (is_below or own in tables or is_of_file_system(table_dir)):
            return False
        folder = table_dir.removesuffix(f"/{below}")
        # Never a folder with tables that are in their place: whoever copies into a database's folder leaves these there.
        is_others = folder in roots and not any(each.startswith(f"{folder}/") for each in self._own)
        is_whole = is_below and bool(name.table) and is_others
        folder = folder if is_whole else table_dir
        self.folders.add(folder)
        self._untold[folder] = f"{file.stored.path} is the schema file of {name}, whose folder is {own}"
        return True

    def warnings(self) -> Iterator[str]:
        """Yield what an operator should know of the new ones, each once."""
        untold, self._untold = self._untold, {}
        for folder in shortened(list(untold)):
            yield (
                f"nothing below {folder} is read: {untold.get(folder, 'likewise')}. A filer's snapshot, a backup or another changefeed leaves "
                "such files. If they are files of this changefeed, put them where it writes them"
            )


_OF_PARTITIONS = frozenset(
    (
        DdlKind.ADD_PARTITION,
        DdlKind.DROP_PARTITION,
        DdlKind.TRUNCATE_PARTITION,
        DdlKind.REORGANIZE_PARTITION,
        DdlKind.ALTER_PARTITIONING,
    )
)
_NONE_FROM_HERE = frozenset((DdlKind.REMOVE_PARTITIONING, DdlKind.RENAME_TABLE, DdlKind.RENAME_TABLES))
_NAMED = 5


def may_be_lost(names: Iterable[str]) -> str:
    """Return the warning about partitioned tables whose partitions share a folder."""
    tables = sorted(names)
    more = f" and {len(tables) - _NAMED:,} more" if len(tables) > _NAMED else ""
    return (
        f"the partitions of {', '.join(tables[:_NAMED])}{more} write into one folder (enable-partition-separator = false), where TiCDC "
        "lets them overwrite one another's files: rows may be lost at the source, and no file shows which. Set it to true in the "
        "changefeed, and load these tables anew (`storage-consumer load`); `storage-consumer verify` tells what is missing"
    )


def partitioning(definition: TableDefinition) -> bool | None:
    """Return whether a table is known to have partitions from a statement on; None if the statement does not say."""
    if definition.ddl_type in _OF_PARTITIONS:
        return True
    # A rename brings another table under the name; nothing here says whether that one has any, so it is not warned of.
    if definition.ddl_type in _NONE_FROM_HERE:
        return False
    found = tokens(definition.query) if definition.ddl_type in (DdlKind.CREATE_TABLE, DdlKind.CREATE_TABLES) else ()
    if not found or has_words(found, "LIKE", depth=0):
        return None
    at = find_words(found, "PARTITION", "BY", depth=0)
    # TiDB makes a table without partitions of it.
    return at > 0 and not has_words(found[at + 2 : at + 3], "SYSTEM_TIME")


def is_partitioned(said: Mapping[TableVersion, bool], version: TableVersion) -> bool:
    """Return whether a table has partitions in the directory of a version; `said`: version → what its statement says."""
    return said.get(max((each for each in said if each <= version), default=TableVersion(0)), False)


class SharedFolders:
    """Finds the partitioned tables of which files lie in no partition's folder; tells each once."""

    def __init__(self, *, partition_separator: bool | None) -> None:
        """With False, each partitioned table is one."""
        self._separator = partition_separator
        self._names: dict[str, str] = {}
        self._said: dict[str, dict[TableVersion, bool]] = {}
        self._versions: dict[str, set[TableVersion]] = {}
        """Those with files outside of partitions' folders."""
        self._told: set[str] = set()

    def warnings(self, schema_files: Iterable[tuple[str, TableDefinition]], files: Iterable[DataFile]) -> Iterator[str]:
        """Yield what is to be said of new files; `schema_files`: with their table directories."""
        touched = set[str]()
        for table_dir, definition in schema_files:
            touched.add(table_dir)
            if (said := partitioning(definition)) is not None:
                self._said.setdefault(table_dir, {})[definition.version] = said
                self._names[table_dir] = str(definition.name)
        for file in files:
            if file.partition is None:
                touched.add(file.table_dir)
                self._versions.setdefault(file.table_dir, set()).add(file.version)
        if new := {each for each in touched & self._names.keys() - self._told if self._shares(each)}:
            self._told |= new
            yield may_be_lost({self._names[each] for each in new})

    def _shares(self, table_dir: str) -> bool:
        said = self._said[table_dir]
        if self._separator is False:
            return any(said.values())
        return any(is_partitioned(said, version) for version in self._versions.get(table_dir, ()))
