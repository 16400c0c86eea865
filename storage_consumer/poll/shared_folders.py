"""Folders that all partitions of a table write into, where they overwrite one another's files: rows may be lost at the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from storage_consumer.model import DataFile, DdlKind, TableDefinition, TableVersion
from storage_consumer.sql.tokens import find_words, has_words, tokens

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
