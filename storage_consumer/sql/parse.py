"""Find out once what a statement says. Everything else asks the definition that has it, by `parsed`."""

from __future__ import annotations

from collections.abc import Sequence

from storage_consumer.model import ParsedDdl, Rename, TableDefinition, TableName
from storage_consumer.sql.table_names import table_names
from storage_consumer.sql.tokens import Token, find_words, has_words, makes_global_index, names, tokens

_NOISE = frozenset(("RENAME", "TABLE", "ALTER", "TO", "AS", "IF", "EXISTS", ";", ","))
_NAMING_OTHERS = frozenset(("RENAME", "LIKE", "REFERENCES", "VIEW"))
"""Words of statements that can touch other tables than their own; a RENAME may be ALTER TABLE a RENAME TO b."""


def parsed(definition: TableDefinition) -> ParsedDdl:
    """Return what the definition's statement says. It is parsed at the first call, and held by the definition from then on."""
    if (held := definition.held) is None:
        held = parse_ddl(definition.query, definition.name)
        # Frozen, but this only remembers what follows from the other fields. Two threads that meet here store equal records.
        object.__setattr__(definition, "held", held)
    return held


def parse_ddl(query: str, own: TableName) -> ParsedDdl:
    """Return what a statement says; `own`: the name in its schema file. The time is linear in the length of the text."""
    found = tokens(query)
    if not found:
        return ParsedDdl(own=own, subject=own)
    words = {token.upper for token in found}
    rename = _rename(found, own) if "RENAME" in words else None
    exchanges = "EXCHANGE" in words and has_words(found, "EXCHANGE", "PARTITION")
    drops = "DROP" in words and has_words(found, "DROP", "TABLE")
    return ParsedDdl(
        own=own,
        subject=own if rename is None or rename.new.folded() == own.folded() else rename.new,
        head=tuple(token.upper for token in found[:2]),
        rename=rename,
        names=tuple(table_names(found)),
        # Any other statement touches its own table only, so its words need not be looked at.
        others=_mentioned(found, own) if exchanges or drops or words & _NAMING_OTHERS else frozenset(),
        exchanges_partition=exchanges,
        has_references="REFERENCES" in words,
        makes_global_index=makes_global_index(query),
    )


def _mentioned(found: Sequence[Token], own: TableName) -> frozenset[TableName]:
    # Every word may be a table's name here. One too many costs a little waiting; one too few would let rows overtake a statement.
    return frozenset(TableName(schema=schema or own.schema, table=table) for schema, table, _ in names(found))


def _rename(found: Sequence[Token], own: TableName) -> Rename | None:
    at = find_words(found, "RENAME", depth=0)
    # These rename a part of the table; a later action of the same ALTER may still rename the table itself.
    while 0 <= at < len(found) - 1 and found[at + 1].upper in ("COLUMN", "INDEX", "KEY"):
        at = find_words(found, "RENAME", depth=0, start=at + 1)
    if at < 0 or not has_words(found[:2], found[0].upper, "TABLE") or found[0].upper not in ("RENAME", "ALTER"):
        return None
    # ALTER TABLE a RENAME b has its old name before the word, RENAME TABLE a TO b has both names after it.
    before, after = _named(found[:at]), _named(found[at:])
    pair = [*before[:1], *after[:1]] if before else after
    if len(pair) < 2:  # noqa: PLR2004 - an old and a new name
        return None
    (old_schema, old), (new_schema, new) = pair[0], pair[-1]
    return Rename(
        old=TableName(schema=old_schema or own.schema, table=old),
        new=TableName(schema=new_schema or own.schema, table=new),
        from_anywhere=bool(new_schema) and not old_schema,
    )


def _named(found: Sequence[Token]) -> list[tuple[str, str]]:
    """Return (schema, table) of each name in a statement that renames a table."""
    return [(schema, table) for schema, table, _ in names([token for token in found if token.upper not in _NOISE])]
