"""The tables and data directories that a bucket has, and which table each path belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace

from storage_consumer.config.settings import DateSeparator
from storage_consumer.poll.file_numbers import Directory
from storage_consumer.poll.finished_folders import Versions
from storage_consumer.storage.paths import (
    COPY,
    DataDirectory,
    Ignored,
    SchemaPath,
    folder_above,
    is_of_file_system,
    place_directory,
    with_all_above,
)


class KnownDirectories:
    """Table directories by their schema files, and the data directories below them."""

    def __init__(self, date_separator: DateSeparator | None, *, partition_separator: bool | None) -> None:
        """Expect paths written with these settings; None for a setting that was not given."""
        self._date_separator = date_separator
        self._partition_separator = partition_separator
        self._versions: dict[str, dict[int, set[int | None]]] = {}
        # Table directories and everything above them: none of these may be left out as a whole, since tables lie below.
        self._above: set[str] = set()
        # Found since the last look for directories that lie astray.
        self._new_tables: set[str] = set()
        self._directories: dict[str, Directory] = {}
        self._folders: dict[str, set[str]] = {}

    def add_schema_file(self, parsed: SchemaPath) -> bool:
        """Note a schema file; return whether its version, so far one of the older layout, is one of the present layout too."""
        if parsed.table_dir not in self._versions:
            self._versions[parsed.table_dir] = {}
            self._new_tables.add(parsed.table_dir)
            self._above.update(with_all_above(parsed.table_dir))
        checksums = self._versions[parsed.table_dir].setdefault(parsed.version, set())
        upgraded = checksums == {None} and parsed.checksum is not None
        checksums.add(parsed.checksum)
        return upgraded

    def versions(self, table_dir: str) -> Versions:
        """Return the versions of which a table has schema files."""
        return self._versions.get(table_dir, {})

    def above_tables(self) -> AbstractSet[str]:
        """Return all table directories and everything above them."""
        return self._above

    def with_schema_files(self) -> AbstractSet[str]:
        """Return the table directories that have schema files."""
        return self._versions.keys()

    def tables(self) -> AbstractSet[str]:
        """Return the table directories that have, or had, data directories."""
        return self._folders.keys()

    def place(self, folder: str) -> DataDirectory | Ignored:
        """Return what a folder is, as far as the schema files found so far tell."""
        placed = self._place(folder)
        if isinstance(placed, Ignored) or placed.known:
            return placed
        # No schema file says that there is such a table. What is below some folder may have the path of a table that there is.
        below = (self._place(folder[at + 1 :]) for at, letter in enumerate(folder) if letter == "/")
        is_copy = any(
            isinstance(each, DataDirectory) and each.version in self.versions(each.table_dir) for each in below
        )
        return Ignored(reason=COPY) if is_copy or is_of_file_system(folder) else placed

    def _place(self, folder: str) -> DataDirectory | Ignored:
        return place_directory(
            folder, self._versions, self._date_separator, partition_separator=self._partition_separator
        )

    def get(self, folder: str) -> Directory | None:
        """Return the data directory in that folder, or None if it is not known."""
        return self._directories.get(folder)

    def add(self, folder: str, placed: DataDirectory) -> Directory:
        """Return the data directory in that folder, new or known."""
        if folder not in self._directories:
            self._directories[folder] = Directory(placed)
            self._folders.setdefault(placed.table_dir, set()).add(folder)
        return self._directories[folder]

    def forget(self, folder: str) -> None:
        """Forget a data directory with all its files."""
        self._folders[self._directories.pop(folder).placed.table_dir].discard(folder)

    def forget_below(self, folders: AbstractSet[str]) -> set[str]:
        """Forget the tables and the data directories below some folders; return the table directories that this concerns."""
        gone = {table_dir for table_dir in self._versions if folder_above(f"{table_dir}/", folders)}
        for table_dir in gone:
            del self._versions[table_dir]
        self._new_tables -= gone
        for folder in [folder for folder in self._directories if folder_above(f"{folder}/", folders)]:
            gone.add(self._directories[folder].placed.table_dir)
            self.forget(folder)
        return gone

    def all(self) -> list[tuple[str, Directory]]:
        """Return all data directories with their folders; the list does not change while some are forgotten."""
        return list(self._directories.items())

    def of_table(self, table_dir: str) -> dict[str, Directory]:
        """Return the data directories of a table, by folder."""
        return {folder: self._directories[folder] for folder in self._folders.get(table_dir, ())}

    def astray(self) -> Iterator[tuple[str, Directory]]:
        """Yield the directories that turn out to belong to another table, because of schema files found since the last call."""
        new, self._new_tables = self._new_tables, set()
        # A new table directory may explain a path better than a shorter one did: the longest wins.
        for folder, directory in self.all() if new else ():
            placed = directory.placed
            # A reading that a schema file supports can be changed only by a new table directory above the folder.
            if placed.known and not any(folder.startswith(f"{table_dir}/") for table_dir in new):
                continue
            now = self.place(folder)
            # The same reading, supported by a schema file now: the files stay where they are.
            if isinstance(now, DataDirectory) and replace(now, known=placed.known) == placed:
                directory.placed = now
            else:
                yield folder, directory
