"""Column selectors: which columns TiCDC's new architecture writes for a table. Schema files list all of them nevertheless.

A matcher is a list of rules of TiCDC's table filter (``schema.table``). A selector's columns are rules of the same language
for one name; see `table_filter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storage_consumer.config.settings import ColumnSelector
from storage_consumer.config.table_filter import table_rules
from storage_consumer.errors import ConfigError


def unselected(
    selectors: Sequence[ColumnSelector], table: tuple[str, str], names: Iterable[str], *, case: bool
) -> list[str]:
    """Return the columns that the rows of a table (schema, name) lack. `case`: table names are case-sensitive; column names never are.

    The first selector whose matcher includes the table applies to it; without one, its rows carry all columns.
    """
    for selector in selectors:
        if table_rules(selector.matcher, case=case).matches(*table):
            columns = table_rules(selector.columns, parts=1)
            return [name for name in names if not columns.matches(name)]
    return []


def check(selectors: Iterable[ColumnSelector]) -> None:
    """Raise `ConfigError` for a rule that cannot be read."""
    for selector in selectors:
        try:
            table_rules(selector.matcher)
            table_rules(selector.columns, parts=1)
        except ValueError as error:
            raise ConfigError(f"[[sink.column-selectors]]: {error}") from error
