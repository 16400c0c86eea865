"""A keyless table's events, netted, and written together with the table's checkpoint.

Why each event takes effect exactly once, whenever the program is killed:

* Changes come in parts that never split a commit-ts (`row_order.in_parts`). A transaction takes
  whole parts, and moves the table's stored checkpoint to their last commit-ts. So at any instant
  the table holds the events up to its stored checkpoint and no others.
* The stored checkpoint is read in a transaction that claims the task's slot. From then on nobody
  else moves it: another attempt of the task has to take over the slot first, and then the fence
  stops this one. Changes at or below it are left out.
* Each transaction reads it again. If it has already reached the end of the transaction's events,
  the answer to an earlier try's commit was lost. Any other value that is not below their first
  commit-ts cannot occur; then nothing is written.
* What a transaction writes is fixed before it begins, so a retry after a conflict does the same.

A load of such a table goes the same way: its clock stands for the commit-ts, and is stored with the
load (see `plan.loads`).

Many rows of a table without indexes are deleted together, in two passes over the table instead of
one per row. They become a temporary table whose columns have the types of the table's own, so the
server brings both sides to the same form. A checksum of one or more columns finds the candidate
pairs. All columns together decide whether a pair is equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, compress, groupby
from operator import itemgetter

import numpy as np
import pymysql.err

from storage_consumer.clock import Pace
from storage_consumer.decode.kernels.row_lines import size_of
from storage_consumer.decode.values import WireKind
from storage_consumer.decode.wire_format import split_lines
from storage_consumer.errors import RowRefused, TargetUnavailable
from storage_consumer.model import TableName
from storage_consumer.rows.row_keys import is_upsert
from storage_consumer.rows.row_order import Changes
from storage_consumer.rows.spec import TablePlan, WireColumn
from storage_consumer.sql.tokens import qualified, quote
from storage_consumer.target.apply_rows import RowStatements
from storage_consumer.target.connection import escape
from storage_consumer.target.mysql_errors import is_conflict, is_connection_loss
from storage_consumer.target.row_statements import (
    TEXTS,
    StatementTooLarge,
    delete_images,
    gaps,
    json_equals,
    without_gaps,
)
from storage_consumer.tso import is_applied

FEW_EVENTS, FEW_BYTES = 10_000, 48 << 20
"""Changes, or bytes of memory for their net effect, that are enough for one transaction."""
MANY_BYTES = 192 << 20
"""The same limit where deletes go together: the more events are netted, the fewer passes."""
FEW = 8
"""Most distinct rows that are deleted one by one."""
ROW_COST = 100
"""Bytes of memory per row besides its line: object header, slots in a dictionary and a list."""
_IMAGES = "storage_consumer_images"
_NUMBER = WireColumn(name="storage_consumer_number", kind=WireKind.UNSIGNED, type="INT")
_CHECKSUM = "storage_consumer_checksum"
_BEFORE = "before_images"
_TRANSACTION_LIMITS = (
    "max_binlog_cache_size",
    "group_replication_transaction_size_limit",
    "wsrep_max_ws_size",
)
"""Server variables, in bytes; 0 or a missing variable means no limit."""
_LONGER = 4
"""Most replicated bytes per byte of a row's text: a one-digit number takes eight bytes there."""
_ALIKE = 4
"""Most rows to delete that may share a checksum, and so be compared with one row of the table."""


class Portion:
    """The net effect of one transaction's events: rows to delete, counted, then rows to insert.

    Nothing distinguishes rows with equal lines, so only the count of each line matters: a delete
    cancels an equal insert before it, and different lines do not affect each other. An insert does
    not cancel a delete before it: each remaining delete has to find a row that was in the table
    before all these events.
    """

    def __init__(self, *, in_turn: bool) -> None:
        """Begin empty. With `in_turn`, keep the events as they are instead of netting them."""
        self.events = 0
        """Number of events."""
        self.first = self.last = 0
        """Their first and last commit-ts, inclusive; 0 while there are none."""
        self.in_turn: list[Changes] = []
        self.inserts: Counter[bytes] = Counter()
        self.deletes: Counter[bytes] = Counter()
        self.deleted_at: dict[bytes, int] = {}
        """For each row to delete, the commit-ts of its first remaining delete."""
        self.met = 0
        """The number of deletes, including those that cancelled an insert."""
        self.size = 0
        """Approximate bytes of memory that all this takes."""
        self._keeps = in_turn

    def add(self, events: Changes) -> None:
        """Add one or more events, in bulk where their lines are never deleted, else in sequence."""
        self.first = self.first or int(events.ts[0])
        self.last = int(events.ts[-1])
        self.events += len(events)
        if self._keeps:
            self.in_turn.append(events)
            self.size += size_of(events.lines)
            return
        lines, upserts = list(events.lines), is_upsert(events.order)
        doomed = set(compress(lines, (~upserts).tolist()))
        if not doomed:
            self._insert(lines)
            return
        is_doomed = np.fromiter(map(doomed.__contains__, lines), np.bool_, len(lines))
        # Different lines do not affect each other: only lines deleted somewhere need sequence.
        self._insert(list(compress(lines, (~is_doomed).tolist())))
        for place in np.flatnonzero(is_doomed).tolist():
            if upserts[place]:
                self._insert(lines[place : place + 1])
            else:
                self._delete(lines[place], int(events.ts[place]))

    def _insert(self, lines: Sequence[bytes]) -> None:
        self.inserts.update(lines)
        self.size += sum(map(len, lines)) + ROW_COST * len(lines)

    def _delete(self, line: bytes, ts: int) -> None:
        self.met += 1
        # The insert is among these events too: neither of the two reaches the target.
        if count := self.inserts.get(line):
            self.size -= len(line) + ROW_COST
            self.inserts[line] = count - 1
            if count == 1:
                del self.inserts[line]
        else:
            self.size += len(line) + ROW_COST
            self.deletes[line] += 1
            # The first one is reported if the target has no such row.
            self.deleted_at.setdefault(line, ts)


def portions(
    parts: Iterable[Changes], is_enough: Callable[[Portion], bool], *, in_turn: bool
) -> Iterator[Portion]:
    """Yield one portion per transaction: whole parts until `is_enough` is true after one."""
    portion = Portion(in_turn=in_turn)
    for part in parts:
        portion.add(part)
        if is_enough(portion):
            yield portion
            portion = Portion(in_turn=in_turn)
    if portion.events:
        yield portion


class KeylessTable:
    """The writer of one keyless table's events, over the connection of a task."""

    def __init__(
        self, rows: RowStatements, work: TablePlan, pace: Pace | None = None, most: int = 0
    ) -> None:
        """Write by `rows`, in transactions of about `most` events; 0: `FEW_EVENTS`."""
        self._rows = rows
        self._pace = pace or Pace()
        self._few = min(most or FEW_EVENTS, FEW_EVENTS)
        self._fenced = rows.fenced
        self._statements = rows.fenced.spec.statements
        self._work = work
        self._json_equals = ""
        self._most: int | None = None
        """Bytes of one transaction; None until asked."""
        self._scanned: bool | None = None
        """Whether each single delete scans the table; None until asked."""

    def write(self, parts: Iterable[Changes]) -> int:
        """Write events and count them; the stored checkpoint moves along at ends of a commit-ts."""
        # This transaction claims the slot, so the value is final: no other attempt can move it.
        stored = self._fenced.transaction(self._work, self._stored_checkpoint)
        due = chain.from_iterable(part.after(stored).pieces(self._few) for part in parts)
        written = 0
        # Where an insert replaces rows by nullable unique keys, the order of events decides what
        # stays: nothing is netted then.
        for portion in portions(due, self._is_enough, in_turn=self._work.replaces):
            written += self._fenced.transaction(self._work, partial(self._write, portion))
            self._pace.spend(portion.events)
            del portion  # frees the memory before the next portion is built
        return written

    def _is_enough(self, portion: Portion) -> bool:
        """Return whether a transaction should take no more."""
        if portion.events < self._few and portion.size < FEW_BYTES:
            return False
        # Queried only once it matters: without deletes, transactions need not be larger.
        if self._most is None and portion.met:
            self._most = self._fenced.transaction(self._work, self._most_bytes)
        # However many deletes a transaction has, they pass over the table together: the larger it
        # is, the cheaper each of them.
        return portion.size >= (self._most or 0) or not portion.met

    def _most_bytes(self) -> int:
        """Return the bytes of memory for a transaction with deletes; 0 for the usual limits."""
        if not self._is_scanned():
            return 0
        # What the server takes in one transaction, by its own limits for what is replicated.
        names = ", ".join(f"'{name}'" for name in _TRANSACTION_LIMITS)
        rows = self._fenced.rows(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})")
        limits = (int(value) for _, value in rows)
        return min(
            MANY_BYTES, min((limit for limit in limits if limit), default=1 << 62) // _LONGER
        )

    def _write(self, portion: Portion) -> int:
        """Write a portion within the running transaction; return its number of events.

        Raise `TargetUnavailable` if the stored checkpoint was moved by someone else.
        """
        stored = self._stored_checkpoint()
        if portion.last == stored:  # an earlier try committed, and its answer was lost
            return portion.events
        if is_applied(portion.first, stored):
            raise TargetUnavailable(
                f"{self._work.name}: somebody else has moved the table's stored checkpoint to {stored}"
            )
        if self._work.replaces:
            self._write_in_turn(portion.in_turn)
        else:
            found = self._delete(portion.deletes)
            # A bulk delete takes every equal row: put back those beyond the number asked for.
            # A list times a negative number is empty, which leaves out those that had fewer rows
            # than asked for.
            surplus = chain.from_iterable(
                [row] * (found[row] - count) for row, count in portion.deletes.items()
            )
            self._rows.insert(self._work, [*portion.inserts.elements(), *surplus])
            for row, count in portion.deletes.items():
                lacking = count - found[row]
                # Where the same row was inserted after the delete, another try would take that one.
                if lacking > 0 and (
                    portion.inserts[row] or self._delete_some(row, lacking) < lacking
                ):
                    raise self._lost(portion.deleted_at[row])
        if self._work.origin:
            clock = {"of": _literal(self._work.table_key), "upto": portion.last}
            self._fenced.query(self._statements.store_load % clock)
        else:
            names = {
                "of": self._work.table_key,
                "in_schema": self._work.name.schema,
                "named": self._work.name.table,
            }
            values = {parameter: _literal(name) for parameter, name in names.items()}
            self._fenced.query(self._statements.store_checkpoint % {**values, "upto": portion.last})
        return portion.events

    def _write_in_turn(self, parts: Iterable[Changes]) -> None:
        """Write runs in order: an insert replaces the row that shares a nullable unique key."""
        events = chain.from_iterable(
            zip(is_upsert(part.order).tolist(), part.lines, part.ts.tolist(), strict=True)
            for part in parts
        )
        for upsert, run in groupby(events, key=itemgetter(0)):
            if upsert:
                self._rows.put_in_turn(self._work, [line for _, line, _ in run])
                continue
            for _, line, ts in run:
                if not self._delete_some(line, 1):
                    raise self._lost(ts)

    def _lost(self, commit_ts: int) -> RowRefused:
        """Return the error for a delete without a row."""
        return RowRefused(
            f"{self._work.name}: the delete with commit ts {commit_ts} found no row with exactly these values in the "
            "target; somebody else changed the table, its rows were not complete at the start, or "
            "--skip-commit-ts left out its insert. Run "
            "`storage-consumer table pause`, export the table after that, then run `storage-consumer load` with --replace"
        )

    # deletes

    def _delete(self, deletes: Mapping[bytes, int]) -> Counter[bytes]:
        """Delete rows; return how many of each are gone, maybe fewer or more than asked for."""
        found: Counter[bytes] = Counter()
        if (
            len(deletes) > FEW
            and not any(map(partial(gaps, self._work), deletes))
            and self._is_scanned()
        ):
            # Two passes over the table, however many rows; up to `FEW` a scan for each is cheaper.
            together = delete_equal(self._rows, self._work, list(deletes))
            if together is None:
                # This server cannot: never try again, and end transactions by the usual limits.
                self._scanned, self._most = False, 0
            found.update(together or {})
        for line, count in deletes.items():
            if found[line] < count:
                found[line] += self._delete_some(line, count - found[line])
        return found

    def _is_scanned(self) -> bool:
        """Return whether single deletes scan the table, and `delete_equal` may replace them.

        This holds if the table has no index, and no column but generated ones beyond those that are
        written: equal rows are then interchangeable. It never holds on TiDB, which has no such
        temporary tables.
        """
        if self._scanned is None:
            name = self._work.name
            place = (
                f"table_schema = '{escape(name.schema)}' AND table_name = '{escape(name.table)}'"
            )
            ours = "COALESCE(generation_expression, '') = ''"
            row = self._fenced.row(
                f"SELECT (SELECT COUNT(*) FROM information_schema.statistics WHERE {place}), "
                f"(SELECT COUNT(*) FROM information_schema.columns WHERE {place} AND {ours}), VERSION() LIKE '%TiDB%'"
            )
            self._scanned = row is not None and (*map(int, row),) == (0, len(self._work.written), 0)
        return self._scanned

    def _delete_some(self, line: bytes, most: int) -> int:
        """Delete up to `most` rows equal to this one; return how many there were."""
        # Nobody knows what the source had in the columns that the row lacks.
        narrow, (known,) = without_gaps(self._work, gaps(self._work, line), [line])
        if not self._json_equals:
            self._json_equals = json_equals(str((self._fenced.row("SELECT VERSION()") or ("",))[0]))
        statement = delete_images(narrow, known, escape, json_equals=self._json_equals, most=most)
        try:
            return self._rows.sized(statement)
        except StatementTooLarge as fault:
            raise self._rows.refusal(self._work, line, fault) from None

    # the table's checkpoint

    def _stored_checkpoint(self) -> int:
        """Lock and return the table's stored checkpoint, 0 if there is none."""
        # Where there is no row yet, nothing is locked; the slot, which is locked before, still
        # keeps other attempts out.
        lock = self._statements.lock_load if self._work.origin else self._statements.lock_checkpoint
        row = self._fenced.row(lock % {"of": _literal(self._work.table_key)})
        return int(row[0]) if row else 0


def _literal(text: str) -> str:
    return f"'{escape(text)}'"


# many deletes together


def delete_equal(
    rows: RowStatements, work: TablePlan, lines: Sequence[bytes]
) -> Mapping[bytes, int] | None:
    """Delete every row equal to one of these distinct lines; return the counts above zero.

    Return None, with nothing deleted, if the server cannot do it this way (it lacks a privilege,
    for example) or cannot tell two of the lines apart. Raise the driver's errors for conflicts and
    lost connections.
    """
    fenced = rows.fenced
    # In the state schema, where the account needs all rights anyway.
    images = TableName(schema=fenced.state_schema, table=_IMAGES)
    try:
        telling = telling_columns(work, lines)
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
        fenced.query(
            f"UPDATE {qualified(images)} AS d SET {quote(_CHECKSUM)} = {_checksum(telling, 'd')}"
        )
        pairs = f"{qualified(work.name)} AS r STRAIGHT_JOIN {qualified(images)} AS d ON {_equal(work, telling)}"
        number = f"d.{quote(_NUMBER.name)}"
        found = fenced.rows(f"SELECT {number}, COUNT(*) FROM {pairs} GROUP BY {number}")
        # Counted before the delete: afterwards nobody could say how many rows of each there were.
        counts = {lines[int(place)]: int(count) for place, count in found}
        # STRAIGHT_JOIN reads the table first: it has no index to probe, while the images have one
        # on the checksum.
        fenced.query(f"SAVEPOINT {_BEFORE}")
        # two of the lines are one row to the server
        if fenced.query(f"DELETE r FROM {pairs}") != sum(counts.values()):
            fenced.query(f"ROLLBACK TO SAVEPOINT {_BEFORE}")
            return None
    except (pymysql.err.MySQLError, RowRefused) as fault:
        # Any other error leaves all rows: it is of a statement before the DELETE, or of the DELETE,
        # which then had no effect.
        if is_conflict(fault) or is_connection_loss(fault):
            raise
        return None
    finally:
        # If the connection is broken, the server drops the table with it.
        with suppress(pymysql.err.MySQLError, OSError, EOFError):
            fenced.query(f"DROP TEMPORARY TABLE IF EXISTS {qualified(images)}")
    return counts


def telling_columns(work: TablePlan, lines: Sequence[bytes]) -> tuple[WireColumn, ...]:
    """Return the shortest column that tells nearly all of these lines apart, else all columns."""
    fields = zip(split_lines(lines), work.written, strict=True)
    telling = [
        (sum(map(len, texts)), column)
        for texts, column in fields
        if max(Counter(texts).values()) <= _ALIKE
    ]
    return (min(telling, key=itemgetter(0))[1],) if telling else work.written


def _checksum(telling: Sequence[WireColumn], side: str) -> str:
    """Return the expression of a checksum that is equal for equal rows."""
    # CONCAT_WS leaves NULLs out, so rows that differ only in which column is NULL share a checksum;
    # `_equal` tells them apart.
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
