"""What filter and routes mean for known tables: statements that were not run, names in the target that are shared. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from storage_consumer.errors import ConfigError
from storage_consumer.model import TableDefinition, TableName
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.lifetimes import Lifetimes
from storage_consumer.plan.routes import Routes
from storage_consumer.plan.selection import Selection
from storage_consumer.plan.table import HALTED, TableConsumer
from storage_consumer.plan.table_words import shell_word, table_flag, table_word

NOWHERE = TableName(schema="", table="")
"""The place of a table of which nothing could be put into the target."""
_SHOWN = 200


def note_ignored(table: TableConsumer, definition: TableDefinition, selection: Selection) -> None:
    """Record a statement that an event filter keeps from running: the target's structure may no longer fit the rows."""
    if not table.left_out and selection.filter.ignores(definition):
        table.ignored[definition.version] = f"{definition.query[:_SHOWN]} ({definition.path})"


def place_of(table: TableConsumer, routes: Routes) -> TableName | None:
    """Return where a table's rows are in the target, for the state to remember; None without routes, where it is the name in the bucket."""
    if (table.misplaced or table.nowhere) and table.checkpoint < table.first:
        return NOWHERE
    return routes.target(table.name) if routes else None


def sharing_a_name(alike: Iterable[AbstractSet[str]], tables: Mapping[str, TableConsumer]) -> dict[str, frozenset[str]]:
    """Return key of a table → keys of all tables that have its name in the target over time; `alike`: see `TableNames`."""
    placed = [frozenset(key for key in keys if not tables[key].misplaced) for keys in alike]
    return {key: keys for keys in placed if len(keys) > 1 for key in keys}


def nowhere(tables: Iterable[TableConsumer]) -> dict[str, str]:
    """Return the tables that have no place in the target and were not halted for it yet; key → error."""
    return {table.key: table.nowhere for table in tables if table.nowhere and table.state != HALTED}


def collisions(
    alike: Iterable[AbstractSet[str]], tables: Mapping[str, TableConsumer], routes: Routes, lifetimes: Lifetimes
) -> dict[str, str]:
    """Return tables that would be written to a name in the target where another table is at the same time; key → error.

    Two tables of one name do not collide if all that is known of the one ends, by a DROP or another name, before the other
    begins. Of two that collide the one that began later is named, unless it is halted already.
    """
    found: dict[str, str] = {}
    for keys in alike:
        ordered = sorted((tables[key] for key in keys if tables[key].versions), key=lambda t: (t.first, t.key))
        for place, table in enumerate(ordered):
            before = [other for other in ordered[:place] if other.key not in found]
            if other := next((o for o in before if not _is_over(o, table.first, lifetimes.ends_of(o))), None):
                table.misplaced = True
                found[table.key] = (
                    f"the routes send {table.name} and {other.name} to {routes.target(table.name)} at the same time: "
                    "rows of one would overwrite those of the other. Give one of them its own route, or leave it out "
                    "with --filter"
                )
    return {key: error for key, error in found.items() if tables[key].state != HALTED}


def _is_over(table: TableConsumer, version: int, ends: AbstractSet[int]) -> bool:
    """Return whether nothing is known of a table after the last statement that ended it, which came before `version`."""
    last = max(ends, default=-1)
    return last < version and all(number <= last for number, _ in table.versions)


def refuse_other_places(restart: Restart, routes: Routes) -> None:
    """Raise `ConfigError` if the current routes map a table to another target than earlier runs used."""
    for _, (name, place) in sorted(restart.targets.items()):
        now = routes.target(name)
        if place != NOWHERE and now.folded() != place.folded():
            raise ConfigError(
                f"the rows of {name} are in {place} of the target; with the current routes they would go to {now}. "
                "Restore the earlier routes, or rename the table in the target and run `storage-consumer table moved "
                f"{table_flag(name)} --to {shell_word(table_word(now))}`"
            )
