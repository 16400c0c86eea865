"""What a table waits for or is halted by: files that are missing, statements that did not run, copies. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from storage_consumer.model import TableName
from storage_consumer.plan.barriers import DROP_TABLE
from storage_consumer.plan.directories import Commands
from storage_consumer.plan.planner import PendingDdl
from storage_consumer.plan.renames import renamed
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table import HALTED, TableConsumer
from storage_consumer.sql.tokens import has_words, tokens
from storage_consumer.tso import ddl_is_stored


def look_for_gaps(
    tables: Iterable[TableConsumer], storage_checkpoint: int, now: float, timeout: float, at: int, command: Commands
) -> dict[str, str]:
    """Let tables wait for what is missing; return table key → error for those that waited too long.

    `now` and `timeout` in seconds, `at`: the same time as a TSO.
    """
    late = {}
    for table in tables:
        if table.lacks_past:
            table.misses(table.gaps(), at)  # files that have expired by now need not come once there is a copy
        if table.state == HALTED:
            continue
        if reason := table.look_for_gaps(storage_checkpoint, now, timeout):
            table.misses(table.gaps(), at)
            late[table.key] = (
                f"{reason} is missing and did not arrive within {timeout:g} s: data was lost at the source. If the "
                f"file still exists somewhere, restore it and run: {command('resume', table.name)} -- otherwise "
                "reload the table from the source as of now or later, and run this with the TSO of the copy: "
                f"{command('reload-done', table.name)}"
            )
    return late


def stuck(
    pending: Iterable[PendingDdl], tables: Mapping[str, TableConsumer], storage_checkpoint: int
) -> dict[str, str]:
    """Return tables that a finished round could not bring to the storage checkpoint, since a DDL before it did not run.

    Table key → which DDL, the first of several, and which of the tables that it touches are halted or waiting.
    """
    found: dict[str, str] = {}
    # The highest version first: a lower one overwrites its entry.
    for ddl in sorted(pending, key=lambda ddl: ddl.step.version, reverse=True):
        step = ddl.step
        if not ddl_is_stored(step.version, storage_checkpoint, settled=False):
            continue
        touched = [tables[key] for key in sorted(ddl.touches & tables.keys())]
        still = ", ".join(str(table.name) for table in touched if table.is_in_the_way_of(step.version))
        why = (
            f"waits for the DDL of {step.name} with version {step.version}{still and f' (halted or waiting: {still})'}"
        )
        found |= dict.fromkeys((table.key for table in touched), why)
    return found


def is_covered(
    step: DdlStep, tables: Mapping[str, TableConsumer], touched: Callable[[DdlStep], frozenset[str]]
) -> bool:
    """Return whether copies hold all effects of a statement on rows: EXCHANGE PARTITION changes those of two tables."""
    if not has_words(tokens(step.definition.query), "EXCHANGE", "PARTITION"):
        return True
    return all(tables[key].copied_at >= step.version for key in touched(step) if tables[key].name.table)


def gives_away(step: DdlStep) -> bool:
    """Return whether a statement takes a name from a table and gives it another."""
    pair = renamed(step.definition)
    return pair is not None and pair[0] != pair[1]


def covered_renames(
    renames: Iterable[DdlStep],
    tables: Mapping[str, TableConsumer],
    ends_of: Callable[[TableConsumer], Collection[int]],
) -> list[DdlStep]:
    """Return the renames, of those that have not run, whose effects are all in copies. `ends_of`: versions of what ended a table.

    Renames of one version with names in common are one statement, or run one after another: they are covered together or not at
    all. Each table that gets content by them needs a copy; a name that exists only in between does not. Only a cycle is sure to
    have such a name: a name that is handed on, from a table that gives it up to another, looks the same.
    """
    covered: list[DdlStep] = []
    for group, keys in _connected(renames):
        version = group[0].version
        lacks = {key for key in keys[1] if key not in tables or tables[key].copied_at < version}
        # In a cycle the names taken and the names given are the same set.
        passing = {
            key
            for key in (lacks if keys[0] == keys[1] else ())
            if key not in tables or tables[key].is_passing_at(version, ends_of(tables[key]))
        }
        # A cycle needs only one name in between.
        covered += group if lacks == passing and len(passing) <= 1 else []
    return covered


def _connected(renames: Iterable[DdlStep]) -> list[tuple[list[DdlStep], tuple[set[str], set[str]]]]:
    """Return renames of one version that have names in common, with the keys that they take and those that they give."""
    groups: list[tuple[list[DdlStep], tuple[set[str], set[str]]]] = []
    for step in renames:
        old, new = map(key_of, renamed(step.definition) or (step.name, step.name))
        merged: tuple[list[DdlStep], tuple[set[str], set[str]]] = ([step], ({old}, {new}))
        for found in [g for g in groups if g[0][0].version == step.version and {old, new} & (g[1][0] | g[1][1])]:
            groups.remove(found)
            merged = [*found[0], *merged[0]], (merged[1][0] | found[1][0], merged[1][1] | found[1][1])
        groups.append(merged)
    return groups


def gone_by(step: DdlStep, tables: Mapping[str, TableConsumer]) -> TableName | None:
    """Return the table that a covered statement removed at the source, unless a copy of it shows that it was created again."""
    pair = renamed(step.definition)
    if pair is None:
        drops = step.definition.ddl_type == DROP_TABLE and tables[step.table_key].ends_with(step.version)
        return step.name if drops else None
    old = tables.get(key_of(pair[0]))
    return pair[0] if pair[0] != pair[1] and (old is None or old.dropped) else None


def leave_behind(step: DdlStep, tables: Mapping[str, TableConsumer]) -> TableConsumer | None:
    """Advance and return the table whose name a covered statement took away, if any: its rows are in the copy."""
    pair = renamed(step.definition)
    old = tables.get(key_of(pair[0])) if pair is not None and pair[0] != pair[1] else None
    if old is None or old.checkpoint > step.version or old.copied_at >= step.version:
        return None
    old.advance(step.version)
    old.is_over(step.version)
    return old
