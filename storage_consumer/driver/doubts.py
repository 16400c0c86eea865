"""Tables that may differ: changed in the target by others, or read past a missing file.

Changes by others are those without a statement.

What they lack may be lost, which putting structure or file back does not cure.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from storage_consumer.config.commands import reaching
from storage_consumer.driver.ddl_prepare import described
from storage_consumer.driver.ledger import RoundContext
from storage_consumer.driver.remedies import table_command
from storage_consumer.errors import NotReplicable
from storage_consumer.model import DdlKind, TableDefinition, TableName
from storage_consumer.plan.ddl_backlog import changes_nothing_to_compare
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.rows.comparison import TableResult, VerifyOutcome, heal_command
from storage_consumer.rows.fitting import TargetTable
from storage_consumer.rows.match import altered
from storage_consumer.telemetry import Log

_ALTERED = (
    "The target's table {}: if somebody changed it there, what was cut or dropped is lost, and does not come back with the structure. Give the table a "
    "copy of the source, or let it go on and compare it (`storage-consumer verify`)"
)
_log = Log("round")
_SKIPPED = (
    "An operator has skipped a statement of the source, so the target's table is not what that makes it, until it has a copy of the source, or "
    "`storage-consumer verify` finds it equal: {}"
)
_LATE = (
    "{} was listed only after files that follow it, when rows up to {} had been applied: those in it up to there were taken for "
    "repeats. They may be missing, until the table has a copy of the source, or `storage-consumer verify` finds it equal"
)
_SHOWN = 500


def with_doubt(
    error: str,
    name: TableName,
    structure: TableDefinition,
    context: RoundContext,
    *,
    soon: TableName | None = None,
    or_as: TableDefinition | None = None,
) -> str:
    """Return the error that halts a table, with the remedy if it changed; store it as in doubt.

    `structure`: the source's, in force where the table stands. `soon`: the name that a statement
    gives it, or has given it. `or_as`: what the table may be as well.
    """
    # As it is by now: what a round knows may be of before somebody changed it.
    names = [name] if soon is None else [name, soon]
    found = described(names, context.manager, context.target)
    there = next((found[each.folded()] for each in names if each.folded() in found), None)
    may_be = [structure] if or_as is None else [structure, or_as]
    whys = [_altered(each, there, context) for each in may_be]
    if not all(whys):
        return error
    why = whys[0]
    reason, downstream = _ALTERED.format(why), context.config.downstream
    _doubt(name, (why,), reason, context)
    if there is None and "reload-done" in error:
        return error
    copies = context.manager.catalog.command("reload-done", name)
    ways = f"to give it a copy, from an export: {copies}"
    head, mark, steps = error.rpartition(" Next steps: ")
    if mark:
        return f"{head} {reason}. Next steps: {steps} -- {ways}"
    again = f"to let it go on and compare it: {table_command('resume', name, downstream)}"
    return f"{error.rstrip('.')}. {reason}. Next steps: {ways} -- {again}"


def _altered(structure: TableDefinition, there: TargetTable | None, context: RoundContext) -> str:
    if there is None:
        return "is gone"
    # A table whose rows cannot be read halts for that, which is no reason to end the run.
    with suppress(NotReplicable):
        return "" if there.is_view else altered(structure, there, context.config.upstream)
    return ""


def doubt_without(step: DdlStep, context: RoundContext) -> None:
    """Store a skipped statement's table as in doubt, unless it changes no rows or columns."""
    own = context.manager.tables.get(step.table_key)
    before = own.timeline.structure_at(step.version - 1) if own is not None else None
    definition = step.origin.definition
    if not step.name.table or definition.is_view or definition.ddl_type == DdlKind.DROP_TABLE:
        return
    if not changes_nothing_to_compare(definition, before):
        _doubt(
            step.name, ("lacks a statement",), _SKIPPED.format(definition.query[:_SHOWN]), context
        )


def doubt_late(name: TableName, path: str, checkpoint: int, context: RoundContext) -> None:
    """Store that a table is in doubt: it had passed rows of a file before that was listed.

    They are those up to a checkpoint.
    """
    reason = _LATE.format(path, checkpoint)
    _log.warning("storage_warning", text=reason)
    _doubt(name, (), reason, context)


def _doubt(name: TableName, whys: tuple[str, ...], reason: str, context: RoundContext) -> None:
    place = context.manager.selection.routes.target(name)
    found = TableResult(
        table=name, target=place, outcome=VerifyOutcome.DIFFERENT, structure=whys, reason=reason
    )
    # Nobody has counted what it lacks.
    heal = heal_command(replace(found, missing=1), reaching(context.config.downstream))
    context.state.verified.doubt(key_of(name), replace(found, heal=heal).document())
