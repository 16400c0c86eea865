"""A statement in the form that the other rules expect. Pure.

TiCDC writes some backslashes without an escape before them. TiDB's grammar is wider than MySQL's: the options of a column come in any
order, ADD COLUMN takes a list with indexes in it, and its parser writes IF EXISTS into comments of its own. What all servers read alike
stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from storage_consumer.sql.statement import INDEX_WORDS, Column, Edit, Statement, column_at, statement_of
from storage_consumer.sql.tokens import Piece, Token, elements, find_words, has_words, pieces, replace_spans
from storage_consumer.target.ddl.edits import in_column

_MEMBERS = ("ENUM", "SET")
_INDEXES = (*INDEX_WORDS, "UNIQUE", "PRIMARY", "FULLTEXT", "CONSTRAINT")
_VIEWS = frozenset(("VIEW", "OR", "ALGORITHM", "DEFINER", "SQL"))
"""What follows CREATE for a view: its SELECT has no comments, but may have columns of that name."""
_LONGEST = 8
"""Tokens that are enough to say what a part of a statement is: ALTER TABLE, a name with its database, ADD, and the kind of index."""


def escaped(query: str) -> str:
    """Return the statement with an escape before each backslash that TiCDC wrote as it is.

    TiCDC escapes them in defaults, expressions, partitions' values and columns' comments, but neither in the comments of tables,
    partitions and indexes nor in the members of ENUM and SET. Its keywords are upper case: text that begins otherwise is not
    its own and stays as it is.
    """
    if "\\" not in query:
        return query
    before, raw = _Before(query), set[int]()

    # `pieces` asks when a string begins: where it ends depends on whether a backslash before a quote escapes that.
    def is_raw(found: Sequence[Piece]) -> bool:
        if before.makes_raw(found):
            raw.add(found[-1][2])
        return bool(found) and found[-1][2] in raw

    return "".join(
        query[start:end].replace("\\", "\\\\") if start in raw and kind == "string" else query[start:end]
        for kind, start, end in pieces(query, is_raw)
    )


@dataclass(slots=True)
class _Before:
    """What the tokens up to a place say about a string there; each token is looked at only once."""

    query: str
    seen: int = 0
    """How many pieces were looked at."""
    found: list[Token] = field(default_factory=list)
    openings: list[int] = field(default_factory=list)
    """Indexes of the open parentheses."""
    firsts: list[int] = field(default_factory=lambda: [0])
    """Index of the current part's first token, for each open parenthesis and, before these, for none."""

    def _add(self, kind: str, start: int, end: int) -> None:
        """Add one token."""
        text = self.query[start:end]
        if kind == "symbol" and text == ")" and self.openings:
            self.openings.pop()
            self.firsts.pop()
        upper = text.upper() if kind in ("word", "symbol") else ""
        self.found.append(Token(kind, text, start, end, len(self.openings), upper))
        if kind == "symbol" and text == "(":
            self.openings.append(len(self.found) - 1)
            self.firsts.append(len(self.found))
        elif kind == "symbol" and text == ",":
            self.firsts[-1] = len(self.found)

    def makes_raw(self, before: Sequence[Piece]) -> bool:
        """Return whether backslashes in a string that comes next stand for themselves."""
        for piece in before[self.seen :]:
            if piece[0] not in ("space", "comment"):
                self._add(*piece)
        self.seen = len(before)
        found = self.found
        # TiCDC writes keywords in upper case; any other text was not written by its parser and escapes as it should.
        if len(found) < 2 or not found[0].text.isupper():  # noqa: PLR2004 - a word and what follows it
            return False
        if found[0].upper == "CREATE" and found[1].upper in _VIEWS:
            return False
        # Without an equals sign it is the comment of a column, which is escaped, or of an index, which is not.
        if found[-1].upper == "COMMENT":
            return self._defines_index()
        # With one it is the comment of a table or a partition.
        return (found[-2].upper, found[-1].text) == ("COMMENT", "=") or self._is_member()

    def _is_member(self) -> bool:
        """Return whether the string is a member of an ENUM or SET."""
        if self.found[-1].text not in ("(", ",") or not self.openings:
            return False
        opening = self.openings[-1]
        return (
            # A column's name stands before its type; a clause that begins with SET has none there.
            opening > 1
            and self.found[opening - 1].upper in _MEMBERS
            and self.found[opening - 2].kind in ("quoted", "word")
        )

    def _defines_index(self) -> bool:
        """Return whether the statement's part around the string defines an index."""
        part = self.found[self.firsts[-1] : self.firsts[-1] + _LONGEST]
        # Only what stands before the word COMMENT shows what is defined.
        part = part[: len(self.found) - 1 - self.firsts[-1]]
        if has_words(part[:2], "ALTER", "TABLE"):
            part = part[5 if len(part) > 3 and part[3].text == "." else 3 :]  # noqa: PLR2004 - a database's name and a dot more
        words = [token.upper for token in part[:2]] + [""] * 2
        return words[1 if words[0] in ("ADD", "CREATE") else 0] in _INDEXES


_CONDITION = re.compile(r"/\*T! {0,3}(IF (?:NOT )?EXISTS) {0,3}\*/")
"""The comment as TiDB's parser writes it; of bounded length, so that the search is linear."""


def arranged(query: str) -> tuple[str, list[str]]:
    """Return the statement in that form, and the names of the differences that this resolved."""
    notes: list[str] = []
    for name, rule in (("IF EXISTS", unfolded), ("list of columns", _lists), ("order of options", _orders)):
        text = rule(query)
        notes += [name] if text != query else []
        query = text
    return query, notes


def unfolded(query: str) -> str:
    """Take IF EXISTS and IF NOT EXISTS out of TiDB's comments, except in strings."""
    edits = [
        (start, end, f" {found[1]} ")
        for kind, start, end in (pieces(query) if "/*T!" in query else ())
        if kind == "comment" and (found := _CONDITION.fullmatch(query, start, end))
    ]
    return replace_spans(query, edits)


def _lists(query: str) -> str:
    """Turn ADD COLUMN (a, b, INDEX (a)) into one action each, if the list has more than columns."""
    statement, edits = statement_of(query), list[Edit]()
    found, starts = statement.tokens, {first for first, _ in statement.parts}
    for first, last in statement.find("ADD [COLUMN] [IF NOT EXISTS] ( )", depth=0):
        if first not in starts or statement.head != ("ALTER", "TABLE"):
            continue
        at = find_words(found, "(", start=first)
        inside = elements(found, at, last - 1)
        # The words before the parenthesis, with IF NOT EXISTS, belong to each column of the list.
        verb = query[found[first].start : found[at].start]
        columns = [column_at(found[a:b]) == 0 for a, b in inside]
        # A list of nothing but columns is read alike by all servers.
        if all(columns) and not has_words(found[first:at], "EXISTS"):
            continue
        actions = [
            (verb if is_column else "ADD ") + query[found[a].start : found[b].start].strip()
            for (a, b), is_column in zip(inside, columns, strict=True)
        ]
        edits.append(statement.edit(first, last, ", ".join(actions)))
    return replace_spans(query, edits)


def _orders(query: str) -> str:
    """Put GENERATED ALWAYS AS directly after the type and its collation."""
    statement = statement_of(query)
    return replace_spans(query, [edit for column in statement.columns for edit in _ordered(statement, column)])


def _ordered(statement: Statement, column: Column) -> Iterator[Edit]:
    """Yield edits that move what is between type and expression after the expression, and a collation before it."""
    # VIRTUAL or STORED belongs to the expression: what moves goes behind it.
    generated = in_column(statement, column, "GENERATED ALWAYS AS ( ) [VIRTUAL|STORED]")
    if not generated:
        return
    found, query, (at, end) = statement.tokens, statement.text, generated[0]
    behind = min(statement.type_end(column), at)
    collations = in_column(statement, column, "COLLATE any", behind - column.first)
    # In order already: the type, COLLATE with its name, the expression.
    if (behind == at and not collations) or (collations == [(behind, at)] and column.is_text):
        return
    taken = [statement.edit(*each) for each in collations]
    start, stop = found[behind].start, found[at].start
    early = replace_spans(query[start:stop], [(a - start, b - start, "") for a, b, _ in taken if a < stop]).strip()
    # Only a text may have a collation, and only one.
    yield start, stop, "".join(f"{query[a:b]} " for a, b, _ in taken[:1]) if column.is_text else ""
    # Collations before the expression are inside the span above, which is replaced as a whole.
    yield from (each for each in taken if each[0] > stop)
    if early:
        yield found[end - 1].end, found[end - 1].end, f" {early}"
