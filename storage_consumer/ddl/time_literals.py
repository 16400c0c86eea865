"""Times in a DDL that depend on the session's time zone, where the server knows that zone by its offset only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from storage_consumer.decode.time_zone import zone_caveat
from storage_consumer.errors import NotReplicable
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import TableDefinition, TableName, folded_name
from storage_consumer.sql.statement import Statement, statement_of

_TIMESTAMP = "TIMESTAMP"


def refuse_uncertain_moments(
    definition: TableDefinition,
    query: str,
    zone: str,
    describe: Callable[[Iterable[TableName]], Mapping[TableName, TargetTable]],
) -> None:
    """Raise `NotReplicable` if a statement holds times of a zone with daylight saving time, for which one offset is not enough.

    Defaults of columns are not among them: the schema file has them in UTC (see `columns.timestamps`). `describe` returns the
    target's tables. One recent year decides whether a zone has daylight saving time.
    """
    statement = statement_of(query)
    if zone_caveat(zone) and (what := _moments(statement) or _converted(definition, statement, describe)):
        raise NotReplicable(
            f"{definition.name}: the DDL with version {definition.version} ({definition.path}) has {what}, in {zone}, "
            "which the target does not know by its name; with one offset for the whole year some would become other "
            "times. Load the target's time zones (mysql_tzinfo_to_sql), and start again"
        )


def _moments(statement: Statement) -> str:
    """Return the first call of UNIX_TIMESTAMP with a text, as in the borders of partitions, or ""."""
    for _, last in statement.find("UNIX_TIMESTAMP ("):
        for value in statement.tokens[last : last + 1]:
            if value.kind == "string":
                return f"UNIX_TIMESTAMP({value.text})"
    return ""


def _converted(
    definition: TableDefinition,
    statement: Statement,
    describe: Callable[[Iterable[TableName]], Mapping[TableName, TargetTable]],
) -> str:
    """Return the first column that becomes a TIMESTAMP or stops being one, or "": its values are converted."""
    # Only these convert values that are there; a default is handled by `columns.timestamps`.
    changed = [column for column in statement.columns if column.verb in ("MODIFY", "CHANGE")]
    there = describe([definition.name]).get(definition.name.folded()) if changed else None
    before = {folded_name(c.name): c.data_type.upper() for c in there.columns} if there else {}
    after = {folded_name(column.name): column.type for column in definition.columns}
    for column in changed:
        old, new = before.get(folded_name(column.former), ""), after.get(folded_name(column.name), "")
        # A TIMESTAMP is stored in UTC, all other types as they read: passing from one to the other needs the zone for each value.
        if old and new and (old == _TIMESTAMP) != (new == _TIMESTAMP):
            return f"values of {column.name} that are converted from {old} to {new}"
    return ""
