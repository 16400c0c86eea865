"""What to do when the target refuses rows, holds another value than they have, or finds another row in the way of one.

* A statement for many rows is refused: find the row, or write what strict mode rejects.
* Columns that the target computes: what it got is held against what the rows carry, which is the source's value. An expression that is the
  same text on two servers may have another value: digits of a division, letters in a newer Unicode, JSON as text.
* The row of the target that another row cannot be written beside is found by the server itself, whatever kind of key it is. A key over a
  prefix, an expression or a column that the target computes finds rows equal by rules that only the server knows. So it is asked: ON
  DUPLICATE KEY UPDATE reads the row in the way, and changes nothing of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate

import pymysql.err

from storage_consumer.apply.statements import (
    gaps,
    json_equals,
    key_expression,
    key_literal,
    literal,
    row_text,
    same,
    without_error_members,
    without_gaps,
    write_rows,
)
from storage_consumer.apply.transaction import FencedConnection
from storage_consumer.decode.values import WireKind
from storage_consumer.decode.wire_format import LACKING, decode_field, decode_line, encode_field
from storage_consumer.downstream.connection import escape
from storage_consumer.downstream.mysql_errors import is_refusal
from storage_consumer.downstream.session import LOOSE_ROW_MODE, ROW_MODE
from storage_consumer.driver.remedies import table_command
from storage_consumer.errors import RowRefused
from storage_consumer.job.spec import TablePlan, VersionPlan, WireColumn
from storage_consumer.model import folded_name
from storage_consumer.sql.tokens import qualified, quote

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
_KEY_NAME = re.compile(r" for key '(?:[^']*\.)?([^'.]*)'$")
_TELLS_ALL_APART = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
"""Collations that compare every byte, of which MariaDB has the first one, and MySQL and TiDB the second one."""
_MOST, _LONGEST = 8, 60
"""Most columns that are shown of a row without a key, and most characters of a value."""


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


# computed columns


class _OtherValue(ValueError):
    """Some row has one."""


def compare(fenced: FencedConnection, work: TablePlan, lines: Sequence[bytes]) -> None:
    """Raise `RowRefused` for the first of these rows, all just written, of which the target computed another value than the source."""
    version = str((fenced.row("SELECT VERSION()") or ("",))[0])

    def run(some: Sequence[bytes]) -> int:
        conditions = " OR ".join(f"({_own(work, line)} AND {_equal(work, line, version)})" for line in some)
        found = fenced.row(f"SELECT COUNT(*) FROM {qualified(work.name)} WHERE {conditions}") or (0,)
        # A row that is not found by its key has another value in the key.
        if int(found[0]) < len(some):
            raise _OtherValue
        return len(some)

    try:
        run(lines)
    except _OtherValue:
        if found := first_refused(run, lines):
            raise _error(fenced, work, found[0]) from None


def _own(work: TablePlan, line: bytes) -> str:
    """Return the condition that a row is the one of this line."""
    texts = {folded_name(c.name): text for c, text in zip(work.written, decode_line(line), strict=True)}
    return " AND ".join(
        f"{key_expression(part)} = {key_literal(texts[folded_name(part.column.name)], part, escape)}"
        for part in work.key
    )


def _equal(work: TablePlan, line: bytes, version: str) -> str:
    """Return the condition that the computed columns of a row hold what the line has."""
    return (
        " AND ".join(same(text, column, escape, json_equals(version)) for column, text in _carried(work, line))
        or "TRUE"
    )


def _carried(work: TablePlan, line: bytes) -> list[tuple[WireColumn, str | None]]:
    """Return the computed columns of which a row has a value, and that value."""
    fields = zip(work.written, line.split(b"\t"), strict=True)
    return [(column, decode_field(field)) for column, field in fields if column.is_computed and field != LACKING]


def _error(fenced: FencedConnection, work: TablePlan, line: bytes) -> RowRefused:
    """Return the error that names the row, both values, and the way on."""
    computed = _carried(work, line)
    names = ", ".join(quote(column.name) for column, _ in computed)
    there = fenced.row(f"SELECT {names} FROM {qualified(work.name)} WHERE {_own(work, line)}")
    told = ", ".join(
        f"{column.name} is {_told(text)} at the source and {_told(value)} in the target"
        for (column, text), value in zip(computed, there or [None] * len(computed), strict=True)
    )
    row = row_text(work, line, escape, key_only=False)
    return RowRefused(
        f"{work.name}: the target computes a generated column of the row with {row} otherwise than the source: {told}. Have it "
        f"hold what the source has: run ALTER TABLE {qualified(work.name)} MODIFY COLUMN in the target, with the column's type and "
        "without GENERATED ALWAYS AS, then start again",
        line=line,
    )


def _told(value: object) -> str:
    return "NULL" if value is None else repr(str(value))[:60]


# a row in the way


class RowInTheWay:
    """The row that is in the way of a row within the running transaction of a fenced connection; none may be."""

    def __init__(self, fenced: FencedConnection, work: TablePlan, line: bytes) -> None:
        """Find the row that is in the way of the one of `line`."""
        self._fenced, self._work, self._line = fenced, work, line
        # Without a key it is found by all that it holds, but JSON, which no variable holds as such.
        self._columns = [part.column.name for part in work.key] or [c.name for c in work.written if c.type != "JSON"]
        self._names = [f"@sc_{place}" for place in range(len(self._columns))]
        pairs = zip(self._names, self._columns, strict=True)
        # As numbers, since texts of several character sets do not mix, and none that a server knows without a look: it would set nothing.
        read = [f"COALESCE(LENGTH({name} := {quote(column)}), 0)" for name, column in pairs]
        narrow, lines = without_gaps(work, gaps(work, line), [line])
        first = quote(narrow.written[0].name)
        look = f"IF((@sc_same := {self._same_by()}) + {' + '.join(read)} < 0, {first}, {first})"

        def statement(rows: Sequence[bytes]) -> str:
            # One that was only tried may have found another row.
            fenced.query(f"SET @sc_same = NULL, {', '.join(f'{name} = NULL' for name in self._names)}")
            return f"{write_rows('INSERT', narrow, rows, escape)} ON DUPLICATE KEY UPDATE {first} = {look}"

        query = partial(write_checked, fenced.query, narrow, lines, statement)
        # MariaDB's CHECKs on JSON must not hide what is in the way.
        without_checks(fenced.query, query) if fenced.live().has_bulk and has_deep_json(work, line) else query()
        (same,) = fenced.row("SELECT @sc_same") or (None,)
        self.is_gone = same is None
        """Whether there is none any more; then the row is written by now."""
        self.is_same = bool(same)
        """Whether it is the row itself, by its key to the last byte; without a key, by any unique key."""

    def _same_by(self) -> str:
        """Return the condition for `is_same`, which is never NULL."""
        work = self._work
        keys = [[part.column.name for part in work.key]] if work.key else _unique_columns(work)
        same = [
            " AND ".join(f"CAST({c} AS BINARY) = CAST(VALUES({c}) AS BINARY)" for c in map(quote, key)) for key in keys
        ]
        return f"COALESCE({' OR '.join(f'({each})' for each in same)}, 0)" if same else "0"

    @property
    def _found(self) -> str:
        """The condition that a row is the one in the way."""
        return " AND ".join(
            f"{quote(column)} <=> {name}" for column, name in zip(self._columns, self._names, strict=True)
        )

    def key_line(self) -> bytes:
        """Return its key as a line of key columns."""
        values = [
            f"HEX({quote(part.column.name)})"
            if part.column.kind is WireKind.HEX
            else f"CONVERT({quote(part.column.name)}{' + 0' if part.column.kind is WireKind.UNSIGNED else ''} USING utf8mb4)"
            for part in self._work.key
        ]
        row = self._fenced.row(f"SELECT {', '.join(values)} FROM {qualified(self._work.name)} WHERE {self._found}")
        return b"\t".join(encode_field(None if value is None else str(value)) for value in row or ())

    def delete(self) -> int:
        """Delete it."""
        return self._fenced.query(f"DELETE FROM {qualified(self._work.name)} WHERE {self._found} LIMIT 1")

    def error(self, fault: BaseException) -> RowRefused:
        """Return why the row is not written, naming both rows, and the next step. `fault`: what the server answered to the row."""
        work, found = self._work, _KEY_NAME.search(str(fault.args[-1]))
        index = found[1] if found else ""
        parts = self._parts_of(index)
        written = {
            folded_name(column.name): _short(literal(text, column, escape))
            for column, text in zip(work.written, decode_line(self._line), strict=True)
        }
        there = self._values([*dict.fromkeys([*self._columns[:_MOST], *(name for name, _ in parts)])])
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

    def _parts_of(self, index: str) -> list[tuple[str, str]]:
        """Return the columns of an index with their collations, which are empty for other types."""
        place = f"'{escape(self._work.name.schema)}' AND {{}}.table_name = '{escape(self._work.name.table)}'"
        rows = self._fenced.rows(
            "SELECT s.column_name, COALESCE(c.collation_name, '') FROM information_schema.statistics s JOIN information_schema.columns c "
            "ON c.table_schema = s.table_schema AND c.table_name = s.table_name AND c.column_name = s.column_name "
            f"WHERE s.table_schema = {place.format('s')} AND s.index_name = '{escape(index)}' ORDER BY s.seq_in_index"
        )
        return [(str(name), str(collation)) for name, collation in rows]

    def _values(self, columns: Sequence[str]) -> dict[str, str]:
        """Return some of its columns for people, by name."""
        listed = ", ".join(map(quote, columns))
        row = self._fenced.row(f"SELECT {listed} FROM {qualified(self._work.name)} WHERE {self._found}")
        return {} if row is None else {name: _shown(value) for name, value in zip(columns, row, strict=True)}

    def _way_on(self, index: str, *, has_texts: bool) -> str:
        """Return the next steps."""
        work, downstream, table = self._work, self._fenced.spec.downstream, qualified(self._work.name)
        accept, resume = (table_command(verb, work.name, downstream) for verb in ("accept-keys", "resume"))
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


def _unique_columns(work: TablePlan) -> list[list[str]]:
    """Return the columns of each unique key of a table without a key, as far as they are known."""
    newest: VersionPlan = max(work.versions.items())[1]
    return [[newest.layout.columns[place].name for place in key] for key in newest.unique]


def _shown(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return _short(f"x'{value.hex()}'")
    return _short(f"'{escape(value)}'" if isinstance(value, str) else str(value))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
