"""Which columns a statement renames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage_consumer.model import folded_name
from storage_consumer.sql.column_parts import NAMES
from storage_consumer.sql.tokens import Token, has_words, tokens


def renamed_columns(query: str) -> Mapping[str, str]:
    """Return the folded former name of each column, by its folded new one, that an ALTER TABLE renames."""
    found = [token for token in tokens(query) if token.depth == 0]
    renamed = {}
    for at, token in enumerate(found):
        rest = found[at + 1 :]
        names: Sequence[Token] = ()
        if token.upper == "CHANGE":
            rest = rest[1:] if has_words(rest[:1], "COLUMN") else rest
            rest = rest[2:] if has_words(rest[:2], "IF", "EXISTS") else rest
            names = rest[:2]
        elif token.upper == "RENAME" and has_words(rest[:1], "COLUMN"):
            names = [each for each in rest[1:4] if each.upper != "TO"]
        if len(names) == 2 and all(each.kind in NAMES for each in names):  # noqa: PLR2004 - the old name and the new one
            old, new = (folded_name(each.name) for each in names)
            renamed[new] = old
    return {new: old for new, old in renamed.items() if new != old}
