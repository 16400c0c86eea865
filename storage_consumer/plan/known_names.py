"""What follows from the names of all known tables, computed once until a new table appears. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from storage_consumer.model import TableName
from storage_consumer.plan.barriers import KnownTables
from storage_consumer.plan.routes import Routes
from storage_consumer.plan.table import TableConsumer


class TableNames:
    """The names of the tables at one time; each part is computed when it is first used."""

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
        """The databases of all tables that are taken."""
        return frozenset(table.name.schema for table in self._tables.values() if not table.left_out)

    @cached_property
    def alike(self) -> tuple[frozenset[str], ...]:
        """The keys of tables that share a name in the target by the routes, one set per shared name."""
        if not self._routes:
            return ()
        keys: dict[TableName, set[str]] = defaultdict(set)
        for table in self._tables.values():
            if table.name.table and not table.left_out:
                keys[self._routes.target(table.name).folded()].add(table.key)
        return tuple(frozenset(found) for found in keys.values() if len(found) > 1)
