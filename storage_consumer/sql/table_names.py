"""Find where a statement names tables and databases, and rewrite these names as the target spells them.

Statements are stored as TiDB ran them. A name may differ in case from the name that its table was created with, since
TiDB ignores case. A name without a database means the session's database, which is not recorded; see
`plan.unqualified_names`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from storage_consumer.model import TableDefinition, TableName, folded_name
from storage_consumer.sql.tokens import Token, find_words, quote, replace_spans, tokens
from storage_consumer.sql.view_sources import sources

_NAMES = ("quoted", "word")
_BEFORE_NAMES = frozenset(("TABLE", "VIEW", "REFERENCES"))
_BEFORE_SOURCES = frozenset(("LIKE", "REFERENCES"))
_SKIPPED = frozenset(("IF", "NOT", "EXISTS", "TO", "AS", "=", "("))
_NO_TABLE = frozenset(("COLUMN", "INDEX", "KEY", "PARTITION"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NameAt:
    """The name of a table, or of a database (empty table), and its place in a statement."""

    schema: str
    """Empty if the statement does not name the database."""
    table: str
    start: int
    end: int
    new: bool = False
    """Whether the statement creates this name."""
    reads: bool = False
    """Whether the statement only reads this table: what LIKE copies, a parent table, what a view selects from."""
    alias_at: int = -1
    """Where an alias may be inserted if a view gives the table none; otherwise -1."""
    qualifies: bool = False
    """Whether the name qualifies a column of a view."""


def table_names(query: str) -> list[NameAt]:
    """Return every table, view or database that the statement names, in order, without columns, indexes and aliases.

    A view's column that is qualified with database and table counts as a name too.
    """
    return named_by(tokens(query))


def named_by(found: Sequence[Token]) -> list[NameAt]:
    """Return what `table_names` does, for a statement that is already split into tokens."""
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
        if token.kind in _NAMES and token.upper not in ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT"):
            yield NameAt(schema=token.name, table="", start=token.start, end=token.end, new=new)


def _tables(found: Sequence[Token], first: str) -> Iterator[NameAt]:
    creates = first == "CREATE" and find_words(found[:3], "OR", "REPLACE") < 0
    at = 0
    while at < len(found):
        token = found[at]
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
    if word == ",":
        opens = first in ("RENAME", "DROP") and token.depth == 0
    elif word == "LIKE":
        copies = token.depth == 0 or found[at - 1].text == "("  # elsewhere it compares texts
        opens = first == "CREATE" and find_words(found[:3], "TABLE") > 0 and copies
    elif word == "ON":
        opens = token.depth == 0 and find_words(found[:4], "INDEX") > 0
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


# the same statement with the target's names

Existing = Mapping[TableName, TableName]
"""Folded name → the name as the target spells it, for tables and databases (empty table) that exist there."""


def looked_up(definition: TableDefinition) -> set[TableName]:
    """Return the folded names whose spelling matters to `with_real_names`."""
    own = definition.name.folded()
    wanted = {own, replace(own, table="")}
    for name in table_names(definition.query):
        schema = folded_name(name.schema) or own.schema
        wanted |= {TableName(schema=schema, table=folded_name(name.table)), TableName(schema=schema, table="")}
    return wanted


def with_homes(
    definition: TableDefinition, existing: Existing, elsewhere: Callable[[NameAt], TableName | None]
) -> TableDefinition:
    """Return the definition with its unqualified names qualified, where they mean another database than the definition's own.

    `elsewhere` returns for each of them the table that it means, or None to leave it unchanged.
    """
    edits = []
    for name in table_names(definition.query):
        if name.table and not name.schema and not name.new and (home := elsewhere(name)) is not None:
            real = existing.get(home.folded(), home)
            edits.append((name.start, name.end, f"{quote(real.schema)}.{quote(real.table)}"))
    return replace(definition, query=replace_spans(definition.query, edits)) if edits else definition


def with_real_names(definition: TableDefinition, existing: Existing) -> TableDefinition:
    """Return the definition with its names as the target spells them, in the query too.

    Names that the statement creates keep their spelling.
    """
    own = definition.name
    schema = _schema(own.schema, existing)
    named = table_names(definition.query)
    edits = [(n.start, n.end, text) for n in named if (text := _respelled(n, own, existing))]
    real = existing.get(own.folded())
    creates = any(name.new and folded_name(name.table) == folded_name(own.table) for name in named)
    table = real.table if real is not None and own.table and not creates else own.table
    return replace(
        definition,
        name=TableName(schema=schema, table=table),
        query=replace_spans(definition.query, edits) if edits else definition.query,
    )


def _schema(schema: str, existing: Existing) -> str:
    real = existing.get(TableName(schema=folded_name(schema), table=""))
    return schema if real is None else real.schema


def _respelled(name: NameAt, own: TableName, existing: Existing) -> str:
    """Return the replacement for a name; empty if the name can stay."""
    if not name.table:
        schema = _schema(name.schema, existing)
        return "" if name.new or schema == name.schema else quote(schema)
    if not name.schema:
        real = existing.get(TableName(schema=own.schema, table=name.table).folded(), own)
        return quote(real.table) if not name.new and real is not own and real.table != name.table else ""
    schema = _schema(name.schema, existing)
    there = existing.get(TableName(schema=name.schema, table=name.table).folded())
    table = name.table if name.new or there is None else there.table
    return "" if (schema, table) == (name.schema, name.table) else f"{quote(schema)}.{quote(table)}"
