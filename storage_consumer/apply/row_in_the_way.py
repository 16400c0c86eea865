"""The row of the target that another row cannot be written beside: found by the server itself, whatever kind of key it is, and described.

A key over a prefix, an expression or a column that the target computes finds rows equal by rules that only the server knows. So it is
asked: ON DUPLICATE KEY UPDATE reads the row in the way, and changes nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from storage_consumer.apply.refused_rows import has_deep_json, without_checks, write_checked
from storage_consumer.apply.statements import gaps, literal, row_text, without_gaps, write_rows
from storage_consumer.apply.transaction import FencedConnection
from storage_consumer.decode.values import WireKind
from storage_consumer.decode.wire_format import decode_line, encode_field
from storage_consumer.downstream.connection import escape
from storage_consumer.driver.remedies import table_command
from storage_consumer.errors import RowRefused
from storage_consumer.job.spec import TablePlan, VersionPlan
from storage_consumer.model import folded_name
from storage_consumer.sql.tokens import qualified, quote

_KEY_NAME = re.compile(r" for key '(?:[^']*\.)?([^'.]*)'$")
_TELLS_ALL_APART = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
"""Collations that compare every byte, of which MariaDB has the first one, and MySQL and TiDB the second one."""


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


_MOST, _LONGEST = 8, 60
"""Most columns that are shown of a row without a key, and most characters of a value."""


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
