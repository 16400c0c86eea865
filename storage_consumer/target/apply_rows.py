"""Statements for many rows: bulk statements or LOAD DATA where possible, else literals.

An error names the row that the target refuses.

No row takes the place of another one. A REPLACE does where the target finds two values equal that
the source tells apart, and counts it as written. So it is used only where nothing but the row
itself can be in its place; elsewhere rows are inserted, and what is there of the rows themselves is
deleted before. A row that still finds another one in its way is *blocked*. Either that one is about
to go or to change, in another transaction or task of the same commit range, and then a second job
for the table writes the row. Or it stays (`TablePlan.is_settled`), and the table halts.

The row that is in the way is found by the server itself, whatever kind of key it is. A key over a
prefix, an expression or a column that the target computes finds rows equal by rules that only the
server knows. So it is asked: ON DUPLICATE KEY UPDATE reads the row in the way, and changes nothing
of it.

Of columns that the target computes, what it got is held against what the rows carry, which is the
source's value. An expression that is the same text on two servers may have another value: digits of
a division, letters in a newer Unicode, JSON as text.

MariaDB's bulk statements are one prepared statement and the values of many rows in one packet. They
cost the server a third less than LOAD DATA, which looks at each byte of a line to find where its
fields end. MySQL and TiDB do not have them. Their prepared statements for many rows cost more than
LOAD DATA. Format: mariadb.com/docs, COM_STMT_BULK_EXECUTE.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, groupby
from operator import itemgetter

import pymysql.err

from storage_consumer.decode.kernels.row_lines import FEW, Lines, in_one
from storage_consumer.decode.values import WireKind
from storage_consumer.decode.wire_format import LACKING, decode_field, decode_line, encode_field
from storage_consumer.driver.remedies import table_command
from storage_consumer.errors import RowRefused
from storage_consumer.model import folded_name
from storage_consumer.rows.row_keys import compares_texts
from storage_consumer.rows.spec import TablePlan, VersionPlan, WireColumn
from storage_consumer.sql.tokens import qualified, quote
from storage_consumer.target.connection import escape
from storage_consumer.target.mysql_errors import (
    content_error,
    described,
    is_check,
    is_conflict,
    is_connection_loss,
    is_duplicate,
    is_refusal,
)
from storage_consumer.target.row_statements import (
    StatementTooLarge,
    batches,
    bulk_statement,
    bulk_types,
    bulk_values,
    delete_keys,
    gaps,
    json_equals,
    key_expression,
    key_literal,
    key_places,
    literal,
    load_data,
    row_text,
    same,
    short,
    too_large,
    with_keys,
    without_error_members,
    without_gaps,
    write_rows,
)
from storage_consumer.target.session_settings import LOOSE_ROW_MODE, ROW_MODE
from storage_consumer.target.transaction import FencedConnection

Statement = Callable[[Sequence[bytes]], str]
"""Builds the statement for the lines of some rows."""
Query = Callable[[str], int]
"""Runs a statement, returns the number of matched rows; raises the driver's or a `ValueError`."""


_LEVELS = 31
"""Nesting up to which every MariaDB accepts JSON in its CHECK; the source accepts deeper values."""
_TEXT_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', re.DOTALL)
_KEY_NAME = re.compile(r" for key '(?:[^']*\.)?([^'.]*)'$")
_TELLS_ALL_APART = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
"""Collations that compare every byte: the first is MariaDB's, the second MySQL's and TiDB's."""
_MOST = 8
"""Most columns that are shown of a row without a key."""


def first_refused(
    run: Callable[[Sequence[bytes]], int], rows: Sequence[bytes]
) -> tuple[bytes, Exception] | None:
    """Return the first row that is refused on its own, and the refusal; None if there is none.

    Search by halves: keep a half that is refused, and drop one that is accepted. What the accepted
    halves wrote stays in the transaction, which the caller has to roll back anyway.
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


def write_checked(
    query: Query, work: TablePlan, rows: Sequence[bytes], statement: Statement
) -> int:
    """Write rows that may hold an ENUM's error value; return the number of matched rows.

    Strict mode refuses that value, and every other mode leaves the rest of the row unchecked. So if
    strict mode refuses the rows, first write them with a valid member instead, and take that back.
    If strict mode accepts them, all other values fit, and the rows themselves are written without
    strict mode.
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
        # On a broken connection this fails too; the retry opens a new one, which begins in this
        # mode.
        query(f"SET SESSION sql_mode = '{ROW_MODE}'")


def has_deep_json(work: TablePlan, line: bytes) -> bool:
    """Return whether a value of the row nests its JSON deeper than MariaDB finds valid."""
    fields = zip(decode_line(line), work.written, strict=True)
    return any(
        column.type == "JSON" and text is not None and _levels(text) > _LEVELS
        for text, column in fields
    )


def _levels(document: str) -> int:
    """Return how deep arrays and objects nest; 0 for what is no JSON, which the server refuses."""
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


# computed columns


class _OtherValue(ValueError):
    """Some row has one."""


def compare(fenced: FencedConnection, work: TablePlan, lines: Sequence[bytes]) -> None:
    """Raise `RowRefused` for the first written row of which the target computed another value."""
    version = str((fenced.row("SELECT VERSION()") or ("",))[0])

    def run(some: Sequence[bytes]) -> int:
        conditions = " OR ".join(
            f"({_own(work, line)} AND {_equal(work, line, version)})" for line in some
        )
        found = fenced.row(f"SELECT COUNT(*) FROM {qualified(work.name)} WHERE {conditions}") or (
            0,
        )
        # A row that is not found by its key has another value in the key.
        if int(found[0]) < len(some):
            raise _OtherValue
        return len(some)

    try:
        run(lines)
    except _OtherValue:
        if (found := first_refused(run, lines)) is None:
            return
        line, _ = found
        computed = _carried(work, line)
        names = ", ".join(quote(column.name) for column, _ in computed)
        there = fenced.row(f"SELECT {names} FROM {qualified(work.name)} WHERE {_own(work, line)}")
        values = ", ".join(
            f"{column.name} is {_told(text)} at the source and {_told(value)} in the target"
            for (column, text), value in zip(computed, there or [None] * len(computed), strict=True)
        )
        row = row_text(work, line, escape, key_only=False)
        raise RowRefused(
            f"{work.name}: the target computes a generated column of the row with {row} otherwise than the source: {values}. Have it "
            f"hold what the source has: run ALTER TABLE {qualified(work.name)} MODIFY COLUMN in the target, with the column's type and "
            "without GENERATED ALWAYS AS, then start again",
            line=line,
        ) from None


def _own(work: TablePlan, line: bytes) -> str:
    """Return the condition that a row is the one of this line."""
    texts = {
        folded_name(c.name): text for c, text in zip(work.written, decode_line(line), strict=True)
    }
    return " AND ".join(
        f"{key_expression(part)} = {key_literal(texts[folded_name(part.column.name)], part, escape)}"
        for part in work.key
    )


def _equal(work: TablePlan, line: bytes, version: str) -> str:
    """Return the condition that the computed columns of a row hold what the line has."""
    return (
        " AND ".join(
            same(text, column, escape, json_equals(version))
            for column, text in _carried(work, line)
        )
        or "TRUE"
    )


def _carried(work: TablePlan, line: bytes) -> list[tuple[WireColumn, str | None]]:
    """Return the computed columns of which a row has a value, and that value."""
    fields = zip(work.written, line.split(b"\t"), strict=True)
    return [
        (column, decode_field(field))
        for column, field in fields
        if column.is_computed and field != LACKING
    ]


def _told(value: object) -> str:
    return "NULL" if value is None else repr(str(value))[:60]


# a row in the way


class RowInTheWay:
    """The row that blocks another row in the running transaction of a fenced connection."""

    def __init__(self, fenced: FencedConnection, work: TablePlan, line: bytes) -> None:
        """Find the row that is in the way of the one of `line`."""
        self._fenced, self._work, self._line = fenced, work, line
        # Without a key it is found by all that it holds, but JSON, which no variable holds as such.
        self._columns = [part.column.name for part in work.key] or [
            c.name for c in work.written if c.type != "JSON"
        ]
        self._names = [f"@sc_{place}" for place in range(len(self._columns))]
        pairs = zip(self._names, self._columns, strict=True)
        # As numbers, since texts of several character sets do not mix, and none that a server knows
        # without a look: it would set nothing.
        read = [f"COALESCE(LENGTH({name} := {quote(column)}), 0)" for name, column in pairs]
        narrow, lines = without_gaps(work, gaps(work, line), [line])
        first = quote(narrow.written[0].name)
        look = f"IF((@sc_same := {self._same_by()}) + {' + '.join(read)} < 0, {first}, {first})"

        def statement(rows: Sequence[bytes]) -> str:
            # One that was only tried may have found another row.
            fenced.query(
                f"SET @sc_same = NULL, {', '.join(f'{name} = NULL' for name in self._names)}"
            )
            return f"{write_rows('INSERT', narrow, rows, escape)} ON DUPLICATE KEY UPDATE {first} = {look}"

        query = partial(write_checked, fenced.query, narrow, lines, statement)
        # MariaDB's CHECKs on JSON must not hide what is in the way.
        without_checks(fenced.query, query) if fenced.live().has_bulk and has_deep_json(
            work, line
        ) else query()
        (same,) = fenced.row("SELECT @sc_same") or (None,)
        self.is_gone = same is None
        """Whether there is none any more; then the row is written by now."""
        self.is_same = bool(same)
        """Whether it is the row itself: equal in all bytes of its key or, without one, of any
        unique key.
        """

    def _same_by(self) -> str:
        """Return the condition for `is_same`, which is never NULL."""
        work = self._work
        keys = [[part.column.name for part in work.key]]
        if not work.key:
            # By the unique keys, as far as they are known.
            newest: VersionPlan = max(work.versions.items())[1]
            keys = [[newest.layout.columns[place].name for place in key] for key in newest.unique]
        same = [
            " AND ".join(
                f"CAST({c} AS BINARY) = CAST(VALUES({c}) AS BINARY)" for c in map(quote, key)
            )
            for key in keys
        ]
        return f"COALESCE({' OR '.join(f'({each})' for each in same)}, 0)" if same else "0"

    @property
    def _found(self) -> str:
        """The condition that a row is the one in the way."""
        return " AND ".join(
            f"{quote(column)} <=> {name}"
            for column, name in zip(self._columns, self._names, strict=True)
        )

    def key_line(self) -> bytes:
        """Return its key as a line of key columns."""
        values = [
            f"HEX({quote(part.column.name)})"
            if part.column.kind is WireKind.HEX
            else f"CONVERT({quote(part.column.name)}{' + 0' if part.column.kind is WireKind.UNSIGNED else ''} USING utf8mb4)"
            for part in self._work.key
        ]
        row = self._fenced.row(
            f"SELECT {', '.join(values)} FROM {qualified(self._work.name)} WHERE {self._found}"
        )
        return b"\t".join(
            encode_field(None if value is None else str(value)) for value in row or ()
        )

    def delete(self) -> int:
        """Delete it."""
        return self._fenced.query(
            f"DELETE FROM {qualified(self._work.name)} WHERE {self._found} LIMIT 1"
        )

    def error(self, fault: BaseException) -> RowRefused:
        """Return why the row is not written, naming both rows; `fault`: the server's answer."""
        work, found = self._work, _KEY_NAME.search(str(fault.args[-1]))
        index = found[1] if found else ""
        place = f"'{escape(self._work.name.schema)}' AND {{}}.table_name = '{escape(self._work.name.table)}'"
        rows = self._fenced.rows(
            "SELECT s.column_name, COALESCE(c.collation_name, '') FROM information_schema.statistics s JOIN information_schema.columns c "
            "ON c.table_schema = s.table_schema AND c.table_name = s.table_name AND c.column_name = s.column_name "
            f"WHERE s.table_schema = {place.format('s')} AND s.index_name = '{escape(index)}' ORDER BY s.seq_in_index"
        )
        parts = [(str(name), str(collation)) for name, collation in rows]
        written = {
            folded_name(column.name): short(literal(text, column, escape))
            for column, text in zip(work.written, decode_line(self._line), strict=True)
        }
        shown = [*dict.fromkeys([*self._columns[:_MOST], *(name for name, _ in parts)])]
        listed = ", ".join(map(quote, shown))
        row = self._fenced.row(f"SELECT {listed} FROM {qualified(work.name)} WHERE {self._found}")
        there = (
            {}
            if row is None
            else {name: _shown(value) for name, value in zip(shown, row, strict=True)}
        )
        here = row_text(work, self._line, escape, key_only=False)
        beside = ", ".join(f"{name} = {there.get(name, '?')}" for name in self._columns[:_MOST])
        values = "; ".join(
            f"{name} is {written.get(folded_name(name), 'computed by the target')} in the one and {there.get(name, '?')} in the other"
            + (f", and its collation {collation} finds them equal" if collation else "")
            for name, collation in parts
        )
        return RowRefused(
            f"{work.name}: the row with {here} was not written, for the target holds the row with {beside}, and its unique key "
            f"{index or '(unknown)'} allows only one of the two{': ' if values else ''}{values}. The source tells them apart, and removes neither. "
            f"{self._way_on(index, has_texts=any(collation for _, collation in parts))}",
            line=self._line,
        )

    def _way_on(self, index: str, *, has_texts: bool) -> str:
        """Return the next steps."""
        work, downstream, table = (
            self._work,
            self._fenced.spec.downstream,
            qualified(self._work.name),
        )
        accept, resume = (
            table_command(verb, work.name, downstream) for verb in ("accept-keys", "resume")
        )
        names = ", ".join(f"'{name}'" for name in _TELLS_ALL_APART)
        can = self._fenced.row(
            f"SELECT collation_name FROM information_schema.collations WHERE collation_name IN ({names})"
        )
        is_tidb = "TiDB" in str((self._fenced.row("SELECT VERSION()") or ("",))[0])
        ways = [f"if somebody else wrote the row that is there, delete it, and run: {resume}"]
        if has_texts and can and not is_tidb:
            change = f"ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4 COLLATE {can[0]}"
            ways.append(f"else let the target tell them apart: {change} -- then: {accept}")
        elif index and index != "PRIMARY":
            ways.append(
                f"else give up the key in the target: ALTER TABLE {table} DROP INDEX {quote(index)} -- then: {resume}"
            )
        else:
            ways.append(
                "else this target cannot hold the table: a TiDB has to compare texts as the source does (new_collations_enabled_on_first_bootstrap "
                "in its configuration, which counts when it is first started); or change the key at the source"
            )
        return "Next steps: " + " -- ".join(ways)


def _shown(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return short(f"x'{value.hex()}'")
    return short(f"'{escape(value)}'" if isinstance(value, str) else str(value))


TRANSACTION_ROWS = 10_000
TRANSACTION_SIZE = 8 << 20
"""Bytes of row text."""
STATEMENT_ROWS = 1_000
_BULK_HEAD = 1 << 10
"""Upper bound of the bytes before the values, without the types."""
_MANY = 100
"""Fewest rows for which a bulk statement repays its preparation."""


Settle = Callable[[bytes, BaseException], object]
"""Decides about a row that another one blocks; takes its line and the server's answer."""
GivesWay = Callable[[TablePlan, bytes], bool]
"""Returns whether an unexplained row of the target may be deleted; takes the line of its key."""


class _Taken(RowRefused):
    """A row shares a unique key with another one, so nothing was written."""


class RowStatements:
    """Writes and deletes rows within the running transaction of a fenced connection."""

    def __init__(self, fenced: FencedConnection) -> None:
        """Write through `fenced`."""
        self.fenced = fenced
        self._load_data = fenced.spec.load_data
        self._max_packet = fenced.spec.max_packet
        # Literals can be longer than the lines they come from: leave room for them in a packet.
        self._statement_size = min(TRANSACTION_SIZE, self._max_packet // 8)

    def delete(self, work: TablePlan, rows: Sequence[bytes], *, exact: bool = False) -> int:
        """Delete keys that may not exist; return how many rows did. `exact`: see `delete_keys`."""
        return sum(
            self._write(
                work, batch, partial(delete_keys, work, escape=escape, exact=exact), key_only=True
            )
            for batch in batches(rows, STATEMENT_ROWS, self._statement_size)
        )

    def put(
        self,
        work: TablePlan,
        born: Sequence[bytes],
        others: Sequence[bytes],
        *,
        is_settled: bool,
        gives_way: GivesWay = lambda _work, _key: False,
    ) -> int:
        """Write rows that came into being (`born`) and changed rows; return how many are blocked.

        With `is_settled`, raise `RowRefused` for a blocked row, unless the row in its way
        `gives_way`.
        """
        settle_now = partial(self._settle, work, gives_way)
        if not work.has_other_unique_keys:
            self._add(work, born, settle_now)
            # Before the commit range the target held no other spelling of these keys: at most the
            # one that they replace.
            for batch in batches(others, TRANSACTION_ROWS, TRANSACTION_SIZE):
                self._put("REPLACE", work, batch)
            return 0
        blocked: list[bytes] = []

        def settle(row: bytes, fault: BaseException) -> None:
            # All rows with this key in any spelling are this task's, so no other task's row makes
            # room.
            if is_settled or self._has_another_spelling(work, row):
                settle_now(row, fault)
            else:
                blocked.append(row)

        self._delete_own(work, others, exact=False)
        self._add(work, born, settle)
        # Not as those: a row that came into being may now have the key in another spelling and
        # stays.
        if len(others) and not self._fits(work, others):
            self._insert_each(work, others, settle)
        return len(blocked)

    def put_in_turn(self, work: TablePlan, rows: Sequence[bytes]) -> None:
        """Write keyless rows, each replacing the row with the same bytes in a unique key."""

        def settle(row: bytes, fault: BaseException) -> None:
            there = RowInTheWay(self.fenced, work, row)
            # One row may go, which is the one that this update changed.
            if not (
                there.is_gone or (there.is_same and there.delete() and self._fits(work, [row]))
            ):
                raise there.error(fault)

        self._insert_each(work, rows, settle)

    def insert(self, work: TablePlan, rows: Sequence[bytes]) -> None:
        """Add rows; raise `_Taken` and add none if one shares a unique key with another."""
        try:
            for batch in batches(rows, TRANSACTION_ROWS, TRANSACTION_SIZE):
                self._put("INSERT", work, batch)
        except _Taken:
            # TiDB gives up the locks of a failed statement in the background, and those of the next
            # one with them, unless a locking read has taken a new timestamp since: then the commit
            # fails.
            self.fenced.check_slot()
            raise

    def _add(self, work: TablePlan, rows: Sequence[bytes], settle: Settle) -> None:
        """Insert new rows, or replace their own copies; call `settle` for each blocked one."""
        if not len(rows) or self._fits(work, rows):
            return
        # They are there if the same was written before, by a process that was killed.
        self._delete_own(work, rows, exact=True)
        self._insert_each(work, rows, settle)

    def _insert_each(self, work: TablePlan, rows: Sequence[bytes], settle: Settle) -> None:
        """Insert rows in order; call `settle` with the server's answer for each blocked row."""
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
        """Insert rows; return False and insert none if one shares a unique key with another."""
        try:
            self.insert(work, rows)
        except _Taken:
            return False
        return True

    def _settle(
        self, work: TablePlan, gives_way: GivesWay, row: bytes, fault: BaseException
    ) -> None:
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
        """Return whether a row of the target has an equal key with other bytes."""
        places = key_places(work) if compares_texts(work.key) else None
        if places is None:
            return False
        key = [_picked(row, places)]
        equal, same = (with_keys(work, key, escape, exact=exact) for exact in (False, True))
        (others,) = self.fenced.row(
            f"SELECT (SELECT COUNT(*) {equal}) - (SELECT COUNT(*) {same})"
        ) or (0,)
        return bool(others)

    def _delete_own(self, work: TablePlan, rows: Sequence[bytes], *, exact: bool) -> None:
        """Delete what the target holds of rows.

        Where it computes a part of their key, a copy is found only when it blocks its own row.
        """
        places = key_places(work)
        if places is not None and len(rows):
            self.delete(work, [_picked(line, places) for line in rows], exact=exact)

    def _put(self, verb: str, work: TablePlan, rows: Sequence[bytes]) -> None:
        """Write rows by their own columns; the others get the defaults of the target's table.

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
        """Write rows by bulk statement or LOAD DATA if that raises no warning, else by literals."""
        # The cheapest way first. Whatever one of them cannot take unchanged goes to the next;
        # literals take everything or say why not.
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

    def _write(
        self,
        work: TablePlan,
        rows: Sequence[bytes],
        statement: Statement,
        *,
        key_only: bool = False,
    ) -> int:
        """Run one statement for many rows; raise `RowRefused` for the first one refused alone."""

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
            deep = (
                []
                if key_only or not is_check(fault)
                else [has_deep_json(work, row) for row in rows]
            )
            if any(deep):
                return self._write_apart(work, rows, deep, statement)
            self.fenced.query("SAVEPOINT before_search")
            # Each row may be accepted alone though all together are not: then the message names
            # none.
            row, why = first_refused(run, rows) or (b"", fault)
            # TiDB checks the values of all rows first, so a row before the refused one may share a
            # key.
            if is_duplicate(why):
                self.fenced.query("ROLLBACK TO SAVEPOINT before_search")
                raise _Taken(f"{work.name}: {described(why)}") from why
        raise self.refusal(work, row, why, key_only=key_only) from why

    def _write_apart(
        self, work: TablePlan, rows: Sequence[bytes], deep: Sequence[bool], statement: Statement
    ) -> int:
        """Write rows in order, `deep` ones without MariaDB's CHECKs on JSON: `has_deep_json`."""
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

    def refusal(
        self, work: TablePlan, row: bytes, why: Exception, *, key_only: bool = False
    ) -> RowRefused:
        """Return the error with the row's key (`rows` if `row` is empty), reason and remedy."""
        which = f"the row with {row_text(work, row, escape, key_only=key_only)}" if row else "rows"
        remedy = (
            ""
            if isinstance(why, StatementTooLarge)
            else ". Make the target's table fit what the source holds"
        )
        return RowRefused(
            f"{work.name}: the target refused {which}: {described(why)}{remedy}, then start again",
            line=row,
            content_error=content_error(why) if row and not key_only else 0,
        )

    def sized(self, sql: str) -> int:
        """Run a statement; raise `StatementTooLarge` if the server would disconnect over it."""
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
        # The server closes the connection over a packet that is too large, so such rows go another
        # way.
        if values is None or _BULK_HEAD + len(types) + len(values) >= self._max_packet:
            return False
        return self._taken(
            len(rows), lambda: connection.bulk(bulk_statement(work, verb), types, values)
        )

    def _load(self, verb: str, work: TablePlan, rows: Sequence[bytes]) -> bool:
        """Write rows by LOAD DATA; return False if forbidden, lossy for a row, or undone."""
        if not self._load_data or self.fenced.live().load_drops_rows():
            return False
        most, connection = self._max_packet // 2, self.fenced.live()
        return self._taken(
            len(rows), lambda: connection.load(load_data(work, verb), in_one(rows), most=most)
        )

    def _taken(self, rows: int, run: Callable[[], tuple[int, int]]) -> bool:
        """Run a statement for `rows` rows that returns (affected rows, warnings); False if undone.

        Some servers treat LOCAL like IGNORE and turn errors into warnings. So any warning undoes
        the statement, and so do fewer rows than were sent. The same rows as literals then either go
        in unchanged or raise the error that names the row and the column.
        """
        self.fenced.query("SAVEPOINT before_rows")
        try:
            affected, warnings = run()
        except pymysql.err.MySQLError as fault:
            # A deadlock rolls back the whole transaction with its savepoint: only a retry of all
            # helps.
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
    """Return whether bulk statements pay for `rows` rows.

    It takes more rows until this process has imported the compiler.
    """
    return rows >= (_MANY if "numba" in sys.modules else FEW)
