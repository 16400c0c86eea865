"""String literals of a DDL that would not mean on the target what they meant at the source. Pure.

TiCDC does not store what was typed: it parses the statement and writes it anew. Three things about strings get lost there: the
escape before a backslash in some places, the collation that a string had, and the time zone of the session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from storage_consumer.decoding.zones import from_utc, occurs_twice
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn
from storage_consumer.sql_text import TOKEN, Token, closing, has_words
from storage_consumer.target.column_parts import INDEX_WORDS, column_parts
from storage_consumer.target.parts import Edit, Statement

_AS_IT_IS = re.compile(r"'(?:[^']|'')*'")
"""A string without escapes: a backslash stands for itself."""
_MEMBERS = ("ENUM", "SET")
_INDEXES = (*INDEX_WORDS, "UNIQUE", "PRIMARY", "FULLTEXT", "CONSTRAINT")


# backslashes


def escaped(query: str) -> str:
    """The statement with each backslash escaped that TiCDC wrote as it is.

    It escapes them in defaults, expressions, partitions' values and columns' comments, but neither in the comments of tables,
    partitions and indexes nor in the members of ENUM and SET. Its keywords are upper case: text that begins otherwise is not
    its own and stays as it is.
    """
    if "\\" not in query:
        return query
    pieces: list[str] = []
    found: list[Token] = []
    at = 0
    while match := (_AS_IT_IS if _is_raw(found, query, at) else TOKEN).match(query, at):
        kind = match.lastgroup or "string"
        raw = match.re is _AS_IT_IS
        text = match.group()
        pieces.append(text.replace("\\", "\\\\") if raw else text)
        if kind not in ("space", "comment"):
            found.append(Token(kind, text, match.start(), match.end(), _depth(found, text if kind == "symbol" else "")))
        at = match.end()
    return "".join(pieces) + query[at:]


def _depth(found: Sequence[Token], text: str) -> int:
    """Number of open parentheses around the next token."""
    depth = found[-1].depth + (found[-1].kind == "symbol" and found[-1].text == "(") if found else 0
    return max(0, depth - 1) if text == ")" else depth


def _is_raw(found: Sequence[Token], query: str, at: int) -> bool:
    """Whether a string begins at `at` whose backslashes stand for themselves; `found`: the tokens before it."""
    if query[at : at + 1] != "'" or len(found) < 2 or not found[0].text.isupper():  # noqa: PLR2004 - a word and what follows it
        return False
    if found[-1].upper == "COMMENT":
        return _defines_index(found[:-1])
    return (found[-2].upper, found[-1].text) == ("COMMENT", "=") or _is_member(found)


def _is_member(found: Sequence[Token]) -> bool:
    """Whether a string behind these tokens is a member of an ENUM or SET."""
    if found[-1].text not in ("(", ","):
        return False
    inside = _depth(found, "")
    opening = next((i for i in range(len(found) - 1, 0, -1) if found[i].depth < inside), 0)
    return found[opening - 1].upper in _MEMBERS and found[opening - 2].kind in ("quoted", "word")


def _defines_index(found: Sequence[Token]) -> bool:
    """Whether the part of a statement that ends with these tokens defines an index."""
    depth = _depth(found, "")
    first = len(found)
    while first and not (
        found[first - 1].depth < depth or (found[first - 1].depth == depth and found[first - 1].text == ",")
    ):
        first -= 1
    part = list(found[first:])
    if has_words(part[:2], "ALTER", "TABLE"):
        part = part[5 if len(part) > 3 and part[3].text == "." else 3 :]  # noqa: PLR2004 - a database's name and a dot more
    words = [token.upper for token in part[:2]] + [""] * 2
    return words[1 if words[0] in ("ADD", "CREATE") else 0] in _INDEXES


# collations


def introducers(statement: Statement) -> list[Edit]:
    """Take ``_UTF8MB4`` off the strings of expressions: it brings the target's default collation, the session's is the source's.

    A default, a partition's value or a comment that is a string and nothing else has no collation of its own; it stays.
    """
    found = statement.found
    places = [(0, len(found))] if has_words(found, "VIEW") else list(_expressions(found))
    return [
        (token.start, token.end, "")
        for first, last in places
        for token, string in pairwise(found[first:last])
        if token.upper == "_UTF8MB4" and string.kind == "string"
    ]


def _expressions(found: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Ranges of the expressions in a statement: of generated columns, of defaults in parentheses, of indexes."""
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
    """Defaults of TIMESTAMP columns in the zone of our session: the text has that of an unknown session, the schema file UTC."""
    known: Mapping[str, TableColumn] = {column.name.casefold(): column for column in statement.columns}
    edits: list[Edit] = []
    for _, name, part in column_parts(statement.found, statement.parts):
        column = known.get(name.casefold())
        literal = _default(part)
        if column is None or column.type != "TIMESTAMP" or column.default is None or literal is None:
            continue
        try:
            right = from_utc(statement.zone, column.default)
        except ValueError:
            continue
        if occurs_twice(statement.zone, right):
            raise NotReplicable(
                f"{statement.table}: the default of {name} is {column.default} in UTC, {right} in {statement.zone}, where that hour "
                "occurs twice: the target might take the other one"
            )
        if right != literal.text.strip("'"):
            edits.append((literal.start, literal.end, f"'{right}'"))
    return edits


def _default(part: Sequence[Token]) -> Token | None:
    """The moment behind DEFAULT, a string or a number, with or without an introducer before it."""
    for at, token in enumerate(part):
        if token.upper == "DEFAULT":
            following = [t for t in part[at + 1 : at + 3] if not t.upper.startswith("_") and t.upper != "TIMESTAMP"]
            return following[0] if following and _is_literal(following[0]) else None
    return None


def _is_literal(token: Token) -> bool:
    return token.kind == "string" or token.text.isdecimal()
