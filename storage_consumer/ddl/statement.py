"""A DDL as tokens and comma-separated parts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from storage_consumer.downstream.existing_names import PartNames
from storage_consumer.model import TableColumn
from storage_consumer.sql.column_parts import NAMES
from storage_consumer.sql.tokens import Token, closing, elements, find_words

Edit = tuple[int, int, str]
"""Start (inclusive), end (exclusive), and the text that replaces what is between them."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as tokens, with its comma-separated parts."""

    found: Sequence[Token]
    collation: str | None
    """Default collation of its database on the target; None if it is unknown or the database does not exist."""
    names: PartNames | None
    """Names of its table's parts on the target; None if they were not asked for."""
    body: tuple[int, int]
    """Indexes of the parentheses around the columns of a CREATE TABLE; (-1, -1) for any other statement."""
    parts: tuple[tuple[int, int], ...]
    """Ranges [first, last): the definitions in a CREATE TABLE, the actions of an ALTER TABLE, else the whole statement."""
    text: str = ""
    """The text in the schema file, comments included."""
    table: str = ""
    """Name of the statement's table."""
    columns: tuple[TableColumn, ...] = ()
    """The table's columns after the statement, by the schema file."""
    source_collation: str = "utf8mb4_bin"
    """Default collation of its database at the source."""
    zone: str = "UTC"
    """Time zone of the session in which it will run."""


def statement_of(
    found: Sequence[Token], collation: str | None, names: PartNames | None, text: str = "", table: str = ""
) -> Statement:
    """Find the parts of a statement."""
    opening, end = _create_body(found)
    if end >= 0:
        parts = elements(found, opening, end)
    elif (first := _first_action(found)) > 0:
        # Only commas outside all parentheses separate actions.
        commas = [i for i in range(first, len(found)) if found[i].text == "," and found[i].depth == 0]
        parts = list(_ranges(first, commas, len(found)))
    else:
        parts = [(0, len(found))]
    return Statement(found, collation, names, (opening, end), tuple(parts), text, table)


def _ranges(first: int, separators: Sequence[int], end: int) -> Sequence[tuple[int, int]]:
    """Cut [first, end) at the separators, which belong to no part."""
    starts = [first, *(at + 1 for at in separators)]
    return list(zip(starts, [*separators, end], strict=True))


def _first_action(found: Sequence[Token]) -> int:
    """Return the index of the first token after the name in an ALTER TABLE, -1 for any other statement."""
    if len(found) < 3 or (found[0].upper, found[1].upper) != ("ALTER", "TABLE"):  # noqa: PLR2004 - with the table's name
        return -1
    return 5 if len(found) > 3 and found[3].text == "." else 3  # noqa: PLR2004 - a database's name and a dot more


def _create_body(found: Sequence[Token]) -> tuple[int, int]:
    if not found or found[0].upper != "CREATE" or find_words(found[:4], "TABLE") < 0:
        return -1, -1
    opening = next((i for i, t in enumerate(found) if t.kind == "symbol" and t.text == "("), -1)
    # In CREATE TABLE a (LIKE b) the parenthesis holds no columns.
    if opening < 0 or opening + 1 >= len(found) or found[opening + 1].upper == "LIKE":
        return -1, -1
    return opening, closing(found, opening)


def index_columns(part: Sequence[Token]) -> list[str]:
    """Return the columns that an index definition names directly inside its parentheses, in order."""
    opening = next((i for i, token in enumerate(part) if token.text == "(" and token.kind == "symbol"), -1)
    # A name deeper inside belongs to an expression, such as the argument of a function.
    inside = part[opening].depth + 1 if opening >= 0 else 0
    return [
        token.name
        for before, token in pairwise(part[opening:] if opening >= 0 else ())
        if token.kind in NAMES and token.depth == inside and before.text in ("(", ",")
    ]


def spans(statement: Statement, gone: frozenset[int]) -> list[tuple[int, int]]:
    """Return where the text of these parts is, each with one of the commas around it."""
    found = statement.found
    places: list[tuple[int, int]] = []
    kept_before = False
    # A part goes with the comma before it, or, as long as none before it stays, with the comma after it.
    for number, (first, last) in enumerate(statement.parts):
        if number not in gone:
            kept_before = True
        elif kept_before:
            places.append((found[first - 1].start, found[last - 1].end))
        elif last < len(found):
            places.append((found[first].start, found[last].end))
        elif first < last:
            places.append((found[first].start, found[last - 1].end))
    return places


def outermost(edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits without those inside another one, sorted by place."""
    kept: list[Edit] = []
    end = -1
    # At equal starts the longest edit comes first, so it hides the others.
    for edit in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
        if edit[0] >= end:
            kept.append(edit)
            end = max(end, edit[1])
    return kept


def emptied(statement: Statement, edits: Sequence[Edit]) -> frozenset[int]:
    """Return the parts of which these edits, none inside another, leave nothing."""
    # Tokens and edits are both sorted, so one pass over the two is enough.
    taken = iter([(start, end) for start, end, text in edits if not text and start < end])
    gone: set[int] = set()
    span = next(taken, None)
    for number, (first, last) in enumerate(statement.parts):
        left = last == first
        for token in statement.found[first:last]:
            while span is not None and span[1] <= token.start:
                span = next(taken, None)
            left = left or span is None or not span[0] <= token.start < span[1]
        gone |= set() if left else {number}
    return frozenset(gone)
