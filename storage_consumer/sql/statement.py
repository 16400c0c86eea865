"""A statement as a tree: parts, columns, and phrases of the grammar, with their places."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

from storage_consumer.model import TableDefinition, folded_name
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import (
    NAMES,
    USUAL_LENGTH,
    Token,
    closing,
    elements,
    find_words,
    has_words,
    names,
    tokens,
)

Edit = tuple[int, int, str]
"""Start (inclusive), end (exclusive), and the text that replaces what is between them."""
INDEX_WORDS = ("INDEX", "KEY")
_TYPE = "any [( )] {UNSIGNED|SIGNED|ZEROFILL|BINARY|PRECISION|CHARACTER SET any|CHARSET any}*"
_COLUMN_VERBS = {"ADD": 0, "MODIFY": 0, "CHANGE": 1, "ALTER": 0}
"""Verb of an action on a column → how many tokens after the column's former name its new one is."""
_NO_COLUMNS = frozenset(
    (
        *INDEX_WORDS,
        *(
            "UNIQUE",
            "PRIMARY",
            "FULLTEXT",
            "SPATIAL",
            "CONSTRAINT",
            "CHECK",
            "FOREIGN",
            "PARTITION",
        ),
    )
)
"""Bare words that begin the definition of something other than a column."""
_BEFORE_NAMES = frozenset(
    (
        *("TABLE", "INDEX", "KEY", "COLUMN", "EXISTS", "."),
        *("ADD", "DROP", "ALTER", "MODIFY", "CHANGE", "RENAME", "TO", "AFTER"),
    )
)
"""The words that may precede a name; a word of an option or clause never follows one of them."""
_LEXEME = re.compile(r"[A-Z_][A-Z_0-9]*|[a-z]+|\S")
_SHAPES = {
    "[": "(?:",
    "]": ")?",
    "{": "(?:",
    "}": ")",
    "|": "|",
    "*": "*",
    "<": "(?P<marked>",
    ">": ")",
    "name": r"(?:`|[\w$]+) ",
    "quoted": "` ",
    "text": "' ",
    "any": r"(?!= )\S+ ",
}
"""Sign of a grammar → the expression for it in a shape; see `Statement.find`."""


@lru_cache(maxsize=256)
def _compiled(grammar: str) -> re.Pattern[str]:
    signs = _LEXEME.findall(grammar)
    return re.compile(
        rf"(?<!\S)(?:{''.join(_SHAPES.get(sign) or re.escape(sign) + ' ' for sign in signs)})"
    )


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a statement defines or changes."""

    verb: str
    """Of the action, empty in CREATE TABLE."""
    former: str
    name: str
    first: int
    """Index of its name in the statement."""
    tokens: Sequence[Token]
    """From the name on."""

    @property
    def type(self) -> str:
        """First word of its type in upper case; empty if there is none."""
        return self.tokens[1].upper if len(self.tokens) > 1 else ""

    @property
    def is_text(self) -> bool:
        """Whether it has a type with a collation."""
        return self.type.endswith(("CHAR", "TEXT")) or self.type in ("ENUM", "SET")

    @property
    def arguments(self) -> Sequence[Token]:
        """What is in the parentheses after the first word of its type."""
        return self.tokens[3 : closing(self.tokens, 2)] if has_words(self.tokens[2:3], "(") else ()

    @property
    def generated(self) -> tuple[int, int]:
        """Indexes of its generating expression's parentheses, (-1, -1) if there is none."""
        at = find_words(self.tokens, "AS", "(", depth=self.tokens[0].depth)
        return (at + 1, closing(self.tokens, at + 1)) if at > 0 else (-1, -1)

    @property
    def is_stored(self) -> bool:
        """Whether STORED follows that expression; else it is a virtual one."""
        return has_words(self.tokens[self.generated[1] + 1 :], "STORED", depth=self.tokens[0].depth)

    @property
    def options(self) -> Sequence[Token]:
        """What follows the first word of its type, outside of parentheses."""
        return [token for token in self.tokens[2:] if token.depth == self.tokens[0].depth]

    def defaults(self) -> list[int]:
        """Return the indexes of the values after DEFAULT."""
        found, depth = self.tokens, self.tokens[0].depth
        return [
            at
            for at in range(3, len(found))
            if found[at - 1].upper == "DEFAULT" and found[at - 1].depth == depth
        ]


@dataclass(frozen=True)
class Statement:
    """A statement with its comma-separated parts."""

    text: str
    tokens: Sequence[Token]

    @cached_property
    def head(self) -> tuple[str, ...]:
        """The first two words in upper case, shorter if the statement is."""
        return tuple(token.upper for token in self.tokens[:2])

    @cached_property
    def body(self) -> tuple[int, int]:
        """Indexes of a CREATE TABLE's parentheses of columns; (-1, -1) for other statements."""
        found = self.tokens
        if self.head[:1] != ("CREATE",) or find_words(found[:4], "TABLE") < 0:
            return -1, -1
        opening = find_words(found, "(")
        # In CREATE TABLE a (LIKE b) the parenthesis holds no columns.
        if opening < 0 or opening + 1 >= len(found) or found[opening + 1].upper == "LIKE":
            return -1, -1
        return opening, closing(found, opening)

    @cached_property
    def parts(self) -> Sequence[tuple[int, int]]:
        """Ranges [first, last): CREATE TABLE's definitions, ALTER TABLE's actions, else all."""
        found, (opening, end) = self.tokens, self.body
        if end >= 0:
            return elements(found, opening, end)
        if len(found) < 3 or self.head != ("ALTER", "TABLE"):  # noqa: PLR2004 - with the table's name
            return [(0, len(found))]
        first = 5 if has_words(found[3:4], ".") else 3
        # Only commas outside all parentheses separate actions.
        commas = [
            at for at in range(first, len(found)) if found[at].text == "," and not found[at].depth
        ]
        return list(zip([first, *(at + 1 for at in commas)], [*commas, len(found)], strict=True))

    @property
    def elements(self) -> Iterator[Sequence[Token]]:
        """The tokens of each part."""
        return (self.tokens[first:last] for first, last in self.parts)

    @cached_property
    def columns(self) -> Sequence[Column]:
        """The columns that it defines or changes, in order."""
        columns: list[Column] = []
        for first, last in self.parts if has_words(self.tokens[:3], "TABLE") else ():
            part = self.tokens[first:last]
            verb, named, listed = part[0].upper if part else "", column_at(part), _behind_verb(part)
            new = named + _COLUMN_VERBS.get(verb, len(part))
            if self.head[0] == "CREATE" and named == 0:
                columns.append(Column("", part[0].name, part[0].name, first, part))
            elif verb in _COLUMN_VERBS and has_words(part[listed : listed + 1], "("):
                inside = elements(part, listed, closing(part, listed))
                columns += (
                    Column(verb, part[a].name, part[a].name, first + a, part[a:b])
                    for a, b in inside
                    if a < b
                )
            elif 0 < named <= new < len(part):
                columns.append(
                    Column(verb, part[named].name, part[new].name, first + new, part[new:])
                )
        return columns

    @cached_property
    def renamed(self) -> Mapping[str, str]:
        """The folded former name of each column, by its folded new one, that it renames."""
        pairs = [(each.former, each.name) for each in self.columns if each.verb == "CHANGE"]
        places = self.find("RENAME COLUMN name [TO] name", depth=0)
        pairs += [
            (self.tokens[first + 2].name, self.tokens[last - 1].name) for first, last in places
        ]
        folded = [(folded_name(old), folded_name(new)) for old, new in pairs]
        return {new: old for old, new in folded if old != new}

    def find(
        self, grammar: str, first: int = 0, last: int | None = None, depth: int | None = None
    ) -> list[tuple[int, int]]:
        """Return [first, last) of a grammar's phrases, at a depth or any, or of `<…>` in them.

        In a grammar ``[a]`` may be missing, ``{a|b}`` is a choice, ``{a}*`` is repeated; ``name``,
        ``quoted``, ``text`` and ``any`` are tokens of that kind, ``any`` is no equals sign; all
        else is as it is in the statement. ``( )`` is a parenthesis with all that is in it.
        """
        found: list[tuple[int, int]] = []
        for level, (shape, offsets, places) in self._levels.items():
            if depth not in (None, level):
                continue
            start = offsets[bisect_left(places, first)]
            end = offsets[bisect_left(places, len(self.tokens) if last is None else last)]
            for match in _compiled(grammar).finditer(shape, start, end):
                a, b = match.span("marked" if match.lastgroup else 0)
                found.append(
                    (places[bisect_left(offsets, a)], places[bisect_left(offsets, b) - 1] + 1)
                )
        return sorted(found)

    def begins(self, at: int, grammar: str, last: int | None = None) -> int:
        """Return the index after such a phrase at an index, up to `last`; 0 if there is none."""
        if at >= len(self.tokens):
            return 0
        shape, offsets, places = self._levels[self.tokens[at].depth]
        end = offsets[bisect_left(places, len(self.tokens) if last is None else last)]
        match = _compiled(grammar).match(shape, offsets[bisect_left(places, at)], end)
        return places[bisect_left(offsets, match.end()) - 1] + 1 if match else 0

    def type_end(self, column: Column) -> int:
        """Return the index of the first token after a column's type."""
        return self.begins(column.first + 1, _TYPE)

    def edit(self, first: int, last: int, text: str = "") -> Edit:
        """Return the edit that puts a text in the place of [first, last)."""
        return self.tokens[first].start, self.tokens[last - 1].end, text

    @cached_property
    def _levels(self) -> Mapping[int, tuple[str, Sequence[int], Sequence[int]]]:
        """By depth: a word per token, where each begins in it, and each token's index."""
        words, places = defaultdict[int, list[str]](list), defaultdict[int, list[int]](list)
        for at, token in enumerate(self.tokens):
            if token.upper == ")":
                # No phrase goes on in another parenthesis.
                words[token.depth + 1].append("\n")
                places[token.depth + 1].append(at)
            words[token.depth].append(token.upper or ("`" if token.kind == "quoted" else "'"))
            places[token.depth].append(at)
        return {
            depth: (
                " ".join((*each, "")),
                list(accumulate([len(word) + 1 for word in each], initial=0)),
                places[depth],
            )
            for depth, each in words.items()
        }


@lru_cache(maxsize=16)
def _kept(text: str) -> Statement:
    return Statement(text, tokens(text))


def statement_of(text: str) -> Statement:
    """Return the tree of a text; those of the last few are kept, as their tokens are."""
    return _kept(text) if len(text) <= USUAL_LENGTH else Statement(text, tokens(text))


def column_at(part: Sequence[Token]) -> int:
    """Return the index of the one column that this part defines, adds or changes, or -1."""
    at = _behind_verb(part)
    if at >= len(part) or part[at].kind not in NAMES or part[at].upper in _NO_COLUMNS:
        return -1
    # Kinds of index that are not listed above, such as VECTOR INDEX, show by the word that follows.
    return -1 if any(token.upper in INDEX_WORDS for token in part[at + 1 : at + 2]) else at


def _behind_verb(part: Sequence[Token]) -> int:
    """Return the index after the words that begin an action on columns; 0 for others."""
    if not part or part[0].upper not in _COLUMN_VERBS:
        return 0
    words = [token.upper for token in part[:5]]
    at = 1 + (words[1:2] == ["COLUMN"])
    if words[at : at + 2] == ["IF", "EXISTS"]:
        return at + 2
    return at + 3 if words[at : at + 3] == ["IF", "NOT", "EXISTS"] else at


def is_name(found: Sequence[Token], at: int) -> bool:
    """Return whether a bare word outside parentheses is a name, not an option.

    It is of a table, index or column.
    """
    before = [token.upper for token in found[max(at - 3, 0) : at]]
    # In CHANGE a b the second name follows another name, and so none of the words below.
    changed = before[-2:-1] == ["CHANGE"] or before[-3:-1] == ["CHANGE", "COLUMN"]
    return changed or any(word in _BEFORE_NAMES for word in before[-1:])


def copied_table(query: str) -> tuple[str, str] | None:
    """Return the copied table's schema (may be empty) and name as written; None without one."""
    found = statement_of(query)
    for place in range(2, len(found.tokens)) if found.head == ("CREATE", "TABLE") else ():
        token, before = found.tokens[place], found.tokens[place - 1]
        # Anywhere else it compares texts.
        if token.upper == "LIKE" and (token.depth == 0 or before.text == "("):
            schema, table, _ = next(names(found.tokens[place + 1 :]), ("", "", 0))
            return schema, table
    return None


def creates_as_listed(definition: TableDefinition) -> bool:
    """Return whether a statement creates a table with the columns that it lists itself."""
    return parsed(definition).creates_table and copied_table(definition.query) is None
