"""How servers read one text: with the content of TiDB's own comments and without it. A text on which they may disagree is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from storage_consumer.gate.comments import (
    FOREIGN_DEFINER,
    NotForHere,
    Refusal,
    refuse_names_in_comments,
    refuse_unknown_features,
)
from storage_consumer.sql.statement import Statement, statement_of
from storage_consumer.sql.tokens import Token, pieces

_OF_TIDB = re.compile(r"/\*T!(?:\[(?P<features>[a-z0-9_,]*)\])?(?P<content>.*)\*/", re.DOTALL)
_OF_RESTORER = re.compile(r"/\* (?:TableOption|AlterTable)[A-Za-z]{1,40} is not supported \*/", re.ASCII)
"""What TiDB writes after an option that it accepts without effect; a plain comment for every server."""
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
    """Yield the statement as TiDB reads it, then as other servers do if that differs; raise `Refusal` for a text that is not allowed."""
    plain = _checked(sql)
    opened = _opened(sql)
    if opened != sql:
        read = _checked(opened)
        refuse_names_in_comments(plain.tokens, read.tokens)
        yield read
    yield plain


def _opened(sql: str) -> str:
    """Return the text with the content of TiDB's comments opened, each character at its place; raise `Refusal` for other comments."""
    parts: list[str] = []
    at = 0
    for kind, start, end in pieces(sql):
        if kind == "space" and not _SPACE.fullmatch(sql, start, end):
            raise Refusal("it has white space that servers read in different ways")
        if kind != "comment" or _OF_RESTORER.fullmatch(sql, start, end) or _is_hint(sql, start, end):
            continue
        found = _OF_TIDB.fullmatch(sql, start, end)
        if found is None:
            raise Refusal(f"it has a comment that is not of TiDB's own form: {sql[start:end][:60]}")
        content = found["content"]
        refuse_unknown_features(found["features"])
        if _NESTED.search(content):
            raise Refusal("it has a comment inside a comment")
        # The content has to be complete: no string or parenthesis may span the border of the comment.
        _checked(content)
        first, last = found.span("content")
        # Spaces replace the marks, so that tokens of both readings can be compared by their place.
        parts += (sql[at:start], " " * (first - start), content, " " * (end - last))
        at = end
    return "".join((*parts, sql[at:]))


def _is_hint(sql: str, start: int, end: int) -> bool:
    """Return whether a comment after SELECT is a hint for the plan, which changes no result on any server."""
    of_view = _VIEW.match(sql) is not None and _AFTER_SELECT.search(sql, max(0, start - 12), start) is not None
    return of_view and _HINT.fullmatch(sql, start, end) is not None and not _SETS.search(sql, start, end)


def _checked(sql: str) -> Statement:
    """Return the tree of a text that is unambiguous except for TiDB's comments; raise `Refusal` for any other."""
    statement = statement_of(sql)
    found, depth = statement.tokens, 0
    for at, token in enumerate(found):
        if token.kind == "string" and _may_be_name(found, at):
            raise Refusal(f"it has a string where a name may be: {token.text[:60]}")
        if token.kind == "word" and not token.text.isascii():
            raise Refusal(f"it has an unquoted word that is not ASCII: {token.text[:60]}")
        if token.kind != "symbol":
            continue
        depth += (token.text == "(") - (token.text == ")")
        if depth < 0 or token.text not in _SYMBOLS:
            raise _unexpected(found, at)
        # Before an operand, -- is two minus signs to every server; before anything else some server may read a comment.
        if token.text == "-" and _AMBIGUOUS.match(sql, token.start):
            raise Refusal("it has --, which some server reads as a comment")
    if depth:
        raise Refusal("its parentheses are not closed")
    return statement


def _may_be_name(found: Sequence[Token], at: int) -> bool:
    """Return whether a string is next to a dot, or in double quotes before a parenthesis: a name where ANSI_QUOTES is on."""
    before, after = found[at - 1 : at], found[at + 1 : at + 2]
    around = [token.text for token in (*before, *after) if token.kind == "symbol"]
    is_called = found[at].text[0] == '"' and [token.text for token in after] == ["("]
    return "." in around or is_called


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
