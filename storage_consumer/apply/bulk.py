"""MariaDB's bulk statements: one prepared statement and the values of many rows in one packet.

A bulk statement costs the server a third less than LOAD DATA, which looks at each byte of a line to find where its fields end.
MySQL and TiDB do not have them. Their prepared statements for many rows cost more than LOAD DATA.
Format: mariadb.com/docs, COM_STMT_BULK_EXECUTE.
"""

from __future__ import annotations

import sys

import numpy as np

from storage_consumer.decode.values import WireKind
from storage_consumer.job.spec import TablePlan
from storage_consumer.kernels.row_lines import FEW, Lines
from storage_consumer.sql.tokens import qualified, quote

_TYPES = {WireKind.TEXT: (253, 0), WireKind.HEX: (252, 0), WireKind.UNSIGNED: (8, 128)}
"""Type codes of the protocol: text in the connection's character set, bytes, and an unsigned integer of eight bytes."""

_MANY = 100
"""Fewest rows for which a bulk statement repays its preparation."""


def is_many(rows: int) -> bool:
    """Return whether bulk statements pay off for `rows` rows; the bar is higher until this process has imported the compiler."""
    return rows >= (_MANY if "numba" in sys.modules else FEW)


def bulk_statement(work: TablePlan, verb: str) -> str:
    """Return the statement for one row. `verb` is ``REPLACE`` or ``INSERT``."""
    columns = ", ".join(quote(column.name) for column in work.written)
    places = ", ".join("?" * len(work.written))
    return f"{verb} INTO {qualified(work.name)} ({columns}) VALUES ({places})"


def bulk_types(work: TablePlan) -> bytes:
    """Return the types of a row's values, two bytes each."""
    return b"".join(bytes(_TYPES[column.kind]) for column in work.written)


def bulk_values(work: TablePlan, lines: Lines) -> memoryview | None:
    """Return the values of all rows, or None if a field does not fit its column's kind."""
    from storage_consumer.kernels.bulk_values import HEX_VALUE, NUMBER_VALUE, TEXT_VALUE, bulk_rows  # noqa: PLC0415 - late, see `jit`

    made = {WireKind.TEXT: TEXT_VALUE, WireKind.HEX: HEX_VALUE, WireKind.UNSIGNED: NUMBER_VALUE}
    return bulk_rows(lines, np.array([made[column.kind] for column in work.written], np.int64))
