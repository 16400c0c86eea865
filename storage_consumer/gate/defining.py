"""CREATE TABLE after its name, and the pieces of it that ALTER TABLE and CREATE INDEX share."""

from __future__ import annotations

from storage_consumer.gate.clauses import Cursor, Vocabulary
from storage_consumer.gate.words import (
    ELEMENT,
    EXPRESSION,
    INDEX_OPTIONS,
    NEVER_NAMES,
    OPTIONS,
    PARTITION,
    SPLITS,
    TYPES,
)
from storage_consumer.model import folded_name

_INTRODUCES = frozenset(
    (
        "PRIMARY",
        "KEY",
        "INDEX",
        "UNIQUE",
        "FULLTEXT",
        "SPATIAL",
        "VECTOR",
        "COLUMNAR",
        "HYBRID",
        "CONSTRAINT",
        "FOREIGN",
        "CHECK",
    )
)
"""First words of a definition that is not a column's."""


def created_table(cursor: Cursor) -> None:
    """Check what follows the name in CREATE TABLE; raise `Refusal` for anything but a copy's source, or columns and options."""
    if cursor.take("LIKE"):
        cursor.name()
        cursor.finish()
    elif cursor.upper() == "(" and cursor.upper(1) == "LIKE":
        cursor.need("(", "LIKE")
        cursor.name()
        cursor.need(")")
        cursor.finish()
    else:
        first, last = cursor.group()
        elements(cursor, first, last)
        cursor.at = last + 1
        options(cursor)


def elements(cursor: Cursor, first: int, last: int) -> None:
    """Check the comma-separated definitions in [first, last)."""
    found = cursor.found
    ground = found[first - 1].depth + 1
    commas = [
        at
        for at in range(first, last)
        if found[at].depth == ground and found[at].text == "," and found[at].kind == "symbol"
    ]
    starts = [first, *(at + 1 for at in commas)]
    # All column names first: a generated column may refer to one that is defined after it.
    cursor.names.update(
        folded_name(found[at].name) for at in starts if at < last and found[at].kind in ("quoted", "word")
    )
    for start, end in zip(starts, [*commas, last], strict=True):
        element(cursor, start, end, ground)


def element(cursor: Cursor, first: int, last: int, ground: int) -> None:
    """Check the definition of one column, index or constraint."""
    token = cursor.found[first] if first < last else None
    if token is not None and token.upper in _INTRODUCES:
        cursor.check(first, last, Vocabulary(ground=ground, words=ELEMENT, inside=EXPRESSION, lists=True))
        return
    cursor.at = first
    is_name = token is not None and (
        token.kind == "quoted" or (token.kind == "word" and token.upper not in NEVER_NAMES)
    )
    # A column is a name and a type of TiDB. What else could be here is the grammar of another server.
    if not is_name or first + 1 >= last or cursor.found[first + 1].upper not in TYPES:
        raise cursor.refusal()
    cursor.check(first + 1, last, Vocabulary(ground=ground, words=ELEMENT, inside=EXPRESSION, lists=True))


def options(cursor: Cursor) -> None:
    """Check the options of a table up to the end of the statement, with or without PARTITION BY and what splits regions."""
    first, found = cursor.at, cursor.found
    # How regions are split comes last.
    last = next(
        (at for at in range(first, len(found)) if found[at].upper == "SPLIT" and not found[at].depth), len(found)
    )
    is_start = (
        at
        for at in range(first, last)
        if found[at].depth == 0 and [t.upper for t in found[at : at + 2]] == ["PARTITION", "BY"]
    )
    # From PARTITION BY on other words count.
    end = next(is_start, last)
    cursor.check(first, end, Vocabulary(ground=0, words=OPTIONS | {"UNION"}, assigns=False))
    partitions(cursor, end, last)
    splits(cursor, last, len(found))
    cursor.at = len(found)


def partitions(cursor: Cursor, first: int, last: int) -> None:
    """Check PARTITION BY and the partitions that it defines."""
    words = PARTITION | {"TO"}
    cursor.check(first, last, Vocabulary(ground=0, words=words, inside=PARTITION | EXPRESSION, assigns=False))


def splits(cursor: Cursor, first: int, last: int) -> None:
    """Check how a table or an index is split into regions."""
    cursor.check(first, last, Vocabulary(ground=0, words=SPLITS))


def index_tail(cursor: Cursor, last: int) -> None:
    """Check the columns and options of an index up to `last` (exclusive)."""
    cursor.check(cursor.at, last, Vocabulary(ground=0, words=INDEX_OPTIONS | EXPRESSION, lists=True))
    cursor.at = last
