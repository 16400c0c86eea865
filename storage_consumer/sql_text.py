"""SQL text as tokens: just enough to find names and clauses in a DDL without taking strings or comments for code.

Not a parser: the original text runs on the target whenever it can, so all that is needed is to see which tables a statement
names, and to put in or take out a clause at an exact place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>/\*.*?\*/|--[ \t][^\n]*|\#[^\n]*)
      | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[^\W\d][\w$]*|\d[\w$]*|_\w+)
      | (?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
_HEEDED_COMMENT = re.compile(r"/\*(?:T!(?:\[[^\]]*\])?|!\d*)")
"""How a comment begins whose content TiDB reads."""


@dataclass(frozen=True, slots=True)
class Token:
    """One piece of a statement that is not white space or a comment."""

    kind: str
    """``string``, ``quoted`` (a name in backquotes), ``word`` or ``symbol``."""
    text: str
    """As written."""
    start: int
    end: int
    depth: int
    """Number of open parentheses around it; a parenthesis itself counts as outside."""

    @property
    def upper(self) -> str:
        """Upper-case text of a bare word or symbol; empty for strings and quoted names, which are never keywords."""
        return self.text.upper() if self.kind in ("word", "symbol") else ""

    @property
    def name(self) -> str:
        """The identifier that this token would be."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


def tokens(sql: str) -> tuple[Token, ...]:
    """The tokens of `sql`; comments (``/*T! ... */`` included) are left out.

    Before a statement runs it is looked at from many sides, so those of usual length are kept for a while.
    """
    return _kept(sql) if len(sql) <= _USUAL_LENGTH else _scanned(sql)


def _scanned(sql: str) -> tuple[Token, ...]:
    """As `tokens`."""
    found: list[Token] = []
    depth = 0
    for match in TOKEN.finditer(sql):
        kind = match.lastgroup or "symbol"
        if kind in ("space", "comment"):
            continue
        text = match.group()
        if text == ")" and kind == "symbol":
            depth = max(0, depth - 1)
        found.append(Token(kind, text, match.start(), match.end(), depth))
        if text == "(" and kind == "symbol":
            depth += 1
    return tuple(found)


_kept = lru_cache(maxsize=64)(_scanned)
_USUAL_LENGTH = 1 << 13
"""Characters; what is kept of longer ones would be megabytes."""


def heeds_comment(sql: str) -> bool:
    """Whether TiDB reads a part of a statement that other servers take for a comment."""
    return _HEEDED_COMMENT.search(sql) is not None


def makes_global_index(sql: str) -> bool:
    """Whether a statement speaks of a GLOBAL index, in TiDB's comments ``/*T![global_index] GLOBAL */`` too."""
    return "global" in sql.casefold() and has_words(tokens(_HEEDED_COMMENT.sub(" ", sql)), "GLOBAL")


def names(found: Sequence[Token]) -> Iterator[tuple[str, str, int]]:
    """Every (schema, table, index of the first token) that could be a table name; schema is empty where none is written."""
    index = 0
    while index < len(found):
        token = found[index]
        if token.kind not in ("quoted", "word"):
            index += 1
        elif index + 2 < len(found) and found[index + 1].text == "." and found[index + 2].kind in ("quoted", "word"):
            yield token.name, found[index + 2].name, index
            index += 3
        else:
            yield "", token.name, index
            index += 1


def has_words(found: Sequence[Token], *words: str, depth: int | None = None) -> bool:
    """Whether the bare words follow one another somewhere (at a given depth of parentheses, if one is given)."""
    return find_words(found, *words, depth=depth) >= 0


def find_words(found: Sequence[Token], *words: str, depth: int | None = None, start: int = 0) -> int:
    """Index of the first token of that sequence of bare words at or after `start`, or -1."""
    first, *others = words
    for index in range(start, len(found) - len(others)):
        if (
            found[index].upper == first
            and (depth is None or found[index].depth == depth)
            and all(found[index + offset].upper == word for offset, word in enumerate(others, 1))
        ):
            return index
    return -1


def closing(found: Sequence[Token], opening: int) -> int:
    """Index of the parenthesis that closes the one at index `opening`, or -1."""
    for index in range(opening + 1, len(found)):
        if found[index].text == ")" and found[index].kind == "symbol" and found[index].depth == found[opening].depth:
            return index
    return -1


def elements(found: Sequence[Token], opening: int, end: int) -> list[tuple[int, int]]:
    """Index ranges [first, last) of the comma-separated elements between a parenthesis and its closing one."""
    inside = found[opening].depth + 1
    parts, first = [], opening + 1
    for index in range(opening + 1, end + 1):
        token = found[index]
        if index == end or (token.text == "," and token.kind == "symbol" and token.depth == inside):
            parts.append((first, index))
            first = index + 1
    return parts


def replace_spans(sql: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """`sql` with each (start, end, text) put in; the spans must not overlap."""
    for start, end, text in sorted(edits, reverse=True):
        sql = sql[:start] + text + sql[end:]
    return sql


def quote(name: str) -> str:
    """An identifier in backquotes."""
    return "`" + name.replace("`", "``") + "`"
