"""TiDB's own comments: what they may hold, so that no two servers read different table names in one text."""

from __future__ import annotations

from collections.abc import Sequence

from storage_consumer.sql.tokens import Token

_FEATURES = frozenset(
    (
        *("auto_rand", "auto_id_cache", "auto_rand_base", "clustered_index", "force_inc", "placement", "ttl"),
        *("resource_group", "global_index", "pre_split", "affinity", "region_affinity", "split_region"),
    )
)
"""Features by whose names TiDB decides which versions read a comment; no TiDB reads one with any other name."""
_BEFORE_NAMES = frozenset(
    (
        *("TABLE", "VIEW", "DATABASE", "SCHEMA", "TO", "AS", "LIKE", "REFERENCES", "RENAME", "EXCHANGE", "ON"),
        *("FROM", "JOIN", "STRAIGHT_JOIN", "INTO", "SELECT", "WITH", "."),
    )
)
"""Words that may come right before the name of a table."""
_EXISTENCE = frozenset(("IF", "NOT", "EXISTS"))
"""Likewise, but TiDB writes these in comments too."""
_VIEWS = frozenset(("VIEW", "OR", "ALGORITHM", "DEFINER", "SQL"))
"""Words that follow CREATE if it creates a view."""
_HEAD = 3
"""Fewest tokens of a statement that has named its table."""


class Refusal(Exception):
    """Why a text may not run, as the end of a sentence."""


def refuse_unknown_features(listed: str | None) -> None:
    """Raise `Refusal` for a comment with a feature that TiDB does not have; None: it names no feature, so every TiDB reads it."""
    for feature in () if listed is None else listed.split(","):
        if feature not in _FEATURES:
            raise Refusal(f"it has a comment for a feature that TiDB does not have: [{feature[:60]}]")


def refuse_names_in_comments(plain: Sequence[Token], opened: Sequence[Token]) -> None:
    """Raise `Refusal` if a comment of TiDB could name a table: each version opens the comments whose features it knows.

    `plain`: the tokens outside comments; `opened`: these and those in comments, each at its place in the text.
    """
    outside = {token.start for token in plain}
    if all(token.upper in _EXISTENCE for token in opened if token.start not in outside):
        return
    words = [token.upper for token in plain[:2]]
    if words[:1] not in (["CREATE"], ["ALTER"]) or (words[0] == "CREATE" and words[-1] in _VIEWS):
        raise Refusal("it has a TiDB comment, and TiDB writes none in statements of this kind")
    for at, token in enumerate(opened):
        if token.start in outside:
            continue
        around = [one.upper for one in (*opened[at - 1 : at], token, *opened[at + 1 : at + 2])]
        # Near the head, after a word that precedes names, or before a dot, a token may be part of a table's name.
        early = at < _HEAD or around[0] in _BEFORE_NAMES | _EXISTENCE or around[-1] == "."
        if (early and token.upper not in _EXISTENCE) or (token.upper in _BEFORE_NAMES and not _is_decimal(opened, at)):
            raise Refusal(f"a TiDB comment in it could name a table: {token.text[:60]}")


def _is_decimal(found: Sequence[Token], at: int) -> bool:
    """Return whether a dot lies between the digits of a number."""
    sides = (*found[at - 1 : at], *found[at + 1 : at + 2])
    return found[at].text == "." and all(side.text.isascii() and side.text.isdigit() for side in sides)
