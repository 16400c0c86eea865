"""Indexes as MySQL and MariaDB take them. Each rule returns edits of the statement's text. Pure.

Where a server lacks a kind of index, a simpler one is created if possible, so that its name exists for later statements. It is
unique only if the source enforces the same uniqueness: a stricter key would refuse rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from storage_consumer.ddl.statement import Edit, Statement, index_columns
from storage_consumer.downstream.existing_names import PartNames
from storage_consumer.model import folded_name
from storage_consumer.sql.column_parts import INDEX_WORDS, column_parts
from storage_consumer.sql.tokens import Token, closing, elements, find_words, has_words, quote

STAND_IN = "primary_key"
"""Name of the unique key in the place of a primary key that MariaDB does not take."""
_VALUED = frozenset(("SECONDARY_ENGINE_ATTRIBUTE",))
_OF_STATEMENT = frozenset(("ALGORITHM", "LOCK"))
"""Options of CREATE INDEX that do not belong to the index."""


def partial(statement: Statement) -> list[Edit]:
    """Take WHERE off an ordinary index: it then holds all rows."""
    return [edit for part in _indexes(statement) if not _is_unique(part) for edit in _condition(part)]


def unique_partial(statement: Statement) -> list[Edit]:
    """Turn a unique index with WHERE into an ordinary one: rows outside its condition may have equal values."""
    edits: list[Edit] = []
    for part in _indexes(statement):
        if _is_unique(part) and (condition := list(_condition(part))):
            edits += condition
            at = find_words(part, "UNIQUE")
            # UNIQUE INDEX keeps its INDEX; UNIQUE alone has to become one.
            named = any(has_words(part[at + 1 : at + 2], word) for word in INDEX_WORDS)
            edits.append((part[at].start, part[at].end, "" if named else "INDEX"))
    return edits


def _condition(part: Sequence[Token]) -> Iterator[Edit]:
    """Yield the edit that removes an index's condition."""
    if (at := _behind_columns(part, "WHERE")) > 0:
        last = at
        # The condition goes up to the options of the statement or to the end of the part.
        while last + 1 < len(part) and not _ends_index(part, last + 1):
            last += 1
        yield part[at].start, part[last].end, ""


def _ends_index(part: Sequence[Token], at: int) -> bool:
    return part[at].depth == part[0].depth and part[at].upper in _OF_STATEMENT and has_words(part[at + 1 : at + 2], "=")


def options(statement: Statement) -> list[Edit]:
    """Take WITH PARSER, USING HASH and RTREE and SECONDARY_ENGINE_ATTRIBUTE off indexes."""
    edits: list[Edit] = []
    for part in _indexes(statement):
        for at in range(_columns_end(part) + 1, len(part) - 1):
            if part[at].depth != part[0].depth:
                continue
            if has_words(part[at : at + 2], "WITH", "PARSER") and at + 2 < len(part):
                edits.append((part[at].start, part[at + 2].end, ""))
            elif has_words(part[at : at + 2], "USING", "RTREE") or has_words(part[at : at + 2], "USING", "HASH"):
                edits.append((part[at].start, part[at + 1].end, ""))
            elif part[at].upper in _VALUED:
                value = min(at + 1 + (part[at + 1].text == "="), len(part) - 1)
                edits.append((part[at].start, part[value].end, ""))
    return edits


# indexes over expressions, on a server that has none


def columns_alone(statement: Statement) -> list[Edit]:
    """Take the expressions out of an index that is named after the column before them, so that its name is taken here too.

    Otherwise a later index would get that name here and another one at the source, and the wrong index would be dropped.
    """
    edits: list[Edit] = []
    for first, last in statement.parts:
        part = statement.found[first:last]
        if is_called_after_column(statement, part):
            opening = next(i for i, token in enumerate(part) if token.text == "(")
            inside = elements(part, opening, closing(part, opening))
            edits += [(part[a - 1].start, part[b - 1].end, "") for a, b in inside if part[a].text == "("]
            at = find_words(part, "UNIQUE")
            named = any(has_words(part[at + 1 : at + 2], word) for word in INDEX_WORDS)
            edits += [(part[at].start, part[at].end, "" if named else "INDEX")] if at >= 0 else []
    return edits


def is_called_after_column(statement: Statement, part: Sequence[Token]) -> bool:
    """Return whether ALTER TABLE adds an index over expressions that has no name and begins with a column."""
    at = opening_without_name(part)
    return statement.body[1] < 0 and at >= 0 and over_expression(part) and part[at + 1].text != "("


def over_expression(part: Sequence[Token]) -> bool:
    """Return whether an index definition has an expression among its columns: a parenthesis directly inside its parentheses."""
    return any(a.text in ("(", ",") and a.kind == b.kind == "symbol" and b.text == "(" for a, b in pairwise(part))


def opening_without_name(part: Sequence[Token]) -> int:
    """Return the index of the parenthesis where the columns of an unnamed index begin, -1 if the part is not such an index."""
    at = 1 if part and part[0].upper == "ADD" else 0
    words = [token.upper for token in part[at : at + 3]] + [""] * 3
    at += words[0] == "UNIQUE"
    at += words[int(words[0] == "UNIQUE")] in INDEX_WORDS
    begins = words[0] in (*INDEX_WORDS, "UNIQUE")
    return at if begins and at < len(part) and part[at].text == "(" else -1


# primary keys on generated columns


def generated_primary_key(statement: Statement) -> list[Edit]:
    """Turn a primary key on generated columns into a unique key with a name of its own."""
    generated = set((statement.names or PartNames()).generated)
    edits: list[Edit] = []
    for _, name, column in column_parts(statement.found, statement.parts):
        if (at := find_words(column, "GENERATED", "ALWAYS")) < 0:
            continue
        # Columns that this very statement defines may be in its primary key; those of the table come from the target.
        generated.add(folded_name(name))
        key = find_words(column, "PRIMARY", "KEY", depth=column[0].depth, start=at)
        if key > 0:
            edits.append((column[key].start, column[key + 1].end, ""))
            edits.append(
                # A key in a column's definition cannot have a name, so it becomes a part of its own behind the column.
                (column[-1].end, column[-1].end, f", {_added(statement)}UNIQUE KEY {quote(STAND_IN)}({quote(name)})")
            )
    for part in _indexes(statement):
        at = find_words(part, "PRIMARY", "KEY")
        if at >= 0 and generated & {folded_name(name) for name in index_columns(part)}:
            opening = next(i for i in range(at, len(part)) if part[i].text == "(")
            edits.append((part[at].start, part[opening].start, f"UNIQUE KEY {quote(STAND_IN)}"))
    return edits


def _added(statement: Statement) -> str:
    """Return what precedes a definition in this kind of statement."""
    return "" if statement.body[1] >= 0 else "ADD "


def dropped_primary_key(statement: Statement) -> list[Edit]:
    """Drop the unique key that stands in for a primary key."""
    there = statement.names or PartNames()
    found = statement.found
    return [
        (found[first + 1].start, found[first + 2].end, f"INDEX {quote(STAND_IN)}")
        for first, last in statement.parts
        if has_words(found[first:last], "DROP", "PRIMARY", "KEY")
        # A table with a real primary key drops that one, whatever else is called so.
        and "primary" not in there.indexes
        and STAND_IN in there.indexes
    ]


# where indexes are


def _indexes(statement: Statement) -> Iterator[Sequence[Token]]:
    """Yield the tokens of each index that is defined."""
    for first, last in statement.parts:
        part = statement.found[first:last]
        if defines_index(part) and _columns_end(part) > 0:
            yield part


def defines_index(part: Sequence[Token]) -> bool:
    """Return whether a part of a statement, or CREATE INDEX as a whole, defines an index."""
    words = [token.upper for token in part[:3]] + [""] * 3
    at = 1 if words[0] in ("ADD", "CREATE") else 0
    if words[0] == "CREATE":
        return words[1] in INDEX_WORDS or words[2] in INDEX_WORDS
    return words[at] in (*INDEX_WORDS, "UNIQUE", "PRIMARY", "CONSTRAINT") and "FOREIGN" not in words


def _is_unique(part: Sequence[Token]) -> bool:
    return has_words(part[:4], "UNIQUE")


def _columns_end(part: Sequence[Token]) -> int:
    """Return the index of the parenthesis that closes the columns of an index, -1 if there is none."""
    opening = next((i for i, token in enumerate(part) if token.text == "(" and token.kind == "symbol"), -1)
    return closing(part, opening) if opening > 0 else -1


def _behind_columns(part: Sequence[Token], word: str) -> int:
    """Return the index of a bare word after the columns of an index, outside parentheses; -1 if there is none."""
    return find_words(part, word, depth=part[0].depth, start=_columns_end(part) + 1)
