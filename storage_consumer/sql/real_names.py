"""Rewrite the names in a statement as the target spells them.

Statements are stored as TiDB ran them. A name may differ in case from the name that its table was created with, since
TiDB ignores case. A name without a database means the session's database, which is not recorded; see
`plan.unqualified_names`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from storage_consumer.model import NameAt, TableDefinition, TableName, folded_name
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.tokens import quote, replace_spans

Existing = Mapping[TableName, TableName]
"""Folded name → the name as the target spells it, for tables and databases (empty table) that exist there."""


def looked_up(definition: TableDefinition) -> set[TableName]:
    """Return the folded names whose spelling matters to `with_real_names`."""
    own = definition.name.folded()
    wanted = {own, replace(own, table="")}
    for name in parsed(definition).names:
        schema = folded_name(name.schema) or own.schema
        wanted |= {TableName(schema=schema, table=folded_name(name.table)), TableName(schema=schema, table="")}
    return wanted


def with_homes(definition: TableDefinition, existing: Existing, homes: Mapping[NameAt, TableName]) -> TableDefinition:
    """Return the definition with names qualified that it gives no database. `homes`: the tables that they mean; others stay as they are."""
    real = {name: existing.get(home.folded(), home) for name, home in homes.items()}
    edits = [(name.start, name.end, f"{quote(home.schema)}.{quote(home.table)}") for name, home in real.items()]
    return replace(definition, query=replace_spans(definition.query, edits)) if edits else definition


def with_real_names(definition: TableDefinition, existing: Existing) -> TableDefinition:
    """Return the definition with its names as the target spells them, in the query too.

    Names that the statement creates keep their spelling.
    """
    own = definition.name
    schema = _schema(own.schema, existing)
    named = parsed(definition).names
    edits = [(n.start, n.end, text) for n in named if (text := _respelled(n, own, existing))]
    real = existing.get(own.folded())
    # A new table is spelled as the source spells it, even if one that differs in case is there until the statement runs.
    creates = any(name.new and folded_name(name.table) == folded_name(own.table) for name in named)
    name = TableName(schema=schema, table=real.table if real is not None and own.table and not creates else own.table)
    if name == own and not edits:
        return definition
    return replace(definition, name=name, query=replace_spans(definition.query, edits))


def _schema(schema: str, existing: Existing) -> str:
    real = existing.get(TableName(schema=folded_name(schema), table=""))
    return schema if real is None else real.schema


def _respelled(name: NameAt, own: TableName, existing: Existing) -> str:
    """Return the replacement for a name; empty if the name can stay."""
    if not name.table:
        schema = _schema(name.schema, existing)
        return "" if name.new or schema == name.schema else quote(schema)
    # It stays without a database: only the spelling of the table may be another.
    if not name.schema:
        real = existing.get(TableName(schema=own.schema, table=name.table).folded(), own)
        return quote(real.table) if not name.new and real is not own and real.table != name.table else ""
    schema = _schema(name.schema, existing)
    there = existing.get(TableName(schema=name.schema, table=name.table).folded())
    table = name.table if name.new or there is None else there.table
    return "" if (schema, table) == (name.schema, name.table) else f"{quote(schema)}.{quote(table)}"
