"""String literals of a DDL that would mean something else on the target than at the source. Pure.

TiCDC does not store what was typed: it parses the statement and writes it again. Three facts about strings get lost there: the
escape before a backslash in some places, the collation that a string had, and the time zone of the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from storage_consumer.ddl.statement import Edit, Statement
from storage_consumer.decode.time_zone import from_utc, occurs_twice
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn, folded_name
from storage_consumer.sql.column_parts import column_parts
from storage_consumer.sql.tokens import Token, closing, has_words

# collations


def introducers(statement: Statement) -> list[Edit]:
    """Take ``_UTF8MB4`` off the strings of expressions: it brings the target's default collation, the session's is the source's.

    A default, a partition's value or a comment that is only a string has no collation of its own; it stays.
    """
    found = statement.found
    # In a view a string may be anywhere in the SELECT.
    places = [(0, len(found))] if has_words(found, "VIEW") else list(_expressions(found))
    return [
        (token.start, token.end, "")
        for first, last in places
        for token, string in pairwise(found[first:last])
        if token.upper == "_UTF8MB4" and string.kind == "string"
    ]


def _expressions(found: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield the ranges [first, last) of a statement's expressions: of generated columns, of defaults in parentheses, of indexes."""
    end = 0
    for at in range(1, len(found)):
        before = found[at - 1]
        if at >= end and found[at].text == "(" and found[at].kind == "symbol":
            of_column = before.upper in ("AS", "DEFAULT")
            of_index = before.kind == "symbol" and before.text in ("(", ",") and before.depth <= found[at].depth
            if of_column or of_index:
                end = closing(found, at)
                yield at, end


# time zones


def timestamps(statement: Statement) -> list[Edit]:
    """Write defaults of TIMESTAMP columns in our session's time zone: the text is in an unknown session's, the schema file in UTC.

    Raise `NotReplicable` for a default in the hour that occurs twice when daylight saving time ends.
    """
    known: Mapping[str, TableColumn] = {folded_name(column.name): column for column in statement.columns}
    edits: list[Edit] = []
    for _, name, part in column_parts(statement.found, statement.parts):
        column = known.get(folded_name(name))
        literal = _default(part)
        if column is None or column.type != "TIMESTAMP" or column.default is None or literal is None:
            continue
        try:
            # What is no time in the schema file cannot be converted; then the text stays.
            right = from_utc(statement.zone, column.default)
        except ValueError:
            continue
        if occurs_twice(statement.zone, right):
            raise NotReplicable(
                f"{statement.table}: the default of {name} is {column.default} in UTC, {right} in {statement.zone}, "
                "where that hour occurs twice: the target might read it as the other one"
            )
        # An equal text stays untouched, so that most statements run as they were stored.
        if right != literal.text.strip("'"):
            edits.append((literal.start, literal.end, f"'{right}'"))
    return edits


def _default(part: Sequence[Token]) -> Token | None:
    """Return the time after DEFAULT, a string or a number, with or without an introducer before it; None if there is none."""
    for at, token in enumerate(part):
        if token.upper == "DEFAULT":
            following = [t for t in part[at + 1 : at + 3] if not t.upper.startswith("_") and t.upper != "TIMESTAMP"]
            return following[0] if following and _is_literal(following[0]) else None
    return None


def _is_literal(token: Token) -> bool:
    return token.kind == "string" or token.text.isdecimal()
