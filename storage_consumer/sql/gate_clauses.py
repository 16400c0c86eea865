"""How servers read one text, and runs of tokens checked against a vocabulary.

A text is read with the content of TiDB's own comments and without it. One on which servers may
disagree is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from storage_consumer.model import TableName, folded_name
from storage_consumer.sql.gate_words import (
    BEFORE_NAMES,
    EXPRESSION,
    FUNCTIONS,
    NEVER_NAMES,
    VALUE_WORDS,
)
from storage_consumer.sql.statement import Statement, statement_of
from storage_consumer.sql.tokens import NAMES, Token, parentheses, pieces

_FEATURES = frozenset(
    (
        *(
            "auto_rand",
            "auto_id_cache",
            "auto_rand_base",
            "clustered_index",
            "force_inc",
            "placement",
            "ttl",
        ),
        *(
            "resource_group",
            "global_index",
            "pre_split",
            "auto_presplit",
            "affinity",
            "region_split",
        ),
        *("active_active", "softdelete"),
    )
)
"""Features by whose names TiDB decides which versions read a comment. A later TiDB may have more.
"""
_BEFORE_TABLES = frozenset(
    (
        *(
            "TABLE",
            "VIEW",
            "DATABASE",
            "SCHEMA",
            "TO",
            "AS",
            "LIKE",
            "REFERENCES",
            "RENAME",
            "EXCHANGE",
            "ON",
        ),
        *("FROM", "JOIN", "STRAIGHT_JOIN", "INTO", "SELECT", "WITH", "."),
    )
)
"""Words that may come right before the name of a table."""
_EXISTENCE = frozenset(("IF", "NOT", "EXISTS"))
"""Likewise, but TiDB writes these in comments too."""
_OF_VIEWS = frozenset(("VIEW", "OR", "ALGORITHM", "DEFINER", "SQL"))
"""Words that follow CREATE if it creates a view."""
_HEAD = 3
"""Fewest tokens of a statement that has named its table."""


class Refusal(Exception):
    """Why a text may not run, as the end of a sentence."""


class NotForHere(Refusal):
    """TiDB may well have such a statement; only this target is not to run it."""


FOREIGN_DEFINER = "it gives the view the rights of an account other than the one that runs it (DEFINER). Create it manually under an account of the target"


def refuse_unknown_features(listed: str | None) -> None:
    """Raise `NotForHere` for a comment of an unknown feature; None: every TiDB reads it."""
    for feature in () if listed is None else listed.split(","):
        if feature not in _FEATURES:
            raise NotForHere(
                f"it has a comment for TiDB's feature [{feature[:60]}], which this program does not know, nor whether it "
                "changes rows. If it does not, run the statement without that comment by `ddl replace`, else what does "
                "the same here"
            )


def refuse_names_in_comments(plain: Sequence[Token], opened: Sequence[Token]) -> None:
    """Raise `Refusal` if TiDB's comment could name a table: versions open different ones.

    `plain`: the tokens outside comments; `opened`: these and those in comments, each at its place
    in the text.
    """
    outside = {token.start for token in plain}
    if all(token.upper in _EXISTENCE for token in opened if token.start not in outside):
        return
    words = [token.upper for token in plain[:2]]
    if words[:1] not in (["CREATE"], ["ALTER"]) or (
        words[0] == "CREATE" and words[-1] in _OF_VIEWS
    ):
        raise Refusal("it has a TiDB comment, and TiDB writes none in statements of this kind")
    for at, token in enumerate(opened):
        # The digits of a number are none, on either side of its point.
        if token.start in outside or any(
            _is_decimal(opened, place) for place in (at - 1, at, at + 1)
        ):
            continue
        around = [one.upper for one in (*opened[at - 1 : at], token, *opened[at + 1 : at + 2])]
        # Near the head, after a word that precedes names, or before a dot, a token may be part of a
        # table's name.
        early = at < _HEAD or around[0] in _BEFORE_TABLES | _EXISTENCE or around[-1] == "."
        if (early and token.upper not in _EXISTENCE) or token.upper in _BEFORE_TABLES:
            raise Refusal(f"a TiDB comment in it could name a table: {token.text[:60]}")


def _is_decimal(found: Sequence[Token], at: int) -> bool:
    """Return whether a point lies between the digits of a number there."""
    sides = (
        (*found[at - 1 : at], *found[at + 1 : at + 2])
        if 0 < at < len(found) - 1 and found[at].text == "."
        else ()
    )
    return bool(sides) and all(side.text.isascii() and side.text.isdigit() for side in sides)


_OF_TIDB = re.compile(r"/\*T!(?:\[(?P<features>[a-z0-9_,]*)\])?(?P<content>.*)\*/", re.DOTALL)
_OF_RESTORER = re.compile(
    r"/\* (?:TableOption|AlterTable)[A-Za-z]{1,40} is not supported \*/", re.ASCII
)
"""What TiDB writes after an option that it accepts without effect; a plain comment for every
server.
"""
_HINT = re.compile(r"/\*\+(?:[A-Za-z0-9_ ,.()@\[\]]|`[A-Za-z0-9_]+`)*\*/", re.ASCII)
_SETS = re.compile("SET_VAR|RESOURCE_GROUP", re.IGNORECASE)
"""Hints that change more than the plan."""
_VIEW = re.compile(r"CREATE\b[^(]{0,200}\bVIEW\b", re.IGNORECASE)
_AFTER_SELECT = re.compile(r"\bSELECT\s+\Z", re.IGNORECASE)
_NESTED = re.compile(r"/\*|\*/")
_SPACE = re.compile(r"[ \t\r\n]*")
_AMBIGUOUS = re.compile(r"--(?![0-9A-Za-z_`'\"(.@])")
_SYMBOLS = frozenset("(),.=+-*/%<>!&|^~")


def readings(sql: str) -> Iterator[Statement]:
    """Yield TiDB's reading, then other servers' if it differs; raise `Refusal` if forbidden."""
    plain = _checked(sql)
    # The content of TiDB's comments opened, each character at its place.
    parts: list[str] = []
    at = 0
    for kind, start, end in pieces(sql):
        if kind == "space" and not _SPACE.fullmatch(sql, start, end):
            raise Refusal("it has white space that servers read in different ways")
        if kind != "comment" or _OF_RESTORER.fullmatch(sql, start, end):
            continue
        # A hint for the plan, after the SELECT of a view, changes no result on any server.
        is_hint = _HINT.fullmatch(sql, start, end) and not _SETS.search(sql, start, end)
        if is_hint and _VIEW.match(sql) and _AFTER_SELECT.search(sql, max(0, start - 12), start):
            continue
        found = _OF_TIDB.fullmatch(sql, start, end)
        if found is None:
            raise Refusal(f"it has a comment that is not of TiDB's own form: {sql[start:end][:60]}")
        content = found["content"]
        refuse_unknown_features(found["features"])
        if _NESTED.search(content):
            raise Refusal("it has a comment inside a comment")
        # The content has to be complete: no string or parenthesis may span the border of the
        # comment.
        _checked(content)
        first, last = found.span("content")
        # Spaces replace the marks, so that tokens of both readings can be compared by their place.
        parts += (sql[at:start], " " * (first - start), content, " " * (end - last))
        at = end
    if parts:
        read = _checked("".join((*parts, sql[at:])))
        refuse_names_in_comments(plain.tokens, read.tokens)
        yield read
    yield plain


def _checked(sql: str) -> Statement:
    """Return a text's tree; raise `Refusal` if ambiguous beyond TiDB's comments."""
    statement = statement_of(sql)
    found, depth = statement.tokens, 0
    for at, token in enumerate(found):
        if token.kind == "string":
            # Next to a dot, or in double quotes before a parenthesis, it is a name where
            # ANSI_QUOTES is on.
            after = found[at + 1 : at + 2]
            around = [each.text for each in (*found[at - 1 : at], *after) if each.kind == "symbol"]
            if "." in around or (token.text[0] == '"' and after and after[0].text == "("):
                raise Refusal(f"it has a string where a name may be: {token.text[:60]}")
        if token.kind == "word" and not token.text.isascii():
            raise Refusal(f"it has an unquoted word that is not ASCII: {token.text[:60]}")
        if token.kind != "symbol":
            continue
        depth += (token.text == "(") - (token.text == ")")
        if depth < 0 or token.text not in _SYMBOLS:
            raise _unexpected(found, at)
        # Before an operand, -- is two minus signs to every server; before anything else some server
        # may read a comment.
        if token.text == "-" and _AMBIGUOUS.match(sql, token.start):
            raise Refusal("it has --, which some server reads as a comment")
    if depth:
        raise Refusal("its parentheses are not closed")
    return statement


def _unexpected(found: Sequence[Token], at: int) -> Refusal:
    before = [token.upper for token in found[max(0, at - 3) : at - 1]]
    if before == ["DEFINER", "="] and any(token.upper == "VIEW" for token in found[at:]):
        return NotForHere(FOREIGN_DEFINER)
    reasons = {
        ";": "it is more than one statement",
        "'": "it has a string without an end",
        '"': "it has a string without an end",
        "`": "it has a name without an end",
        ")": "its parentheses are not closed",
        "@": "it names a variable or an account",
    }
    text = found[at].text
    return Refusal(reasons.get(text, f"TiDB's DDL has no {text!r}"))


_NUMBER = re.compile(r"\d+(?:[eE]\d*)?|0[xX][0-9a-fA-F]+|0[bB][01]+", re.ASCII)
_BEFORE_EXPRESSIONS = frozenset(
    ("AS", "DEFAULT", "CHECK", "WHERE", "UPDATE", "HASH", "RANGE", "LIST")
)
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
    """Whether a name or text of the clause may come before an equals sign. False where MariaDB
    would take it for an option of some engine.
    """
    lists: bool = False
    """Whether a name before a parenthesis may have a list: an index or a foreign key's table in the
    clause, a column with a length below it.
    """


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
        self.ends, self._openings = parentheses(self.found)

    def upper(self, ahead: int = 0) -> str:
        """Return the bare word or symbol `ahead` tokens on; empty for others and at the end."""
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
        end = self.statement.begins(self.at, grammar)
        self.at = end or self.at
        return end > 0

    def choose(self, grammars: Iterable[str], last: int | None = None) -> str:
        """Take the first of these phrases that is next, up to `last`; return its grammar, or ""."""
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
            if (
                token.kind in ("quoted", "string")
                and not vocabulary.assigns
                and token.depth == vocabulary.ground
            ):
                fits = not self._precedes(at, "=") and not (
                    token.kind == "quoted" and self._precedes(at, "(")
                )
            # A quoted name before a parenthesis would call a stored function, unless a list belongs
            # there.
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
        """Return whether a name with parenthesis is an index, table or column, not a function."""
        depth = self.found[at].depth
        if depth == ground:
            # After a dot a name with a parenthesis is a function of some database, except for
            # REFERENCES database.table (…).
            return (
                self.found[at - 1].text != "." or self.found[max(at - 3, 0)].upper == "REFERENCES"
            )
        # What comes before the parenthesis that the name is in tells a list of columns from an
        # expression.
        before = self.found[self._openings[at] - 1].upper if self._openings[at] > 0 else ""
        length = self.found[at + 2 : at + 4]
        is_length = [t.text for t in length[1:]] == [")"] and bool(
            _NUMBER.fullmatch(length[0].text)
        )
        return depth == ground + 1 and is_length and before not in _BEFORE_EXPRESSIONS

    def _fits(self, at: int, vocabulary: Vocabulary) -> bool:
        """Return whether a bare word may appear there."""
        token, word = self.found[at], self.found[at].upper
        before, called = self.found[at - 1].upper if at else "", self._precedes(at, "(")
        on_ground = token.depth == vocabulary.ground
        # To the tokenizer a number is a word, and so is what belongs to the string after it.
        follows = self.found[at + 1 : at + 2]
        belongs = (
            follows and follows[0].kind == "string" and (word[0] == "_" or word in _BEFORE_STRINGS)
        )
        if _NUMBER.fullmatch(token.text) or belongs:
            return True
        if before == "." and called:
            # not a function
            return vocabulary.lists and on_ground and self._has_list(at, vocabulary.ground)
        # UPDATE and DELETE appear only in ON UPDATE and ON DELETE, and in UPDATE INDEXES.
        if word in ("UPDATE", "DELETE") and before != "ON" and not self._precedes(at, "INDEXES"):
            return False
        if word in (vocabulary.words if on_ground else vocabulary.inside) or (
            called and word in vocabulary.functions
        ):
            return True
        if word in NEVER_NAMES or (
            called and not (vocabulary.lists and self._has_list(at, vocabulary.ground))
        ):
            return False
        # A name without quotes: behind a dot, of a column that is known, or where nothing but a
        # name can be.
        if (
            before == "."
            or folded_name(token.text) in self.names
            or (on_ground and before in BEFORE_NAMES)
        ):
            return True
        # The value of CHARSET, COLLATE, USING or an option whose value is any word.
        back = at - 1 - (self.found[at - 1].text == "=") if at else -1
        words = (
            [each.upper for each in self.found[max(back - 1, 0) : back + 1]] if back >= 0 else []
        )
        return words[-1:] != [] and (words[-1] in VALUE_WORDS or words[-2:] == ["CHARACTER", "SET"])

    def _precedes(self, at: int, word: str) -> bool:
        """Return whether this word is the next one."""
        return at + 1 < len(self.found) and self.found[at + 1].upper == word
