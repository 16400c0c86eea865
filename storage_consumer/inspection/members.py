"""The members of ENUM and SET columns by the statements that made them: classic TiCDC's schema files do not list them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from storage_consumer.exports.create_table import string_value
from storage_consumer.model import TableDefinition, folded_name
from storage_consumer.sql.column_parts import NAMES
from storage_consumer.sql.copied_table import creates_as_listed
from storage_consumer.sql.renamed_columns import renamed_columns
from storage_consumer.sql.tokens import closing, tokens

_LISTED = ("ENUM", "SET")
Members = Mapping[str, tuple[str, ...]]
"""By folded name of the column."""


def members(query: str) -> dict[str, tuple[str, ...]]:
    """Return the members of the ENUM and SET columns that a statement defines; empty for those that it gives in another way than texts do."""
    found = tokens(query)
    result = {}
    for at in range(1, len(found) - 1):
        if found[at].upper in _LISTED and found[at + 1].text == "(" and found[at - 1].kind in NAMES:
            inside = found[at + 2 : closing(found, at + 1)]
            texts = [token.text for token in inside if token.kind == "string"]
            is_plain = all(text.startswith("'") for text in texts) and all(
                token.kind == "string" or token.text == "," for token in inside
            )
            # TiDB keeps members without blanks at their end.
            named = tuple(string_value(text).rstrip(" ") for text in texts)
            result[folded_name(found[at - 1].name)] = named if is_plain else ()
    return result


def known_members(history: Iterable[TableDefinition]) -> Members:
    """Return the members as the last of a table's statements leave them; a column that they do not show is missing.

    `history`: what was read of the table in order, behind what was read of one that it was made LIKE.
    """
    known: dict[str, tuple[str, ...]] = {}
    for each in history:
        if creates_as_listed(each):
            known.clear()
        renamed = renamed_columns(each.query)
        there = {folded_name(column.name) for column in each.columns}
        moved = {new: known[old] for new, old in renamed.items() if old in known}
        known = {name: found for name, found in known.items() if name not in renamed.values()} | moved
        known |= members(each.query)
        # Its name may come back as a column of another kind.
        known = {name: found for name, found in known.items() if name in there or not each.columns}
    return known
