"""Times in a DDL that depend on the session's time zone, where the server knows that zone by its offset only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from storage_consumer.ddl.statement import statement_of
from storage_consumer.decode.time_zone import zone_caveat
from storage_consumer.errors import NotReplicable
from storage_consumer.job.target_table import TargetTable
from storage_consumer.model import TableDefinition, TableName, folded_name
from storage_consumer.sql.column_parts import column_parts
from storage_consumer.sql.tokens import Token, has_words

_TIMESTAMP = "TIMESTAMP"


def refuse_uncertain_moments(
    definition: TableDefinition,
    found: Sequence[Token],
    zone: str,
    describe: Callable[[Iterable[TableName]], Mapping[TableName, TargetTable]],
) -> None:
    """Raise `NotReplicable` if a statement holds times of a zone with daylight saving time, for which one offset is not enough.

    Defaults of columns are not among them: the schema file has them in UTC (see `literals.timestamps`). `describe` returns the
    target's tables. One recent year decides whether a zone has daylight saving time.
    """
    if zone_caveat(zone) and (what := _moments(found) or _converted(definition, found, describe)):
        raise NotReplicable(
            f"{definition.name}: the DDL with version {definition.version} ({definition.path}) has {what}, in {zone}, "
            "which the target does not know by its name; with one offset for the whole year some would become other "
            "times. Load the target's time zones (mysql_tzinfo_to_sql), and start again"
        )


def _moments(found: Sequence[Token]) -> str:
    """Return the first call of UNIX_TIMESTAMP with a text, as in the borders of partitions, or ""."""
    for at in range(len(found) - 2):
        if found[at].upper == "UNIX_TIMESTAMP" and found[at + 1].text == "(" and found[at + 2].kind == "string":
            return f"UNIX_TIMESTAMP({found[at + 2].text})"
    return ""


def _converted(
    definition: TableDefinition,
    found: Sequence[Token],
    describe: Callable[[Iterable[TableName]], Mapping[TableName, TargetTable]],
) -> str:
    """Return the first column that becomes a TIMESTAMP or stops being one, or "": its values are converted."""
    # Only these convert values that are there; a default is handled by `literals.timestamps`.
    if not any(has_words(found, verb) for verb in ("MODIFY", "CHANGE")):
        return ""
    there = describe([definition.name]).get(definition.name.folded())
    before = {folded_name(c.name): c.data_type.upper() for c in there.columns} if there else {}
    after = {folded_name(column.name): column.type for column in definition.columns}
    for former, name, _ in column_parts(found, statement_of(found, None, None).parts):
        old, new = before.get(folded_name(former), ""), after.get(folded_name(name), "")
        # A TIMESTAMP is stored in UTC, all other types as they read: passing from one to the other needs the zone for each value.
        if old and new and (old == _TIMESTAMP) != (new == _TIMESTAMP):
            return f"values of {name} that are converted from {old} to {new}"
    return ""
