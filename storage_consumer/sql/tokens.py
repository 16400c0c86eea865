"""Split SQL into tokens, enough to find names and clauses outside strings and comments.

This is not a parser. The original text runs on the target whenever it can, so it is enough to see
which tables a statement names, and to insert or remove a clause at an exact place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from storage_consumer.model import TableName

# Two dashes begin a comment only before white space, a control character or the end, as in MySQL;
# else they are two minus signs. A name may begin with a digit, so numbers are words here too.
_PIECE = re.compile(
    r"""(?P<space>\s+)
      | (?P<string>'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*'(?!') | "[^"\\]*+(?:(?:\\.|"")[^"\\]*+)*"(?!"))
      | (?P<quoted>`[^`]*+(?:``[^`]*+)*`(?!`))
      | (?P<comment>/\*.*?\*/ | --(?=[\0-\x20\x7f]|\Z)[^\n]* | \#[^\n]*)
      | (?P<word>[^\W\d][\w$]*|\d[\w$]*|_\w+)
      | (?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
_RAW_PIECE = re.compile("(?P<string>'[^']*+(?:''[^']*+)*'(?!'))|(?P<symbol>')")
"""The same for a string in which a backslash is only a backslash."""
_OPENERS = ("'", '"', "`", "/*")
"""What needs an end that has to be searched for."""
Piece = tuple[str, int, int]
"""Kind, start and end (exclusive)."""
_HEEDED_COMMENT = re.compile(r"/\*(?:T!(?:\[[^\]]*\])?|!\d*)")
"""The beginning of a comment whose content TiDB reads."""


class Token(NamedTuple):
    """A piece of a statement that is neither white space nor a comment."""

    kind: str
    """``string``, ``quoted`` (a name in backquotes), ``word`` or ``symbol``."""
    text: str
    """The text as written."""
    start: int
    end: int
    depth: int
    """Number of open parentheses around it; a parenthesis itself counts as outside."""
    upper: str
    """Upper-case text of a bare word or symbol; empty for strings and quoted names, which are never
    keywords.
    """

    @property
    def name(self) -> str:
        """The identifier that this token would be."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


_UPPER = attrgetter("upper")
NAMES = ("quoted", "word")
"""Kinds of tokens that can be names: TiCDC writes names in backquotes, but older versions store
them as typed.
"""


def tokens(sql: str) -> tuple[Token, ...]:
    """Return the tokens of `sql`, without comments (``/*T! ... */`` included).

    What a statement says is asked of `sql.parse`. Right before one runs, the gate and the
    translation each read its text on their own, so the tokens of the last few texts of usual length
    are kept for them.
    """
    return _kept(sql) if len(sql) <= USUAL_LENGTH else _scanned(sql)


def pieces(sql: str, is_raw: Callable[[Sequence[Piece]], bool] | None = None) -> list[Piece]:
    """Return kind, start, end (exclusive) of each token, of ``space`` and of ``comment``.

    If a string, quoted name or comment has no end, its opener becomes a symbol, and so does each
    later opener of its kind. The end is not searched for again, so the time stays linear in the
    length of the text. `is_raw` returns whether backslashes are literal in a string in single
    quotes that follows the pieces up to it.
    """
    found: list[Piece] = []
    endless: set[str] = set()
    at = 0
    while at < len(sql):
        # One sign opens a string or a quoted name, two open a comment.
        opener = sql[at] if sql[at] in _OPENERS else sql[at : at + 2]
        kind, end = "symbol", at + 1
        if opener not in endless:
            raw = opener == "'" and is_raw is not None and is_raw(found)
            match = (_RAW_PIECE if raw else _PIECE).match(sql, at)
            assert match is not None
            assert match.lastgroup is not None
            kind, end = match.lastgroup, match.end()
            if kind == "symbol" and opener in _OPENERS and not raw:
                endless.add(opener)
        found.append((kind, at, end))
        at = end
    return found


def _scanned(sql: str) -> tuple[Token, ...]:
    """Return what `tokens` does, without the cache."""
    found: list[Token] = []
    depth = 0
    for kind, start, end in pieces(sql):
        if kind in ("space", "comment"):
            continue
        text = sql[start:end]
        if text == ")" and kind == "symbol":
            # A hostile text may close more than it has opened.
            depth = max(0, depth - 1)
        upper = text.upper() if kind in ("word", "symbol") else ""
        found.append(Token(kind, text, start, end, depth, upper))
        if text == "(" and kind == "symbol":
            depth += 1
    return tuple(found)


# Few texts, since a statement is read several times in a row and then hardly ever again.
_kept = lru_cache(maxsize=16)(_scanned)
USUAL_LENGTH = 1 << 13
"""Characters; keeping the tokens of longer statements would take megabytes."""


def heeds_comment(sql: str) -> bool:
    """Return whether TiDB reads a part of a statement that other servers take for a comment."""
    return _HEEDED_COMMENT.search(sql) is not None


def makes_global_index(sql: str) -> bool:
    """Return whether a statement has a GLOBAL index, ``/*T![global_index] GLOBAL */`` too."""
    # The quick look first: every statement is asked, and few have the word anywhere.
    return "global" in sql.casefold() and has_words(heeded(sql), "GLOBAL")


def heeded(sql: str) -> tuple[Token, ...]:
    """Return the tokens for a TiDB that knows all comments' features; their ends are symbols."""
    return tokens(_HEEDED_COMMENT.sub(" ", sql)) if heeds_comment(sql) else tokens(sql)


def names(found: Sequence[Token]) -> Iterator[tuple[str, str, int]]:
    """Yield (schema or "", table, first token's index) for all possible table names."""
    index = 0
    while index < len(found):
        token = found[index]
        if token.kind not in NAMES:
            index += 1
        elif (
            index + 2 < len(found)
            and found[index + 1].text == "."
            and found[index + 2].kind in NAMES
        ):
            yield token.name, found[index + 2].name, index
            index += 3
        else:
            yield "", token.name, index
            index += 1


def has_words(found: Sequence[Token], *words: str, depth: int | None = None) -> bool:
    """Return whether bare words follow one another, at the given depth of parentheses if any."""
    return find_words(found, *words, depth=depth) >= 0


def find_words(
    found: Sequence[Token], *words: str, depth: int | None = None, start: int = 0
) -> int:
    """Return the first index, from `start` (inclusive), of such a sequence of words, or -1."""
    for index in range(start, len(found) - len(words) + 1):
        if found[index].upper != words[0] or (depth is not None and found[index].depth != depth):
            continue
        if len(words) == 1 or tuple(map(_UPPER, found[index : index + len(words)])) == words:
            return index
    return -1


def closing(found: Sequence[Token], opening: int) -> int:
    """Return the index of the parenthesis that closes the one at index `opening`, or -1."""
    for index in range(opening + 1, len(found)):
        if (
            found[index].text == ")"
            and found[index].kind == "symbol"
            and found[index].depth == found[opening].depth
        ):
            return index
    return -1


def elements(found: Sequence[Token], opening: int, end: int) -> list[tuple[int, int]]:
    """Return ranges [first, last) of comma-separated elements between two parentheses."""
    inside = found[opening].depth + 1
    parts, first = [], opening + 1
    for index in range(opening + 1, end + 1):
        token = found[index]
        if index == end or (token.text == "," and token.kind == "symbol" and token.depth == inside):
            parts.append((first, index))
            first = index + 1
    return parts


def parentheses(found: Sequence[Token]) -> tuple[dict[int, int], list[int]]:
    """Return the closing index of each closed parenthesis; and what is around each token.

    That is the index of the innermost parenthesis around it, or -1 for none.
    """
    opened, ends, around = [-1], dict[int, int](), list[int]()
    for index, token in enumerate(found):
        if token.kind == "symbol" and token.text == ")" and len(opened) > 1:
            ends[opened.pop()] = index
        around.append(opened[-1])
        if token.kind == "symbol" and token.text == "(":
            opened.append(index)
    return ends, around


def replace_spans(sql: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """Replace spans (start, end, text) of `sql` by their texts; they must not overlap."""
    parts: list[str] = []
    at = 0
    for start, end, text in sorted(edits):
        parts += (sql[at:start], text)
        at = end
    return "".join((*parts, sql[at:]))


def quote(name: str) -> str:
    """Return an identifier in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def qualified(name: TableName) -> str:
    """Return ``schema``.``table`` in backquotes."""
    return f"{quote(name.schema)}.{quote(name.table)}"
