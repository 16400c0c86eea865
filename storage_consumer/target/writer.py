"""TargetWriter: what a task does to the target. One connection, one slot; every transaction checks the fence first."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pymysql.err

from storage_consumer.checkpoint import is_applied
from storage_consumer.errors import LeaseLost, RowRefused, TargetUnavailable
from storage_consumer.sql_text import quote
from storage_consumer.target.batches import batches, pause
from storage_consumer.target.connection import Connection, connect, escape
from storage_consumer.target.eviction import mark
from storage_consumer.target.faults import (
    FEW_TRIES,
    described,
    is_conflict,
    is_connection_loss,
    is_refusal,
    number_of,
    translated,
)
from storage_consumer.target.refusals import Statement, StatementTooLarge, first_refused, too_large, write_checked
from storage_consumer.target.state import SERIAL_SLOTS
from storage_consumer.target.statements import delete_keys, delete_one, json_equals, load_data, row_text, write_rows
from storage_consumer.work import JobSpec, TableWork

TRANSACTION_ROWS = 10_000
TRANSACTION_SIZE = 8 << 20
"""Bytes of row text."""
STATEMENT_ROWS = 1_000
CONFLICT_TRIES = 20
CONNECTION_TRIES = 6


class TargetWriter:
    """A `pipeline.RowWriter` over one connection."""

    def __init__(self, spec: JobSpec, password: str, partition: int) -> None:
        """`partition`: this task's number, hence its slot."""
        self._spec = spec
        self._password = password
        self._partition = partition
        self._load_data = spec.load_data
        self._connection: Connection | None = None
        self._statement_size = min(TRANSACTION_SIZE, spec.max_packet // 8)
        self._json_equals = ""
        self._attempt = uuid.uuid4().hex
        self._claimed = False

    def finish(self) -> None:
        """Nothing more comes from this task: no other attempt of it may write in this window."""
        if self._claimed:
            self._in_transaction("finishing a task", self._close_slot)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None and self._connection.open:
            self._connection.close()

    # the three ways of writing

    def write_states(self, work: TableWork, deletes: list[bytes], upserts: list[bytes]) -> int:
        """Write last states: deletes first, then upserts, in transactions of bounded size. Playing it again changes nothing."""
        written = 0
        for batch in batches(deletes, TRANSACTION_ROWS, TRANSACTION_SIZE):
            written += self._transaction(work, partial(self._delete, work, batch))
        for batch in batches(upserts, TRANSACTION_ROWS, TRANSACTION_SIZE):
            written += self._transaction(work, partial(self._upsert, work, batch))
        return written

    def write_runs(self, work: TableWork, ordered: Iterable[tuple[bool, list[bytes]]]) -> int:
        """Write runs of upserts and deletes in their order."""
        written = 0
        for upsert, rows in ordered:
            write = self._upsert if upsert else self._delete
            for batch in batches(rows, TRANSACTION_ROWS, TRANSACTION_SIZE):
                written += self._transaction(work, partial(write, work, batch))
        return written

    def write_events(self, work: TableWork, groups: Iterable[tuple[int, list[tuple[bool, bytes]]]]) -> int:
        """Write a keyless table's events; its stored checkpoint moves in the same transactions, at ends of commit ts only."""
        written, size = 0, 0
        held: list[tuple[int, list[tuple[bool, bytes]]]] = []
        for commit_ts, events in groups:
            if held and size >= TRANSACTION_ROWS:
                written += self._events(work, held, until=held[-1][0])
                held, size = [], 0
            held.append((commit_ts, events))
            size += len(events)
        if held:
            written += self._events(work, held, until=held[-1][0])
        return written

    def _events(self, work: TableWork, groups: Sequence[tuple[int, list[tuple[bool, bytes]]]], *, until: int) -> int:
        """One transaction of a keyless table: its checkpoint goes to `until` (inclusive) with the rows."""

        def write() -> int:
            stored = self._stored_checkpoint(work)  # an earlier try whose answer was lost, or another writer, was here
            written = 0
            for commit_ts, events in groups:
                if not is_applied(commit_ts, stored):
                    written += self._write_group(work, commit_ts, events)
            self._store_checkpoint(work, max(until, stored))
            return written

        return self._transaction(work, write)

    def _write_group(self, work: TableWork, commit_ts: int, events: Sequence[tuple[bool, bytes]]) -> int:
        """The events of one commit ts: deletes one by one, each of which must hit a row, then inserts."""
        for _, line in (event for event in events if not event[0]):
            statement = delete_one(work, line, escape, json_equals=self._json())
            try:
                hit = self._sized(statement)
            except StatementTooLarge as fault:
                raise self._refusal(work, line, fault) from None
            if hit != 1:
                message = (
                    f"{work.name}: the delete with commit ts {commit_ts} finds no row with exactly these values in the target; "
                    "the table was changed by someone else, or its rows were not complete at the start"
                )
                raise RowRefused(message)
        verb = "REPLACE" if work.replaces else "INSERT"
        for batch in batches([line for upsert, line in events if upsert], STATEMENT_ROWS, self._statement_size):
            self._write(work, batch, partial(write_rows, verb, work, escape=escape))
        return len(events)

    # statements

    def _delete(self, work: TableWork, rows: Sequence[bytes]) -> int:
        """Delete keys that may or may not be there."""
        return sum(
            self._write(work, batch, partial(delete_keys, work, escape=escape), key_only=True)
            for batch in batches(rows, STATEMENT_ROWS, self._statement_size)
        )

    def _upsert(self, work: TableWork, rows: Sequence[bytes]) -> int:
        """Replace rows by key, by LOAD DATA where that may be and raised no warning, else by literals."""
        if self._load_data and self._load(work, rows):
            return len(rows)
        for batch in batches(rows, STATEMENT_ROWS, self._statement_size):
            self._write(work, batch, partial(write_rows, "REPLACE", work, escape=escape))
        return len(rows)

    def _write(self, work: TableWork, rows: Sequence[bytes], statement: Statement, *, key_only: bool = False) -> int:
        """One statement for many rows. Where the target refuses it, `RowRefused` names the row that is refused alone too."""

        def run(some: Sequence[bytes]) -> int:
            if key_only:
                return self._sized(statement(some))
            return write_checked(self._sized, work, some, statement)

        try:
            return run(rows)
        except (pymysql.err.MySQLError, ValueError) as fault:
            if not is_refusal(fault):
                raise
            row, why = first_refused(run, rows) or (b"", fault)
        raise self._refusal(work, row, why, key_only=key_only) from why

    def _refusal(self, work: TableWork, row: bytes, why: Exception, *, key_only: bool = False) -> RowRefused:
        """The error that names the row (empty: rows) by its key, the reason, and the way on."""
        which = f"the row with {row_text(work, row, escape, key_only=key_only)}" if row else "rows"
        remedy = "" if isinstance(why, StatementTooLarge) else ". Make the target's table fit what the source holds"
        return RowRefused(
            f"{work.name}: the target refused {which}: {described(why)}{remedy}, then start again", line=row
        )

    def _sized(self, sql: str) -> int:
        """Run a statement. `StatementTooLarge` for one that the server would end the connection for."""
        if fault := too_large(sql, self._spec.max_packet):
            raise fault
        return self._query(sql)

    def _load(self, work: TableWork, rows: Sequence[bytes]) -> bool:
        """LOAD DATA LOCAL from memory; False if the server changed or refused a value, and nothing of it is left.

        Some servers treat LOCAL like IGNORE and turn errors into warnings. So any warning takes the rows back; the same rows
        as literals then either go in as they are or raise the error that names the row and the column.
        """
        connection = self._live()
        self._query("SAVEPOINT before_load")
        try:
            feed = b"\n".join(rows) + b"\n"
            _, warnings = connection.load(load_data(work), feed, most=self._spec.max_packet // 2)
        except pymysql.err.MySQLError as fault:
            if is_conflict(fault) or is_connection_loss(fault):
                raise
            warnings = 1
        if warnings:
            self._query("ROLLBACK TO SAVEPOINT before_load")
        return not warnings

    def _query(self, sql: str) -> int:
        """Run one statement; returns the number of matched rows."""
        return int(self._live().query(sql))

    # transactions

    def _transaction(self, work: TableWork, body: Callable[[], int]) -> int:
        """Run `body` between the check of the fence and the commit.

        A commit whose answer was lost is played again as a whole: last states are idempotent, events look at the stored
        checkpoint first.
        """

        def fenced() -> int:
            self._check_fence(work)
            return body()

        written = self._in_transaction(f"writing {work.name}", fenced)
        self._claimed = True
        return written

    def _in_transaction(self, doing: str, body: Callable[[], int]) -> int:
        """Run `body` in a transaction, played again after a deadlock or a lost connection."""
        tries = 0
        while True:
            tries += 1
            try:
                self._query("START TRANSACTION")
                result = body()
                self._query("COMMIT")
            except (pymysql.err.MySQLError, OSError, EOFError) as fault:
                self._recover(fault, tries, doing)
            except ValueError as fault:
                self._rollback()
                message = f"{doing}: {fault}"
                raise RowRefused(message) from fault
            except BaseException:
                self._rollback()
                raise
            else:
                return result

    def _recover(self, fault: Exception, tries: int, doing: str) -> None:
        """Make ready for another try, or raise what the caller has to know."""
        if is_conflict(fault) and tries < FEW_TRIES.get(number_of(fault), CONFLICT_TRIES):
            self._rollback()
            pause(tries, 0.02)
        elif is_connection_loss(fault) and tries < CONNECTION_TRIES:
            self._forget()
            pause(tries, 0.2)
        else:
            self._rollback()
            raise translated(fault, doing) from fault

    def _check_fence(self, work: TableWork) -> None:
        """Lock this task's slot (and the table's, if several write it and queue); see that window, owner and attempt are still ours."""
        self._check_slot()
        if work.serial and not self._spec.whole:
            self._lock_slot(-1 - work.index % SERIAL_SLOTS)

    def _check_slot(self) -> None:
        """The first transaction of an attempt claims the task's slot; an attempt that lost it, or comes too late, must end.

        Without that, a second attempt (after a lost executor, or by speculation) could play the beginning of what the first
        one has finished, and be killed before it comes to the end.
        """
        attempt, finished = self._lock_slot(self._partition)
        if self._claimed and attempt != self._attempt:
            message = "another attempt of this task has taken over its slot"
            raise TargetUnavailable(message)
        if finished:
            message = "another attempt of this task has finished; what it wrote is not written again in this window"
            raise TargetUnavailable(message)
        if not self._claimed:
            self._mark_slot(f"attempt = '{self._attempt}'")

    def _close_slot(self) -> int:
        """Nothing more may come from this task in this window."""
        self._check_slot()
        return self._mark_slot("finished = 1")

    def _lock_slot(self, slot: int) -> tuple[str, int]:
        """Lock a slot for this transaction; which attempt holds it and whether that has finished. Raises `LeaseLost`."""
        columns = "epoch, window_id, attempt, finished"
        row = self._row(f"SELECT {columns} FROM {self._state('slots')} WHERE slot = {slot} FOR UPDATE")
        if row is None or row[:2] != (self._spec.epoch, self._spec.window_id):
            message = (
                f"the window {self._spec.window_id} of epoch {self._spec.epoch} is closed: another one is open ({row})"
            )
            raise LeaseLost(message)
        return str(row[2]), int(row[3])

    def _mark_slot(self, change: str) -> int:
        """Change this task's slot."""
        return self._query(f"UPDATE {self._state('slots')} SET {change} WHERE slot = {self._partition}")

    def _stored_checkpoint(self, work: TableWork) -> int:
        """The table's stored checkpoint, 0 if there is none."""
        where = f"table_key = '{escape(work.table_key)}'"
        row = self._row(f"SELECT checkpoint FROM {self._state('table_progress')} WHERE {where} FOR UPDATE")
        return int(row[0]) if row else 0

    def _store_checkpoint(self, work: TableWork, checkpoint: int) -> None:
        """Move the table's stored checkpoint within the running transaction."""
        names = (work.table_key, work.name.schema, work.name.table)
        values = ", ".join(f"'{escape(name)}'" for name in names)
        self._query(
            f"INSERT INTO {self._state('table_progress')} "
            "(table_key, schema_name, table_name, checkpoint, state, follows, error) "
            f"VALUES ({values}, {checkpoint}, 'running', 1, '') ON DUPLICATE KEY UPDATE checkpoint = {checkpoint}"
        )

    # the connection

    def _live(self) -> Connection:
        """The connection, opened at first use."""
        if self._connection is None:
            self._connection = connect(self._spec.downstream, self._password)
            mark(self._connection.query, self._spec.downstream.state_schema)
        return self._connection

    def _forget(self) -> None:
        """Drop a broken connection."""
        if self._connection is not None:
            self._connection._force_close()  # type: ignore[attr-defined] # noqa: SLF001 - close() would write to the broken socket
        self._connection = None

    def _rollback(self) -> None:
        """Take back what is open; a connection that cannot do so is dropped, which takes it back as well."""
        try:
            if self._connection is not None:
                self._connection.query("ROLLBACK")
        except (pymysql.err.MySQLError, OSError, EOFError):
            self._forget()

    def _row(self, sql: str) -> tuple[Any, ...] | None:
        """The first row of a query."""
        with self._live().cursor() as cursor:
            cursor.execute(sql)
            row: tuple[Any, ...] | None = cursor.fetchone()
            return row

    def _json(self) -> str:
        """How this server compares JSON by meaning."""
        if not self._json_equals:
            self._json_equals = json_equals(str((self._row("SELECT VERSION()") or ("",))[0]))
        return self._json_equals

    def _state(self, table: str) -> str:
        """A state table's full name."""
        return f"{quote(self._spec.downstream.state_schema)}.{quote(table)}"
