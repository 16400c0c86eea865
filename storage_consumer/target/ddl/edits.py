"""A statement on its way to a target, and edits of its parts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from storage_consumer.model import TableColumn
from storage_consumer.sql.statement import Column, Edit, Statement
from storage_consumer.sql.tokens import NAMES, Token, find_words
from storage_consumer.target.existing_names import PartNames


@dataclass(frozen=True, kw_only=True)
class Targeted(Statement):
    """A statement with what is known of its table, here and at the source."""

    collation: str | None = None
    """Default collation of its database on the target; None if unknown or without a database."""
    names: PartNames | None = None
    """Names of its table's parts on the target; None if they were not asked for."""
    table: str = ""
    """Name of the statement's table."""
    stored: Sequence[TableColumn] = ()
    """The table's columns after the statement, by the schema file."""
    source_collation: str = "utf8mb4_bin"
    """Default collation of its database at the source."""
    zone: str = "UTC"
    """Time zone of the session in which it will run."""

    @property
    def there(self) -> PartNames:
        """The names of its table's parts on the target, as far as they are known."""
        return self.names or PartNames()

    def without(self, places: Iterable[tuple[int, int]]) -> Iterator[Edit]:
        """Yield the edits that take away what is at these places [first, last)."""
        return (self.edit(*place) for place in places)

    @property
    def creates(self) -> bool:
        """Whether it is a CREATE TABLE with columns."""
        return self.body[1] >= 0


def index_columns(part: Sequence[Token]) -> list[str]:
    """Return the columns directly inside an index definition's parentheses, in order."""
    opening = find_words(part, "(")
    # A name deeper inside belongs to an expression, such as the argument of a function.
    inside = part[opening].depth + 1 if opening >= 0 else 0
    return [
        token.name
        for before, token in pairwise(part[opening:] if opening >= 0 else ())
        if token.kind in NAMES and token.depth == inside and before.text in ("(", ",")
    ]


def spans(statement: Statement, gone: frozenset[int]) -> Iterator[Edit]:
    """Yield the edits that take these parts away, each with one of the commas around it."""
    found = statement.tokens
    kept_before = False
    # A part goes with the comma before it or, while none before it stays, after it.
    for number, (first, last) in enumerate(statement.parts):
        if number not in gone:
            kept_before = True
        elif kept_before:
            yield statement.edit(first - 1, last)
        elif first < last or last < len(found):
            yield statement.edit(first, min(last + 1, len(found)))


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
        for token in statement.tokens[first:last]:
            while span is not None and span[1] <= token.start:
                span = next(taken, None)
            left = left or span is None or not span[0] <= token.start < span[1]
        gone |= set() if left else {number}
    return frozenset(gone)


Rule = Callable[[Targeted], Iterable[Edit]]


def everywhere(grammar: str, text: str = "") -> Rule:
    """Return the rule that replaces each phrase of a grammar by a text; see `Statement.find`."""
    return lambda statement: [
        statement.edit(first, last, text) for first, last in statement.find(grammar)
    ]


def in_columns(grammar: str) -> Rule:
    """Return the rule that takes each such phrase out of what follows a column's type."""
    return lambda statement: [
        statement.edit(first, last)
        for column in statement.columns
        for first, last in in_column(statement, column, grammar)
    ]


def in_column(
    statement: Statement, column: Column, grammar: str, start: int = 2
) -> list[tuple[int, int]]:
    """Return places of such phrases in a column's definition from `start`, outside parentheses."""
    end = column.first + len(column.tokens)
    return statement.find(grammar, column.first + start, end, column.tokens[0].depth)
