"""What to do when the target refuses a statement for many rows: find the row, or write what strict mode rejects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import accumulate

import pymysql.err

from storage_consumer.apply.statements import without_error_members
from storage_consumer.decode.wire_format import decode_line
from storage_consumer.downstream.mysql_errors import is_refusal
from storage_consumer.downstream.session import LOOSE_ROW_MODE, ROW_MODE
from storage_consumer.job.spec import TablePlan

Statement = Callable[[Sequence[bytes]], str]
"""Builds the statement for the lines of some rows."""
Query = Callable[[str], int]
"""Runs a statement and returns the number of matched rows. A refusal is the driver's error or `ValueError`."""


_MIB = 1 << 20
_LEVELS = 31
"""Levels up to which every MariaDB finds JSON valid; its columns have a CHECK that asks for that, and the source takes more."""
_TEXT_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', re.DOTALL)
_BYTES_OF_A_CHARACTER = 4
"""The maximum in UTF-8."""


class StatementTooLarge(ValueError):
    """A statement so large that the server would close the connection."""

    def __init__(self, size: int, most: int) -> None:
        """Take the statement's `size` in bytes, and `most`, the server's max_allowed_packet, which includes one byte more."""
        # In whole MiB, with room for the byte before a statement.
        enough = ((size + 1) // _MIB + 1) * _MIB
        super().__init__(
            f"it needs a statement of {size} bytes, but the server's max_allowed_packet is {most} bytes. Raise that "
            f"limit (SET GLOBAL max_allowed_packet = {enough}, in its configuration too)"
        )


def too_large(sql: str, most: int) -> StatementTooLarge | None:
    """Return the refusal of a statement that exceeds the server's max_allowed_packet of `most` bytes, or None if it fits."""
    # Encoding a statement of many MiB takes time: skip it where even the longest encoding fits.
    if len(sql) * _BYTES_OF_A_CHARACTER < most - 1:
        return None
    size = len(sql.encode())
    return StatementTooLarge(size, most) if size >= most - 1 else None


def first_refused(run: Callable[[Sequence[bytes]], int], rows: Sequence[bytes]) -> tuple[bytes, Exception] | None:
    """Return the first row that is refused on its own, and the refusal; None if there is none.

    Search by halves: keep a half that is refused, and drop one that is accepted. What the accepted halves wrote stays in the
    transaction, which the caller has to roll back anyway.
    """
    refusal: Exception | None = None
    while rows:
        half = rows[: max(1, len(rows) // 2)]
        try:
            run(half)
        except (pymysql.err.MySQLError, ValueError) as fault:
            if not is_refusal(fault):
                raise
            # Everything before this half was accepted, so the first refused row is in it.
            rows, refusal = half, fault
            if len(rows) == 1:
                return rows[0], refusal
        else:
            rows = rows[len(half) :]
    return None


def write_checked(query: Query, work: TablePlan, rows: Sequence[bytes], statement: Statement) -> int:
    """Run a statement that writes rows, some of which may hold an ENUM's error value; return the number of matched rows.

    Strict mode refuses that value, and every other mode leaves the rest of the row unchecked. So if strict mode refuses the rows, first
    write them with a valid member instead, and take that back. If strict mode accepts them, all other values fit, and the rows
    themselves are written without strict mode.
    """
    try:
        return query(statement(rows))
    except pymysql.err.MySQLError as fault:
        valid = without_error_members(work, rows)
        # Nothing was replaced, so the refusal is about another value.
        if valid == list(rows) or not is_refusal(fault):
            raise
    query("SAVEPOINT before_check")
    query(statement(valid))
    query("ROLLBACK TO SAVEPOINT before_check")
    query(f"SET SESSION sql_mode = '{LOOSE_ROW_MODE}'")
    try:
        return query(statement(rows))
    finally:
        # Over a broken connection this fails as well, but the retry opens another one, which begins in this mode.
        query(f"SET SESSION sql_mode = '{ROW_MODE}'")


def has_deep_json(work: TablePlan, line: bytes) -> bool:
    """Return whether a value of the row nests its JSON deeper than MariaDB finds valid."""
    fields = zip(decode_line(line), work.written, strict=True)
    return any(column.type == "JSON" and text is not None and _levels(text) > _LEVELS for text, column in fields)


def _levels(document: str) -> int:
    """Return how deep arrays and objects are nested in each other; 0 for what is no JSON, which the server has to refuse."""
    try:
        json.loads(document)
    except (ValueError, RecursionError):
        return 0
    steps = (bool(found[1]) - bool(found[2]) for found in _TEXT_OR_BRACE.finditer(document))
    return max(accumulate(steps), default=0)


def without_checks(query: Query, write: Callable[[], int]) -> int:
    """Write rows of which MariaDB is not to ask whether they satisfy the table's CHECKs."""
    query("SET SESSION check_constraint_checks = 0")
    try:
        return write()
    finally:
        # As above: over a broken connection this fails, and another one begins with checks.
        query("SET SESSION check_constraint_checks = 1")
