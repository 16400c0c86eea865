"""Columns that the target computes: what it got is held against what the rows carry, which is the source's value.

An expression that is the same text on two servers may have another value: digits of a division, letters in a newer Unicode, JSON as text.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage_consumer.apply.refused_rows import first_refused
from storage_consumer.apply.statements import json_equals, key_expression, key_literal, row_text, same
from storage_consumer.apply.transaction import FencedConnection
from storage_consumer.decode.wire_format import LACKING, decode_field, decode_line
from storage_consumer.downstream.connection import escape
from storage_consumer.errors import RowRefused
from storage_consumer.job.spec import TablePlan, WireColumn
from storage_consumer.model import folded_name
from storage_consumer.sql.tokens import qualified, quote


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
        f"{column.name} is {_shown(text)} at the source and {_shown(value)} in the target"
        for (column, text), value in zip(computed, there or [None] * len(computed), strict=True)
    )
    row = row_text(work, line, escape, key_only=False)
    return RowRefused(
        f"{work.name}: the target computes a generated column of the row with {row} otherwise than the source: {told}. Have it "
        f"hold what the source has: run ALTER TABLE {qualified(work.name)} MODIFY COLUMN in the target, with the column's type and "
        "without GENERATED ALWAYS AS, then start again",
        line=line,
    )


def _shown(value: object) -> str:
    return "NULL" if value is None else repr(str(value))[:60]
