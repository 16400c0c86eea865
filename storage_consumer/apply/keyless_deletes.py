"""Deleting many rows of a table without indexes by all their columns, in two passes over it instead of one for each row.

The rows to delete become a temporary table whose columns have the types of the table's own, so the server brings both sides to
the same form. A checksum of what tells them apart is what it finds pairs by; that they are equal is decided by every column.
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
"""Variables of servers, in bytes; 0 and its absence say that there is no limit."""
_LONGER = 4
"""So many times longer than a row's text it may be in what is replicated: a number of one digit has eight bytes there."""
_ALIKE = 4
"""So many rows to delete may be compared with one row of the table."""


def is_scanned(target: RowStatements, work: TablePlan) -> bool:
    """Whether equal rows of the table are the same and found by passes over it only, and many can be deleted in one.

    So where it has no index and no column that the rows do not tell. TiDB has no such temporary tables.
    """
    place = f"table_schema = '{escape(work.name.schema)}' AND table_name = '{escape(work.name.table)}'"
    ours = "COALESCE(generation_expression, '') = ''"
    row = target.row(
        f"SELECT (SELECT COUNT(*) FROM information_schema.statistics WHERE {place}), "
        f"(SELECT COUNT(*) FROM information_schema.columns WHERE {place} AND {ours}), VERSION() LIKE '%TiDB%'"
    )
    return row is not None and (int(row[0]), int(row[1]), int(row[2])) == (0, len(work.written), 0)


def most_text(target: RowStatements) -> int:
    """Bytes of row text that the server takes in one transaction, by its own limits for what is replicated."""
    names = ", ".join(f"'{name}'" for name in _TRANSACTION_LIMITS)
    limits = [int(value) for _, value in target.rows(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})")]
    return min((limit for limit in limits if limit), default=1 << 62) // _LONGER


def delete_equal(target: RowStatements, work: TablePlan, lines: Sequence[bytes]) -> Mapping[bytes, int] | None:
    """Delete every row that is equal to one of these different lines; how many there were of each, if any.

    None where the server does not do it this way, for want of a privilege for example, or cannot tell two of the lines apart;
    nothing is deleted then. Raises the driver's errors for conflicts and lost connections.
    """
    images = TableName(schema=target.state_schema, table=_IMAGES)
    try:
        telling = telling_columns(work, lines)
        _store(target, work, lines, images, telling)
        pairs = f"{qualified(work.name)} AS r STRAIGHT_JOIN {qualified(images)} AS d ON {_equal(work, telling)}"
        number = f"d.{quote(_NUMBER.name)}"
        found = target.rows(f"SELECT {number}, COUNT(*) FROM {pairs} GROUP BY {number}")
        counts = {lines[int(place)]: int(count) for place, count in found}
        target.query(f"SAVEPOINT {_BEFORE}")
        if target.query(f"DELETE r FROM {pairs}") != sum(counts.values()):  # two of the lines are one row to the server
            target.query(f"ROLLBACK TO SAVEPOINT {_BEFORE}")
            return None
    except (pymysql.err.MySQLError, RowRefused) as fault:
        if is_conflict(fault) or is_connection_loss(fault):
            raise
        return None
    finally:
        with suppress(pymysql.err.MySQLError, OSError, EOFError):
            target.query(f"DROP TEMPORARY TABLE IF EXISTS {qualified(images)}")
    return counts


def telling_columns(work: TablePlan, lines: Sequence[bytes]) -> tuple[WireColumn, ...]:
    """The column that tells these different lines apart but for a few, the shortest if there are several; else all columns."""
    fields = zip(split_lines(lines), work.written, strict=True)
    telling = [(sum(map(len, texts)), column) for texts, column in fields if max(Counter(texts).values()) <= _ALIKE]
    return (min(telling, key=itemgetter(0))[1],) if telling else work.written


def _store(
    target: RowStatements, work: TablePlan, lines: Sequence[bytes], images: TableName, telling: Sequence[WireColumn]
) -> None:
    """Make the temporary table."""
    columns = ", ".join(quote(column.name) for column in work.written)
    target.query(f"DROP TEMPORARY TABLE IF EXISTS {qualified(images)}")
    target.query(
        f"CREATE TEMPORARY TABLE {qualified(images)} ({quote(_NUMBER.name)} INT UNSIGNED NOT NULL DEFAULT 0 PRIMARY KEY, "
        f"{quote(_CHECKSUM)} INT UNSIGNED NOT NULL DEFAULT 0, KEY ({quote(_CHECKSUM)})) "
        f"SELECT {columns} FROM {qualified(work.name)} WHERE FALSE"
    )
    numbered = [b"%b\t%d" % (line, place) for place, line in enumerate(lines)]
    target.insert(replace(work, name=images, written=(*work.written, _NUMBER)), numbered)
    target.query(f"UPDATE {qualified(images)} AS d SET {quote(_CHECKSUM)} = {_checksum(telling, 'd')}")


def _checksum(telling: Sequence[WireColumn], side: str) -> str:
    """Equal for equal rows."""
    return f"CRC32(CONCAT_WS(',', {', '.join(_bytes(column, side) for column in telling)}))"


def _bytes(column: WireColumn, side: str) -> str:
    return f"CAST({side}.{quote(column.name)} AS BINARY)"


def _equal(work: TablePlan, telling: Sequence[WireColumn]) -> str:
    """The condition that a row and an image are equal to the last byte: by no collation, and by values where texts are shortened."""
    conditions = [f"d.{quote(_CHECKSUM)} = {_checksum(telling, 'r')}"]
    for column in work.written:
        conditions.append(f"{_bytes(column, 'r')} <=> {_bytes(column, 'd')}")
        if column.type not in TEXTS and column.type != "JSON":
            conditions.append(f"r.{quote(column.name)} <=> d.{quote(column.name)}")
        if column.type in ("ENUM", "SET"):
            conditions.append(f"r.{quote(column.name)} + 0 <=> d.{quote(column.name)} + 0")
    return " AND ".join(conditions)
