"""What a table's statements say of its columns and no schema file does: virtual generated columns, and members of ENUM and SET.

Schema files list virtual columns, and rows do not have them; those of classic TiCDC list no members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from storage_consumer.exports.create_table import string_value
from storage_consumer.model import TableDefinition, folded_name
from storage_consumer.sql.column_parts import NAMES
from storage_consumer.sql.copied_table import creates_as_listed
from storage_consumer.sql.renamed_columns import renamed_columns
from storage_consumer.sql.tokens import Token, closing, tokens

_BEFORE_A_NAME = frozenset({"ADD", "COLUMN", "MODIFY", "CHANGE", "IF", "NOT", "EXISTS"})
_REDEFINING = {"MODIFY": 1, "CHANGE": 2}
"""Verb of an action that defines a column anew → how many tokens after it the column's name is."""


def virtual_columns(query: str) -> frozenset[str]:
    """Return the folded names of the columns that a CREATE TABLE or ALTER TABLE defines as virtual generated ones."""
    return _generated(query, stored=False)


def stored_columns(query: str) -> frozenset[str]:
    """Return the folded names of the columns that a CREATE TABLE or ALTER TABLE defines as stored generated ones."""
    return _generated(query, stored=True)


def _generated(query: str, *, stored: bool) -> frozenset[str]:
    found = tokens(query)
    # Each may be a name behind the other: `view` is no reserved word.
    if next((token.upper for token in found if token.upper in ("TABLE", "VIEW")), "") != "TABLE":
        return frozenset()
    names = (
        _column(found, at)
        for at, token in enumerate(found[:-1])
        # Without STORED, a generated column is virtual: VIRTUAL is the default and need not be written.
        if token.upper == "AS" and found[at + 1].text == "(" and _is_stored(found, at) == stored
    )
    return frozenset(folded_name(name) for name in names if name)


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


def virtual_after(before: frozenset[str], step: TableDefinition) -> frozenset[str]:
    """Return the folded names of a table's virtual generated columns after a statement, `before` being those before it."""
    return _after(before, step, stored=False)


def _followed(steps: Iterable[TableDefinition], *, stored: bool) -> frozenset[str]:
    """Return which columns are generated ones after these steps, if none was before them."""
    generated: frozenset[str] = frozenset()
    for each in steps:
        generated = _after(generated, each, stored=stored)
    return generated


def _after(before: frozenset[str], step: TableDefinition, *, stored: bool) -> frozenset[str]:
    renamed = renamed_columns(step.query)
    moved = {new for new, old in renamed.items() if old in before}
    kept = frozenset[str]() if creates_as_listed(step) else before - {*renamed, *renamed.values()}
    found = ((kept | moved) - _redefined(step.query)) | _generated(step.query, stored=stored)
    # A column that is no longer listed was dropped; its name may come back as an ordinary one.
    return found & {folded_name(column.name) for column in step.columns} if step.columns else found


def _redefined(query: str) -> frozenset[str]:
    """Return the folded names of the columns that an ALTER TABLE defines anew: ordinary ones, unless it says more."""
    words = [
        token for token in tokens(query) if not token.depth and token.upper not in _BEFORE_A_NAME - _REDEFINING.keys()
    ]
    places = (at + _REDEFINING[word.upper] for at, word in enumerate(words) if word.upper in _REDEFINING)
    return frozenset(folded_name(words[place].name) for place in places if place < len(words))


def _column(found: Sequence[Token], at: int) -> str:
    """Return the name of the column whose definition contains the word at `at`."""
    depth = found[at].depth
    # Back to the comma or the bracket before this definition, past everything that is nested deeper.
    begin = at
    while (
        begin and found[begin - 1].depth >= depth and (found[begin - 1].text != "," or found[begin - 1].depth > depth)
    ):
        begin -= 1
    words = [token for token in found[begin:at] if token.depth == depth]
    if depth == 0:
        # ALTER TABLE has no brackets around its definitions: the name follows the last word of action.
        actions = [place for place, token in enumerate(words) if token.upper in {"ADD", "MODIFY", "CHANGE"}]
        if not actions:
            return ""
        words = words[actions[-1] :]
    changed = bool(words) and words[0].upper == "CHANGE"
    names = [token for token in words if token.upper not in _BEFORE_A_NAME]
    # CHANGE names the column twice, first as it was.
    place = 1 if changed else 0
    return names[place].name if len(names) > place else ""


def _is_stored(found: Sequence[Token], at: int) -> bool:
    """Return whether STORED follows the expression after the word at `at`, in the same definition."""
    depth = found[at].depth
    for token in found[at + 2 :]:
        if token.depth < depth or (token.depth == depth and token.text == ","):
            return False
        if token.depth == depth and token.upper == "STORED":
            return True
    return False


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
