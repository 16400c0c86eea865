"""Which tables a statement is a barrier for, and which share a target name by routes. No I/O.

Naming too many tables costs a little waiting; naming too few would let rows overtake a statement.
So where a statement can touch other tables at all, every known table whose name occurs in its text
counts as touched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from storage_consumer.errors import ConfigError
from storage_consumer.model import DdlId, DdlKind, TableDefinition, TableName, folded_name
from storage_consumer.plan.directories import Catalog, Restart
from storage_consumer.plan.planner import PendingDdl, PendingDdls
from storage_consumer.plan.selection import AT_A_START, Routes, Selection
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table import Lifetimes, TableConsumer
from storage_consumer.plan.table_words import shell_word, table_flag, table_word
from storage_consumer.plan.unqualified_names import of_any_database
from storage_consumer.sql.parse import parsed


@dataclass(frozen=True, slots=True)
class KnownTables:
    """The known tables (and databases), by their folded names."""

    keys: frozenset[str]
    by_schema: Mapping[str, frozenset[str]]
    """Folded database → keys of its tables, and its own."""
    by_table: Mapping[str, frozenset[str]]
    """Folded table name → keys of the tables of that name, whatever their database."""
    stand_ins: frozenset[str] = frozenset()
    """Keys of those without a schema file: only data files lie in a folder of that name."""

    @classmethod
    def of(cls, names: Iterable[TableName], stand_ins: frozenset[str] = frozenset()) -> KnownTables:
        """Build from names in any spelling."""
        by_schema, by_table = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for name in names:
            folded, key = name.folded(), key_of(name)
            by_schema[folded.schema].add(key)
            if folded.table:
                by_table[folded.table].add(key)
        return cls(
            keys=frozenset(key for keys in by_schema.values() for key in keys),
            by_schema={schema: frozenset(keys) for schema, keys in by_schema.items()},
            by_table={table: frozenset(keys) for table, keys in by_table.items()},
            stand_ins=stand_ins,
        )


def touched_keys(definition: TableDefinition, known: KnownTables) -> set[str]:
    """Return known tables that a DDL is a barrier for: for a database's, all in it.

    A name that may belong to any database touches all tables of that name. A folder without a
    schema file may be one that somebody left there: it holds up only a DROP DATABASE, which would
    remove its rows.
    """
    if not definition.name.table:
        inside = set(known.by_schema.get(folded_name(definition.name.schema), ()))
        return inside if definition.ddl_type == DdlKind.DROP_SCHEMA else inside - known.stand_ins
    ddl = parsed(definition)
    # The names may be any words of the statement; those that no table has fall out here.
    touched = {key_of(name) for name in (ddl.subject, *ddl.mentioned)} & known.keys
    for name in of_any_database(definition):
        touched |= known.by_table.get(folded_name(name.table), frozenset())
    return touched


def renamed_keys(definition: TableDefinition) -> frozenset[str]:
    """Return a rename's names as keys, known or not: renames of a cycle may share unseen ones."""
    return frozenset(map(key_of, parsed(definition).renamed or ()))


_OVERWRITTEN = f"rows of one would overwrite those of the other. {AT_A_START} with another --route for one of them, or with a --filter to leave it out"
NOWHERE = TableName(schema="", table="")
"""The place of a table of which nothing could be put into the target."""


def place_of(table: TableConsumer, routes: Routes) -> TableName | None:
    """Return a table's target for the state; None without routes, where the name is its own."""
    status = table.status
    # Nothing of it was written yet. Once rows are there, their place is what counts.
    if (status.misplaced or status.nowhere) and table.checkpoint < table.files.first:
        return NOWHERE
    return routes.target(table.name) if routes else None


def sharing_a_name(
    alike: Iterable[AbstractSet[str]], tables: Mapping[str, TableConsumer]
) -> dict[str, frozenset[str]]:
    """Return table key → keys of tables with its target name over time; `alike`: `TableNames`."""
    # A table that is refused its place holds up nobody.
    placed = [frozenset(key for key in keys if not tables[key].status.misplaced) for keys in alike]
    return {key: keys for keys in placed if len(keys) > 1 for key in keys}


def collisions(
    alike: Iterable[AbstractSet[str]],
    tables: Mapping[str, TableConsumer],
    routes: Routes,
    lifetimes: Lifetimes,
) -> dict[str, str]:
    """Return tables whose target name another table has at the same time; key → error.

    Two tables of one name do not collide if all that is known of the one ends, by a DROP or another
    name, before the other begins. Of two that collide the one that began later is named.
    """
    found: dict[str, str] = {}
    for keys in alike:
        ordered = sorted(
            (tables[key] for key in keys if _begin_of(tables[key])),
            key=lambda t: (_begin_of(t), t.key),
        )
        for place, table in enumerate(ordered):
            # A table that is refused itself writes nothing, so it is in nobody's way.
            before = [other for other in ordered[:place] if other.key not in found]
            began = _begin_of(table)
            if other := next((o for o in before if not _is_over(o, began, lifetimes)), None):
                found[table.key] = (
                    f"the routes send {table.name} and {other.name} to {routes.target(table.name)} at the same time: {_OVERWRITTEN}"
                )
    return found


def _begin_of(table: TableConsumer) -> int:
    """Return the commit-ts from which a table is in the target, by files and copy; or 0."""
    return min(filter(None, (table.files.first, _copied_at(table))), default=0)


def _copied_at(table: TableConsumer) -> int:
    """Return the TSO of the copy that a table was made from, or is being made from; 0 for none."""
    return table.loaded_from or table.copies.copied_at


def _is_over(table: TableConsumer, version: int, lifetimes: Lifetimes) -> bool:
    """Return whether nothing is known of a table after it ended, before a version."""
    ends = lifetimes.ends_of(table)
    if (ends.last or 0) < _copied_at(table) and not table.status.dropped:
        return False
    return table.timeline.is_over(version, ends)


def refuse_shared_places(
    names: Iterable[TableName],
    selection: Selection,
    there: Iterable[tuple[TableName, TableName]] = (),
) -> None:
    """Raise `ConfigError` if a copy's table shares its target with another.

    `there`: names of existing tables in bucket and target.
    """
    places = {place.folded(): name for name, place in there}
    for name in names:
        if why := selection.why_nowhere(name):
            raise ConfigError(why)
        place = selection.routes.target(name)
        other = places.setdefault(place.folded(), name)
        if other.folded() != name.folded():
            raise ConfigError(f"the routes send {name} and {other} to {place}: {_OVERWRITTEN}")


def refuse_other_places(restart: Restart, routes: Routes) -> None:
    """Raise `ConfigError` if the routes now map a table elsewhere than earlier runs did."""
    for _, (name, place) in sorted(restart.targets.items()):
        now = routes.target(name)
        # A table of which nothing is in the target may go anywhere.
        if place != NOWHERE and now.folded() != place.folded():
            raise ConfigError(
                f"the rows of {name} are in {place} of the target; with the current routes they would go to {now}. "
                "Restore the earlier routes, or rename the table in the target and run `storage-consumer table moved "
                f"{table_flag(name)} --to {shell_word(table_word(now))}`"
            )


class TableNames:
    """What follows from all tables' names at one time, each part computed at first use."""

    def __init__(self, tables: Mapping[str, TableConsumer], routes: Routes) -> None:
        """Use `tables` by key; tables added later may be missed."""
        self._tables = tables
        self._routes = routes

    @cached_property
    def known(self) -> KnownTables:
        """The known tables by database and by name, for statements that name them."""
        stand_ins = frozenset(key for key, table in self._tables.items() if table.is_stand_in)
        return KnownTables.of((table.name for table in self._tables.values()), stand_ins)

    @cached_property
    def databases(self) -> frozenset[str]:
        """Databases of all tables taken, or left out by an operator, which the target keeps."""
        return frozenset(
            table.name.schema
            for table in self._tables.values()
            if not table.status.left_out or table.status.skipped
        )

    @cached_property
    def alike(self) -> tuple[frozenset[str], ...]:
        """Keys of tables that share a target name by the routes, one set per shared name."""
        # Without routes tables keep their own names, which differ as their keys do.
        if not self._routes:
            return ()
        keys: dict[TableName, set[str]] = defaultdict(set)
        for table in self._tables.values():
            if table.name.table and not table.status.left_out:
                keys[self._routes.target(table.name).folded()].add(table.key)
        return tuple(frozenset(found) for found in keys.values() if len(found) > 1)


class Touches:
    """Tables that statements touch; found again only for new tables or statements."""

    def __init__(
        self, backlog: Iterable[DdlStep], catalog: Catalog, routes: Routes, lifetimes: Lifetimes
    ) -> None:
        """Begin with known statements and tables; `backlog`: pending ones, now and later."""
        self._backlog = backlog
        self._catalog = catalog
        self._lifetimes = lifetimes
        self._routes = routes
        self.renew()

    def renew(self) -> None:
        """Note other tables, target names, or statements unknown to `update`."""
        self.names = TableNames(self._catalog.tables, self._routes)
        self._known: dict[DdlId, frozenset[str]] | None = None
        self._pending: PendingDdls | None = None
        self._renamings = self._catalog.renamings

    def update(self, queued: Iterable[DdlStep], dropped: Iterable[DdlStep]) -> None:
        """Note that statements were queued, or dropped from the queue."""
        # Statements that wait may name a table that has come only now.
        if self._catalog.renamings != self._renamings:
            self.renew()
        if self._known is None:
            return
        for step in dropped:
            self.forget(step)
        for step in queued:
            self._known[step.identity] = self._touched_by(step)
            if self._pending is not None:
                self._pending.add(self._with_touches(step, self._known))

    def of(self, step: DdlStep) -> frozenset[str]:
        """Return tables, by key, that a queued or inferred statement is a barrier for."""
        known = self._all()
        if step.identity not in known:
            # nothing else may know the table that an inferred one names
            self._catalog.table(step.name)
            known[step.identity] = self._touched_by(step)
        return known[step.identity]

    def held_up(self, step: DdlStep) -> list[str]:
        """Return keys of tables that wait while a statement cannot run: its own, or named ones.

        Nobody looks at a table that is left out, nor can an operator resume it.
        """
        # First, since it is what makes the table of an inferred one known.
        touched = self.of(step)
        if not self._catalog.tables[step.table_key].status.excluded:
            return [step.table_key]
        named = {key_of(name.within(step.name.schema)) for name in step.ddl.names} & touched
        taken = [key for key in sorted(named) if not self._catalog.tables[key].status.excluded]
        return taken or [step.table_key]

    def hold_up_nobody(self, keys: Iterable[str]) -> bool:
        """Release tables, by key, that wait for a halted one's view; return whether any do."""
        pending, found = self.pending(), False
        for key in keys:
            for ddl in (each for each in pending.views(key) if len(each.touches) > 1):
                self._all()[ddl.step.identity] = frozenset({key})
                pending.add(self._with_touches(ddl.step, self._all()))
                found = True
        return found

    def forget(self, step: DdlStep) -> None:
        """Note that a statement is done."""
        self._all().pop(step.identity, None)
        if self._pending is not None:
            self._pending.remove(step.identity)

    def pending(self) -> PendingDdls:
        """Return pending statements with tables they touch, and names existing only in a rename."""
        if self._pending is None:
            known = self._all()
            self._pending = PendingDdls(self._with_touches(step, known) for step in self._backlog)
        return self._pending

    def _with_touches(self, step: DdlStep, known: Mapping[DdlId, frozenset[str]]) -> PendingDdl:
        # With names that exist only during a rename, and so belong to no table.
        touches = known[step.identity] | renamed_keys(step.definition)
        return PendingDdl(step=step, touches=touches, stops=frozenset(self.held_up(step)))

    def _all(self) -> dict[DdlId, frozenset[str]]:
        if self._known is None:
            self._sharing = sharing_a_name(self.names.alike, self._catalog.tables)
            self._known = {step.identity: self._touched_by(step) for step in self._backlog}
        return self._known

    def _touched_by(self, step: DdlStep) -> frozenset[str]:
        touched = touched_keys(step.definition, self.names.known) | {step.table_key}
        # Tables that share a target name in turn wait for each other's statements.
        return frozenset(touched.union(*(self._sharing.get(key, ()) for key in touched)))

    def namesakes(self, table: str, step: DdlStep) -> list[TableConsumer]:
        """Return the tables of this name, in any database, that exist right before a statement."""
        named = (
            self._catalog.tables[key]
            for key in sorted(self.names.known.by_table.get(folded_name(table), ()))
        )
        return [t for t in named if self._is_there(t, step.version)]

    def _is_there(self, table: TableConsumer, version: int) -> bool:
        """Return whether a table existed right before a version, as late retries of views ask."""
        if table.timeline.stays_after(version):
            return True
        ends = self._lifetimes.ends_of(table)
        if table.status.dropped and not ends.has_within(version, table.checkpoint):
            return False
        return table.files.first < version and not table.timeline.is_free_before(version, ends)

    def beyond(self, step: DdlStep) -> list[TableConsumer]:
        """Return touched tables applied beyond a statement, or copies with its effects.

        There are none unless the statement came late, or only some of the tables that it touches
        were copied. A view only reads them.
        """
        if step.alters_no_table:
            return []
        tables = (self._catalog.tables[key] for key in sorted(self.of(step)))
        gone = (
            key_of(pair[0]) if (pair := step.ddl.renamed) is not None and pair[0] != pair[1] else ""
        )
        # A table that begins after the statement cannot be beyond it, unless a copy has taken the
        # place of what the statement moves.
        known = [
            t
            for t in tables
            if 0 < t.files.first <= step.version or (t.key == gone and t.files.first)
        ]
        return [
            t for t in known if t.checkpoint > step.version or t.copies.copied_at >= step.version
        ]
