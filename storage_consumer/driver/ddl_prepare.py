"""Before DDL runs: an order that the tables allow, filter and routes, and names as in the target.

The bucket's names are used everywhere but in the target: `described` and `prepared` are where they
become the target's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from storage_consumer.decode.decoder import hidden_columns
from storage_consumer.errors import NotReplicable
from storage_consumer.model import NameAt, TableName, folded_name
from storage_consumer.plan.covered import copy_that_shows, in_doubt_by
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.planner import in_running_order
from storage_consumer.plan.selection import routed
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.plan.table import TableConsumer
from storage_consumer.plan.unqualified_names import Namesake, homes, of_any_database
from storage_consumer.ports import Target
from storage_consumer.rows.fitting import TargetTable
from storage_consumer.sql.gate import refuse_strangers
from storage_consumer.sql.parse import Existing, looked_up, with_homes, with_real_names

BEFORE_FEED = (
    "no statement in the bucket creates {}, so the source had it before the changefeed began: its rows from before are in no file, nor are its "
    "keys but the primary one, and the target lacks it"
)


def described(
    names: Iterable[TableName], manager: ConsumerManager, target: Target
) -> dict[TableName, TargetTable]:
    """Return the tables that the target has, by their folded names in the bucket."""
    routes = manager.selection.routes
    targets = {name.folded(): routes.target(name).folded() for name in names}
    there = target.describe(targets.values())
    return {name: there[found] for name, found in targets.items() if found in there}


def _existing(
    names: Iterable[TableName], manager: ConsumerManager, target: Target
) -> dict[TableName, TableName]:
    """Return `Target.existing` for bucket names; where a route leads elsewhere, bucket names."""
    routes = manager.selection.routes
    if not routes:
        return target.existing(names)
    targets = {name.folded(): routes.target(name).folded() for name in names}
    there = target.existing(targets.values())
    return {
        name: there[found] if name == found else name
        for name, found in targets.items()
        if found in there
    }


def bare(steps: Iterable[DdlStep], manager: ConsumerManager, target: Target) -> list[DdlStep]:
    """Return structures from before the changefeed that the target lacks.

    Without those that may be made from columns.
    """
    if manager.makes_bare or manager.floor:
        return []
    wanted, lifetimes = [], manager.lifetimes
    for step in steps:
        if step.ensure and not (step.definition.is_view or step.is_of_copy):
            # Earlier rows do not matter where a later statement of the bucket ends the table.
            end = lifetimes.ends_of(manager.tables[step.table_key]).after(step.version)
            if end is None or lifetimes.renamed_to(step.table_key, end) is not None:
                wanted.append(step)
    if not wanted:
        return []
    there = described([step.name for step in wanted], manager, target)
    return [step for step in wanted if step.name.folded() not in there]


def in_order(
    group: Sequence[DdlStep], manager: ConsumerManager, target: Target
) -> tuple[DdlStep, ...]:
    """Return a version's statements in a runnable order, with renames that no file holds.

    Renames of which the filter leaves out both names come first: they are not run.
    """
    out = [step for step in group if _is_left_out(step, manager)]
    rest = [step for step in group if step not in out]
    pairs = [pair for step in rest if (pair := step.ddl.renamed) is not None]
    # One rename alone cannot wait for the name that another one frees.
    if len(pairs) <= 1:
        return (*out, *rest)
    # The temporary name of a cycle may be known to no file, so the order follows from the names
    # that the target has now.
    spelled = _existing((name for pair in pairs for name in pair), manager, target)
    infers = not any(in_doubt_by(step, manager.tables) for step in rest)
    return (
        *out,
        *in_running_order(rest, frozenset(spelled), manager.backlog.started, infers=infers),
    )


def _is_left_out(step: DdlStep, manager: ConsumerManager) -> bool:
    rename, leaves_out = step.ddl.rename, manager.selection.filter.leaves_out
    return rename is not None and leaves_out(rename.old) and leaves_out(rename.new)


def shown_by(step: DdlStep, manager: ConsumerManager) -> int:
    """Return the TSO of the copy that may show a statement's effect already, 0 if none can.

    None can where the statement's version hands a name on, from one table to another: the name is
    in a copy from before as in one from after.
    """
    # As it was typed: where a database was left open, the rows between copy and statement were not
    # taken for the copy's table.
    together = [each for each in manager.backlog if each.version == step.version]
    typed = next((each for each in together if each.identity == step.identity), step)
    names = set(typed.ddl.renamed or ())
    others = (each for each in together if each is not typed)
    if names and any(
        names & set(other.ddl.renamed or ()) and not _is_left_out(other, manager)
        for other in others
    ):
        return 0
    return copy_that_shows(
        typed, manager.tables, manager.touches.of(step), manager.lifetimes, manager.early.based
    )


def with_homes_of_names(step: DdlStep, manager: ConsumerManager, target: Target) -> DdlStep:
    """Return the step with the database of each open name; all names as in the bucket.

    Raises `NotReplicable` where it may mean several tables.
    """
    definition = step.definition
    tables = {
        name: manager.touches.namesakes(name.table, step) for name in of_any_database(definition)
    }
    if not tables:
        return step
    wanted = looked_up(definition) | {table.name for found in tables.values() for table in found}
    existing = _existing(wanted, manager, target)
    rename = step.ddl.rename
    # Without a journal entry an earlier run may have started it: the new name has its table.
    begun = (
        rename is not None
        and step.identity in manager.backlog.started
        and rename.new.folded() in existing
    )
    # Once a rename ran, the table that it names is the one that is no longer there: looking for it
    # would find another one.
    if begun or manager.backlog.has_run(step):
        gone = {
            name: next(
                (
                    t.name
                    for t in found
                    if not t.status.left_out and t.name.folded() not in existing
                ),
                None,
            )
            for name, found in tables.items()
        }
        meant = {name: former for name, former in gone.items() if former is not None}
    else:
        namesakes = {
            name: _namesakes(name, found, step, existing) for name, found in tables.items()
        }
        if step.ddl.creates_table:
            namesakes = {
                name: _distinct(found, manager, target) for name, found in namesakes.items()
            }
        meant = homes(definition, namesakes)
    return replace(step, definition=with_homes(definition, existing, meant))


def prepared(step: DdlStep, manager: ConsumerManager, target: Target) -> DdlStep:
    """Return the step as it runs on the target: filtered, routed, and spelled as the target does.

    `step` comes from `with_homes_of_names`. Raises `NotReplicable` where the filter or a route does
    not allow it, or where it names what the target reserves for itself, `StatementRefused` where it
    moves a table that may be another feed's.
    """
    selection, definition = manager.selection, step.definition
    judgement = selection.judged(definition, of_copy=step.is_of_copy)
    skip = judgement.skip
    # What reads a table that the filter leaves out, as a view may, runs only where the target has
    # that table anyway.
    there = _existing(judgement.needs, manager, target) if judgement.needs else {}
    if lacking := sorted(name for name in judgement.needs if name.folded() not in there):
        who = selection.filter.who_leaves_out(lacking[0])
        skip = f"it reads {', '.join(map(str, lacking))}, which {who} leaves out and the target does not have"
    if skip:
        return replace(step, skip=skip, source=step)
    _refuse_soft_deletes(step, manager)
    rename = step.ddl.rename
    if rename is not None and step.makes_view:
        views = {
            name
            for name, table in described((rename.old, rename.new), manager, target).items()
            if table.is_view
        }
        begun = step.identity in manager.backlog.started and rename.new.folded() in views
        if rename.old.folded() not in views and not begun:
            raise NotReplicable(
                f"{step.name}: {definition.path} gives a view another name, and {rename.old} is no view in the target. Create {rename.new} as the "
                "source has it"
            )
    if bare([step], manager, target):
        ways = manager.catalog.command("reload-done", step.name)
        raise NotReplicable(
            f"{BEFORE_FEED.format(f'{step.name} ({definition.path})')}. Give it a copy of the source. From an export: {ways}"
        )
    spelled = routed(definition, selection.routes, manager.databases)
    # By the routed names: what is reserved belongs to the target. Strangers are judged by the
    # bucket's own names, before any route.
    selection.refuse_reserved(spelled)
    refuse_strangers(definition, manager.databases)
    # Last: from here on the text has the target's spelling, for the target alone.
    real = with_real_names(spelled, target.existing(looked_up(spelled)))
    return replace(step, definition=real, ensure=step.ensure or judgement.from_columns, source=step)


def _refuse_soft_deletes(step: DdlStep, manager: ConsumerManager) -> None:
    """Raise `NotReplicable` where a table gets columns by which TiDB hides rows.

    In the target, deleted rows would be visible.
    """
    found, rename = hidden_columns(step.definition.columns), step.ddl.rename
    keys = {step.table_key, *([] if rename is None else [key_of(rename.old)])}
    tables = [manager.tables[key] for key in keys if key in manager.tables]
    # A feed that begins with a copy has no statement about which anybody could have decided.
    decided_before = (
        [] if step.is_of_copy and not any(table.checkpoint for table in tables) else tables
    )
    before = [table.timeline.structure_at(step.version - 1) for table in decided_before]
    # Who decided about the statement that brought the columns knows what the table is since.
    known = {name for each in before if each is not None for name in hidden_columns(each.columns)}
    if known.issuperset(found) or step.ddl.head[:1] == ("DROP",):
        return
    raise NotReplicable(
        f"{step.name}: it has {' and '.join(found)} ({step.definition.path}), so TiDB's soft delete is on for it, alone or for active-active: a row that is "
        "deleted at the source stays there, hidden, with the time in such a column, and would be visible in the target. That is not "
        "supported. To have such rows in the target all the same, create the table by `storage-consumer ddl replace` with these columns written out "
        "(`_tidb_origin_ts` BIGINT UNSIGNED, `_tidb_softdelete_time` TIMESTAMP(6) NULL), or say `storage-consumer ddl done` if the "
        "target has it so, and read it with WHERE _tidb_softdelete_time IS NULL. Otherwise leave it out with --filter"
    )


def decided(step: DdlStep, manager: ConsumerManager) -> DdlStep:
    """Return a step that an operator decided about: only its own name is routed."""
    name = manager.selection.routes.target(step.name)
    return replace(step, definition=replace(step.definition, name=name), source=step)


def was_seen(step: DdlStep, manager: ConsumerManager) -> bool:
    """Return whether the bucket has earlier structures of the table or of its database."""
    if manager.tables[step.table_key].timeline.structure_at(step.version - 1) is not None:
        return True
    schema = folded_name(step.name.schema)
    # A database may be older than the changefeed, so that no file creates it: earlier files of its
    # tables show it as well.
    return not step.name.table and any(
        0 < table.files.first < step.version and folded_name(table.name.schema) == schema
        for table in manager.tables.values()
    )


def _namesakes(
    name: NameAt, tables: Iterable[TableConsumer], step: DdlStep, existing: Existing
) -> list[Namesake]:
    """Return the tables a name may mean: those shown before the step, and its database's."""
    own = TableName(schema=step.name.schema, table=name.table)
    found = []
    for table in tables:
        # A rename finds no table of the bucket's history that the target lacks, unless left out.
        if not step.ddl.rename or table.status.left_out or table.name.folded() in existing:
            before, stays = (
                table.timeline.structure_at(step.version - 1),
                table.timeline.stays_after(step.version),
            )
            found.append(
                Namesake(
                    name=table.name, columns=() if before is None else before.columns, stays=stays
                )
            )
    if own.folded() in existing and not any(each.name.folded() == own.folded() for each in found):
        found.append(Namesake(name=existing[own.folded()]))
    # Its own comes first: there the statement finds it as it was typed.
    return sorted(found, key=lambda each: each.name.folded() != own.folded())


def _distinct(
    found: Sequence[Namesake], manager: ConsumerManager, target: Target
) -> list[Namesake]:
    """Return the tables that a statement may copy, only one of those alike in the target."""
    there = described((each.name for each in found), manager, target) if len(found) > 1 else {}
    kept: list[tuple[Namesake, TargetTable | None]] = []
    for each in found:
        shape = there.get(each.name.folded())
        shape = None if shape is None else replace(shape, name=each.name)
        if shape is None or all(
            known is None or replace(known, name=each.name) != shape for _, known in kept
        ):
            kept.append((each, shape))
    return [each for each, _ in kept]
