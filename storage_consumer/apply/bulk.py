"""MariaDB's bulk statements: one prepared statement and the values of many rows in one packet.

They take a third off what LOAD DATA costs the server, which looks at each byte of a line to find where its fields end. MySQL and TiDB
do not have them, and their prepared statements for many rows cost more than LOAD DATA.
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
"""A text in the character set of the connection, bytes, a whole number of eight bytes without a sign."""

_MANY = 100
"""Fewer rows are not worth what is sent before a bulk statement."""


def is_many(rows: int) -> bool:
    """Whether bulk statements are worth it for so many rows: more of them where this process has yet to import the compiler."""
    return rows >= (_MANY if "numba" in sys.modules else FEW)


def bulk_statement(work: TablePlan, verb: str) -> str:
    """The statement for one row. `verb`: ``REPLACE`` or ``INSERT``."""
    columns = ", ".join(quote(column.name) for column in work.written)
    places = ", ".join("?" * len(work.written))
    return f"{verb} INTO {qualified(work.name)} ({columns}) VALUES ({places})"


def bulk_types(work: TablePlan) -> bytes:
    """What the values of a row are, two bytes each."""
    return b"".join(bytes(_TYPES[column.kind]) for column in work.written)


def bulk_values(work: TablePlan, lines: Lines) -> memoryview | None:
    """The values of all rows; None where a field is none of its column's kind."""
    from storage_consumer.kernels.bulk_values import HEX_VALUE, NUMBER_VALUE, TEXT_VALUE, bulk_rows  # noqa: PLC0415 - late, see `jit`

    made = {WireKind.TEXT: TEXT_VALUE, WireKind.HEX: HEX_VALUE, WireKind.UNSIGNED: NUMBER_VALUE}
    return bulk_rows(lines, np.array([made[column.kind] for column in work.written], np.int64))
