"""What a table's statements say of its columns and no schema file does: virtual generated columns, and members of ENUM and SET.

Schema files list virtual columns, and rows do not have them; those of classic TiCDC list no members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from storage_consumer.bucket.export_structure import string_value
from storage_consumer.model import TableDefinition, folded_name
from storage_consumer.sql.statement import creates_as_listed, statement_of
from storage_consumer.sql.tokens import NAMES, closing, tokens

_LISTED = ("ENUM", "SET")
Members = Mapping[str, tuple[str, ...]]
"""By folded name of the column."""


def generated_columns(query: str, *, stored: bool | None = None) -> frozenset[str]:
    """Return the folded names of the columns that a CREATE TABLE or ALTER TABLE defines as generated ones.

    `stored`: only stored ones, or only virtual ones; None: both.
    """
    return frozenset(
        folded_name(column.name)
        for column in statement_of(query).columns
        if column.generated[0] > 0 and stored in (None, column.is_stored)
    )


def known_virtual(definition: TableDefinition, history: Iterable[TableDefinition]) -> frozenset[str] | None:
    """Return the virtual generated columns of a table's version; None if its history does not show them for certain.

    `history`: what was read of the table's schema files. It suffices if it has the table's CREATE TABLE with its columns.
    """
    # Later statements do not count: they changed rows of later directories only.
    past = sorted((each for each in history if each.version <= definition.version), key=lambda each: each.version)
    begin = max((place for place, each in enumerate(past) if creates_as_listed(each)), default=None)
    if begin is None:
        return None
    return _followed(past[begin:], stored=False)


def known_stored(history: Iterable[TableDefinition]) -> frozenset[str]:
    """Return the stored generated columns of a table after the last of its schema files, as far as their statements show them."""
    return _followed(history, stored=True)


def _followed(steps: Iterable[TableDefinition], *, stored: bool) -> frozenset[str]:
    """Return which columns are generated ones after these steps, if none was before them."""
    generated: frozenset[str] = frozenset()
    for each in steps:
        generated = generated_after(generated, each, stored=stored)
    return generated


def generated_after(before: frozenset[str], step: TableDefinition, *, stored: bool) -> frozenset[str]:
    """Return the folded names of a table's stored or virtual generated columns after a statement, `before` being those before it."""
    statement = statement_of(step.query)
    renamed = statement.renamed
    moved = {new for new, old in renamed.items() if old in before}
    kept = frozenset[str]() if creates_as_listed(step) else before - {*renamed, *renamed.values()}
    # Who is defined anew is an ordinary column, unless the statement says more.
    anew = {folded_name(column.name) for column in statement.columns if column.verb in ("MODIFY", "CHANGE")}
    found = ((kept | moved) - anew) | generated_columns(step.query, stored=stored)
    # A column that is no longer listed was dropped; its name may come back as an ordinary one.
    return found & {folded_name(column.name) for column in step.columns} if step.columns else found


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
        renamed = statement_of(each.query).renamed
        there = {folded_name(column.name) for column in each.columns}
        moved = {new: known[old] for new, old in renamed.items() if old in known}
        known = {name: found for name, found in known.items() if name not in renamed.values()} | moved
        known |= members(each.query)
        # Its name may come back as a column of another kind.
        known = {name: found for name, found in known.items() if name in there or not each.columns}
    return known
