"""Ranges of a table's key in SQL: the rows between two keys, and the key at which a range of so many rows ends."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from storage_consumer.downstream.reading import Reading
from storage_consumer.model import TableName
from storage_consumer.sql.tokens import qualified, quote
from storage_consumer.verifying.forms import no_text
from storage_consumer.verifying.layout import SideColumn
from storage_consumer.verifying.side import Key, KeyRange


def range_of(key: Sequence[SideColumn], keys: KeyRange) -> tuple[str, list[Any]]:
    """Return the condition of a range and its arguments; `key`: the columns of the key."""
    parts, arguments = [], []
    for each, way in (*((each, ">") for each in keys.above), *((each, "<") for each in keys.upto)):
        condition, values = _beyond(list(zip(key, each, strict=True)), way, inclusive=way == "<")
        parts.append(condition)
        arguments += values
    # An argument in any case: the driver reads doubled percent signs only then.
    return " AND ".join([*parts, "%s"]), [*arguments, 1]


def boundary(reading: Reading, name: TableName, key: Sequence[SideColumn], keys: KeyRange, rows: int) -> Key | None:
    """Return the key of a range's row number `rows`, from 1; None if it has fewer."""
    where, arguments = range_of(key, keys)
    shown = ", ".join(column.form.fetched.replace("{}", name_of(column)) for column in key)
    order = ", ".join(map(name_of, key))
    table = qualified(name).replace("%", "%%")
    found = list(
        reading.raw(
            f"SELECT {shown} FROM {table} WHERE {where} ORDER BY {order} LIMIT %s OFFSET %s", (*arguments, 1, rows - 1)
        )
    )
    return tuple(value or b"" for value in found[0]) if found else None


def name_of(column: SideColumn) -> str:
    """Return a column's name, as a part of a query that takes arguments."""
    return quote(column.name).replace("%", "%%")


def value_of(column: SideColumn, value: bytes, *, foreign: str) -> tuple[str, list[Any]]:
    """Return the expression of a key's value and its arguments; `foreign`: the expression of one that this column cannot hold.

    A number is given as a number, since TiDB compares texts with numbers as floating-point ones.
    """
    match column.literal:
        case "bytes":
            return "%s", [value]
        case "number":
            return "%s", [int(value) if value.lstrip(b"-").isdigit() else Decimal(value.decode())]
    if (found := no_text(value)) is None:
        return "%s", [value.decode()]
    charset, content = found
    return f"_{charset} x'{content.hex()}'" if charset == column.form.charset else foreign, []


def _beyond(key: list[tuple[SideColumn, bytes]], way: str, *, inclusive: bool) -> tuple[str, list[Any]]:
    """Return the condition that a row's key lies beyond a key, in one way."""
    (column, value), *rest = key
    # Any border will do for a side that cannot hold the value, as long as each row is on one side of it.
    name, (border, arguments) = name_of(column), value_of(column, value, foreign="''")
    if not rest:
        return f"{name} {way}{'=' if inclusive else ''} {border}", arguments
    inner, values = _beyond(rest, way, inclusive=inclusive)
    # The first part lets the server look the range up; what lies on the border is told apart by the second one.
    return f"{name} {way}= {border} AND ({name} {way} {border} OR ({inner}))", [*arguments, *arguments, *values]
