"""Statements for many rows: bulk statements or LOAD DATA where possible, else literals. An error names the row that the target refuses.

No row takes the place of another one. A REPLACE does where the target finds two values equal that the source tells apart, and
counts it as written. So it is used only where nothing but the row itself can be in its place; elsewhere rows are inserted, and what
is there of the rows themselves is deleted before. A row that still finds another one in its way is *blocked*. Either that one is
about to go or to change, in another transaction or task of the same commit range, and then a second job for the table writes the
row. Or it stays (`TablePlan.is_settled`), and the table halts.

MariaDB's bulk statements are one prepared statement and the values of many rows in one packet. They cost the server a third less than
LOAD DATA, which looks at each byte of a line to find where its fields end. MySQL and TiDB do not have them. Their prepared statements for
many rows cost more than LOAD DATA. Format: mariadb.com/docs, COM_STMT_BULK_EXECUTE.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np
import pymysql.err

from storage_consumer.apply.refused_rows import (
    RowInTheWay,
    Statement,
    StatementTooLarge,
    compare,
    first_refused,
    has_deep_json,
    too_large,
    without_checks,
    write_checked,
)
from storage_consumer.apply.statements import (
    delete_keys,
    gaps,
    key_places,
    load_data,
    row_text,
    with_keys,
    without_gaps,
    write_rows,
)
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
    is_duplicate,
    is_refusal,
)
from storage_consumer.errors import RowRefused
from storage_consumer.job.spec import TablePlan
from storage_consumer.kernels.row_lines import FEW, Lines, in_one
from storage_consumer.order.keys import compares_texts
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


Settle = Callable[[bytes, BaseException], object]
"""Decides about a row that another one is in the way of; takes its line and what the server answered."""
GivesWay = Callable[[TablePlan, bytes], bool]
"""Returns whether a row of the target may go although nothing says so; takes the line of its key."""


class _Taken(RowRefused):
    """A row shares a unique key with another one, so nothing was written."""


def _never(work: TablePlan, key: bytes) -> bool:  # noqa: ARG001 - as `GivesWay` has it
    return False


class RowStatements:
    """Writes and deletes rows within the running transaction of a fenced connection."""

    def __init__(self, fenced: FencedConnection) -> None:
        """Write through `fenced`."""
        self.fenced = fenced
        self._load_data = fenced.spec.load_data
        self._max_packet = fenced.spec.max_packet
        # Literals can be longer than the lines that they come from: leave room for them in a packet.
        self._statement_size = min(TRANSACTION_SIZE, self._max_packet // 8)

    def delete(self, work: TablePlan, rows: Sequence[bytes], *, exact: bool = False) -> int:
        """Delete keys, whether or not they exist; return how many rows did. `exact`: see `delete_keys`."""
        return sum(
            self._write(work, batch, partial(delete_keys, work, escape=escape, exact=exact), key_only=True)
            for batch in batches(rows, STATEMENT_ROWS, self._statement_size)
        )

    def put(
        self,
        work: TablePlan,
        born: Sequence[bytes],
        others: Sequence[bytes],
        *,
        is_settled: bool,
        gives_way: GivesWay = _never,
    ) -> int:
        """Write rows that came into being (`born`), and others, which were there before; return how many are blocked.

        With `is_settled`, raise `RowRefused` for a blocked row, unless the row in its way `gives_way`.
        """
        settle_now = partial(self._settle, work, gives_way)
        if not work.has_other_unique_keys:
            self._add(work, born, settle_now)
            # Before the commit range the target held no other spelling of these keys: at most the one that they replace.
            for batch in batches(others, TRANSACTION_ROWS, TRANSACTION_SIZE):
                self._put("REPLACE", work, batch)
            return 0
        blocked: list[bytes] = []

        def settle(row: bytes, fault: BaseException) -> None:
            # All rows with this key, however it is spelled, are this task's, so none of another one makes room.
            if is_settled or self._has_another_spelling(work, row):
                settle_now(row, fault)
            else:
                blocked.append(row)

        self._delete_own(work, others, exact=False)
        self._add(work, born, settle)
        # Not as those: by now a row that came into being may have the key in another spelling, which has to stay.
        if len(others) and not self._fits(work, others):
            self._insert_each(work, others, settle)
        return len(blocked)

    def put_in_turn(self, work: TablePlan, rows: Sequence[bytes]) -> None:
        """Write rows of a table without a key, each in the place of the one that holds the same in a unique key, to the last byte."""

        def settle(row: bytes, fault: BaseException) -> None:
            there = RowInTheWay(self.fenced, work, row)
            # One row may go, which is the one that this update changed.
            if not (there.is_gone or (there.is_same and there.delete() and self._fits(work, [row]))):
                raise there.error(fault)

        self._insert_each(work, rows, settle)

    def insert(self, work: TablePlan, rows: Sequence[bytes]) -> None:
        """Add rows; raise `_Taken`, with none added, if one of them shares a unique key with another."""
        try:
            for batch in batches(rows, TRANSACTION_ROWS, TRANSACTION_SIZE):
                self._put("INSERT", work, batch)
        except _Taken:
            # TiDB gives up the locks of a failed statement in the background, and those of the next one with them, unless a locking read has
            # taken a new timestamp since: then the commit fails.
            self.fenced.check_slot()
            raise

    def _add(self, work: TablePlan, rows: Sequence[bytes], settle: Settle) -> None:
        """Insert rows that came into being, in the place of themselves; call `settle` for each that is blocked."""
        if not len(rows) or self._fits(work, rows):
            return
        # They are there if the same was written before, by a process that was killed.
        self._delete_own(work, rows, exact=True)
        self._insert_each(work, rows, settle)

    def _insert_each(self, work: TablePlan, rows: Sequence[bytes], settle: Settle) -> None:
        """Insert rows in their order; call `settle` for each that is blocked, with what the server answered."""
        left = [rows]
        while left:
            some = left.pop()
            try:
                self.insert(work, some)
            except _Taken as fault:
                if len(some) == 1:
                    settle(some[0], fault.__cause__ or fault)
                else:
                    left += [some[len(some) // 2 :], some[: len(some) // 2]]

    def _fits(self, work: TablePlan, rows: Sequence[bytes]) -> bool:
        """Insert rows; return False, with none inserted, if one of them shares a unique key with another."""
        try:
            self.insert(work, rows)
        except _Taken:
            return False
        return True

    def _settle(self, work: TablePlan, gives_way: GivesWay, row: bytes, fault: BaseException) -> None:
        """Write a row although another one is in its way, or raise `RowRefused`."""
        while not (there := RowInTheWay(self.fenced, work, row)).is_gone:
            if not (there.is_same or gives_way(work, there.key_line())) or not there.delete():
                raise there.error(fault)
            if self._fits(work, [row]):
                return
        # It was written by the look.
        if any(column.is_computed for column in work.written):
            compare(self.fenced, work, [row])

    def _has_another_spelling(self, work: TablePlan, row: bytes) -> bool:
        """Return whether the target holds a row whose key it finds equal to this one's, and whose bytes are others."""
        places = key_places(work) if compares_texts(work.key) else None
        if places is None:
            return False
        key = [_picked(row, places)]
        equal, same = (with_keys(work, key, escape, exact=exact) for exact in (False, True))
        (others,) = self.fenced.row(f"SELECT (SELECT COUNT(*) {equal}) - (SELECT COUNT(*) {same})") or (0,)
        return bool(others)

    def _delete_own(self, work: TablePlan, rows: Sequence[bytes], *, exact: bool) -> None:
        """Delete what the target holds of rows. Where it computes a part of their key, each is found only when it is in its own way."""
        places = key_places(work)
        if places is not None and len(rows):
            self.delete(work, [_picked(line, places) for line in rows], exact=exact)

    def _put(self, verb: str, work: TablePlan, rows: Sequence[bytes]) -> None:
        """Write rows, each by the columns that it has: the others get what the target's table has as their default.

        Raise `_Taken`, having written none, if one to be inserted shares a unique key with another.
        """
        computed = any(column.is_computed for column in work.written)
        if not computed and (not work.has_gaps or LACKING not in in_one(rows)):
            self._put_whole(verb, work, rows)
            return
        self.fenced.query("SAVEPOINT before_gaps")
        # Those of one key stay in their order.
        for places, run in groupby(rows, partial(gaps, work)):
            some = list(run)
            narrow, lines = without_gaps(work, places, some)
            try:
                self._put_whole(verb, narrow, lines)
            except _Taken:
                self.fenced.query("ROLLBACK TO SAVEPOINT before_gaps")
                raise
            except RowRefused as fault:
                fault.line = some[lines.index(fault.line)] if fault.line else b""
                raise
        if computed:
            for batch in batches(rows, STATEMENT_ROWS, self._statement_size):
                compare(self.fenced, work, batch)

    def _put_whole(self, verb: str, work: TablePlan, rows: Sequence[bytes]) -> None:
        """Write rows by a bulk statement or LOAD DATA if that is possible and raises no warning, else by literals."""
        # The cheapest way first. Whatever one of them cannot take unchanged goes to the next; literals take everything or say why not.
        if self._bulk(verb, work, rows) or self._load(verb, work, rows):
            return
        statements = list(batches(rows, STATEMENT_ROWS, self._statement_size))
        if len(statements) > 1:
            self.fenced.query("SAVEPOINT before_rows")
        try:
            for batch in statements:
                self._write(work, batch, partial(write_rows, verb, work, escape=escape))
        except _Taken:
            if len(statements) > 1:
                self.fenced.query("ROLLBACK TO SAVEPOINT before_rows")
            raise

    def _write(self, work: TablePlan, rows: Sequence[bytes], statement: Statement, *, key_only: bool = False) -> int:
        """Run one statement for many rows. If the target refuses it, raise `RowRefused` for the first row that is refused on its own."""

        def run(some: Sequence[bytes]) -> int:
            if key_only:
                return self.sized(statement(some))
            return write_checked(self.sized, work, some, statement)

        try:
            return run(rows)
        except (pymysql.err.MySQLError, ValueError) as fault:
            if is_duplicate(fault):
                raise _Taken(f"{work.name}: {described(fault)}") from fault
            if not is_refusal(fault):
                raise
            deep = [] if key_only or not is_check(fault) else [has_deep_json(work, row) for row in rows]
            if any(deep):
                return self._write_apart(work, rows, deep, statement)
            self.fenced.query("SAVEPOINT before_search")
            # Each row may be accepted alone where all together are not: then the message names none.
            row, why = first_refused(run, rows) or (b"", fault)
            # TiDB looks at the values of all rows first, so another one before the refused one may share a key.
            if is_duplicate(why):
                self.fenced.query("ROLLBACK TO SAVEPOINT before_search")
                raise _Taken(f"{work.name}: {described(why)}") from why
        raise self.refusal(work, row, why, key_only=key_only) from why

    def _write_apart(self, work: TablePlan, rows: Sequence[bytes], deep: Sequence[bool], statement: Statement) -> int:
        """Write rows in their order, the `deep` ones without the CHECKs that MariaDB puts on JSON; see `has_deep_json`."""
        written = 0
        self.fenced.query("SAVEPOINT before_parts")
        try:
            for unchecked, run in groupby(zip(deep, rows, strict=True), key=itemgetter(0)):
                write = partial(self._write, work, [row for _, row in run], statement)
                written += without_checks(self.fenced.query, write) if unchecked else write()
        except _Taken:
            self.fenced.query("ROLLBACK TO SAVEPOINT before_parts")
            raise
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
            if is_duplicate(fault):
                self.fenced.query("ROLLBACK TO SAVEPOINT before_rows")
                raise _Taken(described(fault)) from fault
            # Whatever the reason: the same rows as literals go in, or name the row that is refused.
            affected, warnings = 0, 1
        # A row that takes the place of its former state counts once or twice, never less.
        is_true = not warnings and affected >= rows
        if not is_true:
            self.fenced.query("ROLLBACK TO SAVEPOINT before_rows")
        return is_true


def _picked(line: bytes, places: Sequence[int]) -> bytes:
    fields = line.split(b"\t")
    return b"\t".join([fields[place] for place in places])


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
