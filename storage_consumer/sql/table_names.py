"""Find where a statement names tables and databases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from storage_consumer.model import NameAt
from storage_consumer.sql.tokens import Token, find_words
from storage_consumer.sql.view_sources import sources

_NAMES = ("quoted", "word")
_BEFORE_NAMES = frozenset(("TABLE", "VIEW", "REFERENCES"))
_BEFORE_SOURCES = frozenset(("LIKE", "REFERENCES"))
_OPENING = _BEFORE_NAMES | {"RENAME", "TO", ",", "LIKE", "ON", "TRUNCATE"}
"""Words after which `_opens` may find a name."""
_SKIPPED = frozenset(("IF", "NOT", "EXISTS", "TO", "AS", "=", "("))
_NO_TABLE = frozenset(("COLUMN", "INDEX", "KEY", "PARTITION"))


def table_names(found: Sequence[Token]) -> list[NameAt]:
    """Return every table, view or database that a statement names, in order, without columns, indexes and aliases.

    A view's column that is qualified with database and table counts as a name too.
    """
    if not found:
        return []
    first, second = found[0].upper, found[1].upper if len(found) > 1 else ""
    if second in ("DATABASE", "SCHEMA"):
        return list(_database(found, new=first == "CREATE"))
    body = _view_body(found, first)
    named = list(_tables(found[:body], first))
    return [*named, *sorted(_selected(found, body), key=lambda name: name.start)] if body < len(found) else named


def _view_body(found: Sequence[Token], first: str) -> int:
    """Return the index of the first token of a view's SELECT; the number of tokens if there is none."""
    view = find_words(found, "VIEW", depth=0) if first == "CREATE" else -1
    body = find_words(found, "AS", depth=0, start=view) if view > 0 else -1
    return body + 1 if body > 0 else len(found)


def _selected(found: Sequence[Token], body: int) -> Iterator[NameAt]:
    """Yield the tables that a view selects from, and the places where its columns name them with their database."""
    taken = set()
    for source in sources(found, body):
        first, last = found[source.at], found[source.at + source.length - 1]
        taken.add(source.at)
        yield NameAt(
            schema=first.name if source.length > 1 else "",
            table=last.name,
            start=first.start,
            end=last.end,
            reads=True,
            alias_at=-1 if source.aliased else found[source.end - 1].end,
        )
    # Three parts are a column with its table and database: a table in FROM has at most two.
    for at in range(body, len(found) - 4):
        one, dot, two, point, column = found[at : at + 5]
        named = one.kind in _NAMES and two.kind in _NAMES and (column.kind in _NAMES or column.text == "*")
        if named and dot.text == point.text == "." and at not in taken:
            yield NameAt(schema=one.name, table=two.name, start=one.start, end=two.end, reads=True, qualifies=True)


def _database(found: Sequence[Token], *, new: bool) -> Iterator[NameAt]:
    """Yield the name in a statement on a database; ALTER may leave it out."""
    at = _skip(found, 2)
    if at < len(found) and (found[at].kind == "quoted" or new or found[0].upper == "DROP" or at + 1 < len(found)):
        token = found[at]
        # Without a name ALTER DATABASE begins with an option, for the session's own database.
        if token.kind in _NAMES and token.upper not in ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT"):
            yield NameAt(schema=token.name, table="", start=token.start, end=token.end, new=new)


def _tables(found: Sequence[Token], first: str) -> Iterator[NameAt]:
    # What is replaced may exist already, and then the target's spelling of its name counts.
    creates = first == "CREATE" and find_words(found[:3], "OR", "REPLACE") < 0
    at = 0
    while at < len(found):
        token = found[at]
        if token.upper not in _OPENING:
            at += 1
            continue
        opens, new = _opens(found, at, first)
        following = _skip(found, at + 1) if opens else at + 1
        named = _name_at(found, following) if opens else None
        if named is None:
            at = following
            continue
        index, name = named
        is_new = new or (creates and token.upper in ("TABLE", "VIEW"))
        yield replace(name, new=is_new, reads=token.upper in _BEFORE_SOURCES)
        at = index


def _opens(found: Sequence[Token], at: int, first: str) -> tuple[bool, bool]:
    """Return whether a name follows the token, and whether the statement creates that name."""
    token, word = found[at], found[at].upper
    following = found[at + 1].upper if at + 1 < len(found) else ""
    if word == "RENAME" and first == "ALTER" and token.depth == 0:
        return following not in _NO_TABLE, True
    if word == "TO" and first in ("RENAME", "FLASHBACK"):
        return True, True
    opens = word in _BEFORE_NAMES
    # RENAME TABLE a TO b, c TO d and DROP TABLE a, b; elsewhere a comma separates columns, actions or options.
    if word == ",":
        opens = first in ("RENAME", "DROP") and token.depth == 0
    elif word == "LIKE":
        copies = token.depth == 0 or found[at - 1].text == "("  # elsewhere it compares texts
        opens = first == "CREATE" and find_words(found[:3], "TABLE") > 0 and copies
    # CREATE INDEX i ON t, DROP INDEX i ON t. Elsewhere it belongs to ON UPDATE, ON DELETE or a join.
    elif word == "ON":
        opens = token.depth == 0 and find_words(found[:4], "INDEX") > 0
    # TRUNCATE t. In TRUNCATE TABLE t the name follows TABLE; in ALTER TABLE … TRUNCATE PARTITION no table follows.
    elif word == "TRUNCATE":
        opens = at == 0 and following != "TABLE"
    return opens, False


def _skip(found: Sequence[Token], at: int) -> int:
    """Return the index of the first token after the words that may separate a keyword from its name."""
    while at < len(found) and found[at].upper in _SKIPPED:
        at += 1
    return at


def _name_at(found: Sequence[Token], at: int) -> tuple[int, NameAt] | None:
    """Return the index after the name at an index, and the name; None if there is no name."""
    if at >= len(found) or found[at].kind not in _NAMES or found[at].upper in ("SELECT", "PARTITION"):
        return None
    one = found[at]
    if at + 2 < len(found) and found[at + 1].text == "." and found[at + 2].kind in _NAMES:
        two = found[at + 2]
        return at + 3, NameAt(schema=one.name, table=two.name, start=one.start, end=two.end)
    return at + 1, NameAt(schema="", table=one.name, start=one.start, end=one.end)
