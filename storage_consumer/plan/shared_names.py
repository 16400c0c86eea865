"""What routes mean for known tables: names in the target that are shared, or that were others before. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.lifetimes import Lifetimes
from storage_consumer.plan.routes import Routes
from storage_consumer.plan.selection import AT_A_START, Selection
from storage_consumer.plan.table import TableConsumer
from storage_consumer.plan.table_words import shell_word, table_flag, table_word

_OVERWRITTEN = f"rows of one would overwrite those of the other. {AT_A_START} with another --route for one of them, or with a --filter to leave it out"
NOWHERE = TableName(schema="", table="")
"""The place of a table of which nothing could be put into the target."""


def place_of(table: TableConsumer, routes: Routes) -> TableName | None:
    """Return where a table's rows are in the target, for the state to remember; None without routes, where it is the name in the bucket."""
    status = table.status
    # Nothing of it was written yet. Once rows are there, their place is what counts.
    if (status.misplaced or status.nowhere) and table.checkpoint < table.files.first:
        return NOWHERE
    return routes.target(table.name) if routes else None


def sharing_a_name(alike: Iterable[AbstractSet[str]], tables: Mapping[str, TableConsumer]) -> dict[str, frozenset[str]]:
    """Return key of a table → keys of all tables that have its name in the target over time; `alike`: see `TableNames`."""
    # A table that is refused its place holds up nobody.
    placed = [frozenset(key for key in keys if not tables[key].status.misplaced) for keys in alike]
    return {key: keys for keys in placed if len(keys) > 1 for key in keys}


def collisions(
    alike: Iterable[AbstractSet[str]], tables: Mapping[str, TableConsumer], routes: Routes, lifetimes: Lifetimes
) -> dict[str, str]:
    """Return tables that would be written to a name in the target where another table is at the same time; key → error.

    Two tables of one name do not collide if all that is known of the one ends, by a DROP or another name, before the other
    begins. Of two that collide the one that began later is named.
    """
    found: dict[str, str] = {}
    for keys in alike:
        ordered = sorted((tables[key] for key in keys if _begin_of(tables[key])), key=lambda t: (_begin_of(t), t.key))
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
    """Return from which commit-ts on a table is in the target, by its files and its copy; 0 if it is not."""
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
    names: Iterable[TableName], selection: Selection, there: Iterable[tuple[TableName, TableName]] = ()
) -> None:
    """Raise `ConfigError` if a table of a copy has no place of its own in the target. `there`: names in bucket and target of what is there."""
    places = {place.folded(): name for name, place in there}
    for name in names:
        if why := selection.why_nowhere(name):
            raise ConfigError(why)
        place = selection.routes.target(name)
        other = places.setdefault(place.folded(), name)
        if other.folded() != name.folded():
            raise ConfigError(f"the routes send {name} and {other} to {place}: {_OVERWRITTEN}")


def refuse_other_places(restart: Restart, routes: Routes) -> None:
    """Raise `ConfigError` if the current routes map a table to another target than earlier runs used."""
    for _, (name, place) in sorted(restart.targets.items()):
        now = routes.target(name)
        # A table of which nothing is in the target may go anywhere.
        if place != NOWHERE and now.folded() != place.folded():
            raise ConfigError(
                f"the rows of {name} are in {place} of the target; with the current routes they would go to {now}. "
                "Restore the earlier routes, or rename the table in the target and run `storage-consumer table moved "
                f"{table_flag(name)} --to {shell_word(table_word(now))}`"
            )
