"""CREATE TABLE after its name, and the pieces of it that ALTER TABLE shares."""

from __future__ import annotations

from storage_consumer.gate.clauses import Cursor, Vocabulary
from storage_consumer.gate.words import (
    ELEMENT,
    EXPRESSION,
    NEVER_NAMES,
    OPTIONS,
    PARTITION,
    SPLITS,
    TYPES,
)
from storage_consumer.model import folded_name
from storage_consumer.sql.statement import NAMES
from storage_consumer.sql.tokens import elements as split

_NO_COLUMN = "PRIMARY|KEY|INDEX|UNIQUE|FULLTEXT|SPATIAL|VECTOR|COLUMNAR|HYBRID|CONSTRAINT|FOREIGN|CHECK"
"""First words of a definition that is not a column's."""


def created_table(cursor: Cursor) -> None:
    """Check what follows the name in CREATE TABLE; raise `Refusal` for anything but a copy's source, or columns and options."""
    if cursor.take("LIKE"):
        cursor.name()
        cursor.finish()
    elif cursor.upper() == "(" and cursor.upper(1) == "LIKE":
        cursor.at += 2
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
    found, ground = cursor.found, cursor.found[first - 1].depth + 1
    parts = split(found, first - 1, last)
    # All column names first: a generated column may refer to one that is defined after it.
    cursor.names.update(folded_name(found[at].name) for at, end in parts if at < last and found[at].kind in NAMES)
    for start, end in parts:
        element(cursor, start, end, ground)


def element(cursor: Cursor, first: int, last: int, ground: int) -> None:
    """Check the definition of one column, index or constraint."""
    cursor.at = first
    words = Vocabulary(ground=ground, words=ELEMENT, lists=True)
    if first < last and cursor.sees(_NO_COLUMN):
        cursor.check(first, last, words)
        return
    is_name = first < last and cursor.kind() in NAMES and cursor.upper() not in NEVER_NAMES
    # A column is a name and a type of TiDB. What else could be here is the grammar of another server.
    if not is_name or first + 1 >= last or cursor.upper(1) not in TYPES:
        raise cursor.refusal()
    cursor.check(first + 1, last, words)


def options(cursor: Cursor) -> None:
    """Check the options of a table up to the end of the statement, with or without PARTITION BY and what splits regions."""
    first, end = cursor.at, len(cursor.found)
    # How regions are split comes last.
    last = next((at for at, _ in cursor.statement.find("SPLIT", first, depth=0)), end)
    # From PARTITION BY on other words count.
    begin = next((at for at, _ in cursor.statement.find("PARTITION BY", first, last, depth=0)), last)
    cursor.check(first, begin, Vocabulary(ground=0, words=OPTIONS | {"UNION"}, assigns=False))
    words = PARTITION | {"TO"}
    inside = PARTITION | EXPRESSION
    cursor.check(begin, last, Vocabulary(ground=0, words=words, inside=inside, assigns=False))
    cursor.check(last, end, Vocabulary(ground=0, words=SPLITS))
    cursor.at = end
