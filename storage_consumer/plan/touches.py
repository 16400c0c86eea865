"""Which tables each statement is a barrier for, by the names of all tables that are known. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

from storage_consumer.model import DdlId, TableName, folded_name
from storage_consumer.plan.barriers import KnownTables, renamed_keys, touched_keys
from storage_consumer.plan.directories import Catalog
from storage_consumer.plan.lifetimes import Lifetimes
from storage_consumer.plan.planner import PendingDdl, PendingDdls
from storage_consumer.plan.routes import Routes
from storage_consumer.plan.shared_names import sharing_a_name
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table import TableConsumer


class TableNames:
    """What follows from the names of all tables at one time; each part is computed when it is first used."""

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
        """The databases of all tables that are taken, or that an operator has left out: those stay in the target as they are."""
        return frozenset(
            table.name.schema for table in self._tables.values() if not table.status.left_out or table.status.skipped
        )

    @cached_property
    def alike(self) -> tuple[frozenset[str], ...]:
        """The keys of tables that share a name in the target by the routes, one set per shared name."""
        # Without routes tables have their own names in the target, and these differ as their keys do.
        if not self._routes:
            return ()
        keys: dict[TableName, set[str]] = defaultdict(set)
        for table in self._tables.values():
            if table.name.table and not table.status.left_out:
                keys[self._routes.target(table.name).folded()].add(table.key)
        return tuple(frozenset(found) for found in keys.values() if len(found) > 1)


class Touches:
    """The tables that statements touch; found again only where there are new tables or statements."""

    def __init__(self, backlog: Iterable[DdlStep], catalog: Catalog, routes: Routes, lifetimes: Lifetimes) -> None:
        """Begin with the statements and tables that are known now. `backlog`: the statements that have not run, now and later."""
        self._backlog = backlog
        self._catalog = catalog
        self._lifetimes = lifetimes
        self._routes = routes
        self.renew()

    def renew(self) -> None:
        """Note that there are other tables than before, or other names in the target, or statements that `update` was not told of."""
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
        """Return the tables, by key, that a queued statement, or one inferred from those, is a barrier for."""
        known = self._all()
        if step.identity not in known:
            self._catalog.table(step.name)  # nothing else may know the table that an inferred one names
            known[step.identity] = self._touched_by(step)
        return known[step.identity]

    def held_up(self, step: DdlStep) -> list[str]:
        """Return the tables, by key, that stand still while a statement cannot run: its own, or where that is left out those it names.

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
        """Let tables go on that wait for a view of one that stands still, by key; return whether there are any."""
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
        """Return the statements that have not run, each with the tables that it touches and with names that exist only during a rename."""
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
        # Tables that have one name in the target, one after the other, wait for each other's statements.
        return frozenset(touched.union(*(self._sharing.get(key, ()) for key in touched)))

    def namesakes(self, table: str, step: DdlStep) -> list[TableConsumer]:
        """Return the tables of this name, in any database, that exist right before a statement."""
        named = (self._catalog.tables[key] for key in sorted(self.names.known.by_table.get(folded_name(table), ())))
        return [t for t in named if self._is_there(t, step.version)]

    def _is_there(self, table: TableConsumer, version: int) -> bool:
        """Return whether a table exists right before a version, whatever has become of it since: a view may be tried again much later."""
        if table.timeline.stays_after(version):
            return True
        ends = self._lifetimes.ends_of(table)
        if table.status.dropped and not ends.has_within(version, table.checkpoint):
            return False
        return table.files.first < version and not table.timeline.is_free_before(version, ends)

    def beyond(self, step: DdlStep) -> list[TableConsumer]:
        """Return touched tables that were applied beyond a statement, or are copies that already hold its effects.

        There are none unless the statement came late, or only some of the tables that it touches were copied. A view only reads them.
        """
        if step.alters_no_table:
            return []
        tables = (self._catalog.tables[key] for key in sorted(self.of(step)))
        gone = key_of(pair[0]) if (pair := step.ddl.renamed) is not None and pair[0] != pair[1] else ""
        # A table that begins after the statement cannot be beyond it, unless a copy has taken the place of what the statement moves.
        known = [t for t in tables if 0 < t.files.first <= step.version or (t.key == gone and t.files.first)]
        return [t for t in known if t.checkpoint > step.version or t.copies.copied_at >= step.version]
