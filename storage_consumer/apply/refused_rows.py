"""What to do when the target refuses a statement for many rows: find the row, or write what strict mode cannot take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pymysql.err

from storage_consumer.apply.statements import without_error_members
from storage_consumer.downstream.mysql_errors import is_refusal
from storage_consumer.downstream.session import LOOSE_ROW_MODE, ROW_MODE
from storage_consumer.job.spec import TablePlan

Statement = Callable[[Sequence[bytes]], str]
"""The statement for some rows' lines."""
Query = Callable[[str], int]
"""Runs a statement; a refusal is the driver's error or `ValueError`."""


_MIB = 1 << 20
_BYTES_OF_A_CHARACTER = 4
"""At most, in UTF-8."""


class StatementTooLarge(ValueError):
    """A statement that the server would end the connection for."""

    def __init__(self, size: int, most: int) -> None:
        """`size`: bytes of the statement; `most`: the server's max_allowed_packet, which counts one byte more of it."""
        enough = ((size + 1) // _MIB + 1) * _MIB
        super().__init__(
            f"it takes a statement of {size} bytes, and max_allowed_packet is {most} bytes there. "
            f"Let the server take it (SET GLOBAL max_allowed_packet = {enough}, in its configuration too)"
        )


def too_large(sql: str, most: int) -> StatementTooLarge | None:
    """The refusal of a statement that a server with this max_allowed_packet does not read, None for any other."""
    if len(sql) * _BYTES_OF_A_CHARACTER < most - 1:
        return None
    size = len(sql.encode())
    return StatementTooLarge(size, most) if size >= most - 1 else None


def first_refused(run: Callable[[Sequence[bytes]], int], rows: Sequence[bytes]) -> tuple[bytes, Exception] | None:
    """The first row that is refused by itself, and the answer, by halves; the transaction is lost anyway."""
    refusal: Exception | None = None
    while rows:
        half = rows[: max(1, len(rows) // 2)]
        try:
            run(half)
        except (pymysql.err.MySQLError, ValueError) as fault:
            if not is_refusal(fault):
                raise
            rows, refusal = half, fault
            if len(rows) == 1:
                return rows[0], refusal
        else:
            rows = rows[len(half) :]
    return None


def write_checked(query: Query, work: TablePlan, rows: Sequence[bytes], statement: Statement) -> int:
    """Run a statement that writes rows of which some may hold the error value of an ENUM.

    Strict mode refuses that value, and no other mode checks the rest of the row. So where strict mode refuses the rows, it is
    asked to take the same rows with members of the ENUM instead; if it does, all other values fit, and the rows themselves go
    in without it.
    """
    try:
        return query(statement(rows))
    except pymysql.err.MySQLError as fault:
        valid = without_error_members(work, rows)
        if valid == list(rows) or not is_refusal(fault):
            raise
    query("SAVEPOINT before_check")
    query(statement(valid))
    query("ROLLBACK TO SAVEPOINT before_check")
    query(f"SET SESSION sql_mode = '{LOOSE_ROW_MODE}'")
    try:
        return query(statement(rows))
    finally:
        query(f"SET SESSION sql_mode = '{ROW_MODE}'")
