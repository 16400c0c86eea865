"""Under which names tables are in the target, and the same statement with these names. Pure.

The rules are those of the new architecture's ``[[sink.dispatchers]]``: the first route that takes a table in is its own, and
``{schema}`` and ``{table}`` stand for the names in the bucket. A statement's names are found by its grammar (`sql.parse`), so
that only they change: with routes that change nothing, a text stays the same byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from storage_consumer.config.settings import Route
from storage_consumer.config.table_filter import TableRules, table_rules
from storage_consumer.errors import NotReplicable
from storage_consumer.model import DdlKind, NameAt, TableDefinition, TableName, folded_name
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import has_words, quote, replace_spans, tokens


class Routes:
    """The program's own routes."""

    def __init__(self, routes: Sequence[Route] = ()) -> None:
        """Compile the routes; earlier ones win."""
        self._routes: list[tuple[TableRules, Route]] = [(table_rules(route.matcher), route) for route in routes]

    def __bool__(self) -> bool:
        """Return whether there is any route."""
        return bool(self._routes)

    def target(self, name: TableName) -> TableName:
        """Return the target name of a table of the bucket; for a database, the one where a table without a route would be."""
        if not name.table:
            found = self.databases(name.schema)
            # If its tables go to several databases, it has no place of its own, and statements about it are not run.
            return TableName(schema=found[0], table="") if len(found) == 1 else name
        for rules, route in self._routes:
            if rules.matches(name.schema, name.table):
                return TableName(
                    schema=_filled(route.target_schema, name) or name.schema,
                    table=_filled(route.target_table, name) or name.table,
                )
        return name

    def databases(self, schema: str) -> tuple[str, ...]:
        """Return every target database that a table of this one may be in; one named after tables is returned as it is written."""
        found: dict[str, None] = {}
        for rules, route in self._routes:
            if rules.matches_schema(schema):
                found[(route.target_schema or schema).replace("{schema}", schema)] = None
                # By now every table of the database is taken: nothing is left for a later route, nor for the name without one.
                if rules.covers_schema(schema):
                    return tuple(found)
        found[schema] = None
        return tuple(found)

    def splits(self, schema: str) -> bool:
        """Return whether tables of this database may be in several databases of the target."""
        found = self.databases(schema)
        return len(found) > 1 or "{table}" in found[0]

    def shared(self, schema: str, known: Iterable[str]) -> str:
        """Return another of the bucket's `known` databases that shares a target database with this one, or an empty text."""
        own = {folded_name(each) for each in self.databases(schema)}
        for other in sorted(known):
            if folded_name(other) != folded_name(schema) and own & {folded_name(d) for d in self.databases(other)}:
                return other
        return ""


def _filled(text: str, name: TableName) -> str:
    """Return the text with both names filled in, in one pass, so that a name with a brace in it stays what it is."""
    parts = text.split("{schema}")
    return name.schema.join(part.replace("{table}", name.table) for part in parts)


def routed(definition: TableDefinition, routes: Routes, known: Iterable[str] = ()) -> TableDefinition:
    """Return the definition with the target's names, in the query too; `known`: all databases of the bucket that are taken.

    Raises `NotReplicable` for a statement about a database whose tables go to several, or share one with another's, and for
    one whose text does not show the table's name.
    """
    if not routes:
        return definition
    if not definition.name.table:
        return _database(definition, routes, known)
    own = routes.target(definition.name)
    if not definition.is_ddl:
        return replace(definition, name=own)
    named = [name for name in parsed(definition).names if name.table]
    _refuse_if_not_found(definition, routes, named)
    edits: list[tuple[int, int, str]] = []
    for name in named:
        edits += _edits(name, definition, own, routes)
    return replace(definition, name=own, query=replace_spans(definition.query, edits))


def _edits(name: NameAt, definition: TableDefinition, own: TableName, routes: Routes) -> list[tuple[int, int, str]]:
    """Return the edits for one name, if it may not stay; a view's table keeps its old name as an alias."""
    old = name.within(definition.name.schema)
    new = routes.target(old)
    # A column is qualified by the table's old name, which the table gets as an alias; only the database is another one.
    if name.qualifies:
        same = new.schema == old.schema
        return [] if same else [(name.start, name.end, f"{quote(new.schema)}.{quote(old.table)}")]
    # A name without a database stays so where it means that of the statement's own table, in which the statement runs.
    database = "" if not name.schema and new.schema == own.schema else f"{quote(new.schema)}."
    stays = new == old and (bool(name.schema) or not database)
    edits = [] if stays else [(name.start, name.end, f"{database}{quote(new.table)}")]
    # The view's columns go on naming the table as before.
    if name.alias_at >= 0 and new.table != old.table:
        edits.append((name.alias_at, name.alias_at, f" AS {quote(old.table)}"))
    return edits


def _refuse_if_not_found(definition: TableDefinition, routes: Routes, named: Sequence[NameAt]) -> None:
    """Raise `NotReplicable` if names cannot be found in a text of this kind, so that it would run on the wrong table."""
    ddl = parsed(definition)
    own = {definition.name.folded(), ddl.subject.folded()}
    if ddl.rename is not None:
        own.add(ddl.rename.old.folded())
    there = {n.within(definition.name.schema).folded() for n in named}
    # A text in which none of its own tables is found would run unchanged, which is right only if no route applies to them.
    if own & there or all(routes.target(name) == name for name in (definition.name, ddl.subject)):
        return
    raise NotReplicable(
        f"{definition.name}: the DDL of {definition.path} does not show where it names its table, so the route to "
        f"{routes.target(definition.name)} cannot be applied. Run it there manually"
    )


# databases


def _database(definition: TableDefinition, routes: Routes, known: Iterable[str]) -> TableDefinition:
    """Return the statement about a database, for the one database of the target that is its own."""
    schema = definition.name.schema
    targets, other = routes.databases(schema), routes.shared(schema, known)
    made = definition.ddl_type == DdlKind.CREATE_SCHEMA
    if routes.splits(schema) or (other and not made):
        raise NotReplicable(_several(definition, targets, other))
    return _renamed(definition, targets[0], made_before=bool(other))


def _renamed(definition: TableDefinition, schema: str, *, made_before: bool = False) -> TableDefinition:
    """Return the statement with another database's name; `made_before`: it may exist already."""
    query, named = definition.query, parsed(definition).names
    edits = [(name.start, name.end, quote(schema)) for name in named if name.schema != schema]
    found = tokens(query)
    # One word alone is no statement; it stays as it is, and is refused before it is sent.
    behind = found[1].end if len(found) > 1 else -1
    if behind >= 0 and not named and schema != definition.name.schema:
        edits = [(behind, behind, f" {quote(schema)}")]  # ALTER DATABASE of the session's own database
    # The statement of another database with the same place may have run first.
    if behind >= 0 and made_before and not has_words(found, "IF", "NOT", "EXISTS"):
        edits.append((behind, behind, " IF NOT EXISTS"))
    name = TableName(schema=schema, table="")
    return replace(definition, name=name, query=replace_spans(query, edits))


def _several(definition: TableDefinition, targets: Sequence[str], other: str) -> str:
    where = f"go to several databases ({', '.join(targets)})" if len(targets) > 1 else f"share {targets[0]} with others"
    shares = (
        f", one of which also takes those of {other}" if other and len(targets) > 1 else f" ({other})" if other else ""
    )
    remedy = (
        "drop the tables that came from it"
        if definition.ddl_type == DdlKind.DROP_SCHEMA
        else "make the same change there"
    )
    return (
        f"{definition.name}: with these routes its tables {where}{shares}, so {definition.path} is not a single "
        f"statement in the target: {definition.query[:200]}. Manually {remedy}"
    )
