"""Which table a CREATE TABLE … LIKE copies."""

from __future__ import annotations

from storage_consumer.model import TableDefinition
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import names, tokens


def copied_table(query: str) -> tuple[str, str] | None:
    """Return schema and name of the table that a statement copies, as written; the schema is empty if none is. None: it copies none."""
    found = tokens(query)
    if [token.upper for token in found[:2]] != ["CREATE", "TABLE"]:
        return None
    for place in range(2, len(found)):
        # Anywhere else it compares texts.
        if found[place].upper == "LIKE" and (found[place].depth == 0 or found[place - 1].text == "("):
            schema, table, _ = next(names(found[place + 1 :]), ("", "", 0))
            return schema, table
    return None


def creates_as_listed(definition: TableDefinition) -> bool:
    """Return whether a statement creates a table with the columns that it lists itself."""
    return parsed(definition).creates_table and copied_table(definition.query) is None
