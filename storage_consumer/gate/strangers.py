"""Tables besides its own that a statement takes rows from or gives rows to: they must be of a database of this feed."""

from __future__ import annotations

from collections.abc import Iterable

from storage_consumer.errors import StatementRefused
from storage_consumer.model import TableDefinition, folded_name
from storage_consumer.plan.renames import rename_of
from storage_consumer.sql.table_names import table_names
from storage_consumer.sql.tokens import has_words, tokens


def refuse_strangers(definition: TableDefinition, databases: Iterable[str]) -> None:
    """Raise `StatementRefused` for a rename, or an EXCHANGE PARTITION, that moves a table of a database the bucket never showed.

    All names are those of the bucket; `databases`: those of all tables that are known of it.
    """
    if rename_of(definition) is None and not has_words(tokens(definition.query), "EXCHANGE", "PARTITION"):
        return
    known = {folded_name(database) for database in databases} | {folded_name(definition.name.schema)}
    for name in table_names(definition.query):
        if name.schema and folded_name(name.schema) not in known:
            raise StatementRefused(
                f"{definition.name}: the DDL with version {definition.version} ({definition.path}) was not run, "
                f"because it moves a table of {name.schema}, a database that does not appear in the bucket: "
                f"{definition.query[:200]}"
            )
