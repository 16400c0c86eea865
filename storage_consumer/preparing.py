"""Before a group of DDL runs: the order that the target's tables allow, and each name as the target has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from storage_consumer.consumers.manager import ConsumerManager
from storage_consumer.consumers.table import TableConsumer
from storage_consumer.model import TableName
from storage_consumer.planning.homes import Namesake, home_of, of_any_database
from storage_consumer.planning.naming import NameAt, looked_up, with_real_names
from storage_consumer.planning.renames import in_running_order, renamed
from storage_consumer.planning.steps import DdlStep
from storage_consumer.ports import Target


def in_order(group: Sequence[DdlStep], manager: ConsumerManager, target: Target) -> tuple[DdlStep, ...]:
    """The statements of one version in the order that they can run in, with renames put in that no file holds."""
    pairs = [pair for step in group if (pair := renamed(step.definition)) is not None]
    if len(pairs) <= 1:
        return tuple(group)
    spelled = target.existing(name for pair in pairs for name in pair)
    return in_running_order(group, frozenset(spelled), manager.started)


def with_target_names(step: DdlStep, manager: ConsumerManager, target: Target) -> DdlStep:
    """The step with every name as the target spells it, and the database of a name that the statement leaves open.

    Raises `NotReplicable` where a rename may mean several tables.
    """
    definition = step.definition
    namesakes = {
        name: [_namesake(table, step, manager) for table in manager.namesakes(name.table, step)]
        for name in of_any_database(definition)
    }
    wanted = looked_up(definition) | {n.name for found in namesakes.values() for n in found}
    existing = target.existing(wanted)

    def elsewhere(name: NameAt) -> TableName | None:
        return home_of(name, definition, existing, namesakes[name]) if name in namesakes else None

    return replace(step, definition=with_real_names(definition, existing, elsewhere))


def _namesake(table: TableConsumer, step: DdlStep, manager: ConsumerManager) -> Namesake:
    """What is known of a table right before the step, and of its fate after it."""
    found = manager.structure_before(table.name, step.version)
    columns = () if found is None else found.columns
    return Namesake(name=table.name, columns=columns, stays=table.stays_after(step.version))
