"""The planner: where every table is, what its next barrier is, hence what can run at the same time.

For each table the next step is either *DDL at V* or *rows in (checkpoint, target]*, where the
target is its next DDL or the storage checkpoint. One wave is the row steps of all tables that can
run, and, once no rows are left before them, the DDL whose tables have all arrived. Statements of
one version run in an order in which each finds its tables.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from storage_consumer.model import DdlId, DdlKind, TableDefinition, TableName
from storage_consumer.plan.in_order import Numbers
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table import TableConsumer
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import quote
from storage_consumer.tso import ddl_is_stored


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDdl:
    """A DDL that has not run, and the tables, by key, that it touches (its own among them)."""

    step: DdlStep
    touches: frozenset[str]
    """Also keys without a known table, to order DDL of other versions that touch them."""
    stops: frozenset[str] = frozenset()
    """The tables, by key, that stand still while it cannot run; see `Touches.held_up`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far one table is."""

    checkpoint: int
    """Commit-ts up to which its rows are applied, inclusive."""
    blocked: bool
    """Whether it is halted or waits: nothing of it may run, and no DDL that touches it."""
    first: int = 0
    """Its lowest known version: earlier DDL, as its database's, need not wait for it."""
    loading: bool = False
    """Whether a copy is written into it: a statement, even before `first`, would split that."""
    stopped: bool = False
    """Whether it is halted or waits, maybe for a DDL without effect, which is not tried again."""


class Barriers:
    """Versions of DDL before what follows in each table, and the first of them."""

    def __init__(self) -> None:
        """Begin without any."""
        self.first: Final[dict[str, int]] = {}
        """Table key → version of the first one; read only."""
        # Table key → how many DDL of each version there are.
        self._counts: dict[str, Counter[int]] = {}
        self._versions: dict[str, Numbers] = {}

    def add(self, key: str, version: int) -> None:
        """Add one."""
        self._counts.setdefault(key, Counter())[version] += 1
        self._versions.setdefault(key, Numbers()).add(version)
        self.first[key] = min(self.first.get(key, version), version)

    def remove(self, key: str, version: int) -> None:
        """Remove one that was added; others of its version may be left."""
        self._counts[key][version] -= 1
        if self._counts[key][version]:
            return
        del self._counts[key][version]
        self._versions[key].discard(version)
        first = self._versions[key].first
        if first is None:
            del self._counts[key], self._versions[key], self.first[key]
        else:
            self.first[key] = first


class PendingDdls:
    """DDL that have not run, in the order of adding, and the first of them per table.

    A step costs as much as the tables that its DDL touch, however many others wait behind them.
    """

    def __init__(self, pending: Iterable[PendingDdl] = ()) -> None:
        """Begin with these."""
        self._ddls = Barriers()
        self._rows = Barriers()
        self._all: dict[DdlId, PendingDdl] = {}
        self._at: dict[int, dict[DdlId, PendingDdl]] = {}
        self._views: dict[str, set[DdlId]] = {}
        for ddl in pending:
            self.add(ddl)

    def __iter__(self) -> Iterator[PendingDdl]:
        """Yield all."""
        return iter(self._all.values())

    @property
    def barriers(self) -> Mapping[str, int]:
        """Table key → version of the first DDL that has not run."""
        return self._ddls.first

    @property
    def row_barriers(self) -> Mapping[str, int]:
        """The same without what alters no table, for whose sake no row need wait.

        A process may pass over such a DDL and write rows from after it. If the next one had to stop
        before it, a unique key could be taken by a row that is yet to come.
        """
        return self._rows.first

    def held_by(self, step: DdlStep, touched: Iterable[str]) -> Iterator[str]:
        """Yield tables, by key, of which something waits for a statement that touches them."""
        for key in touched:
            # Where no row waits, the table's next statement does.
            if step.holds_up_rows(key) or key in self.row_barriers:
                yield key

    def at(self, version: int) -> list[PendingDdl]:
        """Return those of one version."""
        return list(self._at.get(version, {}).values())

    def views(self, key: str) -> list[PendingDdl]:
        """Return those that create the view of a key."""
        return [self._all[identity] for identity in self._views.get(key, ())]

    def add(self, ddl: PendingDdl) -> None:
        """Add one, in place of the one with its identity."""
        self.remove(ddl.step.identity)
        version, identity = ddl.step.version, ddl.step.identity
        self._all[identity] = ddl
        self._at.setdefault(version, {})[identity] = ddl
        if ddl.step.makes_view:
            self._views.setdefault(ddl.step.table_key, set()).add(identity)
        for key in ddl.touches:
            self._ddls.add(key, version)
            if ddl.step.holds_up_rows(key):
                self._rows.add(key, version)

    def remove(self, identity: DdlId) -> None:
        """Remove one that has run; one that is not there is ignored."""
        if (ddl := self._all.pop(identity, None)) is None:
            return
        version = ddl.step.version
        if ddl.step.makes_view:
            self._views[ddl.step.table_key].discard(identity)
        del self._at[version][identity]
        if not self._at[version]:
            del self._at[version]
        for key in ddl.touches:
            self._ddls.remove(key, version)
            if ddl.step.holds_up_rows(key):
                self._rows.remove(key, version)


def target_of(key: str, barrier: Mapping[str, int], storage_checkpoint: int) -> int:
    """Return how far the rows of a table may go now, inclusive."""
    # Rows with exactly the version of a statement come before it, so they may go that far.
    return min(barrier.get(key, storage_checkpoint), storage_checkpoint)


def ready_ddls(
    pending: PendingDdls,
    positions: Mapping[str, Position],
    still: Collection[str],
    storage_checkpoint: int,
    *,
    is_stable: bool,
) -> tuple[tuple[DdlStep, ...], ...]:
    """Return DDL whose tables have all arrived, by version, in order of dependency.

    `still`: the tables that stand still, by key; see `standing_still`.
    """
    barrier = pending.barriers
    # No other version can run: each of its DDL has an earlier one before it.
    first = (
        v
        for v in set(barrier.values())
        if ddl_is_stored(v, storage_checkpoint, is_stable=is_stable)
    )
    ready = []
    for version in sorted(first):
        steps = [
            ddl.step
            for ddl in whole_groups(pending.at(version))
            if all(_arrived(t, ddl.step, barrier, positions, still) for t in ddl.touches)
            and not any(key in positions and positions[key].stopped for key in ddl.stops)
            and not _meets_load(ddl, positions)
        ]
        if steps:
            ready.append(in_dependency_order(steps))
    return tuple(ready)


def standing_still(pending: PendingDdls, positions: Mapping[str, Position]) -> set[str]:
    """Return blocked tables' keys, and those before DDL that wait for these.

    A table that is being loaded goes on.
    """
    found = {
        key
        for key, position in positions.items()
        if position.blocked and (position.stopped or not position.loading)
    }

    def holds(key: str, version: int) -> bool:
        begins_later = key in positions and version < positions[key].first
        return key in found and not (begins_later and pending.barriers[key] == version)

    # By version, since a DDL waits only for earlier ones.
    for version in sorted(set(pending.barriers.values())) if found else ():
        for ddl in whole_groups(pending.at(version)):
            keys = {ddl.step.table_key} if ddl.step.alters_no_table else ddl.touches
            if any(holds(key, version) for key in keys) or any(
                key in positions and positions[key].stopped for key in ddl.stops
            ):
                found |= {key for key in keys if pending.barriers[key] == version}
    return found


def _arrived(
    key: str,
    step: DdlStep,
    barrier: Mapping[str, int],
    positions: Mapping[str, Position],
    still: Collection[str],
) -> bool:
    """Return whether a table is right before a DDL; an unknown one is if no earlier DDL touches it.

    What alters no table waits for none that stands still, or others would wait with it; one that is
    being loaded goes on.
    """
    version, position = step.version, positions.get(key)
    if key in still and not step.holds_up_rows(key):
        return True
    if barrier[key] != version:
        return False
    if position is None:
        return True
    # A table that begins after the statement has nothing that could come before it.
    return version < position.first or (not position.blocked and position.checkpoint >= version)


def _meets_load(ddl: PendingDdl, positions: Mapping[str, Position]) -> bool:
    """Return whether a statement meets a table in load; a load waits for its database's."""
    loads = [key for key in ddl.touches if key in positions and positions[key].loading]
    stands_still = ddl.step.makes_view and all(positions[key].stopped for key in loads)
    return bool(ddl.step.name.table and loads) and not stands_still


def whole_groups(group: Sequence[PendingDdl]) -> list[PendingDdl]:
    """Return DDL of one version that wait for all tables shared: they may be one statement."""
    leader: dict[str, str] = {}

    # Union-find over table keys, with path halving.
    def led_by(key: str) -> str:
        while leader.setdefault(key, key) != key:
            leader[key] = key = leader[leader[key]]
        return key

    for ddl in group:
        own = led_by(ddl.step.table_key)
        for key in ddl.touches:
            leader[led_by(key)] = own
    together: dict[str, set[str]] = defaultdict(set)
    for key in leader:
        together[led_by(key)].add(key)
    stops: dict[str, set[str]] = defaultdict(set)
    for ddl in group:
        stops[led_by(ddl.step.table_key)] |= ddl.stops
    return [
        replace(ddl, touches=frozenset(together[own]), stops=frozenset(stops[own]))
        for ddl in group
        for own in (led_by(ddl.step.table_key),)
    ]


def in_dependency_order(group: Sequence[DdlStep]) -> tuple[DdlStep, ...]:
    """Return a version's statements so that a name is freed before another takes it.

    A database statement runs before those of its tables. A table that only has to exist is created
    before a statement that may need it. Renames that form a cycle keep their order by directory.
    """
    waiting = sorted(
        group,
        # Databases first, then what only has to exist. Directory and checksum make the order the
        # same in every run.
        key=lambda step: (
            bool(step.name.table),
            not step.ensure,
            step.table_dir,
            step.definition.checksum,
        ),
    )
    pairs = {step.identity: step.ddl.renamed for step in waiting}
    ordered: list[DdlStep] = []
    while waiting:
        sources = {pair[0] for step in waiting if (pair := pairs[step.identity])}
        # A rename that changes only the case has one folded name for both, and waits for nobody.
        free = [
            s
            for s in waiting
            if (pair := pairs[s.identity]) is None or pair[1] not in sources or pair[0] == pair[1]
        ]
        # A cycle of renames has no free name: take one; the driver finds a runnable order.
        taken = free or waiting[:1]
        ordered += taken
        gone = {step.identity for step in taken}
        waiting = [step for step in waiting if step.identity not in gone]
    return tuple(ordered)


def in_running_order(
    group: Sequence[DdlStep],
    existing: AbstractSet[TableName],
    started: AbstractSet[DdlId] = frozenset(),
    *,
    infers: bool = True,
) -> tuple[DdlStep, ...]:
    """Return a version's statements for renames to find table and free name, lost ones added.

    `existing`: folded names of the tables that the target has right before. `started`: identities
    of statements during which an earlier run was interrupted; such a rename goes first again,
    whether or not it took effect. Other statements keep their order, before the renames. `infers`:
    whether a lost rename may be inserted. Renames that cannot run whatever is inserted stay in the
    order in which they came, for the target to refuse.
    """
    waiting = [(step, pair) for step in group if (pair := step.ddl.renamed) is not None]
    ordered = [step for step in group if step.ddl.renamed is None]
    there = set(existing)
    put_in = 0
    while waiting:
        # A rename that changes only the case finds its new name taken by itself.
        ready = next((w for w in waiting if w[0].identity in started), None) or next(
            (
                w
                for w in waiting
                if w[1][0] in there and (w[1][1] not in there or w[1][0] == w[1][1])
            ),
            None,
        )
        if ready is None:
            # At most one inferred rename per statement, so that the loop ends in any case.
            lost = (
                lost_rename([pair for _, pair in waiting], there)
                if infers and put_in < len(group)
                else None
            )
            if lost is None:
                return (*ordered, *(step for step, _ in waiting))
            definition = inferred(lost, [step.definition for step, _ in waiting])
            new = definition.name
            table_dir = f"{new.schema}/{new.table}"
            ready = (
                DdlStep(
                    table_dir=table_dir, table_key=key_of(new), definition=definition, inferred=True
                ),
                lost,
            )
            put_in += 1
        else:
            waiting.remove(ready)
        ordered.append(ready[0])
        # The next one is judged by what this one leaves.
        there.discard(ready[1][0])
        there.add(ready[1][1])
    return tuple(ordered)


def unfinished(ordered: Sequence[DdlStep]) -> DdlStep | None:
    """Return the rename whose result is an intermediate name with no following rename yet.

    Only a step of a cycle lies under another name than the one that it gives, and the last name of
    its table is yet to come. It is missing while TiCDC, restarted, rewrites such a version's files:
    each path then holds its first content for a moment.
    """
    pairs = [step.ddl.renamed for step in ordered]
    for at, (step, pair) in enumerate(zip(ordered, pairs, strict=True)):
        goes_on = pair is None or any(
            later is not None and later[0] == pair[1] for later in pairs[at + 1 :]
        )
        if step.ddl.is_astray and not goes_on:
            return step
    return None


def lost_rename(
    pairs: Collection[tuple[TableName, TableName]], existing: AbstractSet[TableName]
) -> tuple[TableName, TableName] | None:
    """Return (old, new) of the rename missing in a cycle, or None if undetermined.

    `pairs`: (old, new) folded names of renames none of which can run on the tables that exist. The
    new architecture writes two steps of one table under the same path, where the later one replaces
    the earlier one. The missing one then moves a table out of the way: from a name that is to be
    taken though it is neither free nor moved by any of the others, to one that is to be moved
    though it is neither there nor created by any of the others. Following the renames from the
    latter leads to the former.
    """
    moves = dict(pairs)
    made = set(moves.values())
    # Sorted, so that every run infers the same rename.
    for missing in sorted(moves):
        if missing in existing or missing in made:
            continue
        name, seen = missing, {missing}
        # Along the chain to its end, which a cycle among the others does not have.
        while name in moves and moves[name] not in seen:
            name = moves[name]
            seen.add(name)
        if name not in moves and name in existing:
            return name, missing
    return None


def inferred(
    pair: tuple[TableName, TableName], group: Sequence[TableDefinition]
) -> TableDefinition:
    """Return the rename of `lost_rename`, without a file, its identity stable by its effect.

    `group`: the others of its version.
    """
    renames = [(each, rename) for each in group if (rename := parsed(each).rename) is not None]
    by_name = {name.folded(): name for _, rename in renames for name in (rename.old, rename.new)}
    old, new = by_name[pair[0]], by_name[pair[1]]
    query = "RENAME TABLE " + " TO ".join(
        f"{quote(name.schema)}.{quote(name.table)}" for name in (old, new)
    )
    return replace(
        next(each for each, rename in renames if rename.folded[0] == pair[1]),
        name=new,
        query=query,
        ddl_type=int(DdlKind.RENAME_TABLE),
        columns=(),
        checksum=zlib.crc32(query.encode()),
        warnings=(),
    )


def unreached(
    tables: Mapping[str, TableConsumer],
    pending: Iterable[PendingDdl],
    checkpoint: int,
    stuck: Collection[str],
) -> list[str]:
    """Return the keys of tables that are not at a checkpoint and can get there.

    `pending`: the statements that have not run; `stuck`: tables before one of them. A table that is
    halted cannot get there, nor can one that waits for a statement together with it.
    """
    stopped = {key for key, table in tables.items() if table.status.is_halted}
    touched = [
        ddl.touches
        for ddl in pending
        if ddl_is_stored(ddl.step.version, checkpoint, is_stable=True)
    ]
    while more := {key for keys in touched if keys & stopped for key in keys} - stopped:
        stopped |= more
    return [
        key
        for key, table in tables.items()
        if key not in stopped
        and (table.status.blocked or key in stuck or table.checkpoint < checkpoint)
    ]
