"""Defaults that are constants, asked of the server as values.

What servers show of a default is not exact: MySQL and MariaDB show '?' for a character beyond U+FFFF, MySQL shows bytes in hexadecimal digits
and ends them at a NUL, MariaDB escapes some characters or shows bytes in hexadecimal digits, and TiDB shows a year as it was written. A
TIMESTAMP is one moment; MySQL shows it in the time zone of the session that made it, and the others in that of the session that looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from storage_consumer.downstream.reading import Reading
from storage_consumer.errors import TableError
from storage_consumer.sql.tokens import quote
from storage_consumer.verifying.side import ColumnShape

_BYTES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_TEXTS = frozenset(("char", "varchar", "enum", "set", "tinytext", "text", "mediumtext", "longtext"))
_MOMENTS = frozenset(("year", "timestamp"))
_LITERAL = re.compile(r"x?'(?:[^'\\]|''|\\.)*'", re.DOTALL)


def with_constants(reading: Reading, table: str, columns: Sequence[ColumnShape]) -> tuple[ColumnShape, ...]:
    """Return the columns of a table with their constant defaults. `table`: its name as it stands in a query with arguments."""
    asked = [column for column in columns if _is_asked(reading.kind, column)]
    found: dict[str, bytes | None] = {}
    # What cannot be asked is compared as it is shown.
    with suppress(TableError):
        found = dict(_asked(reading, table, asked))
    return tuple(replace(column, constant=found.get(column.name)) for column in columns)


def _asked(reading: Reading, table: str, columns: Sequence[ColumnShape]) -> Iterator[tuple[str, bytes | None]]:
    """Yield each column's default; a table without rows has one too."""
    if not columns:
        return
    shown = ", ".join(f"HEX({_value(column)})" for column in columns)
    query = f"SELECT {shown} FROM (SELECT 1 AS one) AS one LEFT JOIN {table} AS t ON %s = 0"
    (values,) = reading.rows(query, (1,))
    for column, value in zip(columns, values, strict=True):
        yield column.name, None if value is None else bytes.fromhex(str(value))


def _value(column: ColumnShape) -> str:
    default = f"DEFAULT(t.{quote(column.name)})".replace("%", "%%")
    if column.data_type in _MOMENTS:
        return f"CONCAT({default})"
    return default if column.data_type in _BYTES else f"CONVERT({default} USING utf8mb4)"


def _is_asked(kind: str, column: ColumnShape) -> bool:
    """Return whether a default is a constant that a server may show in another way. An expression is not run."""
    # TiDB calls each default generated whose column follows the clock.
    if column.default is None or column.extra == "DEFAULT_GENERATED":
        return False
    if column.data_type in _MOMENTS:
        return column.default.lstrip("'")[:1].isdigit()
    if column.data_type not in _BYTES | _TEXTS or kind == "tidb":
        return False
    return kind == "mysql" or _LITERAL.fullmatch(column.default) is not None
