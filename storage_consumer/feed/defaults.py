"""What default a statement gives a column, as far as its text alone tells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from storage_consumer.exports.create_table import string_value
from storage_consumer.model import folded_name
from storage_consumer.sql.statement import statement_of
from storage_consumer.sql.tokens import Token, closing

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.$])")
_PREFIXED = frozenset(("N", "X", "B"))
"""What may stand right before the quote of a literal."""
_PLAIN_CHARSETS = frozenset(("_UTF8", "_UTF8MB3", "_UTF8MB4"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The default of one column in a statement."""

    kind: Literal["none", "string", "number", "literal", "expression", "unseen"]
    """``none``: there is none, or NULL. ``literal``: one of another form, such as 0x41 or TRUE. ``expression``: each row may have its own value.
    ``unseen``: the statement does not define the column."""
    text: str | None = None
    """Of a string or number."""


def default_in(query: str, name: str) -> Given:
    """Return the default that a statement gives a column. `name`: folded."""
    for column in statement_of(query).columns:
        if folded_name(column.name) == name and column.verb in ("", "ADD"):
            given = column.defaults()
            return _literal(query, column.tokens[given[0] :], is_whole=False) if given else Given(kind="none")
    return Given(kind="unseen")


def _literal(query: str, part: Sequence[Token], *, is_whole: bool) -> Given:
    """Return what a text begins with. `is_whole`: whether nothing may follow it, else it is an expression."""
    begin = 1 if part and part[0].text.startswith("_") else 0
    rest = part[begin:]
    if not rest:
        return Given(kind="unseen")
    first = rest[0]
    if first.text == "(":
        end = closing(rest, 0)
        return _literal(query, rest[1:end], is_whole=True)
    if first.kind == "string":
        is_plain = first.text.startswith("'") and (not begin or part[0].upper in _PLAIN_CHARSETS)
        strings = sum(1 for each in rest[:2] if each.kind == "string")
        if is_whole and any(each.kind != "string" for each in rest):
            return Given(kind="expression")
        return (
            Given(kind="string", text=string_value(first.text)) if is_plain and strings == 1 else Given(kind="literal")
        )
    if number := _NUMBER.match(query, first.start):
        is_rest = is_whole and number.end() != rest[-1].end
        return Given(kind="expression") if is_rest else Given(kind="number", text=number[0])
    return _word(rest, is_whole=is_whole)


def _word(rest: Sequence[Token], *, is_whole: bool) -> Given:
    """Return what a word is that begins a default, or a symbol."""
    first = rest[0]
    is_prefix = first.upper in _PREFIXED and len(rest) > 1 and rest[1].kind == "string" and rest[1].start == first.end
    if is_whole and len(rest) > 1 + is_prefix:
        return Given(kind="expression")
    if first.upper == "NULL":
        return Given(kind="none")
    is_literal = first.text[:1].isdigit() or first.upper in ("TRUE", "FALSE") or is_prefix
    # A sign apart from its number, say, is no expression outside of parentheses.
    return Given(kind="literal" if is_literal or first.kind != "word" else "expression")
