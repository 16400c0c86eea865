"""Tables that an operator leaves out for good, and all that statements mix with them: of these nothing is promised but a clear stop."""

from __future__ import annotations

from itertools import product

from storage_consumer.model import TableName
from tests.campaigns.simulation.names import Name, sql
from tests.campaigns.simulation.source import DATABASES, TABLES, Source, Table


class LeftOut:
    """The tables of the source that have to do with a skipped one, by number and by name."""

    def __init__(self, source: Source) -> None:
        """None is left out."""
        self._source = source
        self._since = 0
        self.names: frozenset[Name] = frozenset()
        self.uids: frozenset[int] = frozenset()

    def add(self, name: Name, since: int) -> None:
        """Leave out a table, in a target that has everything up to a tick and nothing that came later for sure."""
        self._since = min(self._since, since) if self.names else since
        self.names |= {name}
        self.spread()

    def spread(self) -> None:
        """Find what the source has done since then: whoever shares a name or a statement with one of them belongs to them."""
        while self.names:
            uids = {each.uid for each in self._source.known if self._names_of(each) & self.names}
            passing = set[Name]()
            for statement in self._source.statements.values():
                named = any(sql(name) in statement.text for name in self.names)
                if statement.tick > self._since and (named or statement.uids & uids):
                    uids |= statement.uids
                    # A cycle of renames has names that no table keeps.
                    passing |= {each.name for each in statement.files if each.name[1]}
                    passing |= {name for name in product(DATABASES, TABLES) if sql(name) in statement.text}
            names = self.names.union(
                passing, *(self._names_of(each) for each in self._source.known if each.uid in uids)
            )
            done = names == self.names
            self.names, self.uids = names, frozenset(uids)
            if done:
                return

    def has(self, name: TableName) -> bool:
        """Whether a table, or what has its name now, is one of them."""
        return (name.schema, name.table) in self.names

    def _names_of(self, table: Table) -> frozenset[Name]:
        """The names that a table has had since then."""
        former = [each.name for each in table.moments if each.tick <= self._since][-1:]
        return frozenset(former + [each.name for each in table.moments if each.tick > self._since])
