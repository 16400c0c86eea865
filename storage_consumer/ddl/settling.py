"""What an interrupted statement must have led to, as far as its schema file tells, and the error of a refused one. Pure."""

from __future__ import annotations

from storage_consumer.errors import DdlFailed
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import TableDefinition, folded_name
from storage_consumer.plan.barriers import DROP_TABLE, DROP_VIEW
from storage_consumer.plan.renames import is_astray
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table_words import table_flag

_CREATE_TABLE, _CREATE_VIEW = 3, 21
_HIDDEN = "_V$_"
"""Prefix of the hidden columns in which TiDB keeps expression indexes."""


def unlike(definition: TableDefinition, there: TargetTable | None) -> str:
    """Return how a table differs from what a statement leads to, or "" if it may be its result; `there` is None if it does not exist.

    Only the names of the columns are compared: every server shows those in the same way. Views, databases and statements about another
    table than the file's own tell nothing.
    """
    if is_astray(definition) or not definition.columns or definition.ddl_type in (_CREATE_VIEW, DROP_VIEW):
        return ""
    if definition.ddl_type == DROP_TABLE:
        return "" if there is None else "it exists"
    if there is None:
        return "it does not exist"
    wanted = {folded_name(c.name): c.name for c in definition.columns if not c.name.startswith(_HIDDEN)}
    found = {folded_name(column.name): column.name for column in there.columns}
    lacking = ", ".join(name for folded, name in wanted.items() if folded not in found)
    beyond = ", ".join(name for folded, name in found.items() if folded not in wanted)
    parts = (lacking and f"it lacks the columns {lacking}", beyond and f"it has the extra columns {beyond}")
    return " and ".join(part for part in parts if part)


def refusal(step: DdlStep, statement: str, fault: DdlFailed) -> DdlFailed:
    """Return the error of a statement that the target refuses: its answer, the statement, and the next steps."""
    remedy = fault.remedy or "Make the target's table fit"
    if step.definition.ddl_type == _CREATE_TABLE and not fault.remedy:
        remedy = (
            "If the table already holds the source's rows as of a known TSO (from a copy, or because a state was "
            f"lost), run `storage-consumer table reload-done {table_flag(step.origin.name)} --at TSO`. Otherwise "
            f"{remedy[0].lower()}{remedy[1:]}"
        )
    return DdlFailed(
        f"{step.name}: the target refused the DDL with version {step.version} ({step.definition.path}): {fault}. The "
        f"statement is: {statement[:500]}. {remedy}, then start again or run `storage-consumer table resume` to try "
        "it again"
    )
