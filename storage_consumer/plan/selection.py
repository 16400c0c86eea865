"""Which tables are taken, under which names: filter and routes, and what they do to statements.

A table that an operator skips is left out as one by the filter. A statement of a table that is left
out is not run. One that crosses the filter's edge is treated so:

* a rename out of the filter runs, as in TiCDC: the table keeps its rows under its new name, and
  gets no more;
* a rename into the filter, and an EXCHANGE PARTITION with a table that is left out, would bring
  rows that were never read: halt;
* a table LIKE one that is left out is created from the columns of its schema file;
* a view over tables that are left out is skipped where the target lacks one of them;
* a foreign key to a table that is left out stays: rows are written with `foreign_key_checks` off.

Routes follow the rules of the new architecture's ``[[sink.dispatchers]]``: the first route that
takes a table in is its own, and ``{schema}`` and ``{table}`` stand for the names in the bucket. A
statement's names are found by its grammar (`sql.parse`), so that only they change: with routes that
change nothing, a text stays the same byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from storage_consumer.config.parsers import why_reserved
from storage_consumer.config.settings import EventFilter, Route, Selecting
from storage_consumer.config.table_filter import (
    ALL_DDL,
    ALTER_TABLE,
    EVENTS,
    NO_ALTERATIONS,
    TableRules,
    table_rules,
)
from storage_consumer.errors import NotReplicable
from storage_consumer.model import DdlKind, NameAt, TableDefinition, TableName, folded_name
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_words import copy_commands
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import Token, find_words, has_words, quote, replace_spans, tokens


class Routes:
    """The program's own routes."""

    def __init__(self, routes: Sequence[Route] = ()) -> None:
        """Compile the routes; earlier ones win."""
        self._routes: list[tuple[TableRules, Route]] = [
            (table_rules(route.matcher), route) for route in routes
        ]

    def __bool__(self) -> bool:
        """Return whether there is any route."""
        return bool(self._routes)

    def target(self, name: TableName) -> TableName:
        """Return a table's target name; a database's, for a table without a route."""
        if not name.table:
            found = self.databases(name.schema)
            # If its tables go to several databases, it has no place of its own, and statements
            # about it are not run.
            return TableName(schema=found[0], table="") if len(found) == 1 else name
        for rules, route in self._routes:
            if rules.matches(name.schema, name.table):
                return TableName(
                    schema=_filled(route.target_schema, name) or name.schema,
                    table=_filled(route.target_table, name) or name.table,
                )
        return name

    def databases(self, schema: str) -> tuple[str, ...]:
        """Return every target database of this one's tables; a name with table kept as written."""
        found: dict[str, None] = {}
        for rules, route in self._routes:
            if rules.matches_schema(schema):
                found[(route.target_schema or schema).replace("{schema}", schema)] = None
                # By now every table of the database is taken: nothing is left for a later route,
                # nor for the name without one.
                if rules.covers_schema(schema):
                    return tuple(found)
        found[schema] = None
        return tuple(found)

    def splits(self, schema: str) -> bool:
        """Return whether tables of this database may be in several databases of the target."""
        found = self.databases(schema)
        return len(found) > 1 or "{table}" in found[0]

    def shared(self, schema: str, known: Iterable[str]) -> str:
        """Return another of the `known` databases that shares a target database, or ""."""
        own = {folded_name(each) for each in self.databases(schema)}
        for other in sorted(known):
            if folded_name(other) != folded_name(schema) and own & {
                folded_name(d) for d in self.databases(other)
            }:
                return other
        return ""


def _filled(text: str, name: TableName) -> str:
    """Return the text with both names filled in at once, so that braces in names stay."""
    parts = text.split("{schema}")
    return name.schema.join(part.replace("{table}", name.table) for part in parts)


def routed(
    definition: TableDefinition, routes: Routes, known: Iterable[str] = ()
) -> TableDefinition:
    """Return the definition and query with target names; `known`: all databases taken.

    Raises `NotReplicable` for a statement about a database whose tables go to several, or share one
    with another's, and for one whose text does not show the table's name.
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


def _edits(
    name: NameAt, definition: TableDefinition, own: TableName, routes: Routes
) -> list[tuple[int, int, str]]:
    """Return the edits of a name that must change; a view's table keeps it as alias."""
    old = name.within(definition.name.schema)
    new = routes.target(old)
    # A column is qualified by the table's old name, which the table gets as an alias; only the
    # database is another one.
    if name.qualifies:
        same = new.schema == old.schema
        return [] if same else [(name.start, name.end, f"{quote(new.schema)}.{quote(old.table)}")]
    # A name without a database stays so where it means that of the statement's own table, in which
    # the statement runs.
    database = "" if not name.schema and new.schema == own.schema else f"{quote(new.schema)}."
    stays = new == old and (bool(name.schema) or not database)
    edits = [] if stays else [(name.start, name.end, f"{database}{quote(new.table)}")]
    # The view's columns go on naming the table as before.
    if name.alias_at >= 0 and new.table != old.table:
        edits.append((name.alias_at, name.alias_at, f" AS {quote(old.table)}"))
    return edits


def _refuse_if_not_found(
    definition: TableDefinition, routes: Routes, named: Sequence[NameAt]
) -> None:
    """Raise `NotReplicable` if names cannot be found, so that another table would be hit."""
    ddl = parsed(definition)
    own = {definition.name.folded(), ddl.subject.folded()}
    if ddl.rename is not None:
        own.add(ddl.rename.old.folded())
    there = {n.within(definition.name.schema).folded() for n in named}
    # A text in which none of its own tables is found would run unchanged, which is right only if no
    # route applies to them.
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
    if routes.splits(schema) or (other and definition.ddl_type != DdlKind.CREATE_SCHEMA):
        is_split = len(targets) > 1
        where = (
            f"go to several databases ({', '.join(targets)})"
            if is_split
            else f"share {targets[0]} with others"
        )
        shares = f", one of which also takes those of {other}" if is_split else f" ({other})"
        is_drop = definition.ddl_type == DdlKind.DROP_SCHEMA
        remedy = "drop the tables that came from it" if is_drop else "make the same change there"
        raise NotReplicable(
            f"{definition.name}: with these routes its tables {where}{shares if other else ''}, so {definition.path} is not a single "
            f"statement in the target: {definition.query[:200]}. Manually {remedy}"
        )
    query, named, place = definition.query, parsed(definition).names, targets[0]
    edits = [(name.start, name.end, quote(place)) for name in named if name.schema != place]
    found = tokens(query)
    # One word alone is no statement; it stays as it is, and is refused before it is sent.
    behind = found[1].end if len(found) > 1 else -1
    if behind >= 0 and not named and place != schema:
        # ALTER DATABASE of the session's own database
        edits = [(behind, behind, f" {quote(place)}")]
    # The statement of another database with the same place may have run first.
    if behind >= 0 and other and not has_words(found, "IF", "NOT", "EXISTS"):
        edits.append((behind, behind, " IF NOT EXISTS"))
    return replace(
        definition, name=TableName(schema=place, table=""), query=replace_spans(query, edits)
    )


_OWN_DEFAULTS = frozenset(("UTF8MB4", "UTF8MB4_BIN"))
AT_A_START = "End the program and start it again"
"""How a remedy begins for no command on a table: target names are settled at a start."""


@dataclass(frozen=True, slots=True)
class _Ignoring:
    """One event filter, compiled."""

    tables: TableRules
    events: tuple[str, ...]
    expressions: tuple[re.Pattern[str], ...]


class Filter:
    """The program's filter: which tables are left out, which statements of others are not run.

    Names are compared without regard to case, TiDB's own rule: one table can lie under two paths
    that differ only in case.
    """

    def __init__(
        self,
        rules: Sequence[str] = (),
        event_filters: Sequence[EventFilter] = (),
        skipped: Collection[str] = (),
        only: TableName | None = None,
    ) -> None:
        """Compile `rules` of TiCDC's table filter (none: take all) and the event filters.

        `skipped`: tables, by key (see `key_of`), that an operator leaves out. `only`: of what the
        rules take, one table or one database.
        """
        self._skipped = frozenset(skipped)
        self._only = only and only.folded()
        self._tables = table_rules(tuple(rules)) if rules else None
        self._ignoring = [
            _Ignoring(
                table_rules(each.matcher),
                each.ignore_event,
                # One by one, as the settings were checked: joined, the flags and groups of one
                # would reach into another.
                tuple(re.compile(text, re.IGNORECASE) for text in each.ignore_sql),
            )
            for each in event_filters
        ]

    def leaves_out(self, name: TableName) -> bool:
        """Return whether a table is left out, or a database with no table to take."""
        if (only := self._only) is not None:
            own = name.folded()
            if own.schema != only.schema or (only.table and own.table and own.table != only.table):
                return True
        return self.skips(name) or (self._tables is not None and not _takes(self._tables, name))

    def skips(self, name: TableName) -> bool:
        """Return whether an operator leaves out a table."""
        # Asked for each statement and file: most feeds skip nothing.
        return bool(self._skipped) and bool(name.table) and key_of(name) in self._skipped

    def who_leaves_out(self, name: TableName) -> str:
        """Return who leaves out a table that is left out, for a message."""
        return "an operator" if self.skips(name) else "the filter"

    def ignores(self, definition: TableDefinition) -> str:
        """Return why the statement of a table that is taken is not run, or an empty text.

        As in TiCDC, a rename is judged by the table's old name.
        """
        if not self._ignoring or not definition.is_ddl:
            return ""
        ddl = parsed(definition)
        name = ddl.subject if ddl.rename is None else ddl.rename.old
        event = EVENTS.get(definition.ddl_type, "")
        for each in self._ignoring:
            if not _takes(each.tables, name):
                continue
            if found := _event(each.events, event, definition.ddl_type):
                return f"ignore-event {found!r} of an event filter"
            if match := next(
                filter(None, (one.search(definition.query) for one in each.expressions)), None
            ):
                return f"ignore-sql of an event filter, which matches {match[0][:80]!r}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What happens to a statement."""

    skip: str = ""
    """Why it is not run; empty if it is."""
    from_columns: bool = False
    """Whether the table is created from the columns of the schema file instead."""
    needs: frozenset[TableName] = frozenset()
    """Left-out tables by bucket names; the statement is skipped if the target lacks one."""


_RUN = Judgement()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The filter and the routes."""

    filter: Filter = field(default_factory=Filter)
    routes: Routes = field(default_factory=Routes)
    state_schema: str = "storage_consumer"

    @classmethod
    def of(
        cls, selecting: Selecting, state_schema: str, skipped: Collection[str] = ()
    ) -> Selection:
        """Build from the settings; `skipped`: tables, by key, that an operator leaves out."""
        return cls(
            filter=Filter(selecting.rules, selecting.event_filters, skipped),
            routes=Routes(selecting.routes),
            state_schema=state_schema,
        )

    def why_nowhere(self, name: TableName) -> str:
        """Return why a table or database has no target; empty if it has one or is left out."""
        if self.filter.leaves_out(name):
            return ""
        places = (
            (self.routes.target(name).schema,) if name.table else self.routes.databases(name.schema)
        )
        found = (
            (place, why) for place in places if (why := why_reserved(place, self.state_schema))
        )
        place, why = next(found, ("", ""))
        if not why:
            return ""
        remedy = (
            f"{AT_A_START} with a --route for it to another database, or with --filter '*.*' --filter '!{name.schema}.*' "
            "to leave it out"
        )
        return f"{name} would go into {place} of the target, which {why}. {remedy}"

    def refuse_reserved(self, definition: TableDefinition) -> None:
        """Raise `NotReplicable` for a target name that is a table of the state or server."""
        for name in parsed(definition).names:
            if name.schema and (why := why_reserved(name.schema, self.state_schema)):
                raise NotReplicable(
                    f"{definition.name}: the DDL with version {definition.version} ({definition.path}) names {name.schema}, which {why}"
                )

    def judged(self, definition: TableDefinition, *, of_copy: bool = False) -> Judgement:
        """Judge a statement whose names have their database unless it is the definition's.

        `of_copy`: whether it makes a table of a copy, or its database. Event filters are about what
        happened at the source, and not about these. Raises `NotReplicable` where it would bring
        rows of a table that is left out.
        """
        if not definition.is_ddl:
            return _RUN
        if not definition.name.table:
            return self._of_database(definition, of_copy=of_copy)
        # Asked first and raised last: a statement that the filter ignores brings no rows in.
        crossing = self._crossing(definition)
        subject = parsed(definition).subject
        if crossing is None and self.filter.leaves_out(subject):
            by_operator = self.filter.skips(subject)
            return Judgement(
                skip=f"{subject} is skipped by an operator"
                if by_operator
                else f"the filter leaves out {subject}"
            )
        if reason := "" if of_copy else self.filter.ignores(definition):
            return Judgement(skip=reason)
        if crossing:
            raise NotReplicable(crossing)
        return self._reading(definition)

    def judged_away(self, definition: TableDefinition) -> bool:
        """Return whether a statement of a database is not run."""
        return bool(self._of_database(definition).skip)

    def _of_database(self, definition: TableDefinition, *, of_copy: bool = False) -> Judgement:
        if self.filter.leaves_out(definition.name):
            return Judgement(skip=f"the filter leaves out every table of {definition.name}")
        if reason := "" if of_copy else self.filter.ignores(definition):
            return Judgement(skip=reason)
        splits = definition.ddl_type == DdlKind.CREATE_SCHEMA and self.routes.splits(
            definition.name.schema
        )
        # With defaults of its own it cannot be skipped; `routed` then refuses it.
        if splits and _source_defaults(tokens(definition.query)):
            targets = ", ".join(self.routes.databases(definition.name.schema))
            return Judgement(
                skip=f"its tables go to {targets}, each of which is created before its first table"
            )
        return _RUN

    def _crossing(self, definition: TableDefinition) -> str | None:
        """Return rows that a statement brings in; empty if it leads out; None if neither."""
        ddl = parsed(definition)
        if (rename := ddl.rename) is not None:
            left, entered = (
                self.filter.leaves_out(rename.old),
                not self.filter.leaves_out(rename.new),
            )
            # Both names are on the same side.
            if left != entered:
                return None
            return self._entering(definition, rename.old, rename.new) if left else ""
        if not ddl.exchanges_partition:
            return None
        named = [n.within(definition.name.schema) for n in ddl.names]
        out = [name for name in named if self.filter.leaves_out(name)]
        taken = [name for name in named if name not in out]
        return self._entering(definition, out[0], taken[0]) if out and taken else None

    def _entering(self, definition: TableDefinition, out: TableName, taken: TableName) -> str:
        return (
            f"the DDL of {definition.path} brings rows of {out}, which {self.filter.who_leaves_out(out)} leaves out, into {taken}: "
            f"those rows were not read. Give {taken} a copy of the source as of version {definition.version} or later, from an export by "
            f"`{copy_commands(taken)[0]}`, or with the TSO of one that you made yourself: {copy_commands(taken)[1]}"
        )

    def _reading(self, definition: TableDefinition) -> Judgement:
        """Judge a taken table's statement by what it reads of left-out tables."""
        ddl = parsed(definition)
        out = frozenset(
            name
            for n in ddl.names
            if n.reads and self.filter.leaves_out(name := n.within(definition.name.schema))
        )
        # A foreign key to a left-out table may stay: rows are written without these checks.
        if not out or ddl.has_references:
            return _RUN
        # Made LIKE a left-out table: the schema file lists the resulting columns.
        if ddl.creates_table:
            return Judgement(from_columns=True)
        return Judgement(needs=out)

    def owns_database(self, schema: str, known: Iterable[str]) -> bool:
        """Return whether a target database has exactly this one's tables; `known`: all taken."""
        return not self.routes or not (
            self.routes.splits(schema) or self.routes.shared(schema, known)
        )


def _takes(rules: TableRules, name: TableName) -> bool:
    return (
        rules.matches(name.schema, name.table) if name.table else rules.matches_schema(name.schema)
    )


def _event(ignored: Sequence[str], event: str, action: int) -> str:
    """Return the ignored event of a statement, or ""; TiCDC ignores no unknown kind."""
    if not event:
        return ""
    # As in TiCDC, some actions on a table are no part of its `alter table`.
    names = (event, ALL_DDL) if action in NO_ALTERATIONS else (event, ALL_DDL, ALTER_TABLE)
    return next((name for name in names if name in ignored), "")


def _source_defaults(found: Sequence[Token]) -> bool:
    """Return whether a CREATE DATABASE gives no other charset or collation than the default."""
    at = next(
        (i for i in range(len(found)) if found[i].upper in ("CHARACTER", "CHARSET", "COLLATE")),
        len(found),
    )
    words = {t.text.upper() for t in found[at:] if t.kind in ("word", "quoted")}
    return (
        find_words(found, "PLACEMENT") < 0
        and words - {"CHARACTER", "SET", "CHARSET", "COLLATE", "DEFAULT"} <= _OWN_DEFAULTS
    )
