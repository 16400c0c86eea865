"""Statements that came when a copy of their table had their effects already: they are not run. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from storage_consumer.model import DdlKind, TableName
from storage_consumer.plan.ddl_backlog import DdlBacklog
from storage_consumer.plan.directories import Catalog
from storage_consumer.plan.in_order import Together
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table import TableConsumer
from storage_consumer.plan.touches import Touches


def is_covered(
    step: DdlStep, tables: Mapping[str, TableConsumer], touched: Callable[[DdlStep], frozenset[str]]
) -> bool:
    """Return whether copies hold all effects of a statement on rows: EXCHANGE PARTITION changes those of two tables.

    A table that is left out needs no copy.
    """
    if not step.ddl.exchanges_partition:
        return True
    taken = [table for key in touched(step) if (table := tables[key]).name.table and not table.status.excluded]
    return bool(taken) and all(table.copies.copied_at >= step.version for table in taken)


def copied_at(step: DdlStep, tables: Mapping[str, TableConsumer], touched: Callable[[DdlStep], frozenset[str]]) -> int:
    """Return the TSO of the copy that holds a covered statement; where its table is left out, the last one of those that it touches."""
    own = tables[step.table_key]
    return own.copies.copied_at or max(tables[key].copies.copied_at for key in touched(step))


def gives_away(step: DdlStep) -> bool:
    """Return whether a statement takes a name from a table and gives it another."""
    pair = step.ddl.renamed
    return pair is not None and pair[0] != pair[1]


def covered_renames(
    renames: Iterable[DdlStep],
    tables: Mapping[str, TableConsumer],
    ends_of: Callable[[TableConsumer], Together],
    floor: int = 0,
) -> list[DdlStep]:
    """Return the renames, of those that have not run, whose effects are all in copies. `ends_of`: versions of what ended a table.

    `floor`: the TSO of the copy that the feed began with, 0 for none, which holds whatever was there under a name that is not known.

    Renames of one version with names in common are one statement, or run one after another: they are covered together or not at
    all. Each table that gets content by them needs a copy; a name that exists only in between does not. Only a cycle is sure to
    have such a name: a name that is handed on, from a table that gives it up to another, looks the same. A table that is left out
    needs no copy; where all that get content are left out, the tables that give it up need one.
    """
    covered: list[DdlStep] = []
    for group, keys in _connected(renames):
        version = group[0].version
        wanted = _taken(keys[1], tables) or _taken(keys[0], tables)
        lacks = {key for key in wanted if (tables[key].copies.copied_at if key in tables else floor) < version}
        # In a cycle the names taken and the names given are the same set.
        passing = {
            key
            for key in (lacks if keys[0] == keys[1] else ())
            if key not in tables or tables[key].timeline.is_passing_at(version, ends_of(tables[key]))
        }
        # A cycle needs only one name in between. Where a statement leaves the old name's database open, nobody knows whose copy it needs.
        is_clear = not any(step.ddl.rename is not None and step.ddl.rename.from_anywhere for step in group)
        covered += group if is_clear and wanted and lacks == passing and len(passing) <= 1 else []
    return covered


def _taken(keys: Collection[str], tables: Mapping[str, TableConsumer]) -> set[str]:
    """Return those of the tables that are not left out; one that is not known may come."""
    return {key for key in keys if key not in tables or not tables[key].status.excluded}


def _connected(renames: Iterable[DdlStep]) -> list[tuple[list[DdlStep], tuple[set[str], set[str]]]]:
    """Return renames of one version that have names in common, with the keys that they take and those that they give."""
    groups: list[tuple[list[DdlStep], tuple[set[str], set[str]]]] = []
    for step in renames:
        old, new = map(key_of, step.ddl.renamed or (step.name, step.name))
        # One rename may join several groups that had nothing in common before.
        merged: tuple[list[DdlStep], tuple[set[str], set[str]]] = ([step], ({old}, {new}))
        for found in [g for g in groups if g[0][0].version == step.version and {old, new} & (g[1][0] | g[1][1])]:
            groups.remove(found)
            merged = [*found[0], *merged[0]], (merged[1][0] | found[1][0], merged[1][1] | found[1][1])
        groups.append(merged)
    return groups


def gone_by(step: DdlStep, tables: Mapping[str, TableConsumer]) -> TableName | None:
    """Return the table that a covered statement removed at the source, unless a copy of it shows that it was created again."""
    pair = step.ddl.renamed
    if pair is None:
        table = tables[step.table_key]
        created_again = table.timeline.has_statement(step.version + 1, table.copies.copied_at)
        return step.name if step.definition.ddl_type == DdlKind.DROP_TABLE and not created_again else None
    old = tables.get(key_of(pair[0]))
    return pair[0] if pair[0] != pair[1] and (old is None or old.status.dropped) else None


def count_as_copied(
    found: Sequence[DdlStep], renames: Iterable[DdlStep], plan: tuple[DdlBacklog, Catalog, Touches]
) -> None:
    """Note that copies hold all effects of these statements; `renames`: those of them that give a table another name."""
    backlog, catalog, touches = plan
    for step in found:
        backlog.done(step)
        if (old := _leave_behind(step, catalog)) is not None:
            catalog.to_be_stored.append(old)
        catalog.to_be_stored += _pass_left_out(step, catalog.tables, touches.of)
    for step in renames:
        table = catalog.tables[step.table_key]
        if not table.status.excluded:
            table.copies.hold(step.version)
        catalog.to_be_stored.append(table)
    for step in found:
        touches.forget(step)


def _leave_behind(step: DdlStep, catalog: Catalog) -> TableConsumer | None:
    """Advance and return the table whose name a covered statement took away, if any: its rows are in the copy."""
    pair = step.ddl.renamed
    if pair is None or pair[0] == pair[1]:
        return None
    key = key_of(pair[0])
    # One that existed only within a cycle may be known from its halt alone.
    old = catalog.table(pair[0]) if key in catalog.stored_behind else catalog.tables.get(key)
    if old is None or old.checkpoint > step.version or old.copies.copied_at >= step.version:
        return None
    old.hand_on(step.version)
    return old


def _pass_left_out(
    step: DdlStep, tables: Mapping[str, TableConsumer], touched: Callable[[DdlStep], frozenset[str]]
) -> list[TableConsumer]:
    """Advance and return the tables that are left out and that a covered statement touches: a copy from before it would lack it."""
    # Also one that follows the feed beyond it: what is stored of it is older.
    passed = [table for key in sorted(touched(step)) if (table := tables[key]).status.excluded]
    for table in passed:
        table.advance(step.version)
    return passed
