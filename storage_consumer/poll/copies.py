"""Folders that hold copies of a changefeed's files: what a filer shows of earlier hours, a backup, or the files of another changefeed."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator

from storage_consumer.model import SchemaFile, TableName
from storage_consumer.poll.findings import shortened
from storage_consumer.poll.schema_file import directory_of
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
