"""The order in which the renames of one version can run on the tables in the target."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from storage_consumer.model import DdlId, DdlKind, TableDefinition, TableName
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import quote


def in_running_order(
    group: Sequence[DdlStep],
    existing: AbstractSet[TableName],
    started: AbstractSet[DdlId] = frozenset(),
    *,
    infers: bool = True,
) -> tuple[DdlStep, ...]:
    """Return the statements of one version so that each rename finds its table and a free name, with lost renames inserted.

    `existing`: folded names of the tables that the target has right before. `started`: identities of statements during which an
    earlier run was interrupted; such a rename goes first again, whether or not it took effect. Other statements keep their order,
    before the renames. `infers`: whether a lost rename may be inserted. Renames that cannot run whatever is inserted stay in the order in which they came, for the target to refuse.
    """
    waiting = [(step, pair) for step in group if (pair := step.ddl.renamed) is not None]
    ordered = [step for step in group if step.ddl.renamed is None]
    there = set(existing)
    put_in = 0
    while waiting:
        # A rename that changes only the case finds its new name taken by itself.
        ready = next((w for w in waiting if w[0].identity in started), None) or next(
            (w for w in waiting if w[1][0] in there and (w[1][1] not in there or w[1][0] == w[1][1])), None
        )
        if ready is None:
            # At most one inferred rename per statement, so that the loop ends whatever the names are.
            lost = lost_rename([pair for _, pair in waiting], there) if infers and put_in < len(group) else None
            if lost is None:
                return (*ordered, *(step for step, _ in waiting))
            definition = inferred(lost, [step.definition for step, _ in waiting])
            new = definition.name
            table_dir = f"{new.schema}/{new.table}"
            ready = (DdlStep(table_dir=table_dir, table_key=key_of(new), definition=definition, inferred=True), lost)
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

    Only a step of a cycle lies under another name than the one that it gives, and the last name of its table is yet to come. It is
    missing while TiCDC, restarted, rewrites such a version's files: each path then holds its first content for a moment.
    """
    pairs = [step.ddl.renamed for step in ordered]
    for at, (step, pair) in enumerate(zip(ordered, pairs, strict=True)):
        goes_on = pair is None or any(later is not None and later[0] == pair[1] for later in pairs[at + 1 :])
        if step.ddl.is_astray and not goes_on:
            return step
    return None


def lost_rename(
    pairs: Collection[tuple[TableName, TableName]], existing: AbstractSet[TableName]
) -> tuple[TableName, TableName] | None:
    """Return (old, new) of the rename that is missing from a cycle, or None if the others do not determine it.

    `pairs`: (old, new) folded names of renames none of which can run on the tables that exist. The new architecture writes two
    steps of one table under the same path, where the later one replaces the earlier one. The missing one then moves a table out
    of the way: from a name that is to be taken though it is neither free nor moved by any of the others, to one that is to be
    moved though it is neither there nor created by any of the others. Following the renames from the latter leads to the former.
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


def inferred(pair: tuple[TableName, TableName], group: Sequence[TableDefinition]) -> TableDefinition:
    """Return the rename of `lost_rename`, which no file holds. Its identity derives from what it does, so it is the same after a restart.

    `group`: the others of its version.
    """
    renames = [(each, rename) for each in group if (rename := parsed(each).rename) is not None]
    by_name = {name.folded(): name for _, rename in renames for name in (rename.old, rename.new)}
    old, new = by_name[pair[0]], by_name[pair[1]]
    query = "RENAME TABLE " + " TO ".join(f"{quote(name.schema)}.{quote(name.table)}" for name in (old, new))
    return replace(
        next(each for each, rename in renames if rename.folded[0] == pair[1]),
        name=new,
        query=query,
        ddl_type=int(DdlKind.RENAME_TABLE),
        columns=(),
        checksum=zlib.crc32(query.encode()),
        warnings=(),
    )
