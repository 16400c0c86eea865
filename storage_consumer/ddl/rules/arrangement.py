"""A statement in the form that the other rules expect: what TiDB allows in several places goes where all servers want it. Pure.

TiDB's grammar is wider than MySQL's: the options of a column come in any order, ADD COLUMN takes a list with indexes in it, and its
parser writes IF EXISTS into comments of its own. What all servers read alike stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from storage_consumer.ddl.statement import in_column
from storage_consumer.sql.statement import Column, Edit, Statement, column_at, statement_of
from storage_consumer.sql.tokens import elements, find_words, has_words, pieces, replace_spans

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
