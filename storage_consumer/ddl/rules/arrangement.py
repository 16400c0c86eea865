"""A statement in the form that the other rules expect: what TiDB allows in several places goes where all servers want it. Pure.

TiDB's grammar is wider than MySQL's: the options of a column come in any order, ADD COLUMN takes a list with indexes in it, and its
parser writes IF EXISTS into comments of its own. What all servers read alike stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from storage_consumer.ddl.statement import Edit, statement_of
from storage_consumer.sql.column_parts import column_at, column_parts, is_text, type_end
from storage_consumer.sql.tokens import Token, closing, elements, find_words, has_words, replace_spans, tokens

_CONDITION = re.compile(r"/\*T! {0,3}(IF (?:NOT )?EXISTS) {0,3}\*/")
"""The comment as TiDB's parser writes it; of bounded length, so that the search is linear."""


def arranged(query: str, found: tuple[Token, ...]) -> tuple[str, tuple[Token, ...], list[str]]:
    """Return the statement in that form with its tokens, and the names of the differences that this resolved."""
    notes: list[str] = []
    for name, rule in (("IF EXISTS", _unfolded), ("list of columns", _lists), ("order of options", _orders)):
        text = rule(query, found)
        # Tokens carry places in the text, so a changed text needs new ones before the next rule reads it.
        if text != query:
            notes.append(name)
            query, found = text, tokens(text)
    return query, found, notes


def unfolded(query: str) -> str:
    """Take IF EXISTS and IF NOT EXISTS out of TiDB's comments, except in strings."""
    return _unfolded(query, tokens(query)) if "/*T!" in query else query


def _unfolded(query: str, found: Sequence[Token]) -> str:
    strings = [(token.start, token.end) for token in found if token.kind in ("string", "quoted")]
    edits: list[Edit] = []
    at = 0
    for match in _CONDITION.finditer(query):
        # Strings and matches both come in order, so one pass over each is enough.
        while at < len(strings) and strings[at][1] <= match.start():
            at += 1
        if at == len(strings) or match.start() < strings[at][0]:
            edits.append((match.start(), match.end(), f" {match[1]} "))
    return replace_spans(query, edits)


def _lists(query: str, found: Sequence[Token]) -> str:
    """Turn ADD COLUMN (a, b, INDEX (a)) into one action each, if the list has more than columns."""
    if not has_words(found[:2], "ALTER", "TABLE"):
        return query
    edits: list[Edit] = []
    for first, last in statement_of(found, None, None).parts:
        at = _list_at(found, first, last)
        end = closing(found, at) if at > 0 else -1
        if end < 0:
            continue
        inside = elements(found, at, end)
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
        edits.append((found[first].start, found[end].end, ", ".join(actions)))
    return replace_spans(query, edits)


def _list_at(found: Sequence[Token], first: int, last: int) -> int:
    """Return the index of the parenthesis that opens in ADD [COLUMN] [IF NOT EXISTS] (…), -1 for any other action."""
    at = first + 1 + has_words(found[first + 1 : first + 2], "COLUMN")
    at += 3 if has_words(found[at : at + 3], "IF", "NOT", "EXISTS") else 0
    is_list = has_words(found[first : first + 1], "ADD") and at < last and found[at].text == "("
    return at if is_list else -1


def _orders(query: str, found: Sequence[Token]) -> str:
    """Put GENERATED ALWAYS AS directly after the type and its collation."""
    if find_words(found, "GENERATED", "ALWAYS") < 0 or not has_words(found[:2], "TABLE"):
        return query
    edits: list[Edit] = []
    for _, _, column in column_parts(found, statement_of(found, None, None).parts):
        edits += _ordered(query, column)
    return replace_spans(query, edits)


def _ordered(query: str, column: Sequence[Token]) -> Iterator[Edit]:
    """Yield edits that move what is between type and expression after the expression, and a collation before it."""
    depth = column[0].depth
    at = next((i for i, token in enumerate(column) if token.upper == "GENERATED" and token.depth == depth), -1)
    # GENERATED, ALWAYS, AS, and the parenthesis
    opening = at + 3
    if at < 0 or opening >= len(column) or (end := closing(column, opening)) < 0:
        return
    # VIRTUAL or STORED belongs to the expression: what moves goes behind it.
    end += has_words(column[end + 1 : end + 2], "VIRTUAL") or has_words(column[end + 1 : end + 2], "STORED")
    behind = min(type_end(column), at)
    before = [(behind, at)] if behind < at else []
    collations = [
        i for i in range(behind, len(column) - 1) if column[i].upper == "COLLATE" and column[i].depth == depth
    ]
    if not before and not collations:
        return
    # In order already: the type, COLLATE with its name, the expression.
    if behind + 2 == at and collations == [behind] and is_text(column):
        return
    taken = [(column[i].start, column[i + 1].end) for i in collations]
    start, stop = column[behind].start, column[at].start
    early = replace_spans(query[start:stop], [(a - start, b - start, "") for a, b in taken if a < stop]).strip()
    # Only a text may have a collation, and only one.
    collation = "".join(f"{query[a:b]} " for a, b in taken[:1]) if is_text(column) else ""
    yield start, stop, collation
    # Collations before the expression are inside the span above, which is replaced as a whole.
    yield from ((a, b, "") for a, b in taken if a > stop)
    if early:
        yield column[end].end, column[end].end, f" {early}"
