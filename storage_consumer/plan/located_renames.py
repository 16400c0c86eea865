"""From which database a rename took its table whose effect is in a copy, by what the bucket shows and by what else the copy has. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from storage_consumer.errors import NotReplicable
from storage_consumer.model import DdlId, TableName, folded_name
from storage_consumer.plan.lifetimes import Lifetimes
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table import TableConsumer
from storage_consumer.plan.unqualified_names import Namesake, homes, of_any_database
from storage_consumer.sql.parse import with_homes


class LocatedRenames:
    """The renames up to a copy whose statements leave the old name's database open: they never run, so that no target shows it."""

    def __init__(self, floor: int, based: Collection[str]) -> None:
        """Begin without any. `floor`: the TSO of the copy that the feed began with, 0 for none; `based`: keys of the tables in copies."""
        self._floor = floor
        self._based = based
        self._open: list[DdlStep] = []
        self._located: dict[DdlId, DdlStep] = {}

    def note(self, step: DdlStep, copied_at: int) -> None:
        """Keep a statement if it is such a rename. `copied_at`: the TSO of its table's own copy, 0 for none."""
        rename = step.ddl.rename
        if rename is not None and rename.from_anywhere and step.version <= max(self._floor, copied_at):
            self._open.append(step)

    def locate(self, tables: Iterable[TableConsumer], lifetimes: Lifetimes) -> None:
        """Find out of which database each is, once all statements beside it are known; one that stays open is so until its turn comes."""
        known = list(tables) if self._open else []
        # In order: what one of them took away, a later one cannot mean.
        for step in self._open:
            (name,) = of_any_database(step.definition)
            named = [table for table in known if folded_name(table.name.table) == folded_name(name.table)]
            there = [t for t in named if not t.timeline.is_free_before(step.version, lifetimes.ends_of(t))]
            try:
                meant = homes(step.definition, {name: [self._namesake(table, step.version) for table in there]})
            except NotReplicable:
                continue
            # Where nothing is known of such a table, nobody's is taken for it.
            own = {name: TableName(schema=step.name.schema, table=name.table)}
            located = replace(step, definition=with_homes(step.definition, {}, meant or own))
            lifetimes.ends(step.table_key, located.definition)
            self._located[step.identity] = located
        self._open.clear()

    def _namesake(self, table: TableConsumer, version: int) -> Namesake:
        before = table.timeline.structure_at(version - 1)
        in_copy = table.key in self._based and not table.timeline.has_statement(version, self._floor)
        stays = in_copy or table.timeline.stays_after(version)
        return Namesake(name=table.name, columns=before.columns if before else (), stays=stays)

    def of(self, steps: Iterable[DdlStep]) -> list[DdlStep]:
        """Return statements, those of them with the database that was found."""
        return [self._located.get(step.identity, step) for step in steps]
