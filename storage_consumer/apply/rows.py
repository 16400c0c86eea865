"""Statements for many rows: bulk statements or LOAD DATA where possible, else literals. An error names the row that the target refuses.

MariaDB's bulk statements are one prepared statement and the values of many rows in one packet. They cost the server a third less than
LOAD DATA, which looks at each byte of a line to find where its fields end. MySQL and TiDB do not have them. Their prepared statements for
many rows cost more than LOAD DATA. Format: mariadb.com/docs, COM_STMT_BULK_EXECUTE.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np
import pymysql.err

from storage_consumer.apply.refused_rows import (
    Statement,
    StatementTooLarge,
    first_refused,
    has_deep_json,
    too_large,
    without_checks,
    write_checked,
)
from storage_consumer.apply.statements import delete_keys, load_data, row_text, write_rows
from storage_consumer.apply.transaction import FencedConnection
from storage_consumer.decode.values import WireKind
from storage_consumer.decode.wire_format import LACKING
from storage_consumer.downstream.batches import batches
from storage_consumer.downstream.connection import escape
from storage_consumer.downstream.mysql_errors import (
    content_error,
    described,
    is_check,
    is_conflict,
    is_connection_loss,
    is_refusal,
)
from storage_consumer.errors import RowRefused
from storage_consumer.job.spec import TablePlan
from storage_consumer.kernels.row_lines import FEW, Lines, in_one
from storage_consumer.sql.tokens import qualified, quote

TRANSACTION_ROWS = 10_000
TRANSACTION_SIZE = 8 << 20
"""Bytes of row text."""
STATEMENT_ROWS = 1_000
_BULK_HEAD = 1 << 10
"""Upper bound of the bytes before the values, without the types."""
_TYPES = {WireKind.TEXT: (253, 0), WireKind.HEX: (252, 0), WireKind.UNSIGNED: (8, 128)}
"""Type codes of the protocol: text in the connection's character set, bytes, and an unsigned integer of eight bytes."""
_MANY = 100
"""Fewest rows for which a bulk statement repays its preparation."""


class RowStatements:
    """Writes and deletes rows within the running transaction of a fenced connection."""

    def __init__(self, fenced: FencedConnection) -> None:
        """Write through `fenced`."""
        self.fenced = fenced
        self._load_data = fenced.spec.load_data
        self._max_packet = fenced.spec.max_packet
        # Literals can be longer than the lines that they come from: leave room for them in a packet.
        self._statement_size = min(TRANSACTION_SIZE, self._max_packet // 8)

    def delete(self, work: TablePlan, rows: Sequence[bytes]) -> int:
        """Delete keys, whether or not they exist; return how many rows did."""
        return sum(
            self._write(work, batch, partial(delete_keys, work, escape=escape), key_only=True)
            for batch in batches(rows, STATEMENT_ROWS, self._statement_size)
        )

    def replace(self, work: TablePlan, rows: Sequence[bytes]) -> int:
        """Write rows, replacing those that share a unique key with them; return how many were written."""
        return sum(self._put("REPLACE", work, batch) for batch in batches(rows, TRANSACTION_ROWS, TRANSACTION_SIZE))

    def insert(self, work: TablePlan, rows: Sequence[bytes]) -> int:
        """Add rows to a table without unique keys; return how many."""
        return sum(self._put("INSERT", work, batch) for batch in batches(rows, TRANSACTION_ROWS, TRANSACTION_SIZE))

    def _put(self, verb: str, work: TablePlan, rows: Sequence[bytes]) -> int:
        """Write rows, each by the columns that it has: the others get what the target's table has as their default."""
        if not work.has_gaps or LACKING not in in_one(rows):
            return self._put_whole(verb, work, rows)
        # Those of one key stay in their order.
        for places, some in groupby(rows, gaps):
            narrow, lines = without_gaps(work, places, list(some))
            try:
                self._put_whole(verb, narrow, lines)
            except RowRefused as fault:
                fault.line = with_gaps(work, places, fault.line)
                raise
        return len(rows)

    def _put_whole(self, verb: str, work: TablePlan, rows: Sequence[bytes]) -> int:
        """Write rows by a bulk statement or LOAD DATA if that is possible and raises no warning, else by literals."""
        # The cheapest way first. Whatever one of them cannot take unchanged goes to the next; literals take everything or say why not.
        if not self._bulk(verb, work, rows) and not self._load(verb, work, rows):
            for batch in batches(rows, STATEMENT_ROWS, self._statement_size):
                self._write(work, batch, partial(write_rows, verb, work, escape=escape))
        return len(rows)

    def _write(self, work: TablePlan, rows: Sequence[bytes], statement: Statement, *, key_only: bool = False) -> int:
        """Run one statement for many rows. If the target refuses it, raise `RowRefused` for the first row that is refused on its own."""

        def run(some: Sequence[bytes]) -> int:
            if key_only:
                return self.sized(statement(some))
            return write_checked(self.sized, work, some, statement)

        try:
            return run(rows)
        except (pymysql.err.MySQLError, ValueError) as fault:
            if not is_refusal(fault):
                raise
            deep = [] if key_only or not is_check(fault) else [has_deep_json(work, row) for row in rows]
            if any(deep):
                return self._write_apart(work, rows, deep, statement)
            # Each row may be accepted alone where all together are not: then the message names none.
            row, why = first_refused(run, rows) or (b"", fault)
        raise self.refusal(work, row, why, key_only=key_only) from why

    def _write_apart(self, work: TablePlan, rows: Sequence[bytes], deep: Sequence[bool], statement: Statement) -> int:
        """Write rows in their order, the `deep` ones without the CHECKs that MariaDB puts on JSON; see `has_deep_json`."""
        written = 0
        for unchecked, run in groupby(zip(deep, rows, strict=True), key=itemgetter(0)):
            write = partial(self._write, work, [row for _, row in run], statement)
            written += without_checks(self.fenced.query, write) if unchecked else write()
        return written

    def refusal(self, work: TablePlan, row: bytes, why: Exception, *, key_only: bool = False) -> RowRefused:
        """Return the error that names the row by its key (if `row` is empty: rows), the reason, and the remedy."""
        which = f"the row with {row_text(work, row, escape, key_only=key_only)}" if row else "rows"
        remedy = "" if isinstance(why, StatementTooLarge) else ". Make the target's table fit what the source holds"
        return RowRefused(
            f"{work.name}: the target refused {which}: {described(why)}{remedy}, then start again",
            line=row,
            content_error=content_error(why) if row and not key_only else 0,
        )

    def sized(self, sql: str) -> int:
        """Run a statement; raise `StatementTooLarge` if the server would close the connection over it."""
        if fault := too_large(sql, self._max_packet):
            raise fault
        return self.fenced.query(sql)

    def _bulk(self, verb: str, work: TablePlan, rows: Sequence[bytes]) -> bool:
        """Write rows by one bulk statement; return False if that is not possible or was undone."""
        connection = self.fenced.live()
        # For few rows, preparing a statement costs more than it saves.
        if not connection.has_bulk or not is_many(len(rows)):
            return False
        types = bulk_types(work)
        values = bulk_values(work, rows if isinstance(rows, Lines) else Lines.of(rows))
        # The server ends the connection over a packet that is too large, so such rows go another way.
        if values is None or _BULK_HEAD + len(types) + len(values) >= self._max_packet:
            return False
        return self._taken(len(rows), lambda: connection.bulk(bulk_statement(work, verb), types, values))

    def _load(self, verb: str, work: TablePlan, rows: Sequence[bytes]) -> bool:
        """Write rows by LOAD DATA LOCAL from memory; return False if that is not allowed, may lose a row, or was undone."""
        if not self._load_data or self.fenced.live().load_drops_rows():
            return False
        most, connection = self._max_packet // 2, self.fenced.live()
        return self._taken(len(rows), lambda: connection.load(load_data(work, verb), in_one(rows), most=most))

    def _taken(self, rows: int, run: Callable[[], tuple[int, int]]) -> bool:
        """Run a statement for `rows` rows that returns (affected rows, warnings); return False if it was undone as not true to them.

        Some servers treat LOCAL like IGNORE and turn errors into warnings. So any warning undoes the statement, and so do fewer rows than
        were sent. The same rows as literals then either go in unchanged or raise the error that names the row and the column.
        """
        self.fenced.query("SAVEPOINT before_rows")
        try:
            affected, warnings = run()
        except pymysql.err.MySQLError as fault:
            # A deadlock rolls back the whole transaction, savepoint included, so only a retry of all of it helps.
            if is_conflict(fault) or is_connection_loss(fault):
                raise
            # Whatever the reason: the same rows as literals go in, or name the row that is refused.
            affected, warnings = 0, 1
        # A row that takes another's place counts once or twice, never less.
        is_true = not warnings and affected >= rows
        if not is_true:
            self.fenced.query("ROLLBACK TO SAVEPOINT before_rows")
        return is_true


def gaps(line: bytes) -> tuple[int, ...]:
    """Return which written columns a row lacks."""
    return tuple(place for place, field in enumerate(line.split(b"\t")) if field == LACKING) if LACKING in line else ()


def without_gaps(work: TablePlan, places: tuple[int, ...], lines: Sequence[bytes]) -> tuple[TablePlan, Sequence[bytes]]:
    """Return the plan and the lines without the written columns at these indexes, which all of the lines lack."""
    if not places:
        return work, lines
    kept = [place for place in range(len(work.written)) if place not in places]
    fields = (line.split(b"\t") for line in lines)
    narrow = replace(work, written=tuple(work.written[place] for place in kept))
    return narrow, [b"\t".join([each[place] for place in kept]) for each in fields]


def with_gaps(work: TablePlan, places: tuple[int, ...], line: bytes) -> bytes:
    """Return a line of `without_gaps` as it was."""
    if not line:
        return line
    fields = iter(line.split(b"\t"))
    return b"\t".join([LACKING if place in places else next(fields) for place in range(len(work.written))])


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
