"""A DDL as tokens and comma-separated parts, and which parts a server of MySQL's or MariaDB's kind cannot use. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from storage_consumer.model import TableColumn
from storage_consumer.sql_text import Token, closing, elements, find_words, has_words

_SEARCH = ("FULLTEXT", "VECTOR", "HYBRID", "COLUMNAR")
INDEX_WORDS = ("INDEX", "KEY")

Edit = tuple[int, int, str]
"""Start, end, and what stands there instead."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as tokens, with the comma-separated parts that it has."""

    found: Sequence[Token]
    collation: str | None
    """Default collation of its database on the target, None if that is not known or not there."""
    indexes: frozenset[str] | None
    """Folded names of the indexes that its table has on the target, None if they were not asked for."""
    body: tuple[int, int]
    """Indexes of the parentheses around the columns of a CREATE TABLE, (-1, -1) for any other statement."""
    parts: tuple[tuple[int, int], ...]
    """Ranges [first, last): the definitions in a CREATE TABLE, the actions of an ALTER TABLE, else the whole statement."""
    columns: tuple[TableColumn, ...] = ()
    """What the schema file tells of the table after the statement."""
    zone: str = "UTC"
    """Time zone of the session in which it will run."""


def statement_of(found: Sequence[Token], collation: str | None, indexes: frozenset[str] | None) -> Statement:
    """Find the parts of a statement."""
    opening, end = _create_body(found)
    if end >= 0:
        parts = elements(found, opening, end)
    elif (first := _first_action(found)) > 0:
        commas = [i for i in range(first, len(found)) if found[i].text == "," and found[i].depth == 0]
        parts = list(_ranges(first, commas, len(found)))
    else:
        parts = [(0, len(found))]
    return Statement(found, collation, indexes, (opening, end), tuple(parts))


def _ranges(first: int, separators: Sequence[int], end: int) -> Sequence[tuple[int, int]]:
    """[first, end) cut at the separators, which belong to no part."""
    starts = [first, *(at + 1 for at in separators)]
    return list(zip(starts, [*separators, end], strict=True))


def _first_action(found: Sequence[Token]) -> int:
    """Index of the first token behind the name in an ALTER TABLE, -1 for any other statement."""
    if len(found) < 3 or (found[0].upper, found[1].upper) != ("ALTER", "TABLE"):  # noqa: PLR2004 - with the table's name
        return -1
    return 5 if len(found) > 3 and found[3].text == "." else 3  # noqa: PLR2004 - a database's name and a dot more


def _create_body(found: Sequence[Token]) -> tuple[int, int]:
    if not found or found[0].upper != "CREATE" or find_words(found[:4], "TABLE") < 0:
        return -1, -1
    opening = next((i for i, t in enumerate(found) if t.kind == "symbol" and t.text == "("), -1)
    if opening < 0 or opening + 1 >= len(found) or found[opening + 1].upper == "LIKE":
        return -1, -1
    return opening, closing(found, opening)


def parts_left_out(statement: Statement, flavor: str) -> tuple[frozenset[int], list[str]]:
    """Which parts go, and why."""
    gone: dict[int, str] = {}
    for number, (first, last) in enumerate(statement.parts):
        part = statement.found[first:last]
        if reason := _reason_to_leave_out(part, statement, flavor):
            gone[number] = reason
    return frozenset(gone), list(dict.fromkeys(gone.values()))


def _reason_to_leave_out(part: Sequence[Token], statement: Statement, flavor: str) -> str:
    """Which difference takes this part out, empty if none does."""
    if flavor == "tidb" or not part:
        return ""
    words = [token.upper for token in part[:4]] + [""] * 4
    at = 1 if words[0] in ("ADD", "CREATE") else 0
    reasons = {
        "algorithm and lock": statement.body[1] < 0 and words[0] in ("ALGORITHM", "LOCK"),
        "check constraint": words[at] == "CHECK" or (words[at] == "CONSTRAINT" and "CHECK" in words[at + 1 : at + 3]),
        "search index": words[at] == "FULLTEXT" or (words[at] in _SEARCH and words[at + 1] in INDEX_WORDS),
        "missing index": _is_missing_index(part, statement.indexes),
        "expression index": flavor == "mariadb"
        and words[at] in (*INDEX_WORDS, "UNIQUE", "CONSTRAINT")
        and _over_expression(part),
    }
    return next((name for name, holds in reasons.items() if holds), "")


def _over_expression(part: Sequence[Token]) -> bool:
    """Whether an index definition has an expression among its columns: a parenthesis right inside its parentheses."""
    return any(a.text in ("(", ",") and a.kind == b.kind == "symbol" and b.text == "(" for a, b in pairwise(part))


def _is_missing_index(part: Sequence[Token], indexes: frozenset[str] | None) -> bool:
    """Whether a part drops, renames or alters an index that the target does not have."""
    if indexes is None or len(part) < 3 or part[0].upper not in ("DROP", "RENAME", "ALTER"):  # noqa: PLR2004 - verb, INDEX, name
        return False
    at = 4 if part[2].upper == "IF" else 2
    return part[1].upper in INDEX_WORDS and len(part) > at and part[at].name.casefold() not in indexes


def names_index(found: Sequence[Token]) -> bool:
    """Whether a statement drops, renames or alters an index, so that it matters which ones the target has."""
    return any(has_words(found, verb, index) for verb in ("DROP", "RENAME", "ALTER") for index in INDEX_WORDS)


def spans(statement: Statement, gone: frozenset[int]) -> list[tuple[int, int]]:
    """Where the text of these parts stands, each with one of the commas around it."""
    found = statement.found
    places: list[tuple[int, int]] = []
    kept_before = False
    for number, (first, last) in enumerate(statement.parts):
        if number not in gone:
            kept_before = True
        elif kept_before:
            places.append((found[first - 1].start, found[last - 1].end))
        else:
            places.append((found[first].start, found[last].end if last < len(found) else found[last - 1].end))
    return places
