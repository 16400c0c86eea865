"""One connection and one slot of a window; transactions check the fence and retry if safe."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import pymysql.err

from storage_consumer.errors import ConfigError, LeaseLost, RowRefused, TargetUnavailable
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_words import shell_word, table_flag
from storage_consumer.ports import SERIAL_SLOTS
from storage_consumer.rows.spec import JobSpec, TablePlan
from storage_consumer.target.connection import Connection, connect
from storage_consumer.target.mysql_errors import (
    FEW_TRIES,
    described,
    gone,
    is_conflict,
    is_connection_loss,
    is_denied,
    number_of,
    translated,
)
from storage_consumer.target.rights import remedy, state_remedy
from storage_consumer.target.session_settings import mark

T = TypeVar("T")
CONFLICT_TRIES = 20
CONNECTION_TRIES = 6


class FencedConnection:
    """A task's connection to the target."""

    def __init__(self, spec: JobSpec, password: str, partition: int) -> None:
        """Take this task's number `partition`, which is also its slot."""
        self.spec = spec
        self._password = password
        self._partition = partition
        self._connection: Connection | None = None
        self._attempt = uuid.uuid4().hex
        self._claimed = False
        self._queues = False
        self.repeats = False
        """Whether another attempt of this task wrote in this window; the state has its quarantine.
        """

    def finish(self) -> None:
        """Close the slot: no other attempt of this task may write in this window."""

        def close() -> int:
            self.check_slot()
            return self._mark_slot(self.spec.statements.close_slot)

        # A task that wrote nothing has claimed no slot: another attempt has nothing to repeat.
        if self._claimed:
            self._in_transaction("finishing a task", self.state_schema, close, "table resume")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None and self._connection.open:
            self._connection.close()

    def query(self, sql: str) -> int:
        """Run one statement; return the number of matched rows."""
        return int(self.live().query(sql))

    # transactions

    def transaction(self, work: TablePlan, body: Callable[[], T]) -> T:
        """Run `body` between the check of the fence and the commit; return its result.

        If the answer to a commit is lost, all of it runs again. That is safe: last states are
        idempotent, and events look at the stored checkpoint first.
        """

        def fenced() -> T:
            self.check_slot()
            # In a `whole` job one task alone writes a table, so nobody is in its way.
            if work.has_other_unique_keys and self._queues and not self.spec.whole:
                self.lock_table(work)
            return body()

        # The claim holds once its commit is known; until then a retry may have to claim again.
        written = self._in_transaction(
            f"writing {work.name}", work.name.schema, fenced, f"table resume {_flag(work)}"
        )
        self._claimed = True
        return written

    def _in_transaction(self, doing: str, schema: str, body: Callable[[], T], command: str) -> T:
        """Run `body` in a transaction that is retried after a deadlock or a lost connection.

        `schema` holds the tables that it writes, and `command` is what a message tells to run after
        the remedy.
        """
        tries = 0
        while True:
            tries += 1
            try:
                self.query("START TRANSACTION")
                result = body()
                # If the answer is lost, the commit is unknown; `body` must be right either way.
                self.query("COMMIT")
            except (pymysql.err.MySQLError, OSError, EOFError) as fault:
                if why := self._recover(fault, tries, doing, schema):
                    raise RowRefused(
                        f"{why}, then start again, or run `storage-consumer {command}`"
                    ) from fault
            # A value that is not of its column's kind stays so, whatever is tried.
            except ValueError as fault:
                self._rollback()
                raise RowRefused(f"{doing}: {fault}") from fault
            except BaseException:
                self._rollback()
                raise
            else:
                return result

    def _recover(self, fault: Exception, tries: int, doing: str, schema: str) -> str:
        """Prepare a retry or raise the caller's error; return what is wrong and its remedy.

        The remedy is empty unless a right is missing.
        """
        # A conflict may have ended only its statement (a lock wait does), so the transaction is
        # rolled back explicitly.
        if is_conflict(fault) and tries < FEW_TRIES.get(number_of(fault), CONFLICT_TRIES):
            self._rollback()
            # From here on writers of a table with further unique keys queue; see `transaction`.
            self._queues = True
            _pause(tries, 0.02)
        # Nobody knows what became of the transaction; the next try asks the slot and, for events,
        # the stored checkpoint.
        elif is_connection_loss(fault) and tries < CONNECTION_TRIES:
            self._forget()
            _pause(tries, 0.2)
        else:
            self._rollback()
            if is_denied(fault):
                return f"{doing}: {described(fault)}. {remedy(fault, self.rows, [schema])}"
            raise translated(fault, doing) from fault
        return ""

    def _of_state(self, run: Callable[[], T]) -> T:
        """Run a statement on the state's tables; stop the run if the state is missing or denied."""
        try:
            return run()
        except pymysql.err.MySQLError as fault:
            if lost := gone(fault, "looking at a task's slot", self.state_schema):
                raise lost from fault
            if not is_denied(fault):
                raise
            raise ConfigError(state_remedy(fault, self.rows, self.state_schema)) from fault

    def lock_table(self, work: TablePlan) -> None:
        """Keep other writers of a table from passing this until the transaction ends."""
        # Slots below 0 belong to tables: all writers of one table meet in the same.
        # Two tables may share one, which costs them a wait and no more.
        self._lock_slot(-1 - work.index % SERIAL_SLOTS)

    def check_slot(self) -> None:
        """Lock the task's slot, and claim it first of all; raise `TargetUnavailable` if it is lost.

        Without this, a second attempt (after a lost executor, or by speculation) could repeat the
        beginning of what the first one has finished, and be killed before it reaches the end.
        """
        attempt, finished = self._lock_slot(self._partition)
        if self._claimed and attempt != self._attempt:
            raise TargetUnavailable("another attempt of this task has taken over its slot")
        # our own is possible: the answer to its commit was lost
        if finished and attempt != self._attempt:
            raise TargetUnavailable(
                "another attempt of this task has finished; what it wrote is not written again in this window"
            )
        if not self._claimed:
            self.repeats |= attempt not in ("", self._attempt)
            self._mark_slot(self.spec.statements.claim_slot)

    def _lock_slot(self, slot: int) -> tuple[str, int]:
        """Lock a slot for this transaction; return its attempt, and whether that has finished.

        Raise `LeaseLost` if the slot belongs to another epoch or window.
        """
        row = self._of_state(lambda: self.row(self.spec.statements.lock_slot % {"of": slot}))
        if row is None or row[:2] != (self.spec.epoch, self.spec.window_id):
            raise LeaseLost(
                f"the window {self.spec.window_id} of epoch {self.spec.epoch} is closed: another one is open ({row})"
            )
        return str(row[2]), int(row[3])

    def _mark_slot(self, statement: str) -> int:
        """Change this task's slot."""
        change = statement % {"of": self._partition, "by": f"'{self._attempt}'"}
        return self._of_state(lambda: self.query(change))

    # the connection

    def live(self) -> Connection:
        """Return the connection, opened at first use."""
        if self._connection is None:
            target = self.spec.downstream
            # Marked, so that a later owner can end this connection if its process is paused in the
            # middle of a transaction.
            self._connection = connect(
                target, self._password, prepare=lambda made: mark(made.query, target.state_schema)
            )
        return self._connection

    def _forget(self) -> None:
        """Drop a broken connection."""
        if self._connection is not None:
            self._connection._force_close()  # type: ignore[attr-defined] # noqa: SLF001 - close() would write to the broken socket
        self._connection = None

    def _rollback(self) -> None:
        """Roll back. If that fails, drop the connection, which makes the server roll back."""
        try:
            if self._connection is not None:
                self._connection.query("ROLLBACK")
        except (pymysql.err.MySQLError, OSError, EOFError):
            self._forget()

    def rows(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        """Return all rows of a query."""
        with self.live().cursor() as cursor:
            cursor.execute(sql)
            return tuple(cursor.fetchall())

    def row(self, sql: str) -> tuple[Any, ...] | None:
        """Return the first row of a query, or None."""
        return next(iter(self.rows(sql)), None)

    @property
    def state_schema(self) -> str:
        """The schema of the state."""
        return self.spec.downstream.state_schema


def _pause(tries: int, base: float) -> None:
    """Sleep longer after each try, up to 5 s, in part at random so that tasks spread."""
    time.sleep(min(5.0, base * 2**tries) * random.uniform(0.5, 1.0))  # noqa: S311 - not for secrets


def _flag(work: TablePlan) -> str:
    """Return ``--table NAME`` for a shell, by the source's name, which has the known spelling."""
    return (
        table_flag(work.name)
        if key_of(work.name) == work.table_key
        else f"--table {shell_word(work.table_key)}"
    )
