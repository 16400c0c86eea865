"""One table of a TiDB, read whole as of one TSO: its statements, the ranges in which it is read, and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage_consumer.downstream.compared_table import ComparedTable, boundary, range_of
from storage_consumer.downstream.reading import Reading
from storage_consumer.errors import ConfigError, TableError
from storage_consumer.model import TableColumn, TableName
from storage_consumer.sql.tokens import qualified, quote
from storage_consumer.verifying.layout import Form, KeyRange, Row, SideColumn, layout_of

_LOOKED_AT = 200
"""Rows from which the size of a row is estimated."""
_ROW_ID = SideColumn(name="_tidb_rowid", form=Form(summed="{}", fetched="{}"), literal="number")
"""TiDB's own key of the rows of a table that is not stored by its primary key."""


class ExportedTable:
    """A table, read on one connection in whatever snapshot that has taken."""

    def __init__(self, reading: Reading, name: TableName, key: Sequence[SideColumn] = ()) -> None:
        """Read the table called `name`; `key`: what its ranges go by, see `find_key`."""
        self._reading = reading
        self.name = name
        self.key = tuple(key)

    def statements(self) -> tuple[str, str]:
        """Return the CREATE DATABASE and the CREATE TABLE. Raise `ConfigError` if there is no such table."""
        looked = ComparedTable(self._reading, self.name)
        shape = looked.structure()
        if shape is None or shape.is_view:
            raise ConfigError(f"the source has no table {self.name}, or it is a view")
        self.name = looked.name
        database = self._shown(f"SHOW CREATE DATABASE {quote(self.name.schema)}")
        return database, self._shown(f"SHOW CREATE TABLE {qualified(self.name)}")

    def view(self) -> str:
        """Return the CREATE VIEW of a view."""
        return self._shown(f"SHOW CREATE VIEW {qualified(self.name)}")

    def find_key(self) -> None:
        """Find out by what ranges of rows can be read in the order in which they are stored; a table without is read in one."""
        try:
            self._reading.rows(f"SELECT {quote(_ROW_ID.name)} FROM {self._from()} LIMIT %s", (1,))
        except TableError:
            shape = ComparedTable(self._reading, self.name).structure()
            layout = layout_of(shape, shape).sides[0] if shape is not None else None
            self.key = tuple(layout.columns[place] for place in layout.key) if layout is not None else ()
        else:
            self.key = (_ROW_ID,)

    def row_bytes(self, columns: Sequence[TableColumn]) -> float:
        """Return about how many bytes a row has; at least 1."""
        found = list(self._read(columns, "%s LIMIT %s", (1, _LOOKED_AT)))
        return max(1.0, sum(len(value or b"") for row in found for value in row) / max(1, len(found)))

    def ranges(self, rows: int) -> Iterator[KeyRange]:
        """Yield ranges of about so many rows, which together hold all rows, each once."""
        keys = KeyRange()
        while self.key and (end := boundary(self._reading, self.name, self.key, keys, rows)) is not None:
            yield keys.before(end)
            keys = KeyRange(above=(end,))
        yield keys

    def rows(self, columns: Sequence[TableColumn], keys: KeyRange) -> Iterator[Row]:
        """Yield the values of these columns, as the server sends them, of the rows in a range."""
        where, arguments = range_of(self.key, keys)
        rows = 0
        for row in self._read(columns, where, arguments):
            rows += 1
            yield row
        self._reading.pace.spend(rows)

    def _read(self, columns: Sequence[TableColumn], where: str, arguments: Sequence[object]) -> Iterator[Row]:
        shown = ", ".join(_shown(column).replace("%", "%%") for column in columns)
        return self._reading.raw(f"SELECT {shown} FROM {self._from()} WHERE {where}", arguments)

    def _from(self) -> str:
        return qualified(self.name).replace("%", "%%")

    def _shown(self, sql: str) -> str:
        ((_, statement, *_),) = list(self._reading.raw(sql))
        try:
            return (statement or b"").decode()
        except UnicodeDecodeError:
            raise ConfigError(
                f"the statement of {self.name} is not UTF-8, as with the default of a binary column: export the table with Dumpling"
            ) from None


def _shown(column: TableColumn) -> str:
    """Return the expression that shows a column exactly: of a large FLOAT by itself TiDB shows six digits, of one as a DOUBLE all."""
    return f"{quote(column.name)} + 0e0" if column.type == "FLOAT" else quote(column.name)
