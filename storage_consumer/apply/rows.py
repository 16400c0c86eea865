"""Statements for many rows: bulk statements or LOAD DATA where possible, else literals. An error names the row that the target refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pymysql.err

from storage_consumer.apply.bulk import bulk_statement, bulk_types, bulk_values, is_many
from storage_consumer.apply.refused_rows import Statement, StatementTooLarge, first_refused, too_large, write_checked
from storage_consumer.apply.statements import delete_keys, load_data, row_text, write_rows
from storage_consumer.apply.transaction import FencedConnection
from storage_consumer.downstream.batches import batches
from storage_consumer.downstream.connection import escape
from storage_consumer.downstream.mysql_errors import described, is_conflict, is_connection_loss, is_refusal
from storage_consumer.errors import RowRefused
from storage_consumer.job.spec import JobSpec, TablePlan
from storage_consumer.kernels.row_lines import Lines, in_one

TRANSACTION_ROWS = 10_000
TRANSACTION_SIZE = 8 << 20
"""Bytes of row text."""
STATEMENT_ROWS = 1_000
_BULK_HEAD = 1 << 10
"""Upper bound of the bytes before the values, without the types."""


class RowStatements(FencedConnection):
    """A fenced connection that writes and deletes rows within the running transaction."""

    def __init__(self, spec: JobSpec, password: str, partition: int) -> None:
        """Take this task's number `partition`, which is also its slot."""
        super().__init__(spec, password, partition)
        self._load_data = spec.load_data
        # Literals can be longer than the lines that they come from: leave room for them in a packet.
        self._statement_size = min(TRANSACTION_SIZE, spec.max_packet // 8)

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
        """Write rows by a bulk statement or LOAD DATA if that is possible and raises no warning, else by literals."""
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
            row, why = first_refused(run, rows) or (b"", fault)
        raise self.refusal(work, row, why, key_only=key_only) from why

    def refusal(self, work: TablePlan, row: bytes, why: Exception, *, key_only: bool = False) -> RowRefused:
        """Return the error that names the row by its key (if `row` is empty: rows), the reason, and the remedy."""
        which = f"the row with {row_text(work, row, escape, key_only=key_only)}" if row else "rows"
        remedy = "" if isinstance(why, StatementTooLarge) else ". Make the target's table fit what the source holds"
        return RowRefused(
            f"{work.name}: the target refused {which}: {described(why)}{remedy}, then start again", line=row
        )

    def sized(self, sql: str) -> int:
        """Run a statement; raise `StatementTooLarge` if the server would close the connection over it."""
        if fault := too_large(sql, self._spec.max_packet):
            raise fault
        return self.query(sql)

    def _bulk(self, verb: str, work: TablePlan, rows: Sequence[bytes]) -> bool:
        """Write rows by one bulk statement; return False if that is not possible or was undone."""
        connection = self.live()
        if not connection.has_bulk or not is_many(len(rows)):
            return False
        types = bulk_types(work)
        values = bulk_values(work, rows if isinstance(rows, Lines) else Lines.of(rows))
        if values is None or _BULK_HEAD + len(types) + len(values) >= self._spec.max_packet:
            return False
        return self._taken(lambda: connection.bulk(bulk_statement(work, verb), types, values))

    def _load(self, verb: str, work: TablePlan, rows: Sequence[bytes]) -> bool:
        """Write rows by LOAD DATA LOCAL from memory; return False if that is not allowed or was undone."""
        most = self._spec.max_packet // 2
        return self._load_data and self._taken(lambda: self.live().load(load_data(work, verb), in_one(rows), most=most))

    def _taken(self, run: Callable[[], tuple[int, int]]) -> bool:
        """Run a statement that returns (affected rows, warnings); return False if it was undone because a value was changed or refused.

        Some servers treat LOCAL like IGNORE and turn errors into warnings. So any warning undoes the statement. The same rows as literals
        then either go in unchanged or raise the error that names the row and the column.
        """
        self.query("SAVEPOINT before_rows")
        try:
            _, warnings = run()
        except pymysql.err.MySQLError as fault:
            if is_conflict(fault) or is_connection_loss(fault):
                raise
            warnings = 1
        if warnings:
            self.query("ROLLBACK TO SAVEPOINT before_rows")
        return not warnings
