"""Tables that were changed in the target by others: what they held may be lost, which putting the structure back does not cure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from storage_consumer.config.commands import reaching
from storage_consumer.driver.context import RoundContext
from storage_consumer.driver.ddl_prepare import described
from storage_consumer.driver.remedies import table_command
from storage_consumer.errors import NotReplicable
from storage_consumer.job.match import altered
from storage_consumer.model import TableDefinition, TableName
from storage_consumer.plan.steps import key_of
from storage_consumer.verifying.healing import heal_command
from storage_consumer.verifying.result import Outcome, TableResult

_ALTERED = (
    "The target's table {}: if somebody changed it there, what was cut or dropped is lost, and does not come back with the structure. Give the table a "
    "copy of the source, or let it go on and compare it (`storage-consumer verify`)"
)


def with_doubt(error: str, name: TableName, structure: TableDefinition, context: RoundContext) -> str:
    """Return the error that halts a table, with what to do about a table that is not what it was; store that it is in doubt.

    `structure`: the source's, in force where the table stands.
    """
    # As it is by now: what a round knows may be of before somebody changed it.
    there = described([name], context.manager, context.target).get(name.folded())
    why = ""
    # A table whose rows cannot be read halts for that, which is no reason to end the run.
    with suppress(NotReplicable):
        why = altered(structure, there, context.config.upstream) if there is not None and not there.is_view else ""
    if there is None or not why:
        return error
    reason, downstream = _ALTERED.format(why), context.config.downstream
    found = TableResult(table=name, target=there.name, outcome=Outcome.DIFFERENT, structure=(why,), reason=reason)
    found = replace(found, heal=heal_command(found, reaching(downstream)))
    context.state.verified.doubt(key_of(name), found.document())
    copies = context.manager.catalog.command("reload-done", name)
    ways = f"to give it a copy, from an export: {copies}"
    head, mark, steps = error.rpartition(" Next steps: ")
    if mark:
        return f"{head} {reason}. Next steps: {steps} -- {ways}"
    again = f"to let it go on and compare it: {table_command('resume', name, downstream)}"
    return f"{error.rstrip('.')}. {reason}. Next steps: {ways} -- {again}"
