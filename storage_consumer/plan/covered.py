"""Statements whose effects a copy holds, which are not run, or may show early. No I/O.

TiDB carries a statement out in steps, and a snapshot sees each of them: between the last steps the
source's table is as the statement leaves it, while the statement's version is still to come. A copy
from there holds the effect, and the bucket brings the statement. And whether a copy is as of the
TSO that it says, as far as the columns of its tables show it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from storage_consumer.clock import some_of
from storage_consumer.model import (
    CommitRange,
    DdlId,
    DdlKind,
    TableDefinition,
    TableName,
    folded_name,
    physical_ms,
)
from storage_consumer.plan.copies import shown_tso
from storage_consumer.plan.ddl_backlog import DdlBacklog
from storage_consumer.plan.directories import Catalog, Commands
from storage_consumer.plan.in_order import Together
from storage_consumer.plan.planner import PendingDdls
from storage_consumer.plan.steps import DROPS, DdlStep, RowStep, key_of
from storage_consumer.plan.table import Lifetimes, TableConsumer
from storage_consumer.plan.touches import Touches
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.statement import statement_of


def is_covered(
    step: DdlStep, tables: Mapping[str, TableConsumer], touched: Callable[[DdlStep], frozenset[str]]
) -> bool:
    """Return whether copies hold a statement's effects: EXCHANGE PARTITION has two tables.

    A table that is left out needs no copy.
    """
    if not step.ddl.exchanges_partition:
        return True
    taken = [
        table
        for key in touched(step)
        if (table := tables[key]).name.table and not table.status.excluded
    ]
    return bool(taken) and all(table.copies.copied_at >= step.version for table in taken)


def copied_at(
    step: DdlStep, tables: Mapping[str, TableConsumer], touched: Callable[[DdlStep], frozenset[str]]
) -> int:
    """Return the TSO of a covered statement's copy; for a left-out table, the last it touches."""
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
    """Return pending renames whose effects are all in copies; `ends_of`: versions of ends.

    `floor`: the TSO of the copy that the feed began with, 0 for none, which holds whatever was
    there under a name that is not known.

    Renames of one version with names in common are one statement, or run one after another: they
    are covered together or not at all. Each table that gets content by them needs a copy; a name
    that exists only in between does not. Only a cycle is sure to have such a name: a name that is
    handed on, from a table that gives it up to another, looks the same. A table that is left out
    needs no copy; where all that get content are left out, the tables that give it up need one.
    """
    covered: list[DdlStep] = []
    for group, keys in _connected(renames):
        version = group[0].version
        wanted = _taken(keys[1], tables) or _taken(keys[0], tables)
        lacks = {
            key
            for key in wanted
            if (tables[key].copies.copied_at if key in tables else floor) < version
        }
        # In a cycle the names taken and the names given are the same set.
        passing = {
            key
            for key in (lacks if keys[0] == keys[1] else ())
            if key not in tables
            or tables[key].timeline.is_passing_at(version, ends_of(tables[key]))
        }
        # A cycle needs only one name in between. Where a statement leaves the old name's database
        # open, nobody knows whose copy it needs.
        is_clear = not any(
            step.ddl.rename is not None and step.ddl.rename.from_anywhere for step in group
        )
        covered += group if is_clear and wanted and lacks == passing and len(passing) <= 1 else []
    return covered


def _taken(keys: Collection[str], tables: Mapping[str, TableConsumer]) -> set[str]:
    """Return those of the tables that are not left out; one that is not known may come."""
    return {key for key in keys if key not in tables or not tables[key].status.excluded}


def _connected(renames: Iterable[DdlStep]) -> list[tuple[list[DdlStep], tuple[set[str], set[str]]]]:
    """Return renames of one version that share names, with the keys they take and give."""
    groups: list[tuple[list[DdlStep], tuple[set[str], set[str]]]] = []
    for step in renames:
        old, new = map(key_of, step.ddl.renamed or (step.name, step.name))
        # One rename may join several groups that had nothing in common before.
        merged: tuple[list[DdlStep], tuple[set[str], set[str]]] = ([step], ({old}, {new}))
        for found in [
            g
            for g in groups
            if g[0][0].version == step.version and {old, new} & (g[1][0] | g[1][1])
        ]:
            groups.remove(found)
            merged = (
                [*found[0], *merged[0]],
                (merged[1][0] | found[1][0], merged[1][1] | found[1][1]),
            )
        groups.append(merged)
    return groups


def gone_by(step: DdlStep, tables: Mapping[str, TableConsumer]) -> TableName | None:
    """Return the table that a covered statement removed, unless its copy shows it again."""
    pair = step.ddl.renamed
    if pair is None:
        table = tables[step.table_key]
        created_again = table.timeline.has_statement(step.version + 1, table.copies.copied_at)
        return (
            step.name
            if step.definition.ddl_type == DdlKind.DROP_TABLE and not created_again
            else None
        )
    old = tables.get(key_of(pair[0]))
    return pair[0] if pair[0] != pair[1] and (old is None or old.status.dropped) else None


def count_as_copied(
    found: Sequence[DdlStep], renames: Iterable[DdlStep], plan: tuple[DdlBacklog, Catalog, Touches]
) -> None:
    """Note that copies hold these statements' effects; `renames`: those among them."""
    backlog, catalog, touches = plan
    for step in found:
        backlog.done(step)
        pair = step.ddl.renamed
        if pair is not None and pair[0] != pair[1]:
            key = key_of(pair[0])
            # One that existed only within a cycle may be known from its halt alone.
            old = (
                catalog.table(pair[0]) if key in catalog.stored_behind else catalog.tables.get(key)
            )
            # The rows of the table whose name it took away are in the copy.
            if (
                old is not None
                and old.checkpoint <= step.version
                and old.copies.copied_at < step.version
            ):
                old.hand_on(step.version)
                catalog.to_be_stored.append(old)
        # A copy from before it would lack a table that is left out; also one that follows the feed
        # beyond it: what is stored of it is older.
        passed = [
            table
            for key in sorted(touches.of(step))
            if (table := catalog.tables[key]).status.excluded
        ]
        for table in passed:
            table.advance(step.version)
        catalog.to_be_stored += passed
    for step in renames:
        table = catalog.tables[step.table_key]
        if not table.status.excluded:
            table.copies.hold(step.version)
        catalog.to_be_stored.append(table)
    for step in found:
        touches.forget(step)


SHOWS_EARLY = frozenset(
    {
        *(
            DdlKind.DROP_SCHEMA,
            DdlKind.DROP_TABLE,
            DdlKind.DROP_COLUMN,
            DdlKind.DROP_COLUMNS,
            DdlKind.DROP_INDEX,
        ),
        *(
            DdlKind.DROP_FOREIGN_KEY,
            DdlKind.DROP_PRIMARY_KEY,
            DdlKind.DROP_PARTITION,
            DdlKind.DROP_VIEW,
        ),
        *(
            DdlKind.RENAME_TABLE,
            DdlKind.RENAME_TABLES,
            DdlKind.MODIFY_COLUMN,
            DdlKind.MULTI_SCHEMA_CHANGE,
        ),
    }
)
"""Kinds of statements whose effect a snapshot from before their version can show."""
_NEAR = 3600
"""Seconds after a copy in which an emptied partition is worth a word."""


def copy_before(table: TableConsumer, version: int) -> int:
    """Return the TSO of the last copy if nothing led to the table until this version, else 0."""
    copied_at = table.copies.copied_at
    return copied_at if is_first_after(table, copied_at, version) else 0


def is_first_after(table: TableConsumer, copied_at: int, version: int) -> bool:
    """Return whether nothing led to a table from its copy's TSO (0 for none) to this version."""
    return 0 < copied_at < version and not table.timeline.has_statement(copied_at + 1, version - 1)


def copy_that_shows(
    step: DdlStep,
    tables: Mapping[str, TableConsumer],
    touched: Collection[str],
    lifetimes: Lifetimes,
    based: Collection[str],
) -> int:
    """Return the TSO of the copy that may show a statement's effect already, 0 if none can.

    A RENAME is shown by a copy of the new name alone. A copy that has the table under its old name
    was made before, and one of a table that has lost the name since says nothing of the one that
    comes.
    """
    rename = step.ddl.rename
    if rename is None or rename.folded[0] == rename.folded[1]:
        return max(copy_before(tables[key], step.version) for key in touched)
    old, new = (tables.get(key_of(name)) for name in rename.folded)
    if new is None or rename.from_anywhere or new.key not in based:
        return 0
    found = copy_before(new, step.version)
    has_old = old is not None and old.key in based and old.copies.copied_at >= found
    return 0 if has_old or lifetimes.ends_of(new).has_within(found + 1, step.version - 1) else found


def in_doubt_by(step: DdlStep, tables: Mapping[str, TableConsumer]) -> int:
    """Return the TSO of a copy from right before a RENAME, 0 if there is none.

    It may show the statement, so that the names in the target do not tell whether that has to run.
    """
    known = [tables[key] for name in step.ddl.renamed or () if (key := key_of(name)) in tables]
    last = max((copy_before(table, step.version) for table in known), default=0)
    return last if physical_ms(step.version) - physical_ms(last) <= _NEAR * 1000 else 0


def near_copy(definition: TableDefinition, copied_at: int) -> str:
    """Return what emptying a partition may do to a fresh copy's rows, and how to check; or "".

    Once a snapshot shows that a partition is empty, it also shows the rows that other sessions
    write into it before the statement's version. Nothing in an export tells them from the rows
    before. TiDB takes milliseconds for it, or until the entries of a global index are gone.
    """
    apart = physical_ms(definition.version) - physical_ms(copied_at)
    if definition.ddl_type != DdlKind.TRUNCATE_PARTITION or not copied_at or apart > _NEAR * 1000:
        return ""
    return (
        f"the statement took effect {apart / 1000:.3f} s after the table's copy as of {copied_at}. If it began before that (START_TIME of "
        "ADMIN SHOW DDL JOBS at the source), rows that were written into the partition in between are removed: compare the table with "
        "`storage-consumer verify`"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Early:
    """What the target may show of pending statements, where the bucket's catalog cannot know."""

    floor: int = 0
    """TSO of the copy that the feed began with, 0 for none."""
    based: Collection[str] = ()
    """Keys of the tables that copies have."""
    started: Collection[DdlId] = ()
    """Identities of the statements that were sent to the target and may have taken effect."""


def upcoming(table: TableConsumer, pending: PendingDdls, early: Early) -> TableDefinition | None:
    """Return what a table's next statement leads to, if the target may show it; else None.

    A copy may, and so may a statement that a killed process has sent: then rows from before it, in
    a file that came again, still have to fit.
    """
    version = pending.row_barriers.get(table.key)
    if version is None:
        return None
    own = [ddl.step for ddl in pending.at(version) if ddl.step.table_key == table.key]
    sent = next((step.definition for step in own if step.identity in early.started), None)
    if sent is not None or not copy_before(table, version):
        return sent
    return next((step.definition for step in own if step.definition.ddl_type in SHOWS_EARLY), None)


NOT_IN_COPY = (
    "the copy that this feed began with does not hold the table of {}, and no statement since then creates it: its earlier rows "
    "are missing. Leave the table out, or give it a copy of the source. From an export: {}"
)


_NO_TABLES = frozenset((*DROPS, DdlKind.CREATE_VIEW))
"""Statements after which there is no table of their name; views have no rows."""


class Unbased:
    """Tables that existed at the copy with which a feed began: that copy must hold them.

    A statement up to the copy's TSO shows that, or a structure that no statement explains. The copy
    need not hold a table that a statement up to its TSO ended, nor one whose next statement after
    that ends it or gives it the name by which it is in the copy: that statement shows early.
    Created from its structure, any other would lack its rows.
    """

    def __init__(self, floor: int, based: Collection[str]) -> None:
        """Begin empty; `floor`: the copy's TSO, 0 for none; `based`: keys of tables in copies."""
        self._floor = floor
        self._based = based
        self._found: dict[str, TableDefinition] = {}
        self._stated: dict[str, TableDefinition] = {}
        self._views: list[DdlStep] = []

    def takes(self, key: str, definition: TableDefinition) -> bool:
        """Keep a structure that nothing creates; return False if its table may come from it."""
        if not self._floor or key in self._based:
            return False
        self._found.setdefault(key, definition)
        return True

    def note(self, key: str, definition: TableDefinition) -> None:
        """Keep a table's last statement up to the copy: not run, so only the copy has the table."""
        is_table = (
            bool(definition.name.table)
            and definition.ddl_type not in _NO_TABLES
            and not definition.is_view
        )
        known = self._stated.get(key)
        if key in self._based or not is_table or definition.version > self._floor:
            return
        if known is None or known.version < definition.version:
            self._stated[key] = definition

    def beside_views(self, taken: Sequence[DdlStep], storage_checkpoint: int) -> list[DdlStep]:
        """Return these statements, those for views only once the bucket is beyond the copy.

        Until then it may show their end before that.
        """
        steps, is_behind = [*self._views, *taken], storage_checkpoint <= self._floor
        self._views = [step for step in steps if is_behind and step.makes_view]
        return [step for step in steps if not (is_behind and step.makes_view)]

    def lacks_view(self, step: DdlStep, table: TableConsumer) -> bool:
        """Return whether a statement makes a view that existed at the copy and is not in it.

        Dumpling exports no views unless told to. They have no rows, so the statement can still run.
        """
        is_covered = step.version <= self._floor and step.makes_view
        is_last = not table.timeline.has_statement(step.version + 1, self._floor)
        return is_covered and is_last and table.key not in self._based

    def missing(
        self,
        storage_checkpoint: int,
        tables: Mapping[str, TableConsumer],
        lifetimes: Lifetimes,
        command: Commands,
    ) -> dict[str, str]:
        """Return tables that the copy lacks, key → error, once; none before the bucket is past it.

        A statement up to the copy may have ended a table, and one at exactly the storage checkpoint
        may still come.
        """
        if storage_checkpoint <= self._floor:
            return {}
        found = [*self._found.items(), *self._stated.items()]
        self._found, self._stated = {}, {}
        return {
            key: NOT_IN_COPY.format(structure.path, command("reload-done", tables[key].name))
            for key, structure in found
            if not tables[key].status.excluded
            # One that it got since then holds what this one lacks.
            and tables[key].copies.copied_at <= self._floor
            and not self._is_explained(tables[key], structure.version, tables, lifetimes)
        }

    def _is_explained(
        self,
        table: TableConsumer,
        version: int,
        tables: Mapping[str, TableConsumer],
        lifetimes: Lifetimes,
    ) -> bool:
        ends = lifetimes.ends_of(table)
        # A name that a swap of two tables needs in between.
        if version in ends and table.timeline.is_passing_at(version, ends):
            return True
        end = ends.after(version)
        if end is None or end <= self._floor or not is_first_after(table, self._floor, end):
            return end is not None and end <= self._floor
        name = lifetimes.renamed_to(table.key, end)
        if name is None:
            return True
        new = tables.get(key_of(name))
        return new is not None and new.key in self._based and is_first_after(new, self._floor, end)


def beside_copies(
    step: RowStep,
    pending: PendingDdls,
    tables: Mapping[str, TableConsumer],
    lifetimes: Lifetimes,
    early: Early,
) -> RowStep | None:
    """Return a table's rows with early effects in copies; None if they must wait for a copy.

    If that is a RENAME, the copy may have the table under either name.
    """
    table = tables[step.table_key]
    step = replace(step, upcoming=upcoming(table, pending, early))
    version = pending.row_barriers.get(table.key)
    name = lifetimes.renamed_to(table.key, version) if version is not None else None
    new = tables.get(key_of(name)) if name is not None else None
    if version is None or new is None:
        return step
    if _shows_rename(new, table, version, lifetimes, early.floor):
        if new.status.loading:
            return None
        # What the copy of the new name lacks, as rows of that one.
        low, high = step.commit_range.low, step.commit_range.high
        rest = CommitRange(low=min(max(low, new.copies.copied_at), high), high=high)
        return replace(step, commit_range=rest, early_name=new.name, is_early=True)
    is_there = not table.timeline.is_free_before(version, lifetimes.ends_of(table))
    both = is_there and copy_before(table, version) and copy_before(new, version)
    is_free = _is_free(new, version, lifetimes)
    if not (both and (is_free or _moved_on(table, new, version, lifetimes, early.based))):
        return step
    return None if new.status.loading else replace(step, early_name=new.name)


def _moved_on(
    table: TableConsumer,
    new: TableConsumer,
    version: int,
    lifetimes: Lifetimes,
    based: Collection[str],
) -> bool:
    """Return whether a RENAME's new name is free, since its copied holder has moved on.

    Otherwise the copy has it under that name still, and lacks the table for another reason: rows
    would go into a stranger.
    """
    name = lifetimes.renamed_to(new.key, version)
    return name is not None and key_of(name) != table.key and key_of(name) in based


def _shows_rename(
    new: TableConsumer, table: TableConsumer, version: int, lifetimes: Lifetimes, floor: int
) -> bool:
    """Return whether a table's own copy shows a RENAME early, since the name was free."""
    ends, copied_at = lifetimes.ends_of(new), new.copies.copied_at
    if not _is_free(new, version, lifetimes):
        return False
    if new.status.loading:
        return True
    is_own = copied_at > max(table.copies.copied_at, floor) and not ends.has_within(
        copied_at + 1, version - 1
    )
    return is_own and is_first_after(table, copied_at, version) and copy_before(new, version) > 0


def _is_free(new: TableConsumer, version: int, lifetimes: Lifetimes) -> bool:
    """Return whether no table holds a name right before a RENAME, nor gives it away in it."""
    ends = lifetimes.ends_of(new)
    return version not in ends and new.timeline.is_free_before(version, ends)


_HIDDEN = ("_V$_", "_Col$_")
_NAMED = 5
"""Most columns that a message names."""


def of_another_time(
    copied: Iterable[TableDefinition], low: int, shown: Iterable[TableDefinition]
) -> str:
    """Return a copy's table with columns of another time than TSO `low`, and the step; or "".

    `copied`: the tables of the copy, without generated columns. `shown`: what the bucket's schema
    files say, of any time. Statements right after `low` may show in the copy already. Columns that
    no schema file has prove nothing, nor does one without a statement: a changefeed may leave
    statements out.
    """
    known: defaultdict[str, list[TableDefinition]] = defaultdict(list)
    for each in sorted(shown, key=lambda each: each.version):
        if each.columns and not each.is_view:
            known[key_of(parsed(each).subject)].append(each)
    for table in copied:
        versions, differing = known[key_of(table.name)], _different(table)
        past = [each for each in versions if each.version <= low]
        if not past or not past[-1].is_ddl:
            continue
        fitting = [each for each in past if each.version == past[-1].version]
        fitting += takewhile(lambda each: each.ddl_type in SHOWS_EARLY, versions[len(past) :])
        others = [each for each in versions if each not in fitting]
        if all(map(differing, fitting)) and not all(map(differing, others)):
            return _of_another_time(table, low, past[-1])
    return ""


def _different(table: TableDefinition) -> Callable[[TableDefinition], set[str]]:
    """Return how a schema file's columns and those of a copy's table differ."""
    made = {
        folded_name(column.name)
        for column in statement_of(table.query).columns
        if column.generated[0] > 0
    }
    own = {folded_name(column.name) for column in table.columns} - made

    def differing(definition: TableDefinition) -> set[str]:
        # Those of expression indexes and of reorganisations, which no statement shows.
        listed = {folded_name(c.name) for c in definition.columns if not c.name.startswith(_HIDDEN)}
        return own ^ (listed - made)

    return differing


def _of_another_time(table: TableDefinition, low: int, newest: TableDefinition) -> str:
    differing = sorted(_different(table)(newest))
    there = {folded_name(column.name) for column in newest.columns}
    said = {
        "lacks": [name for name in differing if name in there],
        "has": [name for name in differing if name not in there],
    }
    parts = " and ".join(
        f"{verb} {some_of(names, _NAMED)}" for verb, names in said.items() if names
    )
    return (
        f"the table {table.name} of the copy ({table.path}) {parts}, unlike {newest.path} (version {shown_tso(newest.version)}), its newest schema file "
        f"up to the copy's TSO {shown_tso(low)}: that TSO or the files of the copy are of another time. Restore the `metadata` that was written with "
        "the files, or export again into an empty folder. If the changefeed leaves out statements of this table, begin without it (--filter), "
        "and load it afterwards (`storage-consumer load`)"
    )
