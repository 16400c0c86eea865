"""Which tables of the bucket are left out, and which statements of the others are not run. Pure.

Names are compared without regard to case, TiDB's own rule: one table can lie under two paths that differ only in case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from storage_consumer.config.filter_and_routes import ALL_DDL, ALTER_TABLE, EVENTS, NO_ALTERATIONS
from storage_consumer.config.settings import EventFilter
from storage_consumer.config.table_filter import TableRules, table_rules
from storage_consumer.model import TableDefinition, TableName
from storage_consumer.plan.renames import rename_of, subject


@dataclass(frozen=True, slots=True)
class _Ignoring:
    """One event filter, compiled."""

    tables: TableRules
    events: tuple[str, ...]
    expression: re.Pattern[str] | None


class Filter:
    """The program's own filter."""

    def __init__(self, rules: Sequence[str] = (), event_filters: Sequence[EventFilter] = ()) -> None:
        """Compile `rules` of TiCDC's table filter (none: every table is taken) and the event filters."""
        self._tables = table_rules(tuple(rules)) if rules else None
        self._ignoring = [
            _Ignoring(
                table_rules(each.matcher),
                each.ignore_event,
                re.compile("|".join(each.ignore_sql), re.IGNORECASE) if each.ignore_sql else None,
            )
            for each in event_filters
        ]

    def leaves_out(self, name: TableName) -> bool:
        """Return whether a table is left out; a database is left out if no table of it can be taken."""
        return self._tables is not None and not _takes(self._tables, name)

    def ignores(self, definition: TableDefinition) -> str:
        """Return why the statement of a table that is taken is not run, or an empty text.

        As in TiCDC, a rename is judged by the table's old name.
        """
        if not self._ignoring or not definition.is_ddl:
            return ""
        rename = rename_of(definition)
        name = subject(definition) if rename is None else rename.old
        event = EVENTS.get(definition.ddl_type, "")
        for each in self._ignoring:
            if not _takes(each.tables, name):
                continue
            if found := _event(each.events, event, definition.ddl_type):
                return f"ignore-event {found!r} of an event filter"
            if each.expression is not None and (match := each.expression.search(definition.query)):
                return f"ignore-sql of an event filter, which matches {match[0][:80]!r}"
        return ""


def _takes(rules: TableRules, name: TableName) -> bool:
    return rules.matches(name.schema, name.table) if name.table else rules.matches_schema(name.schema)


def _event(ignored: Sequence[str], event: str, action: int) -> str:
    """Return which of the ignored events a statement is, or an empty text; TiCDC never ignores a kind that it does not know."""
    if not event:
        return ""
    names = (event, ALL_DDL) if action in NO_ALTERATIONS else (event, ALL_DDL, ALTER_TABLE)
    return next((name for name in names if name in ignored), "")
