"""Runs of tokens checked against a vocabulary, and a cursor over them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from storage_consumer.gate.comments import Refusal
from storage_consumer.gate.functions import FUNCTIONS
from storage_consumer.gate.words import BEFORE_NAMES, EXPRESSION, NEVER_NAMES, VALUE_WORDS
from storage_consumer.model import TableName, folded_name
from storage_consumer.sql.statement import NAMES, Statement
from storage_consumer.sql.tokens import Token, closings, openings

_NUMBER = re.compile(r"\d+(?:[eE]\d*)?|0[xX][0-9a-fA-F]+|0[bB][01]+", re.ASCII)
_BEFORE_EXPRESSIONS = frozenset(("AS", "DEFAULT", "CHECK", "WHERE", "UPDATE", "HASH", "RANGE", "LIST"))
"""Words after which a parenthesis holds an expression, not a list of columns."""
_BEFORE_STRINGS = frozenset(("X", "B", "N", "DATE", "TIME", "TIMESTAMP"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What a run of tokens may contain."""

    ground: int
    """Depth of parentheses of the clause itself; what is deeper is an expression or a list."""
    words: frozenset[str]
    """Bare words allowed at that depth."""
    inside: frozenset[str] = EXPRESSION
    """Bare words allowed below it."""
    functions: frozenset[str] = FUNCTIONS
    assigns: bool = True
    """Whether a name or text of the clause may come before an equals sign. False where MariaDB would take it for an option of some engine."""
    lists: bool = False
    """Whether a name before a parenthesis may have a list: an index or a foreign key's table in the clause, a column with a length below it."""


@dataclass(slots=True)
class Cursor:
    """A place in a statement."""

    statement: Statement
    names: set[str] = field(default_factory=set)
    """Folded names of columns that may appear without quotes."""
    listed: set[int] = field(default_factory=set)
    """Indexes of names that a list in parentheses may follow wherever they are."""
    at: int = 0
    found: Sequence[Token] = field(init=False)
    ends: Mapping[int, int] = field(init=False)
    _openings: Sequence[int] = field(init=False)
    """Index of the parenthesis around each token, -1 for none."""

    def __post_init__(self) -> None:
        """Find the parentheses."""
        self.found = self.statement.tokens
        self.ends = closings(self.found)
        self._openings = openings(self.found)

    def upper(self, ahead: int = 0) -> str:
        """Return the bare word or symbol `ahead` tokens after the place; empty for others and at the end."""
        place = self.at + ahead
        return self.found[place].upper if place < len(self.found) else ""

    def kind(self, ahead: int = 0) -> str:
        """Return the kind of that token; empty at the end."""
        place = self.at + ahead
        return self.found[place].kind if place < len(self.found) else ""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.at >= len(self.found)

    def sees(self, grammar: str) -> bool:
        """Return whether such a phrase is next; see `Statement.find`."""
        return self.statement.begins(self.at, grammar) > 0

    def take(self, grammar: str) -> bool:
        """Take such a phrase if it is next; return whether it was."""
        return self.choose((grammar,)) != ""

    def choose(self, grammars: Iterable[str], last: int | None = None) -> str:
        """Take the first of these phrases that is next and ends at `last` or before, and return its grammar; empty if none is."""
        for grammar in grammars:
            if end := self.statement.begins(self.at, grammar, last):
                self.at = end
                return grammar
        return ""

    def need(self, grammar: str) -> None:
        """Take such a phrase; raise `Refusal` if it is not next."""
        if not self.take(grammar):
            raise self.refusal()

    def word(self) -> str:
        """Take a bare word, and return it; raise `Refusal` if none is next."""
        if self.kind() != "word":
            raise self.refusal()
        self.at += 1
        return self.found[self.at - 1].upper

    def name(self) -> TableName:
        """Take the name of a table, with or without its database (empty schema), and return it."""
        first = self.part()
        if not self.take("."):
            return TableName(schema="", table=first)
        return TableName(schema=first, table=self.part())

    def part(self) -> str:
        """Take one name, and return it; raise `Refusal` if none is next."""
        if self.kind() not in NAMES or self.upper() in NEVER_NAMES:
            raise self.refusal()
        self.at += 1
        return self.found[self.at - 1].name

    def group(self) -> tuple[int, int]:
        """Take a pair of parentheses, and return the range [first, last) of what is inside."""
        if self.upper() != "(" or self.at not in self.ends:
            raise self.refusal()
        first, last = self.at + 1, self.ends[self.at]
        self.at = last + 1
        return first, last

    def finish(self) -> None:
        """Raise `Refusal` if anything is left."""
        if not self.is_over:
            raise self.refusal()

    def refusal(self) -> Refusal:
        """Return the refusal of the token at the place."""
        if self.is_over:
            return Refusal("it ends too early")
        return Refusal(f"TiDB's DDL has no {self.found[self.at].text[:60]!r} there")

    def check(self, first: int, last: int, vocabulary: Vocabulary) -> None:
        """Raise `Refusal` for a token in [first, last) that the vocabulary does not allow."""
        for at in range(first, last):
            token = self.found[at]
            # MariaDB reads `name = value` as an option of some engine.
            if token.kind in ("quoted", "string") and not vocabulary.assigns and token.depth == vocabulary.ground:
                fits = not self._precedes(at, "=") and not (token.kind == "quoted" and self._precedes(at, "("))
            # A quoted name before a parenthesis would call a stored function, unless a list belongs there.
            elif token.kind == "quoted":
                fits = (
                    not self._precedes(at, "(")
                    or at in self.listed
                    or (vocabulary.lists and self._has_list(at, vocabulary.ground))
                )
            elif token.kind == "word":
                fits = self._fits(at, vocabulary)
            else:
                fits = True
            if not fits:
                self.at = at
                raise self.refusal()

    def _has_list(self, at: int, ground: int) -> bool:
        """Return whether the name before a parenthesis is that of an index, a table, or a column with a length, and not of a function."""
        depth = self.found[at].depth
        if depth == ground:
            # After a dot a name with a parenthesis is a function of some database, except for REFERENCES database.table (…).
            return self.found[at - 1].text != "." or self.found[max(at - 3, 0)].upper == "REFERENCES"
        # What comes before the parenthesis that the name is in tells a list of columns from an expression.
        before = self.found[self._openings[at] - 1].upper if self._openings[at] > 0 else ""
        length = self.found[at + 2 : at + 4]
        is_length = [t.text for t in length[1:]] == [")"] and bool(_NUMBER.fullmatch(length[0].text))
        return depth == ground + 1 and is_length and before not in _BEFORE_EXPRESSIONS

    def _fits(self, at: int, vocabulary: Vocabulary) -> bool:
        """Return whether a bare word may appear there."""
        token, word = self.found[at], self.found[at].upper
        before, called = self.found[at - 1].upper if at else "", self._precedes(at, "(")
        on_ground = token.depth == vocabulary.ground
        # To the tokenizer a number is a word, and so is what belongs to the string after it.
        if _NUMBER.fullmatch(token.text) or self._precedes_string(at):
            return True
        if before == "." and called:
            return vocabulary.lists and on_ground and self._has_list(at, vocabulary.ground)  # not a function
        # UPDATE and DELETE appear only in ON UPDATE and ON DELETE, and in UPDATE INDEXES.
        if word in ("UPDATE", "DELETE") and before != "ON" and not self._precedes(at, "INDEXES"):
            return False
        if word in (vocabulary.words if on_ground else vocabulary.inside) or (called and word in vocabulary.functions):
            return True
        if word in NEVER_NAMES or (called and not (vocabulary.lists and self._has_list(at, vocabulary.ground))):
            return False
        # A name without quotes: behind a dot, of a column that is known, or where nothing but a name can be.
        is_named = before == "." or folded_name(token.text) in self.names or (on_ground and before in BEFORE_NAMES)
        return is_named or self._is_value(at)

    def _precedes(self, at: int, word: str) -> bool:
        """Return whether this word is the next one."""
        return at + 1 < len(self.found) and self.found[at + 1].upper == word

    def _precedes_string(self, at: int) -> bool:
        """Return whether the word belongs to the string after it: a character set, or the kind of the literal."""
        word = self.found[at].upper
        return (
            self.found[at + 1 : at + 2] != ()
            and self.found[at + 1].kind == "string"
            and (word[0] == "_" or word in _BEFORE_STRINGS)
        )

    def _is_value(self, at: int) -> bool:
        """Return whether the word is the value of CHARSET, COLLATE, USING or an option whose value is any word."""
        back = at - 1 - (self.found[at - 1].text == "=") if at else -1
        words = [token.upper for token in self.found[max(back - 1, 0) : back + 1]] if back >= 0 else []
        return words[-1:] != [] and (words[-1] in VALUE_WORDS or words[-2:] == ["CHARACTER", "SET"])
