"""Bulk deletes from a table without indexes, by all columns: two passes over the table instead of one per row.

The rows to delete become a temporary table whose columns have the types of the table's own, so the server brings both sides to
the same form. A checksum of one or more columns finds the candidate pairs. All columns together decide whether a pair is equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter

import pymysql.err

from storage_consumer.apply.rows import RowStatements
from storage_consumer.apply.statements import TEXTS
from storage_consumer.apply.transaction import FencedConnection
from storage_consumer.decode.values import WireKind
from storage_consumer.decode.wire_format import split_lines
from storage_consumer.downstream.connection import escape
from storage_consumer.downstream.mysql_errors import is_conflict, is_connection_loss
from storage_consumer.errors import RowRefused
from storage_consumer.job.spec import TablePlan, WireColumn
from storage_consumer.model import TableName
from storage_consumer.sql.tokens import qualified, quote

_IMAGES = "storage_consumer_images"
_NUMBER = WireColumn(name="storage_consumer_number", kind=WireKind.UNSIGNED, type="INT")
_CHECKSUM = "storage_consumer_checksum"
_BEFORE = "before_images"
_TRANSACTION_LIMITS = ("max_binlog_cache_size", "group_replication_transaction_size_limit", "wsrep_max_ws_size")
"""Server variables, in bytes; 0 or a missing variable means no limit."""
_LONGER = 4
"""Most replicated bytes per byte of a row's text: a one-digit number takes eight bytes there."""
_ALIKE = 4
"""Most rows to delete that may share a checksum, and so be compared with one row of the table."""


def is_scanned(fenced: FencedConnection, work: TablePlan) -> bool:
    """Return whether each delete scans the table, and `delete_equal` may replace these scans.

    This holds if the table has no index, and no column but generated ones beyond those that are written: equal rows are then
    interchangeable. It never holds on TiDB, which has no such temporary tables.
    """
    place = f"table_schema = '{escape(work.name.schema)}' AND table_name = '{escape(work.name.table)}'"
    ours = "COALESCE(generation_expression, '') = ''"
    row = fenced.row(
        f"SELECT (SELECT COUNT(*) FROM information_schema.statistics WHERE {place}), "
        f"(SELECT COUNT(*) FROM information_schema.columns WHERE {place} AND {ours}), VERSION() LIKE '%TiDB%'"
    )
    return row is not None and (int(row[0]), int(row[1]), int(row[2])) == (0, len(work.written), 0)


def most_text(fenced: FencedConnection) -> int:
    """Return how many bytes of row text the server takes in one transaction, by its own limits for what is replicated."""
    names = ", ".join(f"'{name}'" for name in _TRANSACTION_LIMITS)
    limits = [int(value) for _, value in fenced.rows(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})")]
    return min((limit for limit in limits if limit), default=1 << 62) // _LONGER


def delete_equal(rows: RowStatements, work: TablePlan, lines: Sequence[bytes]) -> Mapping[bytes, int] | None:
    """Delete every row that equals one of these distinct lines; return how many there were of each that had any.

    Return None, with nothing deleted, if the server cannot do it this way (it lacks a privilege, for example) or cannot tell two of
    the lines apart. Raise the driver's errors for conflicts and lost connections.
    """
    fenced = rows.fenced
    # In the state schema, where the account needs all rights anyway.
    images = TableName(schema=fenced.state_schema, table=_IMAGES)
    try:
        telling = telling_columns(work, lines)
        _store(rows, work, lines, images, telling)
        pairs = f"{qualified(work.name)} AS r STRAIGHT_JOIN {qualified(images)} AS d ON {_equal(work, telling)}"
        number = f"d.{quote(_NUMBER.name)}"
        found = fenced.rows(f"SELECT {number}, COUNT(*) FROM {pairs} GROUP BY {number}")
        # Counted before the delete: afterwards nobody could say how many rows of each there were.
        counts = {lines[int(place)]: int(count) for place, count in found}
        # STRAIGHT_JOIN reads the table first: it has no index to probe, while the images have one on the checksum.
        fenced.query(f"SAVEPOINT {_BEFORE}")
        if fenced.query(f"DELETE r FROM {pairs}") != sum(counts.values()):  # two of the lines are one row to the server
            fenced.query(f"ROLLBACK TO SAVEPOINT {_BEFORE}")
            return None
    except (pymysql.err.MySQLError, RowRefused) as fault:
        # Any other error leaves all rows: it is of a statement before the DELETE, or of the DELETE, which then had no effect.
        if is_conflict(fault) or is_connection_loss(fault):
            raise
        return None
    finally:
        # If the connection is broken, the server drops the table with it.
        with suppress(pymysql.err.MySQLError, OSError, EOFError):
            fenced.query(f"DROP TEMPORARY TABLE IF EXISTS {qualified(images)}")
    return counts


def telling_columns(work: TablePlan, lines: Sequence[bytes]) -> tuple[WireColumn, ...]:
    """Return the shortest column that tells all but a few of these distinct lines apart, or all columns if none does."""
    fields = zip(split_lines(lines), work.written, strict=True)
    telling = [(sum(map(len, texts)), column) for texts, column in fields if max(Counter(texts).values()) <= _ALIKE]
    return (min(telling, key=itemgetter(0))[1],) if telling else work.written


def _store(
    rows: RowStatements, work: TablePlan, lines: Sequence[bytes], images: TableName, telling: Sequence[WireColumn]
) -> None:
    """Create and fill the temporary table."""
    fenced = rows.fenced
    columns = ", ".join(quote(column.name) for column in work.written)
    # DROP and CREATE with TEMPORARY do not commit the running transaction.
    fenced.query(f"DROP TEMPORARY TABLE IF EXISTS {qualified(images)}")
    fenced.query(
        f"CREATE TEMPORARY TABLE {qualified(images)} ({quote(_NUMBER.name)} INT UNSIGNED NOT NULL DEFAULT 0 PRIMARY KEY, "
        f"{quote(_CHECKSUM)} INT UNSIGNED NOT NULL DEFAULT 0, KEY ({quote(_CHECKSUM)})) "
        f"SELECT {columns} FROM {qualified(work.name)} WHERE FALSE"
    )
    # The number leads from a row of the server's answer back to its line.
    numbered = [b"%b\t%d" % (line, place) for place, line in enumerate(lines)]
    rows.insert(replace(work, name=images, written=(*work.written, _NUMBER)), numbered)
    # The server computes both checksums, from values that it has brought to the same form.
    fenced.query(f"UPDATE {qualified(images)} AS d SET {quote(_CHECKSUM)} = {_checksum(telling, 'd')}")


def _checksum(telling: Sequence[WireColumn], side: str) -> str:
    """Return the expression of a checksum that is equal for equal rows."""
    # CONCAT_WS leaves NULLs out, so rows that differ only in which column is NULL share a checksum; `_equal` tells them apart.
    return f"CRC32(CONCAT_WS(',', {', '.join(_bytes(column, side) for column in telling)}))"


def _bytes(column: WireColumn, side: str) -> str:
    return f"CAST({side}.{quote(column.name)} AS BINARY)"


def _equal(work: TablePlan, telling: Sequence[WireColumn]) -> str:
    """Return the condition that a row and an image are equal to the last byte.

    No collation takes part. Types whose text is a shortened form are compared by value too.
    """
    conditions = [f"d.{quote(_CHECKSUM)} = {_checksum(telling, 'r')}"]
    for column in work.written:
        conditions.append(f"{_bytes(column, 'r')} <=> {_bytes(column, 'd')}")
        if column.type not in TEXTS and column.type != "JSON":
            conditions.append(f"r.{quote(column.name)} <=> d.{quote(column.name)}")
        # Two numbers may share one text: an ENUM's error value and a member '' look alike.
        if column.type in ("ENUM", "SET"):
            conditions.append(f"r.{quote(column.name)} + 0 <=> d.{quote(column.name)} + 0")
    return " AND ".join(conditions)
